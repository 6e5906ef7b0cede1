"""Compares two builds of each workload: makes them, runs them, counts what they execute, and times them."""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from mlgokit.bench.build import BuildContext, Built, Workspace, build_sides, program_of
from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.counts import EVENTS, Counter
from mlgokit.bench.inputs import write_input
from mlgokit.bench.kept import Kept, Step, keep, key_of, read_kept
from mlgokit.bench.perf import Perf, find_perf
from mlgokit.bench.record import SIDES, Change, Failure, Measured, SideName, SideResult, WorkloadResult
from mlgokit.bench.results import Results, compare_results, read_results, results_of
from mlgokit.bench.running import Ran, Stage, Timing, compare_output, count_both, quiet_core, run_once, time_both
from mlgokit.bench.workloads import Workload
from mlgokit.compiler.pool import parallel
from mlgokit.errors import InputError, ToolError
from mlgokit.files import digest_file
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.progress import Report
from mlgokit.statistics import bootstrap_interval, geometric_mean_change

CounterName = Literal["auto", "perf", "callgrind", "none"]
RESULT_PAIRS = 4
"""Number of runs of each side of a workload that writes results itself."""


def choose_counter(wanted: CounterName) -> tuple[Counter | None, str]:
    """Choose a counter of executed instructions; ``auto`` means perf if it counts on this machine, else callgrind.

    Returns:
        The counter, ``None`` if nothing is to be counted; and why it is not perf, or why there is none.

    Raises:
        ToolError: the counter that was named does not work here, or no counter does.
    """
    if wanted == "none":
        return None, "nothing was to be counted"
    if wanted == "callgrind":
        return find_callgrind(), "callgrind was asked for"
    with tempfile.TemporaryDirectory(prefix="mlgokit-perf-") as scratch:
        found = find_perf(Path(scratch))
    if isinstance(found, Perf):
        return found, ""
    if wanted == "perf":
        raise ToolError(f"--counter perf: expected perf to count instructions, found: {found}; use --counter callgrind")
    return find_callgrind(), found


def compare_workloads(
    workloads: Sequence[Workload],
    *,
    context: BuildContext,
    folder: Path,
    without: Path,
    counter: Counter | None,
    run_seconds: float,
    timing: Timing,
    report: Report,
) -> tuple[WorkloadResult, ...]:
    """Compare two builds of each workload.

    All workloads are built first, then counted with as many at once as there are workers, then timed one by one. The
    result of each step is stored on disk, so that an interrupted comparison continues if all that affects its numbers
    is the same; :func:`~mlgokit.bench.kept.forget` makes the next one start again.

    Args:
        workloads: workloads to compare.
        context: settings of all builds.
        folder: working folder; must be empty or of an earlier comparison, whose files are replaced.
        without: folder of the comparison's own results, which is ignored among the files that affect the numbers.
        counter: counter of executed instructions; ``None`` to count nothing.
        run_seconds: deadline of a run.
        timing: bounds on the timing of each workload.
        report: receives the progress.

    Raises:
        CorpusError: a project is not unpacked.
        ReuseError: the folder has other files.
        StorageError: the disk is full or not writable.
        ToolError: a program cannot be started.
    """
    if not check_manifest(folder, kind="bench", config={}, toolchain=None, inputs={}):
        write_manifest(folder, kind="bench", config={}, toolchain=None, inputs={})
    settings = {"counter": counter.name if counter else "", "run_seconds": run_seconds, "timing": timing}
    stages: list[Stage] = []
    found: list[Kept] = []
    for workload in workloads:
        workspace = Workspace(folder=(folder / workload.name).absolute())
        key = key_of(workload, context, without, settings)
        found.append(_build(workload, workspace, context, key, report=report))
        stages.append(
            Stage(workload=workload, workspace=workspace, toolchain=context.toolchain, run_seconds=run_seconds)
        )

    def execute(index: int) -> Kept:
        return _run_step(stages[index], found[index], "counted", lambda row: _execute(stages[index], row, counter))

    found = parallel(execute, range(len(stages)), workers=context.workers, report=report, label="count")
    for index, stage in enumerate(stages):
        report(index, len(stages), "time")
        found[index] = _run_step(stage, found[index], "timed", lambda row, stage=stage: _time(stage, row, timing))
    report(len(stages), len(stages), "time")
    return tuple(one.row for one in found)


def _build(workload: Workload, workspace: Workspace, context: BuildContext, key: str, *, report: Report) -> Kept:
    """Make both builds and the inputs, or reuse those of an interrupted run."""
    kept = read_kept(workspace, workload, context.toolchain, key)
    if kept is None:
        workspace.clear()
        kept = Kept(of=key, step="", row=WorkloadResult(name=workload.name, kind=workload.kind))
    if not kept.is_done("built"):
        for side, built in build_sides(
            workload, workspace, context, done=SIDES[:1] if kept.step else (), report=report
        ):
            kept = dataclasses.replace(
                kept, step="built" if side == SIDES[1] else side, row=_add_build(kept.row, side, built)
            )
            keep(workspace, kept)
    if not kept.is_done("timed"):
        for wanted in workload.inputs:
            write_input(wanted, workspace.inputs)
    return kept


def _add_build(row: WorkloadResult, side: SideName, built: Built) -> WorkloadResult:
    """Add a side's build to the results of a workload."""
    result = SideResult(image=built.image, cost=built.cost)
    failures = (*row.failures, *([] if built.failure is None else [built.failure]))
    if side == SIDES[0]:
        return dataclasses.replace(row, before=result, failures=failures)
    return dataclasses.replace(row, after=result, failures=failures)


def _run_step(stage: Stage, kept: Kept, step: Step, work: Callable[[WorkloadResult], WorkloadResult]) -> Kept:
    """Perform a step of a workload and store its result, unless it has been done, or an earlier step failed."""
    if kept.is_done(step) or kept.row.failures:
        return kept
    done = dataclasses.replace(kept, step=step, row=work(kept.row))
    keep(stage.workspace, done)
    return done


def _execute(stage: Stage, result: WorkloadResult, counter: Counter | None) -> WorkloadResult:
    """Run both builds, compare their output, and count what they execute."""
    if stage.workload.format != "command":
        return _read_own_results(stage, result, counter)
    same, failures = compare_output(stage)
    result = dataclasses.replace(result, same_output=same, failures=failures)
    return _count(stage, result, counter) if same and counter is not None else result


def _count(stage: Stage, result: WorkloadResult, counter: Counter) -> WorkloadResult:
    """Count the events (instructions, loads and so on) of both builds, in their own files and in the whole process."""
    counted, failures = count_both(stage, counter)
    if failures:
        return dataclasses.replace(result, failures=failures)
    before, after = (
        dataclasses.replace(side, own=counted[name].own, whole=counted[name].whole)
        for name, side in zip(SIDES, (result.before, result.after), strict=True)
    )
    return dataclasses.replace(result, before=before, after=after)


def _time(stage: Stage, result: WorkloadResult, timing: Timing) -> WorkloadResult:
    """Add the time of both builds to the results of a workload, or why they are not timed."""
    programs = [program_of(stage.workload, stage.workspace, stage.toolchain, side) for side in SIDES]
    built = programs[0] != programs[1] and None not in (result.before.image, result.after.image)
    if built and digest_file(programs[0]) == digest_file(programs[1]):
        # With 95 % intervals, one of 20 such pairs would count as different.
        why = "both builds are the same program, byte for byte"
        hint = "; if they should differ, check that the build passes CFLAGS and CXXFLAGS (or {flags}) to the compiler"
        return dataclasses.replace(result, untimed=why if stage.workload.projects else why + hint)
    if timing.seconds <= 0:
        return result
    if stage.workload.format != "command":
        return dataclasses.replace(result, untimed="the program times itself")
    timed = time_both(stage, timing=timing, core=quiet_core())
    if isinstance(timed, Measured):
        return dataclasses.replace(result, time=timed)
    if isinstance(timed, Failure):
        return dataclasses.replace(result, failures=(timed,))
    return dataclasses.replace(result, untimed=timed)


# --- Workloads that write results themselves --------------------------------------------------------------------------


def _read_own_results(stage: Stage, result: WorkloadResult, counter: Counter | None) -> WorkloadResult:
    """Run both builds alternately, and read the results that each run writes.

    What they execute is counted if all runs repeat each benchmark equally often.
    """
    found: dict[SideName, list[Results]] = {side: [] for side in SIDES}
    for pair in range(RESULT_PAIRS):
        for side in SIDES if pair % 2 == 0 else SIDES[::-1]:
            ran = run_once(stage, side)
            read = _parse_results(stage, ran)
            if isinstance(read, str):
                return dataclasses.replace(result, failures=(Failure(side=side, step="results", reason=read),))
            found[side].append(read)
    measured, failures = compare_results(found["before"], found["after"])
    result = dataclasses.replace(result, results=measured, failures=failures)
    every = [one.iterations for files in found.values() for one in files]
    is_fixed = bool(every[0]) and all(one == every[0] for one in every)
    return _count(stage, result, counter) if is_fixed and counter is not None and not failures else result


def _parse_results(stage: Stage, ran: Ran) -> Results | str:
    """Parse the results that a run wrote to ``{results}`` or printed; returns a reason if there are none."""
    if ran.reason:
        return ran.reason
    try:
        if any("{results}" in word for word in stage.workload.run):
            return read_results(stage.workspace.results)
        return results_of(ran.stdout, where="its standard output")
    except InputError as error:
        return str(error)


# --- Over the workloads -----------------------------------------------------------------------------------------------

_NUMBERS: dict[str, Callable[[SideResult], float | None]] = {
    "image": lambda side: side.image,
    "compile time": lambda side: side.cost.seconds if side.cost else None,
    "compiler memory": lambda side: side.cost.peak_bytes if side.cost else None,
}


def changes_over(workloads: Sequence[WorkloadResult], *, rng: np.random.Generator) -> tuple[Change, ...]:
    """Compute the mean change of each measure over the workloads that have it on both sides, without failures.

    The mean is geometric, and its 95 % interval is by bootstrap over workloads.
    """
    sound = [one for one in workloads if not one.failures]
    pairs: dict[str, list[tuple[float, float]]] = {}
    for one in sound:
        for event in EVENTS:
            pairs.setdefault(event, []).append((getattr(one.before.counts, event), getattr(one.after.counts, event)))
        for measure, number_of in _NUMBERS.items():
            pairs.setdefault(measure, []).append((number_of(one.before) or 0.0, number_of(one.after) or 0.0))
        if one.time is not None:
            pairs.setdefault("time", []).append((one.time.before, one.time.after))
        for measured in one.results:
            pairs.setdefault(measured.measure, []).append((measured.before, measured.after))
    changes: list[Change] = []
    for measure, found in pairs.items():
        kept = [(before, after) for before, after in found if before and after and before > 0 and after > 0]
        if kept:
            before, after = ([pair[side] for pair in kept] for side in (0, 1))
            low, high = bootstrap_interval(before, after, rng=rng) if len(kept) > 1 else (None, None)
            mean = geometric_mean_change(before, after)
            changes.append(Change(measure=measure, mean=mean, low=low, high=high, workloads=len(kept)))
    return tuple(changes)

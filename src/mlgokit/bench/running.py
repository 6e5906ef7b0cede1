"""Runs both builds of a workload: compares their outputs, counts executed instructions, measures time."""

import dataclasses
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.bench.build import Workspace, clean_environment, fill_marks
from mlgokit.bench.counts import EVENTS, RUN_LIMITS, Counted, Counter, Counts, Execution
from mlgokit.bench.record import SIDES, Failure, Measured, SideName, Verdict
from mlgokit.bench.workloads import Workload
from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import digest_file, writing
from mlgokit.statistics import measure_in_pairs

LOOKS = (4, 6, 8, 12, 20, 32, 50)
"""Numbers of pairs of runs after which the interval is computed, and timing may end."""
LEAST_PAIRS = 2
"""Minimum number of pairs of runs for an interval."""
NEAR = 0.01
"""Times count as the same if the interval of their ratio is within this distance of 1."""
ERROR = 0.05
"""Significance level: share of comparisons of equal programs that count as different by chance."""
SHORTEST = 0.01
"""Minimum run time in seconds; in shorter runs, the start of the process dominates."""
_REPEATS = 3
"""Number of runs of each side for a counter that is not exact, of which the median is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Bounds on the timing of a workload; if one of them ends it, the interval may still be undecided.

    Attributes:
        seconds: time after which no pair of runs begins, except for the two that an interval needs; 0 for no timing.
        pairs: maximum number of pairs of runs.
    """

    seconds: float
    pairs: int = LOOKS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a run.

    Attributes:
        reason: why the run failed; empty for success.
        shown: digest of the output: what the program printed, and its output files.
        stdout: standard output.
        seconds: processor time.
    """

    reason: str = ""
    shown: str = ""
    stdout: bytes = b""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A workload with both of its builds.

    Attributes:
        workload: the workload.
        workspace: folder of the workload.
        toolchain: toolchain whose paths replace the marks ``{cc}`` and ``{cxx}``.
        run_seconds: deadline of a run.
    """

    workload: Workload
    workspace: Workspace
    toolchain: Toolchain
    run_seconds: float

    @property
    def argv(self) -> list[str]:
        """The command that runs the workload."""
        words = fill_marks(self.workload.run, self.workload, self.workspace, self.toolchain)
        beside = self.folder / words[0]
        return [str(beside), *words[1:]] if "/" in words[0] or beside.is_file() else words

    @property
    def folder(self) -> Path:
        """The working directory of a run."""
        return self.workspace.run if self.workload.projects else self.workspace.build

    def prepare(self) -> None:
        """Delete the files of the previous run.

        Raises:
            StorageError: the files cannot be deleted.
        """
        with writing(self.workspace.folder):
            self.workspace.results.unlink(missing_ok=True)
            if self.workload.projects:
                shutil.rmtree(self.workspace.run, ignore_errors=True)
                self.workspace.run.mkdir()


def run_once(stage: Stage, side: SideName, *, core: int | None = None) -> Ran:
    """Run the program of a side once.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the program cannot be started.
    """
    with stage.workspace.activate(side):
        stage.prepare()
        argv = stage.argv
        if shutil.which(argv[0]) is None:
            return Ran(reason=f"{argv[0]} is not an executable program")
        done = process.run(
            argv,
            timeout_seconds=stage.run_seconds,
            cwd=stage.folder,
            env=clean_environment(),
            limits=RUN_LIMITS,
            core=core,
        )
        if done.timed_out:
            return Ran(reason=f"it did not end within {stage.run_seconds:.0f} s")
        if done.returncode != stage.workload.exit_code:
            expected = stage.workload.exit_code
            return Ran(reason=f"it ended with {done.returncode} instead of {expected}: {first_error(done.stderr)}")
        digest = hashlib.sha256(done.stdout + b"\0" + done.stderr.encode())
        for path in sorted({path for pattern in stage.workload.outputs for path in stage.folder.glob(pattern)}):
            if path.is_file():
                digest.update(f"\0{path.relative_to(stage.folder)}\0{digest_file(path)}".encode())
        return Ran(shown=digest.hexdigest(), stdout=done.stdout, seconds=done.user_seconds + done.system_seconds)


def compare_output(stage: Stage) -> tuple[bool | None, tuple[Failure, ...]]:
    """Run both builds, and compare their output.

    Returns:
        Whether both have the same output, ``None`` if that cannot be told; and the failures, if it is not ``True``.
    """
    ran = {side: run_once(stage, side) for side in SIDES}
    failures = tuple(Failure(side=side, step="run", reason=one.reason) for side, one in ran.items() if one.reason)
    if failures:
        return None, failures
    if ran["before"].shown == ran["after"].shown:
        return True, ()
    if run_once(stage, "before").shown != ran["before"].shown:
        return None, (
            Failure(side="before", step="output", reason="its output differs between runs of the same build"),
        )
    return False, (Failure(side="after", step="output", reason="its output differs from the other build's"),)


def count_both(stage: Stage, counter: Counter) -> tuple[dict[SideName, Counted], tuple[Failure, ...]]:
    """Count the events, such as instructions, of a run of each build.

    Raises:
        ToolError: the counter cannot be started.
    """
    found: dict[SideName, list[Counted]] = {side: [] for side in SIDES}
    for repeat in range(1 if counter.exact else _REPEATS):
        for side in SIDES if repeat % 2 == 0 else SIDES[::-1]:
            with stage.workspace.activate(side):
                found[side].append(_count_active(stage, counter))
    failures = tuple(
        Failure(side=side, step="count", reason=reason)
        for side, counted in found.items()
        if (reason := next((one.reason for one in counted if one.reason), ""))
    )
    if failures:
        return {}, failures
    return {side: _median(counted) for side, counted in found.items()}, ()


def _count_active(stage: Stage, counter: Counter) -> Counted:
    """Count what the active build executes."""
    scratch = stage.workspace.folder / "counts"
    with writing(scratch):
        scratch.mkdir(exist_ok=True)
    stage.prepare()
    execution = Execution(
        argv=stage.argv,
        folder=stage.folder,
        environment=clean_environment(),
        own=stage.workspace.build,
        expected=stage.workload.exit_code,
        timeout_seconds=stage.run_seconds,
    )
    return counter.count(execution, scratch)


def _median(counted: Sequence[Counted]) -> Counted:
    """Take the median over several runs of each event that was counted in all of them."""
    if len(counted) == 1:
        return counted[0]
    middle: dict[str, int] = {}
    for event in EVENTS:
        values = [number for one in counted if (number := getattr(one.whole, event)) is not None]
        if len(values) == len(counted):
            middle[event] = sorted(values)[len(values) // 2]
    return dataclasses.replace(counted[0], whole=Counts(**middle))


def time_both(stage: Stage, *, timing: Timing, core: int) -> Measured | Failure | str:
    """Time both builds in pairs of runs on one processor core, until the interval is conclusive or a limit is reached.

    Args:
        stage: workload with both builds.
        timing: bounds on the timing.
        core: number of the processor core.

    Returns:
        The times, or the failure of a side, or why they were not measured.
    """
    begin = time.monotonic()
    failed: list[SideName] = []
    runs: list[float] = []

    def once(build: int) -> float | str:
        ran = run_once(stage, SIDES[build], core=core)
        if ran.reason:
            failed.append(SIDES[build])
            return ran.reason
        if ran.seconds < SHORTEST:
            return f"a run takes less than {1000 * SHORTEST:.0f} ms, which is too short to time"
        runs.append(ran.seconds)
        return ran.seconds

    found = measure_in_pairs(
        once,
        is_over=lambda: len(runs) >= 2 * LEAST_PAIRS and time.monotonic() - begin > timing.seconds,
        error=ERROR,
        looks=(*(look for look in LOOKS if look < timing.pairs), timing.pairs),
        near=NEAR,
        ratios=True,
        last_look=True,
    )
    if found.reason:
        return Failure(side=failed[0], step="time", reason=found.reason) if failed else found.reason
    pairs = len(found.before)
    return Measured(
        measure="time",
        unit="s",
        before=sum(found.before) / pairs,
        after=sum(found.after) / pairs,
        low=found.low,
        high=found.high,
        runs=pairs,
        verdict=verdict_of(found.low, found.high),
    )


def verdict_of(low: float | None, high: float | None) -> Verdict:
    """Classify the interval of a relative change.

    Example:
        >>> [verdict_of(*ends) for ends in ((-0.03, -0.01), (0.001, 0.002), (-0.02, 0.01), (None, None))]
        ['less', 'same', 'undecided', 'undecided']
    """
    if low is None or high is None:
        return "undecided"
    if low >= -NEAR and high <= NEAR:
        return "same"
    return "less" if high < 0 else "more" if low > 0 else "undecided"


def quiet_core() -> int:
    """Choose the processor core that runs are pinned to: the last available one, as the first handles interrupts."""
    return max(os.sched_getaffinity(0))

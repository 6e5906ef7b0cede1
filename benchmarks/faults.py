"""What becomes of a compilation that something happens to: kills at random, no pipes, no room, logs cut short."""

import functools
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import Cell, Result, Table, machine_versions, run_benchmark
from treatments import BOTH, PRESSURE, RANDOM

from mlgokit.advisors import Advisor, RandomLegal
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveResult, InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, command, compile_module
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, Toolchain, find_toolchain
from mlgokit.errors import StorageError, ToolError, TraceError
from mlgokit.problems import PROBLEMS
from mlgokit.progress import Report
from mlgokit.traces.log import read_log_bytes

CHANNELS = ("plugin", "pipes")
COPIES = 4
"""Functions in the sample, so that most of the compiler's time is in decisions."""
PAGE = 4096
ROOM_PAGES = 16
FREE_PAGES = (10, 3, 0)
"""Of the small file system: its pages, and how many are left for the compiler."""
FILLER = "filler"
CUT_BYTES = 6_000
ReportOne = Callable[[int], None]
OPTIONS = ("-cc1", "-triple", "x86_64-unknown-linux-gnu", "-O2", "-w", "-target-cpu", "x86-64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Kill compilers at random instants, and take their pipes, their room and the ends of their logs away."""

    kills: int = 500
    """Compilers killed in all, over both channels and all majors."""
    seed: int = 1
    """Of the instants and decisions."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/faults.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A compiler, its sample, and a folder that is all it has for temporary files."""

    toolchain: Toolchain
    plugin: Path
    bitcode: Path
    temporary: Path
    outputs: Path
    timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a compilation came to: whether it succeeded, the name of its status, and the sentence about it."""

    ok: bool
    status: str
    sentence: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Faults, measure, arguments)


def measure(config: Faults, report: Report) -> Result:
    """All faults for all majors."""
    rng = np.random.default_rng(config.seed)
    versions = machine_versions()
    kills: list[tuple[Cell, ...]] = []
    others: list[tuple[Cell, ...]] = []
    share = -(-config.kills // (len(SUPPORTED_MAJORS) * len(CHANNELS)))
    done = 0

    def told(before: int, one: int) -> None:
        report(before + one, config.kills, "kill")

    for major in SUPPORTED_MAJORS:
        toolchain = find_toolchain(major, need_plugin=True)
        versions |= {f"{name} {major}": value for name, value in toolchain.describe().items()}
        with make_place(toolchain, build_plugin(toolchain), timeout_seconds=config.timeout_seconds) as place:
            for channel in CHANNELS:
                wanted = min(share, config.kills - done)
                kills += kill_often(place, channel, wanted, rng, functools.partial(told, done))
                done += wanted
            others += [(major, *row) for row in (*without_pipes(place), *without_room(place), *cut_logs(place))]
    return summarise(kills, others, seed=config.seed, versions=versions)


@contextmanager
def make_place(toolchain: Toolchain, plugin: Path, *, timeout_seconds: float) -> Generator[Place]:
    """Compile the sample to bitcode; this process's temporary files are in the place meanwhile.

    Raises:
        ToolError: the sample does not compile.
    """
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="mlgokit-faults-") as scratch:
        folder = Path(scratch)
        text = "".join(PRESSURE.replace("hash", f"hash{index}") for index in range(COPIES))
        (folder / "sample.c").write_text(text)
        words = ["-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", folder / "sample.c"]
        made = process.run([toolchain.clang, *words, "-o", folder / "sample.bc"], timeout_seconds=timeout_seconds)
        if made.returncode != 0:
            raise ToolError(f"{toolchain.clang}: expected it to compile the sample, found: {made.stderr}")
        for name in ("temporary", "outputs"):
            (folder / name).mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "temporary")
        try:
            yield Place(
                toolchain=toolchain,
                plugin=plugin,
                bitcode=folder / "sample.bc",
                temporary=folder / "temporary",
                outputs=folder / "outputs",
                timeout_seconds=timeout_seconds,
            )
        finally:
            tempfile.tempdir = before[0]
            if before[1] is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before[1]


def compile_once(place: Place, channel: str, seed: int, wrapper: Path | None = None) -> Outcome:
    """Compile the sample with random evictions and priorities, logged; a fault is in the outcome."""
    try:
        if channel == "plugin":
            return _of_plugin(_through_plugin(place, seed))
        return _of_pipes(_over_pipes(place, seed, wrapper))
    except StorageError as error:
        return Outcome(ok=False, status="StorageError", sentence=str(error))


def _through_plugin(place: Place, seed: int) -> CompileResult:
    use = PluginUse(plugin=place.plugin, policies=dict.fromkeys(BOTH, RANDOM), logs=BOTH, seed=seed)
    return compile_module(place.toolchain, OPTIONS, place.bitcode, use=use, timeout_seconds=place.timeout_seconds)


def _over_pipes(place: Place, seed: int, wrapper: Path | None) -> InteractiveResult:
    advisors: dict[str, Advisor] = {
        name: RandomLegal(PROBLEMS[name], np.random.default_rng([seed, number])) for number, name in enumerate(BOTH)
    }
    argv = command(place.toolchain, OPTIONS, place.bitcode, place.outputs / "sample.o", None)
    return drive_channels(
        argv if wrapper is None else [str(wrapper), *argv],
        channels={
            name: channel_use(PROBLEMS[name], major=place.toolchain.major, advisor=advisor)
            for name, advisor in advisors.items()
        },
        timeout_seconds=place.timeout_seconds,
        answer_timeout_seconds=place.timeout_seconds,
    )


def _of_plugin(result: CompileResult) -> Outcome:
    ok = result.status is CompileStatus.OK
    sentence = "" if ok else f"{result.status.value}: {result.reason}"
    return Outcome(ok=ok, status=result.status.name, sentence=sentence)


def _of_pipes(result: InteractiveResult) -> Outcome:
    return Outcome(ok=result.status is InteractiveStatus.OK, status=result.status.name, sentence=result.detail)


def child_of_this_process() -> int | None:
    """The number of a child that runs, if there is one (Linux: proc(5))."""
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        if children:
            return int(children[0])
    return None


def kill_after(seconds: float, stop: threading.Event) -> None:
    """Wait for a child to appear, and kill it so many seconds later, if nobody says stop before."""
    while (child := child_of_this_process()) is None:
        if stop.wait(0.0005):
            return
    if not stop.wait(seconds) and child_of_this_process() == child:
        os.kill(child, signal.SIGKILL)


def kill_often(
    place: Place, channel: str, count: int, rng: np.random.Generator, report: ReportOne
) -> list[tuple[Cell, ...]]:
    """Kill so many compilers, each at an instant drawn from the time that one takes; a row for each kind of ending."""
    times: list[float] = []
    for seed in range(3):
        begin = time.monotonic()
        first = compile_once(place, channel, seed)
        if not first.ok:
            raise ToolError(f"{place.toolchain.clang}: expected it to compile the sample, found: {first.sentence}")
        times.append(time.monotonic() - begin)
    longest = float(np.median(times))
    endings: Counter[tuple[str, str, str]] = Counter()
    for index in range(count):
        stop = threading.Event()
        killer = threading.Thread(target=kill_after, args=(float(rng.uniform(0, longest)), stop))
        killer.start()
        outcome = compile_once(place, channel, seed=index)
        stop.set()
        killer.join()
        endings[outcome.status, outcome.sentence, ", ".join(left_behind(place))] += 1
        report(index + 1)
    major = place.toolchain.major
    return [(major, channel, status, said, left, number) for (status, said, left), number in sorted(endings.items())]


def left_behind(place: Place) -> list[str]:
    """What is in the folder for temporary files, and beside the output in its folder; it is removed."""
    found: list[str] = []
    for folder in (place.temporary, place.outputs):
        for path in sorted(folder.iterdir()):
            if path.name in {"sample.o", FILLER}:
                continue
            kind = "clang's own *.tmp beside the output" if path.suffix == ".tmp" else path.name.split("-")[0] + "-*"
            found.append(kind)
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return sorted(set(found))


def without_pipes(place: Place) -> list[tuple[Cell, ...]]:
    """A compiler whose pipes are removed before it opens them."""
    rows: list[tuple[Cell, ...]] = []
    for suffix in ("in", "out"):
        wrapper = place.outputs / "wrapper.sh"
        # The first word that names a base is that of the first channel.
        wrapper.write_text(
            "#!/bin/sh\nfor word; do case $word in\n"
            f'*-channel-base=*) rm -f "${{word#*=}}.{suffix}"; break;; esac; done\nexec "$@"\n'
        )
        wrapper.chmod(stat.S_IRWXU)
        outcome = compile_once(place, "pipes", 1, wrapper)
        wrapper.unlink()
        rows.append((f"pipe .{suffix} removed before it is opened", "pipes", *_told(place, outcome)))
    return rows


def without_room(place: Place) -> list[tuple[Cell, ...]]:
    """A folder for temporary files on a file system that is full, if this process may mount one."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_PAGES * PAGE}", "tmpfs", place.temporary]
    mounted = process.run(words, timeout_seconds=place.timeout_seconds)
    if mounted.returncode != 0:
        return [("temporary folder full", "both", "NOT TRIED", f"mount: {mounted.stderr.strip()}", "", False)]
    rows: list[tuple[Cell, ...]] = []
    filler = place.temporary / FILLER
    try:
        for pages in FREE_PAGES:
            filler.write_bytes(bytes((ROOM_PAGES - pages) * PAGE))
            for channel in CHANNELS:
                outcome = compile_once(place, channel, 1)
                rows.append((f"temporary folder with {pages * PAGE} bytes left", channel, *_told(place, outcome)))
    finally:
        # What runs keeps its standard output in the folder for temporary files, which would be busy.
        tempfile.tempdir = str(place.outputs)
        process.run(["umount", place.temporary], timeout_seconds=place.timeout_seconds)
        tempfile.tempdir = str(place.temporary)
    return rows


def cut_logs(place: Place) -> list[tuple[Cell, ...]]:
    """The logs of a small compilation, cut at every byte."""
    rows: list[tuple[Cell, ...]] = []
    place.bitcode.with_name("small.c").write_text(PRESSURE)
    small = place.bitcode.with_name("small.bc")
    words = ["-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", small.with_suffix(".c"), "-o", small]
    process.run([place.toolchain.clang, *words], timeout_seconds=place.timeout_seconds)
    use = PluginUse(plugin=place.plugin, policies=dict.fromkeys(BOTH, RANDOM), logs=BOTH, seed=1)
    keep = {name: place.outputs / f"{name}.log" for name in BOTH}
    compile_module(place.toolchain, OPTIONS, small, use=use, keep_logs=keep, timeout_seconds=place.timeout_seconds)
    for name, path in keep.items():
        data = path.read_bytes()[:CUT_BYTES]
        path.unlink()
        told: Counter[tuple[str, str]] = Counter()
        for cut in range(len(data)):
            try:
                read_log_bytes(data[:cut], name=name)
            except TraceError as error:
                told[
                    "TraceError", re.sub(r"\d+", "#", re.sub(r"found '.*' without", "found '...' without", str(error)))
                ] += 1
            else:
                told["OK", "a whole log of fewer observations"] += 1
        what = f"{name} log cut at every one of its first {len(data)} bytes"
        rows += [
            (f"{what}: {count} cuts", "plugin", status, said, "", status == "OK")
            for (status, said), count in sorted(told.items())
        ]
    return rows


def _told(place: Place, outcome: Outcome) -> tuple[Cell, ...]:
    # A result names no folder of the machine that it was made on.
    sentence = re.sub(r"/\S*/temporary(/mlgokit-[\w-]*)?", "TEMPORARY", outcome.sentence)
    return outcome.status, sentence, ", ".join(left_behind(place)), outcome.ok


def summarise(
    kills: Sequence[tuple[Cell, ...]], others: Sequence[tuple[Cell, ...]], *, seed: int, versions: dict[str, str]
) -> Result:
    """The tables, and whether every fault came to a sentence and left nothing."""
    count = sum(int(row[-1] or 0) for row in kills)
    killed = sum(int(row[-1] or 0) for row in kills if row[2] != "OK")
    silent = sum(1 for row in kills if row[2] != "OK" and not row[3])
    silent += sum(1 for row in others if not row[-1] and not row[4])
    left = sum(int(row[-1] or 0) for row in kills if "mlgokit" in str(row[4]))
    left += sum(1 for row in others if "mlgokit" in str(row[5]))
    tables = (
        Table(
            title="Killed at a random instant",
            columns=("LLVM", "channel", "status", "sentence", "left behind", "compilers"),
            rows=tuple(kills),
            note=(
                "Each compiler decides evictions and priorities at random, the plugin's with two logs, the pipes' over "
                "two channels. Signal 9 comes after a time drawn evenly from 0 to what one compilation takes, counted "
                "from the start of the process. The status OK is a compiler that was done before. All that it and "
                "mlgokit have for temporary files is one folder, which is looked at after each. The plugin's own "
                "folder exists for microseconds; a kill in just that time would leave a link to /dev/null, which the "
                "first compilation a minute later removes. Clang itself leaves *.tmp beside its output when it is "
                "killed: where mlgokit names the output, that is in a folder which it removes."
            ),
        ),
        Table(
            title="Other faults",
            columns=("LLVM", "fault", "channel", "status", "sentence", "left behind"),
            rows=tuple(row[:-1] for row in others),
            note=(
                "A full folder is a file system of 64 kB (tmpfs). # stands for any number, TEMPORARY for the folder. "
                "Made-up logs with outcomes are cut at every byte by tests/traces/test_log.py."
            ),
        ),
    )
    return Result(
        benchmark="faults",
        question="Does whatever happens to a compilation come to a result with a sentence, and leave nothing behind?",
        answer=(
            f"{count} compilers were to be killed at random instants, {killed} were still running; {silent} endings "
            f"were without a sentence, {left} left something of mlgokit's behind"
        ),
        bar="every fault is a result with a sentence, and nothing of mlgokit's is left behind",
        passed=silent == 0 and left == 0,
        seed=seed,
        versions=versions,
        inputs={},
        tables=tables,
    )


if __name__ == "__main__":
    sys.exit(main())

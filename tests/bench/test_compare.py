"""Workloads built by commands, run, counted and timed, without a compiler."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.bench.build import BuildContext
from mlgokit.bench.compare import changes_over, compare_workloads
from mlgokit.bench.counts import Counted, Counter, Counts, Execution
from mlgokit.bench.kept import forget
from mlgokit.bench.page import bench_page
from mlgokit.bench.record import Bench, VariantRecord, WorkloadResult, load_bench
from mlgokit.bench.running import Timing
from mlgokit.bench.side import SideFlags
from mlgokit.bench.workloads import Workload
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, ReuseError
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.terminal import print_page
from mlgokit.progress import say_nothing
from mlgokit.terminal import open_console

TOOLS = Toolchain(major=22, version="22", clang=Path("/absent/clang"), clangxx=Path("/absent/clang++"))


class Letters:
    """Counts the bytes of the program, in place of what it executes."""

    name = "letters"
    exact = True

    def count(self, execution: Execution, scratch: Path) -> Counted:
        done = process.run(execution.argv, timeout_seconds=30, cwd=execution.folder, env=execution.environment)
        if done.returncode != execution.expected:
            return Counted(reason="it failed")
        size = Path(execution.argv[0]).stat().st_size
        (scratch / "seen").write_text(str(execution.folder))
        return Counted(whole=Counts(instructions=2 * size), own=Counts(instructions=size, loads=1))


def shop_of(tmp_path: Path, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> BuildContext:
    return BuildContext(
        toolchain=TOOLS,
        sides={"before": SideFlags(words=before), "after": SideFlags(words=after)},
        sources=tmp_path / "sources",
        workers=1,
        compile_seconds=20,
        build_seconds=20,
    )


def compare(
    tmp_path: Path,
    workload: Workload,
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    counter: Counter | None = None,
    time_seconds: float = 0.0,
    time_pairs: int = 50,
    run_seconds: float = 20.0,
) -> WorkloadResult:
    (found,) = compare_workloads(
        [workload],
        context=shop_of(tmp_path, before, after),
        folder=tmp_path / "work",
        without=tmp_path,
        counter=counter,
        run_seconds=run_seconds,
        timing=Timing(seconds=time_seconds, pairs=time_pairs),
        report=say_nothing,
    )
    return found


def script(text: str, **more: Any) -> Workload:
    """A program that is a shell script; FLAGS in its text become what a side adds."""
    line = 'printf \'#!/bin/sh\\n%s\\n\' "$1" | sed "s/FLAGS/$2/" > prog; chmod +x prog'
    build = ("sh", "-c", line, "sh", text, "{flags}")
    return Workload(name="mine", build=((*build, ""),), run=("./prog",), **more)


def test_the_same_program_is_the_same_in_everything_that_is_counted(tmp_path: Path):
    found = compare(tmp_path, script("pwd; echo $0 $CFLAGS $MLGOKIT_X"), counter=Letters())
    assert (found.failures, found.same_output) == ((), True)
    assert found.before.counts == found.after.counts
    assert found.before.counts.loads == 1
    assert found.before.cost is not None


def test_a_side_gets_its_flags_and_what_it_says_is_compared(tmp_path: Path):
    found = compare(tmp_path, script("echo FLAGS"), after=("-O2",), counter=Letters())
    assert found.same_output is False
    assert [(one.side, one.step) for one in found.failures] == [("after", "output")]
    assert found.failures[0].reason == "its output differs from the other build's"
    assert found.after.own is None


def test_compilers_of_a_build_are_told_by_variables(tmp_path: Path):
    build = (("sh", "-c", 'echo "$CC,$CXX,$CXXFLAGS" > told; printf "#!/bin/sh\\n" > prog; chmod +x prog'),)
    compare(tmp_path, Workload(name="mine", build=build, run=("./prog",)), after=("-O2", "-DA=b c"))
    told = (tmp_path / "work" / "mine" / "after" / "told").read_text()
    assert told == "/absent/clang,/absent/clang++,-O2 '-DA=b c'\n"


def test_a_program_that_is_never_the_same_is_not_blamed_on_a_side(tmp_path: Path):
    found = compare(tmp_path, script("cat /proc/sys/kernel/random/uuid"))
    assert found.same_output is None
    assert [(one.step, one.reason) for one in found.failures] == [
        ("output", "its output differs between runs of the same build")
    ]


def test_files_that_it_writes_are_compared(tmp_path: Path):
    assert compare(tmp_path, script("echo FLAGS > out.txt"), after=("x",)).same_output is True
    assert compare(tmp_path, script("echo FLAGS > out.txt", outputs=("*.txt",)), after=("x",)).same_output is False


@pytest.mark.parametrize(
    ("workload", "step", "reason"),
    [
        (Workload(name="mine", build=(("sh", "-c", "echo error: bad >&2; exit 3"),), run=("./prog",)), "build",
         "`sh -c 'echo error: bad >&2; exit 3'` ended with 3: error: bad"),
        (Workload(name="mine", build=(("true",),), run=("./prog",)), "run", "/build/prog is not an executable program"),
        (script("echo error: worse >&2; exit 4"), "run", "it ended with 4 instead of 0: error: worse"),
        (script("kill -9 $$"), "run", "it ended with -9 instead of 0"),
    ],
)  # fmt: skip
def test_what_fails_is_a_row(tmp_path: Path, workload: Workload, step: str, reason: str):
    found = compare(tmp_path, workload, counter=Letters(), time_seconds=1)
    assert [one.side for one in found.failures] == ["before", "after"]
    assert all(one.step == step and reason in one.reason for one in found.failures)
    assert (found.same_output, found.time, found.before.own) == (None, None, None)


def test_a_program_that_does_not_end_is_ended(tmp_path: Path):
    found = compare(tmp_path, script("sleep 60"), run_seconds=0.3)
    assert {one.reason for one in found.failures} == {"it did not end within 0 s"}


def test_an_exit_code_may_be_expected(tmp_path: Path):
    assert compare(tmp_path, script("exit 4", exit_code=4), counter=Letters()).failures == ()


def test_a_count_that_fails_is_a_row(tmp_path: Path):
    class Broken(Letters):
        def count(self, execution: Execution, scratch: Path) -> Counted:
            return Counted(reason=f"no counter for {execution.argv[0].rpartition('/')[2]} in {scratch.name}")

    found = compare(tmp_path, script("true"), counter=Broken())
    assert {(one.step, one.reason) for one in found.failures} == {("count", "no counter for prog in counts")}


def test_what_is_too_short_is_not_timed(tmp_path: Path):
    found = compare(tmp_path, script("true"), time_seconds=5)
    assert (found.time, found.failures) == (None, ())
    assert found.untimed == "a run takes less than 10 ms, which is too short to time"


LOOP = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done"


@pytest.mark.parametrize("bounds", [{"time_seconds": 0.001}, {"time_seconds": 60, "time_pairs": 2}])
def test_times_are_measured_in_pairs_within_bounds_and_have_an_interval(tmp_path: Path, bounds: dict[str, Any]):
    found = compare(tmp_path, script(LOOP), **bounds)
    assert found.time is not None
    assert found.time.runs == 2
    assert found.time.low is not None
    assert found.time.low < 0.01
    assert found.time.before > 0


def results(name: str, iterations: int | None) -> str:
    entry = {"name": name, "run_type": "iteration", "real_time": 5, "cpu_time": 5, "time_unit": "ns"}
    return json.dumps({"benchmarks": [entry if iterations is None else {**entry, "iterations": iterations}]})


def test_a_workload_may_write_results(tmp_path: Path):
    text = f"cat > {{results}} <<END\n{results('BM', 7)}\nEND"
    # The mark is known to the run and not to the build, so the script is told by an argument.
    workload = script(text.replace("{results}", "$1"), format="google-benchmark")
    workload = Workload(name="mine", build=workload.build, run=("./prog", "{results}"), format="google-benchmark")
    found = compare(tmp_path, workload, counter=Letters())
    assert [(one.name, one.measure, one.runs, one.verdict) for one in found.results] == [
        ("BM", "real_time", 4, "same"),
        ("BM", "cpu_time", 4, "same"),
    ]
    assert found.before.counts.instructions == found.after.counts.instructions
    assert found.before.counts.instructions


def test_benchmarks_that_choose_their_own_work_are_not_counted(tmp_path: Path):
    found = compare(tmp_path, script(f"echo '{results('BM', None)}'", format="google-benchmark"), counter=Letters())
    assert found.failures == ()
    assert found.before.own is None


def test_unreadable_results_are_a_failure_of_that_side(tmp_path: Path):
    found = compare(tmp_path, script("echo no", format="lit"))
    assert [(one.side, one.step) for one in found.failures] == [("before", "results")]


class Dying(Letters):
    """Counts some programs, and is interrupted then."""

    def __init__(self, runs: int) -> None:
        self.left = runs
        self.counted: list[str] = []

    def count(self, execution: Execution, scratch: Path) -> Counted:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.counted.append(scratch.parent.name)
        return super().count(execution, scratch)


def test_an_interrupted_comparison_goes_on_after_the_last_step_of_each_workload(tmp_path: Path):
    log, source = tmp_path / "log", tmp_path / "source"
    source.mkdir()
    (source / "text").write_text("one")
    context = shop_of(tmp_path)

    def workloads() -> list[Workload]:
        made = [f"echo {{build}} $1 >> {log}; printf '#!/bin/sh\necho {name}\n' > prog; chmod +x prog" for name in "ab"]
        return [
            Workload(name=name, source=source, build=(("sh", "-c", text),), run=("./prog",))
            for name, text in zip("ab", made, strict=True)
        ]

    def run(counter: Dying) -> tuple[WorkloadResult, ...]:
        return compare_workloads(
            workloads(),
            context=context,
            folder=tmp_path / "work",
            without=tmp_path,
            counter=counter,
            run_seconds=20,
            timing=Timing(seconds=0),
            report=say_nothing,
        )

    def builds() -> int:
        return len(log.read_text().splitlines())

    with pytest.raises(KeyboardInterrupt):
        run(Dying(3))
    assert builds() == 4
    # As after `kill -9` while the second one ran: its build stands where builds run.
    (tmp_path / "work" / "b" / "after").rename(tmp_path / "work" / "b" / "build")
    second = Dying(9)
    found = run(second)
    assert (builds(), second.counted) == (4, ["b", "b"])
    assert [(one.same_output, one.before.counts, one.failures) for one in found] == [
        (True, one.after.counts, ()) for one in found
    ]
    again = Dying(9)
    assert run(again) == found
    assert again.counted == []
    # What decides the numbers is another, or one side is missing or damaged: that workload is begun anew.
    (tmp_path / "work" / "a" / "kept.json").write_text("{")
    assert len(run(again)) == 2
    assert (builds(), again.counted) == (6, ["a", "a"])
    (source / "text").write_text("other")
    run(again)
    assert builds() == 10
    forget(tmp_path / "work", ["a"])
    run(again)
    assert builds() == 12


def test_the_side_that_was_built_before_a_kill_is_not_built_again(tmp_path: Path):
    log, fuse = tmp_path / "log", tmp_path / "fuse"
    made = f"echo $1 >> {log}; printf '#!/bin/sh\n' > prog; chmod +x prog"
    text = f"{made}; test $1 = -O1 || test -e {fuse} || kill -9 $PPID"
    workload = Workload(name="mine", build=(("sh", "-c", text, "sh", "{flags}"),), run=("./prog",))
    again = (
        "import json, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_compare as here; "
        "build = json.loads(sys.argv[3]); "
        "mine = here.Workload(name='mine', build=tuple(map(tuple, build)), run=('./prog',)); "
        "here.compare(Path(sys.argv[2]), mine, before=('-O1',), after=('-O2',))"
    )
    argv = [sys.executable, "-c", again, str(Path(__file__).parent), str(tmp_path), json.dumps(workload.build)]
    assert subprocess.run(argv, timeout=120, check=False).returncode == -9
    fuse.touch()
    assert compare(tmp_path, workload, before=("-O1",), after=("-O2",)).same_output
    assert log.read_text().split() == ["-O1", "-O2", "-O2"]


def test_what_failed_is_tried_again(tmp_path: Path):
    fuse = tmp_path / "fuse"
    workload = script(f"test -e {fuse}")
    assert compare(tmp_path, workload).failures
    fuse.touch()
    assert not compare(tmp_path, workload).failures


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine").write_text("precious")
    with pytest.raises(ReuseError, match="found other files"):
        compare(tmp_path, script("true"))
    assert (tmp_path / "work" / "mine").read_text() == "precious"


def test_a_page_names_failures_and_exact_zeros(tmp_path: Path):
    good = compare(tmp_path, script("true"), counter=Letters())
    bad = compare(tmp_path, script("exit 1"))
    workloads = (good, bad)
    side = VariantRecord()
    bench = Bench(
        before=side,
        after=side,
        counter="letters",
        exact=True,
        uncounted="perf is not installed",
        toolchain={"clang": "22"},
        workloads=workloads,
        changes=changes_over(workloads, rng=np.random.default_rng(1)),
    )
    page = render_markdown(bench_page(bench))
    assert re.search(r"^\| mine \| \d+ \| 0 \| 0 \| - \| - \|$", page, re.MULTILINE)
    assert "| mine | run | after | it ended with 1 instead of 0: no message |" in page
    shown = io.StringIO()
    print_page(bench_page(bench), open_console(shown))
    assert "  mine: run: after: it ended with 1 instead of 0: no message\n" in shown.getvalue()
    assert "**1 of 2 workloads without a failure.**" in page
    assert bench_page(bench).sentences[-3:-1] == ("1 of 1 print the same in both builds.", "1 of 2 without a failure.")
    assert not bench.is_whole
    (tmp_path / "bench.json").write_text(json.dumps(bench.to_json()))
    assert load_bench(tmp_path / "bench.json") == bench
    (tmp_path / "bench.json").write_text(json.dumps({**bench.to_json(), "format_version": 2}))
    with pytest.raises(InputError, match="'mlgokit bench' and format_version 1, found 'mlgokit bench' and 2"):
        load_bench(tmp_path / "bench.json")
    assert {one.measure: one.mean for one in bench.changes}["instructions"] == 0

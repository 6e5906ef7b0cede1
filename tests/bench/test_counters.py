"""What counters say: callgrind's profiles, and perf where it is there, where it lies, and where it is not."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.bench.callgrind import find_callgrind, read_costs, read_profile
from mlgokit.bench.counts import Counts, Execution
from mlgokit.bench.perf import Perf, find_perf, read_counters
from mlgokit.compiler import process
from mlgokit.errors import InputError, ToolError

PROFILE = """# callgrind format
positions: line
events: Ir Dr Dw I1mr Bc Bi
summary: 999 9 9

ob=(1) /usr/lib/ld.so
fl=(1) ???
fn=(1) start
0 7 1
cob=(2) {image}
cfn=(2) entered
calls=1 0
0 100 20 10

ob=(2)
fn=(2)
0 40 8 3 5 2 1
+3 2
cob=(1)
cfn=(1)
calls=3 0
* 50 1 1
-3 1 0 1
"""


def test_a_profile_is_counted_without_the_calls_to_others(tmp_path: Path):
    image, profile = tmp_path / "built" / "libtuned.so", tmp_path / "profile"
    profile.write_text(PROFILE.format(image=image))
    for own in (image, image.parent):
        found, whole = read_profile(profile, own)
        assert found == Counts(instructions=43, loads=8, stores=4, branches=3)
        assert whole.instructions == 50
    assert read_profile(profile, tmp_path / "other.so")[0].instructions == 0


def test_costs_are_those_of_the_processes_that_ran_the_build(tmp_path: Path):
    again = "\nob=(2)\nfn=(3) entered'2\n0 7 1\n"
    (tmp_path / "profile.1").write_text(PROFILE.format(image=tmp_path / "built" / "libtuned.so") + again)
    (tmp_path / "profile.2").write_text("events: Ir\nob=(1) /bin/sh\nfn=(1) shell\n1 5\n")

    found = read_costs([tmp_path / "profile.1", tmp_path / "profile.2"], tmp_path / "built")

    assert found.own == {"start": 7, "entered": 50}
    assert found.calls == {("start", "entered"): 1, ("entered", "start"): 3}
    assert found.instructions == 57


BY_ADDRESS = """# callgrind format
positions: instr line
events: Ir Dr

ob=(1) {image}
fn=(1) f
0x1790 0 7 1
+4 0 7
cfn=(2) g
calls=2 0x2000 0
* 0 90 5
+5 3 2

ob=(2) /usr/lib/ld.so
fn=(2) g
0x1794 0 45

ob=(1)
fn=(3) f'2
-0x4 0 1
"""


def test_a_profile_may_have_addresses(tmp_path: Path):
    image, profile = tmp_path / "program", tmp_path / "profile"
    profile.write_text(BY_ADDRESS.format(image=image))
    assert read_profile(profile, image)[0] == Counts(instructions=17, loads=1)


def test_a_file_that_is_no_profile_is_refused(tmp_path: Path):
    (tmp_path / "profile").write_text("nothing\n")
    with pytest.raises(InputError, match="found no line with events"):
        read_profile(tmp_path / "profile", tmp_path)


def test_what_was_not_simulated_is_not_called_zero(tmp_path: Path):
    (tmp_path / "profile").write_text(f"events: Ir\nob=(1) {tmp_path}/x\nfn=(1) f\n1 5\n")
    assert read_profile(tmp_path / "profile", tmp_path)[0] == Counts(instructions=5)


PERF = """#!{python} -I
import subprocess, sys
if "--version" in sys.argv:
    print("perf version 7.7")
    raise SystemExit
name, output, own = (sys.argv[sys.argv.index(word) + 1] for word in ("-e", "-o", "--"))
done = subprocess.run(sys.argv[sys.argv.index("--") + 1 :])
counted = {counted}
with open(output, "w") as file:
    for event in name.split(","):
        file.write(f"{{counted.get(event, '<not supported>,,')}}".replace("NAME", event) + "\\n")
raise SystemExit(done.returncode)
"""
REAL = {"instructions:u": "123456,,NAME,100,100.00,,", "branches:u": "2345,,NAME,100,100.00,,"}


@pytest.fixture
def fake_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def install(counted: dict[str, str]) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "perf").write_text(PERF.format(python=sys.executable, counted=counted))
        (folder / "perf").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return install


def execution(folder: Path, *words: str, expected: int = 0) -> Execution:
    return Execution(argv=words, folder=folder, environment=dict(os.environ), own=folder, expected=expected)


def test_perf_is_used_for_the_events_that_count(fake_perf: Callable[[dict[str, str]], None], tmp_path: Path):
    fake_perf(REAL)
    perf = find_perf(tmp_path)
    assert isinstance(perf, Perf)
    assert (tuple(perf.names), perf.exact) == (("instructions", "branches"), False)
    found = perf.count(execution(tmp_path, "sh", "-c", "exit 3", expected=3), tmp_path)
    assert (found.reason, found.own) == ("", None)
    assert found.whole == Counts(instructions=123456, branches=2345)


@pytest.mark.parametrize(
    "line", ["<not supported>,,NAME,0,100.00,,", "<not counted>,,NAME,0,0.00,,", "0,,NAME,9,100.00,,", "7,,NAME"]
)
def test_an_event_that_only_has_a_name_is_not_believed(
    fake_perf: Callable[[dict[str, str]], None], tmp_path: Path, line: str
):
    fake_perf({"instructions:u": line})
    assert find_perf(tmp_path) == "perf counts no instructions on this machine"


def test_a_share_of_the_time_is_no_count():
    assert read_counters("5000,,instructions:u,9,50.00,,\n") == {}


def test_a_program_that_fails_under_perf_is_a_reason(fake_perf: Callable[[dict[str, str]], None], tmp_path: Path):
    fake_perf(REAL)
    perf = find_perf(tmp_path)
    assert isinstance(perf, Perf)
    found = perf.count(execution(tmp_path, "sh", "-c", "echo error: broken >&2; exit 1"), tmp_path)
    assert found.reason == "under perf it ended with 1 instead of 0: error: broken"


def test_no_counter_is_a_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_perf(tmp_path) == "perf is not installed"
    with pytest.raises(ToolError, match="found none; run `sudo apt-get install"):
        find_callgrind()


def test_a_child_that_is_pinned_has_one_processor():
    words = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    before = os.sched_getaffinity(0)
    core = max(before)
    assert process.run(words, timeout_seconds=30, core=core).stdout.decode().strip() == str([core])
    assert os.sched_getaffinity(0) == before

"""The pool of resident compilers, with a program in the compiler's place that speaks its protocol."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mlgokit.compiler.process import Completed
from mlgokit.compiler.reuse.resident import Residents

STANDS_IN = """
import os, signal, socket, struct, sys
channel = socket.socket(fileno=0)
def reply(status, user, own):
    channel.sendall(struct.pack("<6Q", status, user, 0, 1024, own, 0))
if sys.argv[1] == "silent":
    sys.exit("no inliner here")
assert os.environ["MLGOKIT_RESIDENT"] == "1"
reply(0, 0, 250_000)
while head := channel.recv(4, socket.MSG_WAITALL):
    body = channel.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)
    settings = dict(pair.split("=", 1) for pair in body.decode().split("\\0")[:-1])
    with open(settings["MLGOKIT_OBJECT"], "w") as file:
        file.write(str(os.getpid()))
    with open(settings["MLGOKIT_MESSAGES"], "w") as file:
        file.write("said " + settings["KIND"])
    match settings["KIND"]:
        case "good": reply(0, 1_500_000, 300_000)
        case "bad": reply(1 << 8, 0, 300_000)
        case "crash": reply(11, 0, 300_000)
        case "none": reply(2**64 - 1, 0, 300_000)
        case "dies": sys.exit(3)
        case "hangs":
            assert channel.recv(1) == b"!"
            reply(9, 0, 300_000)
        case "deaf": signal.pause()
"""


@pytest.fixture
def residents() -> Iterator[Residents]:
    found = Residents(most=2)
    yield found
    found.close()


def ask(
    residents: Residents, folder: Path, kind: str, *, name: str = "one", seconds: float = 30.0
) -> tuple[Completed | None, int]:
    """What came of a request, and which process answered."""
    output = folder / "output"
    output.write_text("0")
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"]}
    done = residents.run(
        [sys.executable, "-c", STANDS_IN, name],
        environment=environment,
        request={"KIND": kind},
        output=output,
        timeout_seconds=seconds,
    )
    return done, int(output.read_text())


def test_one_process_answers_again_and_again_and_what_all_requests_share_is_charged_once(
    residents: Residents, tmp_path: Path
):
    first, one = ask(residents, tmp_path, "good")
    second, two = ask(residents, tmp_path, "good")
    assert first is not None
    assert second is not None
    assert one == two
    assert (first.returncode, first.stderr) == (0, "said good")
    assert first.user_seconds == pytest.approx(1.5 + 0.3)
    assert second.user_seconds == pytest.approx(1.5)
    assert first.peak_bytes == 1 << 20


@pytest.mark.parametrize(("kind", "code"), [("bad", 1), ("crash", -11)])
def test_a_child_that_fails_is_reported_and_its_parent_stays(
    residents: Residents, tmp_path: Path, kind: str, code: int
):
    done, one = ask(residents, tmp_path, kind)
    assert done is not None
    assert (done.returncode, done.timed_out) == (code, False)
    assert ask(residents, tmp_path, "good")[1] == one


def test_at_the_deadline_the_child_is_killed(residents: Residents, tmp_path: Path):
    _, one = ask(residents, tmp_path, "good")
    done, _ = ask(residents, tmp_path, "hangs", seconds=0.05)
    assert done is not None
    assert done.timed_out
    assert done.returncode == -9
    again, other = ask(residents, tmp_path, "good")
    assert again is not None
    assert other != one


@pytest.mark.parametrize("kind", ["dies", "none"])
def test_without_its_parent_a_command_line_has_no_resident_any_more(residents: Residents, tmp_path: Path, kind: str):
    assert ask(residents, tmp_path, kind)[0] is None
    assert list(residents.declined.values()) == ["the resident compiler ended, or did not kill its child in time"]
    assert ask(residents, tmp_path, "good")[0] is None


def test_a_resident_that_does_not_answer_is_killed(
    residents: Residents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mlgokit.compiler.reuse.resident._GRACE_SECONDS", 0.05)
    assert ask(residents, tmp_path, "deaf", seconds=0.05)[0] is None
    assert len(residents.declined) == 1


def test_one_that_does_not_come_to_the_inliner_says_why(residents: Residents, tmp_path: Path):
    assert ask(residents, tmp_path, "good", name="silent")[0] is None
    assert list(residents.declined.values()) == ["it did not reach the inliner (no inliner here)"]


def test_the_least_recently_used_one_goes(residents: Residents, tmp_path: Path):
    pids = {name: ask(residents, tmp_path, "good", name=name)[1] for name in ("one", "two")}
    assert ask(residents, tmp_path, "good", name="one")[1] == pids["one"]
    ask(residents, tmp_path, "good", name="three")
    assert ask(residents, tmp_path, "good", name="one")[1] == pids["one"]
    assert ask(residents, tmp_path, "good", name="two")[1] != pids["two"]


def test_memory_is_bounded(tmp_path: Path):
    residents = Residents(memory_bytes=1)
    try:
        first = ask(residents, tmp_path, "good", name="one")[1]
        ask(residents, tmp_path, "good", name="two")
        assert ask(residents, tmp_path, "good", name="one")[1] != first
    finally:
        residents.close()

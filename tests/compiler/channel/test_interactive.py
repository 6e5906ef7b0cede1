"""The host against small programs that talk as LLVM does, or fail to."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mlgokit.advisors import Advisor, Constant, Echo, Observation, Recording, ReplayContexts
from mlgokit.compiler.channel.interactive import (
    InteractiveResult,
    InteractiveStatus,
    drive,
    encode_advice,
)
from mlgokit.errors import StorageError, ToolError, UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header

HEADER = Header(
    features=(
        TensorSpec(name="a", type="int64_t", shape=(1,)),
        TensorSpec(name="b", type="float", shape=(2,)),
    ),
    advice=TensorSpec(name="decision", type="int64_t", shape=(1,)),
)

SCORED_HEADER = Header(features=HEADER.features, advice=HEADER.advice, score=HEADER.features[0])

PREAMBLE = f"""
import os, struct, sys, time
base, alive = sys.argv[1:3]
alive = open(alive, "wb")
HEADER = {HEADER.to_line()!r}
SCORED_HEADER = {SCORED_HEADER.to_line()!r}

def connect(header=HEADER):
    global asking, answering
    answering = open(base + ".in", "rb", buffering=0)
    asking = open(base + ".out", "wb", buffering=0)
    asking.write(header)

def context(name=b""):
    asking.write(b'{{"context":"' + name + b'"}}\\n')

def ask(index, a=0):
    asking.write(b'{{"observation":%d}}\\n' % index + struct.pack("=qff", a, index, 0.5) + b"\\n")

def hear():
    return struct.unpack("=q", answering.read(8))[0]

def sleep():
    while True:
        time.sleep(60)

"""

Play = Callable[..., InteractiveResult]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Run a fake compiler; afterwards neither a process nor a file of the channel may be left."""
    folder = tmp_path / "folder"
    folder.mkdir()
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    descriptor = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)

    def run(
        script: str,
        advisor: Advisor,
        *,
        timeout_seconds: float = 60,
        answer_seconds: float = 60,
        overwritten: tuple[str, str] | None = None,
    ) -> InteractiveResult:
        return drive(
            [sys.executable, "-c", PREAMBLE + script],
            channel_options=("{base}", str(alive)),
            overwritten=overwritten,
            advisor=advisor,
            timeout_seconds=timeout_seconds,
            answer_timeout_seconds=answer_seconds,
            folder=folder,
        )

    yield run
    # Each process of the fake compiler holds the pipe open: its end is theirs.
    os.set_blocking(descriptor, True)
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    assert list(folder.iterdir()) == []


def test_every_question_is_answered(play: Play):
    recording = Recording(ReplayContexts({"": [1, 0], "f": [7]}))
    result = play(
        """
connect()
context()
for index, answer in enumerate((1, 0)):
    ask(index, a=10 + index)
    assert hear() == answer
context(b"f")
ask(0)
assert hear() == 7
print("to nobody")
""",
        recording,
    )
    assert result.stderr == ""
    assert result.status is InteractiveStatus.OK
    assert (result.returncode, result.detail) == (0, "")
    assert result.log is not None
    assert result.log.contexts == (ContextSpan(name="", start=0, stop=2), ContextSpan(name="f", start=2, stop=3))
    assert result.log.header.features == (*HEADER.features, HEADER.advice)
    assert result.log.header.advice is None
    assert {name: column.tolist() for name, column in result.log.columns.items()} == {
        "a": [[10], [11], [0]],
        "b": [[0, 0.5], [1, 0.5], [0, 0.5]],
        "decision": [[1], [0], [7]],
    }
    assert result.log.damage is None
    assert [(seen.context, seen.index) for seen in recording.observations] == [("", 0), ("", 1), ("f", 0)]
    assert recording.observations[1].values["b"].tolist() == [1, 0.5]
    assert 0 < result.wall_seconds < 60


def test_a_compiler_that_does_not_open_the_channel_has_no_log(play: Play):
    result = play("", Constant(0))
    assert result.status is InteractiveStatus.OK
    assert result.log is None


def test_a_compiler_that_asks_nothing_has_an_empty_log(play: Play):
    result = play("connect(); context()", Constant(0))
    assert result.status is InteractiveStatus.OK
    assert result.log is not None
    assert result.log.observation_count == 0
    assert result.log.columns["decision"].shape == (0, 1)


def test_a_compiler_that_never_opens_the_channel_and_never_ends(play: Play):
    result = play("sleep()", Constant(0), timeout_seconds=0.5)
    assert result.status is InteractiveStatus.TIMED_OUT
    assert result.returncode == -9
    assert result.log is None


def test_a_compiler_that_spins(play: Play):
    result = play("connect()\nwhile True: pass", Constant(0), timeout_seconds=2)
    assert result.status is InteractiveStatus.TIMED_OUT
    assert result.user_seconds > 0


@pytest.mark.parametrize("last", ["pass", "asking.write(b'{')", "asking.write(b'{\"observation\":1}\\n' + bytes(5))"])
def test_a_compiler_that_stops_talking(play: Play, last: str):
    result = play(f"connect(); context(); ask(0); hear(); {last}; sleep()", Constant(3), answer_seconds=0.5)
    assert result.status is InteractiveStatus.SILENT
    assert result.log is not None
    assert result.log.columns["decision"].tolist() == [[3]]
    assert (result.log.damage is None) == (last == "pass")


def test_a_compiler_that_works_on_after_it_closed_the_channel_is_not_silent(play: Play):
    script = "connect(); context(); ask(0); hear(); asking.close(); time.sleep(1.5)"
    assert play(script, Constant(0), answer_seconds=0.5).status is InteractiveStatus.OK


def test_a_compiler_that_stays_after_it_closed_the_channel(play: Play):
    result = play("connect(); asking.close(); answering.close(); sleep()", Constant(0), timeout_seconds=1)
    assert result.status is InteractiveStatus.TIMED_OUT


def test_a_compiler_that_quits_in_the_middle_of_a_tensor(play: Play):
    result = play(
        """
connect(); context(); ask(0); hear()
asking.write(b'{"observation":1}\\n' + bytes(5))
""",
        Constant(1),
    )
    assert result.status is InteractiveStatus.TRUNCATED
    assert "expected 16 bytes of features for observation 1, found 5" in result.detail
    assert result.log is not None
    assert result.log.observation_count == 1
    assert result.log.damage == result.detail


def test_a_compiler_that_quits_in_its_header(play: Play):
    result = play("connect(HEADER[:20])", Constant(1))
    assert result.status is InteractiveStatus.TRUNCATED
    assert "byte 0: expected a header line of JSON" in result.detail
    assert result.log is None


def test_a_compiler_that_crashes(play: Play):
    result = play("connect(); context(); ask(0); hear(); sys.stderr.write('why\\n'); sys.exit(3)", Constant(1))
    assert result.status is InteractiveStatus.FAILED
    assert (result.returncode, result.stderr) == (3, "why\n")
    assert result.log is not None
    assert result.log.observation_count == 1


def test_a_flood_of_diagnostics_does_not_stop_the_compiler(play: Play):
    result = play(
        """
connect(); context()
for index in range(20):
    sys.stderr.write("x" * 50_000)
    ask(index)
    hear()
sys.stderr.write("the end")
""",
        Constant(1),
    )
    assert result.status is InteractiveStatus.OK
    assert len(result.stderr) == 8192
    assert result.stderr.endswith("xthe end")


def test_many_observations_in_one_write(play: Play):
    result = play("connect(); context()\nfor index in range(3000): ask(index)\n" + "hear();" * 10, Constant(1))
    assert result.status is InteractiveStatus.OK
    assert result.log is not None
    assert result.log.observation_count == 3000


def test_a_compiler_that_does_not_listen(play: Play):
    result = play("connect(); context()\nfor index in range(10**6): ask(index)", Constant(1))
    assert result.status is InteractiveStatus.MALFORMED
    assert "expected a compiler that reads its answers" in result.detail


@pytest.mark.parametrize(
    ("script", "detail", "count"),
    [
        ("connect(b'hello\\n')", "byte 0: expected a header line of JSON, found 'hello'", None),
        ("connect(b'hello' * 500_000)", "byte 0: expected a header line of JSON, found no newline", None),
        ("connect(HEADER.replace(b'advice', b'advise'))", 'expected an "advice" of one element', None),
        ("connect(HEADER.replace(b'[1]}}', b'[4]}}'))", "of one element in the header, found shape [4]", None),
        ("connect(HEADER.replace(b'decision', b'a'))", "expected features of other names than the advice", None),
        ("connect(SCORED_HEADER)", 'expected a header without "score"', None),
        ("connect(); context(); ask(0); hear(); ask(2)", 'expected {"observation":1} or a context line', 1),
        ("connect(); ask(0)", "expected a context line", 0),
    ],
)
def test_a_compiler_that_speaks_another_protocol(play: Play, script: str, detail: str, count: int | None):
    result = play(f"{script}; sleep()", Constant(1))
    assert result.status is InteractiveStatus.MALFORMED
    assert result.detail.startswith("trace interactive channel: byte ")
    assert detail in result.detail
    assert (None if result.log is None else result.log.observation_count) == count


def test_a_feature_in_the_place_of_another_gets_its_own_name(play: Play):
    script = """
connect(HEADER.replace(b'"float","port":0,"shape":[2]', b'"int64_t","port":0,"shape":[1]')); context()
asking.write(b'{"observation":0}\\n' + struct.pack("=qq", 5, 0) + b"\\n")
assert hear() == 5
"""
    recording = Recording(Echo("b"))
    result = play(script, recording, overwritten=("a", "b"))
    assert result.status is InteractiveStatus.OK
    assert [spec.name for spec in recording.observations[0].header.features] == ["b"]
    assert list(recording.observations[0].values) == ["b"]
    assert result.log is not None
    assert {name: column.tolist() for name, column in result.log.columns.items()} == {"b": [[5]], "decision": [[5]]}
    assert [spec.name for spec in result.log.header.features] == ["b", "decision"]


@pytest.mark.parametrize("overwritten", [("a", "b"), ("a", "x"), ("x", "a"), ("x", "y")])
def test_features_that_cannot_stand_for_each_other_are_refused(play: Play, overwritten: tuple[str, str]):
    result = play("connect(); sleep()", Constant(0), overwritten=overwritten)
    assert result.status is InteractiveStatus.MALFORMED
    assert f"expected features {overwritten[0]} and {overwritten[1]} of one type and shape" in result.detail


def test_the_whole_group_ends_with_the_compiler(play: Play):
    result = play("connect(); context(); ask(0); hear()\nif os.fork() == 0: sleep()", Constant(1))
    assert result.status is InteractiveStatus.OK


def test_an_advisor_that_fails_ends_the_compiler(play: Play):
    class Failing:
        def advise(self, observation: Observation) -> int:  # noqa: ARG002
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play("connect(); context(); ask(0); hear(); sleep()", Failing())


def test_an_answer_that_does_not_fit_ends_the_compiler(play: Play):
    with pytest.raises(UsageError, match=r"advice 'decision': expected a value of type int64_t, found 0\.5"):
        play("connect(); context(); ask(0); hear(); sleep()", Constant(0.5))


def test_the_compilers_folder_and_environment_are_the_callers(tmp_path: Path):
    result = drive(
        [sys.executable, "-c", "import os, sys; sys.stderr.write(os.getcwd() + os.environ['WORD'])"],
        channel_options=(),
        advisor=Constant(0),
        timeout_seconds=60,
        answer_timeout_seconds=60,
        cwd=tmp_path,
        env={"WORD": "!"},
    )
    assert result.stderr.endswith(f"{tmp_path}!")


def test_no_compiler_is_an_error_and_leaves_no_folder(tmp_path: Path):
    with pytest.raises(ToolError, match="no-such-clang: expected an executable program, found none"):
        drive(
            ["no-such-clang"],
            channel_options=(),
            advisor=Constant(0),
            timeout_seconds=1,
            answer_timeout_seconds=1,
            folder=tmp_path,
        )
    assert list(tmp_path.iterdir()) == []


def test_no_folder_for_the_channel_is_an_error(tmp_path: Path):
    with pytest.raises(StorageError, match="nowhere: expected to make two pipes, found No such file or directory"):
        drive(
            ["true"],
            channel_options=(),
            advisor=Constant(0),
            timeout_seconds=1,
            answer_timeout_seconds=1,
            folder=tmp_path / "nowhere",
        )


def test_no_descriptor_is_left_open(play: Play):
    before = len(list(Path("/proc/self/fd").iterdir()))
    play("connect(); context(); ask(0); hear()", Constant(1))
    play("connect(); sleep()", Constant(1), timeout_seconds=0.5)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("kind", "advice", "data"),
    [
        ("int64_t", 1, b"\x01" + bytes(7)),
        ("int64_t", True, b"\x01" + bytes(7)),
        ("int64_t", 2.0, b"\x02" + bytes(7)),
        ("int32_t", -1, b"\xff" * 4),
        ("float", 1, b"\0\0\x80\x3f"),
        ("float", 0.5, b"\0\0\x00\x3f"),
    ],
)
def test_answers_have_the_type_of_the_advice(kind: str, advice: float, data: bytes):
    assert encode_advice(TensorSpec(name="x", type=kind, shape=(1,)), advice) == data


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("int64_t", 0.5),
        ("int64_t", 2**63),
        ("uint8_t", -1),
        ("int8_t", 300.0),
        ("int64_t", float("nan")),
        ("int64_t", float("inf")),
        ("float", 1e300),
        ("float", float("nan")),
        ("float", np.inf),
    ],
)
def test_answers_that_the_type_cannot_hold_are_refused(kind: str, advice: float):
    with pytest.raises(UsageError, match=f"advice 'x': expected a value of type {kind}, found"):
        encode_advice(TensorSpec(name="x", type=kind, shape=(1,)), advice)

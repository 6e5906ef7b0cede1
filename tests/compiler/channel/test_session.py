"""Several channels and sessions, steps by hand, and faults, with small programs that talk as LLVM does."""

import errno
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from mlgokit.advisors import Constant, Legal, Observation, Recording
from mlgokit.compiler.channel.interactive import (
    ChannelUse,
    InteractiveResult,
    InteractiveStatus,
    Session,
    channel_use,
    drive_channels,
    open_session,
)
from mlgokit.errors import StorageError, UsageError
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header

EVICTION_HEADER = Header(
    features=(
        TensorSpec(name="mask", type="int64_t", shape=(1, 3)),
        TensorSpec(name="progress", type="float", shape=(1,)),
    ),
    advice=TensorSpec(name="index_to_evict", type="int64_t", shape=(1,)),
)
PRIORITY_HEADER = Header(
    features=(TensorSpec(name="li_size", type="int64_t", shape=(1,)),),
    advice=TensorSpec(name="priority", type="float", shape=(1,)),
)

PREAMBLE = f"""
import os, signal, struct, sys, time
bases = sys.argv[2:]
alive = open(sys.argv[1], "wb")
EVICTION, PRIORITY = {EVICTION_HEADER.to_line()!r}, {PRIORITY_HEADER.to_line()!r}

class Channel:
    def __init__(self, base, header):
        self.answering = open(base + ".in", "rb", buffering=0)
        self.asking = open(base + ".out", "wb", buffering=0)
        self.asking.write(header)
        self.index = 0

    def context(self, name):
        self.asking.write(b'{{"context":"' + name + b'"}}\\n')
        self.index = 0

    def ask(self, form, *values):
        self.asking.write(b'{{"observation":%d}}\\n' % self.index + struct.pack(form, *values) + b"\\n")
        self.index += 1

    def evict(self, *mask):
        self.ask("=qqqf", *mask, 0.5)
        return struct.unpack("=q", self.answering.read(8))[0]

    def prioritise(self, size):
        self.ask("=q", size)
        return struct.unpack("=f", self.answering.read(4))[0]

    def close(self):
        self.asking.close()
        self.answering.close()

def sleep():
    while True:
        time.sleep(60)

"""


class Start(Protocol):
    """What the fixture gives: a compiler that runs a script."""

    def __call__(
        self, script: str, channels: Mapping[str, ChannelUse], *, seconds: float = 60, answer_seconds: float = 60
    ) -> AbstractContextManager[Session]: ...


def use(advisor: object = None) -> ChannelUse:
    return ChannelUse(options=("{base}",), advisor=advisor)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Start a fake compiler; afterwards neither a process nor a file of the channels may be left."""
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    descriptor = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)

    def run(
        script: str, channels: Mapping[str, ChannelUse], *, seconds: float = 60, answer_seconds: float = 60
    ) -> AbstractContextManager[Session]:
        return open_session(
            [sys.executable, "-c", PREAMBLE + script, alive],
            channels=channels,
            timeout_seconds=seconds,
            answer_timeout_seconds=answer_seconds,
            folder=folder,
        )

    yield run
    os.set_blocking(descriptor, True)
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    assert list(folder.iterdir()) == []


def finish(session: Session, **advisors: object) -> InteractiveResult:
    while (observation := session.next()) is not None:
        session.answer(advisors[session.channel].advise(observation))  # type: ignore[attr-defined]
    return session.result()


EVICT = Legal(Constant(0), REGALLOC_EVICTION)

TWO = """
e, p = Channel(bases[0], EVICTION), Channel(bases[1], PRIORITY)
for name in (b"f", b"g"):
    e.context(name); p.context(name)
    for size in range(3):
        assert p.prioritise(size) == 7
        assert e.evict(0, size != 1, 1) == (1 if size != 1 else 2)
"""


def test_two_channels_take_turns(start: Start):
    evictions, priorities = Recording(EVICT), Recording(Constant(7.0))
    with start(TWO, {"evict": use(), "prioritise": use()}) as session:
        result = finish(session, evict=evictions, prioritise=priorities)
    assert (result.status, result.detail) == (InteractiveStatus.OK, "")
    assert result.sessions == {"evict": 1, "prioritise": 1}
    spans = (ContextSpan(name="f", start=0, stop=3), ContextSpan(name="g", start=3, stop=6))
    for name, decisions in (("evict", [[1], [2], [1]] * 2), ("prioritise", [[7]] * 6)):
        log = result.logs[name]
        assert log is not None
        assert log.contexts == spans
        assert log.columns[log.header.features[-1].name].tolist() == decisions
    assert [seen.context for seen in priorities.observations] == ["f"] * 3 + ["g"] * 3
    with pytest.raises(UsageError, match="log: expected one channel, found evict, prioritise; read the attribute logs"):
        _ = result.log


def test_a_channel_that_is_not_opened_is_no_obstacle(start: Start):
    script = "p = Channel(bases[1], PRIORITY); p.context(b'f'); p.prioritise(3)"
    with start(script, {"evict": use(), "prioritise": use()}) as session:
        result = finish(session, prioritise=Constant(1))
    assert result.status is InteractiveStatus.OK
    assert result.logs["evict"] is None
    assert result.sessions == {"evict": 0, "prioritise": 1}


@pytest.mark.parametrize("pause", ["", "time.sleep(0.2)"])
def test_a_channel_may_be_opened_again(start: Start, pause: str):
    script = f"""
for number in range(4):
    p = Channel(bases[0], PRIORITY)
    p.context(b"f")
    for size in range(number):
        assert p.prioritise(size) == size
    p.close()
    {pause}
"""

    class Size:
        def advise(self, observation: Observation) -> float:
            return float(observation.values["li_size"][0])

    with start(script, {"p": use()}, seconds=20, answer_seconds=10) as session:
        result = finish(session, p=Size())
    assert (result.status, result.detail) == (InteractiveStatus.OK, "")
    assert result.sessions == {"p": 4}
    assert result.log is not None
    assert result.log.columns["priority"].ravel().tolist() == [0, 0, 1, 0, 1, 2]
    assert [(span.start, span.stop) for span in result.log.contexts] == [(0, 0), (0, 1), (1, 3), (3, 6)]


def test_an_answer_that_nobody_read_does_not_reach_the_next_session(start: Start):
    script = """
import fcntl, termios
def wait_for(count):
    while struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0] != count:
        time.sleep(0.01)
p = Channel(bases[0], PRIORITY); p.context(b"f"); p.ask("=q", 5)
descriptor = os.dup(p.answering.fileno())
wait_for(4); p.close(); wait_for(0)
p = Channel(bases[0], PRIORITY); p.context(b"f"); assert p.prioritise(9) == 9
"""

    class Size:
        def advise(self, observation: Observation) -> float:
            return float(observation.values["li_size"][0])

    with start(script, {"p": use()}) as session:
        result = finish(session, p=Size())
    assert result.status is InteractiveStatus.OK, result


def test_a_session_with_another_header_is_refused(start: Start):
    script = "p = Channel(bases[0], PRIORITY); p.close(); Channel(bases[0], EVICTION); sleep()"
    with start(script, {"p": use()}) as session:
        result = finish(session)
    assert result.status is InteractiveStatus.MALFORMED
    assert "expected the header of the first session again, found one with 2 features" in result.detail


def test_two_sessions_at_once_are_named(start: Start):
    script = """
p = Channel(bases[0], PRIORITY); p.context(b"f"); p.prioritise(1); p.prioritise(1)
q = Channel(bases[0], PRIORITY); q.context(b"f"); q.prioritise(1); p.prioritise(1); sleep()
"""
    with start(script, {"p": use()}) as session:
        result = finish(session, p=Constant(0))
    assert result.status is InteractiveStatus.MALFORMED
    assert "the compiler opened the channel 2 times, perhaps at once: use one thread" in result.detail
    assert result.log is not None
    assert result.log.observation_count == 3


@pytest.mark.parametrize(
    ("header", "advice", "message"),
    [
        ("EVICTION", 0, r"expected one of the columns \[1\], found 0"),
        ("EVICTION", 3, "found 3"),
        ("PRIORITY", math.nan, "found nan"),
        ("PRIORITY", -1.0, "expected a number from 0 to 4294967040, found -1"),
        ("PRIORITY", 2.0**32, "found 4294967296"),
    ],
)
def test_an_illegal_answer_is_never_sent(start: Start, header: str, advice: float, message: str):
    ask = "evict(0, 1, 0)" if header == "EVICTION" else "prioritise(3)"
    script = f"c = Channel(bases[0], {header}); c.context(b'f'); c.{ask}; sys.exit(3)"
    with start(script, {"c": use()}) as session, pytest.raises(UsageError, match=message):
        finish(session, c=Constant(advice))
    assert session.result().status is InteractiveStatus.ABANDONED
    assert session.result().returncode == -9
    problem = REGALLOC_EVICTION if header == "EVICTION" else REGALLOC_PRIORITY
    with start(script, {"c": use()}) as session:
        assert finish(session, c=Legal(Constant(advice), problem)).returncode == 3


def test_a_question_stays_open_after_a_refused_answer(start: Start):
    script = "c = Channel(bases[0], EVICTION); c.context(b'f'); assert c.evict(0, 1, 0) == 1"
    with start(script, {"c": use()}) as session:
        question = session.next()
        assert question is not None
        assert question.values["mask"].tolist() == [[0, 1, 0]]
        with pytest.raises(UsageError, match="expected one of the columns"):
            session.answer(2)
        with pytest.raises(
            UsageError, match="channel c: expected an answer to its last observation, found a call of next"
        ):
            session.next()
        session.answer(1)
        with pytest.raises(UsageError, match="expected an observation that waits for an answer, found none"):
            session.answer(1)
        assert session.next() is None
        assert session.next() is None
    assert session.result().status is InteractiveStatus.OK


def test_a_caller_that_goes_away_ends_the_compiler(start: Start):
    script = "p = Channel(bases[0], PRIORITY); p.context(b'f')\nwhile True: p.prioritise(1)"
    with start(script, {"p": use()}) as session:
        for _ in range(3):
            session.next()
            session.answer(4)
        session.next()
    result = session.result()
    assert result.status is InteractiveStatus.ABANDONED
    assert "the caller stopped before the compilation ended" in result.detail
    assert result.log is not None
    assert result.log.columns["priority"].tolist() == [[4]] * 3


def test_a_channel_of_another_problem_is_a_sentence(start: Start):
    channel = ChannelUse(options=("{base}",), problem=REGALLOC_EVICTION)
    with start("Channel(bases[0], PRIORITY); sleep()", {"c": channel}) as session:
        result = finish(session)
    assert result.status is InteractiveStatus.MALFORMED
    assert "regalloc-eviction: expected a feature 'mask' from the compiler, found li_size; ask" in result.detail


@pytest.mark.parametrize("suffix", [".in", ".out"])
def test_pipes_that_are_removed_are_noticed_at_once(start: Start, suffix: str):
    script = f"os.remove(bases[0] + {suffix!r}); sleep()"
    with start(script, {"c": use()}, seconds=30) as session:
        result = finish(session)
    assert result.status is InteractiveStatus.LOST
    assert "channel c in " in result.detail
    assert "expected the two pipes that the compiler was to open, found them gone" in result.detail


def test_a_compiler_that_fails_without_its_pipes_says_so(start: Start):
    with start("os.remove(bases[0] + '.in'); Channel(bases[0], PRIORITY)", {"c": use()}) as session:
        result = finish(session)
    assert result.status is InteractiveStatus.FAILED
    assert "expected exit code 0, found exit code 1: " in result.detail
    assert result.detail.endswith("channel c: its pipes were removed")


def test_an_open_channel_outlives_its_names(start: Start):
    script = """
p = Channel(bases[0], PRIORITY); p.context(b"f"); p.prioritise(1)
os.remove(bases[0] + ".in"); os.remove(bases[0] + ".out"); os.rmdir(os.path.dirname(bases[0]))
p.prioritise(2); p.close(); time.sleep(1.2)
"""
    with start(script, {"p": use()}) as session:
        result = finish(session, p=Constant(3))
    assert result.status is InteractiveStatus.OK
    assert result.log is not None
    assert result.log.observation_count == 2


KILLED = """
def die_at(step, now=[0]):
    now[0] += 1
    if now[0] > step:
        os.kill(os.getpid(), signal.SIGKILL)
data = EVICTION + b'{"context":"f"}\\n{"observation":0}\\n' + struct.pack("=qqqf", 0, 1, 1, 0.5) + b"\\n"
step = int(bases[1])
die_at(step)
answering = open(bases[0] + ".in", "rb", buffering=0); die_at(step)
asking = open(bases[0] + ".out", "wb", buffering=0); die_at(step)
for begin in range(0, len(data), 40):
    asking.write(data[begin : begin + 40]); die_at(step)
answering.read(8); die_at(step)
asking.close(); die_at(step)
"""


def test_a_compiler_that_is_killed_at_any_step_is_a_result(start: Start):
    found: list[InteractiveStatus] = []
    while InteractiveStatus.OK not in found:
        channel = ChannelUse(options=("{base}", str(len(found))))
        with start(KILLED, {"c": channel}) as session:
            result = finish(session, c=EVICT)
        found.append(result.status)
        if result.status is not InteractiveStatus.OK:
            assert result.returncode == -9
            assert "expected exit code 0, found signal SIGKILL: it said nothing" in result.detail
    assert set(found[:-1]) == {InteractiveStatus.FAILED}
    assert len(found) > 10


def test_a_full_folder_is_an_error_before_the_compiler_starts(start: Start, monkeypatch: pytest.MonkeyPatch):
    def full(path: str, mode: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkfifo", full)
        with pytest.raises(StorageError, match="expected to make two pipes, found No space left on device"):
            start("", {"c": use()}).__enter__()


def test_a_message_for_which_there_was_no_room_is_told(start: Start, monkeypatch: pytest.MonkeyPatch):
    here = os.statvfs("/")
    # Free blocks are the fourth number, and those for users the fifth (Linux: statvfs(3)).
    full = os.statvfs_result((*here[:3], 0, 0, *here[5:]))
    monkeypatch.setattr(os, "fstatvfs", lambda _: full)
    with start("sys.exit(1)", {"c": use()}) as session:
        result = finish(session)
    assert result.status is InteractiveStatus.FAILED
    assert "found exit code 1: its message was lost, because the disk with temporary files is full" in result.detail


def test_silence_counts_over_all_channels(start: Start):
    script = """
e, p = Channel(bases[0], EVICTION), Channel(bases[1], PRIORITY)
p.context(b"f")
for size in range(8):
    p.prioritise(size); time.sleep(0.2)
e.close(); p.prioritise(1); sleep()
"""
    with start(script, {"e": use(), "p": use()}, answer_seconds=1) as session:
        result = finish(session, p=Constant(1))
    assert result.status is InteractiveStatus.SILENT
    assert "expected a question or the end of the channel within 1 s, found neither" in result.detail
    assert result.logs["p"] is not None
    assert result.logs["p"].observation_count == 9


def test_every_channel_needs_an_advisor(tmp_path: Path):
    with pytest.raises(
        UsageError, match="channel evict: expected an advisor, found none; name one, or use open_session"
    ):
        drive_channels(
            ["true"], channels={"evict": use()}, timeout_seconds=1, answer_timeout_seconds=1, folder=tmp_path
        )


def test_channels_are_asked_for_in_the_problems_words():
    channel = channel_use(INLINE_SIZE, major=19, advisor=Constant(0), include_default=True)
    assert channel.overwritten == ("callee_basic_block_count", "inlining_default")
    assert channel.options.count("-mllvm") == 3
    assert channel_use(REGALLOC_EVICTION, major=22, words=tuple).options == REGALLOC_EVICTION.channel_options

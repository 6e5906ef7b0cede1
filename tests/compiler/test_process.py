import errno
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from tests.scripts import script

from mlgokit.compiler.limits import COMPILER_LIMITS, TOOL_LIMITS, USERS_LIMITS, Limits
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.process import TAIL_BYTES, kill_pool, kill_running, run
from mlgokit.errors import ToolError

LONG = 60.0


def test_what_a_program_prints_and_returns():
    done = run(["sh", "-c", "cat; echo oops >&2; exit 7"], timeout_seconds=LONG, stdin=b"hello")

    assert (done.returncode, done.stdout, done.stderr, done.timed_out) == (7, b"hello", "oops\n", False)


def test_a_program_is_looked_for_in_the_path_that_it_is_given(tmp_path: Path):
    script(tmp_path / "only-here", "echo found")
    done = run(["only-here"], timeout_seconds=30, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout == b"found\n"


def test_a_signal_is_a_negative_return_code():
    assert run(["sh", "-c", "kill -SEGV $$"], timeout_seconds=LONG).returncode == -11


def test_the_deadline_kills_the_whole_group(tmp_path: Path):
    said = b""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # On a busy machine the group may take longer than a short deadline to get so far.
    for deadline in (1, 10, 100):
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        done = run(["sh", "-c", "(echo begun; exec sleep 600) > fifo & wait"], timeout_seconds=deadline, cwd=tmp_path)

        assert done.timed_out
        assert done.returncode == -signal.SIGKILL
        os.set_blocking(reader, True)
        with os.fdopen(reader, "rb") as file:
            # The end is read when nobody has the other end open any more.
            said = file.read()
        if said:
            break
    assert said == b"begun\n"


def test_a_system_without_descriptors_of_processes_will_do(monkeypatch: pytest.MonkeyPatch):
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    # As Linux before 5.3 does.
    monkeypatch.setattr(os, "pidfd_open", refuse)
    threads, opened = set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))
    done = run(["sh", "-c", "echo hello; exit 7"], timeout_seconds=LONG)
    assert (done.returncode, done.stdout, done.timed_out) == (7, b"hello\n", False)
    done = run(["sleep", "600"], timeout_seconds=0.2)
    assert (done.returncode, done.timed_out) == (-signal.SIGKILL, True)
    for thread in set(threading.enumerate()) - threads:
        thread.join(LONG)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_a_setpriv_that_cannot_end_children_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # As that of BusyBox.
    script(tmp_path / "setpriv", "echo 'setpriv: unrecognized option: pdeathsig' >&2", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code = "from mlgokit.compiler.process import run; print(run(['echo', 'hello'], timeout_seconds=60).stdout)"
    assert run([sys.executable, "-c", code], timeout_seconds=LONG).stdout == b"b'hello\\n'\n"


def test_a_missing_program_is_a_sentence(tmp_path: Path):
    with pytest.raises(ToolError, match="expected an executable program, found none; install it or give another path"):
        run([tmp_path / "nothing"], timeout_seconds=LONG)


def test_only_the_end_of_long_complaints_is_kept():
    done = run([sys.executable, "-c", "import sys; sys.stderr.write('x' * 100_000 + 'end')"], timeout_seconds=LONG)

    assert len(done.stderr) == TAIL_BYTES
    assert done.stderr.endswith("xend")


def test_long_answers_are_kept_where_they_are_wanted():
    program = "import sys; sys.stderr.write('x' * 100_000)"
    assert len(run([sys.executable, "-c", program], timeout_seconds=LONG, stderr_bytes=200_000).stderr) == 100_000


def test_output_that_is_not_text_does_not_matter():
    done = run(["sh", "-c", r"printf '\377\376'; printf '\377' >&2"], timeout_seconds=LONG)

    assert done.stdout == b"\xff\xfe"
    assert done.stderr == "\ufffd"


def test_more_output_than_a_pipe_holds_does_not_block():
    assert len(run(["head", "-c", "3000000", "/dev/zero"], timeout_seconds=LONG).stdout) == 3_000_000


def test_the_environment_is_replaced():
    assert run(["/usr/bin/env"], timeout_seconds=LONG, env={"ONLY": "this"}).stdout == b"ONLY=this\n"


def test_time_and_memory_of_the_child_are_measured():
    done = run([sys.executable, "-c", "x = bytearray(64 << 20); sum(range(10**6))"], timeout_seconds=LONG)

    assert done.peak_bytes > 64 << 20
    assert done.user_seconds > 0
    assert done.wall_seconds > 0


def test_an_interruption_kills_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started = tmp_path / "pid"
    os.mkfifo(started)
    pids: list[int] = []

    def interrupt(_process: object, **_: object) -> None:
        pids.append(int(started.read_text()))
        raise KeyboardInterrupt

    monkeypatch.setattr("mlgokit.compiler.process._wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", "echo $$ > pid; sleep 600"], timeout_seconds=LONG, cwd=tmp_path)

    assert not is_running(pids[0])


def test_another_thread_can_kill_what_runs(tmp_path: Path):
    started = tmp_path / "pid"
    os.mkfifo(started)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, ["sh", "-c", "echo $$ > pid; sleep 600"], timeout_seconds=LONG, cwd=tmp_path)
        pid = int(started.read_text())
        # The program may speak before its thread has noted that it runs.
        while not wait([running], timeout=0.05).done:
            kill_running()
        done = running.result()

    assert (done.returncode, done.timed_out) == (-signal.SIGKILL, False)
    assert not is_running(pid)
    # What has ended is forgotten: there is nothing to kill, and nobody else's process is.
    kill_running()


def test_a_pool_that_is_killed_begins_nothing_more_and_leaves_no_child(tmp_path: Path):
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    commands = ["echo > begun; sleep 600", "sleep 600"]

    def two(_number: int) -> list[int]:
        return [run(["sh", "-c", text], timeout_seconds=LONG, cwd=tmp_path).returncode for text in commands]

    pool = ThreadPoolExecutor(1)
    futures = [pool.submit(two, number) for number in range(3)]
    begun.read_text()
    kill_pool(pool, futures)

    # The second child of the first began after a kill, and was killed as well.
    assert futures[0].result() == [-signal.SIGKILL] * 2
    assert all(future.cancelled() for future in futures[1:])


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


SMALL = Limits(file_bytes=1 << 20, memory_bytes=1 << 30)
LIMITED = "while test $(ulimit -f) = unlimited; do :; done"
"""A child waits for its limits: on a busy machine it may run for a while before its parent does."""


def test_a_child_writes_no_more_than_it_may(tmp_path: Path):
    script = f"{LIMITED}; exec dd if=/dev/zero of=big bs=64k"
    done = run(["sh", "-c", script], timeout_seconds=LONG, cwd=tmp_path, limits=SMALL)
    assert done.returncode == -signal.SIGXFSZ
    assert done.exceeded == "it wrote more than 1 MiB into one file, and was ended"
    assert done.stderr.splitlines()[0] == f"error: sh: {done.exceeded}"
    assert (tmp_path / "big").stat().st_size == SMALL.file_bytes


def test_the_children_and_standard_error_of_a_child_are_limited_too(tmp_path: Path):
    script = f"{LIMITED}; cat /dev/zero > big; cat /dev/zero >&2"
    done = run(["sh", "-c", script], timeout_seconds=LONG, cwd=tmp_path, limits=SMALL)
    assert not done.timed_out
    assert done.returncode in {128 + signal.SIGXFSZ, -signal.SIGXFSZ}
    assert (tmp_path / "big").stat().st_size == SMALL.file_bytes


def test_a_child_takes_no_more_memory_than_it_may():
    wait = "import resource, sys\nwhile resource.getrlimit(resource.RLIMIT_AS)[0] < 0: pass\n"
    code = "import mmap, sys\ntry: mmap.mmap(-1, 2 << 30)\nexcept OSError: sys.exit(7)"
    assert run([sys.executable, "-c", wait + code], timeout_seconds=LONG, limits=SMALL).returncode == 7
    done = run(
        [
            sys.executable,
            "-c",
            wait
            + "import os\nos.abort() if not print('LLVM ERROR: out of memory', file=sys.stderr, flush=True) else 0",
        ],
        timeout_seconds=LONG,
        limits=SMALL,
    )
    assert (done.returncode, done.exceeded) == (
        -signal.SIGABRT,
        "it asked for more than 1 GiB of memory, and was ended",
    )
    assert run([sys.executable, "-c", code], timeout_seconds=LONG).returncode == 0


def test_a_compiler_has_limits_of_its_own(tmp_path: Path):
    wait = LIMITED.replace("-f", "-v")
    compiler = script(tmp_path / "clang", f'test "$1" = -cc1 && {{ {wait}; }}', "ulimit -f", "ulimit -v")
    found = run(Cc1Line(compiler), timeout_seconds=LONG).stdout.decode().split()
    # In blocks of 512 bytes and in KiB.
    assert found[1] == str((COMPILER_LIMITS.memory_bytes or 0) // 1024)
    assert int(found[0]) in {(COMPILER_LIMITS.file_bytes or 0) // 512, (COMPILER_LIMITS.file_bytes or 0) // 1024}
    script(compiler, wait, "ulimit -f", "ulimit -v")
    found = run([compiler, "-v"], timeout_seconds=LONG).stdout.decode().split()
    assert found[1] == str((TOOL_LIMITS.memory_bytes or 0) // 1024)
    assert int(found[0]) in {(TOOL_LIMITS.file_bytes or 0) // 512, (TOOL_LIMITS.file_bytes or 0) // 1024}
    script(compiler, "sleep 0.1; ulimit -f; ulimit -v")
    found = run([compiler], timeout_seconds=LONG, limits=USERS_LIMITS).stdout.decode().split()
    assert found == ["unlimited", "unlimited"]


def test_a_sanitized_compiler_has_all_addresses(tmp_path: Path):
    compiler = script(tmp_path / "clang", "# __asan_init", LIMITED, "ulimit -f", "ulimit -v")
    found = run(Cc1Line(compiler), timeout_seconds=LONG).stdout.decode().split()
    assert found[0] != "unlimited"
    assert found[1] == "unlimited"


def test_a_child_that_prints_for_ever_is_ended():
    limits = Limits(file_bytes=None, memory_bytes=None, printed_bytes=1 << 20)
    for stream in (1, 2):
        done = run(["sh", "-c", f"exec yes >&{stream}"], timeout_seconds=LONG, limits=limits)
        assert (done.timed_out, done.exceeded) == (False, "it printed more than 1 MiB, and was ended")
        assert len(done.stdout) in {0, 1 << 20}


def test_what_a_child_leaves_behind_ends_with_it():
    done = run(["sh", "-c", "sleep 600 >&2 & echo $!"], timeout_seconds=LONG)
    assert done.returncode == 0
    pid = int(done.stdout)
    for _ in range(1000):
        if not is_running(pid):
            break
        run(["true"], timeout_seconds=LONG)
    assert not is_running(pid)


def test_a_deadline_is_no_other_limit():
    done = run(["sh", "-c", "echo Cannot allocate memory >&2; sleep 600"], timeout_seconds=1, limits=SMALL)
    assert (done.timed_out, done.exceeded) == (True, "")


OWN = """
import resource, sys
from mlgokit.compiler.limits import Limits
from mlgokit.compiler.process import run
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
wanted = Limits(file_bytes=1 << 30, memory_bytes=4 << 30)
script = "while test $(ulimit -v) = unlimited; do :; done; ulimit -f; ulimit -v; exec cat /dev/zero > big"
done = run(["sh", "-c", script], timeout_seconds=60, limits=wanted)
sys.stdout.write(done.stdout.decode() + done.exceeded)
"""


def test_a_child_has_no_more_than_we_have_and_the_rest_all_the_same(tmp_path: Path):
    done = run([sys.executable, "-c", OWN], timeout_seconds=LONG, cwd=tmp_path, limits=USERS_LIMITS)
    file_blocks, memory, sentence = done.stdout.decode().split("\n")
    assert int(file_blocks) in {1 << 10, 1 << 11}
    assert int(memory) == 4 << 20
    assert sentence == "it wrote more than 1 MiB into one file, and was ended"


def test_children_that_nobody_waits_for_yet_end_with_their_groups(tmp_path: Path):
    late = tmp_path / "late"
    # In a process of its own, as this one may have other children.
    program = f"""
import time
from mlgokit.compiler import process
child = process.start(["sh", "-c", "(sleep 1; echo > {late}) & wait"], stderr=2)
process.kill_children()
print(child.wait(timeout=20))
time.sleep(1.5)
"""
    done = run([sys.executable, "-c", program], timeout_seconds=60)
    assert done.stdout == f"-{signal.SIGKILL:d}\n".encode(), done.stderr
    assert not late.exists()

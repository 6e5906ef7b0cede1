"""Large compilations wait for the others, and those for them."""

import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlgokit.compiler import memory, process
from mlgokit.compiler.memory import HostMemory, MemoryGate


def test_never_more_is_taken_than_there_is_and_all_come_to_their_turn():
    gate, lock = MemoryGate(bytes=10), threading.Lock()
    taken, most, done = 0, 0, []

    def work(wanted: int) -> None:
        nonlocal taken, most
        with gate.acquire(wanted):
            with lock:
                taken += min(wanted, 10)
                most = max(most, taken)
            with lock:
                taken -= min(wanted, 10)
                done.append(wanted)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [1, 6, 6, 25, 2, 10, 3, 7] * 20))
    assert most <= 10
    assert len(done) == 160


def test_a_large_one_is_not_overtaken_for_ever():
    gate = MemoryGate(bytes=10)
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with gate.acquire(4):
            inside.set()
            leave.wait(10)

    def large() -> None:
        with gate.acquire(9):
            order.append("large")

    def small() -> None:
        with gate.acquire(1):
            order.append("small")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    inside.wait(10)
    for work in (large, small):
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        threads[-1].join(0.2)
    assert order == []
    leave.set()
    for thread in threads:
        thread.join(10)
    assert order == ["large", "small"]


HOLDER = """
import sys
from pathlib import Path
from mlgokit.compiler.memory import HostMemory, MemoryGate

# A worker with a share of its own, as each of local:8 has: less than the module needs.
with MemoryGate(bytes=4, host=HostMemory(bytes=10, folder=Path(sys.argv[1]))).acquire(int(sys.argv[2])):
    print("has it", flush=True)
    sys.stdin.read()
"""


class Process:
    """Another process that takes memory, and has it until it is ended."""

    def __init__(self, folder: Path, wanted: int) -> None:
        words = [sys.executable, "-c", HOLDER, str(folder), str(wanted)]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_until_it_has(self) -> None:
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == b"has it\n"


@pytest.fixture
def start(tmp_path: Path) -> Generator[list[Process]]:
    begun: list[Process] = []
    yield begun
    for one in begun:
        one.child.kill()
        one.child.communicate()


def entries(folder: Path, state: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(state))


def wait_for(folder: Path, state: str, count: int) -> None:
    for _ in range(3000):
        if folder.is_dir() and len(entries(folder, state)) == count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{folder}: not {count} with {state}")


def test_a_large_module_of_one_process_waits_for_those_of_others(tmp_path: Path, start: list[Process]):
    """The small one behind it does not overtake it, and a process that is killed gives back what it had."""
    folder = tmp_path / "memory"
    start.append(Process(folder, 6))
    start[0].wait_until_it_has()
    start.append(Process(folder, 6))
    wait_for(folder, "waits", 1)
    start.append(Process(folder, 1))
    wait_for(folder, "waits", 2)
    assert len(entries(folder, "runs")) == 1
    start[0].child.kill()
    start[1].wait_until_it_has()
    start[2].wait_until_it_has()
    assert [name.split("-")[1:] for name in entries(folder, "runs")] == [["6", "runs"], ["1", "runs"]]
    start[1].child.kill()
    start[1].child.wait(60)
    start[2].child.communicate(b"")
    with HostMemory(bytes=10, folder=folder).acquire(25):
        # Who wants more than there is runs alone.
        assert [name.split("-")[1] for name in entries(folder, "runs")] == ["10"]


def test_an_interrupt_ends_the_wait_and_leaves_the_line(tmp_path: Path, start: list[Process]):
    folder = tmp_path / "memory"
    start.append(Process(folder, 6))
    start[0].wait_until_it_has()
    come = threading.Event()

    def work() -> None:
        with HostMemory(bytes=10, folder=folder).acquire(6):
            assert entries(folder, "waits") == []
            come.set()

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(folder, "waits", 1)
    assert not come.is_set()
    process.kill_running()
    thread.join(60)
    assert come.is_set()


def test_without_a_list_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    with HostMemory(bytes=10, folder=tmp_path / "file").acquire(6), HostMemory(bytes=10, folder=tmp_path).acquire(6):
        pass
    monkeypatch.setattr(memory.os, "getuid", lambda: 12345)
    with HostMemory(bytes=10, folder=tmp_path / "other").acquire(6):
        assert not list((tmp_path / "other").iterdir())

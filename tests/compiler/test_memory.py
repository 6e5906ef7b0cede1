"""Large compilations wait for the others, and those for them."""

import threading
from concurrent.futures import ThreadPoolExecutor

from mlgokit.compiler.memory import MemoryGate


def test_never_more_is_taken_than_there_is_and_all_come_to_their_turn():
    gate, lock = MemoryGate(bytes=10), threading.Lock()
    taken, most, done = 0, 0, []

    def work(wanted: int) -> None:
        nonlocal taken, most
        with gate.taking(wanted):
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
        with gate.taking(4):
            inside.set()
            leave.wait(10)

    def large() -> None:
        with gate.taking(9):
            order.append("large")

    def small() -> None:
        with gate.taking(1):
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

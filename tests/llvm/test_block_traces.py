"""Blocks of a program as ``benchmarks/cost_truth.py`` prices them."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.bench.callgrind import Callgrind, find_callgrind, read_addresses, read_functions
from mlgokit.bench.counts import Execution
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

SOURCE = """
__attribute__((noinline)) int chain(int n, int x) { for (int i = 0; i < n; i++) x = x / 3 * x; return x; }
int main(int argc, char **argv) { return chain(1000 * argc, 7) == 1 && argv[0] == 0; }
"""


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("block_traces")


def test_blocks_of_a_run_are_counted_and_priced(traces: ModuleType, toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "a.c").write_text(SOURCE)
    program = tmp_path / "program"
    argv = [toolchain.clang, "-O2", traces.BLOCKS, tmp_path / "a.c", "-o", program]
    done = process.run(argv, timeout_seconds=60)
    assert done.returncode == 0, done.stderr

    blocks = traces.read_blocks(program, toolchain)
    assert {"chain", "main"} <= blocks.keys()
    assert all(block.lines for block in blocks["chain"].values())

    counter = find_callgrind()
    counter = Callgrind(valgrind=counter.valgrind, version=counter.version, by_address=True)
    execution = Execution(argv=(str(program),), folder=tmp_path, environment={}, own=program)
    assert not counter.count(execution, tmp_path).reason
    (profile,) = tmp_path.glob("profile.*")
    times = traces.executed(blocks["chain"], read_addresses(profile, program))
    lengths = {number: len(block.lines) for number, block in blocks["chain"].items()}
    counted = read_functions(profile, program)["chain"].instructions or 0
    # Padding in front of a loop is in no block.
    assert counted - 2 <= sum(times[number] * lengths[number] for number in times) <= counted
    assert max(times.values()) >= 250

    prices = traces.cycles(blocks, toolchain, "skylake")["chain"]
    hot = max(times, key=lambda number: times[number])
    # Two multiplications, one after another, take three cycles each at least.
    assert prices[hot] >= 6 > min(prices.values()) >= 0

"""What the code generator of coroutines does to the call graph in between: our advisor counts as LLVM's own does."""

import os
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.traces.log import read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

LLVMS = "-Rpass=nothing-of-this-name"
"""Remarks, of whatever passes, are for LLVM's own advisor."""
SOURCE = """
#include <coroutine>
extern "C" int get(int);
extern "C" void put(int);
struct Numbers {
  struct promise_type {
    int now = 0;
    Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int value) { now = value; return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
  bool next() { handle.resume(); return !handle.done(); }
};
static int dead(int x) { return get(x) + get(x + 1); }
static int step(int x) { put(x); return dead(x) * 3 + x; }
static Numbers count(int from, int to) { for (int i = from; i < to; i = step(i)) co_yield step(i) + dead(i); }
static Numbers pairs(int n) {
  auto inner = count(0, n);
  while (inner.next()) { co_yield inner.handle.promise().now; co_yield step(n); }
  inner.handle.destroy();
}
static int sum(Numbers numbers) { int s = 0; while (numbers.next()) s += numbers.handle.promise().now; return s; }
int all(int n) { return sum(count(1, n)) + sum(pairs(n)) + sum(count(n, 2 * n)) + step(n); }
int some(int n) { auto numbers = pairs(n); numbers.next(); return numbers.handle.promise().now + all(n); }
"""


@pytest.mark.parametrize(
    "settings",
    [{"policy": ":default"}, {"policy": ":never"}, {"policy": ":always"}, {"policy": ":default", "flip": "0.3"}],
    ids=str,
)
def test_coroutines_are_counted_as_llvm_counts_them(
    toolchain: Toolchain, plugin: Path, tmp_path: Path, settings: dict[str, str]
):
    (tmp_path / "source.cpp").write_text(SOURCE)

    def compile_source(*words: str, **environment: str) -> None:
        argv = [toolchain.clangxx, "-std=c++20", "-Oz", "-fno-exceptions", *words]
        done = process.run(argv, timeout_seconds=60, cwd=tmp_path, env={**os.environ, **environment})
        assert done.returncode == 0, done.stderr

    compile_source("-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "source.cpp", "-o", "source.bc")
    made: list[tuple[bytes, bytes]] = []
    for words in ((), (LLVMS,)):
        compile_source(
            f"-fpass-plugin={plugin}", *words, "-c", "source.bc", "-o", "out.o",
            MLGOKIT_POLICY=settings["policy"], MLGOKIT_LOG=str(tmp_path / "log"),
            MLGOKIT_FLIP_PROBABILITY=settings.get("flip", "0"), MLGOKIT_SEED="7",
        )  # fmt: skip
        made.append(((tmp_path / "out.o").read_bytes(), (tmp_path / "log").read_bytes()))
    assert made[0] == made[1]
    counts = read_log(tmp_path / "log").columns["node_count"][:, 0]
    # Coroutines were split while calls were decided.
    assert len(set(counts.tolist())) > 3

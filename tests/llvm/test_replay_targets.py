"""Tuned decisions without the plugin in cross builds: the list is read, and the build is as small as was promised."""

import json
from pathlib import Path

import pytest
from tests.llvm.searching import tune_until

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import tune
from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

# LLVM leaves functions that are smaller where they are called.
SOURCE = """
static unsigned mix(unsigned value, unsigned other) { return (value << 5 | value >> 27) ^ (other * 77 + (value >> 3)); }
static unsigned fold(const unsigned *rows, unsigned count) {
  unsigned sum = 7;
  for (unsigned row = 0; row < count; ++row) sum = mix(sum, rows[row]);
  return sum;
}
static unsigned twice(const unsigned *rows, unsigned count, unsigned seed) {
  return mix(fold(rows, count), seed) ^ mix(seed, count);
}
unsigned first(unsigned count) { return mix(mix(mix(count, 3), 4), mix(count, 5)); }
unsigned second(unsigned count) {
  unsigned rows[4] = {count, 2, 3, 4};
  return twice(rows, 4, 5) ^ twice(rows + 1, 3, count) ^ mix(count, 9);
}
unsigned third(unsigned count) { return mix(count, first(count)) ^ mix(second(count), count) ^ mix(1, count); }
unsigned fourth(unsigned count) {
  unsigned rows[6] = {count, count, count, count, count, count};
  return fold(rows, 6) ^ fold(rows + 2, 4) ^ mix(mix(count, 1), mix(2, count));
}
"""
TARGETS = (
    "aarch64-linux-gnu",
    pytest.param("thumbv6m-none-eabi", marks=pytest.mark.first_major),
    pytest.param("riscv32-unknown-elf", marks=pytest.mark.first_major),
    pytest.param("i386-linux-gnu", marks=pytest.mark.first_major),
)
"""The fast half compiles for all of them with one LLVM major, and with each major for the first."""


@pytest.mark.every_major
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.usefixtures("other_targets")
def test_a_cross_build_replays_what_was_tuned(toolchain: Toolchain, tmp_path: Path, target: str):
    words = (f"--target={target}", "-Oz", "-ffunction-sections", "-ffreestanding")
    (tmp_path / "work.c").write_text(SOURCE)
    entry = {
        "directory": str(tmp_path),
        "file": "work.c",
        "arguments": ["clang", *words, "-c", "work.c", "-o", "work.o"],
    }
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    config = tune.Tune(
        compile_commands=tmp_path / "compile_commands.json",
        budget="1s",
        artifact="replay",
        output=tmp_path / "tuned.so",
        folder=tmp_path / "tune",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )

    found = tune_until(lambda tuned: tuned.replay is not None and tuned.replay.decisions > 0, config).replay

    assert found is not None
    assert found.decisions > 0
    assert found.tuned_bytes < found.plain_bytes
    sizes: dict[tuple[str, ...], int] = {}
    for flags in ((), (found.flag,)):
        done = process.run(
            [toolchain.clang, *words, *flags, "-c", "work.c", "-o", "out.o"], timeout_seconds=60, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        sizes[flags] = measure_object(tmp_path / "out.o").totals.text
    assert sizes[found.flag,] < sizes[()]

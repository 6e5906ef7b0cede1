"""Tuning for other processors: 32 bits, and code that a pass over the module outlines before it is emitted."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import tune
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import measure_object, size_score
from mlgokit.compiler.reuse.trials import TRIAL, Overrides, Series
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.space import FunctionSpace

pytestmark = pytest.mark.llvm

SOURCE = """
static int twice(int x) { return x * 2 + 1; }
static int apart(const int *p, int n) { int s = 0; while (n--) s += p[n] * twice(n); return s; }
unsigned mix(const unsigned *p, int n, unsigned *out) {
  unsigned a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11,l=12,m=13,o=14,q=15;
  for (int t = 0; t < n; t++) {
    unsigned v = p[t] + twice(t);
    a=a*31+(b^v); b=(b<<3)^c; c+=d*v; d^=e+a; e=e*7+f; f+=g^v; g=g*13+h; h=(h<<7)^i; i+=j*3; j^=k+v;
    k+=l*5; l^=m+v; m=(m<<9)^o; o^=q+v; q+=a*17; out[t] = a ^ q ^ twice(v);
  }
  return a^b^c^d^e^f^g^h^i^j^k^l^m^o^q;
}
int last(const int *p, int n) { return n ? p[n - 1] * n + apart(p, n) : apart(p + 1, 3); }
"""
TARGETS = (
    "thumbv7em-none-eabi",
    pytest.param("aarch64-linux-gnu", marks=pytest.mark.first_major),
    pytest.param("riscv32-unknown-elf", marks=pytest.mark.first_major),
    pytest.param("i386-linux-gnu", marks=pytest.mark.first_major),
)
"""The fast half compiles for all of them with one LLVM major, and with each major for the first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Firmware:
    toolchain: Toolchain
    words: tuple[str, ...]
    folder: Path
    tuned: Tuned


@pytest.fixture(scope="module", params=TARGETS)
def firmware(
    request: pytest.FixtureRequest,
    toolchain: Toolchain,
    other_targets: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Firmware:
    """A project for another processor, tuned."""
    folder = tmp_path_factory.mktemp(f"{request.param}-{toolchain.major}")
    words = (f"--target={request.param}", "-Oz", "-ffunction-sections", "-ffreestanding")
    (folder / "work.c").write_text(SOURCE)
    entry = {"directory": str(folder), "file": "work.c", "arguments": ["clang", *words, "-c", "work.c", "-o", "work.o"]}
    (folder / "compile_commands.json").write_text(json.dumps([entry]))
    config = tune.Tune(
        compile_commands=folder / "compile_commands.json",
        budget="0.5s",
        allocation_share=0.7,
        output=folder / "tuned.so",
        folder=folder / "tune",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )
    return Firmware(toolchain=toolchain, words=words, folder=folder, tuned=tune.run(config))


@pytest.mark.every_major
def test_the_build_is_as_small_as_promised(firmware: Firmware, tmp_path: Path):
    tuned = firmware.tuned
    assert tuned.tuned_bytes <= tuned.plain_bytes
    for flags, promised in (((), tuned.plain_bytes), ((tuned.flag,), tuned.tuned_bytes)):
        path = tmp_path / "work.o"
        words = [firmware.toolchain.clang, *firmware.words, *flags, "-c", firmware.folder / "work.c", "-o", path]
        done = process.run(words, timeout_seconds=60)
        assert done.returncode == 0, done.stderr
        assert size_score(measure_object(path), {}) == promised


def test_every_function_is_measured_alone(firmware: Firmware, plugin: Path):
    assert firmware.tuned.allocated is not None
    (module,) = load_corpus(firmware.folder / "tune" / "corpus").modules
    compiler = ClangCompiler(toolchain=firmware.toolchain, plugin=plugin)
    plain = compiler.compile(module).measured
    text = TrialConfig(weights=np.array([0.0] * 6 + [1.0, 0.0, 0.0]))
    space = FunctionSpace(folder=firmware.folder, compiler=compiler, config=text)
    listed = space.compile(module).tried
    trials = np.zeros(1, TRIAL)
    asked = [Series(key=one.key, base=Overrides(), score=np.inf, trials=trials) for one in listed]
    found = {one.name: one.outcomes[0].score for one in space.compile(module, asked, seconds=5).tried}
    sizes = dict(zip(plain.function_names, plain.function_text.tolist(), strict=True))
    assert found.keys() == sizes.keys()
    # Before branches are made as short as they can be, and before the linker's are known.
    near = 0 if "aarch64" in module.command_line[2] or "i386" in module.command_line[2] else 8
    assert all(0 <= score - sizes[name] <= near for name, score in found.items()), (found, sizes)

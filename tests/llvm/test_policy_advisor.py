"""Our advisor asks the very questions of LLVM's own, and makes the very objects."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compilation import NOT_FEATURES
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.network import Gate, OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import make_entry, strong_names, table_bytes
from mlgokit.testing import toy_layers
from mlgokit.traces.log import read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

LLVMS = "-Rpass=nothing-of-this-name"
"""Remarks, of whatever passes, are for LLVM's own advisor."""
GROWS_LITTLE = ("-mllvm", "-ml-advisor-size-increase-threshold=1.02")
# Cycles, a callee that dies with a call of its caller in it, exceptions, dynamic allocations, switches, functions by
# pointer, calls that never return, loads of one address twice, and what must or must not be inlined.
SOURCE = """
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" int get(int);
extern "C" void put(int);
extern "C" [[noreturn]] void fail();
static int odd(int n);
static int even(int n) { if (n < 2) return get(n); put(n); return odd(n - 1) + get(3); }
static int odd(int n) { if (n < 2) return get(-n); return even(n - 1) * even(n - 2); }
static int inner(int n);
static int outer(int n) { put(n); return n > 5 ? inner(n) + get(n) : get(2); }
static int choose(int x);
static int inner(int n) { put(n + 1); return n & 1 ? outer(n - 1) : choose(n); }
static int apply(int (*f)(int), int x) { put(x); return f(x) + f(x + 1); }
static int triple(int x) { return 3 * x + get(x); }
static int twice(int* p) { int a = *p; put(a); return a + *p + get(*p); }
static int room(int n) { int* p = (int*)__builtin_alloca(n); p[0] = get(n); put(p[0]); return p[n / 8]; }
static int choose(int x) {
  switch (x) {
  case 1: return get(4); case 2: return get(9); case 7: return get(2) + 1; case 8: return 3; case 9: put(1); }
  if (x > 1000) fail();
  return get(x) + get(x + 1);
}
static void ends(int x) { put(x); if (x > 3) fail(); throw std::runtime_error("no"); }
[[gnu::always_inline]] static inline int must(int x) { return get(x) + choose(x); }
[[gnu::noinline]] static int never(int x) { return must(x) + 1; }
static std::map<std::string, std::vector<int>> table;
struct Shape { virtual ~Shape() {} virtual int area(int) = 0; };
struct Square : Shape { int area(int k) override { return twice(&k) + choose(k); } };
struct Many : Shape {
  std::vector<Shape*> parts;
  int area(int k) override { int s = 0; for (Shape* p : parts) s += p->area(k); return s + even(k); }
};
Shape* make(int n) { if (n) return new Square; return new Many; }
int all(const std::string& name, int x) {
  table[name].push_back(apply(triple, x));
  try { ends(x); } catch (const std::exception& e) { put(choose(2) + int(std::string(e.what()).size())); }
  std::function<int(int)> f = [&](int y) { return choose(y) + never(x); };
  return f(x) + twice(&table[name][0]) + choose(7) + even(x) + apply(odd, 4) + room(x) + must(x);
}
int more(int x) { if (x == 3) { ends(x); put(choose(x)); } return choose(x) + never(x) + all("more", x) + triple(x); }
int cycle(int x) { return outer(x) + outer(x + 2); }
"""


class SourceCompiler:
    """SOURCE before optimization, and what a compiler with the plugin makes of it."""

    def __init__(self, toolchain: Toolchain, plugin: Path, folder: Path) -> None:
        self.toolchain, self.plugin, self.folder = toolchain, plugin, folder
        (folder / "source.cpp").write_text(SOURCE)
        done = self.run("-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "source.cpp", "-o", "source.bc")
        assert done.returncode == 0, done.stderr

    def run(self, *words: str, **settings: str) -> process.Completed:
        environment = {**os.environ, **{f"MLGOKIT_{key.upper()}": value for key, value in settings.items()}}
        argv = [self.toolchain.clangxx, "-Oz", "-ffunction-sections", *words]
        return process.run(argv, timeout_seconds=60, cwd=self.folder, env=environment)

    def object(self, *words: str, **settings: str) -> bytes:
        done = self.run(
            f"-fpass-plugin={self.plugin}", *words, "-c", "source.bc", "-o", "out.o",
            **{"policy": str(self.folder / "some.policy"), **settings},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return (self.folder / "out.o").read_bytes()

    def log(self, *words: str, **settings: str) -> tuple[bytes, bytes]:
        """The object, and the log of all questions."""
        made = self.object(*words, log=str(self.folder / "log"), **settings)
        return made, (self.folder / "log").read_bytes()


@pytest.fixture(scope="module")
def workshop(toolchain: Toolchain, plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> SourceCompiler:
    return SourceCompiler(toolchain, plugin, tmp_path_factory.mktemp(f"policy-advisor-{toolchain.major}"))


@pytest.fixture(scope="module")
def policy(workshop: SourceCompiler) -> Policy:
    """Of all features, with weights yet to be drawn."""
    done = workshop.run(
        f"-fpass-plugin={workshop.plugin}", "-c", "source.bc", "-o", "out.o",
        policy=":default", log=str(workshop.folder / "log"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    columns = read_log(workshop.folder / "log").columns
    names = tuple(name for name in columns if name not in NOT_FEATURES)
    normaliser = fit_signed_log(np.stack([columns[name][:, 0] for name in names], axis=1))
    return Policy(
        problem=INLINE_SIZE.name, features=names, normaliser=normaliser, layers=(), output=OutputKind.EFFECT_BYTES
    )


def drawn(policy: Policy, seed: int) -> Policy:
    """``policy`` with random weights; every second one has a gate."""
    rng = np.random.default_rng(seed)
    widths = (policy.normaliser.width, 16, 1)
    layers = toy_layers(rng, widths)
    gate = Gate(feature="callee_is_discardable", margins=(math.inf, 0.1)) if seed % 2 else None
    return replace(policy, layers=layers, gate=gate)


def test_a_policy_decides_alike_with_llvms_advisor_and_with_ours(workshop: SourceCompiler, policy: Policy) -> None:
    """Eight drawn policies, as gates and limits of growth differ: several seconds."""
    found: set[bytes] = set()
    for seed in range(8):
        save_policy(drawn(policy, seed), workshop.folder / "some.policy")
        # Of the last ones the advisor stops inlining when the module has grown a little.
        words = GROWS_LITTLE if seed > 5 else ()
        alone = workshop.object(*words)
        assert alone == workshop.object(*words, LLVMS), seed
        logged = workshop.log(*words)
        assert logged == workshop.log(*words, LLVMS), seed
        assert logged[0] == alone, seed
        found.add(alone)
    # The policies decide in different ways, so that a feature that differs would be seen.
    assert len(found) == 8


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": ":default"},
        {"policy": ":never"},
        {"policy": ":always"},
        {"temperature": "30", "seed": "5"},
        {"flip_probability": "0.3", "seed": "7"},
        {"policy": ":always", "flip_probability": "0.5", "seed": "2"},
    ],
    ids=str,
)
@pytest.mark.parametrize("words", [(), GROWS_LITTLE], ids=["free", "stops"])
def test_both_advisors_are_asked_the_same(
    workshop: SourceCompiler, policy: Policy, settings: dict[str, str], words: tuple[str, ...]
) -> None:
    save_policy(drawn(policy, 1), workshop.folder / "some.policy")
    assert workshop.log(*words, **settings) == workshop.log(*words, LLVMS, **settings)


def test_a_table_is_followed_alike(workshop: SourceCompiler, policy: Policy) -> None:
    save_policy(drawn(policy, 2), workshop.folder / "some.policy")
    workshop.log(flip_probability="0.4", seed="3")
    columns = {name: values[:, 0] for name, values in read_log(workshop.folder / "log").columns.items()}
    keys, inlined = columns["site"].view(np.uint64), columns["inlining_decision"] != 0
    names = strong_names(measure_object(workshop.folder / "out.o"))
    table = workshop.folder / "table"
    table.write_bytes(table_bytes([make_entry(names, keys[::2], inlined[::2])]))
    alone = workshop.object(decisions=str(table))
    assert alone == workshop.object(LLVMS, decisions=str(table))
    logged = workshop.log(decisions=str(table))
    assert logged == workshop.log(LLVMS, decisions=str(table))
    assert logged[0] == alone
    asked = read_log(workshop.folder / "log").columns["decided_by_table"]
    assert 0 < int(asked.sum()) < len(asked)

"""The plugin in real register allocators: plain objects when it echoes, legal decisions, logs, clear failures."""

import os
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.traces import Log, read_log

pytestmark = pytest.mark.llvm

# More values alive than registers, of two classes, so that the allocator has to evict.
SOURCE = """
extern "C" {
double mix(const double *a, const double *b, int n) {
  double r0=0,r1=1,r2=2,r3=3,r4=4,r5=5,r6=6,r7=7,r8=8,r9=9,ra=1,rb=2,rc=3,rd=4,re=5,rf=6,rg=1,rh=2;
  for (int i = 0; i < n; i++) {
    double x = a[i], y = b[i];
    r0+=x*r1; r1+=y*r2; r2+=x*r3; r3+=y*r4; r4+=x*r5; r5+=y*r6; r6+=x*r7; r7+=y*r8; r8+=x*r9; r9+=y*ra;
    ra+=x*rb; rb+=y*rc; rc+=x*rd; rd+=y*re; re+=x*rf; rf+=y*rg; rg+=x*rh; rh+=y*r0;
  }
  return r0+r1+r2+r3+r4+r5+r6+r7+r8+r9+ra+rb+rc+rd+re+rf+rg+rh;
}
static inline unsigned twist(unsigned x, unsigned y) { return (x << 7 | x >> 25) ^ y; }
unsigned hash(const unsigned *p, int n) {
  unsigned a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11,l=12,m=13,o=14,q=15;
  for (int t = 0; t < n; t++) {
    unsigned v = p[t];
    a=a*31+(b^v); b=twist(b,c); c+=d*v; d^=e+a; e=e*7+f; f+=g^v; g=g*13+h; h=twist(h,i+v); i+=j*3; j^=k+v;
    k+=l*5; l^=m+v; m=twist(m,o); o^=q+v; q+=a*17;
  }
  return a^b^c^d^e^f^g^h^i^j^k^l^m^o^q;
}
static int square(int x) { return x * x; }
int poly(const int *p, int n) { int s = 0; for (int i = 0; i < n; ++i) s += square(p[i]) - square(i); return s; }
}
"""


@pytest.fixture(scope="session")
def plugin(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plugin(toolchain, cache_folder=tmp_path_factory.getbasetemp().parent / "plugins")


class Bench:
    """Compiles SOURCE with one toolchain in one folder, with a temporary folder of its own."""

    def __init__(self, toolchain: Toolchain, plugin: Path, folder: Path) -> None:
        self.toolchain, self.plugin, self.folder = toolchain, plugin, folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        (folder / "source.cpp").write_text(SOURCE)

    def run(self, *words: str | Path, **settings: str) -> process.Completed:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
        environment |= {f"MLGOKIT_{key.upper()}": value for key, value in settings.items()}
        environment["TMPDIR"] = str(self.scratch)
        return process.run([str(word) for word in words], timeout_seconds=60, cwd=self.folder, env=environment)

    def compile(self, name: str, *options: str, level: str = "-O2", **settings: str) -> bytes:
        words = [f"-fpass-plugin={self.plugin}"] if settings else []
        done = self.run(
            self.toolchain.clangxx, level, *words, *options, "-c", "source.cpp", "-o", f"{name}.o", **settings
        )
        assert done.returncode == 0, done.stderr
        return (self.folder / f"{name}.o").read_bytes()

    def log(self, name: str) -> Log:
        return read_log(self.folder / name)


@pytest.fixture
def bench(toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Bench:
    return Bench(toolchain, plugin, tmp_path)


def legal(log: Log, decision: str) -> bool:
    """Whether every decision is a column that LLVM's mask allows."""
    mask = log.columns["mask"].reshape(log.observation_count, -1)
    return bool(mask[np.arange(log.observation_count), log.columns[decision][:, 0]].all())


def test_the_default_rules_give_the_plain_object(bench: Bench) -> None:
    plain = bench.compile("plain")

    assert bench.compile("eviction", eviction_policy=":default") == plain
    assert bench.compile("logged", eviction_policy=":default", eviction_log="eviction.log") == plain
    assert bench.compile("priority", priority_policy=":default", priority_log="priority.log") == plain
    assert (
        bench.compile(
            "all", level="-Oz", policy=":default", log="inline.log", eviction_policy=":default",
            eviction_log="e.log", priority_policy=":default", priority_log="p.log",
        )
        == bench.compile("small", level="-Oz")
    )  # fmt: skip

    eviction, priority = bench.log("eviction.log"), bench.log("priority.log")
    assert eviction.observation_count > 20
    assert legal(eviction, "index_to_evict")
    np.testing.assert_array_equal(eviction.columns["index_to_evict"], eviction.columns["index_to_evict_default"])
    assert {span.name for span in eviction.contexts} <= {"mix", "hash", "poly"}
    assert {span.name for span in priority.contexts} == {"mix", "hash", "poly"}
    assert priority.observation_count > eviction.observation_count
    exact = priority.columns["priority_default"]
    assert 0 <= exact.min() <= 2**31 <= exact.max() < 2**32
    assert list(priority.columns) == ["li_size", "stage", "weight", "priority_default", "priority", "log_probability"]
    assert bench.log("inline.log").observation_count > 0
    assert not list(bench.scratch.iterdir())


@pytest.mark.parametrize("rule", [":random", ":first"])
def test_other_rules_decide_legally_and_change_the_object(bench: Bench, rule: str) -> None:
    changed = bench.compile("changed", eviction_policy=rule, eviction_log="log", seed="3")

    log = bench.log("log")
    assert changed != bench.compile("plain")
    assert legal(log, "index_to_evict")
    assert np.all(np.isfinite(log.columns["log_probability"]))
    assert bench.compile("again", eviction_policy=rule, seed="3") == changed
    assert not list(bench.scratch.iterdir())

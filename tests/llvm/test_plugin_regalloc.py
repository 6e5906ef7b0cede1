"""The plugin in real register allocators: plain objects when it echoes, legal decisions, logs, clear failures."""

import dataclasses
import itertools
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.plugin.tool import write_priced
from tests.llvm.pressure import PRESSURE

from mlgokit.compiler import process
from mlgokit.compiler.regalloc_cost import read_regalloc_costs, record_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.testing import toy_layers
from mlgokit.traces import Log, read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

LEAF = """
static int square(int x) { return x * x; }
int poly(const int *p, int n) { int s = 0; for (int i = 0; i < n; ++i) s += square(p[i]) - square(i); return s; }
"""
SOURCE = f'extern "C" {{{PRESSURE}{LEAF}}}'


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

    def refused(self, **settings: str) -> str:
        """Compile in vain, and give what the compiler says."""
        words = (self.toolchain.clangxx, "-O2", f"-fpass-plugin={self.plugin}", "-c", "source.cpp", "-o", "no.o")
        done = self.run(*words, **settings)
        assert done.returncode == 1, done.stderr
        assert not (self.folder / "no.o").exists()
        return done.stderr


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
    # As in LLVM's own logs, a function has a context if nothing is asked about it.
    assert [span.name for span in eviction.contexts] == [span.name for span in priority.contexts]
    asked = {span.name: span.stop > span.start for span in eviction.contexts}
    assert asked.keys() == {"mix", "hash", "poly"}
    assert (asked["hash"], asked["poly"]) == (True, False)
    assert priority.observation_count > eviction.observation_count
    exact = priority.columns["priority_default"]
    assert 0 <= exact.min() <= 2**31 <= exact.max() < 2**32
    first, last = list(priority.columns)[:4], list(priority.columns)[-3:]
    assert first == ["li_size", "stage", "weight", "heuristic_priority"]
    assert last == ["priority_default", "priority", "log_probability"]
    assert bench.log("inline.log").observation_count > 0
    assert not list(bench.scratch.iterdir())


def test_the_last_observation_of_a_function_has_llvms_score(bench: Bench) -> None:
    def score(rule: str) -> tuple[float, float]:
        """LLVM's score of the function, and what of it the allocator added, by LLVM's weights."""
        record = record_options(bench.folder / "costs.yaml")
        bench.compile(
            "made", *itertools.chain(*(("-Xclang", word) for word in record)),
            eviction_policy=rule, eviction_log="e.log", priority_policy=":default", priority_log="p.log",
        )  # fmt: skip
        found: list[float] = []
        for name in ("e.log", "p.log"):
            log = bench.log(name)
            assert log.scores is not None
            (span,) = (span for span in log.contexts if span.name == "hash")
            assert span.stop - span.start > 20
            assert not log.scores[span.start : span.stop - 1].any()
            found.append(float(log.scores[span.stop - 1, 0]))
        assert found[0] == found[1]
        return found[0], float(read_regalloc_costs(bench.folder / "costs.yaml").score_of(["hash"])[0])

    both = [score(rule) for rule in (":default", ":first")]
    assert abs(both[0][1] - both[1][1]) > 100
    # The rest is what the source has, which no decision changes, up to a few copies in its entry.
    rest = [llvms - added for llvms, added in both]
    assert rest[0] == pytest.approx(rest[1], abs=0.5)
    assert rest[0] > 10


@pytest.mark.parametrize("rule", [":random", ":first"])
def test_other_rules_decide_legally_and_change_the_object(bench: Bench, rule: str) -> None:
    changed = bench.compile("changed", eviction_policy=rule, eviction_log="log", seed="3")

    log = bench.log("log")
    assert changed != bench.compile("plain")
    assert legal(log, "index_to_evict")
    assert np.all(np.isfinite(log.columns["log_probability"]))
    assert bench.compile("again", eviction_policy=rule, seed="3") == changed
    assert not list(bench.scratch.iterdir())


SHORT = {"regalloc-eviction": "eviction", "regalloc-priority": "priority"}


def some_policy(problem: Problem, log: Log) -> Policy:
    """A random policy over all of LLVM's features, normalised to what the log shows."""
    rng = np.random.default_rng(4)
    columns = [log.columns[name].reshape(log.observation_count, -1) for name in problem.feature_names]
    width = max(column.shape[1] for column in columns)
    values = np.stack([np.broadcast_to(column, (len(column), width)).ravel() for column in columns], axis=1)
    normaliser = fit_signed_log(values)
    layers = toy_layers(rng, (normaliser.width, 12, 1))
    output = OutputKind.COLUMN_LOGIT if problem is REGALLOC_EVICTION else OutputKind.PRIORITY
    return Policy(
        problem=problem.name, features=problem.feature_names, normaliser=normaliser, layers=layers, output=output,
        caution=0.4 if problem is REGALLOC_EVICTION else 0.0, mask=problem.mask or "",
    )  # fmt: skip


def logs_of_the_heuristic(bench: Bench) -> dict[str, Log]:
    rules = {f"{short}_policy": ":default" for short in SHORT.values()}
    bench.compile("default", **rules, eviction_log="e.log", priority_log="p.log")
    return {"regalloc-eviction": bench.log("e.log"), "regalloc-priority": bench.log("p.log")}


def test_an_exported_plugin_carries_several_policies(bench: Bench) -> None:
    logs = logs_of_the_heuristic(bench)
    for problem in (REGALLOC_EVICTION, REGALLOC_PRIORITY):
        save_policy(some_policy(problem, logs[problem.name]), bench.folder / f"{problem.name}.policy")
    files = [bench.folder / f"{name}.policy" for name in SHORT]
    flag = export_plugin(bench.toolchain, files, bench.folder / "both.so").flag

    done = bench.run(bench.toolchain.clangxx, "-O2", flag, "-c", "source.cpp", "-o", "exported.o")

    assert done.returncode == 0, done.stderr
    exported = (bench.folder / "exported.o").read_bytes()
    named = {f"{short}_policy": f"{name}.policy" for name, short in SHORT.items()}
    assert exported == bench.compile("named", **named)
    assert exported != bench.compile("plain")


def test_a_network_that_overflows_is_harmless(bench: Bench) -> None:
    for name, log in logs_of_the_heuristic(bench).items():
        policy = some_policy(PROBLEMS[name], log)
        huge = tuple(Layer(np.copysign(np.float32(3e38), layer.weight), layer.bias) for layer in policy.layers)
        save_policy(dataclasses.replace(policy, layers=huge, caution=0.0), bench.folder / "wild.policy")
        bench.compile("wild", **{f"{SHORT[name]}_policy": "wild.policy", f"{SHORT[name]}_log": f"{name}.log"})
    assert legal(bench.log("regalloc-eviction.log"), "index_to_evict")
    priorities = bench.log("regalloc-priority.log").columns["priority"]
    assert np.all((priorities >= 0) & (priorities < 2**31))


def test_misuse_is_said_in_one_sentence(bench: Bench) -> None:
    save_policy(some_policy(REGALLOC_PRIORITY, logs_of_the_heuristic(bench)["regalloc-priority"]), bench.folder / "p")

    assert (
        "error: mlgokit: policy p: expected the problem regalloc-eviction, found 'regalloc-priority'"
        in bench.refused(eviction_policy="p")
    )
    assert (
        "error: mlgokit: this plugin has no policy inside; name one with MLGOKIT_PRIORITY_POLICY or "
        "-mlgokit-priority-policy" in bench.refused(priority_log="log")
    )


def test_without_a_policy_for_it_an_advisor_is_llvms(bench: Bench) -> None:
    assert bench.compile("other", level="-Oz", priority_policy=":default", log="log") == bench.compile(
        "plain", level="-Oz"
    )
    assert not (bench.folder / "log").exists()


def test_the_plugin_decides_in_llc(bench: Bench, llc: Path) -> None:
    bench.compile("module", "-emit-llvm")
    loads = ["-load", "--load-pass-plugin"] if bench.toolchain.major >= 22 else ["-load"]

    def compiled(*words: str) -> bytes:
        done = bench.run(llc, "-O2", "-filetype=obj", *words, "module.o", "-o", "llc.o")
        assert done.returncode == 0, done.stderr
        return (bench.folder / "llc.o").read_bytes()

    plain = compiled()
    for load in loads:
        rules = [f"-mlgokit-{short}-policy=:default" for short in SHORT.values()]
        assert compiled(f"{load}={bench.plugin}", *rules, "-mlgokit-eviction-log=llc.log") == plain
        assert bench.log("llc.log").observation_count > 0
        assert compiled(f"{load}={bench.plugin}", "-mlgokit-eviction-policy=:random") != plain


@pytest.mark.parametrize("kind", ["full", "thin"])
def test_link_time_optimization(bench: Bench, kind: str) -> None:
    objects: list[str] = []
    for index in range(4):
        text = (
            SOURCE.replace("hash(", f"hash{index}(").replace("mix(", f"mix{index}(").replace("poly(", f"poly{index}(")
        )
        (bench.folder / "source.cpp").write_text(text)
        bench.compile(f"part{index}", f"-flto={kind}")
        objects.append(f"part{index}.o")

    def link(output: str, *words: str, **settings: str) -> bytes:
        assert bench.toolchain.lld is not None
        jobs = ["--thinlto-jobs=4"] if kind == "thin" else []
        done = bench.run(bench.toolchain.lld, "-shared", *jobs, *words, *objects, "-o", output, **settings)
        assert done.returncode == 0, done.stderr
        return (bench.folder / output).read_bytes()

    load = f"--load-pass-plugin={bench.plugin}"
    plain = link("plain.so")
    rules = {f"{short}_policy": ":default" for short in SHORT.values()}
    assert link("default.so", load, **rules, eviction_log="lto.log") == plain
    names = {path.name for path in bench.folder.glob("lto.log*")}
    assert names == {"lto.log", *(f"lto.log.{n}" for n in range(1, 4) if kind == "thin")}
    functions = {span.name for name in names for span in bench.log(name).contexts}
    assert {f"hash{index}" for index in range(4)} <= functions
    changed = link("random.so", load, eviction_policy=":random", priority_policy=":random", seed="5")
    assert changed != plain
    assert link("again.so", load, eviction_policy=":random", priority_policy=":random", seed="5") == changed
    assert not list(bench.scratch.iterdir())


def test_nothing_stays_in_the_temporary_folder_after_kills(bench: Bench) -> None:
    stale = bench.scratch / "mlgokit-channel-999999999-abcdef"
    stale.mkdir()
    (stale / "channel.in").symlink_to("/dev/null")
    os.utime(stale, (0, 0))
    environment = {**os.environ, "MLGOKIT_EVICTION_POLICY": ":random", "TMPDIR": str(bench.scratch)}
    environment |= {"MLGOKIT_EVICTION_LOG": "log"}
    words = ["-O2", f"-fpass-plugin={bench.plugin}", "-x", "ir", "module.o", "-S", "-o", "-"]
    bench.compile("module", "-emit-llvm")
    for _ in range(3):
        argv = [str(bench.toolchain.clangxx), *words]
        with subprocess.Popen(argv, cwd=bench.folder, env=environment, stdout=subprocess.PIPE) as compiler:
            assert compiler.stdout is not None
            compiler.stdout.read(1)
            compiler.kill()
    assert not list(bench.scratch.glob("mlgokit-*"))


def test_the_inliner_is_left_alone_by_opt_with_another_policy(bench: Bench, opt: Path, size_level: str) -> None:
    bench.compile("module", "-emit-llvm", "-Xclang", "-disable-llvm-passes", level="-Oz")
    load, passes = f"-load-pass-plugin={bench.plugin}", f"-passes=default<{size_level}>"
    for words, settings in (([], {}), ([load], {"eviction_policy": ":random"}), ([load], {"policy": ":default"})):
        done = bench.run(opt, *words, passes, "-S", "module.o", "-o", "-", **settings)
        assert done.returncode == 0, done.stderr
        (bench.folder / f"text{len(words)}{''.join(settings)}").write_bytes(done.stdout)
    texts = {path.read_bytes() for path in bench.folder.glob("text*")}
    assert len(texts) == 1


def test_threads_of_a_link_do_not_meet_in_what_callee_saved_registers_cost(bench: Bench) -> None:
    seldom = """
    __attribute__((LEVEL)) long seldom_PART_NUMBER(long a, long b, long c) {
      if (__builtin_expect(a == NUMBER, 0)) b += sink(c, a);
      return a + b * c;
    }
    """
    objects: list[str] = []
    for part in range(8):
        functions = [
            seldom.replace("LEVEL", level).replace("PART", str(part)).replace("NUMBER", str(number))
            for number, level in enumerate(("noinline", "minsize") * 20)
        ]
        text = "".join(functions)
        (bench.folder / "source.cpp").write_text(f'extern "C" {{ long sink(long, long); {text} }}')
        bench.compile(f"part{part}", "-flto=thin")
        objects.append(f"part{part}.o")

    def link(*words: str, **settings: str) -> bytes:
        assert bench.toolchain.lld is not None
        done = bench.run(bench.toolchain.lld, "-shared", *words, *objects, "-o", "linked.so", **settings)
        assert done.returncode == 0, done.stderr
        return (bench.folder / "linked.so").read_bytes()

    write_priced(str(bench.folder / "all.policy"), "16384")
    write_priced(str(bench.folder / "gated.policy"), "16384", "gated")

    load = f"--load-pass-plugin={bench.plugin}"
    plain, option = link(), link("--mllvm=-regalloc-csr-first-time-cost=16384")
    found = {link(load, f"--thinlto-jobs={jobs}", weight_policy="all.policy") for jobs in (1, 4)}
    gated = {link(load, f"--thinlto-jobs={jobs}", weight_policy="gated.policy") for jobs in (1, 4, 4, 4)}
    assert found == {option}
    assert len(gated | {plain, option}) == 3

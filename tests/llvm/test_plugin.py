"""The plugin in a real clang: same objects when it echoes, the same policy here and there, and clear failures."""

import dataclasses
import itertools
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.llvm.bitcode import put_bitcode

from mlgokit.advisors import Advisor, Constant, Observation
from mlgokit.commands.export import Export, run as export
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, clang_words, drive
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.exploration import Exploration, decide_binary, exploration_draws
from mlgokit.policy.network import Gate, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import policy_bytes, save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.testing import toy_layers
from mlgokit.traces.log import Log, read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SOURCE = """
#include <algorithm>
#include <map>
#include <string>
#include <vector>
static int square(int x) { return x * x; }
static int sum(const std::vector<int>& v) { int s = 0; for (int x : v) s += square(x); return s; }
std::map<std::string, std::vector<int>> table;
int add(const std::string& name, int x) {
  table[name].push_back(x);
  std::sort(table[name].begin(), table[name].end());
  return sum(table[name]) + square(x);
}
std::string list(int n) { std::string r; for (int i = 0; i < n; ++i) r += std::to_string(square(i)) + ","; return r; }
struct Shape { virtual ~Shape() {} virtual int area(int) = 0; };
struct Many : Shape {
  std::vector<Shape*> parts;
  int area(int k) override { int s = 0; for (Shape* p : parts) s += p->area(k); return s + add(list(k), k); }
};
Shape* make() { return new Many; }
"""
# A callee that is called once, and dies with a call of its caller in it.
CYCLE = """
extern "C" int get(int);
extern "C" void put(int);
static int choose(int x) {
  switch (x) {
  case 1: return get(4); case 2: return get(9); case 7: return get(2) + 1; case 8: return 3; case 9: put(1); }
  return get(x) + get(x + 1);
}
static int inner(int n);
static int outer(int n) { put(n); return n > 5 ? inner(n) + get(n) : get(2); }
static int inner(int n) { put(n + 1); return n & 1 ? outer(n - 1) : choose(n); }
int cycle(int x) { return outer(x) + outer(x + 2) + choose(x); }
"""
# Of all majors the same headers: some compilers take libc++ where nothing is said.
OPTIONS = ("-stdlib=libstdc++", "-Oz", "-ffunction-sections", "-fdata-sections")
INLINING = (OutputKind.EFFECT_BYTES, OutputKind.LOGITS)


class Bench:
    """Compiles SOURCE, or what the front end made of it, with one toolchain in one folder."""

    def __init__(self, toolchain: Toolchain, plugin: Path, folder: Path, bitcode: Path) -> None:
        self.toolchain, self.plugin, self.folder, self.bitcode = toolchain, plugin, folder, bitcode

    def compile(self, name: str = "out", *options: str, use_plugin: bool = True, **settings: str) -> process.Completed:
        """The bitcode, which takes a third of the time."""
        return self.compile_file(self.bitcode, name, *options, use_plugin=use_plugin, **settings)

    def compile_source(self, name: str, *options: str, use_plugin: bool = True, **settings: str) -> process.Completed:
        (self.folder / "source.cpp").write_text(SOURCE)
        return self.compile_file(self.folder / "source.cpp", name, *options, use_plugin=use_plugin, **settings)

    def compile_file(
        self, path: Path, name: str, *options: str, use_plugin: bool, **settings: str
    ) -> process.Completed:
        environment = {**os.environ, **{f"MLGOKIT_{key.upper()}": value for key, value in settings.items()}}
        words = [f"-fpass-plugin={self.plugin}"] if use_plugin else []
        return process.run(
            [self.toolchain.clangxx, *OPTIONS, *words, *options, "-c", path, "-o", f"{name}.o"],
            timeout_seconds=60,
            cwd=self.folder,
            env=environment,
        )

    def object(self, name: str = "out") -> bytes:
        return (self.folder / f"{name}.o").read_bytes()

    def log(self, name: str = "log") -> Log:
        return read_log(self.folder / name)

    def same_over_pipes(self, log: Log, advisor: Advisor) -> Log:
        """What LLVM asks over pipes, which is what the plugin was asked."""
        channel = INLINE_SIZE.channel_for(self.toolchain.major, include_default=False)
        result = drive(
            [str(self.toolchain.clangxx), *OPTIONS, "-c", str(self.bitcode), "-o", "pipes.o"],
            channel_options=clang_words(channel.options),
            overwritten=channel.overwritten,
            advisor=advisor,
            timeout_seconds=60,
            answer_timeout_seconds=20,
            cwd=self.folder,
        )
        assert result.status is InteractiveStatus.OK, result
        assert result.log is not None
        for spec in result.log.header.features:
            np.testing.assert_array_equal(log.columns[spec.name], result.log.columns[spec.name], err_msg=spec.name)
        return result.log


@pytest.fixture(scope="session")
def bitcode(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SOURCE before optimization."""
    folder = tmp_path_factory.mktemp(f"bitcode-{toolchain.major}")
    return put_bitcode(toolchain.clangxx, folder / "source.cpp", SOURCE, *OPTIONS)


@pytest.fixture(scope="session")
def heuristic(toolchain: Toolchain, plugin: Path, bitcode: Path, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """What the plugin logs of SOURCE when it echoes."""
    bench = Bench(toolchain, plugin, tmp_path_factory.mktemp(f"heuristic-{toolchain.major}"), bitcode)
    done = bench.compile(policy=":default", log=str(bench.folder / "log"))
    assert done.returncode == 0, done.stderr
    return bench.log()


@pytest.fixture
def bench(toolchain: Toolchain, plugin: Path, tmp_path: Path, bitcode: Path) -> Bench:
    return Bench(toolchain, plugin, tmp_path, bitcode)


DECISION_COLUMNS = {"caller_id", "callee_id", "site", "decided_by_table", "inlining_decision", "log_probability"}


def llvm_policy(heuristic: Log, *, output: OutputKind, own_features: bool = False) -> Policy:
    """A random policy over LLVM's features (and ours), normalised to what this very module shows."""
    columns = heuristic.columns
    names = [name for name in columns if name not in DECISION_COLUMNS]
    names = names[: names.index("callee_instructions")] if not own_features else names[:-1]
    values = np.stack([columns[name][:, 0] for name in names], axis=1)
    rng = np.random.default_rng(12)
    fit = fit_signed_log if output is OutputKind.EFFECT_BYTES else fit_quantile
    normaliser = fit(values)
    widths = [normaliser.width, 24, 16, 1 if output is OutputKind.EFFECT_BYTES else 2]
    layers = toy_layers(rng, widths, members=3)
    return Policy(
        problem="inline-size", features=tuple(names), normaliser=normaliser, layers=layers, output=output,
        bytes_per_unit=0.2,
    )  # fmt: skip


class PolicyAdvisor:
    """The policy in Python, deciding as the plugin does."""

    def __init__(self, policy: Policy, exploration: Exploration) -> None:
        self.policy, self.exploration = policy, exploration
        self.asked = itertools.count()

    def advise(self, observation: Observation) -> int:
        row = np.array([[int(observation.values[name][0]) for name in self.policy.features]])
        draws = exploration_draws(self.exploration.seed, next(self.asked))
        return int(decide_binary(float(self.policy.preferences(row)[0]), self.exploration, *draws)[0])


def test_echoing_the_heuristic_gives_the_same_object(bench: Bench) -> None:
    assert bench.compile_source("plain", use_plugin=False).returncode == 0
    assert bench.compile_source("echo", policy=":default").returncode == 0
    assert bench.object("echo") == bench.object("plain")


def test_never_and_always_differ_from_the_heuristic(bench: Bench) -> None:
    texts: list[int] = []
    for rule in (":default", ":never", ":always"):
        assert bench.compile(policy=rule).returncode == 0
        texts.append(measure_object(bench.object()).llvm_size_text)
    assert len(set(texts)) == 3
    assert texts[0] == min(texts)


def test_the_log_has_features_default_decision_and_probability(bench: Bench) -> None:
    settings: dict[str, Any] = {"log": str(bench.folder / "log"), "seed": "3", "flip_probability": "0.25"}
    assert bench.compile(policy=":default", **settings).returncode == 0
    log = bench.log()
    names = [spec.name for spec in log.header.features]
    assert names[:3] == ["sroa_savings", "sroa_losses", "load_elimination"]
    assert names[-3:] == ["inlining_default", "inlining_decision", "log_probability"]
    default, decision = log.columns["inlining_default"][:, 0], log.columns["inlining_decision"][:, 0]
    flipped = default != decision
    assert 0.1 < flipped.mean() < 0.4
    expected = np.where(flipped, np.log(0.25), np.log(0.75)).astype(np.float32)
    np.testing.assert_allclose(log.columns["log_probability"][:, 0], expected, rtol=1e-6)


def test_the_same_seed_gives_the_same_log_and_another_one_does_not(bench: Bench) -> None:
    logs: list[bytes] = []
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        assert (
            bench.compile(policy=":default", log=str(bench.folder / name), seed=seed, flip_probability="0.2").returncode
            == 0
        )
        logs.append((bench.folder / name).read_bytes())
    assert logs[0] == logs[1] != logs[2]


@pytest.mark.parametrize("output", INLINING)
@pytest.mark.parametrize(
    "exploration",
    [
        Exploration(),
        pytest.param(
            Exploration(seed=5, temperature=1.0, flip_probability=0.05), id="drawn", marks=pytest.mark.first_major
        ),
    ],
)
def test_python_over_pipes_and_plugin_decide_alike_observation_by_observation(
    bench: Bench, heuristic: Log, output: OutputKind, exploration: Exploration
) -> None:
    policy = llvm_policy(heuristic, output=output)
    save_policy(policy, bench.folder / "random.policy")
    done = bench.compile(
        "plugin",
        policy=str(bench.folder / "random.policy"),
        log=str(bench.folder / "plugin.log"),
        seed=str(exploration.seed),
        temperature=repr(exploration.temperature),
        flip_probability=repr(exploration.flip_probability),
    )
    assert done.returncode == 0, done.stderr
    plugin_log = bench.log("plugin.log")
    assert plugin_log.observation_count > 100
    over_pipes = bench.same_over_pipes(plugin_log, PolicyAdvisor(policy, exploration))
    decisions = plugin_log.columns["inlining_decision"]
    np.testing.assert_array_equal(decisions, over_pipes.columns["inlining_decision"])
    assert 0 < decisions.mean() < 1
    assert bench.object("plugin") == bench.object("pipes")


def test_features_are_those_over_pipes_where_a_callee_dies_with_a_call_of_its_caller_in_it(
    toolchain: Toolchain, plugin: Path, tmp_path: Path
) -> None:
    (tmp_path / "cycle.cpp").write_text(CYCLE)
    bench = Bench(toolchain, plugin, tmp_path, tmp_path / "cycle.cpp")
    done = bench.compile("plugin", policy=":always", log=str(tmp_path / "plugin.log"))
    assert done.returncode == 0, done.stderr
    bench.same_over_pipes(bench.log("plugin.log"), Constant(1))


def test_preferences_with_our_own_features_are_those_of_numpy(bench: Bench, heuristic: Log) -> None:
    policy = llvm_policy(heuristic, output=OutputKind.EFFECT_BYTES, own_features=True)
    assert "inlining_default" not in policy.features
    save_policy(policy, bench.folder / "own.policy")
    settings: dict[str, Any] = {"policy": str(bench.folder / "own.policy"), "log": str(bench.folder / "own.log")}
    assert bench.compile(**settings, temperature="2", seed="4").returncode == 0
    log = bench.log("own.log")
    values = np.stack([log.columns[name][:, 0] for name in policy.features], axis=1)
    expected = [
        decide_binary(float(preference), Exploration(temperature=2), *exploration_draws(4, index))
        for index, preference in enumerate(policy.preferences(values))
    ]
    assert [bool(x) for x in log.columns["inlining_decision"][:, 0]] == [decision for decision, _ in expected]
    probabilities = np.array([probability for _, probability in expected], np.float32)
    np.testing.assert_array_equal(log.columns["log_probability"][:, 0], probabilities)


@pytest.mark.parametrize(
    "exploration",
    [
        Exploration(),
        pytest.param(
            Exploration(seed=4, temperature=1.5, flip_probability=0.1), id="drawn", marks=pytest.mark.first_major
        ),
    ],
)
@pytest.mark.parametrize(("gated", "doubt"), [(True, 0.0), (True, 0.5), (False, 1.0)])
def test_a_policy_leaves_to_the_heuristic_what_it_is_not_sure_of(
    bench: Bench, heuristic: Log, exploration: Exploration, gated: bool, doubt: float
) -> None:
    policy = llvm_policy(heuristic, output=OutputKind.EFFECT_BYTES, own_features=True)
    gate = Gate(feature="callee_is_discardable", margins=(math.inf, 0.4)) if gated else None
    policy = dataclasses.replace(policy, gate=gate, doubt=doubt)
    save_policy(policy, bench.folder / "gated.policy")
    settings: dict[str, Any] = {
        "policy": str(bench.folder / "gated.policy"), "seed": str(exploration.seed),
        "temperature": repr(exploration.temperature), "flip_probability": repr(exploration.flip_probability),
    }  # fmt: skip
    assert bench.compile("logged", **settings, log=str(bench.folder / "gated.log")).returncode == 0
    columns = bench.log("gated.log").columns
    values = np.stack([columns[name][:, 0] for name in policy.features], axis=1)
    default = columns["inlining_default"][:, 0] != 0
    preferences = policy.preferences(values, default)
    expected = [
        decide_binary(float(preference), exploration, *exploration_draws(exploration.seed, index))[0]
        for index, preference in enumerate(preferences)
    ]
    assert [bool(decision) for decision in columns["inlining_decision"][:, 0]] == expected
    believed = preferences == policy.preferences(values)
    assert 0 < believed.mean() < 1
    assert (expected != default).any()
    # Without a log the heuristic is asked only where the gate is closed, before any feature if nobody explores, and
    # decides the same. Remarks list the features, so that they are computed.
    assert bench.compile("unlogged", **settings).returncode == 0
    assert bench.object("unlogged") == bench.object("logged")
    assert bench.compile("remarked", "-Rpass=inline", **settings).returncode == 0
    assert bench.object("remarked") == bench.object("logged")


def test_an_exported_plugin_needs_nothing_but_its_flag(bench: Bench, heuristic: Log) -> None:
    policy = llvm_policy(heuristic, output=OutputKind.LOGITS)
    save_policy(policy, bench.folder / "p.policy")
    assert bench.compile("named", policy=str(bench.folder / "p.policy")).returncode == 0
    exported = export_plugin(bench.toolchain, [bench.folder / "p.policy"], bench.folder / "policy.so")
    (bench.folder / "p.policy").unlink()
    done = bench.compile("inside", exported.flag, use_plugin=False)
    assert done.returncode == 0, done.stderr
    assert bench.object("inside") == bench.object("named")


def test_a_policy_that_comes_with_the_package_becomes_a_plugin_that_decides(bench: Bench) -> None:
    config = Export(policies=(Path("builtin:size"),), output=bench.folder / "size.so", llvm=bench.toolchain.major)
    done = bench.compile("inside", export(config).flag, use_plugin=False)
    assert done.returncode == 0, done.stderr
    assert bench.compile("named", policy=str(policy_file("builtin:size"))).returncode == 0
    assert bench.object("inside") == bench.object("named")


def test_two_exported_plugins_keep_their_own_policies(bench: Bench, heuristic: Log) -> None:
    flags: list[str] = []
    for kind in INLINING:
        save_policy(llvm_policy(heuristic, output=kind), bench.folder / f"{kind.value}.policy")
        plugin = bench.folder / f"{kind.value}.so"
        flags.append(export_plugin(bench.toolchain, [bench.folder / f"{kind.value}.policy"], plugin).flag)
    for flag in flags:
        assert bench.compile("alone", flag, use_plugin=False).returncode == 0
    assert bench.compile("both", *flags, use_plugin=False).returncode == 0


def test_options_of_the_compiler_work_like_the_environment(bench: Bench) -> None:
    assert bench.compile("environment", policy=":never").returncode == 0
    load = ("-Xclang", "-load", "-Xclang", str(bench.plugin), "-mllvm", "-mlgokit-policy=:never")
    done = bench.compile("options", *load, policy=":always")
    assert done.returncode == 0, done.stderr
    assert bench.object("options") == bench.object("environment")


@pytest.mark.parametrize("level", ["-Oz", "-O2"])
@pytest.mark.parametrize("name", ["inliner-ml-advisor-release", "inliner-wrapper"])
def test_an_inliner_that_is_named_asks_the_policy_at_any_level(bench: Bench, opt: Path, name: str, level: str) -> None:
    words = ["-Xclang", "-disable-llvm-passes", "-emit-llvm"]
    assert bench.compile_source("named", level, *words, use_plugin=False).returncode == 0
    texts: dict[str, bytes] = {}
    for rule in (":never", ":default", ":always"):
        plugin = [f"-load-pass-plugin={bench.plugin}", f"-mlgokit-policy={rule}", "-mlgokit-log=named.log"]
        call = [opt, *plugin, f"-passes={name}", "-S", bench.folder / "named.o", "-o", "out.ll"]
        done = process.run(call, timeout_seconds=60, cwd=bench.folder)
        assert done.returncode == 0, done.stderr
        assert read_log(bench.folder / "named.log").observation_count > 0
        texts[rule] = (bench.folder / "out.ll").read_bytes()
    assert texts[":never"] != texts[":always"]


def test_an_inliner_that_is_named_says_that_there_is_no_policy(bench: Bench, opt: Path) -> None:
    words = [f"-load-pass-plugin={bench.plugin}", "-passes=inliner-ml-advisor-release", "-disable-output"]
    done = process.run([opt, *words, bench.bitcode], timeout_seconds=60, cwd=bench.folder)
    assert done.returncode != 0
    assert "mlgokit: " in done.stderr


def test_modules_that_are_not_for_size_are_left_to_the_heuristic(bench: Bench) -> None:
    assert bench.compile_source("plain", "-O2", use_plugin=False).returncode == 0
    assert bench.compile_source("never", "-O2", policy=":never").returncode == 0
    assert bench.object("never") == bench.object("plain")
    assert bench.compile_source("any", "-O2", policy=":never", any_level="1").returncode == 0
    assert bench.object("any") != bench.object("plain")


def needs(name: str, times: int = 1) -> Callable[[Policy], Policy]:
    return lambda policy: dataclasses.replace(policy, features=(*(name,) * times, *policy.features[times:]))


def shared_numbers(policy: Policy) -> bytes:
    """Two tensors of one place: so a small file would ask for much memory."""
    data = policy_bytes(policy)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    sizes: list[int] = []
    for name in header.keys() - {"__metadata__"}:
        begin, stop = header[name]["data_offsets"]
        header[name]["data_offsets"] = [0, stop - begin]
        sizes.append(stop - begin)
    return with_header(json.dumps(header).encode(), bytes(max(sizes)))


def with_header(header: bytes, rest: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + rest


NESTS = "[" * 400_000 + "]" * 400_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (needs("\x1b]0;moon\x07\u009b"), r"needs the feature '\\1B\]0;moon\\07\\C2\\9B', which LLVM \d+\.\d+\.\d+ and"),
        (needs("a", 1025), "expected at most 1024 features, found 1025"),
        (shared_numbers, "it shares its numbers with another"),
        (lambda policy: policy_bytes(policy)[: len(policy_bytes(policy)) // 2], "do not fit its shape or the file"),
        (lambda _: SOURCE.encode(), "it is cut short or not a policy"),
        (lambda _: with_header(NESTS.encode()), "the safetensors header is JSON of more than 16 levels"),
        (
            lambda _: with_header(json.dumps({"__metadata__": {"mlgokit.policy": NESTS}}).encode()),
            "its description is JSON of more than 16 levels",
        ),
    ],
)
def test_a_policy_that_cannot_be_used_fails_the_compilation(
    bench: Bench, heuristic: Log, make: Callable[[Policy], Policy | bytes], message: str
) -> None:
    made = make(llvm_policy(heuristic, output=OutputKind.LOGITS))
    path = bench.folder / "bad.policy"
    path.write_bytes(policy_bytes(made) if isinstance(made, Policy) else made)
    done = bench.compile("failed", policy=str(path))
    assert done.returncode == 1
    assert re.search(f"error: mlgokit: policy .*{message}", done.stderr), done.stderr
    assert not (bench.folder / "failed.o").exists()


def test_a_generic_plugin_without_a_policy_fails_the_compilation(bench: Bench) -> None:
    done = bench.compile("failed")
    assert done.returncode == 1
    assert "error: mlgokit: this plugin has no policy inside; name one with MLGOKIT_POLICY" in done.stderr

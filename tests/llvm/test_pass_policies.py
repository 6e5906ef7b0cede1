"""Policies of passes: trials measure what a table then gives, numpy decides as the plugin, and a policy is learned."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from mlgokit.advisors import Observation
from mlgokit.builds.variant import make_variant, policies_by_problem
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import (
    CODE_BYTES,
    OVERRIDE,
    Overrides,
    Stage,
    TrialRequest,
    executed_weights,
    pass_number,
)
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import UsageError
from mlgokit.learning.loop import learn
from mlgokit.learning.pass_trials import ModuleTrials, log_passes, try_optimizer, try_passes
from mlgokit.learning.run_folder import CHECKPOINT_NAME
from mlgokit.learning.settings import Learning
from mlgokit.module import Module
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import policy_bytes, save_policy
from mlgokit.problems import DECIDED_PASSES, GENERATOR_PASSES, INLINE_SIZE, PASS_SELECTION
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import TuningSummary, read_table, write_table
from mlgokit.tables.overrides import (
    EACH_TIME,
    OPTIMIZER_PASSES,
    PASSES,
    group_by_function,
    override_bytes,
    read_overrides,
    write_overrides,
)
from mlgokit.tune.check import check_plugin

pytestmark = pytest.mark.llvm

UNKNOWN = ("pass:machine-sink", "pass:codegenprepare")
"""Features that a policy lacks, so that these passes run."""
PLAIN = {INLINE_SIZE.name: HEURISTIC}
WEIGHTS = executed_weights(CODE_BYTES)
# Constants that hoisting takes out of loops, at the price of registers that calls must keep.
SOURCE = """
extern "C" void show(const char *, int);
extern "C" int get(const char *, long);
#define LOOP(N) \\
  extern "C" int loop##N##_NUMBER(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) \\
    { s += get("key" #N, 1234567##N) * p[i]; show("found" #N "NUMBER", s); } return s; }
LOOP(1) LOOP(2) LOOP(3) LOOP(4) LOOP(5)
extern "C" int state_NUMBER(int x, const int *p, int n) {
  int found = 0;
  for (int i = 0; i < n; i++) {
    if (p[i] == x) { found++; continue; }
    if (p[i] > 1000) { show("large", p[i]); if (p[i] > 5000) return found; }
    switch (p[i] & 7) {
    case 1: show("one", i); break;
    case 2: show("two", 2); break;
    case 5: found += p[i] * 1234567; show("five", found); break;
    default: found ^= 0x12345678;
    }
  }
  return found;
}
extern "C" long apart_NUMBER(long a, long b) { return a > b ? a / 7 : b % 9 ? b * 12345678901 : a + b; }
"""


@pytest.fixture(scope="module")
def modules(corpus_of: Callable[[str, Mapping[str, str]], Path]) -> list[Module]:
    """Six modules of three projects."""
    folder = corpus_of("passes", {f"m{number}": SOURCE.replace("NUMBER", str(number)) for number in range(6)})
    found = load_corpus(folder).modules
    return [dataclasses.replace(module, project=f"p{place % 3}") for place, module in enumerate(found)]


@pytest.fixture
def compiler(toolchain: Toolchain, plugin: Path) -> ClangCompiler:
    return ClangCompiler(toolchain=toolchain, plugin=plugin, workers=2)


def test_a_trial_measures_what_a_table_then_gives(compiler: ClangCompiler, modules: list[Module]):
    plain, asked = log_passes(compiler, modules[0])
    functions = {one.name: one for one in asked}
    assert set(functions) == set(plain.measured.function_names)
    state = functions["state_0"]

    found = try_passes(compiler, modules[0], [state], weights=WEIGHTS)

    mine = state.passes < len(GENERATOR_PASSES)
    state = dataclasses.replace(
        state, values=state.values[mine], passes=state.passes[mine], occurrences=state.occurrences[mine]
    )
    assert found.trials == len(state.passes) + 1
    assert np.array_equal(found.values, state.values)

    def sizes_with(*left_out: tuple[str, int]) -> dict[str, int]:
        overrides = np.array([(pass_number(name), nth, 0) for name, nth in left_out], OVERRIDE)
        table = override_bytes(PASSES, {state.key: Overrides(passes=overrides)})
        other = compiler.compile(modules[0], CompileRequest(use=PluginUse(passes=table))).measured
        return dict(zip(other.function_names, other.function_text.tolist(), strict=True))

    moved = ("no-pushed-constants", 0)
    sizes, pushed = sizes_with(moved), sizes_with()
    assert pushed["state_0"] < sizes["state_0"]
    assert found.size == pytest.approx(np.full(len(state.passes), sizes["state_0"]), abs=0.1)
    assert np.count_nonzero(np.abs(found.change) > 0.5) > 1
    for place, nth, change in zip(state.passes, state.occurrences, found.change, strict=True):
        asked_about = (DECIDED_PASSES[place], int(nth))
        now = sizes_with(moved, asked_about)
        less = pushed["state_0"] if asked_about == moved else sizes["state_0"]
        assert now.pop("state_0") - less == pytest.approx(change, abs=0.1), asked_about
        assert now == {name: size for name, size in sizes.items() if name != "state_0"}


def test_passes_of_the_optimizer_are_tried_in_many_functions_and_told_apart(
    compiler: ClangCompiler, modules: list[Module]
):
    """Each label is what a compilation with that one pass left out of that one function shows."""
    _, asked = log_passes(compiler, modules[0])
    listed = compiler.compile(modules[0], CompileRequest(use=PluginUse(policies=PLAIN, list_changes=True)))
    assert listed.changes is not None
    plain = int(listed.measured.function_bytes.sum())

    found = try_optimizer(compiler, modules[0], asked, objective=Objective.LINK_AWARE, rounds=6, seed=1)

    assert (found.reason, found.compilations) == ("", 7)
    assert len(found.change) == found.trials > 10
    assert np.count_nonzero(found.change) > 3
    rows = {one.values[row].tobytes(): (one.name, place) for one in asked for row, place in enumerate(one.passes)}
    for index in np.flatnonzero(found.change)[:6]:
        name, place = rows[found.values[index].tobytes()]
        assert place >= len(GENERATOR_PASSES)
        left_out = np.array([(pass_number(DECIDED_PASSES[place]), EACH_TIME, 0)], OVERRIDE)
        table = override_bytes(OPTIMIZER_PASSES, {listed.changes.keys[name]: Overrides(passes=left_out)})
        use = PluginUse(policies=PLAIN, optimizer_passes=table)
        measured = compiler.compile(modules[0], CompileRequest(use=use)).measured
        assert int(measured.function_bytes.sum()) - plain == found.change[index]
        assert found.size[index] > 0


def test_where_nothing_can_be_left_out_there_are_no_labels(compiler: ClangCompiler, modules: list[Module]):
    """A module whose functions are all known from another one, or no compilation to try anything in."""
    _, asked = log_passes(compiler, modules[0])
    for functions, rounds in (([], 3), (asked, 0)):
        found = try_optimizer(compiler, modules[0], functions, objective=Objective.LINK_AWARE, rounds=rounds, seed=1)
        assert (found.reason, found.compilations, found.trials) == ("", 1, 0)
        assert found.values.shape == (0, len(PASS_SELECTION.features))
        assert ModuleTrials.from_bytes(found.to_bytes()) is not None


@pytest.mark.every_major
@pytest.mark.parametrize("exploration", [Exploration(), Exploration(seed=7, temperature=0.5, flip_probability=0.1)])
def test_numpy_decides_as_the_plugin(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, exploration: Exploration
):
    _, asked = log_passes(compiler, modules[1])
    values = np.concatenate([one.values for one in asked])
    rng = np.random.default_rng(3)
    features = tuple(name for name in PASS_SELECTION.feature_names if name not in UNKNOWN)
    normaliser = fit_signed_log(values[:, [PASS_SELECTION.feature_names.index(name) for name in features]])
    shapes = ((3, normaliser.width, 8), (3, 8, 1))
    layers = tuple(
        Layer(rng.normal(size=shape).astype(np.float32), rng.normal(size=(3, shape[2])).astype(np.float32))
        for shape in shapes
    )
    policy = Policy(
        problem=PASS_SELECTION.name,
        features=features,
        normaliser=normaliser,
        layers=layers,
        output=OutputKind.EFFECT_BYTES,
        bytes_per_unit=2.0,
        doubt=0.3,
        gate=Gate(feature="is_minsize", margins=(math.inf, 0.1)),
    )
    save_policy(policy, tmp_path / "drawn.policy")
    use = PluginUse(
        policies={PASS_SELECTION.name: str(tmp_path / "drawn.policy")},
        logs=(PASS_SELECTION.name,),
        seed=exploration.seed,
        temperature=exploration.temperature,
        flip_probability=exploration.flip_probability,
    )

    done = compiler.compile(modules[1], CompileRequest(use=use, keep="log"))

    log = done.logs[PASS_SELECTION.name]
    advisor = PolicyAdvisor(policy, exploration)
    decided: list[int] = []
    # A function is a context in the optimizer and again in code generation, with one stream of draws.
    asked_before: Counter[str] = Counter()
    for span in log.contexts:
        for index in range(span.start, span.stop):
            observation = Observation(
                context=span.name,
                index=asked_before[span.name],
                header=log.header,
                values={name: column[index] for name, column in log.columns.items()},
            )
            asked_before[span.name] += 1
            decision, logarithm = advisor.decide(observation)
            decided.append(int(decision))
            assert log.columns["log_probability"][index][0] == pytest.approx(logarithm, abs=1e-6)
    assert decided == log.columns["left_out"].ravel().tolist()
    assert 0 < sum(decided) < len(decided)
    if not exploration.flip_probability and not exploration.temperature:
        unknown = sum(log.columns[name].ravel() for name in UNKNOWN)
        assert not np.any(unknown * log.columns["left_out"].ravel())


def write_empty_table(path: Path, toolchain: Toolchain) -> None:
    """A decision table about no module."""
    objective = Objective.LINK_AWARE.value
    write_table(
        path, [], TuningSummary(llvm=toolchain.major, objective=objective, plain_bytes=1, tuned_bytes=1, modules=())
    )


def test_a_table_about_no_module_leaves_passes_to_the_policy(
    toolchain: Toolchain, modules: list[Module], tmp_path: Path
):
    policies = {problem: Path(file) for problem, file in policies_by_problem(["builtin:Oz"]).items()}
    write_empty_table(tmp_path / "empty.table", toolchain)
    without = {problem: file for problem, file in policies.items() if problem != PASS_SELECTION.name}
    compiler = ClangCompiler(toolchain=toolchain)

    def object_by(name: str, inside: Mapping[str, Path]) -> bytes:
        use = PluginUse(plugin=link_policies(toolchain, inside, tmp_path / f"{name}.so"))
        path = tmp_path / f"{name}.o"
        assert compiler.compile(modules[0], CompileRequest(use=use, keep_object=path)).ok
        return path.read_bytes()

    alone = object_by("alone", policies)
    assert object_by("beside", policies | {"decisions": tmp_path / "empty.table"}) == alone
    assert object_by("without", without) != alone


def test_a_check_measures_what_a_policy_of_passes_gives_beside_a_table_of_them(
    toolchain: Toolchain, compiler: ClangCompiler, modules: list[Module], tmp_path: Path
):
    inside = {problem: Path(file) for problem, file in policies_by_problem(["builtin:Oz"]).items()}
    # What the policy decides in the optimizer changes the keys of code generation.
    by_policy = PluginUse(
        policies={problem: str(path) for problem, path in inside.items()}, trials=TrialRequest(stages=Stage.PASSES)
    )
    listed = compiler.compile(modules[0], CompileRequest(use=by_policy))
    summary = TuningSummary(
        llvm=toolchain.major, objective=Objective.LINK_AWARE.value, plain_bytes=1.0, tuned_bytes=1.0, modules=()
    )
    write_table(tmp_path / "empty.table", [], summary)
    left_out = [(one.key, pass_number("machine-cse"), EACH_TIME) for one in listed.tried]
    write_overrides(PASSES, tmp_path / "passes.table", group_by_function(left_out[:1]))
    inside |= {"decisions": tmp_path / "empty.table", "passes": tmp_path / "passes.table"}
    link_policies(toolchain, inside, tmp_path / "tuned.so")
    tuned = compiler.compile(modules[0], CompileRequest(use=PluginUse(plugin=tmp_path / "tuned.so")))

    checked = check_plugin(
        modules[:1],
        compiler,
        tmp_path / "tuned.so",
        read_table(tmp_path / "empty.table"),
        None,
        passes=read_overrides(PASSES, tmp_path / "passes.table"),
        report=say_nothing,
    )

    names = [modules[0].name]
    account = account_of(names, {modules[0].name: tuned.measured}, objective=Objective.LINK_AWARE)
    assert checked.tuned_bytes == account.image
    assert (checked.passes, checked.passes_kept) == (1, 1)


SETTING = ("rounds=2", "fit.members=6", "fit.epochs=40", "fit.hidden=[16]", "fit.dropout=0.0")


def test_a_policy_is_learned_that_makes_other_modules_smaller(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path
):
    learning, folder = Learning(setting=SETTING), tmp_path / "learned"
    learned = learn(compiler, modules, PASS_SELECTION, "effect-regression", learning, folder=folder)

    assert (learned.taught, learned.left_out) == (6, {})
    # Each to hear what is asked, for trials, plainly once more, and twice without passes of the optimizer.
    assert learned.counters.compilations == 30
    assert learned.counters.best_gain > 0.005
    save_policy(learned.policy, tmp_path / "passes.policy")
    side = make_variant([str(tmp_path / "passes.policy")])
    assert side.record.policies.keys() == {PASS_SELECTION.name}
    resumed = learn(compiler, modules, PASS_SELECTION, "effect-regression", learning, folder=folder)
    (folder / CHECKPOINT_NAME).unlink()
    again = learn(compiler, modules, PASS_SELECTION, "effect-regression", learning, folder=folder)
    assert policy_bytes(resumed.policy) == policy_bytes(again.policy) == policy_bytes(learned.policy)
    for other in (resumed, again):
        assert dataclasses.replace(other.counters, seconds=0, user_seconds=0) == dataclasses.replace(
            learned.counters, seconds=0, user_seconds=0
        )


@pytest.mark.parametrize(
    ("algorithm", "learning", "message"),
    [
        ("ppo", Learning(), "algorithm ppo: expected effect-regression for pass-selection"),
        ("effect-regression", Learning(compilations=5), "--compilations: expected no such option for pass-selection"),
        ("effect-regression", Learning(features="llvm"), "--features: expected all for pass-selection"),
        (
            "effect-regression",
            Learning(setting=('kept=["machinelicm"]',)),
            "--setting kept: expected passes among .*, found machinelicm; correct it",
        ),
    ],
)
def test_what_does_not_apply_is_said_before_the_first_compilation(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, algorithm: str, learning: Learning, message: str
):
    with pytest.raises(UsageError, match=message):
        learn(compiler, modules, PASS_SELECTION, algorithm, learning, folder=tmp_path)

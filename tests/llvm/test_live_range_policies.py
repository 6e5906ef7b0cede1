"""Policies about live ranges: a trial measures what the policy then gives; one is learned, in one run or in parts."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.advisors import Observation
from mlgokit.algorithms.live_range_search import GATES, linear_policy, rewards
from mlgokit.algorithms.registry import TRIALS
from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import train
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import MEASURES
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning import live_range_trials, live_ranges, loop
from mlgokit.learning.live_range_trials import FunctionId, log_live_ranges, try_ranges
from mlgokit.learning.loop import learn
from mlgokit.learning.settings import Learning
from mlgokit.module import Module
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import load_policy, policy_bytes, save_policy
from mlgokit.problems import REGALLOC_PRIORITY, REGALLOC_WEIGHT, Problem

pytestmark = pytest.mark.llvm
CODE = MEASURES.index("code")
both_problems = pytest.mark.parametrize("problem", [REGALLOC_PRIORITY, REGALLOC_WEIGHT], ids=lambda one: one.name)

SOURCE = """
extern "C" long sink(long, long);
extern "C" long hash_NUMBER(const unsigned char *p, int n) {
  long a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11, l = 12, m = 13, o = 14, q = 15;
  for (int r = 0; r < n; ++r) {
    a += p[r] * b; b ^= c + q; c -= d * a; d += e ^ m; e ^= f - o; f += g * 3; g ^= h + a; h += i - b; i ^= j + c;
    j += k ^ d; k -= l + e; l += m ^ f; m ^= o - g; o += q * h; q ^= a + i;
    if (r % 7 == NUMBER % 5) a += sink(q, a * 5);
    if (r % 3 == 1) { b += h * NUMBER; sink(b, c); }
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m ^ o ^ q;
}
extern "C" long walk_NUMBER(long *x, long n) {
  long s[12] = {NUMBER};
  for (long i = 0; i + 12 < n; ++i) {
    long a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3], e = x[i + 4], f = x[i + 5];
    for (int k = 0; k < 12; ++k) { s[k] = s[k] * a + b * c - d * e + f * x[i + k]; x[k] = s[(k + 3) % 12]; }
    if (a > NUMBER) sink(s[i % 12], b);
  }
  long t = 0;
  for (int k = 0; k < 12; ++k) t += s[k] * (k + 1);
  return t;
}
extern "C" long none_NUMBER(void) { return NUMBER; }
"""

SELDOM = """
extern "C" long seldom_NUMBER(long a, long b, long c) {
  if (__builtin_expect(a == NUMBER, 0)) b += sink(c, a);
  return a + b * c;
}
"""
"""Values that live over a call need callee-saved registers, or are spilled where it is cold."""


@pytest.fixture(scope="module")
def corpus(corpus_of: Callable[[str, Mapping[str, str]], Path]) -> Path:
    return corpus_of("priorities", {f"m{number}": SOURCE.replace("NUMBER", str(number + 2)) for number in range(4)})


def of_two_projects(corpus: Path) -> list[Module]:
    found = load_corpus(corpus).modules
    return [dataclasses.replace(module, project=f"p{place % 2}") for place, module in enumerate(found)]


@pytest.fixture(scope="module")
def modules(corpus: Path) -> list[Module]:
    """Four modules of two projects."""
    return of_two_projects(corpus)


@pytest.fixture(scope="module")
def seldom(corpus_of: Callable[[str, Mapping[str, str]], Path]) -> list[Module]:
    """The same with functions in which callee-saved registers may cost too much."""
    sources = {f"m{number}": (SOURCE + SELDOM).replace("NUMBER", str(number + 2)) for number in range(4)}
    return of_two_projects(corpus_of("seldom", sources))


@pytest.fixture
def compiler(toolchain: Toolchain, plugin: Path) -> ClangCompiler:
    return ClangCompiler(toolchain=toolchain, plugin=plugin, workers=2)


def code_of(done: Compilation, function: str) -> int:
    return dict(zip(done.measured.function_names, done.measured.function_text.tolist(), strict=True))[function]


@both_problems
def test_a_trial_measures_what_a_policy_then_gives(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, problem: Problem
):
    plain, questions = log_live_ranges(compiler, modules[0], problem, rows=1000, seed=1)
    assert questions is not None
    assert questions.features[: len(problem.features)] == problem.feature_names
    assert np.all(questions.rows[:, questions.features.index("heuristic_priority")] > 0)
    rng = np.random.default_rng(2)
    drawn = [
        linear_policy(
            problem, questions.features, fit_signed_log(questions.rows), rng.normal(size=len(questions.features))
        )
        for _ in range(3)
    ]

    found = try_ranges(compiler, modules[0], problem, questions.keys, drawn)

    assert found.user_seconds > 0
    assert set(found.measured) == set(questions.keys)
    sizes = np.array([rows[:, CODE] for rows in found.measured.values()])
    assert np.any(sizes[:, 1:] != sizes[:, :1])
    compiled: list[Compilation] = [plain]
    for number, policy in enumerate(drawn):
        path = tmp_path / f"{number}.policy"
        save_policy(policy, path)
        use = PluginUse(policies={problem.name: str(path)})
        compiled.append(compiler.compile(modules[0], CompileRequest(use=use)))
    names = [name for name in ("hash_2", "walk_2") if code_of(plain, name) in sizes[:, 0]]
    assert len(names) == len(sizes) == 2
    wanted = [[code_of(done, name) for done in compiled] for name in names]
    assert sorted(sizes.tolist()) == sorted(wanted)


def test_a_trial_measures_what_a_policy_gives_that_says_what_callee_saved_registers_cost(
    compiler: ClangCompiler, seldom: list[Module], tmp_path: Path
):
    plain, questions = log_live_ranges(compiler, seldom[0], REGALLOC_WEIGHT, rows=1000, seed=1)
    assert questions is not None
    names = questions.features
    weights = 0.2 * np.random.default_rng(2).normal(size=len(names))
    usual = linear_policy(REGALLOC_WEIGHT, names, fit_signed_log(questions.rows), weights)
    policies = [usual, *(dataclasses.replace(usual, csr_first_time_cost=cost) for cost in (3 << 14, 1))]

    found = try_ranges(compiler, seldom[0], REGALLOC_WEIGHT, questions.keys, policies)

    compiled: list[Compilation] = [plain]
    for number, policy in enumerate(policies):
        path = tmp_path / f"{number}.policy"
        save_policy(policy, path)
        use = PluginUse(policies={REGALLOC_WEIGHT.name: str(path)})
        compiled.append(compiler.compile(seldom[0], CompileRequest(use=use)))
    wanted = [[code_of(done, name) for done in compiled] for name in ("hash_2", "walk_2", "seldom_2")]
    assert sorted(rows[:, CODE].tolist() for rows in found.measured.values()) == sorted(wanted)
    assert wanted[2][1] != wanted[2][2]


@pytest.mark.every_major
@both_problems
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_a_gate_leaves_other_levels_to_llvm_and_numpy_decides_alike(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, problem: Problem, is_open: bool
):
    plain, questions = log_live_ranges(compiler, modules[0], problem, rows=1000, seed=1)
    assert questions is not None
    names = [name for name in questions.features if name != "is_minsize"]
    normaliser = fit_signed_log(questions.rows[:, [questions.features.index(name) for name in names]])
    weights = np.random.default_rng(4).normal(size=len(names))
    # The modules are compiled for size.
    policy = linear_policy(problem, names, normaliser, weights, gate=GATES["bytes" if is_open else "spill-cost"])
    path = tmp_path / "gated.policy"
    save_policy(policy, path)
    assert policy_bytes(load_policy(path)) == policy_bytes(policy)
    use = PluginUse(policies={problem.name: str(path)}, logs=(problem.name,))

    done = compiler.compile(modules[0], CompileRequest(use=use, keep="log"))

    assert (done.measured.function_text.tolist() == plain.measured.function_text.tolist()) is not is_open
    log = done.logs[problem.name]
    advisor = PolicyAdvisor(load_policy(path))
    decided: list[float] = []
    for span in log.contexts:
        for index, row in enumerate(range(span.start, span.stop)):
            values = {name: column[row] for name, column in log.columns.items()}
            observation = Observation(header=log.header, values=values, context=span.name, index=index)
            decided.append(float(advisor.advise(observation)))
    assert decided == log.columns[problem.decision].ravel().tolist()
    defaults = np.minimum(log.columns[problem.default_decision].ravel(), 4294967040).astype(np.float32)
    assert np.array_equal(log.columns[problem.decision].ravel(), defaults) is not is_open


SETTING = ("functions=6", "share=1.0", "population=6", "judges=0")


@pytest.mark.parametrize(
    "problem",
    [pytest.param(REGALLOC_PRIORITY, marks=pytest.mark.slow), REGALLOC_WEIGHT],
    ids=lambda problem: problem.name,
)
def test_a_policy_is_learned_and_a_run_that_was_stopped_goes_on(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Problem
):
    setting = (*SETTING, "generations=3", "renewed=1", "score=bytes")
    learning = Learning(preset=TRIALS, setting=setting, validation_share=0.5)
    resume = functools.partial(learn, compiler, modules, problem, "es", learning)
    learned = resume(folder=tmp_path / "whole")

    assert (learned.counters.turn, len(learned.rows), learned.judged, learned.left_out) == (3, 3, 0, {})
    assert learned.counters.user_seconds > 0
    assert learned.rows[-1]["reward_most"] > 0
    weights = learned.policy.layers[0].weight
    assert weights.shape == (1, len(learned.policy.features), 1)
    assert learned.policy.gate == GATES["bytes"]

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_metrics", stopped)
        with pytest.raises(KeyboardInterrupt):
            resume(folder=tmp_path / "parts")
    with monkeypatch.context() as patch:
        # Functions that were found before the first generation are not looked for again.
        patch.setattr(live_range_trials, "changed_functions", stopped)
        early = resume(folder=tmp_path / "parts", deadline=0.0)
    assert early.counters.turn == 1
    again = resume(folder=tmp_path / "parts")
    assert again.counters.turn == 3
    assert again.policy.layers[0].weight.tobytes() == weights.tobytes()


@pytest.mark.parametrize(("gained", "cost"), [((1.0, 3.0, 2.0), 1), ((2.0, 1.0, 2.0), 0), ((1.0, 2.0, 3.0), 3 << 14)])
def test_what_callee_saved_registers_are_best_said_to_cost_is_in_the_policy(
    compiler: ClangCompiler,
    seldom: list[Module],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gained: tuple[float, ...],
    cost: int,
):
    measured: list[np.ndarray] = []

    def judged(found: np.ndarray, *rest: Any) -> np.ndarray:
        if found.shape[1] != 4:
            return rewards(found, *rest)
        measured.append(found)
        return np.array(gained)

    monkeypatch.setattr(live_ranges, "rewards", judged)
    setting = (*SETTING, "generations=1", "score=bytes", f"csr_first_time_costs=[1, {3 << 14}]")
    learning = Learning(preset=TRIALS, setting=setting, validation_share=0.5)
    learned = learn(compiler, seldom, REGALLOC_WEIGHT, "es", learning, folder=tmp_path)

    assert learned.policy.csr_first_time_cost == learned.rows[-1]["learner/csr_first_time_cost"] == cost
    (found,) = measured
    # LLVM's own, and the policy at three costs.
    assert np.isfinite(found).all()
    assert not np.array_equal(found[:, 1], found[:, 3])


def test_functions_that_only_the_search_changes_begin_to_teach(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    find = live_range_trials.changed_functions

    def first(*given: Any, **words: Any) -> tuple[frozenset[FunctionId], float]:
        found, seconds = find(*given, **words)
        return frozenset([min(found)]), seconds

    monkeypatch.setattr(live_range_trials, "changed_functions", first)

    def joined(renewed: int) -> list[tuple[float, float]]:
        setting = (*SETTING, "generations=3", f"renewed={renewed}", "functions=100", "score=bytes")
        learning = Learning(preset=TRIALS, setting=setting, validation_share=None)
        learned = learn(compiler, modules, REGALLOC_WEIGHT, "es", learning, folder=tmp_path / str(renewed))
        return [(row["learner/functions"], row["learner/joined"]) for row in learned.rows]

    assert joined(0) == [(1, 0)] * 3
    first_turn, second_turn, third_turn = joined(2)
    assert first_turn == (1, 0)
    assert second_turn[1] > 0
    assert third_turn == (1 + second_turn[1], second_turn[1])


def test_what_does_not_pay_elsewhere_is_refused(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # A search that is rewarded for making functions larger.
    monkeypatch.setattr(live_ranges, "rewards", lambda *given: -rewards(*given))
    learning = Learning(
        preset=TRIALS, setting=("functions=6", "share=1.0", "population=6", "generations=3"), validation_share=0.5
    )
    with pytest.raises(
        UsageError, match=r"regalloc-priority: expected a policy that improves on LLVM .* found \+\d.* % on 2 modules;"
    ):
        learn(compiler, modules, REGALLOC_PRIORITY, "es", learning, folder=tmp_path)
    assert load_policy(tmp_path / "refused.policy", problem=REGALLOC_PRIORITY.name).layers


@pytest.mark.parametrize(
    ("algorithm", "learning", "message"),
    [
        ("ppo", Learning(preset=TRIALS), "algorithm ppo: expected es for regalloc-priority"),
        (
            "es",
            Learning(preset=TRIALS, setting=("generations=0",)),
            "--setting generations=0: expected a number above 0, found 0",
        ),
        (
            "es",
            Learning(preset=TRIALS, compilations=5),
            "--compilations: expected no such option for regalloc-priority",
        ),
        (
            "es",
            Learning(preset=TRIALS, normaliser="quantile"),
            "--normaliser: expected no such option for regalloc-priority",
        ),
        (
            "es",
            Learning(preset=TRIALS, setting=("csr_first_time_costs=[16384]",)),
            "--setting csr_first_time_costs: expected no costs for regalloc-priority",
        ),
    ],
)
def test_what_does_not_apply_is_said_before_the_first_compilation(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path, algorithm: str, learning: Learning, message: str
):
    with pytest.raises(UsageError, match=message):
        learn(compiler, modules, REGALLOC_PRIORITY, algorithm, learning, folder=tmp_path)


def test_a_cost_that_llvm_does_not_take_is_said_before_the_first_compilation(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path
):
    learning = Learning(preset=TRIALS, setting=(f"csr_first_time_costs=[16384, {2**32}]",))
    with pytest.raises(UsageError, match="csr_first_time_costs: expected whole numbers up to 4294967295"):
        learn(compiler, modules, REGALLOC_WEIGHT, "es", learning, folder=tmp_path)


def test_a_corpus_at_another_level_than_the_score_is_for_is_refused(
    compiler: ClangCompiler, modules: list[Module], tmp_path: Path
):
    learning = Learning(preset=TRIALS, setting=(*SETTING, "generations=1", "score=executed"))
    with pytest.raises(CorpusError, match="expected functions whose score a policy about live ranges changes"):
        learn(compiler, modules, REGALLOC_PRIORITY, "es", learning, folder=tmp_path)


def test_llvms_features_alone_are_enough(compiler: ClangCompiler, modules: list[Module], tmp_path: Path):
    learning = Learning(preset=TRIALS, setting=(*SETTING, "generations=1"), features="llvm", excluded=("stage",))
    learned = learn(compiler, modules, REGALLOC_PRIORITY, "es", learning, folder=tmp_path)
    assert learned.policy.features == ("li_size", "weight")


@both_problems
def test_the_command_learns_from_trials_unless_told_otherwise(
    toolchain: Toolchain, corpus: Path, tmp_path: Path, problem: Problem
):
    done = train.run(
        train.Train(
            corpus=corpus,
            output=tmp_path,
            problem=problem.name,
            compiler=CompilerOptions(llvm=toolchain.major),
            learning=Learning(setting=(*SETTING, "generations=1", "score=bytes")),
        )
    )
    assert load_policy(done.policy, problem=problem.name).members == 1
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert (record["algorithm"], record["settings"]["preset"], record["counters"]["turn"]) == ("es", TRIALS, 1)
    assert (tmp_path / "metrics.html").exists()

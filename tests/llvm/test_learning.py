"""`mlgokit train` with every learner and problem, on five small modules and real compilers."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.learner import ForcedDecisions, state_from_bytes
from mlgokit.algorithms.proposals import propose_following
from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import train
from mlgokit.compiler.caching import CachingCompiler, open_caching
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import ADVISED_MAJOR, Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import PolicyError, UsageError
from mlgokit.learning.baselines import compile_defaults
from mlgokit.learning.experiences import compile_proposals
from mlgokit.learning.run_folder import CHECKPOINT_NAME
from mlgokit.learning.settings import Learning
from mlgokit.learning.task import make_task
from mlgokit.policy.normaliser import Quantile
from mlgokit.policy.store import load_policy
from mlgokit.policy.vocab import write_vocab
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.traces.tfrecord import iter_records

pytestmark = pytest.mark.llvm

ONE_MAJOR = pytest.mark.parametrize("toolchain", [ADVISED_MAJOR], indirect=True)
"""For what does not depend on the major."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compilations that several tests want."""
    return tmp_path_factory.mktemp("store")


QUICK = {
    "bc-max": ("modules=2", "imitation.steps=3"),
    "behavioural-cloning": ("modules=2", "imitation.steps=3"),
    "dqn": ("modules=2", "steps=3"),
    "effect-regression": ("modules=2", "fit.epochs=2", "fit.members=2", "most_decisions=0"),
    "local-search": ("modules=2", "departures=2", "imitation.steps=3"),
    "es": ("perturbations=2", "modules=1"),
    "ppo": ("modules=2", "steps=3"),
}


def trained(
    toolchain: Toolchain, small_corpus: Path, output: Path, problem: str, algorithm: str, store: Path, **learning: Any
) -> train.Trained:
    given: dict[str, Any] = {"iterations": 2, "validation_share": 0.2, "setting": QUICK.get(algorithm, ())} | learning
    return train.run(
        train.Train(
            corpus=small_corpus,
            output=output,
            problem=problem,
            algorithm=algorithm,  # pyright: ignore[reportArgumentType]
            store=store,
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
            learning=Learning(**given),
        )
    )


def check_run(done: train.Trained, output: Path, problem: str) -> None:
    """Two turns on three modules, judged by one, the broken one left out; every file there."""
    assert done.learned.counters.turn == 2
    assert (done.learned.taught, done.learned.judged) == (3, 1)
    assert sum(done.learned.left_out.values()) == 1
    assert done.learned.counters.failed == 0
    assert load_policy(done.policy, problem=problem).output.advice_kind is PROBLEMS[problem].advice_kind
    rows = list(csv.DictReader((output / "metrics.csv").read_text().splitlines()))
    assert [row["turn"] for row in rows] == ["1", "2"]
    assert int(rows[1]["compilations"]) == done.learned.counters.compilations > 0
    assert float(rows[0]["reward_least"]) <= float(rows[0]["reward"]) <= float(rows[0]["reward_most"])
    assert rows[1]["validation_gain"]
    assert json.loads((output / "metrics.json").read_text())["counters"]["turn"] == 2
    (events,) = output.glob("events.out.tfevents*")
    assert len(list(iter_records(events))) == 3


@pytest.mark.parametrize(
    ("problem", "algorithm", "preset"),
    [
        ("inline-size", "ppo", "reference"),
        ("regalloc-eviction", "es", "default"),
        ("regalloc-priority", "es", "cma"),
    ],
)
def test_every_problem_is_learned_from_five_modules(
    toolchain: Toolchain, small_corpus: Path, store: Path, tmp_path: Path, problem: str, algorithm: str, preset: str
):
    done = trained(toolchain, small_corpus, tmp_path, problem, algorithm, store, preset=preset, evaluate_every=1)

    check_run(done, tmp_path, problem)


@ONE_MAJOR
@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [
        ("inline-size", "effect-regression"),
        ("inline-size", "bc-max"),
        ("inline-size", "local-search"),
        ("regalloc-eviction", "dqn"),
        ("regalloc-priority", "behavioural-cloning"),
        ("regalloc-priority", "bc-max"),
    ],
)
def test_every_learner_takes_what_the_compiler_gives(
    toolchain: Toolchain, small_corpus: Path, store: Path, tmp_path: Path, problem: str, algorithm: str
):
    done = trained(toolchain, small_corpus, tmp_path, problem, algorithm, store, evaluate_every=1)

    check_run(done, tmp_path, problem)


TIMES = ("seconds", "seconds_left", "user_seconds", "time")


def what_is_learned(folder: Path) -> tuple[Any, ...]:
    """All that must not depend on where a run was interrupted."""
    state = state_from_bytes((folder / CHECKPOINT_NAME).read_bytes(), learner="es")
    rows = json.loads((folder / "turns.json").read_text())
    return (
        {name: value.tobytes() for name, value in state.items() if name.removeprefix("loop/") not in TIMES},
        [{name: value for name, value in row.items() if name not in TIMES} for row in rows],
        (folder / "final.policy").read_bytes(),
    )


@ONE_MAJOR
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(toolchain: Toolchain, small_corpus: Path, tmp_path: Path):
    case = ("regalloc-priority", "es")
    trained(toolchain, small_corpus, tmp_path / "whole", *case, tmp_path / "store", iterations=3, evaluate_every=2)
    for turns in (1, 2, 3):
        trained(
            toolchain, small_corpus, tmp_path / "parts", *case, tmp_path / "other", iterations=turns, evaluate_every=2
        )

    assert what_is_learned(tmp_path / "parts") == what_is_learned(tmp_path / "whole")


@ONE_MAJOR
def test_a_run_without_progress_stops_early(toolchain: Toolchain, small_corpus: Path, store: Path, tmp_path: Path):
    quick = {"setting": ("modules=2", "imitation.steps=1", "imitation.learning_rate=0.0"), "evaluate_every": 1}
    case = ("regalloc-priority", "behavioural-cloning")
    done = trained(toolchain, small_corpus, tmp_path, *case, store, iterations=50, patience=2, **quick)

    assert done.learned.counters.turn == 3
    assert (done.learned.counters.best_turn, done.learned.counters.stale) == (1, 2)


@ONE_MAJOR
def test_training_goes_on_from_a_policy_and_a_vocabulary(
    toolchain: Toolchain, small_corpus: Path, store: Path, tmp_path: Path
):
    first = trained(
        toolchain, small_corpus, tmp_path / "first", "inline-size", "effect-regression", store, iterations=1
    )
    quiet = ("perturbations=1", "modules=1", "learning_rate=0.0")
    again = trained(
        toolchain, small_corpus, tmp_path / "then", "inline-size", "es", store, iterations=1, start=first.policy,
        setting=quiet,
    )  # fmt: skip

    before, after = load_policy(first.policy), load_policy(again.policy)
    assert after.features == before.features
    assert [layer.weight.shape[1] for layer in after.layers] == [layer.weight.shape[1] for layer in before.layers]
    values = np.random.default_rng(1).integers(0, 50, (20, len(before.features)))
    np.testing.assert_allclose(after.preferences(values), before.preferences(values), atol=1e-4)

    write_vocab({name: np.arange(9.0) for name in before.features[:5]}, tmp_path / "vocab")
    few = trained(
        toolchain, small_corpus, tmp_path / "few", "inline-size", "es", store, iterations=1, vocab=tmp_path / "vocab",
        setting=quiet,
    )  # fmt: skip
    found = load_policy(few.policy)
    assert found.features == before.features[:5]
    assert isinstance(found.normaliser, Quantile)
    assert found.normaliser.boundaries.shape == (5, 9)

    with pytest.raises(PolicyError, match="expected a policy for regalloc-priority, found one for 'inline-size'"):
        trained(toolchain, small_corpus, tmp_path / "other", "regalloc-priority", "es", store, start=first.policy)


def compiler_of(toolchain: Toolchain, store: Path) -> CachingCompiler:
    return open_caching(ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain)), store)


@ONE_MAJOR
def test_decisions_of_single_sites_are_given_to_the_compiler_and_credited(
    toolchain: Toolchain, small_corpus: Path, store: Path
):
    baselines = compile_defaults(compiler_of(toolchain, store), load_corpus(small_corpus).modules, INLINE_SIZE)
    taught = range(len(baselines.modules))
    task = make_task(baselines, taught, Learning(), algorithm="local-search")
    plain = propose_following(":default", np.array([0]))
    (default,) = compile_proposals(baselines, task, taught, [plain]).experiences
    sites, decisions = default.sites[:1], 1 - default.decisions[:1]
    flipped = dataclasses.replace(plain, forced=(ForcedDecisions(sites=sites, decisions=decisions),), base=1)

    (explored, _) = compile_proposals(baselines, task, taught, [flipped, plain]).experiences

    assert explored.component is not None
    assert explored.change is not None
    assert explored.base_decisions is not None
    (place,) = np.flatnonzero(explored.component >= 0)
    assert explored.sites[place] == sites[0]
    assert explored.decisions[place] == decisions[0] != explored.base_decisions[place]
    # The module's score has bytes besides that no function owns.
    assert explored.change[0] == pytest.approx(explored.scores[0] - default.scores[0], abs=8)
    with pytest.raises(
        UsageError,
        match=r"expected a proposal of forced decisions or of random flips, found both \(flip prob.* up to 0\.5\)",
    ):
        compile_proposals(
            baselines, task, taught, [dataclasses.replace(flipped, base=None, flip_probability=np.array([0.5]))]
        )


@ONE_MAJOR
def test_independent_flips_are_drawn_from_the_base_and_each_has_its_component(
    toolchain: Toolchain, small_corpus: Path, store: Path
):
    baselines = compile_defaults(compiler_of(toolchain, store), load_corpus(small_corpus).modules, INLINE_SIZE)
    taught = range(len(baselines.modules))
    task = make_task(baselines, taught, Learning(), algorithm="effect-regression")
    plain = propose_following(":default", np.array([0, 1]))
    drawn = dataclasses.replace(plain, independent=64, base=1, seeds=np.array([5, 6]))

    done = compile_proposals(baselines, task, taught, [drawn, plain])

    assert len(done.experiences) == 4
    assert [(one.proposal, one.module) for one in done.experiences] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for explored in done.experiences[:2]:
        assert explored.component is not None
        assert explored.change is not None
        assert 0 < len(explored.change) <= np.count_nonzero(explored.component >= 0)
    with pytest.raises(UsageError, match="to have a base and no forced decisions"):
        compile_proposals(baselines, task, taught, [dataclasses.replace(drawn, base=None)])


@ONE_MAJOR
def test_local_search_tries_departures_and_keeps_none_that_made_a_module_larger(
    toolchain: Toolchain, small_corpus: Path, store: Path, tmp_path: Path
):
    quick = {"setting": ("modules=4", "departures=2", "imitation.steps=3"), "validation_share": 0.0}
    done = trained(
        toolchain, small_corpus, tmp_path, "inline-size", "local-search", store, iterations=4, evaluate_every=0, **quick
    )

    rows = done.learned.rows
    assert [row["learner/tried"] > 0 for row in rows] == [False, True, True, True]
    assert all(row["reward_most"] >= 0 for row in rows)


@ONE_MAJOR
def test_what_the_loop_does_not_carry_out_is_said(
    toolchain: Toolchain, small_corpus: Path, store: Path, tmp_path: Path
):
    with pytest.raises(
        UsageError,
        match=r"algorithm local-search: expected an algorithm that learns .* advice, which regalloc-eviction needs",
    ):
        trained(toolchain, small_corpus, tmp_path, "regalloc-eviction", "local-search", store)
    with pytest.raises(
        UsageError,
        match=r"expected an algorithm that learns .* advice, which regalloc-eviction needs, .*; use one",
    ):
        trained(toolchain, small_corpus, tmp_path / "other", "regalloc-eviction", "effect-regression", store)

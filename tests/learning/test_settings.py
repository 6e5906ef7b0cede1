from pathlib import Path

import pytest

from mlgokit.algorithms.config import PPO_REFERENCE, BcConfig, Credit, RangeTrialsConfig
from mlgokit.compiler.objects.measure import Objective
from mlgokit.errors import UsageError
from mlgokit.learning.loop import source_of
from mlgokit.learning.settings import Learning, check_learning, check_network, find_replaced_option, settings_of
from mlgokit.problems import PROBLEMS


def test_settings_of_a_preset_are_changed_by_name():
    found = settings_of("ppo", "reference", ["modules=8", "learning_rate=1", "credit=module", "reference_frames=false"])

    assert (found.modules, found.learning_rate, found.credit) == (8, 1.0, Credit.MODULE)
    assert not found.reference_frames
    assert found.steps == PPO_REFERENCE.steps
    assert settings_of("behavioural-cloning", "default", ["imitation.steps=5"]).imitation.steps == 5
    assert settings_of("behavioural-cloning", "default", ["rule=:never"]) == BcConfig(rule=":never")
    whole = settings_of("effect-regression", "default", ["modules=0", "most_decisions=0", "independent=0"])
    assert (whole.modules, whole.most_decisions, whole.independent) == (0, 0, 0)
    assert settings_of("behavioural-cloning", "default", ["imitation.epochs=0"]).imitation.epochs == 0
    assert settings_of("es", "default", ["strategy=forward", "scaled=true"]).strategy == "forward"


@pytest.mark.parametrize(
    ("algorithm", "preset", "change", "message"),
    [
        ("a2c", "default", "", r"algorithm: expected one of .*, found 'a2c'; name one of these"),
        ("ppo", "huge", "", "expected one of the presets default, reference, found 'huge'"),
        ("ppo", "default", "modules", "--setting modules: expected name=value, found no '='"),
        ("ppo", "default", "speed=1", "--setting speed=1: expected one of hidden, .*, found 'speed'"),
        ("ppo", "default", "modules=many", "--setting modules=many: expected a value such as 32, found 'many'"),
        ("ppo", "default", "modules=1.5", "expected a value such as 32, found '1.5'"),
        ("ppo", "default", "credit=all", "expected a value such as component, found 'all'"),
        ("ppo", "default", "modules=0", "--setting modules=0: expected a number above 0, found 0; correct it"),
        ("ppo", "default", "hidden=[40,0]", "expected a number above 0, found 0"),
        ("ppo", "default", 'hidden=["40"]', r"expected a value such as \[40, 40, 20\], found "),
        ("ppo", "default", "hidden=[40.5]", r"expected a value such as \[40, 40, 20\], found "),
        ("ppo", "default", "distillation.scale=-1", "expected a number from 0, found -1"),
        ("ppo", "default", "distillation.half_life=0", "expected a number above 0, found 0"),
        ("ppo", "default", "learning_rate=NaN", "expected a number from 0, found nan"),
        ("ppo", "default", "learning_rate=1e999", "expected a number from 0, found inf"),
        ("dqn", "default", "epsilon=1.5", "expected a number above 0 to 1, found 1.5"),
        ("effect-regression", "default", "fit.epochs=0", "expected a number above 0, found 0"),
        ("effect-regression", "default", "fit.dropout=2", "expected a number from 0 to 1, found 2"),
        ("es", "default", "strategy=cmaes", "expected a value such as antithetic, found 'cmaes'"),
        ("es", "default", "ridge=-1", "expected a number from 0, found -1"),
        (
            "bc-max",
            "default",
            "imitation=1",
            "the name of one setting, as imitation.NAME if imitation has several",
        ),
        (
            "bc-max",
            "default",
            "modules.x=1",
            "as modules.NAME if modules has several, found 'modules.x'",
        ),
    ],
)
def test_what_cannot_be_changed_is_said(algorithm: str, preset: str, change: str, message: str):
    with pytest.raises(UsageError, match=message):
        settings_of(algorithm, preset, [change] if change else [])


@pytest.mark.parametrize("change", ["recurrent=5000", "hidden=[]"])
def test_an_lstm_has_layers_before_it(change: str):
    assert check_network(settings_of("dqn", "default", [])) == 0
    assert check_network(settings_of("dqn", "default", ["recurrent=3"])) == 3
    with pytest.raises(UsageError, match="expected at most 4096 units after at least one hidden layer, found"):
        check_network(settings_of("dqn", "default", ["recurrent=3", change]))


@pytest.mark.parametrize(
    ("problem", "hidden", "rate", "steps", "modules", "entropy", "penalty"),
    [
        ("inline-size", (40, 40, 20), 3e-5, 300, 100, 0.003, 1e-6),
        ("regalloc-eviction", (80, 40), 3e-4, 200, 512, 0.005, 1e-5),
        ("regalloc-priority", (40, 40, 20), 3e-4, 200, 100, 0.005, 1e-5),
    ],
)
def test_the_references_ppo_has_settings_of_its_own_for_each_problem(
    problem: str, hidden: tuple[int, ...], rate: float, steps: int, modules: int, entropy: float, penalty: float
):
    found = settings_of("ppo", "reference", [], problem=problem)

    assert (found.hidden, found.learning_rate, found.steps, found.modules) == (hidden, rate, steps, modules)
    assert (found.entropy, found.weight_penalty, found.batch, found.sequence) == (entropy, penalty, 256, 16)


def test_the_references_other_learners_have_those_of_eviction():
    cloning = settings_of("behavioural-cloning", "reference", [], problem="regalloc-eviction").imitation
    search = settings_of("es", "reference", [], problem="regalloc-eviction")

    assert (cloning.hidden, cloning.batch, cloning.learning_rate, cloning.dropout) == ((80, 40), 64, 1e-3, 0.2)
    assert (search.hidden, search.learning_rate, search.spread, search.perturbations) == ((80, 40), 0.005, 0.5, 100)


@pytest.mark.parametrize(("algorithm", "problem"), [("dqn", "regalloc-eviction"), ("es", "regalloc-priority")])
def test_where_the_reference_has_no_settings_that_is_said(algorithm: str, problem: str):
    with pytest.raises(
        UsageError, match=rf"expected a problem for which google/.*, found {problem}; give --preset default"
    ):
        settings_of(algorithm, "reference", [], problem=problem)


def test_the_preset_of_trials_is_for_what_is_learned_from_trials():
    assert isinstance(settings_of("es", "trials", [], problem="regalloc-priority"), RangeTrialsConfig)
    with pytest.raises(
        UsageError,
        match=r"a problem that it learns from trials of single functions \(regalloc-priority, .*\), found inline-size",
    ):
        settings_of("es", "trials", [], problem="inline-size")
    with pytest.raises(UsageError, match="expected one of the presets default, reference, found 'trials'"):
        settings_of("ppo", "trials", [], problem="regalloc-priority")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Learning(iterations=0), "--iterations: expected at least 1, found 0"),
        (Learning(compilations=-1), "--compilations: expected at least 1, found -1"),
        (Learning(objective=Objective.EXECUTED), "--objective EXECUTED: expected a measure of size"),
        (Learning(evaluate_every=-1), "--evaluate-every: expected 0 or more, found -1"),
        (Learning(validation_share=1.0), "--validation-share: expected a share from 0 to below 1, found 1"),
        (Learning(patience=2, evaluate_every=0), "--patience: expected validations to count"),
    ],
)
def test_numbers_are_checked(config: Learning, message: str):
    with pytest.raises(UsageError, match=message):
        check_learning(config)


@pytest.mark.parametrize(
    ("problem", "algorithm", "config", "message"),
    [
        ("pass-selection", "effect-regression", Learning(iterations=5), "--iterations: expected no such option for "),
        ("pass-selection", "effect-regression", Learning(validation_share=0.5), "--validation-share: expected no "),
        ("pass-selection", "effect-regression", Learning(patience=2), "--patience: expected no such option for "),
        ("regalloc-priority", "es", Learning(preset="trials", iterations=5), "bounded by --setting generations=N"),
        ("regalloc-priority", "es", Learning(preset="trials", evaluate_every=1), "--evaluate-every: expected no such"),
        (
            "regalloc-eviction",
            "ppo",
            Learning(objective=Objective.OBJECT_TEXT),
            "--objective: expected no such option for",
        ),
        ("inline-size", "effect-regression", Learning(normaliser="quantile"), "--normaliser: expected no such option "),
        ("inline-size", "effect-regression", Learning(vocab=Path("v")), "--vocab: expected no such option with effect"),
        ("inline-size", "ppo", Learning(vocab=Path("v"), normaliser="quantile"), "--normaliser: .* with --vocab"),
        ("inline-size", "ppo", Learning(start=Path("p"), vocab=Path("v")), "--vocab: .* with --start, whose policy"),
        ("inline-size", "ppo", Learning(start=Path("p"), excluded=()), "--excluded: .* with --start, whose policy"),
    ],
)
def test_options_without_effect_are_refused(problem: str, algorithm: str, config: Learning, message: str):
    with pytest.raises(UsageError, match=message):
        source_of(PROBLEMS[problem], config.preset).check(PROBLEMS[problem], algorithm, config)


def test_a_run_without_a_budget_has_one():
    ordinary, few = Learning().resolve("ppo"), Learning().resolve("effect-regression")
    assert (ordinary.iterations, ordinary.evaluate_every, ordinary.validation_share) == (20, 5, 0.2)
    assert (few.iterations, few.evaluate_every, few.validation_share) == (3, 1, 0.0)
    assert Learning(preset="small").resolve("effect-regression").iterations == 20
    assert Learning(compilations=100).resolve("ppo").iterations is None
    given = Learning(iterations=2, evaluate_every=0, validation_share=0.5)
    assert given.resolve("effect-regression") == given


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("train --effects.rounds 2", "--iterations"),
        ("train --effects.exploration random", "--preset random"),
        ("train --effects.most-moves=8", "--setting independent=VALUE"),
        ("train --effects.objective OBJECT_TEXT", "--objective"),
        ("train --cloning.seed 2", "--seed"),
        ("train --cloning.learning-rate 1", "--setting imitation.learning_rate=VALUE"),
        ("quickstart --training.rounds 1", "--training.iterations"),
        ("quickstart --training.slowest-seconds=60", "--training.setting most_decisions=VALUE"),
    ],
)
def test_an_option_of_older_versions_names_its_successor(words: str, instead: str):
    assert (find_replaced_option(words.split()) or "").endswith(f"found an older one; give {instead}")

"""Evolution strategies: gradients, optimisers, trust region, with the numbers that google/ml-compiler-opt expects.

Its cases are in ``blackbox_optimizers_test.py``, ``gradient_ascent_optimization_algorithms_test.py`` and
``perturbations_test.py`` of ``compiler_opt/es``. Values are the same; the arrangement is ours.
"""

import dataclasses
from typing import Any

import numpy as np
import optax
import pytest

from mlgokit.algorithms.config import ES_CMA, EsConfig, TrustRegionConfig
from mlgokit.algorithms.es import estimate_gradient, make_optimiser
from mlgokit.algorithms.gradients import mean_gradient, normalise_scores, ridge_gradient, top_directions
from mlgokit.algorithms.learner import Experience, Proposal, Task, state_bytes
from mlgokit.algorithms.perturbations import Directions, draw_directions
from mlgokit.algorithms.registry import make_learner
from mlgokit.algorithms.trust_region import judge_step, minimise_within
from mlgokit.errors import UsageError
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.spec import AdviceKind

# Not opposite to each other in pairs, so that a pair's two members can be told apart.
ROWS = np.array(
    [(0, 1), (2, -1), (4, 2), (-2, -2), (0, 3), (0, -3), (0, 4), (0, -4), (-1, 5), (1, -5), (2, 6), (8, -6)]
)
SCORES = np.array([-1, 1, 10, -10, -2, 2, -0.5, 0.5, 4, -4, -8, 8])
CURRENT = 2.0
PAIRS = SCORES.reshape(-1, 2).T
EVERY_PAIR = np.arange(6)
INDEFINITE = np.array([[1.0, -1, 0], [-1, 0, 2], [0, 2, -1]])


def test_the_best_directions_come_first():
    assert SCORES[top_directions(SCORES[None], 5)].tolist() == [10, 8, 4, 2, 1]
    assert PAIRS[:, top_directions(PAIRS, 3)].tolist() == [[10, -8, 4], [-10, 8, -4]]


def test_a_pair_counts_by_its_better_member_and_not_by_the_difference():
    peak_and_cliff = np.array([[0.010, 0.008], [0.008, -1.0]])
    assert top_directions(peak_and_cliff, 1).tolist() == [0]


@pytest.mark.parametrize(
    ("antithetic", "count", "wanted"),
    [(True, 3, (100, -16)), (False, 5, (76, -9)), (True, 0, (102, -34)), (False, 0, (74, -34))],
)
def test_the_mean_gradient(antithetic: bool, count: int, wanted: tuple[int, int]):
    if antithetic:
        chosen = top_directions(PAIRS, count)
        rows = np.concatenate([2 * chosen, 2 * chosen + 1])
        slopes, size = SCORES[rows], len(rows)
    else:
        rows = top_directions(SCORES[None], count)
        slopes, size = SCORES[rows] - CURRENT, len(rows)
    np.testing.assert_allclose(mean_gradient(ROWS[rows].astype(float), slopes.astype(float)) * size, wanted)


@pytest.mark.parametrize(
    ("antithetic", "factor", "wanted"),
    [
        (True, 3, (0.00483, -0.007534)),
        (False, 5, (0.012585, 0.000748)),
        (True, 12, (0.019319, -0.030134)),
        (False, 12, (0.030203, 0.001796)),
    ],
)
def test_the_gradient_by_ridge_regression_with_an_intercept(antithetic: bool, factor: int, wanted: tuple[float, float]):
    scores, current = normalise_scores(SCORES, CURRENT)
    pairs = scores.reshape(-1, 2)
    rows, slopes = (ROWS[2 * EVERY_PAIR], (pairs[:, 0] - pairs[:, 1]) / 2) if antithetic else (ROWS, scores - current)
    gradient = ridge_gradient(rows.astype(float), slopes, 0.01)
    np.testing.assert_allclose(gradient * 0.1**2 * factor, wanted, atol=5e-7)


def test_a_penalty_shrinks_the_gradient_and_none_of_it_is_of_the_intercept():
    rng = np.random.default_rng(1)
    rows, wanted = rng.normal(size=(12, 5)), np.array([1.0, -2.0, 0.0, 3.0, 0.5])
    np.testing.assert_allclose(ridge_gradient(rows, 4 + rows @ wanted, 1e-9), wanted, atol=1e-6)
    # As the other form of the same regression, over the weights, has it.
    centred = rows - rows.mean(axis=0)
    expected = np.linalg.solve(centred.T @ centred + 4 * np.eye(5), centred.T @ (rows @ wanted))
    np.testing.assert_allclose(ridge_gradient(rows, rows @ wanted, 4.0), expected, atol=1e-12)
    assert np.linalg.norm(expected) < np.linalg.norm(wanted)


def test_scores_that_hardly_differ_are_not_scaled_up():
    scores, current = normalise_scores(np.full(3, 5.0), 5.0)
    assert (scores.tolist(), current) == ([0.0, 0.0, 0.0], 0.0)
    # In single precision, as there, these two are 5 by 2 ** -20 more and less; the deviation's floor is 1e-5 here.
    scores, current = normalise_scores(np.array([5.000001, 4.999999], np.float32).astype(float), 5.0)
    np.testing.assert_allclose(scores, [0.095367, -0.095367], atol=1e-6)
    assert current == pytest.approx(0)


@pytest.mark.parametrize(
    ("settings", "start", "wanted"),
    [
        (EsConfig(step="momentum", momentum=0.9, learning_rate=0.1, spread=1.0), (1.1, 0.0), (1.129, 0.029)),
        (EsConfig(step="adam", learning_rate=0.1), (1.1, 0.0), (1.3, 0.2)),
    ],
)
def test_two_steps_along_a_gradient_of_ones(settings: EsConfig, start: tuple[float, ...], wanted: tuple[float, ...]):
    optimiser, weights = make_optimiser(settings), np.array(start)
    state = optimiser.init(weights)
    for _ in range(2):
        updates, state = optimiser.update(-np.ones(2), state)
        weights = np.asarray(optax.apply_updates(weights, updates))
    # In single precision, so not to the six digits that are expected there of doubles.
    np.testing.assert_allclose(weights, wanted, atol=3e-6)


def test_a_quadratic_model_within_a_radius():
    linear, place = np.array([1.0, 0, 1]), np.array([1.0, 0, -2])
    assert place @ INDEFINITE @ place / 2 + linear @ place + 2.5 == 0.0
    assert (INDEFINITE @ place + linear).tolist() == [2.0, -5.0, 3.0]
    found = minimise_within(INDEFINITE, linear, 2.0)
    np.testing.assert_allclose(found, [0.03157944, 1.12525306, -1.65312076], atol=1e-8)
    assert np.linalg.norm(found) == pytest.approx(2.0)


def test_no_place_within_the_radius_is_lower():
    rng = np.random.default_rng(3)
    for _ in range(20):
        matrix, linear = rng.normal(size=(4, 4)), rng.normal(size=4) * rng.integers(0, 2, 4)
        matrix = matrix + matrix.T + rng.integers(0, 8) * np.eye(4)
        found = minimise_within(matrix, linear, 1.5)
        others = rng.normal(size=(4000, 4))
        others *= 1.5 * rng.random((4000, 1)) ** 0.25 / np.linalg.norm(others, axis=1, keepdims=True)
        values = np.einsum("ni,ij,nj->n", others, matrix, others) / 2 + others @ linear
        assert np.linalg.norm(found) <= 1.5 + 1e-9
        assert found @ matrix @ found / 2 + linear @ found <= values.min() + 1e-9


def test_a_radius_has_a_least_value():
    settings = TrustRegionConfig(least_radius=1.0)
    assert judge_step(-9.0, 1.0, 1.0, 1.1, settings) == (1.0, True)
    assert judge_step(0.0, 1.0, 1.0, 1.1, settings) == (1.0, False)


@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "sobol"])
def test_directions_are_the_same_for_one_seed_and_of_unit_variance(kind: Directions):
    drawn = draw_directions(128, 40, kind, np.random.default_rng(42))
    assert drawn.shape == (128, 40)
    np.testing.assert_array_equal(drawn, draw_directions(128, 40, kind, np.random.default_rng(42)))
    assert (drawn != draw_directions(128, 40, kind, np.random.default_rng(43))).all()
    assert drawn.std() == pytest.approx(1, abs=0.03)
    assert drawn.mean() == pytest.approx(0, abs=0.03)


def task() -> Task:
    return Task(
        problem="inline-size", kind=AdviceKind.BINARY, features=("a",),
        normaliser=fit_quantile(np.arange(3)[:, None], count=2), project=np.zeros(5, np.int64),
    )  # fmt: skip


def scored(number: int, score: float) -> Experience:
    one = np.zeros(1, np.int64)
    return Experience(
        proposal=number, compilation=0, module=0, features=np.zeros((1, 1)), decisions=one, log_probability=np.zeros(1),
        defaults=one, sites=one, context=one, context_ids=one,
        scores=np.array([score]), default_scores=np.array([100.0]),
    )  # fmt: skip


def weights_of(proposal: Proposal) -> np.ndarray:
    """The weights of a policy that is proposed, which are in single precision."""
    policy: Any = proposal.actor
    return np.concatenate([part.ravel() for layer in policy.layers for part in (layer.weight, layer.bias)])


VARIANTS = [
    EsConfig(hidden=(), strategy="forward", perturbations=16, ranks=False),
    EsConfig(hidden=(), perturbations=16, top=5, directions="orthogonal"),
    EsConfig(hidden=(), perturbations=16, directions="sobol", step="momentum", learning_rate=0.5, ranks=False),
    EsConfig(hidden=(), perturbations=16, ridge=0.01, scaled=True),
    EsConfig(hidden=(), perturbations=16, strategy="forward", ridge=0.01),
    EsConfig(hidden=(), perturbations=16, step="trust-region"),
    EsConfig(hidden=(), perturbations=16, step="trust-region", strategy="forward", top=12),
]


@pytest.mark.parametrize("settings", VARIANTS)
def test_every_way_finds_the_weights_that_score_best(settings: EsConfig):
    """A score that is lowest where the weights are all 1; half of the first distance has to go."""
    learner = make_learner("es", task(), settings)
    state = learner.start(np.random.default_rng(0))

    first = float(np.sum((state["centre"] - 1) ** 2))
    for turn in range(1, 31):
        rng = np.random.default_rng([1, turn])
        asked = learner.ask(state, rng)
        assert len(asked) == 16 * (2 if settings.strategy == "antithetic" else 1)
        assert len({tuple(one.modules.tolist()) for one in asked}) == 1
        if settings.strategy == "antithetic":
            tested = np.stack([weights_of(one) for one in asked])
            np.testing.assert_allclose(tested[:16] + tested[16:], np.tile(2 * state["centre"], (16, 1)), atol=1e-5)
        seen = [scored(number, 100 + float(np.sum((weights_of(one) - 1) ** 2))) for number, one in enumerate(asked)]
        # A direction that did not compile is left out, with its opposite.
        state, _ = learner.tell(state, asked, seen[1:], rng)
    assert float(np.sum((state["centre"] - 1) ** 2)) < first / 2
    assert state_bytes(state, learner="es")


def test_a_step_that_makes_it_much_worse_is_taken_back():
    settings = EsConfig(hidden=(), perturbations=8, step="trust-region")
    learner = make_learner("es", task(), settings)
    state = learner.start(np.random.default_rng(0))
    start = state["centre"]
    for turn, score in enumerate((90.0, 400.0), 1):
        asked = learner.ask(state, np.random.default_rng([1, turn]))
        seen = [scored(number, score + 0.01 * number) for number in range(len(asked))]
        state, _ = learner.tell(state, asked, seen, np.random.default_rng(1))
        if turn == 1:
            assert not np.array_equal(state["centre"], start)
    np.testing.assert_array_equal(state["centre"], start)
    assert float(state["trust/radius"]) == 0.75


def test_the_gradient_is_that_of_the_better_half_alone():
    noise = np.eye(3)
    rewards = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    settings = EsConfig(perturbations=3, top=1, ranks=False)
    gradient = estimate_gradient(settings, noise, rewards)
    assert gradient[0] > 0
    assert gradient[1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dataclasses.replace(ES_CMA, ridge=0.1), "--setting ridge: expected it with strategy=antithetic or forward"),
        (EsConfig(perturbations=4, top=5), "--setting top: expected at most 4, the number of perturbations, found 5"),
        (EsConfig(momentum=1.0), "--setting momentum: expected less than 1, found 1"),
        (dataclasses.replace(ES_CMA, top=1), "--setting top: expected it with strategy=antithetic or forward"),
        (EsConfig(step="trust-region", ridge=0.1), "--setting ridge: expected 0 with step=trust-region"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: EsConfig, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        make_learner("es", task(), settings)

"""The reference preset's arithmetic, each number worked out by hand from its published settings."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from mlgokit.algorithms import network, ppo
from mlgokit.algorithms.config import PPO_REFERENCE, Credit
from mlgokit.algorithms.learner import Experience
from mlgokit.algorithms.rewards import context_rewards, decision_rewards, initial_averages
from mlgokit.spec import AdviceKind

NAN = float("nan")


def compiled(score: float, *, default: float = 10.0, decisions: int = 3, module: int = 0) -> Experience:
    zeros = np.zeros(decisions, np.int64)
    return Experience(
        proposal=0,
        compilation=0,
        module=module,
        features=np.zeros((decisions, 1), np.int64),
        decisions=zeros,
        log_probability=np.zeros(decisions),
        defaults=zeros,
        sites=zeros,
        context=zeros,
        context_ids=np.array([7]),
        scores=np.array([score]),
        default_scores=np.array([default]),
    )


def one_frame(**changes: float) -> dict[str, jnp.ndarray]:
    """Explored with even chances, decided 1, advantage 2."""
    frame = {"advantage": 2.0, "weight": 1.0, "decisions": 1.0, "log_probability": np.log(0.5), "before": 0.0}
    return {name: jnp.array([[value]]) for name, value in (frame | changes).items()}


def test_the_reward_is_measured_against_a_moving_average_that_moves_afterwards():
    (first,), averages = context_rewards([compiled(8.0)], initial_averages(), PPO_REFERENCE.decay)
    (second,), later = context_rewards([compiled(9.0)], averages, PPO_REFERENCE.decay)

    assert first == pytest.approx([1 - 8.01 / 10.01])
    assert first == pytest.approx([0.1998002], abs=1e-7)
    assert averages["average/value"] == pytest.approx([9.6])
    assert second == pytest.approx([1 - 9.01 / 9.61])
    assert later["average/value"] == pytest.approx([9.48])


def test_an_unknown_heuristic_makes_the_first_score_the_average():
    (reward,), averages = context_rewards([compiled(8.0, default=NAN)], initial_averages(), 0.8)

    assert reward.tolist() == [0]
    assert averages["average/value"].tolist() == [8]


def test_every_decision_of_a_module_gets_its_reward():
    (rewards,), _ = decision_rewards([compiled(8.0)], Credit.CONTEXT, initial_averages(), 0.8)

    assert rewards == pytest.approx([0.1998002] * 3, abs=1e-7)


def test_advantages_are_normalised_over_all_frames_of_a_batch_the_closing_one_counting_as_zero():
    found = ppo.advantages(jnp.array([[1.0, 2.0, 5.0]]), PPO_REFERENCE)

    # Of 1, 2, 0: mean 1, variance 2/3.
    np.testing.assert_allclose(found, [[0, 1.2247449, -1.2247449]], atol=1e-6)


def test_a_batch_without_differences_teaches_nothing():
    found = ppo.advantages(jnp.zeros((2, 3)), PPO_REFERENCE)

    np.testing.assert_array_equal(found, np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("advantage", "loss"),
    [
        # The ratio is 0.75 / 0.5 = 1.5; a gain is cut at 1.2, a loss is not.
        (2.0, -2.4),
        (-2.0, 3.0),
    ],
)
def test_the_ratio_is_clipped_where_it_would_earn_more(advantage: float, loss: float):
    after = jnp.array([[np.log(3.0)]])

    terms = ppo.loss_terms(after, one_frame(advantage=advantage), 1.0, AdviceKind.BINARY, PPO_REFERENCE)

    assert float(terms["policy_loss"]) == pytest.approx(loss, rel=1e-5)


def test_entropy_and_divergence_are_weighted_as_published():
    after = jnp.array([[np.log(3.0)]])

    terms = ppo.loss_terms(after, one_frame(), 0.5, AdviceKind.BINARY, PPO_REFERENCE)

    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    divergence = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    assert divergence == pytest.approx(0.1438410)
    assert float(terms["entropy_loss"]) == pytest.approx(-0.003 * entropy, rel=1e-5)
    assert float(terms["kl_loss"]) == pytest.approx(0.5 * divergence + 1000 * (divergence - 0.02) ** 2, rel=1e-5)


def test_frames_that_do_not_count_still_divide_the_means():
    frame = {name: jnp.concatenate([value, value], axis=1) for name, value in one_frame().items()}
    frame["weight"] = jnp.array([[1.0, 0.0]])
    after = jnp.full((1, 2), np.log(3.0))

    terms = ppo.loss_terms(after, frame, 1.0, AdviceKind.BINARY, PPO_REFERENCE)

    divergence = 0.1438410 / 2
    assert float(terms["policy_loss"]) == pytest.approx(-1.2, rel=1e-5)
    assert float(terms["kl_loss"]) == pytest.approx(divergence + 1000 * (divergence - 0.02) ** 2, rel=1e-4)


def test_a_masked_choice_and_a_number_have_the_same_terms_with_their_own_distributions():
    mask = jnp.array([[[True, True, False]]])
    batch = one_frame() | {"mask": mask, "before": jnp.zeros((1, 1, 3))}
    choice = ppo.loss_terms(
        jnp.array([[[0.0, np.log(3.0), 99.0]]]), batch, 1.0, AdviceKind.MASKED_CHOICE, PPO_REFERENCE
    )
    binary = ppo.loss_terms(jnp.array([[np.log(3.0)]]), one_frame(), 1.0, AdviceKind.BINARY, PPO_REFERENCE)
    for name, value in binary.items():
        assert float(choice[name]) == pytest.approx(float(value), rel=1e-5), name

    normal = one_frame(log_probability=-0.5 - 0.5 * np.log(2 * np.pi))
    number = ppo.loss_terms(jnp.array([[0.1]]), normal, 1.0, AdviceKind.REAL, PPO_REFERENCE)
    # (1 - 0)^2 / 2 against (1 - 0.1)^2 / 2: the ratio is e^0.095.
    assert float(number["policy_loss"]) == pytest.approx(-2 * np.exp(0.095), rel=1e-5)
    assert float(number["kl_loss"]) == pytest.approx(0.005, rel=1e-4)


@pytest.mark.parametrize(
    ("divergence", "beta"),
    [(0.0131, 1.5), (0.0129, 1.0), (0.01, 1.0), (0.0071, 1.0), (0.0069, 1 / 1.5)],
)
def test_the_weight_of_the_divergence_adapts(divergence: float, beta: float):
    assert float(ppo.adapt_beta(1.0, divergence, PPO_REFERENCE)) == pytest.approx(beta)


def test_the_divergence_weight_stays_within_bounds():
    assert float(ppo.adapt_beta(1e-15, 0.0, PPO_REFERENCE)) == pytest.approx(1e-15)
    assert float(ppo.adapt_beta(1e17, 1.0, PPO_REFERENCE)) == pytest.approx(1e17)


def test_one_gradient_step_by_hand():
    settings = dataclasses.replace(PPO_REFERENCE, sequence=2, batch=1, steps=1)
    zeros = [{"weight": np.zeros((1, 1, 2), np.float32), "bias": np.zeros((1, 2), np.float32)}]
    data = {
        "inputs": np.ones((2, 1), np.float32),
        "reward": np.array([1, 9], np.float32),
        "weight": np.ones(2, np.float32),
        "decisions": np.ones(2, np.float32),
        "log_probability": np.full(2, np.log(0.5), np.float32),
        "before": np.zeros(2, np.float32),
    }

    fitted, _, beta, _ = ppo.train(
        zeros,
        network.adam(settings.learning_rate).init(zeros),
        1.0,
        data,
        np.array([[0]]),
        kind=AdviceKind.BINARY,
        settings=settings,
    )

    # Rewards 1 and (closing frame) 0 become advantages 1 and -1, of which the second has no weight; over two frames the
    # slope of the loss is -0.5 * 0.5 in the logit of 1. Adam's first step is the rate times g / (|g| + 3.125e-4).
    step = 3e-5 * 0.25 / (0.25 + 3.125e-4)
    np.testing.assert_allclose(fitted[0]["weight"], [[[-step, step]]], rtol=1e-5)
    np.testing.assert_allclose(fitted[0]["bias"], [[-step, step]], rtol=1e-5)
    assert float(beta) == pytest.approx(1 / 1.5)


def test_what_the_references_pipeline_leaves_out_is_left_out():
    frame = ppo._frames(compiled(8.0, decisions=4), np.ones(4), PPO_REFERENCE)
    assert frame["weight"].tolist() == [1, 1, 1, 0]
    assert len(ppo._frames(compiled(8.0, decisions=2), np.ones(2), PPO_REFERENCE)["reward"]) == 0


def test_windows_are_whole_and_shuffled_in_each_pass():
    order = ppo.window_order(16 * 3 + 5, PPO_REFERENCE, np.random.default_rng(1))

    assert order.shape == (300, 256)
    assert sorted(order.ravel()[:3].tolist()) == [0, 1, 2]
    assert sorted(order.ravel()[3:6].tolist()) == [0, 1, 2]


def test_the_preset_is_what_was_published():
    assert (PPO_REFERENCE.modules, PPO_REFERENCE.batch, PPO_REFERENCE.sequence, PPO_REFERENCE.steps) == (
        100,
        256,
        16,
        300,
    )
    assert (PPO_REFERENCE.hidden, PPO_REFERENCE.learning_rate, PPO_REFERENCE.clip) == ((40, 40, 20), 3e-5, 0.2)
    assert (PPO_REFERENCE.entropy, PPO_REFERENCE.weight_penalty, PPO_REFERENCE.decay) == (0.003, 1e-6, 0.8)


@pytest.mark.parametrize(("members", "outputs"), [(1, 2), (3, 1)])
def test_answers_by_columns_are_those_by_rows(members: int, outputs: int):
    rng = np.random.default_rng(1)
    parameters = [
        {"weight": rng.normal(size=(members, before, after)), "bias": rng.normal(size=(members, after))}
        for before, after in ((5, 4), (4, outputs))
    ]
    inputs = rng.normal(size=(6, 2, 5))

    by_rows = network.answers(parameters, inputs)
    by_columns = network.column_answers(parameters, network.columns_of(inputs)).reshape(members, 6, 2)

    np.testing.assert_allclose(by_columns, by_rows, rtol=1e-5)

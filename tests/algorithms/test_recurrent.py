"""Recurrent networks: the same numbers in JAX and numpy, gradients, windows, and a task that takes a memory."""

# JAX annotates its functions only in part.
# pyright: basic

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from mlgokit.algorithms import network
from mlgokit.algorithms.config import BcConfig, BcMaxConfig, DqnConfig, ImitationConfig
from mlgokit.algorithms.learner import Experience, Task
from mlgokit.algorithms.registry import make_learner
from mlgokit.errors import UsageError
from mlgokit.policy.network import Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import policy_bytes, read_policy_bytes
from mlgokit.spec import AdviceKind

DECISIONS = 40
MODULES = 60
UNITS = 6


def make_task(*, start: Policy | None = None) -> Task:
    return Task(
        problem="inline-size",
        kind=AdviceKind.BINARY,
        features=("cost", "users"),
        normaliser=fit_signed_log(values_of(0)),
        project=np.zeros(MODULES, np.int64),
        start=start,
    )


def values_of(module: int) -> np.ndarray:
    return np.random.default_rng([1, module]).integers(-50, 50, (DECISIONS, 2))


def remembered(values: np.ndarray) -> np.ndarray:
    """What one decision before had a positive cost: nothing that a decision by itself could know."""
    return np.append(False, values[:-1, 0] > 0)


def experience(module: int) -> Experience:
    values, zeros = values_of(module), np.zeros(DECISIONS, np.int64)
    decisions = remembered(values).astype(np.int64)
    return Experience(
        proposal=0,
        compilation=module,
        module=module,
        features=values,
        decisions=decisions,
        log_probability=np.zeros(DECISIONS),
        defaults=decisions,
        sites=np.arange(DECISIONS),
        context=zeros,
        context_ids=zeros[:1],
        scores=np.ones(1),
        default_scores=np.ones(1),
    )


def drawn_policy(*, members: int = 2) -> tuple[network.Parameters, Policy]:
    rng = np.random.default_rng(3)
    drawn = [network.initial(make_task(), (5, 4), rng, recurrent=UNITS) for _ in range(members)]
    parameters = [
        {name: np.concatenate([one[layer][name] for one in drawn]) for name in drawn[0][layer]}
        for layer in range(len(drawn[0]))
    ]
    parameters[-1]["weight"] *= 100
    return parameters, network.to_policy(make_task(), parameters)


def test_jax_and_numpy_compute_the_same_from_a_modules_beginning() -> None:
    parameters, policy = drawn_policy()
    values = values_of(7)
    inputs = make_task().normaliser.apply(values)

    learned = network.answers(parameters, inputs[None])[:, 0]

    # The first layer of a policy is in integers of 16 bits.
    np.testing.assert_allclose(policy.answers(values), learned, atol=2e-3)
    assert np.ptp(learned) > 0.1


def test_gradients_are_those_of_finite_differences() -> None:
    parameters, _ = drawn_policy(members=1)
    inputs = make_task().normaliser.apply(values_of(2))[:8].reshape(2, 4, 2)

    def answer(parameters: network.Parameters) -> Any:
        return jnp.sin(network.answers(parameters, inputs)).sum()

    check_grads(answer, (parameters,), order=1, modes=["rev"], atol=2e-2, rtol=2e-2, eps=1e-2)


def test_each_window_begins_without_memory() -> None:
    parameters, _ = drawn_policy()
    inputs = make_task().normaliser.apply(values_of(2))

    windows = network.answers(parameters, inputs.reshape(5, 8, 2))

    for number in range(5):
        alone = network.answers(parameters, inputs[None, 8 * number : 8 * number + 8])[:, 0]
        np.testing.assert_allclose(windows[:, number], alone, rtol=1e-5, atol=1e-6)
    whole = network.answers(parameters, inputs[None])[:, 0]
    np.testing.assert_allclose(windows[:, 0], whole[:, :8], rtol=1e-5, atol=1e-6)
    assert not np.allclose(windows[:, 1], whole[:, 8:16], atol=1e-3)


def test_windows_hold_every_decision_once_and_none_of_two_episodes() -> None:
    episode = np.repeat([4, 9, 4, 5], [5, 1, 8, 3])
    rows = {"row": np.arange(1, 18), "weight": np.ones(17, np.float32), "wide": np.arange(34).reshape(17, 2)}

    cut = network.cut_windows(rows, episode, 4)

    assert cut["row"].tolist() == [
        [1, 2, 3, 4], [5, 0, 0, 0], [6, 0, 0, 0], [7, 8, 9, 10], [11, 12, 13, 14], [15, 16, 17, 0],
    ]  # fmt: skip
    assert cut["weight"].tolist() == (cut["row"] > 0).astype(float).tolist()
    np.testing.assert_array_equal(cut["wide"][cut["row"] > 0], rows["wide"])


def clone(recurrent: int, *, algorithm: str = "behavioural-cloning", start: Policy | None = None) -> tuple[Policy, Any]:
    imitation = ImitationConfig(hidden=(12,), recurrent=recurrent, sequence=8, steps=600, batch=32, learning_rate=0.01)
    settings = BcConfig(imitation=imitation) if algorithm == "behavioural-cloning" else BcMaxConfig(imitation=imitation)
    learner = make_learner(algorithm, make_task(start=start), settings)
    rng = np.random.default_rng(2)
    state = learner.start(rng)
    proposals = learner.ask(state, rng)
    experiences = [experience(module) for module in range(MODULES - 10)]
    state, metrics = learner.tell(state, proposals, experiences, rng)
    return learner.best(state), metrics


def share_right(policy: Policy) -> float:
    """On modules that taught nothing, each from its beginning."""
    modules = range(MODULES - 10, MODULES)
    right = [(policy.preferences(values_of(module)) > 0) == remembered(values_of(module)) for module in modules]
    return float(np.mean(right))


def test_what_takes_a_memory_is_learned_by_a_recurrent_network_alone() -> None:
    recurrent, metrics = clone(UNITS)
    dense, _ = clone(0)

    assert share_right(recurrent) > 0.9
    assert share_right(dense) < 0.6
    # The metric has the memory of each module, too.
    assert metrics["agreement"] > 0.9
    assert read_policy_bytes(policy_bytes(recurrent), "again").recurrent == UNITS
    # Training goes on from there.
    again, _ = clone(UNITS, start=recurrent)
    assert share_right(again) > 0.9


def test_bc_max_trains_a_recurrent_network_too() -> None:
    policy, _ = clone(UNITS, algorithm="bc-max")
    assert policy.recurrent == UNITS
    assert share_right(policy) > 0.9


def flipped(module: int, decisions: np.ndarray) -> Experience:
    """What a compilation with these decisions gives if the base never inlines: each call is its own component."""
    departs = decisions > 0
    change = np.where(remembered(values_of(module)), -10.0, 10.0)
    return dataclasses.replace(
        experience(module),
        decisions=decisions,
        base_decisions=np.zeros(DECISIONS, np.int64),
        component=np.where(departs, np.arange(DECISIONS), -1),
        change=np.where(departs, change, 0.0),
    )


def test_dqn_learns_from_single_flips_in_whole_trajectories() -> None:
    rng = np.random.default_rng(8)
    shares: dict[int, float] = {}
    for recurrent in (UNITS, 0):
        settings = DqnConfig(hidden=(12,), recurrent=recurrent, steps=800, batch=32, learning_rate=0.01)
        learner = make_learner("dqn", make_task(), settings)
        state = learner.start(rng)
        proposals = learner.ask(state, rng)
        drawn = [rng.integers(0, 2, DECISIONS) for _ in range(MODULES - 10)]
        state, metrics = learner.tell(state, proposals, [flipped(*one) for one in enumerate(drawn)], rng)
        assert metrics["remembered"] == (DECISIONS * len(drawn) if recurrent else sum(map(sum, drawn)))
        shares[recurrent] = share_right(learner.best(state))
    assert shares[UNITS] > 0.85
    assert shares[0] < 0.6


def test_a_start_without_an_lstm_is_refused() -> None:
    dense, _ = clone(0)
    with pytest.raises(
        UsageError, match="--start: expected a recurrent policy, as the settings ask for an LSTM, found"
    ):
        clone(UNITS, start=dense)

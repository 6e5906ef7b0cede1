"""The gradient of evolution strategies by regression: known numbers, and no more than the pairs can say."""

import dataclasses

import numpy as np
import pytest

from mlgokit.algorithms.config import ES_CMA, EsConfig
from mlgokit.algorithms.es import ridge_gradient
from mlgokit.algorithms.learner import Task
from mlgokit.algorithms.registry import make_learner
from mlgokit.errors import UsageError
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.spec import AdviceKind


def test_a_linear_score_gives_its_gradient_and_a_penalty_shrinks_it():
    rng = np.random.default_rng(1)
    noise, wanted = rng.normal(size=(12, 5)), np.array([1.0, -2.0, 0.0, 3.0, 0.5])
    np.testing.assert_allclose(ridge_gradient(noise, noise @ wanted, 1e-9), wanted, atol=1e-6)
    # As the other form of the same regression, over the weights, has it.
    expected = np.linalg.solve(noise.T @ noise + 4 * np.eye(5), noise.T @ (noise @ wanted))
    np.testing.assert_allclose(ridge_gradient(noise, noise @ wanted, 4.0), expected, atol=1e-12)
    assert np.linalg.norm(expected) < np.linalg.norm(wanted)


@pytest.mark.parametrize("settings", [EsConfig(ridge=-1.0), dataclasses.replace(ES_CMA, ridge=0.1)])
def test_a_penalty_that_cannot_be_is_refused(settings: EsConfig):
    task = Task(
        problem="inline-size", kind=AdviceKind.BINARY, features=("a",),
        normaliser=fit_quantile(np.arange(3)[:, None], count=2), project=np.zeros(1, np.int64),
    )  # fmt: skip
    with pytest.raises(UsageError, match="--setting ridge: expected 0 or more, and 0 with strategy=cma"):
        make_learner("es", task, settings)

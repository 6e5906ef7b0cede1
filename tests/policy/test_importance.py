import numpy as np
import pytest

from mlgokit.errors import UsageError
from mlgokit.pages.html import render_html
from mlgokit.policy.importance import Questions, importance_page, measure_importance, shapley_values
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog

NAMES = ("nothing", "little", "much")
WEIGHTS = {
    OutputKind.LOGITS: np.array([[[0, 0], [0, 0.1], [0, -2]]], np.float32),
    OutputKind.COLUMN_LOGIT: np.array([[[0], [0.1], [-2]]], np.float32),
    OutputKind.PRIORITY: np.array([[[0], [0.1], [-2]]], np.float32),
}
PROBLEM = {
    OutputKind.LOGITS: "inline-size",
    OutputKind.COLUMN_LOGIT: "regalloc-eviction",
    OutputKind.PRIORITY: "regalloc-priority",
}


def linear_policy(output: OutputKind) -> Policy:
    """Goes by the last feature, a little by the second, and not at all by the first."""
    weight = WEIGHTS[output]
    return Policy(
        problem=PROBLEM[output],
        features=NAMES,
        normaliser=SignedLog(mean=np.full(3, 2.3, np.float32), scale=np.ones(3, np.float32), clip=9.0),
        layers=(Layer(weight, np.full((1, weight.shape[2]), 0.5, np.float32)),),
        output=output,
        mask="mask" if output is OutputKind.COLUMN_LOGIT else "",
    )


def questions(output: OutputKind, *, count: int = 200) -> Questions:
    rng = np.random.default_rng(1)
    if output is not OutputKind.COLUMN_LOGIT:
        return Questions(values=rng.integers(0, 20, (count, 3)))
    mask = rng.random((count, 5)) < 0.6
    mask[:, 2] = True
    return Questions(values=rng.integers(0, 20, (count, 5, 3)), mask=mask)


@pytest.mark.parametrize("output", list(WEIGHTS))
def test_the_feature_that_decides_is_found(output: OutputKind):
    policy = linear_policy(output)

    found = measure_importance(policy, questions(output), np.random.default_rng(2), explained=50)

    assert [NAMES[place] for place in found.order_features()] == ["much", "little", "nothing"]
    assert found.shapley[0] == 0.0
    assert found.changed[0] == 0.0
    assert found.changed[2] > found.changed[1]
    assert found.changed[2] > 0.2
    if output is not OutputKind.COLUMN_LOGIT:
        assert found.direction[1] > 0.7
        assert found.direction[2] < -0.7
    page = render_html(importance_page(found, output, name="a.policy"))
    assert "a.policy" in page
    assert "much" in page
    assert 'src="http' not in page


def test_shapley_values_add_up_to_the_distance_from_the_mean_answer():
    """For a linear policy they are known: what the feature adds beyond its mean."""
    policy, asked = linear_policy(OutputKind.PRIORITY), questions(OutputKind.PRIORITY)

    values, rows = shapley_values(policy, asked, np.random.default_rng(3), orders=2000, explained=10)

    inputs = policy.normaliser.apply(asked.values)
    known = (inputs[rows] - inputs.mean(axis=0)) * WEIGHTS[OutputKind.PRIORITY][0, :, 0]
    np.testing.assert_allclose(values, known, atol=0.15)


def test_the_same_generator_gives_the_same_numbers():
    policy, asked = linear_policy(OutputKind.LOGITS), questions(OutputKind.LOGITS)
    first, second = (measure_importance(policy, asked, np.random.default_rng(4), explained=9) for _ in range(2))

    assert first == second


def test_one_observation_is_too_few():
    with pytest.raises(UsageError, match="importance: expected at least two observations, found 1"):
        measure_importance(
            linear_policy(OutputKind.LOGITS), questions(OutputKind.LOGITS, count=1), np.random.default_rng(1)
        )

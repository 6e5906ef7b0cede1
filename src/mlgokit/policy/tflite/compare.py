"""Compares the decisions of a TFLite model and of a policy on the same random observations."""

from collections.abc import Mapping, Sequence

import numpy as np

from mlgokit.errors import InputError
from mlgokit.policy.exploration import Exploration, choose_column
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.normaliser import LARGEST, Quantile
from mlgokit.policy.tflite.evaluate import evaluate
from mlgokit.policy.tflite.graph import Array, Graph
from mlgokit.policy.tflite.network import PREFIX
from mlgokit.policy.tflite.read_policy import BOOLEANS, COUNTED
from mlgokit.policy.tflite.steps import Floats, merge_knots
from mlgokit.problems import PROBLEMS, Problem

_BATCH = 100
"""Observations that a policy decides about at once, which is quicker."""
_NAN_SHARE = 0.05
"""Share of NaN among the drawn values of a floating-point feature."""
_MOST_COUNTS = 20
"""Bound of the drawn values of features that are counts; LLVM's are hardly larger."""


def compare(graph: Graph, policy: Policy, rng: np.random.Generator, *, observations: int, origin: str) -> int:
    """Draw observations around the boundaries of the policy's features, and count where model and policy disagree.

    Args:
        graph: the model; if it draws its decisions, the likeliest decision is taken.
        policy: the policy that :func:`~mlgokit.policy.tflite.read_policy.read_policy` made of the model.
        rng: generator of the observations.
        observations: number of observations.
        origin: name of the model in error messages.

    Raises:
        InputError: the model cannot be evaluated.
    """
    differing = 0
    for first in range(0, observations, _BATCH):
        drawn = draw_observations(graph, policy, rng, min(_BATCH, observations - first))
        for values, decision in zip(drawn, decisions_of(policy, drawn), strict=True):
            differing += _decide(graph, values, origin) != decision
    return differing


def draw_observations(graph: Graph, policy: Policy, rng: np.random.Generator, count: int) -> list[dict[str, Array]]:
    """Draw ``count`` observations: raw values by feature, in the shapes of the model's inputs."""
    boundaries = _boundaries(policy)
    shapes = {graph.input_name(index).removeprefix(PREFIX): graph.tensors[index].shape for index in graph.inputs}
    return [_draw(PROBLEMS[policy.problem], shapes, boundaries, rng) for _ in range(count)]


def decisions_of(policy: Policy, observations: Sequence[Mapping[str, Array]]) -> list[int]:
    """Decide each observation (raw values by feature) by a policy of yes or no, or of columns, without exploration."""
    if policy.output is not OutputKind.COLUMN_LOGIT:
        rows = [[float(observation[name].ravel()[0]) for name in policy.features] for observation in observations]
        return [int(preference > 0) for preference in policy.preferences(np.array(rows))]
    masks = [observation[policy.mask].ravel() for observation in observations]
    rows = [
        np.stack([np.broadcast_to(observation[name].ravel(), mask.shape) for name in policy.features], axis=1)
        for observation, mask in zip(observations, masks, strict=True)
    ]
    all_logits = policy.column_logits(np.stack(rows).astype(np.float64))
    return [
        choose_column(logits, mask.tolist(), Exploration(), 0.5, 0.5)[0]
        for logits, mask in zip(all_logits.tolist(), masks, strict=True)
    ]


def _decide(graph: Graph, observation: Mapping[str, Array], origin: str) -> int:
    """Evaluate the model on one observation, and return its decision."""
    values = {f"{PREFIX}{name}": value for name, value in observation.items()}
    named = {graph.tensors[index].name: values.get(graph.input_name(index)) for index in graph.inputs}
    outputs = evaluate(graph, {name: value for name, value in named.items() if value is not None}, origin=origin)
    whole = [value for value in outputs.values() if value.dtype.kind == "i" and value.size == 1]
    if not whole:
        raise InputError(
            f"model {origin}: expected an output with the decision, as one integer, found none; convert a model "
            "that returns its decision"
        )
    return int(whole[0].item())


def _boundaries(policy: Policy) -> dict[str, Floats]:
    """Collect the boundaries of each feature of a policy with a quantile normaliser."""
    boundaries: dict[str, Floats] = {}
    if isinstance(policy.normaliser, Quantile):
        for name, row in zip(policy.features, policy.normaliser.boundaries, strict=True):
            known: Floats = boundaries.get(name, np.empty(0, np.float32))
            boundaries[name] = merge_knots([known, row])
    return boundaries


def _draw(
    problem: Problem, shapes: Mapping[str, tuple[int, ...]], boundaries: Mapping[str, Floats], rng: np.random.Generator
) -> dict[str, Array]:
    """Draw raw values of all features: boundaries, values just below them, and NaN; 0 or 1 without boundaries."""
    inputs: dict[str, Array] = {}
    for feature in problem.features:
        shape, whole = shapes.get(feature.name, (1,)), feature.type == "int64_t"
        if feature.name in BOOLEANS or feature.name not in boundaries:
            values = rng.integers(0, 2, shape).astype(np.float64)
            if feature.name == problem.mask:
                values[..., -1] = 1
        else:
            values = rng.choice(boundaries[feature.name], shape).astype(np.float64)
            below = values - 1 if whole else np.nextafter(values.astype(np.float32), np.float32(-np.inf))
            values = np.where(rng.random(shape) < 0.5, values, below)
            values = np.where(values >= LARGEST, 0 if whole else np.inf, values)
            if feature.name == COUNTED:
                values = rng.integers(0, _MOST_COUNTS, shape).astype(np.float64)
            if not whole:
                values = np.where(rng.random(shape) < _NAN_SHARE, np.nan, values)
        inputs[feature.name] = values.astype(np.int64) if whole else values.astype(np.float32)
    return inputs

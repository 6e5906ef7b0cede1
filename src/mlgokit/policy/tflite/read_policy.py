"""Converts a TFLite model into a policy: google/ml-compiler-opt's networks, with their vocabularies and embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.errors import InputError
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import BELOW_LARGEST, quantile_rows
from mlgokit.policy.store import MOST_FEATURES
from mlgokit.policy.tflite.cells import BOOLEAN, Cell
from mlgokit.policy.tflite.evaluate import UNIFORM_DRAWS
from mlgokit.policy.tflite.file import MOST_ELEMENTS
from mlgokit.policy.tflite.graph import Graph
from mlgokit.policy.tflite.network import PREFIX, Dense, Stack, find_network, rows_agree
from mlgokit.policy.tflite.rows import Expansion, expand
from mlgokit.policy.tflite.steps import Doubles, Steps
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, Problem

BOOLEANS = frozenset(
    (
        "mask",
        "is_free",
        "is_hint",
        "is_multiple_blocks",
        "is_callee_avail_external",
        "is_caller_avail_external",
    )
)
"""Features that are 0 or 1 in LLVM, so that a network may read them as they are."""
COUNTED = "is_local"
"""A feature that in spite of its name counts a column's local intervals in LLVM; a network may read it as it is."""
_MOST_COUNTED = 256
"""Largest value of :data:`COUNTED` that is told apart. It is a power of two, so that ranks among so many boundaries are
exact; LLVM has at most 10 for each register unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """A policy that was read from a model.

    Attributes:
        policy: policy that decides as the model does.
        features: names of the features that the model reads, in alphabetical order.
        draws: whether the model draws its decisions at random; the policy takes the likeliest.
        error: largest difference between an input of the model's first layer and the same input in the policy.
    """

    policy: Policy
    features: tuple[str, ...]
    draws: bool
    error: float


def read_policy(graph: Graph, origin: str) -> ReadPolicy:
    """Convert a model into a policy.

    A policy's first layer is computed in integers, which rounds its inputs and weights. Here it only passes inputs on,
    with weights 0 and 1, and the model's dense layers follow in floats: so no weight of the model is rounded.

    Args:
        graph: the model.
        origin: name of the model in error messages.

    Raises:
        InputError: an operator is not supported, or the model computes what a policy file cannot represent.
    """
    with np.errstate(all="ignore"):
        return _read(graph, origin)


def _read(graph: Graph, origin: str) -> ReadPolicy:
    """Rewrite a model as a policy that ranks features among boundaries, and applies dense layers to the ranks."""
    stack, deciding = find_network(graph, origin)
    problem = _problem_of(stack, origin)
    try:
        cells = rows_agree(stack.cells, {feature.name for feature in problem.features if feature.per_column})
    except ValueError as error:
        raise _misfit(origin, "the first dense layer to treat all columns alike", str(error)) from error
    layers = _merge(stack.layers, origin)
    if layers[-1].relu:
        raise _misfit(origin, "no activation after the last dense layer", "RELU")
    by_feature: dict[str, list[int]] = {}
    for index, cell in enumerate(cells):
        by_feature.setdefault(cell.feature, []).append(index)
    steps = [_steps(cell, origin) for cell in cells]
    # Inputs of the first dense layer that depend on no feature are constants, and become a part of its biases.
    constant = sum(
        (float(steps[index].values[0]) * layers[0].weight[index] for index in by_feature.pop("", [])), start=np.zeros(1)
    )
    whole = {feature.name: feature.type == "int64_t" for feature in problem.features}
    expansions = {
        feature: expand([steps[index] for index in places], whole_numbers=whole[feature])
        for feature, places in sorted(by_feature.items())
    }
    rows = [(feature, row) for feature, expansion in expansions.items() for row in expansion.rows]
    if not 1 <= len(rows) <= MOST_FEATURES:
        raise _misfit(origin, f"features in 1 to {MOST_FEATURES} rows of boundaries", str(len(rows)))
    first, second = _first_layers(layers[0], by_feature, expansions, len(rows), constant)
    policy = Policy(
        problem=problem.name,
        features=tuple(feature for feature, _ in rows),
        normaliser=quantile_rows([row for _, row in rows], nan=BELOW_LARGEST),
        layers=tuple(_layer(dense) for dense in (first, second, *layers[1:])),
        output=OutputKind.LOGITS if problem is INLINE_SIZE else OutputKind.COLUMN_LOGIT,
        mask=problem.mask or "",
    )
    if not all(np.isfinite(array).all() for layer in policy.layers for array in (layer.weight, layer.bias)):
        raise _misfit(origin, "finite weights", "others")
    return ReadPolicy(
        policy=policy,
        features=tuple(expansions),
        draws=deciding.kind == "MULTINOMIAL" or any(operator.kind in UNIFORM_DRAWS for operator in graph.operators),
        error=max(expansion.error for expansion in expansions.values()),
    )


def _problem_of(stack: Stack, origin: str) -> Problem:
    """Recognise the problem of a network: inlining has two logits, eviction one for each column, and a mask."""
    outputs, rows = len(stack.layers[-1].bias), len(stack.cells)
    problem = INLINE_SIZE if (rows, outputs) == (1, 2) else REGALLOC_EVICTION
    if problem is REGALLOC_EVICTION and (outputs != 1 or rows < 2):
        raise _misfit(origin, "two logits, or one for each column", f"{outputs} for each of {rows} rows")
    if stack.mask != (problem.mask or ""):
        raise _misfit(origin, f"logits of columns that {problem.mask!r} allows", f"a mask {stack.mask!r}")
    names = {cell.feature for cell in stack.cells.ravel().tolist() if cell.feature}
    unknown = sorted(names - set(problem.feature_names))
    if unknown:
        raise InputError(
            f"model {origin}: input {PREFIX}{unknown[0][:80]}: expected a feature of LLVM's for {problem.name}, found "
            f"another; {_remedy(unknown[0])}"
        )
    return problem


def _remedy(name: str) -> str:
    """Say what to do about an input that is no feature of LLVM."""
    if name.endswith("_embedding"):
        return "this plugin computes no IR2Vec embeddings, so convert a policy without them"
    return "convert a policy whose inputs are named action_<feature>:0"


def _steps(cell: Cell, origin: str) -> Steps:
    """Get the step function of an input of the first dense layer.

    A raw value has one if LLVM's feature is 0 or 1, or a small count.
    """
    if isinstance(cell.function, Steps):
        if not np.isfinite(cell.function.values).all():
            raise _misfit(origin, f"finite inputs of the first dense layer, of {cell.feature}", "others")
        return cell.function
    if cell.feature in BOOLEANS and cell.function.infinite is None:
        return BOOLEAN
    if cell.feature == COUNTED and cell.function.infinite is None:
        row = np.arange(1, _MOST_COUNTED + 1, dtype=np.float32)
        return Steps(knots=row, values=np.arange(_MOST_COUNTED + 1, dtype=np.float64), row=row)
    raise _misfit(
        origin, f"ranks, categories or 0 and 1 of {cell.feature} before the first dense layer", "its raw value"
    )


def _misfit(origin: str, expected: str, found: str) -> InputError:
    """Make the error for a model that a policy file cannot represent."""
    return InputError(
        f"model {origin}: expected {expected}, found {found}; see docs/how-to/tflite.md for what can be read"
    )


def _merge(layers: Sequence[Dense], origin: str) -> list[Dense]:
    """Multiply successive layers into one where there is no activation between them."""
    merged: list[Dense] = []
    for layer in layers:
        weight, bias = layer.weight.astype(np.float64), layer.bias.astype(np.float64)
        if merged and not merged[-1].relu:
            before = merged.pop()
            size = len(before.weight) * weight.shape[1]
            if size > MOST_ELEMENTS:
                raise _misfit(origin, f"at most {MOST_ELEMENTS} weights between two activations", str(size))
            weight, bias = before.weight @ weight, before.bias @ weight + bias
        merged.append(Dense(weight=weight, bias=bias, relu=layer.relu))
    return merged


def _first_layers(
    dense: Dense,
    by_feature: dict[str, list[int]],
    expansions: dict[str, Expansion],
    rows: int,
    constant: Doubles,
) -> tuple[Dense, Dense]:
    """Make the layer that passes on the needed outputs of the normaliser, and the model's first layer after it."""
    taken: list[int] = []
    weights: list[Doubles] = []
    bias = dense.bias + constant
    before = 0
    for feature, expansion in expansions.items():
        own = dense.weight[by_feature[feature]]
        for term in expansion.terms:
            taken.append(2 * (before + term.row) + term.power - 1)
            weights.append(term.factor @ own)
        bias = bias + expansion.constant @ own
        before += len(expansion.rows)
    passing = np.zeros((2 * rows, len(taken)))
    passing[taken, np.arange(len(taken))] = 1
    return (
        Dense(weight=passing, bias=np.zeros(len(taken)), relu=True),
        Dense(weight=np.stack(weights), bias=bias, relu=dense.relu),
    )


def _layer(dense: Dense) -> Layer:
    with np.errstate(over="ignore"):
        return Layer(dense.weight.astype(np.float32)[None], dense.bias.astype(np.float32)[None])

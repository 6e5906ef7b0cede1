"""Models with the structure of the reference's policies (google/ml-compiler-opt), with drawn numbers."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.policy.tflite.graph import BOOL, FLOAT, INT32, INT64, Graph, GraphBuilder
from mlgokit.policy.vocab import Boundaries
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION

INLINE_FEATURES = tuple(
    name
    for name in INLINE_SIZE.feature_names
    if name not in {"switch_default_dest_penalty", "is_callee_avail_external", "is_caller_avail_external"}
)
"""The 35 that the reference's inliner reads."""
OUTPUT = "StatefulPartitionedCall"
COLUMNS = 33
LEAST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Dense layers: weight [I, O], bias [O], ReLU between them."""

    layers: Sequence[tuple[np.ndarray, np.ndarray]]

    def logits(self, inputs: np.ndarray) -> np.ndarray:
        """Outputs [T, O] of inputs [T, I]."""
        for number, (weight, bias) in enumerate(self.layers):
            inputs = (np.maximum(inputs, 0) if number else inputs) @ weight + bias
        return inputs


def drawn_weights(rng: np.random.Generator, *widths: int) -> Weights:
    """Layers from each width to the next."""
    return Weights(
        layers=[
            (
                (rng.normal(size=(before, after)) / np.sqrt(before)).astype(np.float32),
                rng.normal(size=after).astype(np.float32) / 4,
            )
            for before, after in itertools.pairwise(widths)
        ]
    )


def ranked(
    builder: GraphBuilder, value: int, boundaries: np.ndarray, rows: tuple[int, ...], *, sqrt: bool = False
) -> int:
    """x, x * x, and if asked sqrt(x), side by side in a last dimension, by the reference's operators."""
    shape = (*rows, 1)
    value = builder.reshape(value, shape)
    ranks = builder.add("BUCKETIZE", [value], shape, INT32, Boundaries=boundaries.astype(np.float32))
    floats = builder.add("CAST", [ranks], shape, InDataType=2, OutDataType=0)
    x = builder.add("MUL", [floats, builder.floats(1 / len(boundaries))], shape)
    parts = [x, builder.add("MUL", [x, x], shape)]
    if sqrt:
        parts.append(builder.add("SQRT", [x], shape))
    return builder.add("CONCATENATION", parts, (*rows, len(parts)), Axis=-1)


def network(builder: GraphBuilder, rows: int, weights: Weights) -> int:
    """Dense layers on ``rows``."""
    for number, (weight, bias) in enumerate(weights.layers):
        rows = builder.dense(rows, weight, bias, relu=number + 1 < len(weights.layers))
    return rows


def inline_model(
    vocab: Mapping[str, Boundaries], weights: Weights, *, draws: bool = False, sqrt: bool = False
) -> Graph:
    """The reference's network for inlining, greedy or one that draws its decisions."""
    builder = GraphBuilder()
    inputs = {name: builder.input(f"action_{name}:0", INT64, (1,)) for name in sorted(vocab)}
    for name, dtype in (("discount", FLOAT), ("reward", FLOAT), ("step_type", INT32)):
        builder.input(f"action_{name}:0", dtype, (1,))
    parts = [ranked(builder, value, vocab[name], (1,), sqrt=sqrt) for name, value in inputs.items()]
    rows = builder.add("CONCATENATION", parts, (1, (3 if sqrt else 2) * len(parts)), Axis=-1)
    logits = network(builder, rows, weights)
    if draws:
        drawn = builder.add("MULTINOMIAL", [logits, builder.constant(np.array(1, INT32))], (1, 1), INT64)
        decision = builder.reshape(drawn, (1,), name=f"{OUTPUT}:1")
        outputs = [builder.reshape(logits, (1, 2), name=f"{OUTPUT}:0"), decision]
        return builder.finish(outputs)
    found = builder.add("ARG_MAX", [logits, builder.integers(-1)], (1,), INT64, OutputType=4)
    low = builder.add("MAXIMUM", [found, builder.constant(np.array(0, INT64))], (1,), INT64)
    outputs = [builder.add("MINIMUM", [low, builder.constant(np.array(1, INT64))], (1,), INT64, name=f"{OUTPUT}:0")]
    return builder.finish(outputs)


def inline_inputs(raw: Mapping[str, np.ndarray], vocab: Mapping[str, Boundaries]) -> np.ndarray:
    """What the reference's first layer reads, [T, 2 F]."""
    columns: list[np.ndarray] = []
    for name in sorted(vocab):
        ranks = np.searchsorted(vocab[name].astype(np.float32), raw[name].astype(np.float32), side="right")
        share = ranks.astype(np.float32) * np.float32(1 / len(vocab[name]))
        columns += [share, share * share]
    return np.stack(columns, axis=1)


IDENTITY = ("is_free", "is_hint", "is_local")
DISCARDED = ("mask", "nr_urgent")
STAGES = ("max_stage", "min_stage")
RANKED = tuple(
    name
    for name in REGALLOC_EVICTION.feature_names
    if name not in {*IDENTITY, *DISCARDED, *STAGES, "use_def_density", "progress"}
)
CATEGORIES, EMBEDDING = 7, 4
COLUMN_WIDTH = 3 + 2 + 2 * EMBEDDING + 2 * len(RANKED) + 3 + 2


def eviction_model(
    vocab: Mapping[str, Boundaries], embeddings: Mapping[str, np.ndarray], weights: Weights, *, columns: int = COLUMNS
) -> Graph:
    """The reference's network for eviction, greedy."""
    builder = GraphBuilder()
    inputs = {
        feature.name: builder.input(
            f"action_{feature.name}:0",
            INT64 if feature.type == "int64_t" else FLOAT,
            (1, columns) if feature.per_column else (1,),
        )
        for feature in sorted(REGALLOC_EVICTION.features, key=lambda feature: feature.name)
    }
    shape = (1, columns)
    parts: list[int] = []
    for name in sorted(inputs):
        value = inputs[name]
        if name in DISCARDED:
            parts.append(builder.constant(np.zeros((*shape, 1), FLOAT)))
        elif name in IDENTITY:
            parts.append(builder.add("EXPAND_DIMS", [builder.cast(value, FLOAT), builder.integers(-1)], (*shape, 1)))
        elif name in STAGES:
            table = builder.constant(embeddings[name].astype(FLOAT))
            parts.append(builder.add("GATHER", [table, value], (*shape, EMBEDDING), Axis=0))
        elif name == "use_def_density":
            size = builder.add("ABS", [value], shape)
            infinite = builder.add("EQUAL", [size, builder.floats(np.inf)], shape, BOOL)
            ones = builder.constant(np.ones((1, columns), FLOAT))
            finite = builder.add("SELECT_V2", [infinite, ones, value], shape)
            parts.append(builder.reshape(builder.cast(infinite, FLOAT), (*shape, 1)))
            parts.append(ranked(builder, finite, vocab[name], shape))
        elif name == "progress":
            tiled = builder.add("TILE", [builder.reshape(value, (1, 1)), builder.integers(1, columns)], shape)
            parts.append(ranked(builder, tiled, vocab[name], shape))
        else:
            parts.append(ranked(builder, value, vocab[name], shape))
    rows = builder.reshape(builder.add("CONCATENATION", parts, (*shape, COLUMN_WIDTH), Axis=2), (columns, COLUMN_WIDTH))
    logits = builder.reshape(network(builder, rows, weights), shape)
    allowed = builder.cast(inputs["mask"], BOOL)
    masked = builder.add("SELECT_V2", [allowed, logits, builder.constant(np.full(shape, LEAST, FLOAT))], shape)
    decision = builder.add("ARG_MAX", [masked, builder.integers(-1)], (1,), INT64, name=f"{OUTPUT}:0", OutputType=4)
    return builder.finish([decision])

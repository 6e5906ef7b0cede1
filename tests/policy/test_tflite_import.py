"""Models with the reference's structure become policies that decide alike; others, and damaged ones, are sentences."""

import dataclasses
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlgokit.commands.import_policy import ImportPolicy, run
from mlgokit.errors import InputError, ToolError, UsageError
from mlgokit.policy.network import OutputKind
from mlgokit.policy.store import load_policy, policy_bytes
from mlgokit.policy.tflite.compare import compare
from mlgokit.policy.tflite.evaluate import evaluate
from mlgokit.policy.tflite.file import graph_bytes, read_graph
from mlgokit.policy.tflite.graph import BOOL, FLOAT, INT32, INT64, Graph, GraphBuilder, Operator
from mlgokit.policy.tflite.read_policy import read_policy
from mlgokit.policy.tflite.write_policy import write_policy

SMALL = ("callee_users", "cost_estimate", "node_count")
BENCHMARK_SEED = 5


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(BENCHMARK_SEED)


def counts(rng: np.random.Generator, lines: int) -> np.ndarray:
    """Boundaries as of a counter: whole numbers, many of them several times, some below 0."""
    return np.sort(np.rint(np.exp(rng.normal(3, 2, lines))) - 5)


def small_model(models: ModuleType, rng: np.random.Generator, *, lines: int = 40, **options: bool) -> Graph:
    vocab = {name: counts(rng, lines) for name in SMALL}
    width = (3 if options.get("sqrt") else 2) * len(SMALL)
    return models.inline_model(vocab, models.drawn_weights(rng, width, 8, 2), **options)


def test_the_references_network_for_inlining_decides_alike(models: ModuleType, rng: np.random.Generator):
    vocab = {name: counts(rng, 9999 if name == "callsite_cost" else 999) for name in models.INLINE_FEATURES}
    weights = models.drawn_weights(rng, 70, 40, 40, 20, 2)
    model = models.inline_model(vocab, weights)

    graph = read_graph(graph_bytes(model), "model")
    read = read_policy(graph, "model")

    # As the reference's own file has them.
    assert Counter(operator.kind for operator in graph.operators) == {
        "RESHAPE": 35, "BUCKETIZE": 35, "CAST": 35, "MUL": 70, "CONCATENATION": 36, "FULLY_CONNECTED": 4,
        "ARG_MAX": 1, "MINIMUM": 1, "MAXIMUM": 1,
    }  # fmt: skip
    assert len(graph.inputs) == 38
    raw = {name: rng.choice(counts(rng, 999), 2000).astype(np.int64) for name in vocab}
    logits = weights.logits(models.inline_inputs(raw, vocab))
    expected = logits[:, 1].astype(np.float64) - logits[:, 0]
    found = read.policy.preferences(np.stack([raw[name] for name in read.policy.features], axis=1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert read.policy.problem == "inline-size"
    assert read.features == tuple(sorted(models.INLINE_FEATURES))
    assert read.error < 1e-6
    assert not read.draws
    assert compare(model, read.policy, rng, observations=20, origin="model") == 0


def test_the_references_network_for_eviction_decides_alike(models: ModuleType, rng: np.random.Generator):
    ranked = (*models.RANKED, "use_def_density", "progress")
    vocab = {name: np.sort(rng.random(1000) * 3) for name in ranked}
    embeddings = {name: rng.normal(size=(7, 4)) for name in models.STAGES}
    model = models.eviction_model(vocab, embeddings, models.drawn_weights(rng, models.COLUMN_WIDTH, 80, 40, 1))

    read = read_policy(read_graph(graph_bytes(model), "model"), "model")

    assert read.policy.output is OutputKind.COLUMN_LOGIT
    assert read.policy.mask == "mask"
    assert set(read.features) == {*ranked, *models.IDENTITY, *models.STAGES}
    assert compare(model, read.policy, rng, observations=60, origin="model") == 0
    # NaN too is the same in the model that is written of it.
    written = write_policy(read.policy).graph
    assert compare(written, read.policy, rng, observations=20, origin="written") == 0


@pytest.mark.parametrize("options", [{"draws": True}, {"sqrt": True}])
def test_a_model_that_draws_and_one_with_square_roots_are_read(
    models: ModuleType, rng: np.random.Generator, options: dict[str, bool]
):
    model = small_model(models, rng, **options)

    read = read_policy(model, "model")

    assert read.draws is options.get("draws", False)
    assert compare(model, read.policy, rng, observations=60, origin="model") == 0
    assert policy_bytes(read.policy) == policy_bytes(read_policy(model, "model").policy)


def test_a_file_that_is_written_is_read_as_it_was(models: ModuleType, rng: np.random.Generator):
    model = small_model(models, rng)

    data = graph_bytes(model)

    again = read_graph(data, "model")
    assert graph_bytes(again) == data
    assert [operator.kind for operator in again.operators] == [operator.kind for operator in model.operators]


def replaced(model: Graph, which: str, **changes: Any) -> Graph:
    operators = tuple(
        dataclasses.replace(operator, **changes) if operator.kind == which else operator for operator in model.operators
    )
    return dataclasses.replace(model, operators=operators)


def test_an_unknown_operator_is_named(models: ModuleType, rng: np.random.Generator):
    model = replaced(small_model(models, rng), "MUL", kind="FLOOR_MOD")

    with pytest.raises(
        InputError, match=r"^model m\.tflite: operator FLOOR_MOD: expected one of .*found another; conv"
    ):
        read_policy(read_graph(graph_bytes(model), "m.tflite"), "m.tflite")
    with pytest.raises(InputError, match="operator FLOOR_MOD: expected one of"):
        evaluate(model, {})


def one_feature(
    name: str, *, ranked: bool, decides: bool = True, rank_twice: bool = False, scored: bool = False
) -> Graph:
    builder = GraphBuilder()
    value = builder.input(f"action_{name}:0", INT64, (1,))
    other = builder.input("action_node_count:0", INT64, (1,))
    ranks = [
        builder.add("BUCKETIZE", [each], (1,), INT32, Boundaries=np.array([1, 2], FLOAT)) for each in (value, other)
    ]
    number = builder.cast(ranks[0] if ranked else value, FLOAT)
    if scored:
        number = builder.add("SUB", [number, builder.floats(2.5)], (1,))
    if rank_twice:
        number = builder.add("ADD", [number, builder.cast(ranks[1], FLOAT)], (1,))
    logits = builder.dense(builder.reshape(number, (1, 1)), np.ones((1, 2)), np.zeros(2))
    if not decides:
        return builder.finish([logits])
    return builder.finish([builder.add("ARG_MAX", [logits, builder.integers(-1)], (1,), INT64, OutputType=4)])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one_feature("callee_users", ranked=False), "expected ranks, categories or 0 and 1 of callee_users before the"),
        (
            one_feature("callee_users", ranked=False, scored=True),
            (
                "found callee_users: SUB of a raw feature value; a policy file can represent only ranks among "
                "boundaries and categories.*; see docs/how-to/tflite.md for"
            ),
        ),
        (
            one_feature("network_state_0", ranked=True),
            "input network_state_0: expected features only, found the state of a recurrent network, .*; convert a",
        ),
        (
            one_feature("callee_users", ranked=True, rank_twice=True),
            r"depends on callee_users\[0\] and node_count\[0\], not on one",
        ),
        (
            one_feature("callee_embedding", ranked=True),
            "input action_callee_embedding: expected a feature of LLVM's .*IR",
        ),
        (
            one_feature("colour", ranked=True),
            "input action_colour: expected a feature of LLVM's for inline-size, found an",
        ),
        (
            one_feature("callee_users", ranked=True, decides=False),
            "expected exactly one operator ARG_MAX or MULTINOMIAL, whose result is the decision, found",
        ),
    ],
)
def test_what_a_policy_cannot_have_is_said(model: Graph, message: str):
    with pytest.raises(InputError, match=message):
        read_policy(model, "model")


@pytest.mark.parametrize(
    ("kind", "options", "again", "message"),
    [
        ("ADD", {"FusedActivationFunction": 3}, False, "fused activation 3, which is neither none"),
        ("SOFTMAX", {"Beta": 1.0}, True, "an operator after a dense layer that cannot be merged"),
    ],
)
def test_an_operator_that_changes_the_answer_is_not_left_out(
    kind: str, options: dict[str, Any], again: bool, message: str
):
    builder = GraphBuilder()
    value = builder.input("action_callee_users:0", INT64, (1,))
    rank = builder.add("BUCKETIZE", [value], (1,), INT32, Boundaries=np.array([1, 2], FLOAT))
    dense = builder.dense(builder.reshape(builder.cast(rank, FLOAT), (1, 1)), np.ones((1, 2)), np.zeros(2))
    logits = builder.add(kind, [dense, builder.floats(1.0)] if kind == "ADD" else [dense], (1, 2), **options)
    if again:
        logits = builder.dense(logits, np.ones((2, 2)), np.zeros(2))
    model = builder.finish([builder.add("ARG_MAX", [logits, builder.integers(-1)], (1,), INT64, OutputType=4)])
    with pytest.raises(InputError, match=message):
        read_policy(model, "model")


def test_layers_whose_product_would_fill_memory_are_refused():
    builder = GraphBuilder()
    value = builder.input("action_callee_users:0", INT64, (1,))
    rank = builder.cast(builder.add("BUCKETIZE", [value], (1,), INT32, Boundaries=np.array([1, 2], FLOAT)), FLOAT)
    tiled = builder.add("TILE", [builder.reshape(rank, (1, 1)), builder.integers(1, 2048)], (1, 2048), FLOAT)
    narrow = builder.dense(tiled, np.ones((2048, 1)), np.zeros(1))
    wide = builder.dense(narrow, np.ones((1, 2**18)), np.zeros(2**18))
    logits = builder.dense(wide, np.ones((2**18, 2)), np.zeros(2))
    model = builder.finish([builder.add("ARG_MAX", [logits, builder.integers(-1)], (1,), INT64, OutputType=4)])
    with pytest.raises(InputError, match="expected at most 1048576 weights between two activations, found 536870912"):
        read_policy(model, "model")


def test_a_feature_of_0_and_1_may_be_read_as_it_is(rng: np.random.Generator):
    model = one_feature("is_callee_avail_external", ranked=False)

    assert compare(model, read_policy(model, "model").policy, rng, observations=8, origin="model") == 0


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_damage_is_a_sentence(models: ModuleType, rng: np.random.Generator, count: int):
    data = graph_bytes(small_model(models, rng, lines=6))
    outcomes: dict[bool, int] = {True: 0, False: 0}

    for number in range(count):
        changed = bytearray(data)
        if number % 4 == 0:
            del changed[int(rng.integers(len(data))) :]
        for place in rng.integers(0, max(1, len(changed)), int(rng.integers(1, 6))):
            if place < len(changed):
                changed[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
        try:
            graph = read_graph(bytes(changed), "model")
            policy = read_policy(graph, "model").policy
            compare(graph, policy, rng, observations=number % 20 == 1, origin="model")
            outcomes[True] += 1
        except InputError:
            outcomes[False] += 1

    assert outcomes[False] > count / 4
    assert outcomes[True] > count / 200


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\0" * 64, b"\x20\0\0\0TFL3" + b"\xff" * 64])
def test_what_is_no_model_is_said(data: bytes):
    with pytest.raises(InputError, match=r"^model here: expected a (whole )?TFLite model"):
        read_graph(data, "here")


def test_a_tile_that_would_fill_memory_is_refused():
    builder = GraphBuilder()
    value = builder.input("action_callee_users:0", INT64, (1, 1))
    tiled = builder.add("TILE", [value, builder.integers(1 << 30, 1 << 30)], (1, 1), INT64)
    model = builder.finish([tiled])

    with pytest.raises(InputError, match=r"operator TILE with output .*: expected inputs and options that fit it"):
        evaluate(model, {}, origin="model")


def test_a_tensor_that_nobody_makes_is_said():
    builder = GraphBuilder()
    value = builder.input("action_callee_users:0", INT64, (1,))
    model = builder.finish([builder.add("ABS", [value], (1,), INT64)])
    broken = dataclasses.replace(model, operators=(Operator(kind="ABS", inputs=(1,), outputs=(1,)),))

    with pytest.raises(InputError, match="tensor 'abs0': expected a value before an operator reads it, found none"):
        evaluate(broken, {}, origin="model")


def test_a_choice_by_a_draw_is_what_is_not_drawn():
    builder = GraphBuilder()
    value = builder.input("action_callee_users:0", INT64, (1,))
    uniform = builder.add("RANDOM_UNIFORM", [builder.integers(1)], (1,))
    explores = builder.add("LESS", [uniform, builder.floats(0.1)], (1,), BOOL)
    decision = builder.add("SELECT", [explores, builder.cast(uniform, INT64), value], (1,), INT64, name="decision")
    either = builder.add("SELECT", [explores, value, builder.integers(3)], (1,), INT64)
    model = builder.finish([uniform, decision, either])

    assert evaluate(model, {"action_callee_users:0": np.array([7])}) == {"decision": 7}


def test_the_command_writes_a_policy_and_compares(models: ModuleType, rng: np.random.Generator, tmp_path: Path):
    (tmp_path / "model.tflite").write_bytes(graph_bytes(small_model(models, rng)))
    output = tmp_path / "my own.policy"

    found = run(ImportPolicy(model=tmp_path, output=output, compare=10))

    assert load_policy(output).problem == found["problem"] == "inline-size"
    assert (found["observations_compared"], found["decisions_differing"]) == (10, 0)
    assert found["next"] == f"mlgokit export plugin '{output}'"
    with pytest.raises(InputError, match=r"model .*none: expected a readable file, found: No such file"):
        run(ImportPolicy(model=tmp_path / "none"))
    with pytest.raises(UsageError, match="--compare: expected 0 or more observations, found -1"):
        run(ImportPolicy(model=tmp_path, compare=-1))


def test_without_the_extra_the_sentence_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tflite", None)

    with pytest.raises(ToolError, match=r"found none; install the extra mlgokit\[tflite\], or both with `pip"):
        read_graph(b"\0" * 8, "model")

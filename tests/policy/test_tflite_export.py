"""A policy as a TFLite model gives the same logits and decisions; what LLVM does not send is a sentence."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.errors import PolicyError, UsageError
from mlgokit.export.tflite import export_tflite
from mlgokit.policy.exploration import Exploration, choose_column, priority_of
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.policy.tflite.evaluate import evaluate
from mlgokit.policy.tflite.file import graph_bytes, read_graph
from mlgokit.policy.tflite.graph import Graph
from mlgokit.policy.tflite.write_policy import write_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem

NAMES = {
    INLINE_SIZE: ("node_count", "callee_users", "cost_estimate", "is_callee_avail_external"),
    REGALLOC_EVICTION: ("is_hint", "max_stage", "use_def_density", "progress"),
    REGALLOC_PRIORITY: ("li_size", "stage", "weight"),
}
DECISION, LOGITS = "StatefulPartitionedCall:0", "StatefulPartitionedCall:0"
Values = dict[str, np.ndarray]


def drawn(rng: np.random.Generator, problem: Problem, columns: int) -> Values:
    """Raw values of all features of a problem, as they may come from LLVM."""
    found: Values = {}
    for feature in problem.features:
        shape = (1, columns) if feature.per_column else (1,)
        if feature.type == "int64_t":
            values = (
                rng.integers(0, 2, shape)
                if feature.name in {"mask", "is_hint"}
                else np.rint(np.exp(rng.normal(3, 2, shape)))
            )
            found[feature.name] = values.astype(np.int64) * (-1 if feature.name == "cost_estimate" else 1)
        else:
            values = rng.random(shape).astype(np.float32)
            if feature.name == "use_def_density":
                values[rng.random(shape) < 0.2] = rng.choice([np.inf, np.nan])
            found[feature.name] = values
    if problem.mask:
        found[problem.mask][0, 3] = 1
    return found


def policy_of(
    problem: Problem, output: OutputKind, *, quantile: bool = False, members: int = 3, **settings: Any
) -> Policy:
    rng = np.random.default_rng(11)
    names = NAMES[problem]
    values = [drawn(rng, problem, 5) for _ in range(400)]
    table = np.stack([[float(np.nan_to_num(one[name].ravel()[0], posinf=9)) for name in names] for one in values])
    normaliser = fit_quantile(table, count=60) if quantile else fit_signed_log(table)
    widths = (normaliser.width, 12, 6, output.width)
    layers = [
        Layer(
            rng.normal(size=(members, before, after)).astype(np.float32),
            rng.normal(size=(members, after)).astype(np.float32),
        )
        for before, after in itertools.pairwise(widths)
    ]
    return Policy(
        problem=problem.name,
        features=names,
        normaliser=normaliser,
        layers=tuple(layers),
        output=output,
        mask=problem.mask or "",
        **settings,
    )


def given(graph: Graph, values: Values) -> Values:
    return {
        graph.tensors[index].name: values[name]
        for index in graph.inputs
        if (name := graph.input_name(index)[7:]) in values
    }


def row_of(policy: Policy, values: Values, columns: int) -> np.ndarray:
    return np.stack([np.broadcast_to(values[name].ravel(), columns) for name in policy.features], axis=1).astype(
        np.float64
    )


CASES = [
    {"output": OutputKind.EFFECT_BYTES, "bytes_per_unit": 5.0},
    {"output": OutputKind.EFFECT_BYTES, "quantile": True},
    {"output": OutputKind.LOGITS, "members": 1},
    {"output": OutputKind.EFFECT_BYTES, "doubt": 0.7},
    {"output": OutputKind.EFFECT_BYTES, "gate": Gate(feature="is_callee_avail_external", margins=(np.inf, 2.0))},
    {
        "output": OutputKind.EFFECT_BYTES,
        "doubt": 0.2,
        "gate": Gate(feature="is_callee_avail_external", margins=(0.0, 1.0)),
    },
]


@pytest.mark.parametrize("settings", CASES)
def test_inlining_has_the_same_preference_and_decision(settings: dict[str, Any]):
    policy = policy_of(INLINE_SIZE, **settings)
    rng = np.random.default_rng(1)
    greedy = write_policy(policy).graph
    draws = write_policy(policy, draws=True).graph

    for _ in range(60):
        values = drawn(rng, INLINE_SIZE, 1)
        values["inlining_default"] = rng.integers(0, 2, 1)
        preference = policy.preferences(row_of(policy, values, 1), values["inlining_default"] != 0)[0]

        assert evaluate(greedy, given(greedy, values))[DECISION].tolist() == [int(preference > 0)]
        logits = evaluate(draws, given(draws, values))[LOGITS][0]
        assert logits[1] - logits[0] == pytest.approx(preference, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("quantile", [False, True])
def test_eviction_has_the_same_logits_and_decision(quantile: bool):
    policy = policy_of(REGALLOC_EVICTION, OutputKind.COLUMN_LOGIT, quantile=quantile, caution=0.5)
    rng = np.random.default_rng(1)
    greedy = write_policy(policy, columns=7).graph
    draws = write_policy(policy, columns=7, draws=True).graph

    for _ in range(40):
        values = drawn(rng, REGALLOC_EVICTION, 7)
        expected = policy.column_logits(row_of(policy, values, 7)[None])[0]
        mask = values["mask"].ravel().tolist()

        decision = choose_column(expected.tolist(), mask, Exploration(), 0.5, 0.5)[0]
        assert evaluate(greedy, given(greedy, values))[DECISION].tolist() == [decision]
        logits = evaluate(draws, given(draws, values))[LOGITS][0]
        np.testing.assert_allclose(logits[np.array(mask) != 0], expected[np.array(mask) != 0], rtol=1e-6, atol=1e-5)
        assert (logits[np.array(mask) == 0] == np.finfo(np.float32).min).all()


def test_a_priority_is_the_same_but_for_the_last_bits_of_a_float():
    policy = policy_of(REGALLOC_PRIORITY, OutputKind.PRIORITY)
    rng = np.random.default_rng(1)
    graph = write_policy(policy).graph

    for _ in range(40):
        values = drawn(rng, REGALLOC_PRIORITY, 1)
        unit = policy.units(row_of(policy, values, 1))[0]
        assert evaluate(graph, given(graph, values))[DECISION][0] == pytest.approx(priority_of(unit), rel=1e-5, abs=1e4)


def test_llvm_finds_inputs_by_their_place_and_outputs_by_their_names(tmp_path: Path):
    save_policy(policy_of(INLINE_SIZE, OutputKind.LOGITS), tmp_path / "policy")

    greedy = export_tflite(tmp_path / "policy", tmp_path / "greedy")
    collect = export_tflite(tmp_path / "policy", tmp_path / "collect", collect=True)

    graph = read_graph((tmp_path / "greedy" / "model.tflite").read_bytes(), "greedy")
    # LLVM's development mode takes a place among the inputs for a tensor's number.
    assert graph.inputs == tuple(range(len(graph.inputs)))
    assert [graph.tensors[index].name for index in graph.inputs][-3:] == [
        "action_discount:0",
        "action_reward:0",
        "action_step_type:0",
    ]
    assert {graph.tensors[index].dtype.str for index in graph.inputs[:4]} == {"<i8"}
    assert json.loads((tmp_path / "greedy" / "output_spec.json").read_text()) == [
        {
            "logging_name": "inlining_decision",
            "tensor_spec": {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t", "shape": [1]},
        }
    ]
    names = ("inlining_decision", "CategoricalProjectionNetwork_logits")
    assert (greedy.outputs, collect.outputs) == (names[:1], names)
    graph = read_graph((tmp_path / "collect" / "model.tflite").read_bytes(), "collect")
    specification = json.loads((tmp_path / "collect" / "output_spec.json").read_text())
    outputs = {graph.tensors[index].name: graph.tensors[index] for index in graph.outputs}
    assert [entry["logging_name"] for entry in specification] == list(names)
    for entry in specification:
        spec = entry["tensor_spec"]
        tensor = outputs[f"{spec['name']}:{spec['port']}"]
        assert (list(tensor.shape), tensor.dtype.kind == "f") == (spec["shape"], spec["type"] == "float")


def test_what_llvm_does_not_send_is_refused(tmp_path: Path):
    plain = policy_of(INLINE_SIZE, OutputKind.EFFECT_BYTES)
    save_policy(dataclasses.replace(plain, features=("callee_is_discardable", *plain.features[1:])), tmp_path / "own")
    save_policy(dataclasses.replace(plain, doubt=1.0), tmp_path / "doubt")
    save_policy(policy_of(REGALLOC_PRIORITY, OutputKind.PRIORITY), tmp_path / "priority")

    with pytest.raises(
        PolicyError, match=r"found 'callee_is_discardable', which only the plugin computes; train one with .*llvm"
    ):
        export_tflite(tmp_path / "own", tmp_path / "out")
    with pytest.raises(
        UsageError, match=r"its gate or doubt leaves decisions to LLVM's heuristic, .* --heuristic input if"
    ):
        export_tflite(tmp_path / "doubt", tmp_path / "out")
    with pytest.raises(UsageError, match="found one of priorities; export it without --collect"):
        export_tflite(tmp_path / "priority", tmp_path / "out", collect=True)
    with pytest.raises(UsageError, match=r"--columns: expected 2 to 1024 columns, found 1"):
        export_tflite(tmp_path / "priority", tmp_path / "out", columns=1)
    assert not (tmp_path / "out").exists()
    assert export_tflite(tmp_path / "doubt", tmp_path / "out", heuristic="input").problem == "inline-size"


def test_tflite_itself_computes_the_same():
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter",
        reason="ai-edge-litert is not installed; benchmarks/tflite_agreement.py needs it too",
    )
    policy = policy_of(INLINE_SIZE, OutputKind.EFFECT_BYTES, doubt=0.3)
    graph = write_policy(policy, draws=True).graph
    rng = np.random.default_rng(1)
    model = interpreter.Interpreter(model_content=graph_bytes(graph))
    model.allocate_tensors()
    places = {detail["name"]: detail["index"] for detail in model.get_input_details()}
    logits = next(detail["index"] for detail in model.get_output_details() if detail["name"] == LOGITS)

    for _ in range(100):
        values = drawn(rng, INLINE_SIZE, 1)
        values["inlining_default"] = rng.integers(0, 2, 1)
        for name, value in given(graph, values).items():
            model.set_tensor(places[name], value)
        model.invoke()
        np.testing.assert_allclose(
            model.get_tensor(logits), evaluate(graph, given(graph, values))[LOGITS], rtol=1e-6, atol=1e-5
        )

"""Files that the reference's own saver wrote become policies that decide as TFLite's own interpreter does.

``saved_policies.txt`` has four. A folder of others is compared on 10,000 observations each, if ``MLGOKIT_TFLITE_FILES``
names it.
"""

import base64
import dataclasses
import importlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlgokit.errors import InputError
from mlgokit.policy.network import OutputKind
from mlgokit.policy.store import policy_bytes
from mlgokit.policy.tflite.compare import compare, decisions_of, draw_observations
from mlgokit.policy.tflite.evaluate import UNIFORM_DRAWS
from mlgokit.policy.tflite.file import graph_bytes, read_graph
from mlgokit.policy.tflite.graph import Array, Graph
from mlgokit.policy.tflite.network import DECISIONS
from mlgokit.policy.tflite.read_policy import ReadPolicy, read_policy

BINARY, COLUMN = OutputKind.LOGITS, OutputKind.COLUMN_LOGIT
SAVED = {
    "inlining_ppo/saved_policy": (BINARY, 35, False),
    "inlining_dqn/saved_collect_policy": (BINARY, 35, True),
    "eviction_ppo/saved_collect_policy": (COLUMN, 19, True),
    "eviction_bc/saved_collect_policy": (COLUMN, 19, True),
}
"""What each policy decides, how many features it reads, and whether it draws."""
FOLDER = os.environ.get("MLGOKIT_TFLITE_FILES", "")
FILES = sorted(Path(FOLDER).rglob("*.tflite")) if FOLDER else []


@pytest.fixture(scope="module")
def saved() -> dict[str, bytes]:
    text = (Path(__file__).parent / "saved_policies.txt").read_text()
    data = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("#")))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.removesuffix("/model.tflite"): file.read() for name, file in files.items() if file}


@pytest.fixture
def interpreter() -> ModuleType:
    return pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")


def up_to_the_logits(graph: Graph) -> Graph:
    """The network of a policy that draws, without what draws: TFLite has no ``RandomUniformInt``."""
    drawn, operators = set[int](), []
    for operator in graph.operators:
        if operator.kind in (*UNIFORM_DRAWS, *DECISIONS) or not drawn.isdisjoint(operator.inputs):
            drawn.update(operator.outputs)
        else:
            operators.append(operator)
    (deciding,) = (operator for operator in graph.operators if operator.kind in DECISIONS)
    return dataclasses.replace(graph, operators=tuple(operators), outputs=deciding.inputs[:1])


def decider(interpreter: ModuleType, data: bytes, read: ReadPolicy) -> Callable[[Mapping[str, Array]], int]:
    """What TFLite says of an observation; of a policy that draws, which decision is the likeliest."""
    content = graph_bytes(up_to_the_logits(read_graph(data, "model"))) if read.draws else data
    model = interpreter.Interpreter(model_content=content)
    model.allocate_tensors()
    inputs = model.get_input_details()
    (output,) = model.get_output_details()

    def decide(observation: Mapping[str, Array]) -> int:
        for detail in inputs:
            value = observation.get(detail["name"].removeprefix("action_").removesuffix(":0"))
            if value is not None:
                model.set_tensor(detail["index"], value.reshape(detail["shape"]))
        model.invoke()
        found = model.get_tensor(output["index"])
        return int(found.argmax() if read.draws else found.item())

    return decide


def differing(interpreter: ModuleType, data: bytes, observations: int) -> tuple[int, set[int]]:
    """In how many observations TFLite decides otherwise than the policy, and what was decided."""
    graph = read_graph(data, "model")
    read = read_policy(graph, "model")
    decide, rng = decider(interpreter, data, read), np.random.default_rng(3)
    found: list[tuple[int, int]] = []
    while len(found) < observations:
        drawn = draw_observations(graph, read.policy, rng, min(500, observations - len(found)))
        found += zip(map(decide, drawn), decisions_of(read.policy, drawn), strict=True)
    return sum(theirs != ours for theirs, ours in found), {ours for _, ours in found}


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_policy_decides_as_tflite_itself(saved: dict[str, bytes], interpreter: ModuleType, name: str):
    count, decided = differing(interpreter, saved[name], 100)

    assert count == 0
    assert len(decided) > 1


@pytest.mark.skipif(not FILES, reason="MLGOKIT_TFLITE_FILES names no folder with TFLite files")
@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_of_the_folder_decides_as_tflite_itself(interpreter: ModuleType, path: Path):
    assert differing(interpreter, path.read_bytes(), 10_000)[0] == 0


@pytest.mark.parametrize("name", SAVED)
def test_what_a_saved_policy_is(saved: dict[str, bytes], name: str):
    graph = read_graph(saved[name], "model")

    read = read_policy(graph, "model")

    assert (read.policy.output, len(read.features), read.draws) == SAVED[name]
    assert compare(graph, read.policy, np.random.default_rng(1), observations=20, origin="model") == 0


def repacked(data: bytes, change: Callable[[Any], None]) -> bytes:
    """A model after a change, by the schema's classes in TFLite's own package."""
    schema: Any = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="ai-edge-litert is not installed")
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    change(model)
    builder: Any = importlib.import_module("flatbuffers").Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def turned(model: Any) -> None:
    model.subgraphs.reverse()
    for signature in model.signatureDefs:
        signature.subgraphIndex = len(model.subgraphs) - 1 - signature.subgraphIndex


def unsigned(model: Any) -> None:
    model.signatureDefs = []


def of_another_subgraph(model: Any) -> None:
    model.signatureDefs[0].subgraphIndex = 7


def empty(model: Any) -> None:
    model.subgraphs = []
    model.signatureDefs = []


@pytest.mark.parametrize("change", [turned, unsigned])
def test_the_subgraph_that_decides_is_found_by_its_signature(saved: dict[str, bytes], change: Callable[[Any], None]):
    data = saved["eviction_ppo/saved_collect_policy"]
    expected = policy_bytes(read_policy(read_graph(data, "model"), "model").policy)

    found = read_policy(read_graph(repacked(data, change), "model"), "model")

    assert policy_bytes(found.policy) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_another_subgraph, r"expected the decision in subgraph 7, found 4 subgraphs"),
        (empty, r"expected the decision in subgraph 0, found 0 subgraphs"),
    ],
)
def test_a_subgraph_that_is_not_there_is_said(saved: dict[str, bytes], change: Callable[[Any], None], message: str):
    with pytest.raises(InputError, match=rf"^model m: expected a whole TFLite model, .*{message}"):
        read_graph(repacked(saved["eviction_bc/saved_collect_policy"], change), "m")


def test_damage_to_a_saved_policy_is_a_sentence(saved: dict[str, bytes]):
    data, rng = saved["eviction_bc/saved_collect_policy"], np.random.default_rng(5)
    outcomes = {True: 0, False: 0}

    for number in range(60):
        changed = bytearray(data)
        for place in rng.integers(0, len(changed), int(rng.integers(1, 4))):
            changed[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
        try:
            graph = read_graph(bytes(changed), "model")
            read = read_policy(graph, "model")
            compare(graph, read.policy, rng, observations=number % 10 == 1, origin="model")
            outcomes[True] += 1
        except InputError:
            outcomes[False] += 1

    assert min(outcomes.values()) >= 10

"""Export a policy as a model folder for LLVM's development mode: ``model.tflite`` and ``output_spec.json``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.policy.pretrained import policy_name
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import check_exportable_to_llvm
from mlgokit.policy.tflite.file import graph_bytes
from mlgokit.policy.tflite.write_policy import write_policy
from mlgokit.problems import PROBLEMS

MODEL = "model.tflite"
OUTPUT_SPEC = "output_spec.json"
Heuristic = Literal["refuse", "input"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """An exported TFLite model.

    Attributes:
        folder: folder with the model and the specification of its outputs.
        problem: name of the problem that the model decides.
        model_bytes: size of the model.
        inputs: number of input tensors.
        outputs: names under which LLVM logs the output tensors, the decision first.
    """

    folder: str
    problem: str
    model_bytes: int
    inputs: int
    outputs: tuple[str, ...]


def export_tflite(
    path: Path, folder: Path, *, collect: bool = False, columns: int = 33, heuristic: Heuristic = "refuse"
) -> ExportedModel:
    """Convert the policy at ``path`` to TFLite and write it into ``folder``.

    Args:
        path: path of the policy file.
        folder: output folder for ``model.tflite`` and ``output_spec.json``; other files in it are kept.
        collect: whether the model samples decisions and outputs their logits, as ``saved_collect_policy`` of
            google/ml-compiler-opt.
        columns: number of eviction candidates, for an eviction policy.
        heuristic: for a policy that leaves some decisions to LLVM's heuristic: ``refuse`` raises an error, ``input``
            makes the heuristic's decision an input of the model.

    Raises:
        PolicyError: the policy is not usable, or is for a problem for which LLVM has no advisor.
        UsageError: the policy needs an input that LLVM does not supply to a model.
        ToolError: the extra ``tflite`` is not installed.
        StorageError: the disk is full or not writable.
    """
    origin = policy_name(path)
    policy = load_policy(path)
    check_exportable_to_llvm(policy, origin)
    if not 2 <= columns <= 1024:
        raise UsageError(f"--columns: expected 2 to 1024 columns, found {columns}; give 33, as LLVM passes to a model")
    if policy.asks_heuristic and heuristic == "refuse":
        default = PROBLEMS[policy.problem].default_decision
        raise UsageError(
            f"policy {origin}: its gate or doubt leaves decisions to LLVM's heuristic, which LLVM's development "
            "mode does not provide to a model; train without gate and doubt, or give --heuristic input if the "
            f"caller of the model fills action_{default}"
        )
    written = write_policy(policy, columns=columns, draws=collect, origin=origin)
    data = graph_bytes(written.graph)
    specification = [{"logging_name": name, "tensor_spec": spec.to_json()} for name, spec in written.outputs]
    atomic_write(folder / MODEL, data, durable=True)
    atomic_write(folder / OUTPUT_SPEC, json.dumps(specification, indent=1) + "\n", durable=True)
    return ExportedModel(
        folder=str(folder),
        problem=policy.problem,
        model_bytes=len(data),
        inputs=len(written.graph.inputs),
        outputs=tuple(name for name, _ in written.outputs),
    )

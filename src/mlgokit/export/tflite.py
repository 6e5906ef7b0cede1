"""Export: a policy becomes the folder that an LLVM in development mode loads, ``model.tflite`` with its outputs."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

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
    """What was written.

    Attributes:
        folder: with the model and its outputs.
        problem: what it decides.
        model_bytes: size of the model.
        inputs: how many tensors it takes.
        outputs: names under which LLVM logs what it gives, the decision first.
    """

    folder: str
    problem: str
    model_bytes: int
    inputs: int
    outputs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def export_tflite(
    path: Path, folder: Path, *, collect: bool = False, columns: int = 33, heuristic: Heuristic = "refuse"
) -> ExportedModel:
    """Write the policy at ``path`` into ``folder``.

    Args:
        path: a policy file.
        folder: for ``model.tflite`` and ``output_spec.json``; other files in it stay.
        collect: let the model draw its decisions and give its logits, as the reference's ``saved_collect_policy``.
        columns: of an eviction.
        heuristic: what to do with a policy that leaves decisions to LLVM's heuristic: refuse it, or let the model take
            the heuristic's decision as an input.

    Raises:
        PolicyError: the policy is not usable, or for no problem of LLVM's.
        UsageError: the policy needs what LLVM does not send a model.
        ToolError: the extra ``tflite`` is not installed.
        StorageError: the disk is full or not writable.
    """
    origin = policy_name(path)
    policy = load_policy(path)
    check_exportable_to_llvm(policy, origin)
    if not 2 <= columns <= 1024:
        raise UsageError(f"--columns: expected 2 to 1024, found {columns}; LLVM gives a model 33")
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

"""The command that writes a policy as a TFLite model for an LLVM in development mode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.export.tflite import ExportedModel, Heuristic, export_tflite
from mlgokit.locks import locked
from mlgokit.policy.pretrained import policy_file
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTflite:
    """Write a policy as model.tflite and output_spec.json, for an LLVM that was built with TFLite."""

    policy: Annotated[Path, tyro.conf.Positional]
    """Policy file, trained on LLVM's own features; builtin:NAME is one that comes with mlgokit."""
    output: Path = Path("tflite")
    """Folder for model.tflite and output_spec.json."""
    collect: bool = False
    """Write a collect policy: the model samples its decisions and returns the logits. By default it takes the likeliest
    decision."""
    columns: int = 33
    """For an eviction policy: number of candidates in the inputs of the model; LLVM passes 33."""
    heuristic: Heuristic = "refuse"
    """Treatment of a policy that leaves decisions to LLVM's heuristic (gate or doubt): refuse it, or make the
    heuristic's decision an additional input of the model."""


def run(config: ExportTflite, *, report: Report = say_nothing) -> ExportedModel:  # noqa: ARG001  (all commands take one)
    """Write the model."""
    with locked(config.output):
        return export_tflite(
            policy_file(config.policy),
            config.output,
            collect=config.collect,
            columns=config.columns,
            heuristic=config.heuristic,
        )

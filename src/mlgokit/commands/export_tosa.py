"""The command that writes a policy as TOSA, for a build of LLVM 24."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.export.tosa import ExportedTosa, export_tosa
from mlgokit.locks import locked
from mlgokit.policy.pretrained import policy_file
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTosa:
    """Write a policy of inlining or evictions as TOSA, for the model of a build of LLVM 24."""

    policy: Annotated[Path, tyro.conf.Positional]
    """Policy file, trained on LLVM's own features; builtin:NAME is one that comes with mlgokit."""
    output: Path = Path("tosa")
    """Folder for the model, inliner.mlir or regalloc.mlir."""


def run(config: ExportTosa, *, report: Report = say_nothing) -> ExportedTosa:  # noqa: ARG001  (all commands take one)
    """Write the model."""
    with locked(config.output):
        return export_tosa(policy_file(config.policy), config.output)

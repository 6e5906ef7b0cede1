"""The command that exports policies for the release mode of a build of LLVM."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.export.release import ExportedModel, export_release
from mlgokit.locks import locked
from mlgokit.policy.pretrained import policy_files
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLlvm:
    """Make policies the header and the object of a build of LLVM's own release mode, without TensorFlow."""

    policies: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Policy files of one problem, trained on LLVM's own features; builtin:NAME is one that comes with mlgokit."""
    output: Path = Path("release-mode")
    """Folder for header, source, object, and the CMake cache file for building LLVM with them."""
    names: tuple[str, ...] = ()
    """Model selectors (-ml-inliner-model-selector), one for each policy; a single policy needs none."""
    name: str | None = None
    """Name of the C++ class and of the files; if not given, the name that LLVM's advisor of the problem expects."""
    target: str | None = None
    """Target triple of the compiler that gets the model; this machine's if not given."""
    doubt: float | None = None
    """Doubt of the inlining policies, instead of their own (see `export plugin`). Where the predicted effect does not
    exceed it, the model imitates LLVM's heuristic at -Oz."""
    llvm: int | None = None
    """LLVM major version of the clang that compiles the object; the newest installed one if not given. The object fits
    builds of any version."""


def run(config: ExportLlvm, *, report: Report = say_nothing) -> ExportedModel:  # noqa: ARG001  (all commands take one)
    """Write the model."""
    with locked(config.output):
        return export_release(
            find_toolchain(config.llvm),
            policy_files(config.policies),
            config.output,
            names=config.names,
            name=config.name,
            target=config.target,
            doubt=config.doubt,
        )

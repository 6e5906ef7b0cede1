"""The command that links policies into a plugin."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.export.plugin import ExportedPlugin, export_plugin
from mlgokit.policy.pretrained import policy_files
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Link policies into a plugin for an unmodified clang: clang -Oz with the -fpass-plugin that it prints."""

    policies: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Policy files, at most one for each problem (such as inline-size) and architecture; builtin:Oz stands for
    all that come with mlgokit, builtin:size for its inlining policy."""
    output: Path = Path("policy.so")
    """Plugin to write. It becomes a symbolic link to a file beside it whose name contains a digest; builds load that
    file."""
    llvm: int | None = None
    """LLVM major version to export for; the newest supported one if not given."""
    doubt: float | None = None
    """Doubt of the inlining policy, instead of its own: the policy overrides LLVM's decision only if the predicted
    effect exceeds this many standard deviations of the ensemble."""
    targets: tuple[str, ...] = ()
    """Architectures for which the policies decide, in place of the list in each policy file, by LLVM's names such as
    aarch64, arm or riscv64."""


def render(exported: ExportedPlugin, out: Console) -> None:
    """Print what the plugin decides about, and how a build loads it."""
    for problem, architectures in exported.targets.items():
        say(out, f"{problem}: for {', '.join(architectures)}")
    say(out, f"plugin: {exported.plugin}, a link to {exported.versioned} ({exported.size_bytes:,} bytes)")
    say(out, f"add to the build: {shlex.quote(exported.flag)}")


def run(config: Export, *, report: Report = say_nothing) -> ExportedPlugin:  # noqa: ARG001  (all commands take one)
    """Link the policies into a plugin."""
    policies = policy_files(config.policies)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    return export_plugin(toolchain, policies, config.output, doubt=config.doubt, targets=config.targets)

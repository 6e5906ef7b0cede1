"""The command that joins policies for different processors into one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from mlgokit.errors import UsageError
from mlgokit.export.plugin import join_by_problem
from mlgokit.policy.pretrained import policy_files
from mlgokit.policy.store import save_policy
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import say


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPolicy:
    """Join policies for one problem, each for processors of its own, into one policy file."""

    policies: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Policy files for one problem; builtin:NAME is one that comes with mlgokit."""
    output: Path = Path("joined.policy")
    """Policy file to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPolicy:
    """A policy file with several parts.

    Attributes:
        policy: path of the file.
        problem: name of the problem that it decides.
        targets: for each part, the architectures that it decides for.
    """

    policy: str
    problem: str
    targets: tuple[tuple[str, ...], ...]


def render(joined: JoinedPolicy, out: Console) -> None:
    """Print which part decides for what."""
    for number, targets in enumerate(joined.targets, start=1):
        say(out, f"part {number}: {joined.problem} for {', '.join(targets)}")
    say(out, f"policy: {joined.policy}")


def run(config: ExportPolicy, *, report: Report = say_nothing) -> JoinedPolicy:  # noqa: ARG001  (all commands take one)
    """Join the policies and write the file.

    Raises:
        PolicyError: a file is no usable policy.
        UsageError: the policies are for several problems, or two decide for one architecture.
    """
    found = join_by_problem(policy_files(config.policies))
    if len(found) != 1:
        raise UsageError(
            f"policies: expected policies for one problem, found {' and '.join(found) or 'none'}; export those for "
            "several into one plugin with `mlgokit export plugin`"
        )
    ((problem, policy),) = found.items()
    save_policy(policy, config.output)
    return JoinedPolicy(
        policy=str(config.output), problem=problem, targets=tuple(part.targets for part in policy.parts)
    )

"""The command that joins policies for different processors, and for links with -flto, into one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from mlgokit.errors import UsageError
from mlgokit.export.plugin import join_by_problem
from mlgokit.policy.network import Stage
from mlgokit.policy.pretrained import policy_files
from mlgokit.policy.store import save_policy
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import say


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPolicy:
    """Join policies for one problem, each for processors of its own or for links, into one policy file."""

    policies: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Policy files for one problem; builtin:NAME is one that comes with mlgokit."""
    link: tuple[Path, ...] = ()
    """Inlining policies that decide in links with -flto and -flto=thin; the compile steps before them then inline only
    what must be inlined."""
    output: Path = Path("joined.policy")
    """Policy file to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPolicy:
    """A policy file with several parts: the architectures that each decides for, and the stage, such as links."""

    policy: str
    problem: str
    targets: tuple[tuple[str, ...], ...]
    stages: tuple[Stage, ...]


def render(joined: JoinedPolicy, out: Console) -> None:
    """Print which part decides for what."""
    for number, (targets, stage) in enumerate(zip(joined.targets, joined.stages, strict=True), start=1):
        say(out, f"part {number}: {joined.problem} for {', '.join(targets)}{', in links' * (stage == 'link')}")
    say(out, f"policy: {joined.policy}")


def run(config: ExportPolicy, *, report: Report = say_nothing) -> JoinedPolicy:  # noqa: ARG001  (all commands take one)
    """Join the policies and write the file.

    Raises:
        PolicyError: a file is no usable policy.
        UsageError: the policies are for several problems, two decide for one architecture, or one for links is not for
            inlining.
    """
    found = join_by_problem(policy_files(config.policies), in_links=policy_files(config.link))
    if len(found) != 1:
        raise UsageError(
            f"policies: expected policies for one problem, found {' and '.join(found) or 'none'}; export those for "
            "several into one plugin with `mlgokit export plugin`"
        )
    ((problem, policy),) = found.items()
    save_policy(policy, config.output)
    return JoinedPolicy(
        policy=str(config.output),
        problem=problem,
        targets=tuple(part.targets for part in policy.parts),
        stages=tuple(part.stage for part in policy.parts),
    )

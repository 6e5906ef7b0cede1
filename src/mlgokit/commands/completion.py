"""The command that prints the completion of a shell."""

import contextlib
import io
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from mlgokit.commands.parser import parse
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Print a script that completes commands and options: completion bash, zsh or fish. It needs python3 in PATH."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Shell that reads the script."""


def run(config: Completion, *, report: Report = say_nothing) -> dict[str, Any]:  # noqa: ARG001  (all commands take one)
    """Make the script."""
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        parse(["--tyro-print-completion", config.shell])
    return {"shell": config.shell, "script": script.getvalue()}


def render(result: dict[str, Any], console: Console) -> None:
    """Print the script as it is."""
    console.file.write(result["script"])

"""The command that takes the calls of google/ml-compiler-opt's tools, and of LLVM's mlgo-utils."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console

from mlgokit.commands.compat_tools import plan_call
from mlgokit.commands.parser import parse
from mlgokit.commands.table import find_command, json_values
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import open_console, print_values, say


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """Run a tool of google/ml-compiler-opt or mlgo-utils by its own flags: compat train_locally --root_dir=out ..."""

    call: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Tool, or path of its script, and its flags; words after a further -- are options of mlgokit's. Tools: extract_ir,
    make_corpus, combine_training_corpus, generate_default_trace, generate_vocab or sparse_bucket_generator, train_bc,
    train_locally, es_trainer, feature_importance, combine_tfa_policies, extract_functions, group_functions; gin_config
    prints what gin files say as TOML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What was run: the commands of mlgokit that the call came to, with the options and the result of the last one.

    ``notes`` say what of the call has no counterpart, and ``text`` is printed in place of running a command.
    """

    commands: tuple[str, ...]
    notes: tuple[str, ...]
    text: str = ""
    configuration: Any = None
    result: Any = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; those of the last command are ``result``."""
        result = None if self.result is None else json_values(self.result)
        return {"commands": list(self.commands), "notes": list(self.notes), "text": self.text, "result": result}


def run(config: Compat, *, report: Report = say_nothing) -> Called:
    """Carry the call out, after saying on standard error what it comes to.

    Raises:
        UsageError: the tool or a flag is not known, or a flag is missing.
        MlgokitError: a command failed.
    """
    plan = plan_call(config.call)
    shown = tuple(f"mlgokit {shlex.join(words)}" for words in plan.commands)
    for line in (*plan.notes, *shown):
        say(open_console(sys.stderr, soft_wrap=True), f"mlgokit compat: {line}")
    configuration, result = None, None
    for configuration in [_configuration(words) for words in plan.commands]:
        result = find_command(configuration).run(configuration, report=report)
    if plan.names_corpus is not None:
        note, corpus = plan.names_corpus
        atomic_write(note, f"{corpus.absolute()}\n")
    return Called(commands=shown, notes=plan.notes, text=plan.text, configuration=configuration, result=result)


def _configuration(words: Sequence[str]) -> Any:
    """The configuration of one command.

    Raises:
        UsageError: a word after -- is none of its options.
    """
    name = " ".join(words[:2]) if words[0] in {"corpus", "export"} else words[0]
    parsed, left = parse(words, [name])
    if left:
        raise UsageError(
            f"compat: expected options of `mlgokit {name}` after --, found {left[0]!r}; `mlgokit {name} --help-all` "
            "lists them"
        )
    return parsed.command


def render(called: Called, console: Console) -> None:
    """Print what the last command prints."""
    if called.configuration is None:
        console.print(called.text, markup=False, highlight=False, soft_wrap=True)
        return
    shown = find_command(called.configuration).render
    if shown is not None:
        shown(called.result, console)
    else:
        print_values(json_values(called.result), console)


def exit_code(config: Compat, called: Called) -> int:  # noqa: ARG001  (all commands take one)
    """That of the last command."""
    if called.configuration is None:
        return 0
    code = find_command(called.configuration).exit_code
    return 0 if code is None else code(called.configuration, called.result)

"""Words of the command line become a configuration, by tyro."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union

import tyro

from mlgokit.commands.help import DESCRIPTION
from mlgokit.commands.table import COMMANDS, GROUPS

_AS_JSON = Annotated[bool, tyro.conf.arg(help="Print the result as JSON on standard output.")]


def parse(words: Sequence[str], names: Iterable[str] = COMMANDS) -> tuple[Any, list[str]]:
    """A configuration as ``command``, and ``json``; and the words that no option takes.

    Help and errors are printed, and end the process. The words can be of these commands alone, whose modules are
    imported.
    """
    return tyro.cli(
        _arguments(names),
        prog="mlgokit",
        description=DESCRIPTION,
        args=words,
        return_unknown_args=True,
        config=(
            tyro.conf.CascadeSubcommandArgs,
            tyro.conf.OmitSubcommandPrefixes,
            tyro.conf.FlagCreatePairsOff,
        ),
    )


def _arguments(names: Iterable[str]) -> Any:
    """A dataclass for tyro: one of the configurations as ``command``, and ``json``."""
    top: dict[str, Any] = {}
    for name in names:
        command = COMMANDS[name]
        group, _, leaf = name.rpartition(" ")
        arm = Annotated[command.configuration, tyro.conf.subcommand(leaf)]
        top[group or leaf] = (*top.get(group, ()), arm) if group else arm
    # tyro makes subcommands of unions only, so that a single one needs a second, hidden arm.
    hidden = Annotated[None, tyro.conf.Suppress]
    for group in GROUPS.keys() & top.keys():
        arms = Union[(*top[group], hidden)]
        top[group] = Annotated[arms, tyro.conf.subcommand(group, description=GROUPS[group])]
    any_command = Union[(*top.values(), hidden)]
    parts = [("command", any_command), ("json", _AS_JSON, dataclasses.field(default=False))]
    return dataclasses.make_dataclass("Arguments", parts)

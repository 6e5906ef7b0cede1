"""Plain calls: their words become a configuration without tyro, which takes longer to import than some commands run.

A word that is more than the value of an option, as it stands in the help, is left to tyro; so is everything wrong.
"""

import importlib.util
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mlgokit.commands.call_words import match_words
from mlgokit.commands.declared_options import Option
from mlgokit.commands.help import options_of
from mlgokit.commands.table import Command

_JSON = "json"
_JSON_OPTION = Option(names=("--json",))
_KINDS = {
    "PATH": (Path, re.compile(r"(?s).+")),
    "STR": (str, re.compile(r"(?s).*")),
    "INT": (int, re.compile(r"[0-9]+")),
    "FLOAT": (float, re.compile(r"[0-9]+(\.[0-9]+)?")),
}
"""What makes a value of a word, and words that are plain, by what the help has for the value."""


def import_lazily(name: str) -> ModuleType:
    """A module that is imported when something of it is used."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def read_plain(command: Command, words: Sequence[str]) -> tuple[Any, bool] | None:
    """The configuration of a command, and whether ``--json`` is among the words; ``None`` if a word is not plain."""
    options = options_of(command)
    given = _words_by_field(options, words)
    if given is None or any(one.is_required and _field(one) not in given for one in options):
        return None
    try:
        values = {_field(one): _value(one, given[_field(one)]) for one in options if _field(one) in given}
    except ValueError:
        return None
    return command.configuration(**values), _JSON in given


def _field(option: Option) -> str:
    return option.names[-1].removeprefix("--").replace("-", "_")


def _words_by_field(options: Sequence[Option], words: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """The words of each option, by its field, and ``--json``; ``None`` for what may be more than options and values."""
    declared = [*options, _JSON_OPTION]
    names = {name for option in declared if not option.is_positional for name in option.names}
    if any(word.startswith("-") and word.partition("=")[0] not in names for word in words):
        return None
    given: dict[str, tuple[str, ...]] = {}
    alone: list[list[str]] = []
    for is_alone, group in itertools.groupby(match_words(declared, words), key=lambda one: one[0] is None):
        found = list(group)
        if is_alone:
            alone.append([word for _, (word,) in found])
        for option, values in [] if is_alone else found:
            if option is None or option.section or bool(values) != bool(option.value):
                return None
            before = given.get(_field(option), ())
            if before and not option.is_repeatable:
                return None
            given[_field(option)] = (*before, *values)
    fields = [_field(option) for option in options if option.is_positional]
    # argparse takes words without a name only where the first of them is.
    if len(alone) > 1 or (alone and len(alone[0]) > len(fields)):
        return None
    return given | {field: (word,) for field, word in zip(fields, *alone, strict=False)} if alone else given


def _value(option: Option, words: Sequence[str]) -> Any:
    """The value of an option.

    Raises:
        ValueError: a word is not plain.
    """
    choices = option.value.strip("{}").split(",") if option.value.startswith("{") else []
    make, plain = _KINDS.get(option.value, (str, None))
    for word in words:
        # For an option that may be left out, tyro takes this for nothing.
        if word == "None" or not (word in choices or (plain is not None and plain.fullmatch(word))):
            raise ValueError(word)
    made = tuple(make(word) for word in words)
    return made if option.is_repeatable or option.takes_many else made[0]

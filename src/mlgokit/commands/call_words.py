"""The words of a call by the options of its command: what they give, and the first that its option cannot take."""

import difflib
import math
import re
from collections.abc import Iterator, Sequence

from mlgokit.commands.declared_options import Option

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_NUMBERS = {"INT": (int, "a whole number"), "FLOAT": (float, "a number")}


def match_words(options: Sequence[Option], words: Sequence[str]) -> Iterator[tuple[Option | None, tuple[str, ...]]]:
    """Yield each option that the words give with its values, and other words alone, without an option.

    An option whose value is missing has none. Options that the command does not have are skipped.
    """
    by_name = {name: one for one in options if not one.is_positional for name in one.names}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            yield from ((None, (one,)) for one in rest)
            return
        if not word.startswith("-") or word == "-":
            yield None, (word,)
            continue
        name, equals, value = word.partition("=")
        option = by_name.get(_as_declared(name))
        if option is None:
            continue
        if equals:
            yield option, (value,)
            continue
        taken = _count_values(option, rest, by_name)
        yield option, tuple(rest[:taken])
        rest = rest[taken:]


def find_wrong_words(options: Sequence[Option], words: Sequence[str]) -> str | None:
    """What is wrong with the words of a call: a value that its option cannot take, or a missing one."""
    given = list(match_words(options, words))
    positional = [option for option in options if option.is_positional]
    alone = [values for option, values in given if option is None]
    for option, values in [*given, *zip(positional, alone, strict=False)]:
        if option is not None and (wrong := _find_wrong_value(option, values)):
            return f"{option.names[-1]}: {wrong}"
    found = {option.names[-1] for option, _ in given if option is not None}
    for option in options:
        if option.is_required and not option.takes_many:
            is_there = bool(alone) if option.is_positional else option.names[-1] in found
            named = option.names[-1].upper() if option.is_positional else f"{option.names[-1]} {option.value}"
            if not is_there:
                return f"expected {named}, found none"
    return None


def _as_declared(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _count_values(option: Option, rest: Sequence[str], by_name: dict[str, Option]) -> int:
    """How many of the words behind an option are its values."""
    if not option.value:
        return 0
    if option.takes_many:
        return next((number for number, word in enumerate(rest) if word.startswith("-")), len(rest))
    return int(bool(rest) and not _is_option(rest[0], by_name))


def _is_option(word: str, by_name: dict[str, Option]) -> bool:
    """Whether argparse takes a word for an option, where a value may be."""
    looks_like_one = word.startswith("-") and word != "-" and " " not in word and not _NEGATIVE.fullmatch(word)
    return looks_like_one or _as_declared(word.partition("=")[0]) in by_name


def _find_wrong_value(option: Option, values: Sequence[str]) -> str:
    """Say what an option expects and what it was given; empty if that will do."""
    if not option.value:
        return ""
    if not values and not option.takes_many:
        hint = f"; write one that begins with a dash as {option.names[-1]}=-x" * (option.value == "STR")
        return f"expected a value, found none{hint}"
    choices = option.value[1:-1].split(",") if option.value.startswith("{") else []
    for value in values:
        if value == "None":
            continue
        if choices and value not in choices:
            ends = "; its values go on to the next option, so put other words before it" if option.takes_many else ""
            near = difflib.get_close_matches(value, choices, n=1)
            ends = f"; did you mean {near[0]}?" if near else ends
            return f"expected one of {', '.join(choices)}, found {value}{ends}"
        if option.value in _NUMBERS and (wrong := _find_wrong_number(option, value)):
            return wrong
    return ""


def _find_wrong_number(option: Option, value: str) -> str:
    """Say what number an option expects, and what it was given; empty if that will do."""
    convert, expected = _NUMBERS[option.value]
    try:
        number = convert(value)
    except ValueError:
        return f"expected {expected}, found {value}"
    # numpy's generators take no negative seeds.
    if option.names[-1].endswith("seed") and number < 0:
        return f"expected {expected} of at least 0, found {value}"
    return f"expected {expected}, found {value}" if isinstance(number, float) and math.isnan(number) else ""

"""Parser of ``clang -cc1`` command lines: words become options with their values, as LLVM parses them.

``-target-feature +avx`` is one option, ``-fdata-sections foo.c`` is an option and an input, and only a table says so.
Ours, ``clang_options.tsv``, has the options of all supported majors and comes with mlgokit, because no clang can be
asked for it: ``-cc1 --help`` leaves a fifth of the options out, ``--autocomplete`` a third.
``scripts/option_table.py`` makes it from ``libclang-cpp``, whose table is the one that clang itself reads.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

MLLVM = "-mllvm"
LLVM_KINDS = frozenset({"llvm-flag", "llvm-number", "llvm-choice", "llvm-text"})
_WITH_REST = frozenset({"joined", "either", "comma", "pair"})
_WITH_NEXT = frozenset({"separate", "either", "pair"})
_LEVELS = frozenset({"-O0", "-O4", "-Ofast"})
"""Options that LLVM's table lists separately, but that are values of one option to a user."""
_NUMBER = re.compile(r"-\d[\d.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, or an input.

    Attributes:
        name: LLVM's name in any spelling: ``-triple`` for ``-triple=x``. Joined options keep their ``=``. LLVM's own
            options are named ``-mllvm -name``; an input has an empty name.
        values: its values; more than one only for comma-separated lists.
        words: the words of the command line.
        kind: ``flag``, ``joined``, ``separate``, ``either``, ``comma``, ``pair``, ``llvm-flag``, ``llvm-number``,
            ``llvm-choice``, ``llvm-text``, ``input``, or ``unknown``.
    """

    name: str
    values: tuple[str, ...] = ()
    words: tuple[str, ...]
    kind: str

    @property
    def is_whole(self) -> bool:
        """Whether the option has the value that it needs; otherwise it would take the next word as its value."""
        if self.kind in _WITH_NEXT:
            return bool(self.values)
        return self.kind not in LLVM_KINDS or self.kind == "llvm-flag" or bool(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """The options that clang knows.

    Attributes:
        kinds: how each option takes its value, by its first word; LLVM's own options without dashes.
        names: canonical names of aliases.
        longest: length of the longest word.
    """

    kinds: dict[str, str]
    names: dict[str, str]
    longest: int


@functools.cache
def option_table() -> OptionTable:
    """Load the table of options that is part of mlgokit."""
    kinds: dict[str, str] = {}
    names: dict[str, str] = {}
    text = resources.files("mlgokit.compiler.options").joinpath("clang_options.tsv").read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        word, kind, *alias = line.split("\t")
        kinds[word] = kind
        if alias:
            names[word] = alias[0]
    return OptionTable(kinds=kinds, names=names, longest=max(map(len, kinds)))


def parse_options(words: Iterable[str]) -> tuple[Option, ...]:
    """Parse a command line as ``clang -cc1`` does; :func:`spell_options` is the inverse.

    A word that begins with ``-`` and is not in the table is an option without a value, except for what follows its
    ``=``.

    Example:
        >>> [option.name for option in parse_options(["-cc1", "-triple", "x86_64", "-Oz", "-mllvm", "-a=1", "b.c"])]
        ['-cc1', '-triple', '-O', '-mllvm -a', '']
    """
    given = tuple(words)
    options: list[Option] = []
    position = 0
    while position < len(given):
        option = _llvm_option(given, position) or _clang_option(given, position)
        options.append(option)
        position += len(option.words)
    return tuple(options)


def spell_options(options: Iterable[Option]) -> tuple[str, ...]:
    """Spell options as the command line that they were parsed from."""
    return tuple(word for option in options for word in option.words)


def canonical_name(text: str) -> str:
    """Find LLVM's name of an option that a user wrote with or without its trailing ``=``.

    Example:
        >>> canonical_name("-fthinlto-index"), canonical_name("-triple="), canonical_name("-mllvm --a")
        ('-fthinlto-index=', '-triple', '-mllvm -a')
    """
    if text.startswith(f"{MLLVM} "):
        return f"{MLLVM} -{text.removeprefix(MLLVM).strip().lstrip('-').partition('=')[0]}"
    table = option_table()
    word = text if text in table.kinds or f"{text}=" not in table.kinds else f"{text}="
    return table.names.get(word, word)


def _clang_option(words: Sequence[str], position: int) -> Option:
    """Parse the option of ``clang -cc1``, or the input, that begins at a position."""
    word = words[position]
    if not word.startswith("-") or word == "-":
        return Option(name="", values=(word,), words=(word,), kind="input")
    table = option_table()
    for length in range(min(len(word), table.longest), 0, -1):
        kind = table.kinds.get(word[:length])
        if kind is None or kind in LLVM_KINDS or (length < len(word) and kind not in _WITH_REST):
            continue
        rest = word[length:]
        taken = (word,)
        values: tuple[str, ...] = () if kind == "flag" else (rest,)
        if kind == "comma":
            values = tuple(rest.split(","))
        elif kind == "pair" or (kind in _WITH_NEXT and not rest):
            taken = tuple(words[position : position + 2])
            values = taken[1:]
        if word in _LEVELS:
            return Option(name="-O", values=(word[2:],), words=taken, kind="joined")
        return Option(name=table.names.get(word[:length], word[:length]), values=values, words=taken, kind=kind)
    name, equals, value = word.partition("=")
    return Option(name=name + equals, values=(value,) if equals else (), words=(word,), kind="unknown")


def _llvm_option(words: Sequence[str], position: int) -> Option | None:
    """Parse ``-mllvm -name=value``, or ``-mllvm -name -mllvm value`` if LLVM's option takes a separate value."""
    if words[position] != MLLVM or position + 1 >= len(words):
        return None
    word = words[position + 1]
    name, equals, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or not name:
        return Option(name=f"{MLLVM} ", values=(word,), words=(MLLVM, word), kind="input")
    kind = option_table().kinds.get(name, "unknown")
    values = (value,) if equals else ()
    taken = 2
    next_words = words[position + 2 : position + 4]
    if not equals and kind in LLVM_KINDS - {"llvm-flag"} and len(next_words) == 2 and next_words[0] == MLLVM:
        follower = next_words[1]
        if not follower.startswith("-") or _NUMBER.fullmatch(follower):
            values, taken = (follower,), 4
    # A name of -cc1 begins with a dash, so that the two tables share no word.
    known = kind if kind in LLVM_KINDS else "unknown"
    return Option(name=f"{MLLVM} -{name}", values=values, words=tuple(words[position : position + taken]), kind=known)

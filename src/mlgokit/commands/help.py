"""Help and answers to typos, from the table of the commands and from the options that their sources declare."""

import difflib
import itertools
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mlgokit.basic import Basic
from mlgokit.commands.call_words import find_wrong_words
from mlgokit.commands.declared_options import Option, declared_options, docstring_of
from mlgokit.commands.table import COMMANDS, GROUPS, Command, Group
from mlgokit.errors import UsageError

HELP = ("-h", "--help")
DESCRIPTION = "Machine-learned optimization policies for the clang that you have."
FOREIGN = "compat"
"""The command whose words are those of other programs."""
EVERYWHERE = ("--json", *HELP, "--help-all")
"""Options that every command has."""
_WIDEST = 100
_NAMES = 26
"""Columns for what is typed; the text is beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The words of a command line.

    Attributes:
        flags: options before the command is named.
        named: the words of the command's name, as far as they are one.
        rest: all that follows.
    """

    flags: tuple[str, ...]
    named: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def name(self) -> str:
        """The command, if it is one."""
        return " ".join(self.named)

    def wants(self, *options: str) -> bool:
        """Whether one of these is given before what belongs to another program."""
        own = itertools.takewhile(lambda word: word != "--", (*self.flags, *self.rest))
        return any(word in options for word in own)


def split_call(words: Sequence[str]) -> Call:
    """Find the command in the words of a command line."""
    flags, named = list[str](), list[str]()
    for number, word in enumerate(words):
        is_flag = word in EVERYWHERE or word == "--version"
        if " ".join(named) in COMMANDS or (word.startswith("-") and not is_flag):
            rest = tuple(words[number:])
            # All words are another program's, so no -- has to be before them.
            is_foreign = named == [FOREIGN] and word not in (*HELP, "--help-all", "--")
            return Call(flags=tuple(flags), named=tuple(named), rest=("--", *rest) if is_foreign else rest)
        (flags if is_flag else named).append(word)
        if not is_flag and " ".join(named) not in {*GROUPS, *COMMANDS}:
            return Call(flags=tuple(flags), named=tuple(named), rest=tuple(words[number + 1 :]))
    return Call(flags=tuple(flags), named=tuple(named), rest=())


def answer_at_once(call: Call) -> tuple[str, int] | None:
    """What is answered without a command's code, and the exit code; ``None`` for a call that is to be parsed."""
    if call.name in COMMANDS:
        if call.wants("--help-all"):
            return None
        if call.wants(*HELP):
            return short_help(call.name), 0
        word = find_unknown_option(call.name, call.rest)
        return None if word is None else (unknown_option(call.name, word), UsageError.exit_code)
    if "--version" in call.flags:
        from mlgokit.manifest import package_version

        return f"mlgokit {package_version()}", 0
    is_known = not call.name or call.name in GROUPS
    if is_known and call.wants(*HELP, "--help-all"):
        return (group_help(call.name) if call.name else overview(everything=call.wants("--help-all"))), 0
    if not is_known:
        text = unknown_command(call.named)
    else:
        text = unknown_option(call.name, call.rest[0]) if call.rest else missing_command(call.name)
    return text, UsageError.exit_code


# --- Help -------------------------------------------------------------------------------------------------------------


def overview(*, everything: bool) -> str:
    """What ``mlgokit --help`` prints; with all commands by name instead of their groups for ``--help-all``."""
    lines = [DESCRIPTION, "", "usage: mlgokit COMMAND [options]"]
    for group in Group:
        lines += ["", f"{group.value}:"]
        names = [name for name, command in COMMANDS.items() if command.group is group]
        if everything:
            lines += _rows((name, COMMANDS[name].summary) for name in names)
        else:
            lines += _rows((first, _summary_of(first)) for first in dict.fromkeys(map(_first, names)))
    lines += ["", *_rows((("--version", "the version"), ("--json", "the result as JSON, of any command")))]
    more = "mlgokit COMMAND --help for the options most used, --help-all for all options"
    return "\n".join([*lines, "", *_filled(more), ""])


def group_help(group: str) -> str:
    """What ``mlgokit corpus --help`` prints."""
    rows = [(name, command.summary) for name, command in COMMANDS.items() if _first(name) == group and name != group]
    return "\n".join([GROUPS[group], "", f"usage: mlgokit {group} COMMAND [options]", "", *_rows(rows), ""])


def short_help(name: str) -> str:
    """What ``mlgokit COMMAND --help`` prints: the options that are marked as basic, below their titles."""
    command = COMMANDS[name]
    options = options_of(command)
    shown = basic_options(options)
    needed = [one for one in shown if one.is_required and not one.is_positional]
    words = [*(f"{one.names[-1]} {one.value}" for one in needed), "[options]"]
    words += [_positional(one) for one in options if one.is_positional]
    lines = [
        *_filled(docstring_of(command.place, command.kind)),
        "",
        *_filled(f"usage: mlgokit {name} {' '.join(words)}"),
    ]
    titles = [title for title in ("", *(one.value for one in Basic)) if any(one.group == title for one in shown)]
    for title in titles:
        lines += ["", f"{title or 'options'}:"]
        lines += _rows((_typed(one), _text(one)) for one in shown if one.group == title)
    left_out = len(options) - len(shown)
    more = f"{left_out} more options: mlgokit {name} --help-all" if left_out else ""
    return "\n".join([*lines, *(("", more) if more else ()), ""])


def options_of(command: Command) -> tuple[Option, ...]:
    """The options of a command, read from its source."""
    return declared_options(command.place, command.kind)


def basic_options(options: Sequence[Option]) -> list[Option]:
    """The options of the short help: those that are marked or needed; of a command that marks none, its own."""
    has_marks = any(one.group and not one.section for one in options)
    return [one for one in options if one.group or one.is_required or not (has_marks or one.section)]


def _summary_of(first: str) -> str:
    return COMMANDS[first].summary if first in COMMANDS else GROUPS[first].removesuffix(".").lower()


def _first(name: str) -> str:
    return name.partition(" ")[0]


def _positional(option: Option) -> str:
    name = option.names[0].upper()
    name += " ..." if option.takes_many else ""
    return name if option.is_required else f"[{name}]"


def _typed(option: Option) -> str:
    if option.is_positional:
        return _positional(option)
    names = ", ".join(sorted(option.names, key=len))
    if not option.value:
        return names
    typed = f"{names} {option.value}{' ...' if option.takes_many else ''}"
    # A list of choices that does not fit is whole in --help-all.
    return typed if len(typed) <= _width() - 2 else f"{typed[: typed.rindex(',', 0, _width() - 7)]},...}}"


def _text(option: Option) -> str:
    """The first sentence about an option, with its default."""
    sentence = option.help.partition(". ")[0].removesuffix(".")
    return f"{sentence} [{option.default}]" if option.default and option.value else sentence


def _width() -> int:
    return max(40, min(_WIDEST, shutil.get_terminal_size().columns))


def _filled(text: str) -> list[str]:
    return textwrap.wrap(text, _width(), break_on_hyphens=False)


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Two columns: what is typed, and what it is."""
    for typed, text in rows:
        begins = f"  {typed}"
        if len(begins) >= _NAMES:
            yield begins
            begins = ""
        beside = textwrap.wrap(text, _width() - _NAMES, break_on_hyphens=False) or [""]
        yield f"{begins:<{_NAMES}}{beside[0]}".rstrip()
        yield from (f"{'':<{_NAMES}}{line}" for line in beside[1:])


# --- Typos ------------------------------------------------------------------------------------------------------------


def unknown_command(words: Sequence[str]) -> str:
    """The two lines about words that name no command, such as ``tun`` or ``corpus inof``."""
    said = " ".join(words)
    known = [name for name in COMMANDS if _first(name) == words[0]] if len(words) > 1 else [*COMMANDS, *GROUPS]
    first = f"mlgokit: {shown(said)} is not a command{_nearest(said, known)}"
    return f"{first}\n{_help_line('commands', f'mlgokit {words[0]}' if len(words) > 1 else 'mlgokit')}"


def missing_command(group: str) -> str:
    """The two lines about a call without a command, or with its first word alone."""
    program = f"mlgokit {group}".rstrip()
    return f"mlgokit: expected a command after {program}, found none\n{_help_line('commands', program)}"


def unknown_option(name: str, word: str) -> str:
    """The two lines about an option that a command does not have; ``name`` is empty for mlgokit itself."""
    option = word.partition("=")[0]
    program = f"mlgokit {name}".rstrip()
    is_command = name in COMMANDS
    known = [*_names(name), *EVERYWHERE] if is_command else [*EVERYWHERE, "--version"]
    first = f"{program}: {shown(option)} is not an option{_nearest(option, known)}"
    return f"{first}\n{_help_line('options', program, '--help-all' if is_command else '--help')}"


def unexpected_word(name: str, word: str) -> str:
    """The two lines about a word that no option of a command takes."""
    if word.startswith("-"):
        return unknown_option(name, word)
    first = f"mlgokit {name}: expected no further word, found {shown(word)}"
    return f"{first}\n{_help_line('options', f'mlgokit {name}', '--help-all')}"


def wrong_words(name: str, words: Sequence[str]) -> str | None:
    """The two lines about a word that an option of the command cannot take, or that is missing."""
    found = find_wrong_words(options_of(COMMANDS[name]), words)
    return None if found is None else f"mlgokit {name}: {shown(found)}\n{_help_line('options', f'mlgokit {name}')}"


def find_unknown_option(name: str, words: Sequence[str]) -> str | None:
    """The first word that looks like an option and is none of this command; words after ``--`` are not looked at."""
    known = {*_names(name), *EVERYWHERE}
    for word in words:
        if word == "--":
            return None
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option[2:3].isalpha() and option not in known:
            return word
    return None


def shown(word: str) -> str:
    """A word of the caller, without what a terminal would obey."""
    return word if word.isprintable() else ascii(word)[1:-1]


def _names(name: str) -> list[str]:
    return [word for option in options_of(COMMANDS[name]) if not option.is_positional for word in option.names]


def _nearest(word: str, known: Sequence[str]) -> str:
    """The question after a word that is not known, if a known one is near, or one whose last part alone is."""
    word = word.replace("_", "-")
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
    if not found:
        parts = {re.split(r"[ .]|^--", one)[-1]: one for one in reversed(known)}
        last = difflib.get_close_matches(word.removeprefix("--"), [*parts], n=1, cutoff=0.75)
        found = [parts[one] for one in last]
    return f"; did you mean {found[0]}?" if found else ""


def _help_line(what: str, program: str, option: str = "--help") -> str:
    return f"All {what}: {program} {option}"

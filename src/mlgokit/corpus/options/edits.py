"""User edits of the command lines of a corpus, which know LLVM's names and arities of options.

Each change is text as on a command line: ``-fdata-sections``, ``-target-feature +avx``, ``-mllvm -inline-threshold=5``.
"""

import functools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.options.parse import MLLVM, Option, canonical_name, option_table, parse_options, spell_options
from mlgokit.compiler.options.safety import LONGEST_COMMAND_LINE, check_options, is_left_out, names_a_profile
from mlgokit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLineEdits:
    """Edits of command lines; made by :func:`command_line_edits`.

    Attributes:
        add: options to append.
        delete: options to delete: all of that name, or, if a value is given, only those with that value.
        replace: new values for all options of the same name, wherever they are and however they are spelled.
    """

    add: tuple[Option, ...] = ()
    delete: tuple[Option, ...] = ()
    replace: tuple[Option, ...] = ()

    @property
    def allowed(self) -> tuple[tuple[str, ...], ...]:
        """The words of each option that the user gave, see :attr:`mlgokit.module.Module.allowed_options`."""
        return tuple(option.words for option in (*self.add, *self.replace))

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the options name, which a compiler must be able to read."""
        values = (value for option in (*self.add, *self.replace) for value in option.values)
        return tuple(path for value in values if (path := Path(value)).is_absolute() and path.is_file())

    @property
    def words(self) -> dict[str, list[str]]:
        """The edits by kind, for a manifest."""
        asked = {"add": self.add, "delete": self.delete, "replace": self.replace}
        return {kind: list(spell_options(options)) for kind, options in asked.items() if options}


NO_EDITS = CommandLineEdits()


def command_line_edits(
    add: Iterable[str] = (), delete: Iterable[str] = (), replace: Iterable[str] = ()
) -> CommandLineEdits:
    """Parse a user's edits of command lines.

    Example:
        >>> edits = command_line_edits(add=["-mllvm -inline-threshold=5"], replace=["-O2"])
        >>> edit_command_line(("-cc1", "-Oz", "-w"), edits, where="a.o")
        ('-cc1', '-O2', '-w', '-mllvm', '-inline-threshold=5')

    Raises:
        UsageError: a text is not an option, a replacement has no value, or two changes contradict each other.
    """
    edits = CommandLineEdits(
        add=_parse_edits(add, "add"), delete=_parse_edits(delete, "delete"), replace=_parse_edits(replace, "replace")
    )
    for option in edits.replace:
        if not _has_value(option):
            raise UsageError(
                f"replace options: expected options with their new value, found {' '.join(option.words)}; "
                "delete an option that has no value, and add another"
            )
    names = {key: {option.name for option in getattr(edits, key)} for key in ("add", "delete", "replace")}
    # Deleting one value of an option and adding another one is how a single feature is exchanged.
    deleted = {(option.name, option.values) for option in edits.delete if _has_value(option)}
    added = {option.name for option in edits.add if (option.name, option.values) in deleted}
    whole = {option.name for option in edits.delete if not _has_value(option)}
    conflicts = {
        ("add", "replace"): names["add"] & names["replace"],
        ("delete", "replace"): names["delete"] & names["replace"],
        ("add", "delete"): (names["add"] & whole) | added,
    }
    for (first, second), both in conflicts.items():
        if both:
            raise UsageError(
                f"{first} and {second} options: expected each option in one of them, found {', '.join(sorted(both))} "
                "in both; leave it in one"
            )
    return edits


def edit_command_line(words: Sequence[str], edits: CommandLineEdits, *, where: str) -> tuple[str, ...]:
    """Apply edits to a command line, with ``-cc1`` first or without; ``where`` names the module in the message.

    Raises:
        UsageError: an option to replace is not in the command line.
    """
    return spell_options(option for option, _ in _apply(parse_options(words), edits, where))


def command_line_to_compile(
    words: tuple[str, ...], edits: CommandLineEdits, *, folder: Path, where: str, has_thinlto: bool = False
) -> tuple[tuple[str, ...], str | None]:
    """Make the options to compile with from a command line of a corpus, or say why they are refused.

    The user's edits are made first and not questioned; then what only the front end needs is left out
    (:func:`mlgokit.compiler.options.safety.is_left_out`), and with ``has_thinlto`` the path that the index had in the
    build; the rest is checked. Profiles of the corpus get their whole paths.

    Raises:
        UsageError: an option to replace is not in the command line.
    """
    if words[:1] != ("-cc1",):
        return words, f"expected -cc1 as the first option, found {words[0] if words else 'no option'}"
    if sum(map(len, words)) > LONGEST_COMMAND_LINE:
        return words, f"expected at most {LONGEST_COMMAND_LINE} bytes of options, found more"
    changed = _apply(_parse(words[1:]), edits, where)
    kept = [
        (option, by_user)
        for option, by_user in changed
        if by_user or not (is_left_out(option) or (has_thinlto and option.name == "-fthinlto-index="))
    ]
    reason = check_options((option for option, by_user in kept if not by_user), folder=folder)
    root = folder.absolute()
    return (
        "-cc1",
        *(word for option, by_user in kept for word in _place_profile(option, root, by_user=by_user)),
    ), reason


def _place_profile(option: Option, folder: Path, *, by_user: bool) -> tuple[str, ...]:
    """Spell an option, and make the path of a profile in the corpus absolute."""
    if by_user or not names_a_profile(option) or not any(option.values):
        return option.words
    return (f"{option.name}{folder / option.values[0]}",)


@functools.lru_cache(maxsize=256)
def _parse(words: tuple[str, ...]) -> tuple[Option, ...]:
    """Parse a command line; cached, because most modules of a project have the same one."""
    return parse_options(words)


def _apply(options: Sequence[Option], edits: CommandLineEdits, where: str) -> list[tuple[Option, bool]]:
    """Apply edits; return each option with whether the user wrote it."""
    replacements = {option.name: option for option in edits.replace}
    present = {option.name for option in options}
    for name in replacements:
        if name not in present:
            raise UsageError(
                f"{where}: replace options: expected an option {name} in its command line, found none; "
                "correct the name, or add it instead"
            )
    changed: list[tuple[Option, bool]] = []
    for option in options:
        if option.name in replacements:
            changed.append((replacements[option.name], True))
        elif not any(_matches(option, deletion) for deletion in edits.delete):
            changed.append((option, False))
    return changed + [(option, True) for option in edits.add]


def _matches(option: Option, deletion: Option) -> bool:
    return option.name == deletion.name and (not _has_value(deletion) or option.values == deletion.values)


def _has_value(option: Option) -> bool:
    return any(option.values)


def _parse_edits(texts: Iterable[str], kind: str) -> tuple[Option, ...]:
    options: list[Option] = []
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(
                f"{kind} options: expected options as on a command line, found {text!r} ({error}); close the quotation"
            ) from error
        parsed = parse_options(_respell(words))
        needs_value = set[str]() if kind == "delete" else {"separate", "either", "pair"}
        if not parsed or any(
            option.kind == "input" or option.name == MLLVM or (option.kind in needs_value and not _has_value(option))
            for option in parsed
        ):
            raise UsageError(
                f"{kind} options: expected options of clang -cc1 such as -Oz or -mllvm -name=value, found {text!r}; "
                "correct it"
            )
        options += [_complete(option) for option in parsed]
    return tuple(options)


def _respell(words: Sequence[str]) -> list[str]:
    """Spell ``-f=x`` or ``-f x`` as clang accepts it, since users do not distinguish them."""
    kinds = option_table().kinds
    if len(words) == 2 and words[0] not in kinds and f"{words[0]}=" in kinds:
        return [f"{words[0]}={words[1]}"]
    if len(words) == 1 and parse_options(words)[0].kind == "unknown":
        name, _, value = words[0].partition("=")
        if kinds.get(name) == "separate":
            return [name, value]
    return list(words)


def _complete(option: Option) -> Option:
    """Append a missing ``=`` to an option's name, as a user may write names without it."""
    if _has_value(option) or option.kind != "unknown":
        return option
    return Option(name=canonical_name(option.name), values=option.values, words=option.words, kind=option.kind)

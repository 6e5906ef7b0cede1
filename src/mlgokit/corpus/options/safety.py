"""Whether a stranger's command line may be given to the compiler.

A corpus is data, but its command lines are arguments of a program that can load libraries, start others, and write
where it is told to. So what is not known to be harmless is refused: every option of ``-cc1`` that takes a value must be
in the reviewed list (``option_review.toml``), and of LLVM's own only those are taken whose value is a number or a word.
The remedy is to delete or to replace the option (:mod:`mlgokit.corpus.options.edits`): what a user adds is not
questioned.

What stays possible: bitcode can hold inline assembly, whose ``.incbin`` reads a file into the object, and a compiler
may have defects. Objects of a stranger's corpus are not to be published or run.
"""

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mlgokit.corpus.options.parse import LLVM_KINDS, Option, option_table, parse_options

LONGEST_COMMAND_LINE = 1 << 20
"""Bytes; Linux takes 2 MiB of arguments and environment."""

_WORD = re.compile(r"[\w.,+:=%-]*")
_NUMBER = re.compile(r"[+-]?(0x)?[0-9a-fA-F.]+|true|false|TRUE|FALSE|True|False|")
_TALKING = re.compile(r"(^|-)(view|dot|print|dump|viz|help|mlgokit)|^version$")
"""LLVM's own options that print, open a viewer or write a file of a fixed name, and the plugin's, which name files."""
_NAMES_FILE = re.compile(r"(file|path|dir|directory|plugin|log|output|load|list|base|exec)$")
"""How the names of options end whose values are files; asked only about options that the table does not have."""
_REMEDY = "delete or replace it with --delete-options or --replace-options if you trust it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Review:
    """``option_review.toml``, one predicate for each of its lists."""

    left_out: Callable[[str], bool]
    refused: Callable[[str], bool]
    exceptions: Callable[[str], bool]
    inside: Callable[[str], bool]
    kept: Callable[[str], bool]
    llvm_text: Callable[[str], bool]


def is_left_out(option: Option) -> bool:
    """Whether compiling a module's bitcode does without the option: the front end's, and outputs beside the object."""
    review = _review()
    return review.left_out(option.name) and not review.exceptions(option.name)


def check_command_line(words: Sequence[str], *, folder: Path | None = None) -> str | None:
    """Why a command line of ``clang -cc1`` is refused, or ``None``; what :func:`is_left_out` is no reason.

    Args:
        words: the command line, ``-cc1`` first.
        folder: the corpus; profiles may be read from there and from nowhere else.

    Example:
        >>> check_command_line(["-cc1", "-Oz", "-target-feature", "+avx"])
        >>> check_command_line(["-cc1", "-load", "evil.so"])  # doctest: +ELLIPSIS
        'expected options that only decide the code, found -load evil.so; delete or replace it with ...'
    """
    if tuple(words[:1]) != ("-cc1",):
        return f"expected -cc1 as the first option, found {words[0] if words else 'no option'}"
    if sum(len(word) + 1 for word in words) > LONGEST_COMMAND_LINE:
        return f"expected at most {LONGEST_COMMAND_LINE} bytes of options, found more"
    return check_options(parse_options(words[1:]), folder=folder)


def check_options(options: Iterable[Option], *, folder: Path | None = None) -> str | None:
    """The same for options that are parsed already, without the ``-cc1``."""
    for option in options:
        if option.name == "-cc1":
            return "expected one command line, found a second -cc1; extract the objects before they are joined"
        if not _is_harmless(option, folder):
            found = " ".join(option.words)[:200]
            return f"expected options that only decide the code, found {found}; {_REMEDY}"
    return None


def check_file(path: Path, what: str, *, folder: Path, most_bytes: int) -> str | None:
    """Why a file of a corpus is not to be opened, or ``None``: it is none, too large, or a link to elsewhere."""
    if not path.is_file():
        return f"expected {what} in {path.name}, found {'no regular file' if path.exists() else 'no file'}"
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        return f"expected {what} inside of the corpus, found {path.name} to be a link to {real}; copy it"
    size = path.stat().st_size
    return None if size <= most_bytes else f"expected at most {most_bytes} bytes of {what} in {path.name}, found {size}"


def _is_harmless(option: Option, folder: Path | None) -> bool:
    review = _review()
    value = option.values[0] if option.values else ""
    # The compiler replaces @file by the words in it wherever it stands, and another -cc1... is another program.
    if option.kind == "input" or any(word.startswith("@") or "\0" in word for word in option.words):
        harmless = False
    elif option.name.startswith("-mllvm "):
        harmless = _is_harmless_llvm(option)
    elif review.exceptions(option.name) or is_left_out(option):
        harmless = True
    elif option.name.startswith("-cc1") or review.refused(option.name):
        harmless = False
    elif option.name == "-fbasic-block-sections=":
        harmless = not value.startswith("list=")
    elif review.inside(option.name):
        harmless = bool(value) and folder is not None and Path(value).resolve().is_relative_to(folder.resolve())
    elif option.kind == "unknown":
        name = option.name.strip("-=")
        harmless = "/" not in option.words[0] and not _TALKING.search(name) and not _NAMES_FILE.search(name)
    else:
        harmless = option.kind == "flag" or _is_kept(option.name)
    return harmless


def _is_kept(name: str) -> bool:
    """Whether the option is in the list, or is a flag that shares its name with one that takes a value."""
    return _review().kept(name) or option_table().kinds.get(name) == "flag"


def _is_harmless_llvm(option: Option) -> bool:
    name = option.name.removeprefix("-mllvm -")
    value = option.values[0] if option.values else ""
    if _TALKING.search(name) and option.kind in {"llvm-flag", "llvm-choice", "unknown"}:
        return False
    if option.kind == "llvm-text":
        return _review().llvm_text(name) and _WORD.fullmatch(value) is not None
    if option.kind in LLVM_KINDS:
        return _WORD.fullmatch(value) is not None
    return _NUMBER.fullmatch(value) is not None and not _NAMES_FILE.search(name)


@functools.cache
def _review() -> _Review:
    text = resources.files("mlgokit.corpus.options").joinpath("option_review.toml").read_text(encoding="utf-8")
    return _Review(**{key: _matcher(entries.split()) for key, entries in tomllib.loads(text).items()})


def _matcher(entries: Sequence[str]) -> Callable[[str], bool]:
    """Whether a name is in a list; a ``*`` in an entry stands for anything."""
    exact = frozenset(entry for entry in entries if "*" not in entry)
    patterns = "|".join(re.escape(entry).replace(r"\*", ".*") for entry in entries if "*" in entry)
    pattern = re.compile(patterns or "(?!)")

    @functools.lru_cache(maxsize=4096)
    def matches(name: str) -> bool:
        return name in exact or pattern.fullmatch(name) is not None

    return matches

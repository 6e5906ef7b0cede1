"""Reader of compilation databases, ``compile_commands.json``.

The format is Clang's, see https://clang.llvm.org/docs/JSONCompilationDatabase.html; CMake, Meson, Ninja and Bear
write it. The file is read as a stream, so that memory does not grow with it, and nothing that it names is executed.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mlgokit.corpus.json_stream import JsonFile, put_item
from mlgokit.corpus.options.driver import driver_units
from mlgokit.corpus.response_files import expand_response_files
from mlgokit.errors import CorpusError

ENTRY_BYTES = 16 << 20
"""Approximate limit on the size of an entry of the database."""

_DEPTH = 16
_PLAIN = re.compile(r"[^\s\"'\\]+")
_QUOTING = re.compile(r"[\"'\\]")
# One part of a shell word: plain text, 'single quotes', "double quotes", or an escaped character.
_PART = re.compile(r"([^ \t\n\"'\\]+)|'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:([$`\"\\])|\n)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCommand:
    """One command of a build.

    Attributes:
        directory: absolute working directory.
        file: absolute path of the source; not resolved, and possibly missing.
        arguments: words of the command, the compiler first; response files in the build folder are expanded.
        output: absolute path of the object, if the command makes one: the entry's ``output``, else by
            :func:`output_of`.
    """

    directory: Path
    file: Path
    arguments: tuple[str, ...]
    output: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedCommand:
    """An entry that is not a command; ``index`` is its position in the database, from 0."""

    index: int
    reason: str


def read_compile_commands(path: Path) -> Iterator[CompileCommand | MalformedCommand]:
    """Read the commands of a compilation database in order.

    Relative folders count from the database's own folder, symbolic links to the database followed; files and outputs
    from the command's folder.

    Raises:
        CorpusError: the file cannot be read, or is not a JSON array.
    """
    try:
        with path.open("rb") as file:
            folder = path.resolve().parent
            entries = _entries(
                JsonFile(
                    file=file,
                    path=path,
                    elements="entries",
                    most_bytes=ENTRY_BYTES,
                    most_levels=_DEPTH,
                    remedy="write the database again with the build system that made it",
                )
            )
            for index, entry in enumerate(entries):
                try:
                    yield _parse_entry(entry, folder=folder)
                except ValueError as error:
                    yield MalformedCommand(index=index, reason=str(error))
    except OSError as error:
        raise CorpusError(
            f"{path}: expected a compilation database, found: {error.strerror or error}; check the path"
        ) from error


def split_command(text: str) -> list[str]:
    r"""Split a line into words as a POSIX shell does, without expansions and operators.

    :func:`shlex.split` differs: it keeps the backslash of ``"\$"``, which CMake writes.

    Example:
        >>> split_command(r'cc -DA="\"a b\"" -DB=\"c\" -Wl,-rpath,"\$ORIGIN" "" a\ b.c')
        ['cc', '-DA="a b"', '-DB="c"', '-Wl,-rpath,$ORIGIN', '', 'a b.c']

    Raises:
        ValueError: a quotation does not end.
    """
    if _QUOTING.search(text) is None:
        return _PLAIN.findall(text) if text.isascii() else [word for word in re.split(r"[ \t\n]+", text) if word]
    words: list[str] = []
    word: list[str] | None = None
    position = 0
    while position < len(text):
        if text[position] in " \t\n":
            if word is not None:
                words.append("".join(word))
            word = None
            position += 1
            continue
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"expected every quotation mark to be closed, found {text[position : position + 40]!r}")
        plain, single, double, escaped = part.groups()
        position = part.end()
        if escaped == "\n":
            continue
        word = [] if word is None else word
        if plain is not None:
            word.append(plain)
        elif single is not None:
            word.append(single)
        elif double is not None:
            word.append(_ESCAPED.sub(r"\1", double))
        else:
            word.append(escaped)
    return words if word is None else [*words, "".join(word)]


def output_of(arguments: Sequence[str], file: Path) -> str | None:
    """Find the output of a command for ``file``: that of the last ``-o``, else an object if there is a ``-c``.

    Example:
        >>> source = Path("src/a.c")
        >>> output_of(("cc", "-oa.o"), source), output_of(("cc", "-c", "src/a.c"), source), output_of(("cc",), source)
        ('a.o', 'a.o', None)
    """
    output = None
    for index, word in enumerate(arguments):
        if word == "-o":
            output = arguments[index + 1] if index + 1 < len(arguments) else output
        elif word.startswith("-o") and not word.startswith("-object"):
            output = word[2:]
    return f"{file.stem}.o" if output is None and "-c" in arguments else output


def names_source(command: CompileCommand, word: str) -> bool:
    """Whether a word of a command, as a path, is the source of its entry."""
    return posixpath.normpath(command.directory / word) == str(command.file)


def source_word(command: CompileCommand) -> str:
    """Find the source of an entry as its command spells it; its absolute path if the command does not have it."""
    inputs = (unit.words[0] for unit in driver_units(command.arguments[1:]) if unit.kind == "input")
    named = [word for word in inputs if names_source(command, word)]
    return named[-1] if named else str(command.file)


def named_language(command: CompileCommand) -> str:
    """Find the language that a command names for its source (``-x``), which is before it; empty if its suffix tells.

    Example:
        >>> words = tuple("cc -x c -c a.cc -x none b.o".split())
        >>> named_language(CompileCommand(directory=Path("/b"), file=Path("/b/a.cc"), arguments=words, output=None))
        'c'
    """
    language = ""
    for unit in driver_units(command.arguments[1:]):
        if unit.kind == "input" and names_source(command, unit.words[0]):
            break
        if unit.name.startswith("-x"):
            language = "".join(unit.values) or unit.name[2:]
    return "" if language == "none" else language


def _entries(file: JsonFile) -> Iterator[object]:
    for stack, item in file.values():
        if len(stack) == 1 and isinstance(stack[0][0], list):
            file.begin = file.position
            yield item
        elif stack:
            put_item(*stack[-1], item)
        elif not isinstance(item, list):
            raise file.error("a JSON array of commands", "another value")


def _parse_entry(entry: object, *, folder: Path) -> CompileCommand:
    """Parse an entry of the database; ``folder`` is the database's own."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected a JSON object with directory, file and command, found {type(entry).__name__}")  # noqa: TRY004  (one kind for all)
    values = cast("dict[str, object]", entry)
    directory = folder / _text(values, "directory")
    file = directory / _text(values, "file")
    if "arguments" in values:
        items = values["arguments"]
        words = cast("list[object]", items) if isinstance(items, list) else [None]
        if not all(isinstance(word, str) for word in words):
            raise ValueError("arguments: expected a list of strings")
        arguments = cast("list[str]", words)
    else:
        arguments = split_command(_text(values, "command"))
    if not arguments:
        raise ValueError("expected a command with at least one word, found an empty one")
    for word in arguments:
        _check_text(word, "command")
    arguments[1:] = expand_response_files(arguments[1:], directory, inside=folder)
    for word in arguments:
        _check_text(word, "response file")
    named = _text(values, "output") if "output" in values else output_of(arguments, file)
    return CompileCommand(
        directory=normalize(directory),
        file=normalize(file),
        arguments=tuple(arguments),
        output=normalize(directory / named) if named else None,
    )


def _text(values: dict[str, object], key: str) -> str:
    """Read a string of an entry; text that no command line can hold is an error."""
    value = values.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key}: expected text, found {'nothing' if key not in values else 'another kind of value'}")
    return _check_text(value, key)


def _check_text(text: str, key: str) -> str:
    """Refuse text that no command line can hold, such as one with a NUL."""
    try:
        usable = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise ValueError(f"{key}: expected text that a command line can hold, found {text!r:.80}")
    return text


def normalize(path: Path) -> Path:
    """Remove ``.`` and ``..`` from a path, without a look at the disk."""
    return Path(os.path.normpath(path))

"""What of a command only the front end reads: macros, folders and files of headers."""

import posixpath
from collections.abc import Iterator

from mlgokit.compiler.options.parse import Option
from mlgokit.corpus.importers.compile_commands import CompileCommand
from mlgokit.corpus.options.driver import driver_units

PRECOMPILED = "-include-pch"
_PATHS = frozenset(
    f"""
    -D -U -I -F -include -imacros -isystem -iquote -idirafter -iprefix -iwithprefix -iwithprefixbefore -iframework
    -cxx-isystem {PRECOMPILED}
    """.split()
)
_JOINED_PATHS = ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter")
"""What only the front end reads: two commands that differ in nothing else compile bitcode in the same way."""
_PASSED = frozenset({"-include", PRECOMPILED})


def path_of(unit: Option) -> Option | None:
    """What only the front end reads, apart from its value and of the kind ``path``; ``None`` for another option.

    Raises:
        ValueError: the value is none, but would be an option to a compiler that reads the line in another way.
    """
    option, value = unit.name, "".join(unit.values)
    if option == "-Xclang" and len(unit.values) > 1 and unit.values[0] in _PASSED:
        name, value = unit.values
    elif option in _PATHS:
        name = option
    else:
        name = next((name for name in _JOINED_PATHS if option.startswith(name)), "")
        value = option.removeprefix(name)
        if not name:
            return None
    if not value or value.startswith(("-", "@")):
        raise ValueError(f"expected a value of {name} that is no option, found {' '.join(unit.words)[:200]}")
    return Option(name=name, values=(value,), words=unit.words, kind="path")


def front_end_paths(words: tuple[str, ...]) -> Iterator[Option]:
    """All of them in the words of a command, in the order of ``clang -cc1``: what is passed by ``-Xclang`` comes last.

    Raises:
        ValueError: as of :func:`path_of`.
    """
    found = [path for unit in driver_units(words) if (path := path_of(unit)) is not None]
    yield from (path for path in found if path.words[0] != "-Xclang")
    yield from (path for path in found if path.words[0] == "-Xclang")


def names_source(command: CompileCommand, word: str) -> bool:
    """Whether an input of a command is its source."""
    return posixpath.normpath(command.directory / word) == str(command.file)


def source_word(command: CompileCommand) -> str:
    """The source as the command spells it, else its path."""
    inputs = (unit.words[0] for unit in driver_units(command.arguments[1:]) if unit.kind == "input")
    named = [word for word in inputs if names_source(command, word)]
    return named[-1] if named else str(command.file)

"""Precompiled headers of a build: the commands that make them, and the header text that replaces them.

A precompiled header is a compiler's memory on disk, for its own version only. So a source is compiled with the header's
text, as the command that made it read it: with its macros, its folders and its own ``-include``. As clang does, a
source's command adds to these what the header's has not: an ``-include`` of both is read once, and a macro of the
source alone is not there while the header is read.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.options.parse import Option
from mlgokit.corpus.importers.build_compiler import compiler_name, drop_launchers
from mlgokit.corpus.importers.compile_commands import CompileCommand, normalize, source_word
from mlgokit.corpus.importers.no_code import PRECOMPILES, why_no_code
from mlgokit.corpus.options.driver import PRECOMPILED, driver_units, front_end_paths
from mlgokit.files import atomic_write

Headers = Mapping[Path, CompileCommand]
"""The commands that make precompiled headers, by path of the output."""
NO_HEADERS: Headers = {}
MACROS = "macros"
"""Folder in a corpus for headers that only define macros."""
_SUFFIXES = (".gch", ".pch")
_MACROS = frozenset({"-D", "-U"})
_TEXTS = frozenset({"-include", "-imacros"})
_HEADER_REMEDY = "import a database that has its command, or compile without it"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderText:
    """What a source includes in place of its precompiled headers.

    Attributes:
        units: options of the source's command that only the front end reads, with the headers' text in their place.
        after: macros that are defined only after the headers.
        made_by: the commands that make the headers, each after those that it uses; empty if only the text is known.
        used: options of the source's command that name the precompiled headers.
    """

    units: tuple[Option, ...]
    after: tuple[Option, ...] = ()
    made_by: tuple[CompileCommand, ...] = ()
    used: tuple[Option, ...] = ()


def find_header_commands(commands: Iterable[object]) -> dict[Path, CompileCommand]:
    """Find the commands of a database that make precompiled headers."""
    return {
        path: command
        for command in commands
        if isinstance(command, CompileCommand) and (why_no_code(command) or "").startswith(PRECOMPILES)
        for path in _outputs(command)
    }


def write_macros(macros: Sequence[Option], corpus: Path) -> Path:
    """Write a header with macro definitions into a corpus, named by its content."""
    lines: list[str] = []
    for unit in macros:
        # As clang's command line: what is behind a line break does not count.
        name, equals, value = unit.values[0].partition("\n")[0].partition("=")
        lines.append(f"#undef {name}\n" if unit.name == "-U" else f"#define {name} {value if equals else 1}\n")
    text = "".join(lines)
    path = corpus / MACROS / f"{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}.h"
    if not path.exists():
        atomic_write(path, text.encode("utf-8", "surrogateescape"))
    return path


def _outputs(command: CompileCommand) -> Iterator[Path]:
    """List where a command writes its precompiled header: by ``-o``, or beside the source or in the working folder."""
    if any(unit.name.startswith("-o") for unit in driver_units(command.arguments[1:])):
        yield command.output or command.file
        return
    for suffix in _SUFFIXES:
        yield command.file.with_name(command.file.name + suffix)
        yield command.directory / (command.file.name + suffix)


def header_text(command: CompileCommand, headers: Headers, *, made: frozenset[Path] = frozenset()) -> HeaderText | None:
    """Make the options by which a command includes headers' text in place of precompiled ones; ``None`` if it has none.

    Args:
        command: the command of a source, or of a header that includes another one.
        headers: the precompiled headers that the database makes.
        made: precompiled headers that these commands make, which are not replaced by their own text.

    Raises:
        ValueError: the text of a header is not known, or would give other code than the precompiled header.
    """
    if not headers and PRECOMPILED not in command.arguments:
        return None
    words = drop_launchers(command.arguments)
    own = front_end_paths(words[1:])
    name = compiler_name(words[0])
    folders = [command.directory]
    if name is None or not name.is_clang:
        # GCC looks for a precompiled header wherever it looks for a header, and clang where it runs.
        folders += [command.directory / unit.values[0] for unit in own if unit.name.startswith(("-I", "-i"))]
    macros: list[Option] = []
    texts: list[Option] = []
    searched: list[Option] = []
    made_by: list[CompileCommand] = []
    rest: list[Option] = []
    for unit in own:
        path = _find_precompiled(unit, command, folders, headers)
        maker = None if path is None else headers.get(path)
        if path is None or path in made or maker == command:
            rest.append(unit)
            continue
        if maker is None:
            texts.append(_option("-include", str(path.with_suffix(""))))
            continue
        inner = _header_options(maker, headers, made=made | {path})
        if inner.after:
            raise ValueError(
                f"expected precompiled headers with the same macros, found {path.name} made with "
                f"{' '.join(inner.after[0].words)} and another header without; give both the same"
            )
        made_by += inner.made_by
        placed = [_relocate_option(option, maker, command) for option in inner.units]
        macros += (option for option in placed if option.name in _MACROS)
        texts += (option for option in placed if option.name in _TEXTS)
        searched += (option for option in placed if option.name not in _MACROS | _TEXTS)
    used = tuple(unit for unit in own if unit not in rest)
    if not used:
        return None
    if not made_by:
        return HeaderText(units=(*texts, *rest), used=used)
    read = {_key(unit, command) for unit in (*macros, *texts)}
    rest = [unit for unit in rest if _key(unit, command) not in read]
    there = {_key(unit, command) for unit in rest}
    return HeaderText(
        units=(
            *macros,
            *texts,
            *(unit for unit in rest if unit.name not in _MACROS),
            *(unit for unit in searched if _key(unit, command) not in there),
        ),
        after=tuple(unit for unit in rest if unit.name in _MACROS),
        made_by=tuple(made_by),
        used=used,
    )


def _header_options(maker: CompileCommand, headers: Headers, *, made: frozenset[Path]) -> HeaderText:
    """Make the options with which a source includes the text of a precompiled header, which comes last."""
    words = drop_launchers(maker.arguments)
    if "-fpch-codegen" in words:
        raise ValueError(
            "expected a precompiled header that is only read, found one made with -fpch-codegen, whose functions are "
            "compiled with it; leave that out of the build"
        )
    text = header_text(maker, headers, made=made)
    source = _option("-include", source_word(maker))
    if text is None:
        return HeaderText(units=(*front_end_paths(words[1:]), source), made_by=(maker,))
    return HeaderText(units=(*text.units, source), after=text.after, made_by=(*text.made_by, maker))


def _find_precompiled(unit: Option, command: CompileCommand, folders: Iterable[Path], headers: Headers) -> Path | None:
    """Find the precompiled header that an option names, or that a compiler would substitute."""
    name = unit.values[0]
    if unit.name == PRECOMPILED:
        path = normalize(command.directory / name)
        if path in headers or (path.suffix in _SUFFIXES and path.with_suffix("").is_file()):
            return path
        raise ValueError(
            f"expected the text of the precompiled header {name}, found no command of the database that makes it, and "
            f"no header of that name beside it; {_HEADER_REMEDY}"
        )
    # A compiler's driver looks for one; its front end does not.
    for folder in folders if unit.name == "-include" and unit.words[0] != "-Xclang" else ():
        for suffix in _SUFFIXES:
            if (path := normalize(folder / f"{name}{suffix}")) in headers:
                return path
        if (folder / name).is_file():
            break
    return None


def _relocate_option(unit: Option, maker: CompileCommand, command: CompileCommand) -> Option:
    """Rewrite an option for a command that runs in another folder."""
    if unit.name in _MACROS or maker.directory == command.directory:
        return unit
    return _option(unit.name, str(normalize(maker.directory / unit.values[0])))


def _option(name: str, value: str) -> Option:
    return Option(name=name, values=(value,), words=(name, value), kind="path")


def _key(unit: Option, command: CompileCommand) -> tuple[str, str]:
    """Make a key that is the same for all spellings of an option."""
    value = unit.values[0]
    if unit.name in _TEXTS:
        return unit.name, value
    if unit.name in _MACROS:
        return unit.name, value if "=" in value or unit.name == "-U" else f"{value}=1"
    return unit.name, str(normalize(command.directory / value))

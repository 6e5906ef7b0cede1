"""Lists of the objects of a build: in a folder, a linker's parameter file, bazel's action graph or a database.

Every list is read as a stream, and every name is made such that it stays inside a folder.
"""

import os
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mlgokit.compiler.build_tree import files_below
from mlgokit.compiler.driver_call import split_response
from mlgokit.corpus.importers.compile_commands import CompileCommand, MalformedCommand
from mlgokit.corpus.json_stream import iter_members
from mlgokit.errors import CorpusError, UsageError

OBJECT_SUFFIXES = (".o", ".obj")
LONGEST_LINE = 1 << 20
"""Limit on the length of a line of a parameter file."""

_LINK = "CppLink"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFile:
    """An object file that a build says it made, named by its module, such as ``lib/bar.o``.

    Paths in its command line are relative to ``base``. ``trouble`` says why there is no object, if so.
    """

    name: str
    path: Path
    base: Path
    trouble: str = ""


def module_name(path: str, base: str) -> str:
    """Name the module of an object at ``path``, which may be relative to ``base``.

    Outside of ``base`` the name is the whole path without its root, so that it cannot leave the corpus.

    Example:
        >>> [module_name(path, "/build") for path in ("lib/bar.o", "./lib/../bar.o", "/build/a.o", "../x/b.o")]
        ['lib/bar.o', 'bar.o', 'a.o', 'x/b.o']
    """
    whole = os.path.normpath(os.path.join(base, path))  # noqa: PTH118  (paths of other machines, as text)
    inside = whole.removeprefix(os.path.normpath(base).rstrip("/") + "/")
    return "/".join(part for part in inside.split("/") if part not in {"", ".", ".."})


def objects_in_folder(
    folder: Path, *, suffixes: tuple[str, ...] = OBJECT_SUFFIXES, without: Path | None = None
) -> Generator[ObjectFile]:
    """List all files below a folder with one of the suffixes, folder by folder in order; links are not followed.

    The folder ``without`` and those that mlgokit made are left out.

    Raises:
        CorpusError: there is no such folder.
    """
    if not folder.is_dir():
        kind = "a file" if folder.exists() else "nothing"
        raise CorpusError(f"{folder}: expected a folder, found {kind}; give the folder of the build")
    whole = folder.absolute()
    for path in files_below(whole, without=None if without is None else without.absolute()):
        if path.name.endswith(suffixes):
            yield ObjectFile(name=path.relative_to(whole).as_posix(), path=path, base=folder)


def objects_in_parameters(path: Path, *, object_base: Path = Path()) -> Generator[ObjectFile]:
    """List the objects in a linker's parameter file, one parameter a line (``@file`` of lld, or of bazel).

    Their paths are relative to ``object_base``.

    Raises:
        CorpusError: the file cannot be read.
    """
    has_output = any(_is_output(word) for word in _parameters(path))
    yield from _objects_of_link(_parameters(path), has_output=has_output, object_base=object_base)


def _objects_of_link(words: Iterable[str], *, has_output: bool, object_base: Path) -> Generator[ObjectFile]:
    """List the objects among the words of a link; without an output, every word that is no option counts as one."""
    rest = iter(words)
    for word in rest:
        if word in {"-o", "--output"}:
            next(rest, None)
        elif word and not word.startswith(("-", "@")) and (word.endswith(OBJECT_SUFFIXES) or not has_output):
            name = module_name(word, str(object_base.absolute()))
            yield ObjectFile(name=name, path=object_base / word, base=object_base)


def _is_output(word: str) -> bool:
    return word in {"-o", "--output"} or word.startswith(("-o ", "--output="))


def _parameters(path: Path) -> Generator[str]:
    """Read the parameters of a linker's parameter file, one a line, without quotes."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            while line := file.readline(LONGEST_LINE):
                yield _unquote(line.strip())
    except OSError as error:
        raise CorpusError(
            f"{path}: expected a file with a linker's parameters, found: {error.strerror or error}; give another"
        ) from error


def _unquote(line: str) -> str:
    """Remove quotes from a line, as lld's ``response.txt`` may have them."""
    if not line.startswith(('"', "'")):
        return line
    try:
        words = split_response(line)
    except ValueError:
        return line
    return words[0] if len(words) == 1 else line


def objects_in_aquery(path: Path, *, object_base: Path = Path()) -> Generator[ObjectFile]:
    """List the objects of the last link action in ``bazel aquery --output=jsonproto``, and of its parameter files.

    The JSON is an ``analysis.ActionGraphContainer``. Paths are relative to ``object_base``, usually bazel's execution
    root.

    Raises:
        CorpusError: the file cannot be read, is not such JSON, or has no link action.
    """
    words: list[str] | None = None
    for _, action in iter_members(path, "actions", remedy="query the target again"):
        if isinstance(action, dict) and cast("dict[str, Any]", action).get("mnemonic") == _LINK:
            words = _link_words(cast("dict[str, Any]", action), path)
    if words is None:
        raise CorpusError(
            f"{path}: expected an action of kind {_LINK}, found none; query the target of a program, as JSON "
            "(bazel aquery --output=jsonproto --include_commandline --include_param_files)"
        )
    has_output = any(_is_output(word) for word in words)
    yield from _objects_of_link(words, has_output=has_output, object_base=object_base)


def _link_words(action: dict[str, Any], path: Path) -> list[str]:
    """Collect the arguments of a link action of bazel, with those in its parameter files."""
    files = action.get("paramFiles", [])
    words: list[str] = []
    for part in [action, *cast("list[object]", files if isinstance(files, list) else [])]:
        arguments: object = cast("dict[str, Any]", part).get("arguments", []) if isinstance(part, dict) else None
        if not isinstance(arguments, list) or not all(isinstance(word, str) for word in cast("list[Any]", arguments)):
            raise CorpusError(
                f"{path}: {_LINK}: expected arguments that are a list of strings, found {arguments!r:.100}; run "
                "bazel aquery again"
            )
        words += cast("list[str]", arguments)
    return words


def objects_of_commands(
    commands: Iterable[CompileCommand | MalformedCommand],
    *,
    object_base: Path | None = None,
    build_folder: Path | None = None,
) -> Generator[ObjectFile]:
    """List the object of each compilation: its ``-o`` or ``output``, or clang's default name.

    Modules are named relative to ``object_base``, by default each command's own folder, as by LLVM's ``extract_ir``. A
    module that would get the name of an earlier one, as in the folders of a recursive make, is named relative to
    ``build_folder``.
    """
    # Hashes alone: about 100 bytes of memory for each object.
    paths: dict[int, int] = {}
    for command in commands:
        if isinstance(command, MalformedCommand):
            yield ObjectFile(name=f"entry {command.index}", path=Path(), base=Path(), trouble=command.reason)
            continue
        directory = command.directory
        path = command.output
        if path is None:
            yield ObjectFile(
                name=module_name(str(command.file), str(directory)),
                path=command.file,
                base=directory,
                trouble="expected a command with -o or -c, found one that makes no object",
            )
            continue
        name = module_name(str(path), str((object_base or directory).absolute()))
        if build_folder is not None and paths.setdefault(hash(name), hash(path)) != hash(path):
            name = module_name(str(path), str(build_folder.absolute()))
        yield ObjectFile(name=name, path=path, base=directory)


def compile_filter(name: str, text: str | None) -> re.Pattern[str] | None:
    """Compile the regular expression of a filter, if there is one; ``name`` is its option, for the error.

    Raises:
        UsageError: it is malformed.
    """
    try:
        return None if text is None else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{name}: expected a regular expression, found {text!r:.200} ({error}); correct it") from error

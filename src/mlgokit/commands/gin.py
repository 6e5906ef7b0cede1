"""Bindings in gin files, as google/ml-compiler-opt is configured, read as data: nothing is imported or executed."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mlgokit.errors import InputError, StorageError
from mlgokit.files import open_regular

MOST_BYTES = 1 << 20
"""Limit on a file, and on one binding of the command line."""
MOST_FILES = 64
"""Limit on the files that others include."""
_SPACE = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT}
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a value names instead of being it: ``@agents.PPOAgentConfig``, or a ``%constant`` that no file defines."""

    name: str

    @property
    def last(self) -> str:
        """The part after the last dot, without calls."""
        return self.name.rsplit(".", maxsplit=1)[-1].removesuffix("()")


Value = object
Bindings = Mapping[str, Value]


def read_gin(files: Sequence[Path], bindings: Sequence[str] = ()) -> dict[str, Value]:
    """Read the bindings of gin files with those that they include, then single ones; a later one wins.

    Names are their last two parts, such as ``train_eval.num_modules``; scopes are dropped. Macros are replaced by their
    values, and other names become a :class:`Reference`.

    Args:
        files: the files. What one includes is looked for in the working folder, and in the folders above the file.
        bindings: bindings as on a command line, such as ``clang_path="'/usr/bin/clang'"``.

    Raises:
        InputError: a file is missing, too large, no gin file, or one of too many.

    Example:
        >>> read_gin([], ["num = 3", "a.b.train_eval.num_modules = %num", "train_eval.type = @agents.PPO()"])
        {'train_eval.num_modules': 3, 'train_eval.type': Reference(name='agents.PPO()')}
    """
    found: dict[str, Value] = {}
    seen: set[Path] = set()
    for file in files:
        found |= _read_file(file, seen)
    for binding in bindings:
        found |= _read_text(binding, f"--gin_bindings={binding:.200}", None, seen)
    macros = {name: value for name, value in found.items() if "." not in name}
    return {name: _resolve(value, macros) for name, value in found.items() if "." in name}


def _read_file(path: Path, seen: set[Path]) -> dict[str, Value]:
    try:
        whole = path.resolve()
        if whole in seen:
            return {}
        if len(seen) == MOST_FILES:
            raise InputError(f"{path}: expected at most {MOST_FILES} gin files, found more; give fewer")
        seen.add(whole)
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: expected a gin file, found: {error.strerror or error}; correct the path") from error
    return _read_text(data.decode("utf-8", "replace"), str(path), path, seen)


def _read_text(text: str, where: str, path: Path | None, seen: set[Path]) -> dict[str, Value]:
    if len(text) > MOST_BYTES:
        raise InputError(f"{where}: expected at most {MOST_BYTES} bytes, found more; give another file")
    found: dict[str, Value] = {}
    for tokens in _statements(text, where):
        first = tokens[0].string
        if first in {"import", "from"}:
            continue
        if first == "include" and len(tokens) == 2:
            included = _find_included(str(_literal(tokens[1:], where)), path, where)
            found |= _read_file(included, seen)
            continue
        equals = next((place for place, token in enumerate(tokens) if token.string == "="), 0)
        name = "".join(token.string for token in tokens[:equals])
        if not name or not tokens[equals + 1 :]:
            raise InputError(
                f"{where}: line {tokens[0].start[0]}: expected an import, an include or NAME = VALUE, found "
                f"{tokens[0].line.strip()!r:.200}; correct it"
            )
        found[".".join(name.rsplit("/", maxsplit=1)[-1].split(".")[-2:])] = _literal(tokens[equals + 1 :], where)
    return found


def _statements(text: str, where: str) -> Iterator[list[tokenize.TokenInfo]]:
    """The tokens of each statement, whose brackets may span lines. Gin has the tokens of Python."""
    statement: list[tokenize.TokenInfo] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                if statement:
                    yield statement
                statement = []
            elif token.type not in _SPACE:
                statement.append(token)
    except (tokenize.TokenError, SyntaxError) as error:
        raise InputError(f"{where}: expected a gin file, found: {error}; correct it") from error


def _literal(tokens: Sequence[tokenize.TokenInfo], where: str) -> Value:
    """The value of tokens: a Python literal with references in it."""
    names: list[str] = []
    words: list[str] = []
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if token.string not in {"@", "%"}:
            words.append(token.string)
            continue
        name, end = "" if token.string == "@" else "%", token.end
        while (
            rest and rest[0].start == end and (rest[0].type == tokenize.NAME or rest[0].string in {".", "/", "(", ")"})
        ):
            if rest[0].string == ")" and not name.endswith("("):
                break
            name, end = name + rest[0].string, rest[0].end
            rest.pop(0)
        # A string that no file can have, as source text has no NUL.
        words.append(f"'\\x00{len(names)}'")
        names.append(name)
    try:
        value: Value = ast.literal_eval(" ".join(words))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{where}: line {tokens[0].start[0]}: expected a literal of Python, @name or %name, found "
            f"{' '.join(words)!r:.200}; correct it"
        ) from error
    references = {f"\x00{number}": Reference(name) for number, name in enumerate(names)}
    return _replace(value, lambda one: references.get(one, one) if isinstance(one, str) else one)


def _replace(value: Value, change: Callable[[Value], Value]) -> Value:
    """A value with what is in it changed, and lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(_replace(one, change) for one in cast("Iterable[object]", value))
    if isinstance(value, dict):
        return {key: _replace(one, change) for key, one in cast("dict[object, object]", value).items()}
    return change(value)


def _resolve(value: Value, macros: Mapping[str, Value], depth: int = 0) -> Value:
    """A value with macros replaced; one that is defined by itself stays."""

    def change(one: Value) -> Value:
        name = one.name[1:] if isinstance(one, Reference) and one.name.startswith("%") else ""
        return _resolve(macros[name], macros, depth + 1) if name in macros and depth < len(macros) else one

    return _replace(value, change)


def search_folders(files: Sequence[Path]) -> tuple[Path, ...]:
    """Where relative paths in gin files are looked for: the working folder, then the folders above the files.

    They are relative to the top of a checkout, in which the reference's tools run.
    """
    return (Path(), *(folder for file in files for folder in file.resolve().parents))


def _find_included(name: str, path: Path | None, where: str) -> Path:
    """Where an included file is; its name is relative to the folder that the reference's tools run in."""
    try:
        for folder in search_folders(() if path is None else (path,)):
            if (folder / name).is_file():
                return folder / name
    except (OSError, ValueError) as error:
        raise StorageError(f"{where}: include {name!r:.200}: expected a path, found: {error}; correct it") from error
    raise InputError(
        f"{where}: include {name!r:.200}: expected a file in the working folder or one above this file, found none; "
        "run in the folder that it is relative to"
    )

"""A project's settings: options of ``advise``, ``tune`` and ``check`` that a file of the project says.

The file is ``mlgokit.toml``, or the table ``[tool.mlgokit]`` of ``pyproject.toml``, in the working folder or one above
it in the same project. It names commands that are run, so only a file that nobody but the user (or root) can have
written is read: see ``docs/security.md``.
"""

import difflib
import errno
import os
import shlex
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mlgokit.commands.call_words import match_words
from mlgokit.commands.declared_options import Option
from mlgokit.commands.help import options_of
from mlgokit.commands.table import COMMANDS
from mlgokit.errors import UsageError
from mlgokit.files import open_regular

FILE = "mlgokit.toml"
WITH_SETTINGS = tuple(name for name, command in COMMANDS.items() if command.run_folders)
"""The commands that the file has options of."""
_SOURCES = ("--build", "--compile-commands", "--corpus", "--cargo")
_OF_SOURCES = frozenset(
    f"--{name}"
    for name in (
        "build", "compile-commands", "corpus", "cargo", "test", "program", "clean", "build-folder", "cargo-folder",
        "max-bytes", "max-growth", "program-bytes", "program-growth", "against", "links", "link-command", "link-folder",
        "command", "compressor", "replay-clang", "sandbox", "run", "held-out", "project", "level", "baseline", "target",
    )
)  # fmt: skip
"""What a source on the command line stands in place of."""
_PER_PROGRAM = {"max-bytes": "program-bytes", "max-growth": "program-growth"}
"""Limits that may be a table of programs, and the options that take one of them."""
_COMMANDS = f"{', '.join(WITH_SETTINGS[:-1])} or {WITH_SETTINGS[-1]}"
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a file says, by key, with tables for the commands that have settings."""

    file: Path
    values: Mapping[str, Any]


def find_settings(folder: Path) -> Settings | None:
    """The settings of the project that a folder is in; ``None`` if it has none.

    The search ends with the first file that has some, and above the top of a repository.

    Raises:
        UsageError: the file is no TOML, has a key that is none, or could have been written by others.
    """
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        for name in (FILE, "pyproject.toml"):
            found = _read(place / name)
            if found is not None:
                _check_keys(found)
                return found
        if (place / ".git").exists():
            return None
    return None


def add_settings(name: str, words: Sequence[str], settings: Settings) -> tuple[list[str], list[str]]:
    """The words of a call with those of the settings, and the latter alone; what the call says wins.

    Raises:
        UsageError: a value is of another kind than its option's.
    """
    options = {one.names[-1].removeprefix("--"): one for one in options_of(COMMANDS[name])}
    given = given_options(tuple(options.values()), words)
    if given & {*_SOURCES}:
        given |= _OF_SOURCES
    own = cast("Mapping[str, Any]", settings.values.get(name, {}))
    shared = {key: value for key, value in settings.values.items() if key not in WITH_SETTINGS and key in options}
    added, positional = list[str](), list[str]()
    for key, value in {**shared, **own}.items():
        option = options[key]
        if option.names[-1] in given or f"--{_PER_PROGRAM.get(key, key)}" in given:
            continue
        if isinstance(value, dict):
            added += [f"--{_PER_PROGRAM[key]}={one}={limit}" for one, limit in cast("dict[str, Any]", value).items()]
            continue
        texts = list(_texts(settings, f"{name}.{key}" if key in own else key, option, value))
        if option.is_positional:
            positional += texts
        elif not option.value:
            added += [option.names[-1]] * (value is True)
        elif option.takes_many:
            added += [option.names[-1], *texts]
        else:
            added += [f"{option.names[-1]}={text}" for text in texts]
    if settings.file.parent != Path.cwd():
        added += [*_places(name, given, added, settings.file.parent)]
    added = [*positional, *added]
    return [*added, *words], added


def _places(name: str, given: AbstractSet[str], added: Sequence[str], home: Path) -> Iterator[str]:
    """Words for where commands of the file run, and where what they make is kept, unless the call or the file says."""
    command = COMMANDS[name]
    names = {word.partition("=")[0] for word in added}
    for option, place in command.run_folders.items():
        if option in names and place not in given | names:
            yield f"{place}={os.path.relpath(home)}"
    if names.isdisjoint(_SOURCES):
        return
    kept = {f"--{field}" for field in (command.folder, command.plugin)}
    for option in options_of(command):
        if option.names[-1] in kept - given - names:
            yield f"{option.names[-1]}={os.path.relpath(home / option.default)}"


def say_settings(settings: Settings, added: Sequence[str]) -> str:
    """One line with everything that a call takes from the file, commands among it."""
    return f"mlgokit: from {os.path.relpath(settings.file)}: {shlex.join(added)}"


def given_options(options: Sequence[Option], words: Sequence[str]) -> set[str]:
    """The options that words of a command line give, each by its last name; positional ones by theirs."""
    positional = {one.names[-1] for one in options if one.is_positional}
    found = set[str]()
    for option, _ in match_words(options, words):
        found |= positional if option is None else {option.names[-1]}
    return found


def _read(path: Path) -> Settings | None:
    """Read the settings of one file; ``None`` if it has none."""
    is_own = path.name == FILE
    opened = _open(path, must=is_own)
    if opened is None:
        return None
    text, about = opened
    try:
        values: Any = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if not is_own:
            return None
        raise UsageError(f"{path}: expected TOML, found: {error}; correct it") from error
    for table in () if is_own else ("tool", "mlgokit"):
        values = cast("dict[str, Any]", values).get(table) if isinstance(values, dict) else None
    if values is None:
        return None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a table [tool.mlgokit], found a value; correct it")
    _check_owner(path, (about, path.lstat()))
    return Settings(file=path, values=cast("dict[str, Any]", values))


def _open(path: Path, *, must: bool) -> tuple[bytes, os.stat_result] | None:
    """Read a regular file and its ``os.stat_result``; ``None`` without one. With ``must``, it has to be readable."""
    try:
        with open_regular(path) as file:
            text, about = file.read(_LARGEST + 1), os.fstat(file.fileno())
    except OSError as error:
        if must and error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EINVAL}:
            raise UsageError(f"{path}: expected readable settings, found: {error.strerror}; correct it") from error
        return None
    if len(text) > _LARGEST:
        raise UsageError(f"{path}: expected settings of at most {_LARGEST:,} bytes, found more; shorten it")
    return text, about


def _check_owner(path: Path, stats: Sequence[os.stat_result]) -> None:
    """Refuse a file that another user owns, directly or by a link, or that everybody can write.

    A group may write it: on many systems each user has a group of their own, with which all files are made. ``stats``
    are those of the file and of ``path``, which may be a link to it.
    """
    if stranger := next((one.st_uid for one in stats if one.st_uid not in {os.geteuid(), 0}), None):
        raise UsageError(
            f"{path}: expected settings of your own, since they name commands to run, found a file of another user "
            f"({stranger}); read it, and copy it if you trust it"
        )
    if stats[0].st_mode & stat.S_IWOTH:
        raise UsageError(
            f"{path}: expected settings that only you can write, since they name commands to run, found a file that "
            "everybody can; `chmod o-w` it once you have read it"
        )


def _check_keys(settings: Settings) -> None:
    """Refuse keys that are no options, and tables that are no commands."""
    known = {name: [one.names[-1].removeprefix("--") for one in options_of(COMMANDS[name])] for name in WITH_SETTINGS}
    shared = sorted({key for keys in known.values() for key in keys})
    for key, value in settings.values.items():
        if key not in WITH_SETTINGS:
            _check_key(settings, key, key, value, [*WITH_SETTINGS, *shared])
        elif not isinstance(value, dict):
            raise UsageError(f"{settings.file}: {key}: expected a table [{key}], found a value; correct it")
        else:
            for one, inner in cast("dict[str, Any]", value).items():
                _check_key(settings, f"{key}.{one}", one, inner, known[key])


def _check_key(settings: Settings, place: str, key: str, value: Any, known: Sequence[str]) -> None:
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        advice = f"did you mean {near[0]}?" if near else "remove it"
        raise UsageError(f"{settings.file}: {place} is not an option of {_COMMANDS}; {advice}")
    if isinstance(value, dict):
        limits = cast("dict[str, Any]", value).values()
        if key not in _PER_PROGRAM or not all(_is_number(limit) for limit in limits):
            raise UsageError(f"{settings.file}: {place}: expected a value, found a table; correct it")


def _texts(settings: Settings, place: str, option: Option, value: Any) -> Iterator[str]:
    """Yield the words that a user would type for a value; a list gives one word for each item."""
    values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    is_flag = not option.value
    if isinstance(value, list) and not (option.is_repeatable or option.takes_many):
        raise UsageError(f"{settings.file}: {place}: expected one value, found a list; correct it")
    for one in values:
        expected = "true or false" if is_flag else "a number" if option.value in {"INT", "FLOAT"} else "a text"
        fits = {"true or false": isinstance(one, bool), "a number": _is_number(one), "a text": isinstance(one, str)}
        if not fits[expected]:
            raise UsageError(f"{settings.file}: {place}: expected {expected}, found {one!r}; correct it")
        is_path = option.value == "PATH" and not one.startswith("builtin:") and one != "none"
        home = settings.file.parent
        yield os.path.relpath(home / one) if is_path and home != Path.cwd() else str(one)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

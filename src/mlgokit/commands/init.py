"""The command that writes a project's settings."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mlgokit.commands.project_kind import ProjectKind, recognize_project
from mlgokit.commands.settings import FILE, WITH_SETTINGS, find_settings
from mlgokit.commands.table import COMMANDS
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import say

_MOST_JOBS = 8
PLUGIN = "tuned.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """Look at a project, and write mlgokit.toml: how it is built for size and tested, for advise, tune and check."""

    folder: Path = Path()
    """Folder of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialized:
    """What was found and written, and the programs of the build that are not installed."""

    file: Path
    kind: ProjectKind
    missing: tuple[str, ...]


def run(config: Init, *, report: Report = say_nothing) -> Initialized:  # noqa: ARG001  (all commands take one)
    """Recognize the project, and write its settings; what is there is never overwritten.

    Raises:
        StorageError: the disk is full or not writable.
        UsageError: there are settings, or no project that is known.
    """
    file = config.folder / FILE
    if not config.folder.is_dir():
        raise UsageError(f"{config.folder}: expected the folder of a project, found none; correct --folder")
    if os.path.lexists(file):
        raise UsageError(f"{file}: expected no settings, found some; edit them, or remove the file and run init again")
    earlier = find_settings(config.folder)
    if earlier is not None:
        raise UsageError(
            f"{config.folder}: expected a project without settings, found those of {earlier.file}; edit them"
        )
    kind = recognize_project(config.folder, jobs=min(os.cpu_count() or 1, _MOST_JOBS))
    if kind is None:
        raise UsageError(
            f"{config.folder}: expected CMakeLists.txt, meson.build, Cargo.toml, configure, a Makefile or "
            "compile_commands.json, found none; go to the top of the project, or write mlgokit.toml by hand "
            "(docs/how-to/settings.md)"
        )
    atomic_write(file, settings_text(kind))
    missing = tuple(name for name in kind.programs if shutil.which(name) is None)
    return Initialized(file=file, kind=kind, missing=missing)


def render(result: Initialized, console: Console) -> None:
    """Print what was chosen, and what to run next."""
    kind = result.kind
    say(console, f"{kind.name}: wrote {result.file}")
    for command in (*kind.build, kind.cargo, kind.compile_commands):
        if command:
            say(console, f"  build: {command}")
    for command in kind.test:
        say(console, f"  test:  {command}")
    if not kind.test and not kind.compile_commands:
        say(console, "  test:  none found; add one to have the tuned build tested")
    for name in result.missing:
        say(console, f"  {name} is not installed, and the build needs it")
    for note in kind.notes:
        say(console, f"  {note}")
    say(console, "Look at the file: its commands will run. Then:")
    for name in WITH_SETTINGS:
        say(console, f"  mlgokit {name:<7} {COMMANDS[name].summary}")


def settings_text(kind: ProjectKind) -> str:
    """The file for a kind of project."""
    return "\n".join(_lines(kind))


def _lines(kind: ProjectKind) -> Iterator[str]:
    yield "# Options of `mlgokit advise`, `tune` and `check`; the command line wins. Written by `mlgokit init`."
    if kind.build:
        yield f"build = {_listed(kind.build)}"
    if kind.test:
        yield f"test = {_listed(kind.test)}"
    if kind.cargo:
        yield f"cargo = {json.dumps(kind.cargo)}"
    if kind.compile_commands:
        yield f"compile-commands = {json.dumps(kind.compile_commands)}"
    yield from ("", "[tune]", 'budget = "30m"', f'output = "{PLUGIN}"')
    yield "continue = true  # on changed code, too; delete the folder `tune` to begin anew"
    yield from ("", "[check]", f'plugin = "{PLUGIN}"')
    if kind.build:
        yield "# Limits of a program with the plugin, in bytes, and in percent since `against`:"
        yield from ("# max-bytes = 100000", "# max-growth = 0.5", '# against = "tune/tuned.json"')
    yield ""


def _listed(commands: tuple[str, ...]) -> str:
    return "[\n" + "".join(f"    {json.dumps(command)},\n" for command in commands) + "]"

"""Lines that add options to a build for good, in the words of its build system."""

import itertools
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mlgokit.builds.site import BuildCommands
from mlgokit.builds.variant import COMPILE_PLACES, LINK_PLACES, PluginPlace, plugin_link_option
from mlgokit.compiler.wrapping import AddedOptions
from mlgokit.corpus.importers.compile_commands import split_command

PREFIXES = ("-Xclang", "-mllvm")
"""Options of which the next word is a part."""
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_LINK_RECIPE = re.compile(r"^\t(?!.* -c\b).* -o(?!bj)", re.MULTILINE)
_COMPILE_RECIPE = re.compile(r"^\t.*( -c\b|\.(c|cc|cpp|cxx)\b)", re.MULTILINE)
BuildSystem = Literal["cargo", "Meson", "CMake", "Ninja", "Make"]


def format_plugin_lines(
    commands: BuildCommands, tree: Path, plugin: Path, place: PluginPlace, *, beside: Sequence[str] = ()
) -> str:
    """Write what to add to a build, for its build system, so that the steps of ``place`` load a plugin.

    ``tree`` is the folder of the build, and ``beside`` has other options of compilations.
    """
    added = AddedOptions(
        compile=(*beside, f"-fpass-plugin={plugin.absolute()}") if place in COMPILE_PLACES else (),
        link=(plugin_link_option(plugin),) if place in LINK_PLACES else (),
    )
    return format_added(commands, tree, added)


def format_added(commands: BuildCommands, tree: Path, added: AddedOptions) -> str:
    """Write what adds options to the compilations and links of a build, for its build system.

    Example:
        >>> format_added(BuildCommands(build=("meson compile -C b",)), Path("/none"), AddedOptions(compile=("-Os",)))
        "in meson.build: add_project_arguments('-Os', language: ['c', 'cpp'])"
        >>> format_added(BuildCommands(build=("make CFLAGS=-g",)), Path("/none"), AddedOptions(compile=("-Os",)))
        'in the build command, replacing what is there: CFLAGS="-g -Os"'
    """
    both = ((added.compile, False), (added.link, True))
    return "; ".join(_format_options(commands, tree, options, is_link=is_link) for options, is_link in both if options)


def _format_options(commands: BuildCommands, tree: Path, options: Sequence[str], *, is_link: bool) -> str:
    # Quoted for the shell or build system that splits these words at spaces.
    flags = shlex.join(options)
    names = ("LDFLAGS",) if is_link else ("CFLAGS", "CXXFLAGS")
    system = system_of(commands, tree)
    if system == "cargo":
        value = shlex.quote(" ".join(options))
        return f"in the environment: CFLAGS={value} CXXFLAGS={value}"
    if system in {"Meson", "CMake"}:
        place = "meson.build" if system == "Meson" else "CMakeLists.txt, behind project() and before the targets"
        return f"in {place}: {format_system_line(system, options, is_link=is_link)}"
    if system == "Ninja":
        return f"to the flags of the {'linker' if is_link else 'compilers'} in build.ninja: {flags}"
    if given := {name: value for name in names if (value := _find_variable(name, commands.build)) is not None}:
        words = " ".join(f"{name}={_quote(f'{value} {flags}')}" for name, value in given.items())
        return f"in the build command, replacing what is there: {words}"
    return f"{_makefile_place(commands, tree, names, is_link=is_link)}: {flags}"


def _quote(text: str) -> str:
    """Quote a value for a shell, by double quotes where a shell takes all in them as it is."""
    return shlex.quote(text) if set(text) & set('"$`\\') else f'"{text}"'


def _makefile_place(commands: BuildCommands, tree: Path, names: Sequence[str], *, is_link: bool) -> str:
    """Where a build by make has variables of these names, or its commands if these read none."""
    if "configure" in " ".join(commands.build) or (tree / "configure").exists():
        return f"at the end of {' and '.join(names)} of configure"
    makefile = _find_makefile(commands, tree)
    where = "the Makefile" if makefile is None or makefile.name == "Makefile" else makefile.name
    text = "" if makefile is None else makefile.read_text(errors="replace")
    recipe = _LINK_RECIPE if is_link else _COMPILE_RECIPE
    if not any(name in text for name in names) and recipe.search(text):
        return f"to the link command in {where}" if is_link else f"to the commands in {where} that compile"
    return f"at the end of {' and '.join(names)} of {where}"


def format_system_line(system: BuildSystem, options: Sequence[str], *, is_link: bool) -> str:
    """Write the line of a build system that gives these options to all compilers or links; empty without options.

    Example:
        >>> format_system_line("CMake", ["-Oz", "-Xclang", "-fmerge-functions"], is_link=False)
        'add_compile_options(-Oz "SHELL:-Xclang -fmerge-functions")'
        >>> format_system_line("Make", ["-Wl,--icf=all"], is_link=True)
        'LDFLAGS += -Wl,--icf=all'
    """
    flags = shlex.join(options)
    if not options:
        return ""
    if system == "CMake":
        return f"add_{'link' if is_link else 'compile'}_options({' '.join(_cmake_words(options))})"
    if system == "Meson":
        words = ", ".join(f"'{option}'" for option in options)
        return f"add_project_{'link_' if is_link else ''}arguments({words}, language: ['c', 'cpp'])"
    if system == "cargo":
        return f"RUSTFLAGS={shlex.quote(' '.join(f'-Clink-arg={option}' for option in options))}" if is_link else ""
    names = ("LDFLAGS",) if is_link else ("CFLAGS", "CXXFLAGS")
    return "\n".join(f"{name} += {flags}" for name in names)


def system_of(commands: BuildCommands, tree: Path) -> BuildSystem:
    """Find the build system of a build by its commands and files; Make where nothing tells of another."""
    programs = " ".join(commands.build)

    def has(*names: str) -> bool:
        return any((tree / name).exists() for name in names)

    if "cargo" in programs:
        return "cargo"
    if "meson" in programs or (has("meson.build") and not has("CMakeLists.txt", "Makefile")):
        return "Meson"
    if "cmake" in programs or (has("CMakeLists.txt") and not has("configure") and not _find_makefile(commands, tree)):
        return "CMake"
    return "Ninja" if "ninja" in programs and has("build.ninja") else "Make"


def _find_makefile(commands: BuildCommands, tree: Path) -> Path | None:
    """Find the makefile that the commands name with ``-f``, else the one that make would take in the tree."""
    calls = [split_command(command) for command in commands.build]
    named = [
        after
        for words in calls
        if any(Path(word).name in {"make", "gmake"} for word in words)
        for word, after in itertools.pairwise(words)
        if word == "-f"
    ]
    return next((tree / name for name in (*named, *_MAKEFILES) if (tree / name).is_file()), None)


def _cmake_words(options: Sequence[str]) -> list[str]:
    """Make options arguments of CMake, which drops the second of two equal words unless they stand in a group."""
    found: list[str] = []
    left = list(options)
    while left:
        option = left.pop(0)
        if option in PREFIXES and left:
            found.append(json.dumps(f"SHELL:{option} {left.pop(0)}"))
        else:
            found.append(option if shlex.quote(option) == option else json.dumps(option))
    return found


def _find_variable(name: str, commands: Sequence[str]) -> str | None:
    """Find the value that commands give to a variable, among their words or before them; the last one counts."""
    found = None
    for command in commands:
        for word in split_command(command):
            if word.startswith(f"{name}="):
                found = word.removeprefix(f"{name}=")
    return found

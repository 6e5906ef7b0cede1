"""Identification of the compiler that a command of a build names, by its name and by its ``--version``.

A database is data: nothing that it names is executed. A compiler that has one of the names below, and is the very
program that the user's own ``PATH`` has for this name, is asked for its version; no other is.
"""

import functools
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from mlgokit.compiler.program_version import ProgramVersion, program_version

Baseline = Literal["build", "clang"]
"""The compiler of the baseline: the build's own, which must then be a clang, or our clang, whatever the build uses."""

_WRAPPERS = frozenset({"ccache", "distcc", "sccache", "icecc", "buildcache", "gomacc", "reclient", "rewrapper", "env"})
_COMPILER = re.compile(
    r"(?P<target>(?:[A-Za-z0-9_.]+-){1,3})?(?P<name>cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cxx|CC|c89|c99)"
    r"(?:-(?P<version>[0-9.]+))?"
)
_GCC_ONLY = re.compile(
    r"-f(no-)?(ipa-.*|gcse.*|graphite.*|whole-program|tree-(?!vectorize|slp-vectorize|ter|dce|salias|vrp).*|toplevel-reorder"
    r"|pch-preprocess|modules-ts|max-errors=.*|lto-partition=.*|use-linker-plugin|var-tracking.*|conserve-stack)"
    r"|-specs=.*|-mindirect-branch=.*"
)
"""Options of GCC that clang has never accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerName:
    """A compiler as a command spells it, split into base name (``g++``), target and version, or empty."""

    name: str
    target: str
    version: str

    @property
    def is_clang(self) -> bool:
        """Whether the name is one of clang."""
        return "clang" in self.name

    @property
    def is_cxx(self) -> bool:
        """Whether it is a C++ driver."""
        return self.name.endswith(("++", "xx")) or self.name == "CC"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCompiler:
    """A compiler that a build names, and whether it is a clang; ``None`` if unknown, as is a major of 0.

    The text is the name in the command, with the answer to ``--version`` if there is one: ``c++ (clang 22.1.8)``.
    """

    text: str
    is_clang: bool | None
    major: int = 0


def drop_launchers(arguments: Sequence[str]) -> Sequence[str]:
    """Drop launchers such as ``ccache`` and ``env A=b`` before the compiler.

    Raises:
        ValueError: no compiler is left; or a word is empty, so that it is not known which option it belongs to.
    """
    if "" in arguments[1:]:
        before = arguments[arguments.index("", 1) - 1]
        raise ValueError(f"expected options and a source, found an empty word after {before[:200]}")
    for index, word in enumerate(arguments):
        if PurePosixPath(word).name not in _WRAPPERS and (index == 0 or "=" not in word):
            return arguments[index:]
    raise ValueError(f"expected a compiler, found only {arguments[0]}")


def compiler_name(word: str) -> CompilerName | None:
    """Parse the name of a compiler; ``None`` if it is neither GCC nor a clang with GCC's options.

    Example:
        >>> compiler_name("/usr/bin/arm-none-eabi-g++-12")
        CompilerName(name='g++', target='arm-none-eabi', version='12')
    """
    match = _COMPILER.fullmatch(PurePosixPath(word).name.removesuffix(".exe"))
    if match is None:
        return None
    target = (match["target"] or "").removesuffix("-")
    return CompilerName(name=match["name"], target=target, version=match["version"] or "")


def build_compiler(arguments: Sequence[str]) -> BuildCompiler:
    """Identify the compiler of a command.

    Raises:
        ValueError: the command has none.
    """
    words = drop_launchers(arguments)
    compiler = _identify(words[0], os.environ.get("PATH", ""))
    if compiler.is_clang is None and (option := next(filter(_GCC_ONLY.fullmatch, words[1:]), None)) is not None:
        return BuildCompiler(text=f"{compiler.text} (with {option}, an option of GCC)", is_clang=False)
    return compiler


@functools.lru_cache(maxsize=256)
def _identify(word: str, path: str) -> BuildCompiler:
    name, text = compiler_name(word), PurePosixPath(word).name
    if name is None:
        return BuildCompiler(text=text, is_clang=False)
    program = _find_program(word, path)
    answer = ProgramVersion() if program is None else program_version(program)
    if not answer.version:
        major = name.version.partition(".")[0]
        return BuildCompiler(
            text=text,
            is_clang=True if name.is_clang else False if name.name in {"gcc", "g++"} else None,
            major=int(major) if name.is_clang and major.isdigit() else 0,
        )
    if not answer.text:
        return BuildCompiler(text=f"{text} (no clang, version {answer.version})", is_clang=False)
    return BuildCompiler(text=f"{text} (clang {answer.version})", is_clang=True, major=answer.major)


def _find_program(word: str, path: str) -> Path | None:
    """Find the program of this name in ``path``, if it is the same file as the one that the word names."""
    folders = [folder for folder in path.split(os.pathsep) if Path(folder).is_absolute()]
    program = shutil.which(PurePosixPath(word).name, path=os.pathsep.join(folders))
    if program is None or ("/" in word and not _is_same_file(word, program)):
        return None
    return Path(program)


def _is_same_file(word: str, path: str) -> bool:
    try:
        return Path(word).is_absolute() and Path(word).samefile(path)
    except (OSError, ValueError):
        return False

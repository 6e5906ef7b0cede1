"""Export tuned inlining decisions as replay files, which any release of clang reads without a plugin.

LLVM reads them with ``-cgscc-inline-replay=`` (``llvm/Analysis/ReplayInlineAdvisor.h``). A line names a callee and the
stack of inlined call sites that leads to it, each by function, line offset within the function, column and
discriminator. The compiler therefore needs line tables, which do not change the code.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mlgokit.errors import InputError, UsageError
from mlgokit.files import atomic_write, writing

LINES_NAME = "replay.txt"
CONFIG_NAME = "replay.cfg"
ARGUMENTS_NAME = "replay.args"
LINE_TABLES = ("-gline-tables-only", "-fdebug-info-for-profiling")
"""The second option adds mangled names and discriminators to line tables, which make call sites unique."""

MANGLING = "-Csymbol-mangling-version=v0"
"""The mangling scheme of a rustc that loads a plugin; stable compilers may have another default."""
_SCOPE_OPTIONS = ("-cgscc-inline-replay-scope=Module", "-cgscc-inline-replay-fallback=Original")
"""LLVM decides about calls that no line names."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
_LINE = re.compile(
    r"mlgokit: '(?P<callee>[^'\n]+)' (?P<decided>inlined|will not be inlined) into '(?P<caller>[^'\n]+)' "
    r"at callsite (?P<site>[^;\n]+);"
)


class ReplayLine(NamedTuple):
    """One inlining decision of a replay; LLVM matches it by callee and call site, not by caller."""

    callee: str
    caller: str
    site: str
    inlined: bool

    @property
    def key(self) -> tuple[str, str]:
        """Callee and call site, by which LLVM matches the line."""
        return self.callee, self.site

    @property
    def functions(self) -> set[str]:
        """All functions that the line names."""
        return {self.callee, self.caller, *(site.partition(":")[0] for site in self.site.split(" @ "))}

    @property
    def text(self) -> str:
        """The line in LLVM's syntax, without a line break."""
        decided = "inlined" if self.inlined else "will not be inlined"
        return f"mlgokit: '{self.callee}' {decided} into '{self.caller}' at callsite {self.site};"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFiles:
    """Paths of an exported replay.

    Attributes:
        lines: file with the decisions, one a line.
        config: file with the options that make clang (a configuration file) or rustc (an argument file) read them.
    """

    lines: Path
    config: Path


def parse_replay_lines(data: bytes, origin: str) -> list[ReplayLine]:
    """Parse the decisions that the plugin logged in one compilation, in the order in which they were made.

    Raises:
        InputError: a line is malformed.
    """
    lines: list[ReplayLine] = []
    # Names are bytes; splitlines would also break at characters that a name may have.
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), start=1):
        if not line:
            continue
        read = _LINE.fullmatch(line)
        if read is None:
            raise InputError(
                f"{origin}: expected an inlining decision in line {number}, found {line[:100]!r}; report this as a bug"
            )
        lines.append(ReplayLine(read["callee"], read["caller"], read["site"], read["decided"] == "inlined"))
    return lines


def write_replay(folder: Path, lines: Iterable[ReplayLine], *, rust: bool = False) -> ReplayFiles:
    """Write the decisions, and a file of options with which clang or rustc reads them.

    Args:
        folder: output folder; it cannot be moved later, since the options contain its path.
        lines: the decisions, with distinct keys.
        rust: write options for rustc in place of clang.

    Raises:
        StorageError: the disk is full or the folder is not writable.
        UsageError: the folder's path cannot be written in a configuration file.
    """
    files = replay_files(folder, rust=rust)
    text = "".join(f"{line.text}\n" for line in lines)
    atomic_write(files.lines, text.encode("utf-8", "surrogateescape"))
    options = rustc_options(files.lines) if rust else config_lines(files.lines)
    atomic_write(files.config, "".join(f"{line}\n" for line in options).encode("utf-8", "surrogateescape"))
    return files


def remove_replay(folder: Path, *, rust: bool = False) -> ReplayFiles:
    """Delete the files of an earlier export, because there is no decision to replay; return their paths.

    Raises:
        StorageError: the folder is not writable.
    """
    files = replay_files(folder, rust=rust)
    with writing(folder):
        # A configuration without its list would fail each compilation.
        for path in (files.config, files.lines):
            path.unlink(missing_ok=True)
    return files


def replay_files(folder: Path, *, rust: bool) -> ReplayFiles:
    """Make the paths of an export into ``folder``, and check them for characters that the options cannot contain.

    Raises:
        UsageError: the options cannot contain them.
    """
    root = folder.absolute()
    if _CONTROL_CHARACTERS.search(str(root)):
        raise UsageError(f"{str(root)!r}: expected a path without control characters, found one; name another --output")
    if rust and " " in str(root):
        raise UsageError(
            f"{str(root)!r}: expected a folder without spaces in its path, at which rustc splits options for LLVM, "
            "found a space; name another --output"
        )
    return ReplayFiles(lines=root / LINES_NAME, config=root / (ARGUMENTS_NAME if rust else CONFIG_NAME))


def config_lines(lines: Path) -> list[str]:
    """List the lines of clang's configuration file for a replay."""
    quoted = str(lines).replace("\\", "\\\\").replace('"', '\\"')
    return [
        "# Tuned inlining decisions without a plugin: clang --config=<this file>. Made by `mlgokit export replay`.",
        *LINE_TABLES,
        f'-mllvm "-cgscc-inline-replay={quoted}"',
        *(f"-mllvm {option}" for option in _SCOPE_OPTIONS),
    ]


def rustc_options(lines: Path) -> list[str]:
    """List the lines of rustc's argument file (``@FILE``) for a replay, one option each."""
    return [MANGLING, *(f"-Cllvm-args={option}" for option in (f"-cgscc-inline-replay={lines}", *_SCOPE_OPTIONS))]


def config_words(files: ReplayFiles) -> tuple[str, str]:
    """Return the clang option that names the configuration file, as two words: clang 14 and 15 lack ``--config=``."""
    return "--config", str(files.config)

"""Tuned inlining decisions as files that any release of clang reads, without a plugin: LLVM's inline replay.

LLVM reads them with ``-cgscc-inline-replay=`` (``llvm/Analysis/ReplayInlineAdvisor.h``). A line names a callee and the
chain of call sites through which it came to its caller, each by function, line below the function's first one, column
and discriminator; so the compiler needs line tables, which change no code.
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
"""With the second, line tables have mangled names and discriminators, by which call sites are told apart."""

MANGLING = "-Csymbol-mangling-version=v0"
"""How rustc names functions where unstable options are allowed, as with a plugin; the default of others differs."""
_OTHERS_AS_LLVM = ("-cgscc-inline-replay-scope=Module", "-cgscc-inline-replay-fallback=Original")
"""Calls that no line names are LLVM's to decide."""
_NEWLINES = re.compile(r"[\x00-\x1f\x7f]")
_LINE = re.compile(
    r"mlgokit: '(?P<callee>[^'\n]+)' (?P<decided>inlined|will not be inlined) into '(?P<caller>[^'\n]+)' "
    r"at callsite (?P<site>[^;\n]+);"
)


class ReplayLine(NamedTuple):
    """One decision; LLVM finds it by callee and site alone."""

    callee: str
    caller: str
    site: str
    inlined: bool

    @property
    def key(self) -> tuple[str, str]:
        """By what LLVM finds it."""
        return self.callee, self.site

    @property
    def functions(self) -> set[str]:
        """All functions that it names."""
        return {self.callee, self.caller, *(site.partition(":")[0] for site in self.site.split(" @ "))}

    @property
    def text(self) -> str:
        """As LLVM reads it, without the end of the line."""
        decided = "inlined" if self.inlined else "will not be inlined"
        return f"mlgokit: '{self.callee}' {decided} into '{self.caller}' at callsite {self.site};"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFiles:
    """What was written.

    Attributes:
        lines: the decisions.
        config: what names them: the configuration file for clang, or the file of arguments for rustc.
    """

    lines: Path
    config: Path


def parse_replay_lines(data: bytes, origin: str) -> list[ReplayLine]:
    """The decisions that the plugin wrote in one compilation, in the order in which they were made.

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
                f"{origin}: expected a decision of the inliner in line {number}, found {line[:100]!r}; "
                "report this sentence"
            )
        lines.append(ReplayLine(read["callee"], read["caller"], read["site"], read["decided"] == "inlined"))
    return lines


def write_replay(folder: Path, lines: Iterable[ReplayLine], *, rust: bool = False) -> ReplayFiles:
    """Write the decisions, and a file for clang or rustc that has the options to read them.

    Args:
        folder: where; the file of options names it, so that it cannot be moved.
        lines: the decisions, no two with one key.
        rust: whether rustc is to read them.

    Raises:
        StorageError: the disk is full or the place is not writable.
        UsageError: the folder's name cannot stand in a configuration file.
    """
    files = _files(folder, rust=rust)
    text = "".join(f"{line.text}\n" for line in lines)
    atomic_write(files.lines, text.encode("utf-8", "surrogateescape"))
    options = rustc_options(files.lines) if rust else config_lines(files.lines)
    atomic_write(files.config, "".join(f"{line}\n" for line in options))
    return files


def remove_replay(folder: Path, *, rust: bool = False) -> ReplayFiles:
    """Take away what an earlier export wrote, where nothing is to be replayed; says where it was.

    Raises:
        StorageError: the place is not writable.
    """
    files = _files(folder, rust=rust)
    with writing(folder):
        for path in (files.lines, files.config):
            path.unlink(missing_ok=True)
    return files


def _files(folder: Path, *, rust: bool) -> ReplayFiles:
    root = folder.absolute()
    if _NEWLINES.search(str(root)):
        raise UsageError(f"{str(root)!r}: expected a folder without line breaks in its name; name another --output")
    if rust and " " in str(root):
        raise UsageError(
            f"{str(root)!r}: expected a folder without spaces in its path, where rustc takes options for LLVM apart; "
            "name another --output"
        )
    return ReplayFiles(lines=root / LINES_NAME, config=root / (ARGUMENTS_NAME if rust else CONFIG_NAME))


def config_lines(lines: Path) -> list[str]:
    """The lines of the configuration file: options, in the words of clang's command line."""
    quoted = str(lines).replace("\\", "\\\\").replace('"', '\\"')
    return [
        "# Tuned inlining decisions without a plugin: clang --config=<this file>. Made by `mlgokit export replay`.",
        *LINE_TABLES,
        f'-mllvm "-cgscc-inline-replay={quoted}"',
        *(f"-mllvm {option}" for option in _OTHERS_AS_LLVM),
    ]


def rustc_options(lines: Path) -> list[str]:
    """The lines of rustc's file of arguments (``@FILE``): one option each."""
    return [MANGLING, *(f"-Cllvm-args={option}" for option in (f"-cgscc-inline-replay={lines}", *_OTHERS_AS_LLVM))]


def config_words(files: ReplayFiles) -> tuple[str, str]:
    """What clang is called with: two words, as clang 14 and 15 know no ``--config=``."""
    return "--config", str(files.config)

"""Dry runs of clang's driver (``-###``): one for all commands of a build for which its answer is the same."""

import functools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.options.parse import Option, spell_options
from mlgokit.compiler.options.safety import check_command_line, check_front_end
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.pool import map_in_order
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.front_end import front_end_environment
from mlgokit.corpus.options.command_line import ask_driver, options_for_ir, options_for_source, read_dry_run
from mlgokit.corpus.profiles import replace_profiles
from mlgokit.errors import ToolError

_UNKNOWN = re.compile(r"error: (?:unknown argument:?|unsupported option) '([^']*)'")
_UNFIT = re.compile(r"error: unsupported argument '([^']*)' to option '([^']*)'")
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The common options of commands that differ only in their sources; equal ones have the same answer of the driver.

    Only the front end reads ``paths``, which are words of ``-cc1`` and do not count for that; ``essential`` are all
    other options. ``named`` is ``-x`` and a language if the commands have them.
    """

    directory: Path
    driver: str
    paths: tuple[str, ...] = field(compare=False)
    essential: tuple[Option, ...]
    language: str
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The result of a dry run: options for bitcode and for the source, unknown options, and the error if it failed."""

    command_line: tuple[str, ...] = ()
    front_end: tuple[str, ...] = ()
    unknown: tuple[Option, ...] = ()
    reason: str | None = None


NOT_ASKED = DryRun(reason="the database changed while it was read; import it again")
"""What stands for the answer about options that a database has not had when the driver was asked."""


def dry_runs(toolchain: Toolchain, options: Iterable[BuildOptions], *, workers: int) -> dict[BuildOptions, DryRun]:
    """Run the driver once for each of the options that differ."""
    distinct = dict.fromkeys(options)
    results = map_in_order(functools.partial(_dry_run, toolchain), distinct, workers=workers)
    return dict(zip(distinct, results, strict=True))


def driver_path(toolchain: Toolchain, name: str) -> str:
    """Return the path of a toolchain's driver ``clang`` or ``clang++``."""
    return str(toolchain.clangxx if name == "clang++" else toolchain.clang)


def _dry_run(toolchain: Toolchain, options: BuildOptions) -> DryRun:
    """Ask the driver for the ``-cc1`` line, again without the options that it does not know."""
    unknown: tuple[Option, ...] = ()
    reason = "no message"
    source = [*(options.named or ("-x", options.language)), "-"]
    if not os.path.isdir(options.directory):  # noqa: PTH112  (false as well for a name that no folder can have)
        return DryRun(reason=f"expected the folder {str(options.directory)[:200]} of the command, found none")
    for _ in range(_ATTEMPTS):
        known = [option for option in options.essential if option not in unknown]
        words = spell_options(known)
        done = ask_driver(
            driver_path(toolchain, options.driver),
            [*words, "-c", "-o", "module.o", *source],
            folder=options.directory,
            env=front_end_environment(),
        )
        if done.returncode == 0:
            return _parse_dry_run(done.stderr, unknown)
        rejected = _rejected_options(done.stderr, known)
        if not rejected:
            reason = "the driver did not finish in time" if done.timed_out else first_error(done.stderr)
            break
        unknown += rejected
    return DryRun(reason=reason)


def _rejected_options(stderr: str, options: Sequence[Option]) -> tuple[Option, ...]:
    named = set(_UNKNOWN.findall(stderr))
    unfit = _UNFIT.findall(stderr)
    return tuple(
        option
        for option in options
        if option.words[0] in named
        or any(option.words[0].startswith(name) and option.words[-1].endswith(value) for value, name in unfit)
    )


def _parse_dry_run(stderr: str, unknown: tuple[Option, ...]) -> DryRun:
    try:
        words = read_dry_run(stderr)
    except ToolError as error:
        return DryRun(reason=str(error))
    command_line, front_end = options_for_ir(words), options_for_source(words)
    # Profiles are checked by whoever knows where they are.
    bare = [replace_profiles(line, lambda _: None) for line in (front_end, command_line)]
    if (trouble := check_front_end(bare[0]) or check_command_line(bare[1])) is not None:
        return DryRun(reason=trouble)
    if "-O0" in command_line and "-disable-O0-optnone" not in command_line:
        return DryRun(
            reason="expected an optimization level, found -O0, at which clang marks functions not to be optimized; "
            "give one (--level Oz), or build with optimization"
        )
    return DryRun(command_line=command_line, front_end=front_end, unknown=unknown)

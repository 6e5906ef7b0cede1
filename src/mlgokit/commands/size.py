"""The command that tells where the bytes of a program are."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from mlgokit.basic import Basic
from mlgokit.commands.options import Paths
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.pages.html import check_json_name, write_page
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import Page
from mlgokit.pages.terminal import print_page
from mlgokit.progress import Report, say_nothing
from mlgokit.sizes.compare import SizeDifference, compare_sizes
from mlgokit.sizes.measure import measure_file
from mlgokit.sizes.page import DEFAULT_GROUPINGS, Grouping, difference_page, reasons_page, size_page
from mlgokit.sizes.record import Sizes, size_limit_json
from mlgokit.sizes.why import Reasons, find_reasons

_LINES_AROUND = 17
"""Lines that two tables, the sentences below them and the prompt take beside the rows."""
_LEAST_ROWS = 3
_BESIDE_NAMES = 48
"""Columns of a terminal that are beside the names of a table, or of one of differences."""
_BESIDE_CHANGES = 56
_MARKDOWN_ROWS, _MARKDOWN_NAMES = 15, 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Show where the bytes of a program, a library or an object are, or the difference between two."""

    file: Annotated[Path, tyro.conf.Positional, Basic.INPUT]
    """ELF, COFF, Mach-O or wasm program, shared library, static library or object."""
    after: Annotated[Path | None, tyro.conf.Positional, Basic.INPUT] = None
    """Second file; the difference from the first one to it is shown."""
    by: Annotated[tuple[Grouping, ...], Basic.WORK] = DEFAULT_GROUPINGS
    """Tables to show in the terminal; reports have all of them."""
    top: Annotated[int | None, Basic.WORK] = None
    """Number of rows of each table, in the terminal and in Markdown; by default as many as fit on one screen."""
    why: Annotated[str | None, Basic.WORK] = None
    """Symbol, mangled or demangled: shows what calls it or refers to it, and where it was inlined."""
    map: Annotated[Paths, Basic.INPUT] = ()
    """Linker map of the file (-Wl,-Map=), which tells the libraries that its parts come from; a second one is that of
    the second file."""
    format: Annotated[Literal["table", "markdown", "size-limit"], Basic.RESULT] = "table"
    """Form of what is printed: tables, Markdown for a pull request, or the JSON of the npm tool size-limit; `mlgokit
    --json` prints everything."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"]), Basic.RESULT] = None
    """JSON file to write, with a report (HTML with a treemap, and Markdown) beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What was found, and how it is to be shown."""

    config: Size
    found: Sizes | SizeDifference | Reasons

    def to_json(self) -> dict[str, Any]:
        """All that was found."""
        return self.found.to_json()

    def page(self, *, top: int | None = None, width: int | None = None) -> Page:
        """The page of it."""
        shown, command = self.config.by, _command(self.config)
        match self.found:
            case SizeDifference():
                return difference_page(self.found, shown=shown, top=top, width=width, command=command)
            case Reasons():
                return reasons_page(self.found, top=self.config.top, width=width, command=command)
            case _:
                return size_page(self.found, shown=shown, top=top, width=width, command=command)


def run(config: Size, *, report: Report = say_nothing) -> Shown:  # noqa: ARG001  (as of other commands)
    """Read the file, or both, and write the report if asked.

    Raises:
        UsageError: the call contradicts itself.
        InputError: a file is none that has sizes, or is damaged.
        ToolError: the file needs LLVM's programs, and there are none.
        StorageError: the report cannot be written.
    """
    _check(config)
    shown = Shown(config=config, found=_find(config))
    if config.output is not None:
        atomic_write(config.output, json.dumps(shown.to_json(), indent=1) + "\n")
        write_page(shown.page(), config.output)
    return shown


def _find(config: Size) -> Sizes | SizeDifference | Reasons:
    if config.why is not None:
        return find_reasons(config.file, config.why)
    files = [config.file] if config.after is None else [config.file, config.after]
    maps = [*config.map, None, None]
    found: list[Sizes] = []
    for place, path in enumerate(files):
        found.append(measure_file(path, link_map=maps[place]))
    return compare_sizes(found[0], found[1]) if len(found) > 1 else found[0]


def _check(config: Size) -> None:
    if config.top is not None and config.top < 1:
        raise UsageError(f"--top: expected at least 1, found {config.top}; give more")
    if len(config.map) > (1 if config.after is None else 2):
        raise UsageError(f"--map: expected at most one linker map for each file, found {len(config.map)}; remove some")
    if config.format == "size-limit" and config.after is not None:
        raise UsageError("--format size-limit: expected one file, found two; give the second alone")
    if config.why is not None and (config.after is not None or config.map or config.format == "size-limit"):
        raise UsageError(
            "--why: expected one file without --map and --format size-limit, found more; remove the others"
        )
    if config.output is not None:
        check_json_name(config.output)


def _command(config: Size) -> str:
    words = ["mlgokit", "size", str(config.file), *([str(config.after)] if config.after is not None else [])]
    words += ["--why", config.why] if config.why is not None else []
    words += [word for path in config.map for word in ("--map", str(path))]
    return shlex.join(words)


def render(shown: Shown, console: Console) -> None:
    """Print tables of at most one screen, or what was asked for in their place."""
    config = shown.config
    if config.format == "markdown":
        # As it is: a console would fold and colour it.
        sys.stdout.write(render_markdown(shown.page(top=config.top or _MARKDOWN_ROWS, width=_MARKDOWN_NAMES)))
        return
    if config.format == "size-limit" and isinstance(shown.found, Sizes):
        json.dump(size_limit_json(shown.found), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    tables = max(1, len(config.by))
    rows = config.top or max(_LEAST_ROWS, (console.height - _LINES_AROUND) // tables)
    beside = _BESIDE_NAMES if not isinstance(shown.found, SizeDifference) else _BESIDE_CHANGES
    page = shown.page(top=rows, width=max(24, console.width - beside))
    report = "" if config.output is None else str(config.output.with_suffix(".html"))
    print_page(page, console, report=report)

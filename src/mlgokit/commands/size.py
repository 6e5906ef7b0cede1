"""The command that tells where the bytes of a program are."""

# The annotations of a plain call are not evaluated, so that tyro is not imported.
from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from mlgokit.basic import Basic
from mlgokit.commands.plain import import_lazily
from mlgokit.errors import InputError, MlgokitError, UsageError
from mlgokit.files import atomic_write
from mlgokit.pages.model import Page
from mlgokit.pages.terminal import print_page
from mlgokit.progress import Report, say_nothing
from mlgokit.sizes.measure import Measured, find_owners, measure_file, sum_sizes
from mlgokit.sizes.page import difference_page, reasons_page, size_page
from mlgokit.sizes.record import DEFAULT_GROUPINGS, Grouping, Sizes, size_limit_json

if TYPE_CHECKING:
    import tyro

    from mlgokit.sizes.compare import SizeDifference
    from mlgokit.sizes.why import Reasons
else:
    tyro = import_lazily("tyro")

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
    """ELF, COFF, Mach-O or wasm program, shared library, static library or object; before a second file, also the JSON
    that `mlgokit size --output` wrote of an earlier one."""
    after: Annotated[Path | None, tyro.conf.Positional, Basic.INPUT] = None
    """Second file; the difference from the first one to it is shown."""
    max_bytes: Annotated[int | None, Basic.LIMITS] = None
    """Limit in bytes of what is loaded from the file, or from the second one; above it, the exit code is 1."""
    max_growth: Annotated[float | None, Basic.LIMITS] = None
    """Percentage, such as 0.5, by which the second file's loaded bytes may exceed the first's; above it, the exit code
    is 1."""
    by: Annotated[tuple[Grouping, ...], Basic.WORK] = DEFAULT_GROUPINGS
    """Tables to show in the terminal; reports have all of them."""
    top: Annotated[int | None, Basic.WORK] = None
    """Number of rows of each table, in the terminal and in Markdown; by default as many as fit on one screen."""
    why: Annotated[str | None, Basic.WORK] = None
    """Symbol, mangled or demangled: shows what calls it or refers to it, and where it was inlined."""
    map: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction, Basic.INPUT] = ()
    """Linker map of the file (-Wl,-Map=), which tells the libraries that its parts come from. A second map, or one
    beside a JSON, is that of the second file."""
    format: Annotated[Literal["table", "markdown", "size-limit"], Basic.RESULT] = "table"
    """Form of what is printed: tables, Markdown for a pull request, or the JSON of the npm tool size-limit; `mlgokit
    --json` prints everything."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"]), Basic.RESULT] = None
    """JSON file to write, with a report (HTML with a treemap, and Markdown) beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What was found, and how it is to be shown."""

    config: Size
    found: Measured | Sizes | SizeDifference | Reasons

    def to_json(self) -> dict[str, Any]:
        """All that was found, and with limits what exceeds them."""
        return _all(self.found).to_json() | ({"violations": self.violations()} if _has_limits(self.config) else {})

    def violations(self) -> list[str]:
        """A sentence for each limit that is exceeded."""
        most, growth, before = self.config.max_bytes, self.config.max_growth, 0
        if isinstance(self.found, (Measured, Sizes)):
            path, size = self.found.path, self.found.loaded_bytes
        else:
            from mlgokit.sizes.compare import SizeDifference

            if not isinstance(self.found, SizeDifference):
                return []
            path, size = self.found.after.path, self.found.after.loaded_bytes or 0
            before = self.found.before.loaded_bytes or 0
        found: list[str] = []
        if most is not None and size > most:
            found.append(f"{path}: {size:,} bytes are loaded, {size - most:,} more than --max-bytes {most:,}")
        if growth is not None and size > before * (1 + growth / 100):
            more = 100 * (size / before - 1) if before else 100
            found.append(
                f"{path}: {size:,} bytes are loaded, {more:.2f} % more than the {before:,} before; "
                f"--max-growth is {growth:g} %"
            )
        return found

    def page(self, *, top: int | None = None, width: int | None = None) -> Page:
        """The page of it."""
        found, shown, command = self.found, self.config.by, _command(self.config)
        if isinstance(found, Measured):
            sizes = sum_sizes(found, largest=top)
            page = size_page(sizes, shown=shown, top=top, width=width, command=command, symbols=found.symbols)
        elif isinstance(found, Sizes):
            page = size_page(found, shown=shown, top=top, width=width, command=command)
        else:
            page = self._other_page(found, top=top, width=width, command=command)
        if not (violations := self.violations()):
            return page
        return dataclasses.replace(
            page, answer="Over its limit", good=False, sentences=(*(f"{one}." for one in violations), *page.sentences)
        )

    def _other_page(self, found: SizeDifference | Reasons, *, top: int | None, width: int | None, command: str) -> Page:
        from mlgokit.sizes.compare import SizeDifference

        if isinstance(found, SizeDifference):
            return difference_page(found, shown=self.config.by, top=top, width=width, command=command)
        return reasons_page(found, top=self.config.top, width=width, command=command)


def run(config: Size, *, report: Report = say_nothing) -> Shown:  # noqa: ARG001  (as of other commands)
    """Read the file, or both, and write the report if asked.

    Raises:
        UsageError: the call contradicts itself.
        InputError: a file is none that has sizes, or is damaged.
        ToolError: ``--why`` needs LLVM's programs, and there are none.
        StorageError: the report cannot be written.
    """
    _check(config)
    shown = Shown(config=config, found=_find(config))
    if config.output is not None:
        from mlgokit.pages.html import write_page

        atomic_write(config.output, json.dumps(_all(shown.found).to_json(), indent=1) + "\n")
        write_page(shown.page(), config.output)
    return shown


def _find(config: Size) -> Measured | Sizes | SizeDifference | Reasons:
    # What the other forms of a call need takes longer to import than a small file takes to read.
    if config.why is not None:
        from mlgokit.sizes.why import find_reasons

        return find_reasons(config.file, config.why)
    is_record = _is_record(config)
    # A record has no map, as its libraries are in it.
    first, second, *_ = (*((None,) * is_record), *config.map, None, None)
    if config.after is None:
        measured = find_owners(config.file, link_map=first)
        return sum_sizes(measured) if _needs_all(config) else measured
    from mlgokit.sizes.compare import compare_sizes

    before = _read_record(config.file) if is_record else measure_file(config.file, link_map=first)
    return compare_sizes(before, measure_file(config.after, link_map=second))


def _is_record(config: Size) -> bool:
    """Whether the first of two files is what an earlier call wrote."""
    return config.after is not None and config.file.suffix == ".json"


def _all(found: Measured | Sizes | SizeDifference | Reasons) -> Sizes | SizeDifference | Reasons:
    return sum_sizes(found) if isinstance(found, Measured) else found


def _needs_all(config: Size) -> bool:
    """Whether more is shown than the largest symbols, whatever the terminal."""
    return config.output is not None or config.format != "table" or not {"template", "crate"}.isdisjoint(config.by)


def _read_record(path: Path) -> Sizes:
    """What an earlier call wrote of a file."""
    try:
        return Sizes.from_json(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: expected the JSON that `mlgokit size --output` wrote, found {error!r:.200}; write it again"
        ) from error


def _has_limits(config: Size) -> bool:
    return config.max_bytes is not None or config.max_growth is not None


def exit_code(config: Size, shown: Shown) -> int:  # noqa: ARG001  (as of other commands)
    """1 if a limit is exceeded."""
    return MlgokitError.exit_code if shown.violations() else 0


def _check(config: Size) -> None:
    if config.max_growth is not None and config.after is None:
        raise UsageError("--max-growth: expected two files, the earlier one first, found one; add the earlier one")
    if config.top is not None and config.top < 1:
        raise UsageError(f"--top: expected at least 1, found {config.top}; give more")
    if len(config.map) > (1 if config.after is None or _is_record(config) else 2):
        raise UsageError(f"--map: expected at most one linker map for each file, found {len(config.map)}; remove some")
    if config.format == "size-limit" and config.after is not None:
        raise UsageError("--format size-limit: expected one file, found two; give the second alone")
    limited = config.map or config.format == "size-limit" or _has_limits(config)
    if config.why is not None and (config.after is not None or limited):
        raise UsageError(
            "--why: expected one file without --map, limits and --format size-limit, found more; remove the others"
        )
    if config.output is not None:
        from mlgokit.pages.html import check_json_name

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
        from mlgokit.pages.markdown import render_markdown

        # As it is: a console would fold and colour it.
        sys.stdout.write(render_markdown(shown.page(top=config.top or _MARKDOWN_ROWS, width=_MARKDOWN_NAMES)))
        return
    if config.format == "size-limit" and isinstance(shown.found, Sizes):
        json.dump(size_limit_json(shown.found), sys.stdout, indent=2)
        sys.stdout.write("\n")
        sys.stderr.writelines(f"mlgokit: {one}\n" for one in shown.violations())
        return
    tables = max(1, len(config.by))
    rows = config.top or max(_LEAST_ROWS, (console.height - _LINES_AROUND) // tables)
    beside = _BESIDE_NAMES if config.after is None else _BESIDE_CHANGES
    page = shown.page(top=rows, width=max(24, console.width - beside))
    report = "" if config.output is None else str(config.output.with_suffix(".html"))
    print_page(page, console, report=report)

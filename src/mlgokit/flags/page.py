"""An advice as a page: what to add, each flag alone, those that pay together, and what comes on top."""

from collections.abc import Iterator

from mlgokit.builds.images import PART_BYTES
from mlgokit.flags.record import FlagAdvice, Trial, TriedFlag
from mlgokit.flags.reviewed import LEVEL, Counts
from mlgokit.pages.model import (
    Page,
    Row,
    Table,
    before_after_cells,
    before_after_columns,
    change_columns,
    count_columns,
    difference_columns,
    drop_empty,
    format_difference,
    number_columns,
    percent,
    relative_change,
    text_columns,
)
from mlgokit.terminal import counted

_LOADED = "Bytes that are loaded: code, constants, unwind tables and data (text and data of llvm-size)"
_MOST_FOLDERS = 12
_LEAST_SECONDS = 0.1
"""Of processor time that is compared."""


def advice_page(advice: FlagAdvice) -> Page:
    """Make the page of an advice."""
    before, after = _sizes(advice, "loaded")
    return Page(
        title=f"Free flags for {'; '.join(advice.build)}",
        answer="Smaller" if advice.advised else "Nothing was found",
        good=bool(advice.advised),
        number=percent(relative_change(before, after)) if advice.advised else "",
        headline=_headline(advice, before, after),
        sentences=(f"{advice.tests[:1].upper()}{advice.tests[1:]}.", *(f"{note}." for note in advice.notes)),
        advice=tuple(_next_steps(advice)),
        parts=drop_empty(
            [
                _flag_table(advice),
                _reason_table(advice),
                _folder_table(advice),
                _step_table(advice),
                _program_table(advice),
                _cost_table(advice),
                _line_table(advice),
            ]
        ),
        command=advice.command,
        facts=tuple(_facts(advice)),
    )


def _sizes(advice: FlagAdvice, counts: Counts) -> tuple[int, int]:
    """Count the bytes of all programs in the plain build and in the one with the advised flags."""
    before = advice.plain.count(counts)
    return before, before if advice.advised_build is None else advice.advised_build.count(counts)


def _headline(advice: FlagAdvice, before: int, after: int) -> str:
    if not advice.advised:
        flags = counted(len(advice.flags), "flag")
        return f"none of {flags} makes the {_program_count(advice)} smaller than {before:,} bytes"
    change, files = (percent(relative_change(*sizes)) for sizes in ((before, after), _sizes(advice, "file")))
    return (
        f"{change} by {', '.join(advice.advised)}: {_program_count(advice)}, {before:,} to {after:,} bytes loaded, "
        f"whole files {files}"
    )


def _program_count(advice: FlagAdvice) -> str:
    return counted(len(advice.plain.programs), "program")


def _next_steps(advice: FlagAdvice) -> Iterator[str]:
    if advice.advised:
        yield f"Add to the build: {advice.line}"
    base = advice.advised_build or advice.plain
    if advice.shipped is not None and not advice.shipped_reason:
        before, after = base.count("loaded"), advice.shipped.count("loaded")
        yield (
            f"And on top of that: {advice.shipped_name}, measured {percent(relative_change(before, after))} "
            f"({before:,} to {after:,} bytes): {advice.shipped_line}"
        )
    elif advice.shipped_reason:
        yield f"{advice.shipped_name} is left out: {advice.shipped_reason}"
    if advice.tune:
        once = ", with the flags in the build" if advice.advised else ""
        yield f"A search finds more{once}: {advice.tune}"


def _flag_table(advice: FlagAdvice) -> Table:
    """Make the table of each flag alone, the largest gain first."""
    rows = [row for row in advice.flags if row.trial is not None and row.trial.programs]
    parts = {
        title: of
        for title, of in PART_BYTES.items()
        if title not in {"flash", "RAM", "compressed"}
        and any(of(image) for row in rows if row.trial for image in row.trial.programs.values())
    }

    def make_row(row: TriedFlag, trial: Trial) -> Row:
        before, after = advice.plain.count("loaded"), trial.count("loaded")
        sums = [[sum(map(of, one.programs.values())) for of in parts.values()] for one in (advice.plain, trial)]
        return (
            *(row.name, row.text, row.cost, row.state),
            *(after - before, relative_change(before, after)),
            *(new - old for old, new in zip(*sums, strict=True)),
            trial.count("file") - advice.plain.count("file"),
            _ratio(advice.plain.compile_seconds, trial.compile_seconds),
            _ratio(advice.plain.seconds, trial.seconds),
        )

    ordered = sorted(rows, key=lambda row: (row.counts == "file", -row.saved))
    return Table(
        title="Each flag alone",
        columns=(
            *text_columns("flag"),
            *text_columns("options", terminal="below"),
            *text_columns("cost", terminal="none"),
            *text_columns("result"),
            *difference_columns("loaded"),
            *change_columns("change"),
            *difference_columns(*parts, terminal="none"),
            *difference_columns("whole file"),
            *number_columns("compile time", "build time"),
        ),
        rows=tuple(make_row(row, row.trial) for row in ordered if row.trial is not None),
        note=f"{_LOADED}, of all programs, less those of the plain build; then its parts, the stripped file, and "
        "the file as it is. Times are processor time of compilations, and of these with links; the plain build's is 1.",
    )


def _ratio(before: float, after: float) -> str | None:
    """Format ``after / before``, both in seconds; ``None`` if the time before is too short to compare."""
    return f"{after / before:.2f}" if before >= _LEAST_SECONDS else None


def _reason_table(advice: FlagAdvice) -> Table:
    """Make the table of flags that were not tried or do not work, with the reasons."""
    rows = [row for row in advice.flags if row.trial is None or not row.trial.works]
    return Table(
        title="Not taken",
        columns=text_columns("flag", "what", "reason"),
        rows=tuple((row.name, row.state, row.reason or row.text) for row in rows),
    )


def _folder_table(advice: FlagAdvice) -> Table:
    """Make the table of the source folders, those that become smallest by the level for size first."""
    trial = next((row.trial for row in advice.flags if row.name == LEVEL and row.trial is not None), None)
    folders = {} if trial is None else trial.folders
    plain = advice.plain.folders
    names = sorted(folders.keys() & plain.keys(), key=lambda name: folders[name] - plain[name])
    return Table(
        title=f"Folders at -{LEVEL}",
        columns=(*text_columns("folder of the sources"), *before_after_columns("plain", f"-{LEVEL}")),
        rows=tuple((name, *before_after_cells(plain[name], folders[name])) for name in names) if names[1:] else (),
        note="Code, constants, unwind tables and data of the objects before they are linked, by folder of their "
        "sources: where speed counts, give the level to the first folders alone.",
        terminal_rows=_MOST_FOLDERS,
    )


def _step_table(advice: FlagAdvice) -> Table:
    return Table(
        title="Together, in this order",
        columns=(*text_columns("flag", "result"), *difference_columns("on top")),
        rows=tuple((step.flag, "kept" if step.kept else step.reason, -step.saved) for step in advice.steps),
        note="Bytes less those of the flags before it: loaded ones, and of files for what only changes files.",
    )


def _program_table(advice: FlagAdvice) -> Table | None:
    """Make the table of programs in the plain build and in the one with the advised flags; ``None`` without one."""
    build = advice.advised_build
    if build is None:
        return None
    parts = {
        title: of
        for title, of in PART_BYTES.items()
        if title != "compressed" and any(of(one) for side in (advice.plain, build) for one in side.programs.values())
    }
    return Table(
        title="Programs",
        columns=(
            *text_columns("program"),
            *count_columns("plain", "advised"),
            *change_columns("change"),
            *difference_columns(*parts, terminal="below"),
        ),
        rows=tuple(
            (
                name,
                plain.flash,
                build.programs[name].flash,
                relative_change(plain.flash, build.programs[name].flash),
                *(of(build.programs[name]) - of(plain) for of in parts.values()),
            )
            for name, plain in advice.plain.programs.items()
        ),
        note=f"{_LOADED}, of the whole build from its sources with all that is advised; then differences by part.",
    )


def _cost_table(advice: FlagAdvice) -> Table:
    costs = {row.name: row.cost for row in advice.flags}
    rows = tuple((name, costs[name]) for name in advice.advised)
    return Table(title="What that costs", columns=text_columns("flag", "cost"), rows=rows)


def _line_table(advice: FlagAdvice) -> Table:
    rows = [(one.system, line) for one in advice.lines for line in one.line.splitlines()]
    return Table(title="The lines", columns=text_columns("build system", "line"), rows=tuple(rows))


def _facts(advice: FlagAdvice) -> Iterator[tuple[str, str]]:
    yield "build", "; ".join(advice.build)
    yield "plain build", advice.baseline
    yield from advice.toolchain.items()
    yield "time", f"{advice.wall_seconds:.0f} s"
    if advice.mlgokit_version:
        yield "mlgokit", advice.mlgokit_version
    before, after = _sizes(advice, "loaded")
    saved = before - after
    yield "saved", f"{format_difference(saved)} bytes"

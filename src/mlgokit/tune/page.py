"""What a tuning and a replay of its decisions gave, as pages: sums, modules, programs, and what to do now."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.images import PART_BYTES, BuiltImage
from mlgokit.compiler.objects.link import LinkStatus
from mlgokit.pages.model import (
    Bar,
    Bars,
    Cell,
    Curve,
    Curves,
    Page,
    Part,
    Row,
    Scatter,
    Table,
    before_after_cells,
    before_after_columns,
    change_columns,
    count_columns,
    difference_columns,
    drop_empty,
    format_cell,
    format_difference,
    number_columns,
    percent,
    relative_change,
    text_columns,
    waterfall,
)
from mlgokit.tune.program_page import ProgramParts, program_parts
from mlgokit.tune.replay import ReplayResult
from mlgokit.tune.result import COMPRESSED, CountedRun, Tuned, TunedModule

MOST_ROWS = 25
"""Modules that the terminal shows."""
_LONG_SECONDS = 300
"""A search beyond this is drawn in minutes."""
_COSTS = "Cost of spills, reloads and copies"
_MOST_UNCHANGED = 200
"""Modules up to which those that did not change are listed too."""
BY_BYTES = "Modules, by bytes saved"
BY_COSTS = "Modules, by what spills, reloads and copies cost"
_BYTES_NOTE = (
    "Bytes of each module; a COMDAT function counts in the first module that has it. Decisions: inlining decisions in "
    "the plugin. Passes: functions that skip a pass. Allocated: functions whose registers the plugin allocates."
)
_COSTS_NOTE = (
    "Costs of each module. Mean change: geometric mean over its functions. Code: change in bytes. Allocated: functions "
    "whose registers the plugin allocates, of those with costs."
)
_ESTIMATE = "Instructions by LLVM's estimate, in bytes that they are worth"
TEXT_BYTES = "Code, read-only data and unwind tables, which llvm-size calls text"
_COMPRESSED = "Stripped files, compressed"


# --- Tuning ----------------------------------------------------------------------------------------------------------


def tuned_page(tuned: Tuned, folder: Path | None = None) -> Page:
    """The page of a tuning.

    Args:
        tuned: what came of it.
        folder: of the search, whose programs the page shows by function; without it, the page has none.
    """
    before, after = _promise(tuned)
    most_saved = [one.name for one in reversed(_programs(tuned))]
    shown = ProgramParts(names={}) if folder is None else program_parts(folder, most_saved)
    parts: list[Part | None] = [
        _won_bars(tuned),
        _run_table(tuned),
        _program_table(tuned),
        *shown.parts,
        _search_plot(tuned),
        _sum_table(tuned),
        _waterfall(tuned),
        *_module_parts(tuned),
        _reverted_table(tuned),
        left_out_table(tuned.failures, tuned.left_out),
    ]
    if tuned.replay is not None:
        parts += _replay_parts(tuned.replay)
    smaller = "Fewer instructions" if tuned.runs else "Smaller" if tuned.costs is None else "Cheaper"
    return Page(
        title=f"{tuned.plugin} against plain",
        answer="" if not tuned.modules else smaller if after < before else "Nothing was found",
        good=after < before,
        headline=_headline(tuned),
        number=percent(relative_change(before, after)) if tuned.modules else "",
        sentences=tuple(_sentences(tuned)),
        advice=tuple(_advice(tuned)),
        names=shown.names,
        parts=drop_empty(parts),
        command=tuned.command,
        facts=tuple(_facts(tuned)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The bytes of a program or library that the user ships, as linked.

    Attributes:
        name: its path below the folder of the build.
        plain: bytes without the plugin.
        shipped: bytes with the pretrained policies alone; ``None`` if that was not linked.
        tuned: bytes with the plugin.
    """

    name: str
    plain: int
    shipped: int | None
    tuned: int


def _programs(tuned: Tuned) -> list[_Program]:
    """The programs and libraries of the user's own links, those that were saved least first."""
    judged = None if tuned.shipped is None else tuned.shipped.judged
    shipped = {} if judged is None else {name: size for name, (_, size) in judged.programs.items()}
    if tuned.built is not None:
        sizes = {
            one.program: (_counted(tuned, one.plain), _counted(tuned, one.tuned))
            for one in tuned.built.programs
            if one.is_linked
        }
    else:
        sizes = dict(tuned.cargo_programs or ({} if tuned.judged is None else tuned.judged.programs))
    programs = [
        _Program(name=name, plain=plain, shipped=shipped.get(name), tuned=small)
        for name, (plain, small) in sizes.items()
    ]
    return sorted(programs, key=lambda one: one.plain - one.tuned)


def _counted(tuned: Tuned, image: BuiltImage) -> int:
    """The bytes of an image that the objective counts: compressed ones, or llvm-size's text."""
    return image.image if tuned.objective != COMPRESSED else image.compressed or 0


def _promise(tuned: Tuned) -> tuple[float, float]:
    """The numbers of the headline, before and after."""
    if tuned.costs is not None:
        return tuned.costs.plain, tuned.costs.tuned
    if tuned.runs:
        return _executed(tuned.runs)
    if programs := _programs(tuned):
        return sum(one.plain for one in programs), sum(one.tuned for one in programs)
    judged = tuned.judged
    if judged is not None and judged.before is not None and judged.after is not None:
        return judged.before, judged.after
    return tuned.plain_bytes, tuned.tuned_bytes


def _headline(tuned: Tuned) -> str:
    before, after = _promise(tuned)
    if tuned.costs is not None:
        return f"{_COSTS}, summed up: {before:,.0f} -> {after:,.0f} ({_percent(before, after)})."
    programs = _programs(tuned)
    if tuned.runs:
        return "; ".join(_run_headlines(tuned.runs, programs)) + "."
    if programs:
        what = programs[0].name if len(programs) == 1 else f"{len(programs)} programs"
        sizes = [one.shipped for one in programs if one.shipped is not None]
        free = sum(sizes)
        also = ""
        if tuned.shipped is not None and len(sizes) == len(programs):
            also = f"; {tuned.shipped.name} alone {free:,.0f} ({_percent(before, free)})"
        return f"{what}: {before:,.0f} -> {after:,.0f} bytes ({_percent(before, after)}){also}."
    if tuned.judged is not None and tuned.judged.after is not None:
        return f"By the objective: {_number(before)} -> {_number(after)} ({_percent(before, after)})."
    return (
        f"Objects only, not proved on your link: {before:,.0f} -> {after:,.0f} bytes ({_percent(before, after)}); "
        "--build with the build command, or --links with the folder of the configured build, proves it there."
    )


def _executed(runs: Sequence[CountedRun]) -> tuple[float, float]:
    """Instructions of all runs together, plain and tuned."""
    return sum(one.plain for one in runs), sum(one.tuned for one in runs)


def _run_headlines(runs: Sequence[CountedRun], programs: Sequence[_Program]) -> Iterable[str]:
    """What runs of the profile, and runs that it was not made of, execute; and the bytes of the programs."""
    for held_out, what in ((False, "Executed instructions"), (True, "of runs that are not in the profile")):
        chosen = [one for one in runs if one.held_out is held_out]
        if chosen:
            before, after = _executed(chosen)
            yield f"{what}: {before:,.0f} -> {after:,.0f} ({_percent(before, after)})"
    if programs:
        plain, small = sum(one.plain for one in programs), sum(one.tuned for one in programs)
        yield f"image {plain:,} -> {small:,} bytes ({_percent(plain, small)})"


def _run_table(tuned: Tuned) -> Table | None:
    """What each command executes."""
    if not tuned.runs:
        return None
    return Table(
        title="Runs",
        columns=(
            *text_columns("command", "in the profile"),
            *count_columns("plain", "tuned"),
            *change_columns("change"),
        ),
        rows=tuple(
            (
                one.command,
                "no" if one.held_out else "yes",
                one.plain,
                one.tuned,
                relative_change(one.plain, one.tuned),
            )
            for one in tuned.runs
        ),
        note=f"Executed instructions of the programs that the build makes, and of the libraries that they load, by "
        f"{tuned.counter}. The profile may be the build's own; then it need not know the runs either.",
    )


def _sentences(tuned: Tuned) -> Iterable[str]:
    better = sum(not one.plain for one in tuned.modules)
    yield (
        f"{len(tuned.modules):,} modules, of which {better:,} are {'smaller' if tuned.costs is None else 'better'} and "
        f"{len(tuned.modules) - better:,} stay as the plain build has them, byte for byte; {len(tuned.failures):,} do "
        "not compile. A change is tuned / plain less 1, so negative is smaller."
    )
    if tuned.baseline:
        yield f"Baseline: {tuned.baseline}."
    yield from _search_sentences(tuned)
    trials = "" if tuned.allocated is None or tuned.costs is None else f" with {tuned.allocated.trials:,} trials"
    yield (
        f"{tuned.compilations:,} compilations{trials}, {tuned.user_seconds / 60:.1f} minutes of processor time"
        f"{_elapsed(tuned)}"
        f"{f'; {tuned.ended}' if tuned.ended else ''}."
    )
    yield from tuned.notes
    if tuned.built is not None:
        for one in tuned.built.programs:
            reason = one.plain.reason or one.tuned.reason
            if not one.is_linked:
                yield f"{one.program}: cannot be compared: {reason}."
            elif reason:
                yield f"{one.program}: {reason}."
        yield from filter(None, (tuned.built.tests, *tuned.built.notes))
    if tuned.replay is not None:
        yield from (*_replay_sentences(tuned.replay), _replay_headline(tuned.replay))


def _elapsed(tuned: Tuned) -> str:
    """How long the user waited, behind the processor time."""
    if not tuned.wall_seconds:
        return ""
    last = f", {tuned.wall_seconds / 60:.1f} of them in the last session" if tuned.earlier_seconds else ""
    return f", {(tuned.earlier_seconds + tuned.wall_seconds) / 60:.1f} minutes in all{last}"


def _search_sentences(tuned: Tuned) -> Iterable[str]:
    """Sentences about the searches that are not in the table of sums."""
    if tuned.allocated is not None and tuned.costs is not None:
        yield (
            f"{tuned.allocated.functions:,} functions with costs, {tuned.allocated.changed:,} allocated otherwise, "
            f"none costs more than before; geometric mean of their costs: {percent(tuned.costs.change)}."
        )
    for which, passes in (("the optimizer", tuned.optimizer_passes), ("the code generator", tuned.passes)):
        if passes is not None and not passes.functions:
            yield f"Passes of {which}: none could be tried in the time that was left; --continue goes on."
    if (judged := tuned.judged) is not None and judged.before is not None and judged.after is not None:
        if judged.low < judged.high:
            yield f"By the objective: {judged.low:+,.6g} to {judged.high:+,.6g} in {judged.pairs} pairs."
        yield (
            "Changes of modules that were reverted because your link or command did not confirm them: "
            f"{tuned.taken_back}."
        )


def _advice(tuned: Tuned) -> Iterable[str]:
    if tuned.modules and all(one.plain for one in tuned.modules):
        yield "Nothing was found that pays: the build is the same without the plugin, so leave it out."
    elif tuned.cargo_programs:
        yield f"Build with: {tuned.flag}"
    else:
        # For a link it has several words.
        flag = shlex.quote(tuned.flag) if tuned.flag == f"-fpass-plugin={tuned.versioned}" else tuned.flag
        yield f"Add to the build: {flag if tuned.built is None else tuned.built.line}"
    if tuned.replay is not None:
        yield "Without the plugin, by LLVM's inline replay:"
        yield from _replay_advice(tuned.replay)


def _sum_table(tuned: Tuned) -> Table:
    rows: list[Row] = []

    def add(name: str, before: float, after: float, functions: str | None = None) -> None:
        sizes = (_number(before), _number(after), after - before, relative_change(before, after))
        rows.append((name, *sizes, functions))

    if tuned.costs is not None:
        add(_COSTS, tuned.costs.plain, tuned.costs.tuned)
        add("Code, which is not the objective", tuned.plain_bytes, tuned.tuned_bytes)
    else:
        add(_ESTIMATE if tuned.runs else "Objects, each COMDAT once", tuned.plain_bytes, tuned.tuned_bytes)
        if tuned.shipped is not None:
            add(f"The same by {tuned.shipped.name}", tuned.plain_bytes, tuned.shipped.bytes)
        for what, before, after, functions in _shares(tuned):
            add(f"Of that by {what}", before, after, functions)
    plain, linked, judged = tuned.plain_link, tuned.tuned_link, tuned.judged
    # All modules linked as one library say nothing where the user's own links were made.
    if judged is None and plain and linked and plain.status is linked.status is LinkStatus.LINKED:
        add("Linked image", plain.image, linked.image)
        add("Linked .text", plain.text, linked.text)
    if judged is not None and judged.before is not None and judged.after is not None:
        add("By the objective", judged.before, judged.after)
    return Table(
        title="Sums",
        columns=(
            *text_columns("measure"),
            *number_columns("plain", "tuned"),
            *difference_columns("difference"),
            *change_columns("change"),
            *number_columns("functions changed"),
        ),
        rows=tuple(rows),
        note="Measured on objects that were compiled with the finished plugin.",
    )


def _shares(tuned: Tuned) -> Iterable[tuple[str, float, float, str | None]]:
    """What each search gave, one on top of the other: its name, the account before and after, functions changed."""
    found: list[tuple[str, float, float, str | None]] = [
        (what, searched.before_bytes, searched.after_bytes, f"{searched.changed:,} of {searched.functions:,}")
        for what, searched in (
            ("passes of the optimizer left out", tuned.optimizer_passes),
            ("passes of the code generator left out", tuned.passes),
            ("register allocation", tuned.allocated),
        )
        if searched is not None
    ]
    if tuned.shipped is not None and tuned.shipped.before_bytes is not None:
        found.append((f"{tuned.shipped.name} in the plugin", tuned.shipped.before_bytes, tuned.tuned_bytes, None))
    # Alone, inlining is all of it; and a plugin without its decisions has nothing of what its search found.
    if found and any(one.decisions for one in tuned.modules):
        yield "inlining", tuned.plain_bytes, found[0][1], None
    yield from found


def _won_bars(tuned: Tuned) -> Bars | None:
    """What the pretrained policies save alone, and what the tuning saves."""
    programs, shipped = _programs(tuned), tuned.shipped
    if shipped is None or tuned.costs is not None:
        return None
    sizes = [one.shipped for one in programs if one.shipped is not None]
    if len(sizes) < len(programs):
        return None
    # The headline may have the number of a command, which need not be bytes.
    before, free, after = tuned.plain_bytes, shipped.bytes, tuned.tuned_bytes
    if programs:
        before, free, after = sum(one.plain for one in programs), sum(sizes), sum(one.tuned for one in programs)

    def bar(name: str, size: float) -> Bar:
        saved = size - before
        return Bar(name=name, start=0, end=saved, text=f"{format_difference(saved)} ({_percent(before, size)})")

    return Bars(
        title="What is saved",
        columns=("against plain", "bytes"),
        bars=(bar(shipped.name, free), bar("tuned", after)),
        note=f"Of {before:,.0f} bytes of the plain {'programs' if programs else 'objects'}. {shipped.name} needs no "
        "search.",
    )


def _program_table(tuned: Tuned) -> Table | None:
    """The programs that the user ships, by their own links: plain, with the pretrained policies alone, and tuned."""
    programs, shipped = _programs(tuned), tuned.shipped
    if not programs:
        return None
    name = None if shipped is None or all(one.shipped is None for one in programs) else shipped.name
    built = {} if tuned.built is None else {one.program: one for one in tuned.built.programs}
    columns = {
        title: of
        for title, of in PART_BYTES.items()
        if any(of(side) for one in built.values() if one.is_linked for side in (one.plain, one.tuned))
    }

    def row(one: _Program) -> Row:
        free = None if one.shipped is None else relative_change(one.plain, one.shipped)
        cells: list[Cell] = [one.name, one.plain]
        cells += [] if name is None else [one.shipped, free]
        cells += [one.tuned, relative_change(one.plain, one.tuned)]
        if built:
            first, second = built[one.name].plain, built[one.name].tuned
            cells += [of(second) - of(first) for of in columns.values()]
        return tuple(cells)

    return Table(
        title="Programs",
        columns=(
            *text_columns("program"),
            *count_columns("plain"),
            *(() if name is None else (*count_columns(name), *change_columns("its change"))),
            *count_columns("tuned"),
            *change_columns("change"),
            *difference_columns(*columns, terminal="below"),
        ),
        rows=tuple(map(row, programs)),
        note=f"{_COMPRESSED if tuned.objective == COMPRESSED else TEXT_BYTES}, as your own commands link them; then "
        "tuned less plain in bytes, of sections and of the stripped file. Flash is all but zeroed data, RAM is all "
        "data.",
    )


def _search_plot(tuned: Tuned) -> Curves | None:
    if len(tuned.curve) < 2:
        return None
    is_long = tuned.curve[-1].user_seconds > _LONG_SECONDS
    points = tuple((one.user_seconds / (60 if is_long else 1), 100 * one.change) for one in tuned.curve)
    return Curves(
        title="The search",
        axes=(f"{'minutes' if is_long else 'seconds'} of processor time", "change, %"),
        curves=(Curve(name="change of the account" if tuned.costs is None else "change of the costs", points=points),),
        note="Change of the best builds against the plain build, as the search went on. It starts at the smallest of "
        "its starting points; the final verification is not in it.",
    )


def _sizes(one: TunedModule) -> tuple[float, float]:
    """The bytes or costs of a module, before and after."""
    return (one.plain_bytes, one.tuned_bytes) if one.costs is None else (one.costs.plain, one.costs.tuned)


def _waterfall(tuned: Tuned) -> Bars | None:
    short = _short_names(tuned)
    steps = [
        (short[one.name], after - before, relative_change(before, after))
        for one in tuned.modules
        for before, after in (_sizes(one),)
        if after != before
    ]
    what = "Bytes of the account" if tuned.costs is None else _COSTS
    return waterfall("What each module adds", ("module", "bytes" if tuned.costs is None else "cost"), steps, what)


def _module_parts(tuned: Tuned) -> Sequence[Part]:
    """The modules, those that gained most first, and last those as plain, which the terminal does not show.

    Of many modules those that stay as plain are only counted.
    """
    by_costs = tuned.costs is not None
    order = sorted(tuned.modules, key=lambda one: (one.plain, _sizes(one)[1] - _sizes(one)[0], one.name))
    pairs = [_sizes(one) for one in order]
    is_long = len(order) > _MOST_UNCHANGED
    listed = [pair for pair in zip(order, pairs, strict=True) if not (is_long and pair[0].plain)]
    unlisted = len(order) - len(listed)
    note = f" {unlisted:,} modules that stay as the plain build has them are not listed." if unlisted else ""
    short = _short_names(tuned)
    table = Table(
        title=BY_COSTS if by_costs else BY_BYTES,
        columns=(
            *text_columns("module"),
            *text_columns("state", terminal="none"),
            *before_after_columns("plain", "tuned"),
            *(
                (*change_columns("mean change"), *difference_columns("code"), *number_columns("allocated"))
                if by_costs
                else count_columns("decisions", "passes", "allocated")
            ),
        ),
        rows=tuple(
            (
                short[one.name],
                "as plain, byte for byte" if one.plain else "tuned",
                *before_after_cells(before, after),
                *_module_cells(one),
            )
            for one, (before, after) in listed
        ),
        note=f"{_COSTS_NOTE if by_costs else _BYTES_NOTE}{note}",
        terminal_rows=min(MOST_ROWS, sum(not one.plain for one in order)),
    )
    if not any(before for before, _ in pairs):
        return [table]
    scatter = Scatter(
        title="Change by size of the module",
        unit="cost" if by_costs else "bytes",
        before=tuple(round(before) for before, _ in pairs),
        after=tuple(round(after) for _, after in pairs),
        note="One point for each module: discs shrank, small squares are the same. The slider goes through them by "
        "their change.",
    )
    return [scatter, table]


def _short_names(tuned: Tuned) -> dict[str, str]:
    """The modules' names for tables: absolute paths without the folder that all of them are in."""
    names = [one.name for one in tuned.modules]
    if not names or not all(map(os.path.isabs, names)):
        return {name: name for name in names}
    folder = os.path.commonpath([Path(name).parent for name in names])
    return {name: os.path.relpath(name, folder) for name in names}


def _module_cells(one: TunedModule) -> tuple[Cell, ...]:
    if one.costs is None:
        return one.decisions, one.optimizer_passes + one.passes, one.allocated
    return one.costs.change, one.tuned_bytes - one.plain_bytes, f"{one.allocated} of {one.costs.functions}"


def _reverted_table(tuned: Tuned) -> Table:
    short = _short_names(tuned)
    rows = tuple((short[one.name], one.note) for one in tuned.modules if one.note)
    title = "Modules that were reverted, and why"
    return Table(title=title, columns=text_columns("module", "reason"), rows=rows)


def _facts(tuned: Tuned) -> Iterable[tuple[str, str]]:
    yield "mlgokit", tuned.mlgokit_version or "unknown"
    yield from tuned.toolchain.items()
    yield "baseline", tuned.baseline or "unknown"
    yield "objective", tuned.objective or "unknown"
    yield "seed", "unknown" if tuned.seed is None else str(tuned.seed)
    yield "plugin", tuned.plugin
    yield "SHA-256 of the plugin", tuned.plugin_sha256
    yield "table", tuned.table
    yield "changes reverted by the objective", f"{tuned.taken_back:,}"


# --- Replay ----------------------------------------------------------------------------------------------------------


def replay_page(replay: ReplayResult) -> Page:
    """The page of a replay: the share of a plugin's saving that a compiler without the plugin gets from the list."""
    return Page(
        title=f"{replay.plugin} by LLVM's inline replay",
        good=bool(replay.flag),
        headline=_replay_headline(replay),
        sentences=tuple(_replay_sentences(replay)),
        advice=tuple(_replay_advice(replay)),
        parts=drop_empty(_replay_parts(replay)),
    )


def _replay_parts(replay: ReplayResult) -> list[Part]:
    replayed = [one for one in replay.modules if one.state != "nothing to replay"]
    replayed.sort(key=lambda one: (one.replayed_bytes - one.plain_bytes, one.name))
    table = Table(
        title="Modules that are replayed, by bytes saved",
        columns=(
            *text_columns("module", "in the list"),
            *count_columns("decisions", "plain", "replayed"),
            *difference_columns("difference", "by the plugin"),
        ),
        rows=tuple(
            (
                one.name,
                one.state,
                one.decisions,
                one.plain_bytes,
                one.replayed_bytes,
                one.replayed_bytes - one.plain_bytes,
                one.tuned_bytes - one.plugin_plain_bytes,
            )
            for one in replayed
        ),
        note="By LLVM's inline replay, without the plugin.",
        terminal_rows=MOST_ROWS,
    )
    return [table, left_out_table(replay.failures, replay.left_out, title="Not replayed")]


def _replay_headline(replay: ReplayResult) -> str:
    return (
        f"The list keeps {100 * replay.share:.0f} % of the plugin's saving. It has {replay.decisions:,} decisions; "
        f"modules disagree about {replay.disputed:,} call sites."
    )


def _replay_sentences(replay: ReplayResult) -> Iterable[str]:
    states = [one.state for one in replay.modules]
    yield (
        f"Inline replay: {len(states)} modules: {states.count('replayed')} replayed, {states.count('left out')} left "
        f"out, as they would be larger than plain; {len(replay.failures)} do not compile."
    )
    yield from replay.notes
    by_plugin = format_bytes(replay.plugin_plain_bytes, replay.tuned_bytes)
    yield f"With the plugin, by {replay.plugin_compiler}: {by_plugin}."
    yield f"With the list, by {replay.compiler}: {format_bytes(replay.plain_bytes, replay.replayed_bytes)}."
    if replay.larger:
        yield f"Larger than plain by line tables alone, with this compiler: {', '.join(replay.larger)}."


def _replay_advice(replay: ReplayResult) -> Iterable[str]:
    if not replay.flag:
        yield "Nothing was written: with a list, the whole would be no smaller than plain."
    elif replay.flag.startswith("--config="):
        yield f"Add to the build: {shlex.quote(replay.flag)}"
        yield "strip -g, or -Wl,--strip-debug in the link, takes its line tables out again."
    else:
        yield f"Build with: {replay.flag}"


# --- Cells and sentences of all pages --------------------------------------------------------------------------------


def left_out_table(
    failures: Mapping[str, str], left_out: Mapping[str, str], *, title: str = "Left as LLVM has it"
) -> Table:
    """Modules that the search did not change, with the reason."""
    rows = [(name, "does not compile", why) for name, why in failures.items()]
    rows += [(name, "left out", why) for name, why in left_out.items()]
    return Table(
        title=title,
        columns=text_columns("module", "what", "reason"),
        rows=tuple(rows),
        note="Not a part of the search, nor of its sums.",
        terminal_rows=MOST_ROWS,
    )


def format_bytes(before: float, after: float) -> str:
    """Write two numbers of bytes with their relative change."""
    return f"{before:,.0f} -> {after:,.0f} bytes ({_percent(before, after)})"


def _percent(before: float, after: float) -> str:
    return format_cell(relative_change(before, after), "change")


def _number(value: float) -> str:
    return f"{value:,.6g}" if value % 1 and abs(value) < 1000 else f"{value:,.0f}"

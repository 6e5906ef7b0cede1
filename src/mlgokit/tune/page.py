"""What a tuning gave as a page: the sums, the course of the search, what each module adds, and what stayed."""

import math
from collections.abc import Iterable, Sequence

from mlgokit.compiler.objects.link import LinkStatus
from mlgokit.evaluation.records import LINKED
from mlgokit.pages.model import Bars, Curve, Curves, Page, Part, Scatter, Table, percent, relative_change, waterfall
from mlgokit.tune.result import Tuned, TunedModule

_LONG_SECONDS = 300
"""A search beyond this is drawn in minutes."""
_COSTS = "Cost of spills, reloads and copies"


def tuned_page(tuned: Tuned) -> Page:
    """The page of a tuning."""
    better = [one for one in tuned.modules if not one.plain]
    before, after = _total(tuned)
    parts: list[Part | None] = [
        _sums(tuned),
        _programs(tuned),
        _curve(tuned),
        _waterfall(tuned),
        *_modules(tuned),
        _left_out(tuned),
    ]
    return Page(
        title=f"{tuned.plugin} against plain",
        answer="" if not tuned.modules else "Smaller" if after < before and tuned.costs is None else
        "Cheaper" if after < before else "Nothing was found",
        good=after < before,
        headline=_headline(tuned, before, after),
        sentences=tuple(_sentences(tuned, len(better))),
        parts=tuple(part for part in parts if part is not None and not (isinstance(part, Table) and not part.rows)),
        command=tuned.command,
        facts=tuple(_facts(tuned)),
    )  # fmt: skip


def _total(tuned: Tuned) -> tuple[float, float]:
    """What counts, before and after."""
    if tuned.costs is not None:
        return tuned.costs.plain, tuned.costs.tuned
    return tuned.plain_bytes, tuned.tuned_bytes


def _headline(tuned: Tuned, before: float, after: float) -> str:
    what = "Objects, each COMDAT once" if tuned.costs is None else f"{_COSTS}, summed up"
    unit = " bytes" if tuned.costs is None else ""
    return f"{what}: {before:,.0f} -> {after:,.0f}{unit} ({_percent(before, after)})."


def _sentences(tuned: Tuned, better: int) -> Iterable[str]:
    yield (
        f"{len(tuned.modules):,} modules, of which {better:,} are {'smaller' if tuned.costs is None else 'better'} and "
        f"{len(tuned.modules) - better:,} stay as the plain build has them; {len(tuned.failures):,} do not compile. A "
        "change is tuned / plain less 1, so negative is smaller."
    )
    yield (
        f"{tuned.compilations:,} compilations, {tuned.user_seconds / 60:.1f} minutes of processor time"
        f"{f'; {tuned.ended}' if tuned.ended else ''}."
    )
    yield from tuned.notes
    if tuned.built is not None:
        yield from filter(None, (tuned.built.tests, *tuned.built.notes))
    yield f"Add to the build: {tuned.flag if tuned.built is None else tuned.built.line}"


def _sums(tuned: Tuned) -> Table:
    pairs: list[tuple[str, float, float]] = []
    if tuned.costs is not None:
        pairs.append((_COSTS, tuned.costs.plain, tuned.costs.tuned))
        pairs.append(("Code, which is not the objective", tuned.plain_bytes, tuned.tuned_bytes))
    else:
        pairs.append(("Objects, each COMDAT once", tuned.plain_bytes, tuned.tuned_bytes))
        for what, found in (
            ("passes of the optimizer left out", tuned.optimizer_passes),
            ("passes of the code generator left out", tuned.passes),
            ("register allocation", tuned.allocated),
        ):
            if found is not None:
                pairs.append((f"Of that by {what}", found.before_bytes, found.after_bytes))
    plain, linked = tuned.plain_link, tuned.tuned_link
    if plain is not None and linked is not None and plain.status is linked.status is LinkStatus.LINKED:
        pairs += [("Linked image", plain.image, linked.image), ("Linked .text", plain.text, linked.text)]
    judged = tuned.judged
    if judged is not None and judged.before is not None and judged.after is not None:
        pairs.append(("By the objective", judged.before, judged.after))
    return Table(
        title="Sums",
        columns=("measure", "plain", "tuned", "difference", "change"),
        rows=tuple(
            (name, _number(before), _number(after), _signed(after - before), _percent(before, after))
            for name, before, after in pairs
        ),
        note="Measured on objects that were compiled with the finished plugin.",
    )  # fmt: skip


def _programs(tuned: Tuned) -> Table:
    """What the user's own build links, the worst first."""
    programs = () if tuned.built is None else tuned.built.programs
    rows = [(one.plain.image - one.tuned.image, one) for one in programs]
    return Table(
        title="Programs of the build",
        columns=("program", "plain", "tuned", "difference", "change"),
        rows=tuple(
            (
                one.program,
                f"{one.plain.image:,}",
                f"{one.tuned.image:,}",
                _signed(-saved),
                _percent(one.plain.image, one.tuned.image),
            )
            if one.plain.status == one.tuned.status == LINKED
            else (one.program, one.plain.status, one.tuned.status, one.plain.reason or one.tuned.reason, "-")
            for saved, one in sorted(rows, key=lambda row: row[0])
        ),
        note="The whole build, made again with the plugin: what llvm-size calls text of all that it links.",
    )


def _curve(tuned: Tuned) -> Curves | None:
    if len(tuned.curve) < 2:
        return None
    is_long = tuned.curve[-1].user_seconds > _LONG_SECONDS
    points = tuple((one.user_seconds / (60 if is_long else 1), 100 * one.change) for one in tuned.curve)
    return Curves(
        title="The search",
        axes=(f"{'minutes' if is_long else 'seconds'} of processor time", "change, %"),
        curves=(Curve(name="change of the account" if tuned.costs is None else "change of the costs", points=points),),
        note="Where the search stood, against the plain build. It began where the best rule left off, and the "
        "verification is behind its end.",
    )


def _changes(one: TunedModule) -> tuple[float, float]:
    return (one.plain_bytes, one.tuned_bytes) if one.costs is None else (one.costs.plain, one.costs.tuned)


def _waterfall(tuned: Tuned) -> Bars | None:
    steps = [(one.name, after - before, relative_change(before, after)) for one in tuned.modules
             for before, after in (_changes(one),) if after != before]  # fmt: skip
    what = "Bytes of the account" if tuned.costs is None else _COSTS
    return waterfall("What each module adds", ("module", "bytes" if tuned.costs is None else "cost"), steps, what)


def _modules(tuned: Tuned) -> Sequence[Part]:
    rows = sorted(tuned.modules, key=lambda one: (_changes(one)[0] - _changes(one)[1], one.name))
    pairs = [_changes(one) for one in rows]
    table = Table(
        title="Modules, worst first",
        columns=(
            "module", "what was put back, and why", "plain", "tuned", "difference", "change", "decisions", "passes",
            "allocated",
        ),
        rows=tuple(
            (
                one.name,
                one.note or ("as plain, byte for byte" if one.plain else "-"),
                f"{before:,.0f}",
                f"{after:,.0f}",
                _signed(after - before),
                _percent(before, after),
                f"{one.decisions:,}",
                f"{one.optimizer_passes + one.passes:,}",
                f"{one.allocated:,}",
            )
            for one, (before, after) in zip(rows, pairs, strict=True)
        ),
        words=2,
        note="What each module answers for, a COMDAT function in the first module that has it; the decisions that the "
        "plugin holds for it, its functions without some pass, of the optimizer and of the code generator, and "
        "those that are allocated otherwise.",
    )  # fmt: skip
    if not any(before for before, _ in pairs):
        return [table]
    scatter = Scatter(
        title="Change by size of the module",
        unit="bytes" if tuned.costs is None else "cost",
        before=tuple(round(before) for before, _ in pairs),
        after=tuple(round(after) for _, after in pairs),
        note="One point for each module: discs shrank, small squares are the same. The slider goes through them by "
        "their change.",
    )
    return [scatter, table]


def _left_out(tuned: Tuned) -> Table:
    rows = [(name, "does not compile", why) for name, why in tuned.failures.items()]
    rows += [(name, "left out", why) for name, why in tuned.left_out.items()]
    return Table(
        title="Left as LLVM has it", columns=("module", "what", "reason"), rows=tuple(rows), words=3,
        note="Not a part of the search, nor of its sums.",
    )  # fmt: skip


def _facts(tuned: Tuned) -> Iterable[tuple[str, str]]:
    yield "mlgokit", tuned.mlgokit_version or "unknown"
    yield from tuned.toolchain.items()
    yield "baseline", tuned.baseline or "unknown"
    yield "objective", tuned.objective or "unknown"
    yield "seed", "unknown" if tuned.seed is None else str(tuned.seed)
    yield "plugin", tuned.plugin
    yield "SHA-256 of the plugin", tuned.plugin_sha256
    yield "table", tuned.table
    yield "gains that turned out to be none", f"{tuned.taken_back:,}"


def _number(value: float) -> str:
    return f"{value:,.6g}" if value % 1 and abs(value) < 1000 else f"{value:,.0f}"


def _signed(difference: float) -> str:
    return f"{difference:+,.0f}" if round(difference) else "0"


def _percent(before: float, after: float) -> str:
    change = relative_change(before, after)
    return percent(change) if math.isfinite(change) else "-"

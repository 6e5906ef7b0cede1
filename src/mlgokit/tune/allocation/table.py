"""The result of a search over register allocations for a terminal."""

from rich.console import Console
from rich.table import Table

from mlgokit.tune.allocation.proof import Allocated, AllocatedModule
from mlgokit.tune.table import MOST_ROWS


def print_allocated(found: Allocated, out: Console) -> None:
    """Print the modules that changed most, the totals, and what to do with the plugin."""
    table = Table(title="Modules, by what spills, reloads and copies cost", title_justify="left")
    for title in ("module", "functions", "changed", "plain", "tuned", "sum", "mean", "text"):
        table.add_column(title, justify="left" if title == "module" else "right")
    changed = sorted((one for one in found.modules if one.changed), key=lambda one: one.change)
    for one in changed[:MOST_ROWS]:
        table.add_row(
            one.name, str(one.functions), str(one.changed), f"{one.plain_score:,.1f}", f"{one.tuned_score:,.1f}",
            _percent(one.plain_score, one.tuned_score), f"{100 * one.change:+.1f} %", _text(one),
        )  # fmt: skip
    out.print(table)
    hidden = len(changed) - min(len(changed), MOST_ROWS)
    out.print(
        f"{len(found.modules)} modules: {len(changed)} better{f' ({hidden} not shown)' if hidden else ''}, "
        f"{len(found.modules) - len(changed)} left as they are, byte for byte; {len(found.failures)} do not compile",
        highlight=False,
    )
    for one in found.modules:
        if one.note:
            out.print(f"{one.name}: {one.note}", markup=False, highlight=False)
    out.print(
        f"{found.functions:,} functions with costs, {found.changed:,} allocated otherwise, none costs more than before",
        highlight=False,
    )
    out.print(
        f"geometric mean of their costs: {100 * found.change:+.2f} %; sum, each relative to its entry: "
        f"{found.plain_score:,.1f} -> {found.tuned_score:,.1f} ({_percent(found.plain_score, found.tuned_score)})",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    out.print(
        f"code, which is not the objective: {found.plain_text:,} -> {found.tuned_text:,} bytes "
        f"({_percent(found.plain_text, found.tuned_text)})",
        highlight=False,
    )
    out.print(
        f"{found.compilations:,} compilations with {found.trials:,} trials, "
        f"{found.user_seconds / 60:.1f} minutes of processor time",
        highlight=False,
    )
    out.print(f"add to the build: {found.flag}", markup=False, highlight=False, soft_wrap=True)


def _percent(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.2f} %" if before else "+0.00 %"


def _text(one: AllocatedModule) -> str:
    return f"{one.tuned_text - one.plain_text:+,}"

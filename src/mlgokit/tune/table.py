"""The result of a tuning for a terminal."""

from rich.console import Console
from rich.table import Table

from mlgokit.compiler.link import LinkStatus
from mlgokit.tune.result import Tuned

MOST_ROWS = 25


def print_tuned(tuned: Tuned, out: Console) -> None:
    """Print the modules that changed most, the totals, and what to do with the plugin."""
    table = Table(title="Modules, by bytes saved", title_justify="left")
    for title in ("module", "plain", "tuned", "change", "decisions"):
        table.add_column(title, justify="left" if title == "module" else "right")
    changed = sorted((one for one in tuned.modules if not one.plain), key=lambda one: one.tuned_bytes - one.plain_bytes)
    for one in changed[:MOST_ROWS]:
        change = one.tuned_bytes - one.plain_bytes
        table.add_row(
            one.name, f"{one.plain_bytes:,.0f}", f"{one.tuned_bytes:,.0f}", f"{change:+,.0f}", str(one.decisions)
        )
    out.print(table)
    plain = sum(one.plain for one in tuned.modules)
    hidden = len(changed) - min(len(changed), MOST_ROWS)
    out.print(
        f"{len(tuned.modules)} modules: {len(changed)} smaller{f' ({hidden} not shown)' if hidden else ''}, "
        f"{plain} left as they are, byte for byte; {len(tuned.failures)} do not compile",
        highlight=False,
    )
    for one in tuned.modules:
        if one.note:
            out.print(f"left as it is: {one.name}: {one.note}", markup=False, highlight=False)
    out.print(f"objects, each COMDAT once: {_change(tuned.plain_bytes, tuned.tuned_bytes)}", highlight=False)
    before, after = tuned.plain_link, tuned.tuned_link
    if before is not None and after is not None and before.status is after.status is LinkStatus.LINKED:
        out.print(f"linked, unused sections dropped: {_change(before.image, after.image)}", highlight=False)
        out.print(f"of that the code: {_change(before.text, after.text)}", highlight=False)
    if (judged := tuned.judged) is not None and judged.before is not None and judged.after is not None:
        change = f" ({100 * (judged.after / judged.before - 1):+.2f} %)" if judged.before > 0 else ""
        spread = (
            f", {judged.low:+,.6g} to {judged.high:+,.6g} in {judged.pairs} pairs" if judged.low < judged.high else ""
        )
        out.print(f"by the objective: {judged.before:,.12g} -> {judged.after:,.12g}{change}{spread}", highlight=False)
        out.print(f"found by the search, but not by the objective, and taken back: {tuned.taken_back}", highlight=False)
    out.print(
        f"{tuned.compilations:,} compilations, {tuned.user_seconds / 60:.1f} minutes of processor time", highlight=False
    )
    out.print(f"add to the build: {tuned.flag}", markup=False, highlight=False, soft_wrap=True)


def _change(before: float, after: float) -> str:
    return f"{before:,.0f} -> {after:,.0f} bytes ({100 * (after / before - 1):+.2f} %)"

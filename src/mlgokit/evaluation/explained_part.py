"""Call trees as parts of a page."""

from collections.abc import Mapping, Sequence

from mlgokit.evaluation.explained import ExplainedSite, FunctionTree, TreeLine
from mlgokit.evaluation.explained_words import component_sum, decisions, reason
from mlgokit.pages.model import Branch, Tree, Trees

_FEATURES = ("speaks for it", "here", "typically", "by")


def tree_parts(trees: Sequence[FunctionTree], left_out: str, names: Mapping[str, str]) -> list[Trees]:
    """Functions that grew, and functions that shrank; with a reason alone, that."""
    if left_out:
        return [Trees(title="Why functions changed", trees=(), note=f"There are no call trees: {left_out}.")]
    return [
        Trees(
            title=title,
            trees=tuple(_tree(one, names) for one in chosen),
            note="Calls that are decided otherwise than in the plain build are bold. Their bytes are those of their "
            "component of the call graph, all functions that they can have changed: they cannot be shared out among "
            "its differences. A preference is positive for inlining; a feature counts by what the preference loses "
            "with the typical value in its place.",
        )
        for title, chosen in (
            ("Functions that grew most, and why", [one for one in trees if one.growth > 0]),
            ("Functions that shrank most, and why", [one for one in trees if one.growth < 0]),
        )
        if chosen
    ]


def _tree(found: FunctionTree, names: Mapping[str, str]) -> Tree:
    where = f"{found.module}, project {found.project}."
    sizes = " -> ".join("absent" if one is None else f"{one:,}" for one in (found.before, found.after))
    notes = [where]
    if found.failure:
        notes.append(f"Nothing is known: {found.failure}.")
    elif found.component is None:
        notes.append("No call that is decided otherwise reaches it.")
    else:
        notes.append(f"{component_sum(found.component).capitalize()}.")
    if found.more:
        notes.append(f"{found.more:,} more calls; mlgokit explain shows them.")
    return Tree(
        symbol=found.function,
        change=f"{found.growth:+,} bytes" + ("" if found.failure else f" ({sizes})"),
        tone="larger" if found.growth > 0 else "smaller",
        notes=tuple(notes),
        branches=_branches(found.lines, names, 0),
    )


def _branches(lines: Sequence[TreeLine], names: Mapping[str, str], depth: int) -> tuple[Branch, ...]:
    """The lines of that depth, each with the deeper ones that follow it."""
    starts = [place for place, line in enumerate(lines) if line.depth == depth]
    ends = [*starts[1:], len(lines)]
    return tuple(
        _branch(lines[start], _branches(lines[start + 1 : end], names, depth + 1), names)
        for start, end in zip(starts, ends, strict=False)
    )


def _branch(line: TreeLine, below: tuple[Branch, ...], names: Mapping[str, str]) -> Branch:
    site = line.site
    how, symbol = {
        "below": ("calls", site.callee),
        "above": ("called by", site.caller),
        "elsewhere": (f"{names.get(site.caller, site.caller)} calls", site.callee),
    }[line.where]
    return Branch(
        how=how,
        symbol=symbol,
        marks=decisions(site),
        is_loud=site.differs,
        note=_note(site) if site.differs else "",
        columns=_FEATURES,
        rows=tuple(
            (one.feature, f"{one.value:,}", f"{one.typical:,.1f}", f"{one.change:+.2f}")
            for one in (site.features if site.differs else ())
        ),
        branches=below,
    )


def _note(site: ExplainedSite) -> str:
    """Who decided, and the loudest feature."""
    loudest = "".join(f"; mostly {one.feature}, here {one.value:,}" for one in site.features[:1])
    return f"{reason(site)}{loudest}"

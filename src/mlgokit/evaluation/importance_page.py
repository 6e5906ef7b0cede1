"""Which features a policy goes by: parts of a page, and a page of its own."""

from mlgokit.pages.model import Bar, Bars, Page, Part, Table
from mlgokit.policy.importance import Importance
from mlgokit.policy.network import OutputKind
from mlgokit.spec import AdviceKind

SHOWN = 30
"""Features that have a bar; the table has all."""
_WEAK = 0.1
"""Correlation below which a feature leads neither up nor down."""
_UNITS = {
    AdviceKind.BINARY: ("the preference for inlining", "share of decisions that change"),
    AdviceKind.MASKED_CHOICE: ("the logit above the mean of the legal columns", "share of decisions that change"),
    AdviceKind.REAL: ("the unit number", "change of the unit number, in its standard deviations"),
}


def importance_parts(found: Importance, output: OutputKind) -> list[Part]:
    """A bar for each feature that matters most, and all of them as a table."""
    answer, change = _UNITS[output.advice_kind]
    order = found.ordered()
    bars = tuple(
        Bar(
            name=found.features[place],
            start=0,
            end=found.shapley[place],
            text=f"{found.shapley[place]:.3g}, {_direction(found.direction[place])}",
            is_sum=True,
        )
        for place in order[:SHOWN]
    )
    return [
        Bars(
            title="Features by importance",
            columns=("feature", f"share in {answer}"),
            bars=bars,
            note=f"Mean absolute Shapley value, a share in {answer}, over {found.observations:,} observations; and "
            "whether a larger value raises or lowers the answer.",
        ),
        Table(
            title="All features",
            columns=("feature", "share", "a larger value", change, "correlation"),
            rows=tuple(
                (
                    found.features[place],
                    f"{found.shapley[place]:.4g}",
                    _direction(found.direction[place]),
                    f"{found.changed[place]:.4f}",
                    f"{found.direction[place]:+.2f}",
                )
                for place in order
            ),
            note=f"Share: in {answer}. The {change} is what happens if the feature is another observation's. The "
            "correlation is that of the feature with its share.",
        ),
    ]


def importance_page(
    found: Importance, output: OutputKind, *, name: str, command: str = "", facts: tuple[tuple[str, str], ...] = ()
) -> Page:
    """A page of its own."""
    first = ", ".join(found.features[place] for place in found.ordered()[:3])
    return Page(
        title=f"{name} ({found.problem})",
        answer="",
        good=True,
        headline=f"What decides most: {first}.",
        sentences=("It is what this policy goes by, and not the reason why code is larger or smaller.",),
        parts=tuple(importance_parts(found, output)),
        command=command,
        facts=facts,
    )


def _direction(correlation: float) -> str:
    if abs(correlation) < _WEAK:
        return "neither"
    return "raises" if correlation > 0 else "lowers"

"""A picture of feature importance: one page with plotly.js inside, as the report's."""

import html
from collections.abc import Callable
from typing import Any, cast

from mlgokit.policy.importance import Importance
from mlgokit.policy.network import OutputKind
from mlgokit.spec import AdviceKind

SHOWN = 30
_UNITS = {
    AdviceKind.BINARY: ("preference for inlining", "share of decisions that change"),
    AdviceKind.MASKED_CHOICE: ("logit above the mean of the legal columns", "share of decisions that change"),
    AdviceKind.REAL: ("unit number", "change of the unit number, in its standard deviations"),
}


def importance_page(found: Importance, output: OutputKind, *, name: str) -> str:
    """The page; features beyond the first 30 are left out of the picture."""
    # Heavy, and only this function needs it.
    from plotly import io  # pyright: ignore[reportMissingTypeStubs]

    to_html = cast("Callable[..., str]", io.to_html)  # pyright: ignore[reportUnknownMemberType]

    places = found.ordered()[:SHOWN]
    names = [html.escape(found.features[place]) for place in places]
    answer, change = _UNITS[output.advice_kind]
    bars: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "y": names, "x": [found.shapley[place] for place in places],
            "name": f"mean absolute Shapley value: {answer}",
            "marker": {"color": [_colour(found.direction[place]) for place in places]},
        },
        {
            "type": "bar", "orientation": "h", "y": names, "x": [found.changed[place] for place in places],
            "name": f"after permutation: {change}", "xaxis": "x2", "marker": {"color": "#8a8a8a"},
        },
    ]  # fmt: skip
    layout: dict[str, Any] = {
        "title": {
            "text": f"{html.escape(name)} ({html.escape(found.problem)}): its features, {found.observations} "
            "observations<br><sub>blue: a larger value raises the answer; red: it lowers it</sub>"
        },
        "height": 160 + 26 * len(places),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        "xaxis": {"domain": [0, 0.47], "title": {"text": answer}},
        "xaxis2": {"domain": [0.53, 1], "title": {"text": change}, "anchor": "y"},
    }
    return to_html({"data": bars, "layout": layout}, include_plotlyjs=True, full_html=True)


def _colour(direction: float) -> str:
    if abs(direction) < 0.1:
        return "#555555"
    return "#2b6cb0" if direction > 0 else "#c53030"

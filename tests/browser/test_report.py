"""The report in a real browser: plots are drawn, nothing fails, nothing is fetched, and it fits on a phone."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgokit.evaluation.report import RunReport, figures, render_html

pytestmark = pytest.mark.browser

Browser = Callable[..., str]
REPORT = RunReport.from_json(json.loads((Path(__file__).parent.parent / "golden" / "results.json").read_text()))

# Runs before anything else in the page, and tells the page around it what it saw.
PROBE = """<script>
"use strict";
(() => {
  const problems = [];
  addEventListener("error", (event) => problems.push(event.message || "cannot load " + event.target.tagName), true);
  addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
  addEventListener("securitypolicyviolation", (event) => problems.push("blocked: " + event.blockedURI));
  console.error = (...words) => problems.push(words.join(" "));
  const visible = (element) => { const box = element.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
  const look = () => {
    const root = document.documentElement;
    const plots = [...document.querySelectorAll(".plot")].map((plot) => [plot.id, {
      drawings: [...plot.querySelectorAll("svg.main-svg")].filter(visible).length,
      bars: [...plot.querySelectorAll(".barlayer .point path")].filter(visible).length,
      names: [...plot.querySelectorAll(".ytick text, .xtick text")].map((text) => text.textContent),
      ink: getComputedStyle(plot.querySelector(".xtick text")).fill,
      beyond: plot.querySelector("svg.main-svg").getBoundingClientRect().right - plot.getBoundingClientRect().right,
    }]);
    parent.postMessage({
      problems,
      plots: Object.fromEntries(plots),
      width: root.clientWidth,
      needed: Math.max(root.scrollWidth, document.body.scrollWidth),
      ink: getComputedStyle(document.body).color,
      dark: matchMedia("(prefers-color-scheme: dark)").matches,
      requests: performance.getEntriesByType("resource").map((entry) => entry.name),
    }, "*");
  };
  addEventListener("load", () => setTimeout(look, 500));
})();
</script>"""

# A frame, because a window cannot be made as narrow as a phone.
AROUND = """<!DOCTYPE html><title>probe</title><body><pre id="seen"></pre><script>
addEventListener("message", (event) => { document.getElementById("seen").textContent = JSON.stringify(event.data); });
</script><iframe src="page.html" style="border: 0; height: 900px; width: WIDTHpx"></iframe></body>"""


@pytest.fixture(scope="module")
def page() -> str:
    text = render_html(REPORT)
    assert text.count("<head>") == 1
    return text


def look(browser: Browser, page: str, folder: Path, *options: str, width: int) -> dict[str, Any]:
    """What the probe saw of the page in a frame of that width in pixels."""
    (folder / "page.html").write_text(page.replace("<head>", f"<head>{PROBE}", 1))
    (folder / "around.html").write_text(AROUND.replace("WIDTH", str(width)))
    dom = browser(folder / "around.html", folder, *options)
    seen = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    assert seen, dom
    assert seen[1], "the page did not finish"
    return json.loads(html.unescape(seen[1]))


def test_the_page_alone_draws_its_plots(browser: Browser, page: str, tmp_path: Path):
    (tmp_path / "report.html").write_text(page)
    dom = browser(tmp_path / "report.html", tmp_path)

    assert dom.count('class="main-svg"') >= len(figures(REPORT))


@pytest.mark.parametrize("width", [360, 1280])
def test_plots_are_drawn_and_fit(browser: Browser, page: str, tmp_path: Path, width: int):
    seen = look(browser, page, tmp_path, width=width)
    plots = seen["plots"]

    assert seen["problems"] == []
    assert seen["requests"] == []
    assert seen["width"] == width
    assert seen["needed"] <= width
    assert {name: plot["bars"] for name, plot in plots.items()} == {
        "plot-changes": 3 * 8,
        "plot-sections": 6 * 8,
        "plot-training": 4,
        "plot-time": 6,
    }
    for name, plot in plots.items():
        assert plot["drawings"] >= 1, name
        assert plot["beyond"] <= 0.5, name
    assert {"yaml-cpp", "jsoncpp<b>", "zlib (C)"} <= set(plots["plot-changes"]["names"])


@pytest.mark.parametrize(("options", "dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)])
def test_plots_follow_the_colour_scheme(
    browser: Browser, page: str, tmp_path: Path, options: tuple[str, ...], dark: bool
):
    seen = look(browser, page, tmp_path, *options, width=800)

    assert seen["dark"] is dark
    assert {plot["ink"] for plot in seen["plots"].values()} == {seen["ink"]}


def test_the_probe_sees_what_is_wrong(browser: Browser, page: str, tmp_path: Path):
    broken = page.replace(
        "</main>",
        '<div style="width: 900px">wide</div><img src="missing.png">'
        '<script>throw new Error("on purpose");</script></main>',
    )
    seen = look(browser, broken, tmp_path, width=360)

    assert seen["needed"] >= 900
    assert any("on purpose" in problem for problem in seen["problems"])
    assert any("blocked: " in problem for problem in seen["problems"])

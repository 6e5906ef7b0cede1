"""Reports of evaluations in a real browser: many modules, hostile names, keyboard, both schemes, a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import look_into
from tests.browser.made_pages import made_evaluation, made_page

from mlgokit.pages.html import ROWS_AT_ONCE, render_html

pytestmark = pytest.mark.browser

Browser = Callable[..., str]
Maker = Callable[..., str]
HOSTILE = '</script><img src="missing.png" onerror="window.ran = 1"><script>window.ran = 1</script>'
MODULES = 10_000
MOST_BYTES = 15 * 2**20

PROBE = """
"use strict";
const problems = [];
addEventListener("error", (event) => problems.push(event.message || "cannot load " + event.target.tagName), true);
addEventListener("securitypolicyviolation", (event) => problems.push("blocked: " + event.blockedURI));
const texts = (row) => [...row.cells].map((cell) => cell.textContent);
const cells = (title) => {
  const titled = (one) => one.querySelector("h2").textContent === title;
  const section = [...document.querySelectorAll("section")].find(titled);
  return [section, () => [...section.querySelectorAll("tbody tr")].map(texts)];
};
const look = async () => {
  const root = document.documentElement;
  const seen = { problems, ran: window.ran ?? 0, width: root.clientWidth, needed: root.scrollWidth };
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.elements = document.querySelectorAll("*").length;
  seen.brightness = getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number);
  seen.heading = document.querySelector("h1").textContent;
  const canvas = document.querySelector("canvas");
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  seen.inked = pixels.filter((pixel) => pixel !== 0).length;
  const [section, rows] = cells("Modules, worst first");
  seen.first = rows();
  const buttons = [...section.querySelectorAll(".tools button")];
  seen.paged = buttons.length;
  if (buttons.length) {
    buttons[1].click();
    seen.second = rows();
    seen.status = section.querySelector("[role=status]").textContent;
    const before = [...section.querySelectorAll("th button")].find((button) => button.textContent === "before");
    before.click();
    before.click();
    seen.sorted = rows();
    seen.order = before.parentElement.getAttribute("aria-sort");
    const search = section.querySelector("input");
    search.value = "M00421.";
    search.dispatchEvent(new Event("input"));
    seen.found = rows();
  }
  const slider = document.querySelector("input[type=range]");
  slider.focus();
  slider.value = slider.max;
  slider.dispatchEvent(new Event("input"));
  seen.grew = document.querySelector("output").textContent;
  const [functions] = cells("Functions, worst first");
  const first = () => [functions.querySelector("tbody th"), document.querySelector(".tree .name")].map(
    (one) => one.textContent);
  seen.names = first();
  document.querySelector("#reading input").click();
  seen.symbols = first();
  if (functions.querySelector(".tools button")) {
    functions.querySelectorAll(".tools button")[1].click();
    seen.later = first();
  }
  seen.trees = document.querySelectorAll("details.tree").length;
  seen.focusable = [...document.querySelectorAll(".scroll")].every((region) => region.tabIndex === 0);
  parent.postMessage(seen, "*");
};
addEventListener("load", () => setTimeout(look, 300));
"""

# A frame, because a window cannot be made as narrow as a phone.


@pytest.fixture
def evaluated() -> Maker:
    """Makes the page of an evaluation with generated rows, as large as it is asked for."""
    return lambda *given: render_html(made_page(made_evaluation(*given)))


def look(browser: Browser, page: str, folder: Path, *options: str, width: int = 1200) -> dict[str, Any]:
    return look_into(browser, page, PROBE, folder, *options, width=width)


def test_ten_thousand_modules_are_a_page_of_fifty(browser: Browser, evaluated: Maker, tmp_path: Path) -> None:
    page = evaluated(MODULES, 5)
    assert len(page.encode()) < MOST_BYTES
    seen = look(browser, page, tmp_path)

    assert seen["problems"] == seen["requests"] == []
    # What a document has does not grow with the modules; most of it are call trees, which are closed.
    assert seen["elements"] < 12_000
    assert seen["inked"] > MODULES
    assert len(seen["first"]) == len(seen["second"]) == len(seen["sorted"]) == ROWS_AT_ONCE
    assert seen["second"] != seen["first"]
    assert seen["status"] == "51 to 100 of 10,000"
    sizes = [int(row[2].replace(",", "")) for row in seen["sorted"]]
    assert (seen["order"], sizes) == ("ascending", [200 + 37 * index for index in range(ROWS_AT_ONCE)])
    assert [row[0] for row in seen["found"]] == ["src/library/component/m00421.cpp.o"]
    assert "(+" in seen["grew"]
    assert seen["focusable"]
    assert seen["trees"] == 20
    assert [name for name in seen["names"] if not name.startswith("some::name::of(")] == []
    assert [symbol for symbol in (*seen["symbols"], *seen["later"]) if not symbol.startswith("_ZN4some")] == []
    assert seen["later"] != seen["symbols"]


def test_hostile_names_do_nothing(browser: Browser, evaluated: Maker, tmp_path: Path) -> None:
    seen = look(browser, evaluated(200, 5, HOSTILE), tmp_path)

    assert (seen["ran"], seen["problems"], seen["requests"]) == (0, [], [])
    assert seen["first"][0][0].endswith(HOSTILE)
    assert seen["second"][0][0].endswith(HOSTILE)
    assert HOSTILE in seen["grew"]


@pytest.mark.parametrize(
    ("options", "width", "dark"),
    [((), 1200, False), (("--blink-settings=preferredColorScheme=0",), 360, True)],
    ids=["light", "dark-and-narrow"],
)
def test_it_fits_in_both_schemes(
    browser: Browser,
    evaluated: Maker,
    tmp_path: Path,
    options: tuple[str, ...],
    width: int,
    dark: bool,
) -> None:
    seen = look(browser, evaluated(40, 5), tmp_path, *options, width=width)

    assert seen["problems"] == []
    assert (seen["width"], seen["needed"] <= width) == (width, True)
    assert (max(seen["brightness"]) < 128) is dark
    assert seen["paged"] == 0

"""The map of sizes in a real browser: it is opened, searched and left by mouse and by keys, and fits everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import DARK, look_into

from mlgokit.pages.html import render_html
from mlgokit.pages.model import Page, Tile, Treemap

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
PROBE = """
"use strict";
const problems = [];
addEventListener("error", (event) => problems.push(event.message || "cannot load " + event.target.tagName), true);
addEventListener("securitypolicyviolation", (event) => problems.push("blocked: " + event.blockedURI));
const look = async () => {
  const root = document.documentElement, figure = document.querySelector(".treemap");
  const buttons = () => [...figure.querySelectorAll(".tiles button")];
  const names = () => buttons().map((one) => one.title.split(":")[0]);
  const path = () => [...figure.querySelectorAll(".path button")].map((one) => one.textContent);
  const press = (key) => {
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  };
  const seen = { problems, top: names(), beyond: root.scrollWidth - root.clientWidth };
  const box = figure.querySelector(".tiles").getBoundingClientRect();
  const areas = buttons().map((one) => one.parentElement.getBoundingClientRect());
  const fits = (one) => one.left >= box.left - 1 && one.right <= box.right + 1 && one.bottom <= box.bottom + 1;
  seen.inside = areas.every(fits);
  seen.share = (areas[0].width * areas[0].height) / (box.width * box.height);
  seen.covered = areas.reduce((sum, one) => sum + one.width * one.height, 0) / (box.width * box.height);
  seen.stops = buttons().filter((one) => one.tabIndex === 0).length;
  buttons()[0].focus();
  press("ArrowRight");
  seen.second = document.activeElement.title;
  press("Home");
  document.activeElement.click();
  seen.opened = [path(), names(), document.activeElement.title];
  press("Escape");
  seen.left = [path(), document.activeElement.title];
  const search = figure.querySelector("input");
  search.value = "NEEDLE";
  search.dispatchEvent(new Event("input"));
  const left = names().filter((_, index) => !buttons()[index].classList.contains("other"));
  seen.found = [figure.querySelector("[role=status]").textContent, left];
  buttons()[0].click();
  figure.querySelector(".path button").click();
  seen.back = path();
  seen.brightness = getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number);
  parent.postMessage(seen, "*");
};
addEventListener("load", () => setTimeout(look, 300));
"""


def page() -> Page:
    """A section with two files, one with hostile names, one with many symbols."""
    many = tuple(Tile(name=f"function_{index}", size=10) for index in range(400))
    first = Tile(name="a.cpp", size=4000, tiles=many)
    second = Tile(
        name=HOSTILE, size=2000, tiles=(Tile(name="needle", size=1500), Tile(name=HOSTILE + "x" * 300, size=500))
    )
    tiles = (Tile(name=".text", size=6000, tiles=(first, second)), Tile(name=".rodata", size=2000))
    return Page(title="Sizes", headline="Sizes.", parts=(Treemap(title="Map", tiles=tiles, note="Areas."),))


def look(browser: Callable[..., str], folder: Path, *options: str, width: int) -> dict[str, Any]:
    return look_into(browser, render_html(page()), PROBE, folder, *options, width=width)


@pytest.mark.parametrize(
    ("options", "width", "dark"),
    [((), 1280, False), ((DARK,), 768, True), ((), 390, False)],
    ids=["wide", "dark", "narrow"],
)
def test_the_map_is_opened_searched_and_left(
    browser: Callable[..., str], tmp_path: Path, options: tuple[str, ...], width: int, dark: bool
) -> None:
    seen = look(browser, tmp_path, *options, width=width)

    assert seen["problems"] == []
    assert (seen["beyond"], seen["inside"], seen["stops"]) == (0, True, 1)
    assert (max(seen["brightness"]) < 128) is dark
    assert seen["top"] == [".text", ".rodata"]
    assert seen["share"] == pytest.approx(0.75, abs=0.01)
    assert seen["covered"] == pytest.approx(1, abs=0.01)
    assert seen["second"] == ".rodata: 2,000 bytes, 25.0\N{NO-BREAK SPACE}%"
    assert seen["opened"][:2] == [["all", ".text"], ["a.cpp", HOSTILE]]
    assert seen["opened"][2].startswith("a.cpp: 4,000 bytes")
    assert seen["left"][0] == ["all"]
    assert seen["left"][1].startswith(".text: 6,000 bytes")
    assert seen["found"] == ["found 1,500 bytes, 18.8\N{NO-BREAK SPACE}%", [".text"]]
    assert seen["back"] == ["all"]

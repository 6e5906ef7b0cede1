"""The documentation in a real browser: nothing fails, nothing is fetched, every link leads somewhere."""

import html
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from mlgokit.compiler import process

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parents[2] / "docs"
TITLES = {
    "index.html": "mlgokit",
    "tutorial.html": "A first policy in minutes",
    "how-to/tune.html": "How to tune a project",
    "generated/commands/tune.html": "mlgokit tune",
    "reference/api.html": "Python",
    "formats.html": "Formats",
    "glossary.html": "Glossary",
    "results/tuning.html": "tuning",
    "generated/contributing.html": "Contributing",
}

# Runs before anything else in a page, and tells the page around it what it saw.
PROBE = """<script>
"use strict";
(() => {
  const problems = [];
  addEventListener("error", (event) => problems.push(event.message || "cannot load " + event.target.outerHTML), true);
  addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
  console.error = (...words) => problems.push(words.join(" "));
  const look = () => {
    const root = document.documentElement;
    parent.postMessage({
      page: document.getElementById("probed").content,
      problems,
      title: document.querySelector("h1").firstChild.textContent,
      links: document.querySelectorAll(".sidebar-tree a.reference.internal").length,
      current: document.querySelectorAll(".sidebar-tree .current-page").length,
      beyond: root.scrollWidth - root.clientWidth,
      brightness: getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number),
      fetched: performance.getEntriesByType("resource").map((entry) => entry.name),
    }, "*");
  };
  addEventListener("load", () => setTimeout(look, 500));
})();
</script>"""

AROUND = """<!DOCTYPE html><title>probe</title><body><pre id="seen"></pre><script>
const seen = [];
addEventListener("message", (event) => {
  seen.push(event.data);
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>FRAMES</body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the site, brought up to date as `make docs` does it; from nothing it takes a minute."""
    folder, built = tmp_path_factory.mktemp("site") / "html", DOCS.parent / "build"
    done = process.run(
        [
            *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
            *("-d", str(built / "doctrees"), str(DOCS), str(built / "docs")),
        ],
        timeout_seconds=240.0,
    )
    assert done.returncode == 0, done.stderr
    # Sphinx leaves pages where their sources are gone.
    (listed,) = re.findall(r'"docnames": ?(\[.*?\])', (built / "docs" / "searchindex.js").read_text())
    pages = {f"{name}.html" for name in (*json.loads(listed), "genindex", "search", "py-modindex")}

    def left_over(place: str, names: list[str]) -> set[str]:
        below = Path(place).relative_to(built / "docs")
        return {name for name in names if name.endswith(".html") and str(below / name) not in pages}

    return shutil.copytree(built / "docs", folder, ignore=left_over)


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path):
    texts = {path: path.read_text() for path in site.rglob("*.html")}
    places = {path: set(re.findall(r' id="([^"]+)"', text)) for path, text in texts.items()}

    wrong: list[str] = []
    for path, text in texts.items():
        for target in re.findall(r' (?:href|src)="([^"]+)"', text):
            parts = urlsplit(html.unescape(target))
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = not parts.fragment or there not in places or unquote(parts.fragment) in places[there]
            if not there.is_file() or not known:
                wrong.append(f"{path.relative_to(site)}: {target}")

    assert len(texts) > len(TITLES)
    assert wrong == []


def frame(page: Path, name: str, width: int) -> str:
    """A frame with a copy of the page that has the probe; a window cannot be made as narrow as a phone."""
    probed = page.with_suffix(f".probed-{width}.html")
    marked = f'<head><meta id="probed" content="{name}">{PROBE}'
    probed.write_text(page.read_text().replace("<head>", marked, 1))
    return f'<iframe src="{probed.as_uri()}" style="width: {width}px; height: 900px"></iframe>'


@pytest.mark.parametrize(
    ("options", "width", "dark"),
    [((), 1400, False), (("--blink-settings=preferredColorScheme=0",), 360, True)],
    ids=["light", "dark-and-narrow"],
)
def test_pages_look_right(
    browser: Callable[..., str], site: Path, tmp_path: Path, options: tuple[str, ...], width: int, dark: bool
):
    frames = [frame(site / name, name, width) for name in TITLES]
    (tmp_path / "around.html").write_text(AROUND.replace("FRAMES", "".join(frames)))
    dom = browser(tmp_path / "around.html", tmp_path, *options)
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom
    seen: dict[str, dict[str, Any]] = {entry["page"]: entry for entry in json.loads(html.unescape(found[1]) or "[]")}

    assert seen.keys() == TITLES.keys()
    for name, page in seen.items():
        assert page["problems"] == [], name
        assert [url for url in page["fetched"] if not url.startswith("file:")] == [], name
        assert page["title"] == TITLES[name]
        assert page["links"] > 20, name
        assert page["current"] == (name != "index.html"), name
        assert page["beyond"] <= 0, name
        assert (max(page["brightness"]) < 128) is dark, name

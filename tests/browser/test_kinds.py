"""Every kind of report in a real browser: nothing fails or is fetched, it fits on a phone, and axe finds nothing."""

import base64
import dataclasses
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import DARK, add_probe, read_seen
from tests.browser.made_pages import made_evaluation, made_page
from tests.browser.test_treemap import page as treemap_page

from mlgokit.bench.page import bench_page
from mlgokit.bench.record import Bench
from mlgokit.compiler import process
from mlgokit.evaluation.run import RunReport, run_page
from mlgokit.flags.page import advice_page
from mlgokit.flags.record import FlagAdvice
from mlgokit.learning.page import training_page
from mlgokit.learning.record import TrainingRecord
from mlgokit.pages.html import render_html
from mlgokit.policy.importance import Importance, importance_page
from mlgokit.policy.network import OutputKind
from mlgokit.sizes.compare import compare_sizes
from mlgokit.sizes.page import difference_page, reasons_page
from mlgokit.sizes.record import Sizes
from mlgokit.sizes.why import Reasons, User
from mlgokit.tune.page import tuned_page
from mlgokit.tune.result import Tuned

pytestmark = pytest.mark.browser

GOLDEN = Path(__file__).parents[1] / "golden"
AXE = "axe-core@4.10.2"
AXE_DIGEST = "sha512-RE3mdQ7P3FRSe7eqCWoeQ/Z9QXrtniSjp1wUjt5nRC3WIpz5rSCve6o3fsZ2aCpJtrZjSZgjwXAoTO5k4tEI0w=="
KINDS = {"size", "difference", "why", "advise", "evaluate", "bench", "train", "tune", "importance", "quickstart"}

PROBE = """
"use strict";
const problems = [];
addEventListener("error", (event) => problems.push(event.message || "cannot load " + event.target.tagName), true);
addEventListener("securitypolicyviolation", (event) => problems.push("blocked: " + event.blockedURI));
const look = async () => {
  const root = document.documentElement;
  // What is closed has text, too.
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const lines = [...document.querySelectorAll(".curve path")].filter((one) => one.getBoundingClientRect().width > 100);
  const seen = { page: NAME, problems, lines: lines.length, beyond: root.scrollWidth - root.clientWidth };
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.brightness = getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number);
  if (window.axe) {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    seen.axe = found.violations.map((one) => `${one.id}: ${one.nodes[0].html}`);
    seen.passed = found.passes.length;
  }
  parent.postMessage(seen, "*");
};
addEventListener("load", () => setTimeout(look, 300));
"""

AROUND = """<!DOCTYPE html><title>probe</title><body><pre id="seen"></pre><script>
const seen = [];
addEventListener("message", (event) => {
  seen.push(event.data);
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>FRAMES</body>"""


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


@pytest.fixture
def pages() -> dict[str, str]:
    """Each kind of report, of generated or of kept results."""
    names = ("callee_users", "call_is_invoke", "caller_name_length")
    found = Importance(
        problem="inline-size", features=names, observations=20,
        changed=(0.2, 0.1, 0.0), shapley=(0.5, 0.25, 0.0), direction=(0.9, -0.8, 0.0),
    )  # fmt: skip
    sizes = Sizes.from_json(golden("sizes.json"))
    fewer = dataclasses.replace(sizes, symbols=sizes.symbols[1:], memory_bytes=sizes.memory_bytes - 100)
    user = User(symbol="main", readable="main", calls=True, size=300)
    reasons = Reasons(
        path="app", names=("_Z4emitv",), readable="emit()", size=20, section=".text", others=2,
        chain=("main", "emit()"),
        users=(dataclasses.replace(user, symbol="_Z3sayv", readable="say()", users=(user,)),), inlined=(),
    )  # fmt: skip
    return {
        "size": render_html(treemap_page()),
        "difference": render_html(difference_page(compare_sizes(sizes, fewer))),
        "why": render_html(reasons_page(reasons)),
        "advise": render_html(advice_page(FlagAdvice.from_json(golden("advice.json")))),
        "evaluate": render_html(made_page(made_evaluation(200, 5))),
        "bench": render_html(bench_page(Bench.from_json(golden("bench.json"), "bench.json"))),
        "train": render_html(training_page(TrainingRecord.from_json(golden("metrics.json")))),
        "tune": render_html(tuned_page(Tuned.from_json(golden("tuned.json")))),
        "importance": render_html(importance_page(found, OutputKind.LOGITS, name="final.policy")),
        "quickstart": render_html(run_page(RunReport.from_json(golden("results.json")))),
    }


def look(
    browser: Callable[..., str], pages: dict[str, str], folder: Path, *options: str, width: int, also: str = ""
) -> dict[str, dict[str, Any]]:
    """What the probe saw of each page in a frame, as a window cannot be made as narrow as a phone."""
    frames: list[str] = []
    for name, page in pages.items():
        probe = also + PROBE.replace("NAME", json.dumps(name))
        (folder / f"{name}.html").write_text(add_probe(page, probe))
        frames.append(f'<iframe src="{name}.html" style="border: 0; height: 900px; width: {width}px"></iframe>')
    (folder / "around.html").write_text(AROUND.replace("FRAMES", "".join(frames)))
    text = read_seen(browser(folder / "around.html", folder, *options))
    return {one["page"]: one for one in json.loads(text or "[]")}


@pytest.mark.parametrize(
    ("options", "width", "dark"),
    [((), 1280, False), ((DARK,), 768, True), ((), 390, False), ((DARK,), 360, True)],
    ids=["wide", "dark-tablet", "phone", "dark-small-phone"],
)
def test_every_kind_of_report_fits(
    browser: Callable[..., str],
    pages: dict[str, str],
    tmp_path: Path,
    options: tuple[str, ...],
    width: int,
    dark: bool,
) -> None:
    seen = look(browser, pages, tmp_path, *options, width=width)

    assert seen.keys() == KINDS
    for name, page in seen.items():
        assert (page["problems"], page["requests"]) == ([], []), name
        assert page["beyond"] <= 0, name
        assert (max(page["brightness"]) < 128) is dark, name
    # A line and its discs.
    assert (seen["train"]["lines"] > 2, seen["tune"]["lines"], seen["quickstart"]["lines"]) == (True, 2, 2)


@pytest.mark.network
@pytest.mark.parametrize(("options", "width"), [((), 390), ((DARK,), 1280)], ids=["light-phone", "dark-wide"])
def test_axe_finds_nothing(
    browser: Callable[..., str], pages: dict[str, str], tmp_path: Path, options: tuple[str, ...], width: int
) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm")
    done = process.run([npm, "pack", "--pack-destination", str(tmp_path), AXE], timeout_seconds=120.0)
    assert done.returncode == 0, done.stderr
    archive = next(tmp_path.glob("*.tgz"))
    assert f"sha512-{base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()}" == AXE_DIGEST
    with tarfile.open(archive) as opened:
        member = opened.extractfile("package/axe.min.js")
        assert member is not None
        axe = member.read().decode().replace("</script", "")
    seen = look(browser, pages, tmp_path, *options, "--virtual-time-budget=60000", width=width, also=axe)

    assert seen.keys() == KINDS
    assert all(page["passed"] > 10 for page in seen.values())
    assert {name: page["axe"] for name, page in seen.items()} == {name: [] for name in KINDS}

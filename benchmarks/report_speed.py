"""How large the report of an evaluation is, and how soon a browser has it ready."""

import html
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chromium import document, find_chromium
from harness import Setup, run_benchmark
from results import Result, Table

from mlgokit.bench.counts import RUN_LIMITS
from mlgokit.compiler import process
from mlgokit.errors import ToolError
from mlgokit.evaluation.page import evaluation_page, symbols_of
from mlgokit.evaluation.records import (
    BuiltModule,
    Change,
    Evaluation,
    ExplainedComponent,
    ExplainedSite,
    FeatureWeight,
    FunctionBytes,
    FunctionComparison,
    FunctionTree,
    ModuleComparison,
    ProjectComparison,
    Sizes,
    TreeLine,
    Verdict,
)
from mlgokit.pages.html import render_html
from mlgokit.pages.model import Page

MOST_BYTES = 15 * 2**20
MOST_MILLISECONDS = 2000.0
PROJECTS = 10
STEPS = {
    "ready": "from the start of loading until scripts have run and all is laid out",
    "sort": "sort all modules by a column",
    "find": "search all modules",
    "turn": "show the next rows",
}
# Behind the page's own script; what each step changed is laid out before its time is taken.
PROBE = """
"use strict";
const laid = () => document.body.offsetHeight;
laid();
const seen = { ready: performance.now() };
const wanted = (one) => one.querySelector("h2").textContent.startsWith("Modules");
const section = [...document.querySelectorAll("section")].find(wanted);
const timed = (name, step) => {
  const start = performance.now();
  step();
  laid();
  seen[name] = performance.now() - start;
};
timed("sort", () => section.querySelectorAll("th button")[2].click());
const search = section.querySelector("input");
timed("find", () => { search.value = "component/m0"; search.dispatchEvent(new Event("input")); });
timed("turn", () => section.querySelectorAll(".tools button")[1].click());
const told = document.createElement("pre");
told.id = "seen";
told.textContent = JSON.stringify(seen);
document.body.append(told);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSpeed:
    """Make the report of an evaluation with generated rows, and open it in Chromium."""

    modules: int = 10_000
    """Modules of the evaluation."""
    functions: int = 20
    """Functions that differ in each."""
    repetitions: int = 9
    """How often the page is opened, each time by a new browser."""
    json: Path = Path("docs/results/report_speed.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ReportSpeed, measure, arguments)


def measure(config: ReportSpeed, setup: Setup) -> Result:
    """Make the page once, and open it again and again.

    Raises:
        ToolError: there is no browser, or it fails.
    """
    browser = find_chromium()
    if browser is None:
        raise ToolError("report_speed: expected chromium in PATH, found none; install the package chromium")
    version = process.run([browser, "--version"], timeout_seconds=60.0, limits=RUN_LIMITS).stdout.decode().strip()
    setup.tools["browser"] = version
    evaluation = made_evaluation(config.modules, config.functions)
    begun = time.perf_counter()
    page = render_html(made_page(evaluation))
    seconds = time.perf_counter() - begun
    seen: list[dict[str, float]] = []
    for done in range(config.repetitions):
        setup.report(done, config.repetitions, "open the page")
        seen.append(_opened(browser, page))
    size = len(page.encode())
    ready = statistics.median(one["ready"] for one in seen)
    return Result(
        benchmark="report_speed",
        question="How large is the report of a large evaluation, and how soon is it ready in a browser?",
        answer=f"With {config.modules:,} modules it has {size / 2**20:.1f} MiB and is ready after {ready:.0f} ms.",
        bar=f"less than {MOST_BYTES / 2**20:.0f} MiB, ready in less than {MOST_MILLISECONDS / 1000:g} s",
        passed=size < MOST_BYTES and ready < MOST_MILLISECONDS,
        seed=1,
        tables=(
            Table(
                title=f"The page of {config.modules:,} modules with {config.functions} functions each",
                columns=("what", "value"),
                rows=(("MiB", size / 2**20), ("seconds to make it", seconds)),
            ),
            Table(
                title=f"Milliseconds in the browser, {config.repetitions} times",
                columns=("step", "median", "most"),
                rows=tuple(
                    (said, statistics.median(one[name] for one in seen), max(one[name] for one in seen))
                    for name, said in STEPS.items()
                ),
                note="Without graphics hardware. The first picture of the scatter plot is in the first row.",
            ),
        ),
    )


def _opened(browser: str, page: str) -> dict[str, float]:
    """Milliseconds by step; the page's policy is left out, as it lets no other script run."""
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page, count=1)
    probed = probed.replace("</body>", f"<script>{PROBE}</script></body>")
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as folder:
        path = Path(folder, "page.html")
        path.write_text(probed)
        found = re.search(r'<pre id="seen">(.*?)</pre>', document(browser, path, Path(folder)), re.DOTALL)
    if found is None:
        raise ToolError(f"report_speed: expected {browser} to run the page's scripts, found none; try it by hand")
    return json.loads(html.unescape(found[1]))


def made_evaluation(modules: int, functions: int, name: str = "") -> Evaluation:
    """An evaluation with generated rows of ten projects, whose objects shrink but for a few.

    Args:
        modules: of all projects together.
        functions: that differ in each module.
        name: what every name ends in.
    """

    def module(index: int) -> ModuleComparison:
        before = 200 + 37 * index
        after = before + (index % 97) - 90
        old, new = (BuiltModule(status="ok", objects=size, text=size, user_seconds=1.0) for size in (before, after))
        differing = tuple(
            FunctionComparison(
                function=f"_ZN4some9namespace{index}function{which}Ev{name}",
                before=FunctionBytes(text=100 + which),
                after=FunctionBytes(text=90 + 3 * which + index % 7),
            )
            for which in range(functions)
        )
        path = f"src/library/component/m{index:05}.cpp.o{name}"
        return ModuleComparison(module=path, before=old, after=new, functions=2 * functions, differing=differing)

    rows = [module(index) for index in range(modules)]
    projects = tuple(
        ProjectComparison(
            project=f"project{which}{name}",
            language="c++",
            modules=len(rows[which::PROJECTS]),
            before=_sizes(100_000),
            after=_sizes(99_000 + 150 * which),
            larger_modules=1,
            user_seconds_before=1.0,
            user_seconds_after=1.0,
            module_rows=tuple(rows[which::PROJECTS]),
        )
        for which in range(PROJECTS)
    )
    sites = [
        ExplainedSite(
            site=f"{which:#018x}",
            caller=f"_ZN4some6caller{which}Ev{name}",
            callee=f"_ZN4some6callee{which}Ev{name}",
            plain=False,
            heuristic=False,
            decided=which % 3 != 0,
            preference=0.5,
            members=6,
            agree=5,
            features=tuple(
                FeatureWeight(feature=f"feature_{number}{name}", value=number, typical=0.5, change=0.25)
                for number in range(4)
            ),
        )
        for which in range(12)
    ]
    trees = tuple(
        FunctionTree(
            function=f"_ZN4some9namespace{which}function19Ev{name}",
            module=rows[which].module,
            project=f"project{which % PROJECTS}{name}",
            growth=53 if which < PROJECTS else -10,
            before=119,
            after=172,
            component=ExplainedComponent(number=which, change=-40, differences=8, functions=3),
            lines=tuple(TreeLine(depth=place % 4, site=site) for place, site in enumerate(sites)),
            more=2,
        )
        for which in range(2 * PROJECTS)
    )
    change = Change(mean=-0.003, low=-0.006, high=-0.001, projects=PROJECTS)
    return Evaluation(
        policy="generated",
        projects=projects,
        summary={"c++": {"image": change}},
        overall={"image": change},
        compilations=2 * modules,
        trees=trees,
        verdict=Verdict(ship=False, measure="image", sentence=f"Do not ship: {name}", reasons=(name,)),
        source=name,
        command=f"mlgokit evaluate {name}",
    )


def made_page(evaluation: Evaluation) -> Page:
    """Its page, with names for symbols; generated ones, so that no demangler is timed."""
    return evaluation_page(evaluation, {one: f"some::name::of({one[3:]})" for one in symbols_of(evaluation)})


def _sizes(image: int) -> Sizes:
    return Sizes(objects=image, link_aware=image, text=image, rodata=0, eh_frame=0, image=image)


if __name__ == "__main__":
    sys.exit(main())

"""Pages of results: what stands first, what is in the tables, and that a stranger's names stay text."""

import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import pytest

from mlgokit.builds.images import FunctionBytes
from mlgokit.commands import report
from mlgokit.compiler.llvm_tools import find_demangler, readable_names
from mlgokit.errors import InputError, UsageError
from mlgokit.evaluation.page import evaluation_page
from mlgokit.evaluation.records import (
    BuiltModule,
    Change,
    CostComparison,
    Evaluation,
    ExplainedComponent,
    ExplainedSite,
    FeatureWeight,
    FunctionComparison,
    FunctionTree,
    ModuleComparison,
    ModuleFailure,
    ProjectComparison,
    Sizes,
    TreeLine,
    Verdict,
)
from mlgokit.pages.html import ROWS_AT_ONCE, check_json_name, plot_curves, render_html
from mlgokit.pages.markdown import MARKDOWN_ROWS, render_markdown
from mlgokit.pages.model import Bars, Curve, Curves, Page, Table, Trees

HOSTILE = '</script><img src="http://x/" onerror="alert(1)"><b>"\u202e|[a](http://x)'


def sizes(image: int) -> Sizes:
    return Sizes(objects=2 * image, link_aware=1.5 * image, text=image - 20, rodata=15, eh_frame=5, image=image)


def module(name: str, before: int, after: int, *differing: FunctionComparison) -> ModuleComparison:
    old, new = (BuiltModule(status="ok", objects=size, text=size, user_seconds=0.5) for size in (before, after))
    return ModuleComparison(module=name, before=old, after=new, functions=9, differing=differing)


def function(name: str, before: int | None, after: int | None) -> FunctionComparison:
    old, new = (None if size is None else FunctionBytes(text=size) for size in (before, after))
    return FunctionComparison(function=name, before=old, after=new)


def project(name: str, before: int, after: int, *rows: ModuleComparison) -> ProjectComparison:
    return ProjectComparison(
        project=name,
        language="c++",
        modules=max(1, len(rows)),
        before=sizes(before),
        after=sizes(after),
        larger_modules=0,
        user_seconds_before=1.0,
        user_seconds_after=1.5,
        module_rows=rows,
    )


def evaluation(*projects: ProjectComparison, ship: bool = True) -> Evaluation:
    change = Change(mean=-0.1, low=-0.2, high=-0.05, projects=len(projects))
    return Evaluation(
        policy="p",
        projects=projects,
        summary={"c++": {"image": change}},
        overall={"image": change},
        compilations=8,
        verdict=Verdict(ship=ship, measure="image", sentence=f"{'Ship' if ship else 'Do not ship'}: Image -10.00 %."),
        command="mlgokit evaluate x.policy",
        mlgokit_version="0.1",
        toolchain={"clang": "22.1"},
        seed=7,
    )


SMALL = evaluation(
    project("shrank", 1000, 800, module("a.o", 500, 400, function("_Z1fv", 90, None), function("_Z1gv", 10, 12))),
    project("grew", 500, 550, module("b.o", 100, 130, function("_Z1fv", 90, None)), module("c.o", 100, 130)),
)


def table(page: Page, title: str) -> Table:
    return next(part for part in page.parts if part.title == title and isinstance(part, Table))


class Elements(HTMLParser):
    """Names of elements, and attributes that run or fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.suspicious: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            if name.startswith("on") or (name in {"src", "href"} and not (value or "").startswith(("#", "data:"))):
                self.suspicious.append(f"{tag} {name}")


def test_verdict_first_then_worst_first() -> None:
    page = evaluation_page(SMALL)
    assert (page.answer, page.good, page.headline) == ("Ship", True, "Image -10.00 %.")
    assert [row[0] for row in table(page, "Projects, worst first").texts()] == ["grew", "shrank"]
    assert [row[0] for row in table(page, "Modules, worst first").texts()] == ["b.o", "c.o", "a.o"]
    assert [row[:6] for row in table(page, "Functions, worst first").texts()] == [
        ("_Z1gv", "a.o", "shrank", "10", "12", "+2"),
        ("_Z1fv", "b.o", "grew", "90", "absent", "-90"),
        ("_Z1fv", "a.o", "shrank", "90", "absent", "-90"),
    ]
    text = render_html(page)
    assert text.index("✓ Ship") < text.index("Image \N{MINUS SIGN}10.00") < text.index('<section id="part-0"')
    refused = render_html(evaluation_page(dataclasses.replace(SMALL, verdict=evaluation(ship=False).verdict)))
    assert "✗ Do not ship" in refused


def test_the_waterfall_adds_up() -> None:
    bars = next(part for part in evaluation_page(SMALL).parts if isinstance(part, Bars)).bars
    assert [(bar.name, bar.start, bar.end) for bar in bars] == [
        ("shrank", 0, -200),
        ("grew", -200, -150),
        ("all", 0, -150),
    ]
    assert bars[1].text == "+50 (+10.00 %)"
    many = evaluation(*(project(f"p{index}", 1000, 1000 - index) for index in range(100)))
    bars = next(part for part in evaluation_page(many).parts if isinstance(part, Bars)).bars
    assert (len(bars), bars[-2].name, bars[-1].end) == (42, "60 others", -sum(range(100)))
    assert bars[-2].end == bars[-1].end


def test_failures_are_rows_and_come_first() -> None:
    late = BuiltModule(status="timed_out", reason="slow")
    row = ModuleComparison(module="x.o", before=BuiltModule(status="ok", objects=5), after=late)
    broken = dataclasses.replace(
        project("broken", 0, 0, row),
        link_failure="after: no main",
        failures=(ModuleFailure(module="x.o", build="after", reason="slow"),),
    )
    page = evaluation_page(evaluation(*SMALL.projects, broken))
    assert table(page, "Failures").texts() == (
        ("broken", "broken", "link", "after: no main"),
        ("x.o", "broken", "compile, after", "slow"),
    )
    assert table(page, "Modules, worst first").texts()[0][:6] == ("x.o", "broken", "5", "timed out", "-", "-")
    assert table(page, "Projects, worst first").texts()[0][:5] == ("broken", "C++", "not linked", "not linked", "-")


def test_costs_are_judged_where_they_are_the_measure() -> None:
    counts = {"spills": 3}
    costs = CostComparison(functions=4, change=-0.2, cheaper=3, dearer=1, counts_before=counts, counts_after=counts)
    judged = dataclasses.replace(
        evaluation(dataclasses.replace(SMALL.projects[0], costs=costs)),
        verdict=Verdict(ship=True, measure="cost", sentence="Ship: cheap."),
    )
    page = evaluation_page(judged)
    assert next(part for part in page.parts if isinstance(part, Bars)).bars[0].text == "-20.00 %"
    assert table(page, "Register allocation by project").texts() == (("shrank", "-20.00 %", "4", "3", "1", "3 -> 3"),)


def test_a_strangers_names_stay_text() -> None:
    hostile = evaluation(
        *(
            project(f"{HOSTILE}{index}", 100, 90, module(HOSTILE, 50, 60, function(HOSTILE, 5, 6)))
            for index in range(ROWS_AT_ONCE + 10)
        )
    )
    hostile = dataclasses.replace(hostile, command=HOSTILE, source=HOSTILE, toolchain={HOSTILE: HOSTILE})
    text = render_html(evaluation_page(hostile))
    found = Elements(text)
    assert found.suspicious == []
    assert (found.tags["script"], found.tags.get("img"), found.tags.get("b")) == (2, None, None)
    assert "\u202e" not in text
    # The only script that may run is the one whose digest is in the policy.
    assert "unsafe-inline'; style" not in text
    assert re.search(r"script-src 'sha256-[\w+/]{43}='", text)

    plain = render_markdown(evaluation_page(hostile))
    fenced = re.sub(r"```sh\n.*?\n```", "", plain, flags=re.DOTALL)
    assert "<" not in fenced
    assert "[a](" not in fenced
    assert re.search(r"(?<!\\)\|\[", fenced) is None


def test_long_tables_are_paged_and_cut_in_markdown() -> None:
    rows = tuple(module(f"m{index:04}.o", 100, 100 + index) for index in range(1000))
    page = evaluation_page(evaluation(project("big", 1000, 900, *rows)))
    text = render_html(page)
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert text.count("<tr><th") < 200
    assert [len(part) for part in data["rows"].values()] == [1000]
    assert render_markdown(page).count(".o | big |") == MARKDOWN_ROWS
    assert f"The first {MARKDOWN_ROWS} of 1,000." in render_markdown(page)


def test_a_report_is_made_of_the_json(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(json.dumps(SMALL.to_json()))
    told = report.run(report.MakeReport(result=tmp_path / "e.json"))
    assert told == {"html": str(tmp_path / "e.html"), "markdown": str(tmp_path / "e.md")}
    names = readable_names(["_Z1fv", "_Z1gv"], find_demangler())
    assert (tmp_path / "e.html").read_text() == render_html(evaluation_page(SMALL, names))
    assert (tmp_path / "e.md").read_text().startswith("# plain against plain\n\n**Ship.** Image -10.00 %.\n")

    (tmp_path / "other.json").write_text('{"format": "else"}')
    with pytest.raises(
        InputError, match=r"expected format 'mlgokit evaluation', .*'mlgokit run', .*found 'else'; give the JSON"
    ):
        report.run(report.MakeReport(result=tmp_path / "other.json"))
    for text in ('{"format": []}', (tmp_path / "e.json").read_text().replace("1000", "1" * 400)):
        (tmp_path / "damaged.json").write_text(text)
        with pytest.raises(InputError, match=r"expected a result as mlgokit wrote it, found a damaged one \("):
            report.run(report.MakeReport(result=tmp_path / "damaged.json"))
    with pytest.raises(InputError, match="expected the JSON of a result"):
        report.run(report.MakeReport(result=tmp_path / "none.json"))
    with pytest.raises(UsageError, match=r"expected a name ending in .json, found out.html"):
        check_json_name(Path("out.html"))


def tree(name: str, growth: int, *lines: TreeLine, **given: Any) -> FunctionTree:
    return FunctionTree(function=name, module="a.o", project="p", growth=growth, lines=lines, **given)


def call(depth: int, callee: str, *, differs: bool, where: Literal["below", "above"] = "below") -> TreeLine:
    features = (FeatureWeight(feature="size", value=90, typical=6.4, change=-2.5),) if differs else ()
    site = ExplainedSite(
        site="0x1",
        caller="_Z1fv",
        callee=callee,
        plain=True,
        heuristic=True,
        decided=not differs,
        preference=-2.0,
        members=2,
        agree=1,
        features=features,
    )
    return TreeLine(depth=depth, site=site, where=where)


EXPLAINED = dataclasses.replace(
    SMALL,
    trees=(
        tree(
            "_Z1fv",
            12,
            call(0, "_Z1gv", differs=False),
            call(1, HOSTILE, differs=True),
            call(0, "_Z1hv", differs=True),
            before=10,
            after=22,
            component=ExplainedComponent(number=3, change=-7, differences=2, functions=4),
            more=5,
        ),
        tree("gone", -90, failure="the 60 seconds for call trees were over"),
    ),
)


def test_call_trees_say_what_was_decided_what_it_weighs_and_why() -> None:
    assert Evaluation.from_json(json.loads(json.dumps(EXPLAINED.to_json()))) == EXPLAINED
    page = evaluation_page(EXPLAINED, {"_Z1fv": "f()", "_Z1gv": "g()"})
    grown, shrunk = (part for part in page.parts if isinstance(part, Trees))
    (root,) = grown.trees
    assert (root.symbol, root.change, root.tone) == ("_Z1fv", "+12 bytes (10 -> 22)", "larger")
    assert root.notes[1:] == (
        "Component 3: -7 bytes in 4 functions by 2 differences together.",
        "5 more calls; mlgokit explain shows them.",
    )
    assert [(one.symbol, one.marks, one.is_loud) for one in root.branches] == [
        ("_Z1gv", ("inlined",), False),
        ("_Z1hv", ("LLVM: inlined", "now: not inlined"), True),
    ]
    (below,) = root.branches[0].branches
    assert (below.symbol, below.note) == (HOSTILE, "preference -2.00, 1 of 2 members agree; mostly size, here 90")
    assert below.rows == (("size", "90", "6.4", "-2.50"),)
    assert shrunk.trees[0].notes[1] == "There is no explanation: the 60 seconds for call trees were over."

    text = render_html(page)
    assert Elements(text).suspicious == []
    assert 'data-symbol="_Z1fv" title="_Z1fv">f()</span>' in text
    plain = render_markdown(page)
    assert "### f(): +12 bytes (10 -> 22)\n\nSymbol: _Z1fv\n" in plain
    assert "\n- calls g(); inlined\n  - calls &lt;/script>" in plain
    assert "| g() | a.o | shrank | 10 | 12 | +2 | +20.00 % | _Z1gv |" in plain


def test_why_there_are_no_call_trees_is_said() -> None:
    page = evaluation_page(dataclasses.replace(SMALL, no_trees="nothing was to be had"))
    (part,) = (part for part in page.parts if isinstance(part, Trees))
    assert part.note == "There are no call trees: nothing was to be had."
    assert part.note in render_html(page)
    assert part.note in render_markdown(page)


def test_curves_are_drawn_and_have_their_numbers() -> None:
    points = tuple((float(place), math.nan if place == 3 else 100.0 - place) for place in range(1000))
    part = Curves(
        title="Bytes", axes=("seconds", "bytes"), curves=(Curve(name="a", points=points), Curve(name="b", points=()))
    )
    plot = plot_curves(part)
    assert (plot.curves[0].line[:10], plot.curves[0].line[-13:]) == ("M0.00 0.00", "100.00 100.00")
    assert plot.curves[0].line.count("L") < 400
    assert plot.curves[1].line == ""
    assert [text for _, text in plot.across] == ["0", "200", "400", "600", "800"]
    assert plot.across[2][0] == pytest.approx(400 / 9.99)
    page = Page(title="t", answer="", good=True, headline="h", sentences=(), parts=(part,), command="", facts=())
    text = render_html(page)
    assert text.count('<th scope="row">') == len(points) // 21 + 2 <= ROWS_AT_ONCE
    assert 'aria-label="Bytes: bytes by seconds; the numbers are in the table below"' in text
    assert "| 999 | -899 |" in render_markdown(page)
    flat = plot_curves(dataclasses.replace(part, curves=(Curve(name="a", points=((1, 5), (2, 5))),)))
    assert flat.curves[0].marks == "M0.00 50.00h0M100.00 50.00h0"

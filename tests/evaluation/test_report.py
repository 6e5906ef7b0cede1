"""The page and the JSON of a whole run, from made-up numbers: growth, a failed link, a crash."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mlgokit.errors import InputError, StorageError
from mlgokit.evaluation.page import compile_time_ratio
from mlgokit.evaluation.records import Change, Evaluation
from mlgokit.evaluation.run import (
    RunReport,
    headline,
    list_failures,
    program_sentence,
    run_page,
    write_report,
)
from mlgokit.pages.html import render_html, typeset
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import Bars, Curves, Table

VALUE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "golden" / "results.json").read_text())
REPORT = RunReport.from_json(VALUE)
PROGRAM = REPORT.program


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(run_page(REPORT))


class Outline(HTMLParser):
    """Text and structure of a page, without what is inside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.parts: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.parts.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"[ \n]+", " ", " ".join(self.parts))


def with_summary(**image: float) -> Evaluation:
    change = dataclasses.replace(Change(mean=-0.02, low=-0.03, high=-0.01, projects=6), **image)
    return dataclasses.replace(REPORT.evaluation, summary={"c++": {"image": change}})


def test_json_holds_the_whole_report():
    value = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))

    assert value["format_version"] == 1
    assert {**value, "about": VALUE["about"]} == VALUE
    assert RunReport.from_json(value).evaluation == REPORT.evaluation


def test_a_number_that_is_not_finite_is_null_in_json():
    assert VALUE["rounds"][0]["correlation"] is None
    assert REPORT.rounds[0].correlation != REPORT.rounds[0].correlation


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "results: expected a JSON object with format 'mlgokit run' and format_version 1, found None and None"),
        (
            {**VALUE, "format_version": 2},
            "and format_version 1, found 'mlgokit run' and 2; make the results again",
        ),
        ({key: VALUE[key] for key in VALUE if key != "seed"}, "results: expected the key 'seed', found none"),
        ({**VALUE, "seed": "one"}, "results.seed: expected int, found 'one'"),
        ({**VALUE, "seed": True}, "results.seed: expected int, found True"),
        ({**VALUE, "corpus": {"modules": 1.5}}, "results.corpus.modules: expected int, found 1.5"),
        ({**VALUE, "stages": [{**VALUE["stages"][0], "seconds": "long"}]}, "results.stages[0].seconds: expected float"),
        ({**VALUE, "evaluation": None}, "results.evaluation: expected an object, found None"),
    ],
)
def test_json_of_something_else_is_refused(value: object, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        RunReport.from_json(value)


def test_the_headline_gives_the_linked_image_with_its_interval():
    assert headline(REPORT.evaluation) == (
        "Linked image of the held-out C++ projects: 2.00 % smaller than plain -Oz (95 % interval -3.26 % to +0.12 %, "
        "which includes no change), 5 of 6 projects smaller; 1 could not be linked."
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "2.00 % smaller than plain -Oz (95 % interval -3.00 % to -1.00 %), 5 of 6"),
        ({"mean": 0.015, "low": 0.01, "high": 0.02}, "1.50 % larger than plain -Oz (95 % interval +1.00 % to +2.00 %)"),
        ({"mean": 0.0, "low": 0.0, "high": 0.0}, "the same size as plain -Oz"),
        ({"projects": 1}, "(a single project, so without an interval)"),
    ],
)
def test_the_headline_says_growth_and_doubt(change: dict[str, float], words: str):
    assert words in headline(with_summary(**change))


def test_without_a_linked_project_there_is_no_result():
    empty = dataclasses.replace(REPORT.evaluation, summary={})

    assert headline(empty) == "No held-out C++ project could be built and linked, so there is no result for C++."


def test_the_program_sentence_says_whether_behaviour_is_the_same():
    assert PROGRAM is not None
    sizes = "jsontestrunner: linked image 170,496 -> 165,056 bytes (-3.19 %); "
    different = dataclasses.replace(PROGRAM, same_behaviour=False, runs=1, differences=("--parse a.json",))

    assert program_sentence(PROGRAM) == sizes + "the same behaviour in 24 runs."
    assert program_sentence(different) == sizes + "NOT the same behaviour in 1 run."
    assert program_sentence(dataclasses.replace(PROGRAM, runs=0)) == sizes + "it was not run."


@pytest.mark.parametrize(
    ("bytes_with_shipped", "same", "begins"),
    [
        (160_000, True, "Use the policies that come with mlgokit: add -fpass-plugin=builtin.plugin to the options of"),
        (160_000, False, "Use this run's policy rather than those that come with mlgokit: add -fpass-plugin="),
        (170_000, True, "Use this run's policy rather than those that come with mlgokit: add -fpass-plugin="),
    ],
)
def test_the_better_plugin_is_recommended(bytes_with_shipped: int, same: bool, begins: str):
    assert PROGRAM is not None
    after = dataclasses.replace(PROGRAM.after, image=bytes_with_shipped)
    shipped = dataclasses.replace(PROGRAM, after=after, same_behaviour=same)
    (advice,) = run_page(dataclasses.replace(REPORT, shipped=shipped, shipped_plugin="builtin.plugin")).advice

    assert advice.startswith(begins)
    assert f"{bytes_with_shipped:,} bytes with them, and 165,056 with this run's policy" in advice


def test_compile_time_is_compared_over_all_projects():
    assert compile_time_ratio(REPORT.evaluation) == pytest.approx(1.03)


def test_every_failure_is_listed_with_its_reason():
    assert PROGRAM is not None
    different = dataclasses.replace(PROGRAM, same_behaviour=False, differences=("--parse a.json",))

    assert list_failures(dataclasses.replace(REPORT, program=different)) == [
        (
            "jsoncpp<b>/json_tool.cpp",
            "compile after, policy",
            "crashed: <script>alert('1 & 2')</script> in pass <inline>",
        ),
        ("snappy", "link, policy", "after: failed: ld.lld: error: undefined symbol: snappy::<lambda>"),
        ("round 2", "training", "2 of 892 compilations failed"),
        ("jsontestrunner", "run", "different behaviour with the arguments: --parse a.json"),
    ]


def test_the_page_shows_sizes_growth_and_failures(page: str):
    text = Outline(page).text

    for words in (
        typeset(headline(REPORT.evaluation)),
        "170,496 → 165,056 bytes",
        "yaml-cpp C++ ",
        "not linked not linked",
        "crashed: <script>alert('1 & 2')</script> in pass <inline>",
        "add -fpass-plugin='run/my policy.so' to",
        "1.030 times the processor time",
        "Debian clang version 19.1.7",
        "fetch 12.4 0 yes",
        "Intervals from fewer than 8 projects are too narrow.",
        "Flip One inlining decision inverted for exploration.",
    ):
        assert words in text, words


def test_markdown_shows_gain_growth_and_behaviour():
    text = render_markdown(run_page(REPORT))

    assert "| linked image | " in text.lower()
    assert "crashed: &lt;script>" in text
    assert "the same behaviour in 24 runs." in text
    assert "Debian clang version 19.1.7" in text


def test_parts_hold_the_numbers_of_the_run():
    parts = {part.title: part for part in run_page(REPORT).parts}
    training, time, stages = parts["Training"], parts["Where the time went"], parts["Stages"]
    predicted, sections = parts["How well effects are predicted"], parts["Sections of the linked images"]
    assert isinstance(training, Table)
    assert isinstance(time, Bars)
    assert isinstance(stages, Table)
    assert isinstance(predicted, Curves)
    assert isinstance(sections, Table)

    assert training.texts()[0][:6] == ("1", "892", "170.5", "9,120", "4,210", "unknown")
    assert [len(curve.points) for curve in predicted.curves] == [len(REPORT.rounds) - 1]
    assert time.bars[0].name == "fetch (reused)"
    assert sum(bar.end for bar in time.bars) == pytest.approx(sum(stage.seconds for stage in REPORT.stages))
    assert stages.texts()[-1][0] == "all"
    assert "snappy" not in {row[0] for row in sections.texts()}
    for row in sections.texts():
        text, _, rodata, _, eh_frame, _, image, _ = (int(cell.replace(",", "")) for cell in row[1:])
        assert text + rodata + eh_frame == image, row[0]


def test_text_from_outside_is_escaped(page: str):
    assert "<script>alert" not in page
    assert "jsoncpp<b>" not in page
    assert page.count("<script") == page.count("</script>")
    assert {attributes.get("type") for attributes in Outline(page).attributes("script")} == {None, "application/json"}


def test_the_page_asks_for_nothing(page: str):
    outline = Outline(page)
    links = [attributes.get("href") or "" for _, attributes in outline.tags if "href" in attributes]
    policy = next(entry for entry in outline.attributes("meta") if entry.get("http-equiv") == "Content-Security-Policy")

    assert not [attributes for _, attributes in outline.tags if "src" in attributes]
    assert all(link == "data:," or link.startswith("#") for link in links)
    assert (policy["content"] or "").startswith("default-src 'none';")


def test_the_page_can_be_read_aloud(page: str):
    outline = Outline(page)
    names = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    links = [(attributes["href"] or "")[1:] for attributes in outline.attributes("a")]

    assert outline.attributes("html")[0] == {"lang": "en"}
    assert len(names) == len(set(names))
    assert set(links) <= set(names)
    assert all("scope" in attributes for attributes in outline.attributes("th"))
    assert len(outline.attributes("caption")) == len(outline.attributes("table"))
    assert all(attributes.get("aria-label") for _, attributes in outline.tags if attributes.get("role"))


def test_a_run_without_anything_still_gives_a_page():
    bare = dataclasses.replace(
        REPORT,
        stages=(),
        rounds=(),
        program=None,
        shipped=None,
        evaluation=Evaluation(policy="none", projects=(), summary={}, compilations=0),
    )
    page = run_page(bare)
    text = Outline(render_html(page)).text

    assert [part.title for part in page.parts] == ["Glossary"]
    for words in (
        "there is no result for C++",
        "No project was evaluated.",
        "This run did not train in rounds.",
    ):
        assert words in text, words


def test_different_behaviour_stands_out():
    assert PROGRAM is not None
    different = dataclasses.replace(PROGRAM, same_behaviour=False, differences=("--parse <a>.json",))
    page = run_page(dataclasses.replace(REPORT, program=different))

    assert (page.answer, page.good) == ("Not the same behaviour", False)
    assert page.advice == ("Do not use it: jsontestrunner does not behave the same with it, as the failures say.",)
    assert "different behaviour with the arguments: --parse &lt;a&gt;.json" in render_html(page)


def test_all_files_are_written(tmp_path: Path):
    written = write_report(REPORT, tmp_path / "run")

    assert written == tmp_path / "run" / "report.html"
    assert sorted(path.name for path in written.parent.iterdir()) == ["report.html", "results.json", "results.md"]
    assert RunReport.from_json(json.loads((tmp_path / "run" / "results.json").read_text())).seed == REPORT.seed
    assert written.read_text().startswith("<!DOCTYPE html>")


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match=r"expected to be able to write there"):
        write_report(REPORT, tmp_path / "file" / "run")

"""The terminal's tables, from made-up numbers: one project grew, one did not link, one module crashed."""

import dataclasses
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from mlgokit.evaluation.page import evaluation_page
from mlgokit.evaluation.records import Evaluation
from mlgokit.evaluation.run import RunReport, run_page
from mlgokit.pages.terminal import print_page

REPORT = RunReport.from_json(json.loads((Path(__file__).parent.parent / "golden" / "results.json").read_text()))


def shown_run(report: RunReport, *, width: int = 80) -> str:
    out = io.StringIO()
    print_page(run_page(report), Console(file=out, width=width))
    return out.getvalue()


def lines_with(text: str, words: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if words in line]


def test_sizes_stand_before_over_after_with_the_change():
    lines = shown_run(REPORT).splitlines()
    row = next(index for index, line in enumerate(lines) if line.strip().startswith("rapidjson-tests"))

    assert lines[row].split() == ["rapidjson-tests", "90,760", "240,128", "68,352"]
    assert " ".join(lines[row + 1].split()) == "C++, 11 modules 92,328 +1.73 % 243,712 +1.49 % 70,016 +2.43 %"


def test_nothing_is_cut_off_in_80_columns():
    text = shown_run(REPORT)

    assert "…" not in text
    for table_line in (line for line in text.splitlines() if "─" in line):
        assert len(table_line) <= 80
    for project in REPORT.evaluation.projects:
        assert lines_with(text, project.project), project.project


def test_every_project_says_its_language_and_the_worst_is_first():
    text = shown_run(REPORT)
    names = re.findall(r"\n (\S+) .*\n   (C\+\+|C), \d+ modules? ", text)

    assert names[:3] == [("snappy", "C++"), ("rapidjson-tests", "C++"), ("zstd", "C")]
    assert len(names) == len(REPORT.evaluation.projects)


def test_the_summary_has_every_measure_with_its_interval():
    text = shown_run(REPORT)

    for measure in ("Objects, link-aware", "Objects", "Linked .text", "Linked image"):
        assert lines_with(text, f"C++       {measure}"), measure
    assert "-2.00 %  -3.26 % to +0.12 %         6" in text
    assert "Intervals from fewer than 8 projects are too narrow." in text


def test_failures_are_told_with_their_reasons():
    text = shown_run(REPORT)

    assert "snappy: link, policy: after: failed: ld.lld: error: undefined symbol: snappy::<lambda>\n" in text
    assert "jsoncpp<b>/json_tool.cpp: compile after, policy: crashed: <script>alert('1 & 2')</script>" in text


def test_time_and_compilations_are_shown_by_stage_and_in_all():
    text = shown_run(REPORT)

    assert lines_with(text, "train, 4 rounds") == [["train,", "4", "rounds", "372.1", "3,568", "no"]]
    assert lines_with(text, " fetch ") == [["fetch", "12.4", "0", "yes"]]
    assert lines_with(text, " all ") == [["all", "592.0", "4,762"]]


def test_it_ends_with_the_result_in_sentences():
    shipped, program, *_, result, use = shown_run(REPORT).splitlines()[-6:]

    assert result.startswith("Linked image of the held-out C++ projects: 2.00 % smaller than plain -Oz")
    assert shipped.startswith("With the policies that come with mlgokit, before any training, jsontestrunner: linked")
    assert program.startswith("jsontestrunner: linked image 170,496 -> 165,056 bytes (-3.19 %)")
    assert program.endswith("the same behaviour in 24 runs.")
    assert use == f"Use it: add -fpass-plugin={shlex.quote(REPORT.plugin)} to the options of clang."


def test_different_behaviour_is_told():
    assert REPORT.program is not None
    program = dataclasses.replace(REPORT.program, same_behaviour=False, differences=("--parse [bold]a[/bold].json",))
    text = shown_run(dataclasses.replace(REPORT, program=program))

    assert "NOT the same behaviour in 24 runs.\n" in text
    assert "  jsontestrunner: run: different behaviour with the arguments: --parse [bold]a[/bold].json\n" in text
    assert "\nNot the same behaviour: Linked image of the held-out C++ projects: " in text


@pytest.mark.parametrize("name", ["[red]", "[/]", "a[b]c"])
def test_names_are_not_markup(name: str):
    projects = (dataclasses.replace(REPORT.evaluation.projects[0], project=name, link_failure="after: [x]"),)
    out = io.StringIO()
    print_page(
        evaluation_page(Evaluation(policy="p", projects=projects, summary={}, compilations=2)),
        Console(file=out, width=80),
    )

    assert f"{name}: link: after: [x]" in out.getvalue()
    assert lines_with(out.getvalue(), name)[0][0] == name


def test_nothing_evaluated_shows_no_empty_table():
    out = io.StringIO()
    print_page(
        evaluation_page(Evaluation(policy="p", projects=(), summary={}, compilations=0)), Console(file=out, width=80)
    )

    assert "─" not in out.getvalue()
    assert out.getvalue().endswith("\nNo project could be compared by Linked image.\n")

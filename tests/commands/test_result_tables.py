"""The terminal's tables, from made-up numbers: one project grew, one did not link, one module crashed."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mlgokit.commands import evaluate
from mlgokit.commands.quickstart import print_run
from mlgokit.evaluation.records import Evaluation
from mlgokit.evaluation.run import RunReport

REPORT = RunReport.from_json(json.loads((Path(__file__).parent.parent / "golden" / "results.json").read_text()))


def shown_run(report: RunReport, *, width: int = 80) -> str:
    out = io.StringIO()
    print_run(report, Console(file=out, width=width))
    return out.getvalue()


def lines_with(text: str, words: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if words in line]


def test_sizes_stand_before_over_after_with_the_change():
    lines = shown_run(REPORT).splitlines()
    row = next(index for index, line in enumerate(lines) if line.strip().startswith("rapidjson-tests"))

    assert lines[row].split() == ["rapidjson-tests", "240,128", "68,352", "90,760"]
    assert " ".join(lines[row + 1].split()) == "11 modules 243,712 +1.49 % 70,016 +2.43 % 92,328 +1.73 %"


def test_nothing_is_cut_off_in_80_columns():
    text = shown_run(REPORT)

    assert "…" not in text
    for table_line in (line for line in text.splitlines() if "─" in line):
        assert len(table_line) <= 80
    for project in REPORT.evaluation.projects:
        assert lines_with(text, project.project), project.project


def test_c_and_cxx_stand_apart():
    text = shown_run(REPORT)

    assert text.index("C++ projects:") < text.index("leveldb") < text.index("\nC projects:")
    assert text.index("\nC projects:") < text.index("zlib")


def test_the_summary_has_every_measure_with_its_interval():
    text = shown_run(REPORT)

    for measure in ("Objects, link-aware", "Objects", "Linked .text", "Linked image"):
        assert lines_with(text, f"C++       {measure}"), measure
    assert "-2.00 %  -3.26 % to +0.12 %         6" in text
    assert "Intervals from fewer than 8 projects are too narrow." in text


def test_failures_are_told_with_their_reasons():
    text = shown_run(REPORT)

    assert "snappy: not linked: after: failed: ld.lld: error: undefined symbol: snappy::<lambda>\n" in text
    assert "jsoncpp<b>/json_tool.cpp: left out, after: crashed: <script>alert('1 & 2')</script>" in text


def test_time_and_compilations_are_shown_by_stage_and_in_all():
    text = shown_run(REPORT)

    assert lines_with(text, "train, 4 rounds") == [["train,", "4", "rounds", "372.1", "3,568"]]
    assert lines_with(text, "fetch (reused)") == [["fetch", "(reused)", "12.4", "0"]]
    assert lines_with(text, "total") == [["total", "592.0", "4,762"]]


def test_it_ends_with_the_result_in_sentences():
    result, shipped, program, control = shown_run(REPORT).splitlines()[-4:]

    assert result.startswith("Linked image of the held-out C++ projects: 2.00 % smaller than plain -Oz")
    assert shipped.startswith("builtin:Oz, ")
    assert program.startswith("this policy, ")
    assert program.endswith("the same behaviour in 24 runs.")
    assert control.startswith("The heuristic echoed through the plugin")


def test_different_behaviour_is_told():
    assert REPORT.program is not None
    program = dataclasses.replace(REPORT.program, same_behaviour=False, differences=("--parse [bold]a[/bold].json",))
    text = shown_run(dataclasses.replace(REPORT, program=program))

    assert "NOT the same behaviour in 24 runs.\n  other behaviour of: --parse [bold]a[/bold].json\n" in text


@pytest.mark.parametrize("name", ["[red]", "[/]", "a[b]c"])
def test_names_are_not_markup(name: str):
    projects = (dataclasses.replace(REPORT.evaluation.projects[0], project=name, link_failure="after: [x]"),)
    out = io.StringIO()
    evaluate.render(Evaluation(policy="p", projects=projects, summary={}, compilations=2), Console(file=out, width=80))

    assert f"{name}: not linked: after: [x]" in out.getvalue()
    assert lines_with(out.getvalue(), name)[0][0] == name


def test_nothing_evaluated_shows_no_empty_table():
    out = io.StringIO()
    evaluate.render(Evaluation(policy="p", projects=(), summary={}, compilations=0), Console(file=out, width=80))

    assert not out.getvalue()

"""The report of a training: from what ``metrics.json`` has to a page."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from mlgokit.commands import report
from mlgokit.errors import InputError, UsageError
from mlgokit.learning.page import training_page
from mlgokit.learning.record import FORMAT, FORMAT_VERSION, TrainingRecord
from mlgokit.learning.run_folder import rounds_of
from mlgokit.learning.validation import ValidatedModule, read_validated, write_validated
from mlgokit.manifest import finite_json
from mlgokit.pages.html import render_html
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import Bars, Curves, Page, Scatter, Table

HOSTILE = "</script><b>|"
ROW = {"compilations": 9, "user_seconds": 2.0, "seconds": 3.0, "failed": 1, "failed/boom": 1, "learner/loss": 0.5}
ROWS = [
    ROW | {"turn": 1, "reward": -0.1, "validation_gain": math.nan, "learner/gate/set/departures": 5},
    ROW | {"turn": 2, "compilations": 20, "reward": 0.02, "validation_gain": 0.05, "learner/loss": 0.25},
]


def metrics(**changes: Any) -> dict[str, Any]:
    value = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "policy": "train/final.policy",
        "counters": {
            "turn": 2,
            "compilations": 20,
            "failed": 2,
            "user_seconds": 120.0,
            "seconds": 60.0,
            "best_turn": 2,
            "best_gain": 0.05,
        },
        "taught": 7,
        "judged": 3,
        "left_out": {"nothing to decide": 4},
        "rounds": rounds_of(ROWS),
        "judged_modules": [
            {"module": "a/x.o", "project": "a", "before": 100.0, "after": 120.0},
            {"module": "b/y.o", "project": "b", "before": 300.0, "after": 200.0},
            {"module": HOSTILE, "project": "b", "before": 50.0, "after": 50.0},
        ],
        "algorithm": "ppo",
        "problem": "inline-size",
        "settings": {"seed": "1"},
        "command": "mlgokit train",
    }
    return json.loads(json.dumps(finite_json(value | changes)))


def part(page: Page, title: str, kind: type) -> Any:
    return next(one for one in page.parts if one.title == title and isinstance(one, kind))


def test_turns_are_curves_and_modules_stand_worst_first() -> None:
    page = training_page(TrainingRecord.from_json(metrics()))

    assert page.headline == "In validation, -5.00 % against LLVM's heuristic at turn 2 of 2."
    gains: Curves = part(page, "Change of the score by turn", Curves)
    assert [(one.name, one.points) for one in gains.curves] == [
        ("in validation", ((2, -5.0),)),
        ("while exploring, mean of the turn", ((1, 10.0), (2, -2.0))),
    ]
    assert part(page, "Loss", Curves).curves[0].points == ((1, 0.5), (2, 0.25))
    bars: Bars = part(page, "What each project adds", Bars)
    assert [(one.name, one.end - one.start) for one in bars.bars] == [("b", -100), ("a", 20), ("all", -80)]
    table: Table = part(page, "Validation modules, worst first", Table)
    assert [row[0] for row in table.texts()] == ["a/x.o", HOSTILE, "b/y.o"]
    assert part(page, "Change by score of the module", Scatter).after == (120, 50, 200)
    assert part(page, "The gate", Table).texts() == (("1", "set", "5", "-0", "0", "-0", "0", "closed"),)
    assert part(page, "Modules left out, and failed compilations", Table).texts() == (
        ("nothing to decide", "module, left out", "4"),
        ("boom", "compilation, failed", "2"),
    )
    assert "<b>" not in render_html(page)
    assert "| 2 | 11 | 1 | 0.0 | 0.0 | -5.00 % | -2.00 % | 0.25 |" in render_markdown(page)


def test_a_training_without_validation_has_a_page() -> None:
    found = metrics(rounds=rounds_of(ROWS[:1]), judged_modules=[], counters={})
    page = training_page(TrainingRecord.from_json(found))

    assert page.headline == "1 turns without validation."
    assert "seed" in render_html(page)


def test_a_report_is_made_of_the_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(metrics()))
    assert report.run(report.MakeReport(result=path))["html"] == str(tmp_path / "metrics.html")
    assert "PPO" not in (tmp_path / "metrics.md").read_text()
    assert (tmp_path / "metrics.md").read_text().startswith("# train/final.policy: ppo on inline-size\n")

    with pytest.raises(InputError, match=r"final.policy"):
        report.run(report.MakeReport(result=path, traces=tmp_path))
    path.write_text(json.dumps({"format": "mlgokit tuning", "format_version": 1}))
    with pytest.raises(UsageError, match=r"^--traces: expected an evaluation of a policy file, found "):
        report.run(report.MakeReport(result=path, traces=tmp_path))
    with pytest.raises(InputError, match=r"^tuning: expected the key 'compilations', found none"):
        report.run(report.MakeReport(result=path))
    path.write_text(json.dumps(metrics(format_version=9)))
    with pytest.raises(InputError, match=r"^training: expected a JSON object with format 'mlgokit training'"):
        report.run(report.MakeReport(result=path))


def test_what_judges_said_is_kept_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    rows = (ValidatedModule(module="m", project="p", before=2.0, after=1.5),)
    assert read_validated(tmp_path) == ()
    write_validated(tmp_path, rows)
    assert read_validated(tmp_path) == rows
    (tmp_path / "judged.json").write_text('[{"module": 1}]')
    assert read_validated(tmp_path) == ()

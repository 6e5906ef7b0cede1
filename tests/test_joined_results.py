"""Results of several calls of one benchmark become one."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.errors import InputError, UsageError

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, imported as running its file does."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("joined")


def written(folder: Path, name: str, rows: list[list[Any]], **other: Any) -> Path:
    """A result with one table of changes and one of tests."""
    result = {
        "benchmark": "tuning",
        "question": "How much?",
        "answer": "Much.",
        "bar": "",
        "passed": None,
        "inputs": {},
        "command": f"python benchmarks/tuning.py --json {name}",
        "written": "2026-11-26",
        "versions": {"processor": "one"},
        "seed": 1,
        "tables": [
            {"title": "Projects", "columns": ["project", "language", "image", "text"], "rows": rows, "note": "A note."},
            {"title": "Tests", "columns": ["project", "pass"], "rows": [[row[0], 3] for row in rows], "note": ""},
        ],
    }
    path = folder / name
    path.write_text(json.dumps(result | other))
    return path


def run(joining: ModuleType, folder: Path, paths: list[Path], *more: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what was written if anything was."""
    output = folder / "joined.json"
    words = ["--results", *map(str, paths), "--table", "Projects", "--columns", "image", "text", "--json", str(output)]
    code = joining.main([*words, *more])
    return code, json.loads(output.read_bytes()) if output.exists() else {}


def test_rows_of_all_parts_are_there_with_means_by_group(joining: ModuleType, tmp_path: Path):
    first = written(tmp_path, "one.json", [["a", "c++", "-10.00 %", "-5.00 %"], ["b", "c", "-2.00 %", "+1.00 %"]])
    second = written(tmp_path, "two.json", [["d", "c++", "-60.00 %", "-5.00 %"], ["e", "c++", None, None]])

    code, result = run(
        joining, tmp_path, [first, second], "--group", "language", "--bars", "-1", "-39", "--also", "Tests"
    )

    assert code == 0
    means, projects, tests, parts = result["tables"]
    assert [row[:5] for row in means["rows"]] == [
        ["c", 1, "-2.00 %", "too few for an interval", "+1.00 %"],
        ["c++", 2, "-40.00 %", "too few for an interval", "-5.00 %"],
    ]
    assert [row[0] for row in projects["rows"]] == ["a", "b", "d"]
    assert projects["note"] == "A note."
    assert [row[0] for row in tests["rows"]] == ["a", "b", "d", "e"]
    assert [row[0] for row in parts["rows"]] == ["one.json", "two.json"]
    assert "-40.00 % on 2 c++ rows" in result["answer"]
    assert set(result["inputs"]) == {"one.json", "two.json"}


def test_a_later_row_of_the_same_name_counts_if_asked_for(joining: ModuleType, tmp_path: Path):
    """As of a search that went on: the last result that has a row is the newest."""
    first = written(tmp_path, "one.json", [["a", "c", "-1.00 %", "-1.00 %"], ["b", "c", "-2.00 %", "-2.00 %"]])
    later = written(tmp_path, "two.json", [["a", "c", "-4.00 %", "-3.00 %"]])

    code, result = run(joining, tmp_path, [first, later], "--last-counts", "--also", "Tests")

    assert code == 0
    _, projects, tests, parts = result["tables"]
    assert [row[:3] for row in projects["rows"]] == [["a", "c", "-4.00 %"], ["b", "c", "-2.00 %"]]
    assert [row[0] for row in tests["rows"]] == ["a", "b"]
    assert len(parts["rows"]) == 2


@pytest.mark.parametrize(("image", "bar"), [("+0.10 %", "5"), ("-3.90 %", "-4")])
def test_a_larger_row_or_a_mean_above_its_bar_misses(joining: ModuleType, tmp_path: Path, image: str, bar: str):
    path = written(tmp_path, "one.json", [["a", "c", image, "+0.00 %"]])

    code, result = run(joining, tmp_path, [path], "--bars", bar)

    assert (code, result["passed"]) == (1, False)


@pytest.mark.parametrize(
    ("rows", "other", "more", "says"),
    [
        ([["a", "c", "-1.00 %", None]], {}, [], "Projects: expected each row once, found a twice; leave a result out"),
        ([["b", "c", "-1.00 %", None]], {"benchmark": "other"}, [], "those of one benchmark, found other, tuning"),
        ([["b", "c", "-1.00 %", "-1.00 %"]], {}, ["--bars", "-1", "-2"], "bars: expected one for each of all, found 2"),
        ([["b", "c", "-1.00 %", "-1.00 %"]], {}, ["--group", "kind"], "Projects: expected columns kind, found none"),
        ([["b", "c", "-1.00 %", "-1.00 %"]], {}, ["--also", "Times"], "a table 'Times', found Projects, Tests"),
        ([["b", "c", "small", "-1.00 %"]], {}, [], "'small': expected a change such as -4.14 %"),
        ([], {"tables": None}, [], "expected a result that a benchmark wrote"),
    ],
)  # fmt: skip
def test_parts_that_do_not_belong_together_are_refused(
    joining: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: Any, other: Any, more: Any, says: str
):
    parts = [written(tmp_path, "one.json", [["a", "c", "-1.00 %", "-1.00 %"]])]
    parts += [written(tmp_path, "two.json", rows, **other)]

    code, result = run(joining, tmp_path, parts, *more)

    assert code == (InputError.exit_code if "small" in says or "wrote" in says else UsageError.exit_code)
    assert result == {}
    assert says in capsys.readouterr().err


def test_a_table_without_a_change_is_refused(joining: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, result = run(joining, tmp_path, [written(tmp_path, "one.json", [["a", "c", None, None]])], "--bars")

    assert (code, result) == (UsageError.exit_code, {})
    assert "Projects: expected rows with 'image', found none" in capsys.readouterr().err


def test_columns_have_to_agree(joining: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, second = (written(tmp_path, f"{name}.json", [[name, "c", "-1.00 %", "-1.00 %"]]) for name in ("a", "b"))
    values = json.loads(second.read_bytes())
    values["tables"][0]["columns"][3] = "code"
    second.write_text(json.dumps(values))

    code, _ = run(joining, tmp_path, [first, second])

    assert code == UsageError.exit_code
    assert "others; leave it out" in capsys.readouterr().err

"""The benchmark of the majors: what its rows say together, and what misses the bar."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def majors(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, imported as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("majors")


def row(*, tuned: int = 80, same: bool = True, wrong: tuple[str, ...] = ()) -> dict[str, Any]:
    built = {"app": {"plain": 100, "shipped": 90, "tuned": tuned}}
    found = {"inline-size modules": 2, "inline-size decisions": 1500}
    return {
        "projects": {"lzip": {"built": built, "same_output": same}},
        "agreement": {"modules": 3, "found": found, "wrong": []},
        "random": {"found": {"same": 5, "changed": 4}, "wrong": list(wrong)},
    }


def test_each_major_has_a_column_and_its_sums(majors: ModuleType):
    result = majors.result_of({19: row(), 23: row(tuned=85)}, config=majors.Majors(projects=("lzip",)))

    assert result.passed
    assert result.answer == (
        "19: builtin:Oz -10.00 %, tuned -20.00 %; 23: builtin:Oz -10.00 %, tuned -15.00 %; "
        "3,000 decisions compared and 10 random programs run: 0 differences"
    )
    shipped, tuned, decisions, programs = result.tables
    assert shipped.rows == (("lzip", "-10.00 %", "-10.00 %"),)
    assert tuned.rows == (("lzip", "-20.00 %", "-15.00 %"),)
    assert decisions.rows[0] == (19, 3, "inline-size", 2, 1500, 0)
    assert programs.rows[1] == (23, 5, 4, 0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (row(tuned=95), "lzip: app is larger"),
        (row(same=False), "lzip: another output"),
        (row(wrong=("seed 7: another output",)), "seed 7: another output"),
        (row() | {"projects": {"lzip": {"failure": "no cmake"}}}, "lzip: no cmake"),
    ],
)
def test_what_misses_the_bar_is_named(majors: ModuleType, changed: dict[str, Any], reason: str):
    result = majors.result_of({19: row(), 22: changed}, config=majors.Majors(projects=("lzip",)))

    assert not result.passed
    assert result.tables[-1].rows == ((f"LLVM 22: {reason}",),)

"""The benchmark of tuning: its list of projects, and the tables that it makes of what searches left."""

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import ToolError

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
DEVELOPED_ON = {"re2", "yaml-cpp", "lua"}
TRAINED_ON = {
    "abseil", "agg", "box2d", "brotli", "clasp", "highs", "kenlm", "marisa", "opencc", "protobuf-lite", "z3", "zlib",
}  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_there_are_enough_projects_and_none_was_learned_from(benchmark: Callable[[str], ModuleType]):
    module = benchmark("tuning_projects")
    known, projects = module.PROJECTS, module.ALL_PROJECTS
    assert sum(one.language == "c++" for one in known.values()) >= 8
    assert sum(one.language == "c" for one in known.values()) >= 4
    assert not projects.keys() & (DEVELOPED_ON | TRAINED_ON)
    assert {one.system for one in projects.values()} >= {"CMake, Ninja", "CMake, Make", "Meson", "autotools"}
    for one in projects.values():
        re.compile(one.include)
        assert one.tests
        assert one.shown
        assert re.fullmatch("[0-9a-f]{64}", one.archive.sha256)
        assert re.compile(one.counted).groups == (1 if one.counted else 0)


def test_projects_that_nobody_saw_are_in_no_other_list(benchmark: Callable[[str], ModuleType]):
    module = benchmark("tuning_projects")
    lists = [load_projects(path) for path in (None, *BENCHMARKS.glob("*projects*.toml"))]
    archives = {one.archive.package for projects in lists for one in projects}

    assert len(lists) > 3
    assert not {one.archive.package for one in module.UNSEEN_PROJECTS} & archives
    assert not {one.name for one in module.UNSEEN_PROJECTS} & module.PROJECTS.keys()


def link(image: int) -> dict[str, Any]:
    return {"status": "the linker wrote an image", "image": image, "text": image // 2}


def finished(
    module: ModuleType, project: Any, arm: str, minutes: float, size: int, after: dict[str, Any] | None = None
) -> Any:
    """A search that made 1000 bytes into ``size`` of them; the project's own image, twice as large, likewise."""
    image = {"image": 2000, "text": 1000}
    tuned = {
        "plain_bytes": 1000.0, "tuned_bytes": float(size), "plain_link": link(1000), "tuned_link": link(size),
        "user_seconds": 60 * minutes, "compilations": 10,
        "modules": [{"plain_bytes": 600.0, "tuned_bytes": size - 400.0, "plain": False},
                    {"plain_bytes": 400.0, "tuned_bytes": 400.0, "plain": True}],
    }  # fmt: skip
    objects = {"plain_bytes": 1000.0, "tuned_bytes": float(size), "larger": []}
    good = {"image": {"image": 2 * size, "text": size}, "tests": 7, "seconds": 1.0, "objects": objects}
    value = {"tuned": tuned, "before": {"image": image, "tests": 7}, "after": after or good}
    return module.Finished(project=project, arm=arm, minutes=minutes, value=value)


def test_the_tables_say_what_is_there_and_what_is_not(benchmark: Callable[[str], ModuleType]):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    some = [projects[name] for name in ("jsoncpp", "ninja", "sqlite")]
    sizes = {"jsoncpp": 900, "ninja": 810, "sqlite": 980}
    found = [finished(module, one, "mlgokit tune", 5.0, sizes[one.name]) for one in some]
    last = finished(module, some[0], "mlgokit tune", 60.0, 850)
    last.value["all_seconds"] = 4800.0
    last.value["tuned"]["allocated"] = {"before_bytes": 875.0, "after_bytes": 850.0}
    last.value["tuned"]["passes"] = {"before_bytes": 900.0, "after_bytes": 882.0}
    last.value["folded"] = {"before": {"image": 1600, "text": 800}, "after": {"image": 1520, "text": 780}}
    found += [last, finished(module, some[0], "inlining alone", 5.0, 990)]
    wanted = [
        (arm, one, minutes) for arm in ("mlgokit tune", "inlining alone") for one in some for minutes in (5.0, 60.0)
    ]

    result = module.summarise(found, wanted=wanted, failed={"ninja": "no\nnetwork"}, enough=0.98, seed=1)

    means, rows, tests, missing = result.tables
    # The geometric mean of 0.9 and 0.81.
    assert means.rows[0][:7] == ("mlgokit tune", "c++", "5", 2, 0, "-14.62 %", "-14.62 %")
    assert means.rows[0][9] == "-14.62 %"
    assert [row[:4] for row in means.rows[1:]] == [
        ("mlgokit tune", "c++", "60", 1), ("mlgokit tune", "c", "5", 1), ("inlining alone", "c++", "5", 1),
    ]  # fmt: skip
    assert means.rows[1][4] == 1
    assert means.rows[-1][9] == "-1.00 %"
    jsoncpp = rows.rows[0]
    assert (jsoncpp[7], rows.rows[1][7]) == ("80.0", None)
    assert rows.rows[1][11] is None
    assert jsoncpp[:6] == ("mlgokit tune", "jsoncpp", "c++", "Meson", 2, 1)
    assert jsoncpp[9:13] == ("-10.00 %", "-15.00 %", "-2.86 %", "-15.00 %")
    assert jsoncpp[-2:] == ("-25.00 %", "+0.00 %")
    assert jsoncpp[-5:-2] == (None, "-2.00 %", "-5.00 %")
    assert means.rows[1][-2:] == ("-5.00 %", "-2.50 %")
    assert means.rows[0][-2:] == (None, None)
    assert tests.rows[0][2:] == ("7 pass", "3 of 3 builds pass, 7 tests", "3 of 3", 0)
    assert ("ninja", "mlgokit tune", "60", "no") in missing.rows
    assert ("sqlite", "inlining alone", "5, 60", "not made yet") in missing.rows
    assert (result.passed, result.bar) == (None, "")
    # The geometric mean of 0.85 and 0.81.
    assert "mlgokit tune, within 60 core-minutes, 2 of them at 5: -17.02 % on 2 C++ projects" in result.answer
    assert "7 of 12 points are missing" in result.answer


@pytest.mark.parametrize(("size", "passed"), [(870, True), (900, False)])
def test_the_bar_is_about_all_projects_at_fifteen_minutes(
    benchmark: Callable[[str], ModuleType], size: int, passed: bool
):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    wanted = [("mlgokit tune", projects[name], 15.0) for name in ("jsoncpp", "sqlite")]
    found = [finished(module, project, "mlgokit tune", 15.0, size) for _, project, _ in wanted]
    assert module.summarise(found, wanted=wanted, failed={}, enough=0.98, seed=1).passed is passed


def test_a_tuned_build_whose_tests_fail_misses_the_bar(benchmark: Callable[[str], ModuleType]):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    wanted = [("mlgokit tune", projects[name], 60.0) for name in ("jsoncpp", "sqlite")]
    found = [
        finished(
            module, project, "mlgokit tune", 60.0, 800, {"failure": "it crashed"} if project.name == "sqlite" else None
        )
        for arm, project, minutes in wanted
    ]
    result = module.summarise(found, wanted=wanted, failed={}, enough=0.98, seed=1)
    assert result.passed is False
    assert "larger, or with failing tests: sqlite (mlgokit tune, 60)" in result.answer
    assert result.tables[2].rows[1][3] == "0 of 1 builds pass; it crashed"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--projects", "lua"], "projects: expected names among double-conversion, "),
        (["--arms", "luck"], "found luck"),
        (["--points", "0"], "points: expected core-minutes above zero"),
    ],
)
def test_what_is_not_known_is_one_sentence(
    benchmark: Callable[[str], ModuleType], words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert benchmark("tuning").main(words) == 2
    assert sentence in capsys.readouterr().err


def test_a_link_is_found_in_what_cmake_and_ninja_write(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    image = tmp_path / "src" / "tool"
    place = tmp_path / "src" / "CMakeFiles" / "tool.dir"
    place.mkdir(parents=True)
    image.touch()
    (place / "link.txt").write_text("/usr/bin/clang -O2 a.o -o tool -lm\n")
    assert benchmark("tuning").link_of(image, tmp_path) == ("/usr/bin/clang -O2 a.o -o tool -lm", tmp_path / "src")
    (place / "link.txt").unlink()
    with pytest.raises(ToolError, match="found neither"):
        benchmark("tuning").link_of(image, tmp_path)


@pytest.mark.parametrize(("size", "passed"), [(950, True), (970, False)])
def test_a_search_of_links_is_judged_by_the_program_itself(
    benchmark: Callable[[str], ModuleType], size: int, passed: bool
):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    wanted = [("lto", projects[name], 15.0) for name in ("ninja", "cmark")]
    found = [finished(module, project, arm, minutes, size) for arm, project, minutes in wanted]
    for one in found:
        one.value["tuned"] |= {"plain_link": None, "tuned_link": None}
        del one.value["after"]["objects"]

    result = module.summarise(found, wanted=wanted, failed={}, enough=0.98, seed=1)

    assert result.passed is passed
    assert result.bar.startswith("images -4.00 % on C++, -2.00 % on C or less at 15 core-minutes")


def test_a_budget_is_what_earlier_calls_left_of_it(
    benchmark: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    module, calls = benchmark("tuning"), list[list[str]]()

    def call(words: list[str], *, timeout_seconds: float) -> None:
        calls.append(words)
        tmp_path.joinpath("tune").mkdir(exist_ok=True)
        found = {"user_seconds": 70.0 * len(calls), "ended": "the budget was spent"}
        tmp_path.joinpath("tune", "tuned.json").write_text(json.dumps(found))

    monkeypatch.setattr(module, "run_mlgokit", call)

    tuned = module.tune_for(["tune"], tmp_path / "tune", 2.0, workers=2)

    assert calls == [["tune", "--budget", "60s"], ["tune", "--budget", "25s", "--continue"]]
    assert tuned["user_seconds"] == 140.0

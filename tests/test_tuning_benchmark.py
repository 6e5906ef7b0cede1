"""The benchmark of tuning: its list of projects, and the tables that it makes of what searches left."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.corpus.sources.projects import load_projects

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


def test_every_project_has_work_to_count(benchmark: Callable[[str], ModuleType]):
    work, projects = benchmark("tuning_execution").WORK, benchmark("tuning_projects").PROJECTS
    assert work.keys() == projects.keys()
    assert all(one.steps <= len(projects[name].tests) for name, one in work.items())


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
    if arm.startswith("tune"):
        after = after or good
    value = {"tuned": tuned, "before": {"image": image, "tests": 7}, "after": after}
    return module.Finished(project=project, arm=arm, minutes=minutes, value=value)


def test_the_tables_say_what_is_there_and_what_is_not(benchmark: Callable[[str], ModuleType]):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    some = [projects[name] for name in ("jsoncpp", "ninja", "sqlite")]
    sizes = {"jsoncpp": 900, "ninja": 810, "sqlite": 980}
    found = [finished(module, one, "tune", 5.0, sizes[one.name]) for one in some]
    last = finished(module, some[0], "tune", 60.0, 850)
    last.value["all_seconds"] = 4800.0
    last.value["tuned"]["allocated"] = {"before_bytes": 875.0, "after_bytes": 850.0}
    last.value["tuned"]["passes"] = {"before_bytes": 900.0, "after_bytes": 882.0}
    last.value["folded"] = {"before": {"image": 1600, "text": 800}, "after": {"image": 1520, "text": 780}}
    found += [last, finished(module, some[0], "random search", 5.0, 990)]
    wanted = [(arm, one, minutes) for arm in ("tune", "random search") for one in some for minutes in (5.0, 60.0)]

    result = module.summarise(found, wanted=wanted, failed={"ninja": "no\nnetwork"}, enough=0.98, seed=1)

    means, rows, tests, missing = result.tables
    # The geometric mean of 0.9 and 0.81.
    assert means.rows[0][:7] == ("tune", "c++", "5", 2, 0, "-14.62 %", "-14.62 %")
    assert means.rows[0][9] == "-14.62 %"
    assert [row[:4] for row in means.rows[1:]] == [
        ("tune", "c++", "60", 1), ("tune", "c", "5", 1), ("random search", "c++", "5", 1),
    ]  # fmt: skip
    assert means.rows[1][4] == 1
    assert means.rows[-1][9] is None
    jsoncpp = rows.rows[0]
    assert (jsoncpp[7], rows.rows[1][7]) == ("80.0", None)
    assert rows.rows[1][11] is None
    assert jsoncpp[:6] == ("tune", "jsoncpp", "c++", "Meson", 2, 1)
    assert jsoncpp[9:13] == ("-10.00 %", "-15.00 %", "-2.86 %", "-15.00 %")
    assert jsoncpp[-2:] == ("-25.00 %", "+0.00 %")
    assert jsoncpp[-5:-2] == (None, "-2.00 %", "-5.00 %")
    assert means.rows[1][-2:] == ("-5.00 %", "-2.50 %")
    assert means.rows[0][-2:] == (None, None)
    assert tests.rows[0][2:] == ("7 pass", "2 of 2 builds pass, 7 tests", "2 of 2", 0)
    assert ("ninja", "tune", "60", "no") in missing.rows
    assert ("sqlite", "random search", "5, 60", "not made yet") in missing.rows
    assert (result.passed, result.bar) == (None, "")
    # The geometric mean of 0.85 and 0.81.
    assert "tune, within 60 core-minutes, 2 of them at 5: -17.02 % on 2 C++ projects" in result.answer
    assert "7 of 12 points are missing" in result.answer


def test_an_ablation_has_each_kind_of_decision_alone_and_says_what_it_saves(benchmark: Callable[[str], ModuleType]):
    arms = benchmark("tuning_arms").ABLATION
    kinds = {(not arm.functions, arm.shares[0] > 0, arm.shares[1] > 0) for arm in arms.values()}
    assert kinds >= {(True, False, False), (False, True, False), (False, False, True)}
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    both = [projects[name] for name in ("jsoncpp", "sqlite")]
    sizes = {"mlgokit tune": 870, "passes alone": 950, "registers alone": 990}
    found = [finished(module, one, arm, 3.0, size) for arm, size in sizes.items() for one in both]
    wanted = [(one.arm, one.project, one.minutes) for one in found]
    answer = module.summarise(found[:-1], wanted=wanted, failed={}, enough=0.98, seed=1).answer
    assert "beside it passes alone -5.00 % C++ and -5.00 % C; no module" in answer, "registers are not whole"


@pytest.mark.parametrize(("size", "passed"), [(870, True), (900, False)])
def test_the_bar_is_about_all_projects_at_fifteen_minutes(
    benchmark: Callable[[str], ModuleType], size: int, passed: bool
):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    wanted = [("tune", projects[name], 15.0) for name in ("jsoncpp", "sqlite")]
    found = [finished(module, project, "tune", 15.0, size) for _, project, _ in wanted]
    assert module.summarise(found, wanted=wanted, failed={}, enough=0.98, seed=1).passed is passed


def test_a_tuned_build_whose_tests_fail_misses_the_bar(benchmark: Callable[[str], ModuleType]):
    module, projects = benchmark("tuning_tables"), benchmark("tuning_projects").PROJECTS
    wanted = [("tune", projects[name], 60.0) for name in ("jsoncpp", "sqlite")]
    found = [
        finished(module, project, "tune", 60.0, 800, {"failure": "it crashed"} if project.name == "sqlite" else None)
        for _, project, _ in wanted
    ]
    result = module.summarise(found, wanted=wanted, failed={}, enough=0.98, seed=1)
    assert result.passed is False
    assert "larger, or with failing tests: sqlite (tune, 60)" in result.answer
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


def test_the_benchmark_of_links_counts_programs_and_builds(benchmark: Callable[[str], ModuleType]):
    module = benchmark("tuning_lto")

    def row(image: int, **more: Any) -> dict[str, Any]:
        return {"image": {"image": image, "text": image // 2}, "tests": 3, **more}

    tuned = {"core_seconds": 900.0, "compilations": 70, "ended": "the budget was spent"}
    rows = {
        ("ninja", "plain"): row(2000), ("ninja", "lto"): row(1000), ("ninja", "tuned lto"): row(950, **tuned),
        ("cmark", "lto"): row(1000), ("cmark", "tuned lto"): row(990, **tuned),
        ("ninja", "thin"): row(1100), ("ninja", "tuned thin"): row(1056, **tuned),
        ("cmark", "thin"): row(1100), ("cmark", "tuned thin"): row(1078, **tuned),
    }  # fmt: skip
    given = {"projects": ("ninja", "cmark"), "failed": {}, "minutes": 15.0, "seed": 1}
    found = module.summarise(rows, **given)
    assert found.passed is False
    assert "-5.00 % on 1 c++ programs, -1.00 % on 1 c programs; 0 of 2 larger; -flto=thin" in found.answer
    assert "-3.01 % on 2 programs, 0 larger" in found.answer
    assert found.tables[0].rows[0][4:8] == ("-50.00 %", "-52.50 %", "-5.00 %", "-5.00 %")
    rows["cmark", "tuned lto"] = row(970, **tuned)
    assert module.summarise(rows, **given).passed is True
    rows["cmark", "tuned thin"] = row(1101, **tuned)
    assert module.summarise(rows, **given).passed is False
    del rows["cmark", "tuned lto"]
    assert module.summarise(rows, **given).passed is None


def test_a_program_that_policies_make_larger_in_its_link_misses_the_bar(benchmark: Callable[[str], ModuleType]):
    module = benchmark("policies_lto")

    def row(after: int) -> dict[str, Any]:
        before, then = ({"image": {"image": image, "text": image // 2}, "tests": 3} for image in (1000, after))
        return {"before": before, "after": then}

    rows = {("ninja", "-flto"): row(990), ("cmark", "-flto"): row(980), ("cmark", "-flto=thin"): row(1000)}
    found = module.summarise(rows, {}, config=module.PoliciesLto())
    assert found.passed is True
    assert found.answer == (
        "-flto C++ -1.00 %; -flto C -2.00 %; -flto=thin C +0.00 %; 0 of 3 builds more than +0.10 % larger, 0 failed"
    )
    assert found.tables[1].rows[0] == ("ninja", "c++", "-flto", 1000, "-1.00 %", "-1.00 %", 3)
    larger = rows | {("ninja", "-flto=thin"): row(1002)}
    assert module.summarise(larger, {}, config=module.PoliciesLto()).passed is False
    assert module.summarise(rows, {"expat, -flto": "no network"}, config=module.PoliciesLto()).passed is False


def test_a_link_is_found_in_what_cmake_and_ninja_write(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    image = tmp_path / "src" / "tool"
    place = tmp_path / "src" / "CMakeFiles" / "tool.dir"
    place.mkdir(parents=True)
    image.touch()
    (place / "link.txt").write_text("/usr/bin/clang -O2 a.o -o tool -lm\n")
    assert benchmark("tuning_lto").link_of(image, tmp_path) == ("/usr/bin/clang -O2 a.o -o tool -lm", tmp_path / "src")
    (place / "link.txt").unlink()
    with pytest.raises(benchmark("tuning_lto").ToolError, match="found neither"):
        benchmark("tuning_lto").link_of(image, tmp_path)


def test_rust_programs_are_searched_in_turn_and_a_later_run_goes_on(
    benchmark: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    module = benchmark("tuning_rust")
    programs: list[dict[str, Any]] = [{"name": "small"}, {"name": "large"}]
    for one in programs:
        (tmp_path / one["name"]).mkdir()
    made: list[str] = []

    def after_slice(_config: object, program: dict[str, Any], _report: object) -> dict[str, Any]:
        made.append(program["name"])
        seconds = 60 * made.count(program["name"]) * (3 if program["name"] == "large" else 1)
        return {"user seconds": seconds}

    monkeypatch.setattr(module, "_after_slice", after_slice)

    def search(minutes: float, wall_minutes: float) -> dict[str, Any]:
        config = module.TuningRust(folder=tmp_path, minutes=minutes, wall_minutes=wall_minutes)
        return module._searched(config, programs, None)

    search(2, -1)
    assert made == ["small", "large"], "the time is over, but each has a row"
    rows = search(4, 1)
    assert made[2:] == ["small"] * 3 + ["large"]
    assert [row["user seconds"] for row in rows.values()] == [240, 360]


def test_a_rust_program_that_prints_its_own_path_does_the_same(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module, source = benchmark("tuning_rust"), tmp_path / "source"
    source.mkdir()
    (source / "given").write_text("some text")
    found: list[object] = []
    for side in ("plain", "tuned"):
        path = tmp_path / side / "tool"
        path.parent.mkdir()
        path.write_text('#!/bin/sh\necho "$0 $1"; cat\nexit 3\n')
        path.chmod(0o755)
        found.append(module._outcomes(path, {"runs": [["a"]], "input": "given"}, source))
    assert found[0] == found[1] == [(3, f"{tmp_path}/run/tool a\nsome text".encode(), "")]

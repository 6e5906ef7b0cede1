"""The benchmark of promises: its list of projects, what it reads of results, and the table that it makes."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.errors import ToolError

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TUNED = {
    "shipped": {"judged": {"programs": {"a": [100, 90]}}},
    "built": {
        "programs": [
            {"program": "a", "plain": {"image": 100}, "tuned": {"image": 80}},
            {"program": "b", "plain": {"image": 50}, "tuned": {"image": 50}},
        ]
    },
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_the_projects_have_every_kind_of_build(benchmark: Callable[[str], ModuleType]):
    listed = benchmark("promise_projects")
    projects = listed.promised_projects()
    assert len(projects) >= 20
    systems = {one.system for one in projects.values()}
    assert systems >= {"CMake, Ninja", "CMake, Make", "Meson 1.0", "Meson 1.12", "autotools", "Make", "cargo"}
    assert {one.target for one in projects.values()} >= {"x86_64", "thumbv7m", "thumbv6m", "rv32imac"}
    words = " ".join(f"{one.about} {' '.join(one.build)}" for one in projects.values())
    assert all(word in words for word in ("icf=all", "-flto ", "-flto=thin", "-nostdlib", "shared library"))
    for one in projects.values():
        assert all((listed.BOARDS / name).is_file() for name in one.files.values())
        assert one.is_cargo or any("{plugin}" in command for command in one.build)
        assert one.archive is not None or one.needs


def test_a_promise_is_what_the_result_says_of_each_program(benchmark: Callable[[str], ModuleType]):
    module, projects = benchmark("promise"), benchmark("promise_projects").promised_projects()
    assert module.promises_of(TUNED, projects["lzip"]) == {
        "a": {"plain": 100, "shipped": 90, "tuned": 80},
        "b": {"plain": 50, "shipped": None, "tuned": 50},
    }
    tuned = {"shipped": None, "cargo_programs": {"hexyl/hexyl": [30, 20]}}
    assert module.promises_of(tuned, projects["hexyl"]) == {
        "target/release/hexyl": {"plain": 30, "shipped": None, "tuned": 20}
    }


def test_flags_go_where_the_build_has_a_place_for_them(benchmark: Callable[[str], ModuleType]):
    module, projects = benchmark("promise"), benchmark("promise_projects").promised_projects()
    flag = "-fpass-plugin=/p.plugin -Wl,--load-pass-plugin=/p.plugin"
    assert module.plugin_marks(projects["lzip-lto"], flag) == {
        "{plugin}": "-fpass-plugin=/p.plugin",
        "{link}": "-Wl,--load-pass-plugin=/p.plugin",
    }
    assert module.plugin_marks(projects["lzip"], "") == {"{plugin}": "", "{link}": ""}
    with pytest.raises(ToolError, match=r"lzip: expected \{link\} in its commands for -Wl,"):
        module.plugin_marks(projects["lzip"], flag)


@pytest.mark.parametrize(
    ("built", "runs", "passed", "said"),
    [
        (
            {"plain": 100, "shipped": 90, "tuned": 80},
            (2, True),
            True,
            "0 not as promised, 0 larger than plain, 0 larger",
        ),
        ({"plain": 100, "shipped": 90, "tuned": 81}, (2, True), False, "1 not as promised, 0 larger than plain, 0 la"),
        ({"plain": 100, "shipped": 79, "tuned": 80}, (0, True), False, "1 not as promised, 0 larger than plain, 1 l"),
        ({"plain": 79, "shipped": 90, "tuned": 80}, (0, True), False, "1 not as promised, 1 larger than plain, 0 lar"),
        ({"plain": 100, "shipped": 90, "tuned": 80}, (1, False), False, "1 projects behave differently"),
    ],
)
def test_every_difference_is_told(
    benchmark: Callable[[str], ModuleType], built: dict[str, int], runs: tuple[int, bool], *, passed: bool, said: str
):
    module, projects = benchmark("promise"), benchmark("promise_projects").promised_projects()
    row: dict[str, Any] = {
        "promised": {"a": {"plain": 100, "shipped": 90, "tuned": 80}}, "built": {"a": built}, "runs": runs[0],
        "same_output": runs[1], "announced_seconds": 50.0, "taken_seconds": 60.0, "notes": [],
    }  # fmt: skip
    found = module.result_of([(projects["lzip"], row)], seconds=30, workers=2)
    assert (found.passed, said in found.answer) == (passed, True)
    assert "0 took a quarter more or less" in found.answer
    rust = {"a": {"plain": 100, "tuned": 80}}
    row |= {"promised": {"a": {"plain": 100, "shipped": None, "tuned": 80}}, "built": rust, "taken_seconds": 63.0}
    found = module.result_of(
        [(projects["hexyl"], row), (projects["lua"], {"failure": "no compiler"})], seconds=30, workers=2
    )
    assert "1 of 2 projects, 1 programs: 0 not as promised" in found.answer
    assert "1 took a quarter more" in found.answer
    assert not found.passed


def test_needs_are_looked_for_first(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module, projects = benchmark("promise"), benchmark("promise_projects").promised_projects()
    missing = module.dataclasses.replace(projects["lua"], needs=(sys.executable, "/no/such/tool"))
    with pytest.raises(ToolError, match="expected /no/such/tool, found none; install it"):
        module.measure_project(missing, config=module.Promise(folder=tmp_path), toolchain=None)
    assert not any(tmp_path.iterdir())


def test_what_a_program_prints_is_compared_wherever_it_prints(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module, projects = benchmark("promise"), benchmark("promise_projects").promised_projects()
    command = f"sh -c 'echo in {tmp_path} >&2; echo two'"
    assert module.output_of(projects["lua"], command, tmp_path) == b"two\nin \n"
    with pytest.raises(ToolError, match="lua: expected `true` to print something, found nothing"):
        module.output_of(projects["lua"], "true", tmp_path)


def test_a_project_takes_what_it_does_not_say_from_another_one(benchmark: Callable[[str], ModuleType]):
    projects = benchmark("promise_projects").promised_projects()
    plain, merged = projects["tinyxml2-cortex-m0"], projects["tinyxml2-cortex-m0-lto"]
    assert plain.language == merged.language == "c++"
    assert plain.root == merged.root == "tinyxml2-9.0.0"
    assert plain.run == merged.run == projects["pugixml-cortex-m3"].run
    assert "CXXFLAGS='-Oz -ffunction-sections -fdata-sections {plugin}'" in plain.build[0]
    assert "--icf=all {link}'" in merged.build[0]
    assert "CXXFLAGS='-Oz -flto {plugin}'" in merged.build[0]

"""The public benchmark: its list, the rule that splits it, the log of looks, and its tables."""

import dataclasses
import hashlib
import importlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import mlgokit.bench
from mlgokit.bench.workloads import load_workloads
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import FetchError, InputError, UsageError

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PUBLIC = BENCHMARKS / "public_projects.toml"
TAUGHT = {"c": BENCHMARKS / "training_projects.toml", "c++": BENCHMARKS / "training_projects_cpp.toml"}
PROGRAMS = sorted(Path(mlgokit.bench.__file__).parent.glob("*.toml"))
DIGESTS = {"size.policy": "ab12", "passes.policy": "cd34"}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_there_are_enough_projects_of_each_kind(benchmark: Callable[[str], ModuleType]):
    module = benchmark("public_projects")
    own, added = load_projects(), load_projects(module.MANIFEST)

    projects = module.public_projects()

    assert len(projects) == len(own) + len(added)
    in_all = Counter(one.language for one in projects.values())
    tested = Counter(one.language for one in projects.values() if module.split_of(one.name) == "test")
    assert in_all["c++"] >= 40
    assert in_all["c"] >= 20
    assert tested["c++"] >= 15
    assert tested["c"] >= 8


def test_projects_that_are_added_say_nothing_of_their_split(benchmark: Callable[[str], ModuleType]):
    added = load_projects(benchmark("public_projects").MANIFEST)

    assert not [one.name for one in added if one.held_out]
    assert not [one.name for one in added if one.archive.registry == "debian" and ".orig.tar." not in one.archive.file]
    assert not [one.name for one in added if one.options and any(word.startswith("-O") for word in one.options)]


@pytest.mark.parametrize("language", TAUGHT)
def test_what_is_trained_on_is_nothing_that_is_measured(benchmark: Callable[[str], ModuleType], language: str):
    taught = load_projects(TAUGHT[language])
    measured = {
        *benchmark("public_projects").public_projects(),
        *benchmark("tuning_projects").ALL_PROJECTS,
        *benchmark("public_projects").LOOKED_AT,
    }
    archives = {one.archive.package for one in load_projects(PUBLIC)}
    workloads = "".join(path.read_text() for path in PROGRAMS).lower()

    assert {one.language for one in taught} == {language}
    assert not {one.name for one in taught} & measured
    assert not {one.archive.package for one in taught} & archives
    assert not [one.name for one in taught if f'"{one.name}' in workloads]


def test_the_split_is_a_function_of_the_name(benchmark: Callable[[str], ModuleType]):
    split_of = benchmark("public_projects").split_of
    looked_at = {*benchmark("tuning_projects").PROJECTS, *benchmark("public_projects").LOOKED_AT}

    for project in load_projects():
        assert split_of(project.name) == ("validation" if project.held_out else "train")
    assert {split_of(name) for name in looked_at} == {"validation"}
    assert {split_of(project.name) for path in TAUGHT.values() for project in load_projects(path)} == {"train"}
    for name in ("in-no-list", "another", "bzip2", "geos", "libzmq"):
        below = hashlib.sha256(name.encode()).hexdigest() < "80"
        assert split_of(name) == ("test" if below else "validation")


def made_row(language: str, image: float, *, text: float = 1.0, larger: int = 0, failures: int = 0) -> dict[str, Any]:
    before = {"image": 1000, "text": 500}
    after = {"image": 1000 * image, "text": 500 * text}
    return {
        "language": language, "modules": 10, "larger_modules": larger, "failures": failures, "left_out": 0,
        "link_aware": [1000.0, 1000 * image],
        "images": {"gc-sections": [before, after], "icf=all": [before, {"image": 1000 * image + 10, "text": 500}]},
    }  # fmt: skip


ROWS = {
    "a": made_row("c++", 0.9, text=0.96, larger=1),
    "b": made_row("c++", 0.92, text=0.97),
    "c": made_row("c", 0.98),
}


def test_a_split_reaches_the_bar_or_misses_it(benchmark: Callable[[str], ModuleType]):
    summarise = benchmark("public_tables").summarise

    result = summarise(ROWS, [], policies=("p",), complete=True)

    assert result.passed is True
    assert result.answer == (
        "C++ image -9.01 %; C++ .text -3.50 %; C++ image, icf=all -8.01 %; C image -2.00 %; worst image -2.00 %, c; "
        "96.7 % of 30 modules not larger; 0 projects and 0 modules fail"
    )
    assert [row[:5] for row in result.tables[0].rows[:2]] == [
        ("c++", "gc-sections", "image", 2, "-9.01 %"),
        ("c++", "gc-sections", ".text", 2, "-3.50 %"),
    ]
    assert result.tables[1].rows[0][8] == 9
    assert [row[1] for row in result.tables[2].rows] == [None, "100.0 %"]
    part = summarise(ROWS, [], policies=("p",), complete=False)
    assert (part.bar, part.passed) == ("", None)
    for missed in (
        ROWS | {"c": made_row("c", 1.0)},
        ROWS | {"d": made_row("c++", 1.004, text=0.9)},
        ROWS | {"a": made_row("c++", 0.9, text=0.96, failures=1)},
        ROWS | {"a": made_row("c++", 0.9, text=0.96, larger=7)},
    ):
        assert summarise(missed, [], policies=("p",), complete=True).passed is False


def test_what_policies_add_to_others_has_no_bar_and_is_no_look(
    benchmark: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
):
    public = benchmark("public")
    result = benchmark("public_tables").summarise(ROWS, [], policies=("p", "q"), against=("p",), complete=False)

    assert result.question.endswith(", against p?")
    assert public.main(["--split", "test", "--against", ":never"]) == 2
    assert "--against: expected none with --split test, which is against -Oz" in capsys.readouterr().err


def test_a_project_that_fails_is_named(benchmark: Callable[[str], ModuleType]):
    result = benchmark("public_tables").summarise(ROWS, ["d: no network"], policies=("p",), complete=True)

    assert result.passed is False
    assert "1 project and 0 modules fail" in result.answer
    assert result.tables[1].note == "Failed: d: no network."


def test_nothing_that_could_be_linked_is_said(benchmark: Callable[[str], ModuleType]):
    result = benchmark("public_tables").summarise({}, ["d: no network"], policies=("p",), complete=False)

    assert result.answer == "nothing could be linked; 1 project and 0 modules fail"
    assert result.passed is None


def test_results_of_other_seeds_stand_beside_each_other(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module = benchmark("public_seeds")
    results, summarise = benchmark("results"), benchmark("public_tables").summarise

    def written(name: str, rows: dict[str, dict[str, Any]], digest: str) -> Path:
        result = summarise(rows, [], policies=("p",), complete=True)
        inputs = {"policy size.policy": digest}
        results.write_result(dataclasses.replace(result, inputs=inputs), tmp_path / name, command="c")
        return tmp_path / name

    first, second = written("1.json", ROWS, "ab12"), written("2.json", ROWS | {"c": made_row("c", 0.96)}, "cd34")

    assert module.main(["--results", str(first), str(second), "--json", str(tmp_path / "seeds.json")]) == 0

    found = results.read_result(tmp_path / "seeds.json").result
    means = {row[:3]: row[3:] for row in found.tables[0].rows}
    assert means["c", "gc-sections", "image"] == ("-2.00 %", "-4.00 %", "-3.00 %", "-2.00 %")
    assert found.tables[1].rows[2] == ("c", "-2.00 %", "-4.00 %", "2.00 %")
    assert found.passed is True
    missed = written("3.json", ROWS | {"c": made_row("c", 1.0)}, "ef56")
    assert module.compared([(path, results.read_result(path)) for path in (first, missed)]).passed is False
    for wrong, said in (
        ([first], "expected two or more, found 1"),
        ([first, first], "expected policies of another seed, found those of"),
        ([first, written("4.json", {"a": ROWS["a"]}, "0a")], "expected the projects of"),
    ):
        with pytest.raises(UsageError, match=said):
            module.compared([(path, results.read_result(path)) for path in wrong])


def test_the_same_policies_look_at_the_test_once(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module = benchmark("public_tables")
    path = tmp_path / "looks.json"
    assert module.read_looks(path) == []
    numbers = [27, 0, "-6.10 %", "-2.60 %", "-5.00 %", "-1.60 %", "+0.10 %", "90.0 %"]
    row = module.look(numbers, DIGESTS, llvm=22, again=False)
    assert len(row) == len(module.LOOK_COLUMNS)
    benchmark("results").write_result(module.log_of([row]), path, command="python benchmarks/public.py")

    looks = module.read_looks(path)

    assert looks == [row]
    other_order = dict(reversed(DIGESTS.items()))
    with pytest.raises(
        UsageError, match=r"expected policies that have not looked at it, found a look of \d{4}-.*--again"
    ):
        module.check_look(looks, other_order, again=False)
    module.check_look(looks, other_order, again=True)
    module.check_look(looks, DIGESTS | {"size.policy": "ef56"}, again=False)
    path.write_text("{}")
    with pytest.raises(InputError, match="expected a log of looks"):
        module.read_looks(path)


@pytest.fixture
def without_compiler(
    benchmark: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> ModuleType:
    """The benchmark with neither a compiler nor a network."""

    def no_network(*_: object, **__: object) -> Path:
        raise FetchError("no network")

    public = benchmark("public")
    toolchain = SimpleNamespace(lld=Path("ld.lld"), major=22, describe=lambda: {"clang": "22"})
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"")
    monkeypatch.setattr(benchmark("harness").Setup, "toolchain", lambda *_, **__: toolchain)
    monkeypatch.setattr(public, "build_plugin", lambda _: plugin)
    monkeypatch.setattr(public, "fetch_archive", no_network)
    return public


def test_projects_that_cannot_be_had_do_not_end_the_benchmark(without_compiler: ModuleType, tmp_path: Path):
    words = ["--projects", "ninja", "jansson", "--folder", str(tmp_path), "--json", str(tmp_path / "x.json")]

    assert without_compiler.main([*words]) == 0

    values = json.loads((tmp_path / "x.json").read_text())
    assert values["tables"][1]["note"] == "Failed: ninja: no network; jansson: no network."
    assert not list(tmp_path.glob("*/*/rows"))


@pytest.mark.parametrize("policies", [("builtin:size",), (":never",)])
def test_the_test_is_looked_at_whole_and_written_down_if_there_was_something(
    without_compiler: ModuleType, tmp_path: Path, policies: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    looks = tmp_path / "looks.json"
    words = ["--split", "test", "--policies", *policies, "--folder", str(tmp_path), "--looks", str(looks)]
    words += ["--json", str(tmp_path / "x.json")]

    assert without_compiler.main([*words, "--projects", "geos"]) == UsageError.exit_code
    assert "which is looked at whole" in capsys.readouterr().err
    assert without_compiler.main([*words, "--projects", "ninja"]) == UsageError.exit_code
    assert "expected names among" in capsys.readouterr().err
    assert without_compiler.main(words) == 1
    assert not looks.exists()


def test_unseen_programs_are_of_the_validation_split_and_have_their_drivers(
    benchmark: Callable[[str], ModuleType], tmp_path: Path
):
    split_of = benchmark("public_projects").split_of

    workloads = load_workloads(benchmark("policy_bench").unseen_programs(tmp_path))

    assert len(workloads) == 8
    for workload in workloads:
        assert (workload.drivers / workload.driver).is_file()
        assert (workload.drivers / "input.h").is_file()
        assert {split_of(project.name) for project in workload.projects} == {"validation"}
        assert not any(project.name in {one.name for one in load_projects()} for project in workload.projects)


def test_builds_with_free_flags_have_bars_of_their_own_and_data_counts(benchmark: Callable[[str], ModuleType]):
    module = benchmark("careful")

    def row(language: str, image: float, data: int) -> dict[str, Any]:
        before, after = ({"image": size, "text": size, "data": held, "bss": 8} for size, held in
                         ((1000.0, 100), (1000.0 * image, data)))  # fmt: skip
        return {
            "language": language,
            "modules": 2,
            "failures": 0,
            "larger_modules": 1,
            "images": {"icf=all": [before, after]},
        }

    found = {"thumb": {"a": row("c++", 0.95, 100), "b": row("c", 0.97, 120)}}

    result = module.summarise(found, [], ("p",), "validation", complete=True)

    assert [cells[1:5] for cells in result.tables[0].rows] == [
        ("c++", 1, "-4.55 %", "-5.00 %"),
        ("c", 1, "-0.91 %", "-3.00 %"),
    ]
    assert [cells[-1] for cells in result.tables[0].rows] == ["yes", "no"]
    assert "Data grows in b on thumb." in result.tables[0].note
    assert result.passed is False
    assert module.summarise(found, [], ("p",), "validation", complete=False).passed is None
    assert module.summarise({"thumb": {"a": row("c++", 0.95, 100)}}, [], ("p",), "test", complete=True).passed is True

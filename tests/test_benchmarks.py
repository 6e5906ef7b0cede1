"""The benchmarks' arithmetic and what they write, on tiny inputs; their measurements need a compiler and time."""

import dataclasses
import doctest
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlgokit.builds.images import BuiltImage
from mlgokit.corpus.layout import encode_command_line
from mlgokit.errors import ToolError, UsageError
from mlgokit.evaluation.records import (
    BuiltModule,
    Evaluation,
    ImageComparison,
    ModuleComparison,
    ProjectComparison,
    Sizes,
)
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log

FOLDER = Path(__file__).parent.parent / "benchmarks"
NAMES = ("kills", "overhead", "policy_speed")
PARTS = tuple(sorted(path.stem for path in FOLDER.glob("*.py")))
FACTS = {"seed": 7, "versions": {"clang": "clang version 22.1.8"}, "inputs": {"corpus": "ab12"}}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.mark.parametrize("name", NAMES)
def test_help_names_every_option_and_where_the_result_goes(
    benchmark: Callable[[str], ModuleType], name: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        benchmark(name).main(["--help"])

    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("--corpus", "--seed", "--llvm", "--json", "--modules"):
        assert word in text
    assert f"{name}.json" in text


@pytest.mark.parametrize("name", PARTS)
def test_examples_in_docstrings_are_true(benchmark: Callable[[str], ModuleType], name: str):
    assert doctest.testmod(benchmark(name)).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_that_is_not_there_is_one_sentence(
    benchmark: Callable[[str], ModuleType],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    module = benchmark(name)
    monkeypatch.setattr(benchmark("harness").Setup, "toolchain", lambda *_, **__: None)
    words = ["--corpus", str(tmp_path / "nowhere"), "--json", str(tmp_path / "x.json")]
    words += ["--policy", str(tmp_path / "p")] if name == "overhead" else []

    assert module.main(words) == 4

    assert "corpus_description.json: expected a file" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_a_result_is_written_as_json_and_as_markdown(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    results = benchmark("results")
    table = results.Table(title="Numbers", columns=("what", "value"), rows=(("a|b", 1.23456), ("c", None)), note="So.")
    result = results.Result(
        benchmark="overhead", question="Q?", answer="A", bar="x <= 1", passed=True, tables=(table,), **FACTS
    )

    results.write_result(result, tmp_path / "r.json", command="python benchmarks/overhead.py")

    values = json.loads((tmp_path / "r.json").read_text())
    assert values["format_version"] == 1
    assert values["tables"][0]["rows"] == [["a|b", 1.23456], ["c", None]]
    assert values["seed"] == 7
    assert values["command"] == "python benchmarks/overhead.py"
    text = (tmp_path / "r.md").read_text()
    for line in (
        "# overhead", "**A**", "Bar: x <= 1: reached.", "| what | value |", "| --- | ---: |", "| a\\|b | 1.235 |",
        "| c |  |", "python benchmarks/overhead.py", "- seed: 7", "- clang: clang version 22.1.8",
        "- corpus: sha256 ab12",
    ):  # fmt: skip
        assert line in text.splitlines()


def test_a_result_needs_a_path_that_ends_with_json(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    results = benchmark("results")
    result = results.Result(benchmark="overhead", question="Q?", answer="A", tables=(), **FACTS)

    with pytest.raises(UsageError, match=r"expected a path that ends with \.json, found '\.md'"):
        results.write_result(result, tmp_path / "r.md", command="")


def test_a_row_is_measured_once_and_only_for_what_it_is_of(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    kept_row, path, measured = benchmark("harness").kept_row, tmp_path / "folder" / "row.json", list[int]()

    def measure() -> dict[str, int]:
        measured.append(1)
        return {"size": 7}

    rows = [kept_row(path, measure, of={"corpus": "ab12"}) for _ in range(2)]

    assert rows[0] == rows[1]
    assert (rows[0]["size"], len(measured)) == (7, 1)
    with pytest.raises(UsageError, match=r"expected a row of \{'corpus': 'cd34'\}, found another's"):
        kept_row(path, measure, of={"corpus": "cd34"})


def test_a_result_names_what_it_was_made_with(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    harness = benchmark("harness")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """None."""

    def measure(_: Options, setup: Any) -> Any:
        setup.tools["clang"] = "22"
        setup.inputs["corpus"] = "ab12"
        return benchmark("results").Result(benchmark="x", question="Q?", answer="A", seed=1, passed=False, tables=())

    assert harness.run_benchmark(Options, measure, ["--json", str(tmp_path / "x.json")]) == 1

    values = json.loads((tmp_path / "x.json").read_text())
    assert list(values["versions"]) == ["mlgokit", "clang", "python", "numpy", "processor", "load when it began"]
    assert values["inputs"] == {"corpus": "ab12"}
    assert "python benchmarks/x.py --json .../x.json" in (tmp_path / "x.md").read_text().splitlines()


def test_a_command_of_mlgokit_that_fails_is_one_sentence(benchmark: Callable[[str], ModuleType]):
    run_mlgokit = benchmark("harness").run_mlgokit

    with pytest.raises(ToolError, match=r"mlgokit corpus info nowhere: expected success, found that it ended with \d"):
        run_mlgokit(["corpus", "info", "nowhere"], timeout_seconds=60)


def test_corpora_of_one_list_at_two_levels_are_different_inputs(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    digests: list[str] = []
    for name, bitcode, level in (
        ("a", b"BC", "-Oz"),
        ("b", b"BC", "-O2"),
        ("c", b"other", "-Oz"),
        ("again", b"BC", "-Oz"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "m.o.bc").write_bytes(bitcode)
        (folder / "m.o.cmd").write_bytes(encode_command_line(["-cc1", level]))
        (folder / "corpus_description.json").write_text('{"has_thinlto": false, "modules": ["m.o"]}')
        setup = benchmark("harness").Setup(report=say_nothing)
        setup.corpus(folder)
        digests.append(setup.inputs["corpus"])

    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def made_modules(count: int) -> list[Module]:
    return [
        Module(name=str(n), project="p", language="c", bitcode=Path(), command_line=(), bitcode_bytes=1)
        for n in range(count)
    ]


def test_modules_are_drawn_by_seed_and_stay_in_order(benchmark: Callable[[str], ModuleType]):
    draw, modules = benchmark("harness").draw_modules, made_modules(50)

    drawn = [draw(modules, 10, np.random.default_rng(seed)) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0], key=modules.index) == drawn[0]
    assert len({module.name for module in drawn[0]}) == 10
    assert draw(modules, 0, np.random.default_rng(1)) == modules
    with pytest.raises(UsageError, match="found -1"):
        draw(modules, -1, np.random.default_rng(1))


def test_builds_are_timed_in_turns_and_back(benchmark: Callable[[str], ModuleType]):
    order: list[str] = []

    def compile_once(build: str) -> tuple[float, float, int]:
        order.append(build)
        return len(order), 2 * len(order), len(build)

    timed = benchmark("timing").time_in_turns(compile_once, 2, ("a", "b"))

    assert order == ["a", "b", "b", "a"]
    assert timed["a"].user.tolist() == [1, 4]
    assert timed["b"].processor.tolist() == [4, 6]


def test_a_module_that_fails_in_one_build_is_not_timed(benchmark: Callable[[str], ModuleType]):
    found = benchmark("timing").time_in_turns(
        lambda build: "it crashed" if build == "policy" else (1.0, 1.0, 1), 3, ("plain", "policy")
    )

    assert found == "policy: it crashed"


def overhead_result(overhead: ModuleType, policy_seconds: float):
    def timing(seconds: float, text: int) -> object:
        return overhead.Timing(user=np.array([seconds, 9.0]), processor=np.array([seconds, 9.0]), text_bytes=text)

    timings = [
        {"plain": timing(size, 100), "policy": timing(size * policy_seconds, 90), "echo": timing(size * 1.02, 100)}
        for size in (0.05, 0.2, 0.4)
    ]
    config = overhead.Overhead(policy=(Path("p"),), long_seconds=0.3)
    return overhead.summarise(timings, [("m", "no")], config=config)


def test_overhead_is_the_median_of_ratios_of_least_times(benchmark: Callable[[str], ModuleType]):
    overhead = benchmark("overhead")

    result = overhead_result(overhead, 1.05)

    rows = {(row[0], row[1], row[2]): row[3:] for row in result.tables[0].rows}
    number, low, median, high, _, _, total, seconds = rows["user", "policy / plain", "all"]
    assert number == 3
    np.testing.assert_allclose([low, median, high, total, seconds], [1.05, 1.05, 1.05, 1.05, 0.65])
    assert rows["user", "echo / plain", "at least 0.1 s"][0] == 2
    assert "-10.00% under the policy" in result.tables[0].note
    assert result.tables[1].rows == (("m", "no"),)
    assert result.passed
    assert not overhead_result(overhead, 1.2).passed


def test_records_of_a_stress_run_are_gone_on_with(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module = benchmark("harness")
    path = tmp_path / "new" / "records.jsonl"
    module.open_ledger(path, {"seed": 1}).add("module 22 0", {"outcome": "ok"})
    with path.open("a") as file:
        file.write('{"key": "module 22 1", "outc')

    again = module.open_ledger(path, {"seed": 1})

    assert again.known == {"setting": {"seed": 1}, "module 22 0": {"outcome": "ok"}}
    again.add("module 22 1", {"outcome": "hang"})
    assert module.open_ledger(path, {"seed": 1}).known == again.known
    with pytest.raises(UsageError, match=r"expected records of \{'seed': 2\}, found \{'seed': 1\}; give another file"):
        module.open_ledger(path, {"seed": 2})


def test_decisions_that_the_mask_forbids_are_counted(benchmark: Callable[[str], ModuleType]):
    mask = np.array([[1, 0, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]], np.int64)
    header = Header(features=(TensorSpec(name="mask", type="int64_t", shape=(3,)),))
    spans = (ContextSpan(name="f", start=0, stop=4),)
    columns = {"mask": mask, "index_to_evict": np.array([[0], [1], [2], [3]])}
    log = Log(header=header, contexts=spans, columns=columns)

    assert benchmark("fuzz_registers").count_illegal("regalloc-eviction", log) == 2


def test_sizes_that_a_script_and_an_evaluation_do_not_share_are_counted(benchmark: Callable[[str], ModuleType]):
    agreement = benchmark("evaluate_agreement")
    sizes = Sizes(objects=90, link_aware=90.0, text=80, rodata=10, eh_frame=10, image=100)
    rows = tuple(
        ModuleComparison(
            module=f"build/{name}.o",
            before=BuiltModule(status="ok", objects=90),
            after=BuiltModule(status=status, objects=80 if status == "ok" else 0),
        )
        for name, status in (("a", "ok"), ("b", "ok"))
    )
    linked = BuiltImage(status="linked", image=100)
    image = ImageComparison(image="build/t", before=linked, after=linked)
    project = ProjectComparison(
        project="p", language="c++", modules=2, before=sizes, after=sizes, larger_modules=0, user_seconds_before=0.0,
        user_seconds_after=0.0, module_rows=rows, images=(image,),
    )  # fmt: skip
    found = Evaluation(policy="p", projects=(project,), summary={}, compilations=4)
    counted = {
        (side, name): size
        for side, size in (("before", 90), ("after", 80))
        for name, size in (("a.o", size), ("b.o", size), ("t", 100))
    }

    assert agreement.compared("plain", found, counted) == ("plain", 2, 1, 100, 100, 0)
    counted[("after", "a.o")] = 81
    del counted[("before", "t")]
    counted[("before", "c.o")] = 1
    assert agreement.compared("plain", found, counted)[-1] == 3


def test_sizes_that_peers_have_otherwise_are_told_unless_padding_explains_them(benchmark: Callable[[str], ModuleType]):
    peers = benchmark("size_peers")

    def section(name: str, address: int, memory: int) -> dict[str, Any]:
        return {"name": name, "address": address, "file": memory, "memory": memory}

    sections = [
        section(".text", 0, 30),
        section(".tbss", 64, 16),
        section(".init_array", 64, 8),
        section(".fini_array", 72, 16),
        section(".data", 96, 9),
    ]
    theirs = {
        ".text": (32, 32),
        ".tbss": (16, 16),
        ".init_array": (8, 0),
        ".fini_array": (16, 7),
        ".data": (4, 4),
    }
    unlike = [(".fini_array", "16, 16", "16, 7"), (".data", "9, 9", "4, 4")]
    assert peers.compare_sections({"sections": sections}, theirs) == (1, 2, unlike)

    def symbol(*names: str, address: int, memory: int, section: str = ".text") -> dict[str, Any]:
        return {"names": names, "section": section, "address": address, "memory": memory}

    def compared(symbols: list[dict[str, Any]], known: dict[str, dict[str, int]], *ranges: tuple[int, int]) -> Any:
        counts, different = peers.compare_symbols({"symbols": symbols, "sections": sections}, known, ranges)
        return dict(counts), different

    padded = [symbol("f", address=0, memory=10), symbol("folded", "g", address=16, memory=4)]
    wrong = symbol("wrong", address=20, memory=10)
    assert compared([*padded, wrong], {".text": {"f": 16, "folded": 4, "wrong": 3}}) == (
        {"with padding": 1, "": 1},
        [("wrong", "10", "3")],
    )
    # Another name of the place is none of ours.
    assert compared(padded, {".text": {"f": 16, "other": 4}})[1] == [("folded, g", "4", "none")]
    # Bytes up to the symbol may be its own too, and no more of them.
    known = {"f": 10, "g": 10, "wrong": 10}
    assert compared([*padded, wrong], {".text": known}) == ({"": 2, "in the padding before": 1}, [])
    known["g"] = 11
    assert compared([*padded, wrong], {".text": known})[1] == [("folded, g", "4", "11")]
    # Two symbols of one name count together, and so do two that overlap, but only if they do.
    twice = [symbol("f", address=0, memory=8), symbol("f", address=8, memory=8)]
    assert compared(twice, {".text": {"f": 16}}) == ({"together": 2}, [])
    overlapping = [symbol("outer", address=0, memory=8), symbol("inner", address=8, memory=8)]
    assert compared(overlapping, {".text": {"outer": 16}}, (0, 16)) == ({"together": 2}, [])
    assert len(compared(overlapping, {".text": {"outer": 16}}, (0, 8))[1]) == 2
    # What is at addresses of .tbss lacks the bytes that are there, and no more.
    there = [symbol("first", address=72, memory=16, section=".fini_array")]
    assert compared(there, {".fini_array": {"first": 8}}) == ({"at addresses of .tbss": 1}, [])
    assert compared(there, {".fini_array": {"first": 7}})[1] == [("first", "16", "7")]
    local = [symbol("local", address=64, memory=8, section=".tbss")]
    assert compared(local, {}) == ({"thread-local": 1}, [])

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

from mlgokit.advisors import Observation
from mlgokit.corpus.layout import encode_command_line
from mlgokit.errors import UsageError
from mlgokit.evaluation.records import (
    BuiltImage,
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
NAMES = (
    "kills",
    "learners",
    "overhead",
    "overhead_regalloc",
    "policy_speed",
    "register_learners",
    "release_mode",
    "tuning_speed",
    "tuning_versions",
)
PARTS = (
    "arms",
    "build_systems",
    "changes",
    "chromium",
    "doubt",
    "validation_projects",
    "embedded_llvm",
    "embedded_model",
    "evaluate_agreement",
    "harness",
    "inline_replay",
    "left_out",
    "results",
    "made_models",
    "made_objects",
    "tflite_agreement",
    "fuzz_readers",
    "fuzz_corpus",
    "fuzz_cuts",
    "fuzz_gate",
    "fuzz_passes",
    "drawn_passes",
    "pass_stress",
    "overhead_passes",
    "pass_switches",
    "passes_share",
    "cost_truth",
    "profiled_corpus",
    "counted_programs",
    "merged_profile",
    "llvm_tools",
    "cluster",
    "cluster_faults",
    "cluster_site",
    "worker_processes",
    "engine",
    "allocated",
    "block_traces",
    "levers",
    "live_ranges",
    "scale",
    "policy_bench",
    "policy_versions",
    "program_seeds",
    "pretrained",
    "public",
    "public_looks",
    "public_projects",
    "public_seeds",
    "public_tables",
    "guards",
    "kill_rounds",
    "fuzz_plugin",
    "forked_clang",
    "gate_cases",
    "learner_arms",
    "learner_summary",
    "learning_curve",
    "recheck",
    "report_speed",
    "regalloc_stress",
    "timing",
    "treatments",
    "tuning_asked",
    "tuning_one_module_tables",
    "tuning_registers",
    "tuning_spill_cost",
    "tuning_tables",
)
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


@pytest.mark.parametrize("name", [*PARTS, *NAMES])
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
        json: Path

    def measure(_: Options, setup: Any) -> Any:
        setup.tools["clang"] = "22"
        setup.inputs["corpus"] = "ab12"
        return benchmark("results").Result(benchmark="x", question="Q?", answer="A", seed=1, passed=False, tables=())

    assert harness.run_benchmark(Options, measure, ["--json", str(tmp_path / "x.json")]) == 1

    values = json.loads((tmp_path / "x.json").read_text())
    assert list(values["versions"]) == ["mlgokit", "clang", "python", "numpy", "processor", "load when it began"]
    assert values["inputs"] == {"corpus": "ab12"}
    assert "python benchmarks/x.py --json .../x.json" in (tmp_path / "x.md").read_text().splitlines()


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
    config = overhead.Overhead(policy=Path("p"), long_seconds=0.3)
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

    assert benchmark("treatments").count_illegal("regalloc-eviction", log) == 2


def test_doubt_is_chosen_by_harm_and_then_by_gain(benchmark: Callable[[str], ModuleType]):
    module = benchmark("doubt")

    def row(image: float, folded: float) -> dict[str, Any]:
        plain = {"image": 1000, "text": 500}
        return {
            "modules": 3,
            "larger_modules": 1,
            "images": {
                "gc-sections": [plain, {"image": 1000 * image, "text": 500 * image}],
                "icf=all": [plain, {"image": 1000 * folded, "text": 500 * folded}],
            },
        }

    languages = {"a": "c++", "b": "c++", "c": "c"}
    rows: dict[Any, dict[str, Any]] = {}
    for doubt, ratios in {0.0: (0.9, 1.01), 1.0: (0.92, 1.0), 2.0: (0.95, 1.0), 2.5: (0.9,)}.items():
        arm = module.Arm(policy="p", doubt=doubt)
        rows |= {(arm, name): row(ratio, ratio + 0.1) for name, ratio in zip("ab", ratios, strict=False)}
    rows[module.Arm(policy="p", doubt=1.0, is_open=True), "c"] = row(1.002, 1.004)
    result = module.summarise(rows, languages=languages, held_out=["a"], values=(0.0, 1.0, 2.0, 2.5))

    assert result.answer == (
        "doubt 1: C++ images -4.08 %, the worst project +0.00 %; without doubt -4.66 % and +1.00 %"
    )
    assert result.passed is True
    # A doubt of which rows are missing is not in the curve.
    assert [(*line[:5], *line[7:9], line[9], *line[-2:]) for line in result.tables[0].rows] == [
        ("c++", "p", 0.0, 2, "-4.66 %", "-10.00 %", "+1.00 %", "+1.00 %, b", 1, 1),
        ("c++", "p", 1.0, 2, "-4.08 %", "-8.00 %", "+0.00 %", "+0.00 %, b", 0, 2),
        ("c++", "p", 2.0, 2, "-2.53 %", "-5.00 %", "+0.00 %", "+0.00 %, b", 0, 2),
        ("c", "p, gate open", 1.0, 1, "+0.20 %", None, "+0.20 %", "+0.20 %, c", 0, 1),
    ]
    assert [line[2:6] for line in result.tables[1].rows] == [
        (1.0, 2, "-4.66 %", "-4.08 %"),
        (2.0, 2, "-4.66 %", "-2.53 %"),
        (2.5, 1, "-10.00 %", "-10.00 %"),
    ]
    assert len(result.tables[2].rows) == 8


def test_arms_are_compared_over_projects_and_seeds(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module = benchmark("learner_summary")

    def arm(name: str, seed: int, *ratios: float) -> dict[str, object]:
        projects = {
            f"p{number}": {"language": "c++", "image": [100, 100 * ratio], "link_aware": [50.0, 50 * ratio]}
            for number, ratio in enumerate(ratios)
        }
        return {"arm": name, "seed": seed, "core_minutes": 1.5, "projects": projects}

    config = benchmark("learners").Learners(json=tmp_path / "x.json")
    found = [arm("ppo", 1, 0.9, 0.8), arm("ppo", 2, 1.0, 0.8), arm("echo", 0, 1.0, 1.0)]
    result = module.summed_up(config, found, missing=2)

    # sqrt(0.9 * 1.0) and 0.8, and the geometric mean of both.
    assert result.answer == f"ppo: {module.percent((0.9**0.5 * 0.8) ** 0.5 - 1)} on C++ (2 arms missing)"
    ppo, echo = result.tables[0].rows
    assert ppo[:2] == ("ppo", 2)
    assert echo[2] == "+0.00 %"
    assert ppo[8] == "-15.15 % to -10.56 %"
    assert ppo[9] == "+0.00 %"
    assert (tmp_path / "x.svg").read_text().count("<circle") == 2


def test_an_arm_that_is_finished_is_not_made_again(benchmark: Callable[[str], ModuleType], tmp_path: Path):
    module = benchmark("arms")
    made: list[str] = []

    def arm(name: str) -> Any:
        return module.Arm(name=name, seed=1, run=lambda: made.append(name) or {"found": name})

    def finished(most: int, of: int = 1) -> list[str]:
        arms = [arm("es"), arm("ppo:reference"), arm("dqn")]
        found = module.finished_arms(tmp_path, arms, of={"budget": of}, most=most, report=lambda *_: None)
        return [one["found"] for one in found]

    assert finished(-1) == []
    assert finished(2) == ["es", "ppo:reference"]
    assert finished(0) == ["es", "ppo:reference", "dqn"]
    assert made == ["es", "ppo:reference", "dqn"]
    with pytest.raises(UsageError, match="another's"):
        finished(0, of=2)


def test_learners_of_registers_are_compared_over_projects_and_seeds(benchmark: Callable[[str], ModuleType]):
    module = benchmark("register_learners")

    def arm(learner: str, seed: int, *spills: float, **facts: float) -> dict[str, object]:
        projects = {f"p{place}": [10, 5, change, change / 10, 0.0, 0.0, 0.0] for place, change in enumerate(spills)}
        return {"problem": "regalloc-priority", "learner": learner, "seed": seed, "projects": projects, **facts}

    found = [arm("ppo", 1, -0.1, 0.3, turns=4), arm("ppo", 2, -0.3, 0.1, turns=8), arm("es:trials", 1, -0.06, -0.02)]
    result = module.summed_up(module.RegisterLearners(), found, missing=2)

    assert result.answer == (
        "functions with spills, in the mean of held-out projects: regalloc-priority: es:trials -4.00 % (2 arms missing)"
    )
    assert result.question.endswith("after 3 minutes of a core?")
    counted = module.summed_up(module.RegisterLearners(compilations=320), found, missing=0)
    assert counted.question.endswith("after 320 compilations?")
    ppo, trials = result.tables[0].rows
    assert ppo[1:4] == ("ppo", 2, "+0.00 %")
    assert ppo[5:8] == ("-10.00 % to +10.00 %", "+0.00 %", "+2.00 %")
    assert ppo[-4:] == (6.0, None, None, None)
    assert trials[-4] is None


def test_a_budget_of_learners_in_minutes_is_for_those_that_learn(benchmark: Callable[[str], ModuleType]):
    module = benchmark("learner_arms")

    def names(**budget: float) -> list[tuple[str, int]]:
        config = module.Learners(algorithms=("es", "ppo"), seeds=(1, 2), thresholds=(0,), **budget)
        nobody = dict.fromkeys(("toolchain", "plugin", "training", "held_out", "report"))
        return [(arm.name, arm.seed) for arm in module.every_arm(module.Bench(config=config, **nobody))]

    assert names(minutes=2.0) == [("es", 1), ("ppo", 1), ("es", 2), ("ppo", 2)]
    assert {name for name, _ in names()} == {
        "echo", "never", "always", "threshold 0", "es", "ppo", "random", "random search", "greedy flips"
    }  # fmt: skip


def test_a_search_turns_decisions_round_by_their_place(benchmark: Callable[[str], ModuleType]):
    module = benchmark("learner_arms")
    flips = module.Flips(frozenset({1}))
    asked = [
        Observation(header=Header(features=()), values={"inlining_default": np.array([value])}, context="", index=index)
        for index, value in enumerate((0, 0, 1))
    ]

    assert [flips.advise(one) for one in asked] == [0, 1, 1]


def test_tuning_speed_weighs_modules_by_what_their_search_wanted(benchmark: Callable[[str], ModuleType]):
    speed = benchmark("tuning_speed")

    def costs(plain: float, search: float, count: int) -> dict[str, object]:
        """Seconds for one build, of which the search compiled half."""
        seconds = dict.fromkeys(speed.ARMS, plain) | {speed.PLAIN: plain, speed.SEARCH: search}
        return {
            way: speed.Cost(
                results=count,
                compilations=count // 2 if way == speed.SEARCH else count,
                children=count * each,
                python=0.0,
                said=count * each,
            )
            for way, each in seconds.items()
        }

    modules = [Module(name=name, project="p", language="c", held_out=False, bitcode=Path(name), bitcode_bytes=1,
                      command_line=()) for name in ("a", "b")]  # fmt: skip
    of_modules = list(zip(modules, (costs(1.0, 0.5, 30), costs(1.0, 1.0, 10)), strict=True))
    composed = [
        speed.Composed(decisions=True, sizes=True, code=True, error=0),
        speed.Composed(decisions=True, sizes=False, code=True, error=-4),
        speed.Composed(decisions=True, sizes=False, code=False, error=-40),
    ]
    result = speed.summarise(of_modules, composed, 120, 0, speed.TuningSpeed())
    assert result.passed
    assert result.answer.startswith("1.60 times as many effective compilations as plain clang: 40 builds were wanted")
    assert "in 20 compilations" in result.answer
    assert "2 of 3 composed builds are what the compiler makes" in result.answer
    assert not speed.summarise(of_modules, composed, 120, 1, speed.TuningSpeed()).passed


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


def test_decisions_of_an_llvm_with_a_policy_inside_are_counted_where_they_differ(
    benchmark: Callable[[str], ModuleType],
):
    made = benchmark("embedded_llvm")
    same = made.Pair(
        plugin=[1, 0, 1], embedded=[1, 0, 1], nanoseconds=[1000, 2000, 6000], same_output=True, same_plain=True
    )
    other = made.Pair(plugin=[1, 0], embedded=[0, 0, 1], nanoseconds=[3000] * 3, same_output=False, same_plain=True)

    row = made.summary("inline-size", "drawn", [same, other])

    assert row == ("inline-size", "drawn", 2, 6, 2, 1, 0, 3.0, 3.0)

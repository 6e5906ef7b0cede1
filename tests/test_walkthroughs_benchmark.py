"""The benchmark that runs docs/how-to/walkthroughs.md: how it reads the document, and what it makes of a step."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.commands.gin import read_gin
from mlgokit.commands.gin_settings import settings_of_gin
from mlgokit.errors import InputError
from mlgokit.progress import say_nothing

ROOT = Path(__file__).parent.parent


@pytest.fixture
def walkthroughs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("walkthroughs")


def test_the_document_has_the_steps_of_the_reference_in_their_order(walkthroughs: ModuleType):
    found = walkthroughs.read_walkthroughs()
    assert list(found) == list(walkthroughs.NAMES)
    tools = ("extract", "generate_default_trace", "sparse_bucket_generator", "train_bc", "train_locally")
    text = "\n".join(step.commands for step in found["llvm"].steps)
    assert sorted(tools, key=text.index) == list(tools)
    assert found["thinlto"].variables == (
        "CC", "CXX", "SOURCES", "PROGRAM", "WORKLOAD", "ML_COMPILER_OPT_DIR", "CLONING_STEPS", "ITERATIONS", "MODULES",
    )  # fmt: skip
    assert [step.title for step in found["inlining"].steps if not step.commands] == ["Build LLVM"]


def test_a_document_without_variables_is_refused(walkthroughs: ModuleType, tmp_path: Path):
    path = tmp_path / "walkthroughs.md"
    path.write_text("# Steps\n" + "\n## One\n\n### Step\n" * 4)
    with pytest.raises(InputError, match=r"walkthroughs\.md: inlining: expected variables, and at most one block"):
        walkthroughs.read_walkthroughs(path)
    path.write_text("# Steps\n\n## One\n")
    with pytest.raises(InputError, match="expected sections of inlining, llvm, thinlto, tools, found 1; correct it"):
        walkthroughs.read_walkthroughs(path)


def run(walkthroughs: ModuleType, folder: Path, *commands: str) -> list[tuple[str, str]]:
    steps = tuple(walkthroughs.Step(title=f"{number}", commands=block) for number, block in enumerate(commands))
    walkthrough = walkthroughs.Walkthrough(title="Toy", variables=("A",), steps=steps)
    rows = walkthroughs.run_walkthrough(walkthrough, {"A": "a"}, folder, seconds=60, report=say_nothing)
    return [(row.found, row.reason) for row in rows]


def test_steps_run_one_after_the_other_with_what_earlier_ones_export(walkthroughs: ModuleType, tmp_path: Path):
    rows = run(walkthroughs, tmp_path / "run", "export B=${A}b\ntouch $B", "", "touch $B.c; touch $A", "echo said")
    assert rows == [("ab", ""), ("nothing to do", ""), ("a, ab.c", ""), ("1 lines", "")]


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("echo wrong >&2\nfalse\ntouch b", "exit code 1: wrong"),
        (":", "a command gave nothing: "),
        ("mlgokit corpus info --corpus nowhere", "exit code 4: mlgokit: "),
        ("mlgokit() { :; }\nmlgokit train", "expected 1 results, found 0"),
        ('mlgokit() { printf \'{\\n "modules": 3,\\n "failures": 1}\'; }\nmlgokit import', "a command gave nothing: {"),
    ],
)
def test_the_first_step_that_does_not_work_is_the_last(
    walkthroughs: ModuleType, tmp_path: Path, commands: str, reason: str
):
    rows = run(walkthroughs, tmp_path / "run", "touch first", commands, "touch last")
    assert len(rows) == 2
    assert rows[1][1].startswith(reason)


def test_all_variables_are_given(walkthroughs: ModuleType, tmp_path: Path):
    walkthrough = walkthroughs.read_walkthroughs()["llvm"]
    with pytest.raises(InputError, match=r"expected the variables MANIFEST, ML_COMPILER_OPT_DIR, .*, found CC; give"):
        walkthroughs.run_walkthrough(walkthrough, {"CC": "c"}, tmp_path / "run", seconds=1, report=say_nothing)


def test_a_result_in_few_words(walkthroughs: ModuleType, tmp_path: Path):
    (tmp_path / "p.csv").write_text("a.o,f,10,9\nb.o,f,30,27\n")
    inner = {"modules": 2, "decisions": 7}
    call = {"commands": ["mlgokit trace --performance=p.csv"], "notes": [], "text": "", "result": inner}
    assert walkthroughs.facts_of(call, tmp_path) == "2 modules, 7 decisions, 2 scores -10.00 %"
    assert walkthroughs.facts_of({**call, "result": None, "text": "a\nb"}, tmp_path).startswith("2 lines")
    trained = {"counters": {"compilations": 4}, "last_turn": {"reward": 0.01}, "taught": 3}
    assert walkthroughs.facts_of(trained, tmp_path) == "4 compilations, reward +1.00 %"
    workload = {"failures": [], "same_output": True}
    changes = [{"measure": "instructions", "mean": -0.01}]
    assert walkthroughs.facts_of({"workloads": [workload], "changes": changes}, tmp_path) == "instructions -1.00 %"
    broken = {"workloads": [{**workload, "same_output": False}], "changes": changes}
    assert walkthroughs.facts_of(broken, tmp_path) == ""


def test_the_short_gin_files_say_nothing_that_is_not_understood(walkthroughs: ModuleType, tmp_path: Path):
    folder = walkthroughs.write_settings(tmp_path / "settings")
    (folder / "compiler_opt/rl/inlining/vocab").mkdir()
    (folder / "compiler_opt/rl/regalloc/vocab").mkdir()
    names = {"common.gin", "behavioral_cloning_nn_agent.gin", "ppo_nn_agent.gin"}
    for place in walkthroughs.GIN_FOLDERS.values():
        assert {path.name for path in (folder / place).iterdir()} == names
        for name in names:
            found = settings_of_gin(read_gin([folder / place / name]), folders=[folder])
            assert found.left_out == ()
            assert found.problem in {"inline-size", "regalloc-eviction"}

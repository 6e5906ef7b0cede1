"""The examples, run as a user would, with every installed compiler."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.llvm.containers import CONTAINERS

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.projects import Archive, Project

pytestmark = pytest.mark.llvm

ROOT = Path(__file__).parents[2]
LONGEST_EXAMPLE = 80

SOURCE = (
    CONTAINERS
    + """
static int square(int x) { return x * x; }
static int sum(const List<int>& v) { int s = 0; for (int x : v) s += square(x); return s; }
Rows<List<int>> NAME_table;
int NAME_add(const Text& name, int x) { NAME_table[name].add(x); return sum(NAME_table[name]); }
Text NAME_list(int n) { Text r; for (int i = 0; i < n; ++i) r += square(i); return r; }
"""
)


def run_example(toolchain: Toolchain, name: str, *arguments: Path | str) -> process.Completed:
    environment = {
        **os.environ,
        LOCATION_VARIABLE: str(toolchain.clang.parent.parent),
        "PYTHONPATH": str(ROOT / "src"),
        # Only numbers of the processor; a test machine may have a GPU that is busy.
        "JAX_PLATFORMS": "cpu",
    }
    words = [sys.executable, ROOT / "examples" / name, *arguments]
    done = process.run(words, timeout_seconds=250, env=environment)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def corpus(toolchain: Toolchain, tmp_path: Path) -> Path:
    """Two training projects of two modules each, and a held-out one."""
    projects: list[Project] = []
    for name in ("left", "right", "unseen"):
        root = tmp_path / "sources" / name / "project"
        root.mkdir(parents=True)
        for part in ("one", "two"):
            (root / f"{part}.cpp").write_text(SOURCE.replace("NAME", f"{name}_{part}"))
        archive = Archive(registry="pypi", package=name, version="1", file=f"{name}.tar.gz", sha256="0" * 64)
        projects.append(
            Project(
                name=name, language="c++", standard="c++17", held_out=name == "unseen", archive=archive,
                root="project", sources=("*.cpp",), license="MIT",
            )
        )  # fmt: skip
    folder = tmp_path / "corpus"
    extract_projects(projects, toolchain=toolchain, sources_folder=tmp_path / "sources", corpus_folder=folder)
    return folder


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert lengths
    assert {name: length for name, length in lengths.items() if length >= LONGEST_EXAMPLE} == {}


def test_decide_by_hand_prints_its_decisions_and_both_sizes(toolchain: Toolchain) -> None:
    lines = run_example(toolchain, "decide_by_hand.py").stdout.decode().splitlines()
    sizes = [int(line.split()[-4]) for line in lines if line.startswith("the compiler finished: ")]
    answers = [line for line in lines if re.fullmatch(r"call \d+: cost -?\d+: (inline|call)", line)]
    assert len(sizes) == 2
    assert sizes[0] != sizes[1]
    assert {answer.rsplit(" ", 1)[1] for answer in answers} == {"inline", "call"}


def test_decide_by_hand_takes_a_source(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "mine.cpp"
    source.write_text(
        "extern int f(int);\nstatic int g(int x) { return f(x); }\nint h(int x) { return g(x) + g(1); }\n"
    )
    lines = run_example(toolchain, "decide_by_hand.py", source).stdout.decode().splitlines()
    assert len([line for line in lines if line.startswith("call ")]) == 2


def test_train_and_export_leaves_a_plugin_that_clang_loads(toolchain: Toolchain, corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "trained"
    text = run_example(toolchain, "train_and_export.py", corpus, output).stdout.decode()
    found = re.search(r"round 0: 20 compilations, (\d+) flipped decisions, (\d+) labels", text)
    assert found is not None, text
    assert int(found[1]) >= int(found[2]) > 0
    (flag,) = re.findall(r"-fpass-plugin=\S+", text)
    source = tmp_path / "sources" / "unseen" / "project" / "one.cpp"
    words = [toolchain.clangxx, "-Oz", flag, "-c", source, "-o", tmp_path / "out.o"]
    done = process.run(words, timeout_seconds=60)
    assert done.returncode == 0, done.stderr


def test_own_learner_searches_and_own_advisor_shows_every_module(
    toolchain: Toolchain, small_corpus: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gymnasium")
    folder = tmp_path / "corpus"
    shutil.copytree(small_corpus, folder)
    names = [f"m{number}" for number in range(4)]
    (folder / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": names}))
    lines = run_example(toolchain, "own_learner.py", folder, Path("16")).stdout.decode().splitlines()
    assert [re.sub(r"-?\d+\.\d+|[+-]\d\.\d+", "#", line) for line in lines] == [
        f"turn {turn}: mean reward #, threshold #" for turn in (0, 1)
    ]
    lines = run_example(toolchain, "own_advisor.py", folder).stdout.decode().splitlines()
    assert len(lines) == 4
    assert all(re.fullmatch(r"m\d: \d+ bytes plainly, \d+ with the advisor", line) for line in lines)


@pytest.mark.slow
def test_a_learner_from_elsewhere_trains_on_the_environment(
    toolchain: Toolchain, small_corpus: Path, tmp_path: Path
) -> None:
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 needs PyTorch, which takes 6 GB with CUDA")
    (tmp_path / "held-out").write_text("m0\nm1\n")
    words = ("--held-out", tmp_path / "held-out", "--checkpoints", "4", "8")
    text = run_example(toolchain, "foreign_learner.py", small_corpus, *words).stdout.decode()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["compilations"] for row in rows] == [0, 4, 8]
    assert all(-1 < row["reward"] < 1 for row in rows)

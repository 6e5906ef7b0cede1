"""The walkthroughs of docs/how-to/walkthroughs.md, word for word: all steps work on a project of five files.

Each command is a process of its own, as a user starts it, and trainings import JAX: a walkthrough takes more than 10 s.
The two that are not slow have traces, vocabularies and both trainings between them, for inlining and for registers.
"""

import hashlib
import importlib
import io
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from tests.llvm.conftest import SOURCE

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.fetch import default_cache_folder
from mlgokit.progress import say_nothing

pytestmark = pytest.mark.llvm

ROOT = Path(__file__).parents[2]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("inlining", "thinlto", "tools")]
MAIN = """
#include <cstdio>
#include <cstdlib>
static int sum;
extern "C" int get(int x) { return x * 3 + sum; }
extern "C" void put(int x) { sum += x; }
extern "C" int hot_0(int); extern "C" int hot_1(int); extern "C" int hot_2(int);
int main(int, char** words) { printf("%d\\n", hot_0(atoi(words[1])) + hot_1(2) + hot_2(1)); }
"""
FILES = {
    **{f"part{number}.cc": SOURCE.replace("NUMBER", str(number)) for number in range(4)},
    "main.cc": f"{SOURCE.replace('NUMBER', '9')}{MAIN}",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.13)\nproject(toy CXX)\n"
    "add_executable(toy main.cc part0.cc part1.cc part2.cc part3.cc)\n",
}
MANIFEST = """
[[project]]
name = "toy"
language = "c++"
standard = "c++17"
archive = {{ registry = "debian", package = "toy", version = "1", file = "pool/toy.tar", sha256 = "{digest}" }}
root = "toy"
sources = ["*.cc"]
license = "MIT"
"""


@pytest.fixture
def walkthroughs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark that runs the document."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("walkthroughs")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The small project."""
    folder = tmp_path / "toy"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def put_archive(source: Path, cache: Path) -> str:
    """Put the project into a cache of archives, beside the plugins that are compiled already; its digest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, "toy")
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    place = cache / "mlgokit/archives" / digest
    place.mkdir(parents=True)
    (place / "toy.tar").write_bytes(packed.getvalue())
    (cache / "mlgokit/plugins").symlink_to(default_cache_folder() / "plugins")
    return digest


@pytest.mark.parametrize("name", ["llvm", *SLOW])
def test_all_steps_work(
    name: str,
    walkthroughs: ModuleType,
    toolchain: Toolchain,
    plugin: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    walkthrough = walkthroughs.read_walkthroughs()[name]
    reference = walkthroughs.write_settings(tmp_path / "reference")
    values = {
        "CC": toolchain.clang,
        "CXX": toolchain.clangxx,
        "SOURCES": source,
        "ML_COMPILER_OPT_DIR": reference,
        "CLONING_STEPS": 5,
        "ITERATIONS": 1,
        "MODULES": 3,
        "PROGRAM": "toy",
        "WORKLOAD": "7",
        "MLGOKIT_DIR": ROOT,
    }
    if name == "llvm":
        digest = put_archive(source, tmp_path / "cache")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        values["MANIFEST"] = tmp_path / "toy.toml"
        (tmp_path / "toy.toml").write_text(MANIFEST.format(digest=digest))
    if name == "tools":
        values["AQUERY"] = walkthroughs.build_objects(source, tmp_path, toolchain, seconds=60)
        values["OBJECTS"] = tmp_path / "objects"

    rows = walkthroughs.run_walkthrough(
        walkthrough,
        {variable: str(values[variable]) for variable in walkthrough.variables},
        tmp_path / "run",
        seconds=120,
        report=say_nothing,
    )

    assert [(row.step, row.reason) for row in rows] == [(step.title, "") for step in walkthrough.steps]

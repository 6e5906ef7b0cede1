"""Two and four real processes at once on one folder, output, store or corpus: a sentence, or the right thing."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.llvm.searching import INLINING_ALONE_WORDS

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.files import digest_file
from mlgokit.tables.decisions import read_table

pytestmark = pytest.mark.llvm

BUSY = 7
COUNTS = pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
"""How many processes at once; each starts for seconds, as several share a core."""
WAIT = "import sys; from mlgokit import cli; print('ready', flush=True); sys.stdin.readline(); cli.main()"
SOURCE = """
struct Base { virtual int get(int) = 0; virtual ~Base() {} };
static int add(Base& base, int x) { return base.get(x) + base.get(x + NUMBER); }
static int twice(Base& base, int x) { return add(base, x) * add(base, x + 1); }
int hot_NUMBER(Base& base, int n) { int sum = 0; for (int i = 0; i < n; ++i) sum += twice(base, i); return sum; }
int once_NUMBER(Base& base, int i) { return twice(base, add(base, i)) - twice(base, i) + add(base, i + 7); }
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    code: int
    stdout: str
    stderr: str


def all_at_once(calls: Sequence[Sequence[str | Path]]) -> list[Ended]:
    """Run ``mlgokit`` once for each call; all begin when the last one is ready."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with contextlib.ExitStack() as stack:
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        children = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", WAIT, *map(str, call)], env=environment, **pipes)
            )
            for call in calls
        ]
        for child in children:
            stack.callback(child.kill)
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [child.communicate(timeout=240) for child in children]
        return [Ended(child.returncode, *texts) for child, texts in zip(children, said, strict=True)]


def one_did_it(ended: Sequence[Ended], place: Path) -> None:
    """One process worked, the others said who does, and nothing else."""
    busy = [one for one in ended if one.code == BUSY]
    assert [one for one in ended if one.code not in {0, BUSY}] == []
    assert len(busy) == len(ended) - 1
    for one in busy:
        assert one.stderr.count("\n") == 1
        assert f"mlgokit: {place}: expected " in one.stderr
        assert "found `-c " in one.stderr


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A compilation database of two modules."""
    folder = tmp_path / "source"
    folder.mkdir()
    entries: list[dict[str, object]] = []
    for number in (1, 2):
        name = f"part{number}.cc"
        (folder / name).write_text(SOURCE.replace("NUMBER", str(number)))
        words = ["clang++", "-Oz", "-ffunction-sections", "-c", name, "-o", f"part{number}.o"]
        entries.append({"directory": str(folder), "file": name, "arguments": words})
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder / "compile_commands.json"


@COUNTS
def test_one_tunes_in_a_folder_and_one_goes_on(toolchain: Toolchain, count: int, database: Path, tmp_path: Path):
    folder, output = tmp_path / "tune", tmp_path / "tuned.so"
    words = ["tune", "--compile-commands", database, "--folder", folder, "--output", output, "--budget", "0s"]
    words += ["--llvm", str(toolchain.major), "--workers", "1", *INLINING_ALONE_WORDS]
    for more in ([], ["--continue"]):
        one_did_it(all_at_once([[*words, *more]] * count), folder)
        table = read_table(output)
        assert table.summary is not None
        assert table.summary.llvm == toolchain.major
        assert json.loads((folder / "tuned.json").read_text())["plugin"] == str(output)
    assert not list(tmp_path.rglob("*.lock"))


@pytest.mark.slow  # two whole searches; the other tests here keep two processes apart
def test_one_makes_an_output_and_two_make_two(toolchain: Toolchain, database: Path, tmp_path: Path):
    def words(folder: str, output: str) -> list[str | Path]:
        given = ["tune", "--compile-commands", database, "--folder", tmp_path / folder, "--output", tmp_path / output]
        given += ["--budget", "0s", "--llvm", str(toolchain.major), "--workers", "1"]
        return [*given, *INLINING_ALONE_WORDS]

    one_did_it(all_at_once([words("a", "one.so"), words("b", "one.so")]), tmp_path / "one.so")
    ended = all_at_once([words("c", "two.so"), words("d", "three.so")])
    assert [one.code for one in ended] == [0, 0], ended
    for folder, output in (("c", "two.so"), ("d", "three.so")):
        # How far each comes in its time is its own: one may find a byte more.
        summary, result = (
            read_table(tmp_path / output).summary,
            json.loads((tmp_path / folder / "tuned.json").read_text()),
        )
        assert summary is not None
        assert result["plugin"] == str(tmp_path / output)
        assert summary.tuned_bytes == result["tuned_bytes"] <= summary.plain_bytes


@pytest.mark.slow  # tests/commands/test_busy.py holds who is refused; tests of tuning and traces here are quicker
@COUNTS
def test_one_imports_into_a_corpus(toolchain: Toolchain, count: int, database: Path, tmp_path: Path):
    words = ["corpus", "import", "--compile-commands", database, "--llvm", str(toolchain.major), "--corpus"]
    assert all_at_once([[*words, tmp_path / "alone"]])[0].code == 0
    ended = all_at_once([[*words, tmp_path / "corpus"]] * count)
    # Two modules are quick: one may come when another has ended, and finds its modules made.
    assert {one.code for one in ended} in ({0}, {0, BUSY}), ended
    alone, corpus = load_corpus(tmp_path / "alone"), load_corpus(tmp_path / "corpus")
    assert [one.bitcode_sha256 for one in corpus.modules] == [one.bitcode_sha256 for one in alone.modules]


@COUNTS
def test_many_read_a_corpus_and_share_a_store(toolchain: Toolchain, count: int, small_corpus: Path, tmp_path: Path):
    def words(name: str, store: Path) -> list[str | Path]:
        given = ["trace", "--corpus", small_corpus, "--output", tmp_path / name, "--store", store, "--policy", ":never"]
        return [*given, "--llvm", str(toolchain.major), "--workers", "2"]

    assert all_at_once([words("alone", tmp_path / "store of one")])[0].code == 0
    ended = all_at_once([words(f"trace {number}", tmp_path / "store") for number in range(count)])
    assert [one.code for one in ended] == [0] * count, ended
    for folder in (tmp_path / f"trace {number}" for number in range(count)):
        for path in (tmp_path / "alone" / "logs").rglob("*.log"):
            assert digest_file(folder / "logs" / path.relative_to(tmp_path / "alone" / "logs")) == digest_file(path)
    stores = [
        sorted(path.relative_to(store) for path in store.rglob("*") if path.is_file())
        for store in (tmp_path / "store", tmp_path / "store of one")
    ]
    assert stores[0] == stores[1]
    assert stores[0]


@pytest.mark.slow  # as the import: four trainings
@COUNTS
def test_one_trains_in_a_folder(toolchain: Toolchain, count: int, small_corpus: Path, tmp_path: Path):
    words = ["train", "--corpus", small_corpus, "--iterations", "1", "--algorithm", "local-search"]
    words += ["--llvm", str(toolchain.major), "--compilations", "20"]
    one_did_it(all_at_once([[*words, "--output", tmp_path / "train"]] * count), tmp_path / "train")
    shared = ["--store", tmp_path / "train" / "store"]
    ended = all_at_once([[*words, *shared, "--output", tmp_path / f"train {number}"] for number in range(count)])
    assert [one.code for one in ended] == [0] * count, ended
    folders = [tmp_path / "train", *(tmp_path / f"train {number}" for number in range(count))]
    assert len({digest_file(folder / "final.policy") for folder in folders}) == 1

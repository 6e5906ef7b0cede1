"""A few of the mutations of ``benchmarks/fuzz_corpus.py``, and that its watch sees what it must."""

import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.errors import CorpusError

CASES = 100
READERS = (
    "objects",
    "linker parameters",
    "bazel aquery",
    "compilation database",
    "description",
    "sidecar",
    "counts of options",
    "command line",
    "combined corpora",
    "ThinLTO files",
    "import of commands",
    "driver's answer",
    "options",
    "changes of options",
    "link command",
    "waiting description",
    "split and contents",
    "list of projects",
    "what a module was made from",
    "policy",
    "TFLite model",
    "replay list",
    "decision table",
    "allocation table",
    "training log",
    "training set",
    "vocabulary",
    "progress of a search",
    "effects of a search",
    "record of effects",
    "functions of a search",
    "stored compilation",
    "checkpoint",
    "metrics",
    "manifest",
    "results of an evaluation",
    "trials of allocations",
    "known functions",
    "optimization record",
    "description of a module",
    "object to measure",
    "static library",
)


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    return importlib.import_module("fuzz_corpus")


@pytest.mark.parametrize("name", READERS)
def test_mutated_inputs_are_read_or_refused(fuzz: ModuleType, tmp_path: Path, name: str):
    tally = fuzz.run_reader(name, CASES, tmp_path, seed=7, seconds=None)
    assert tally.findings == []
    assert tally.cases == CASES


def test_every_reader_of_the_benchmark_is_here(fuzz: ModuleType):
    assert tuple(fuzz.READERS) == READERS


@pytest.mark.parametrize("name", READERS)
def test_unchanged_seeds_are_accepted(fuzz: ModuleType, tmp_path: Path, name: str):
    """But one that belongs to a ThinLTO build, whose index is not there, and an empty one."""
    reader = fuzz.READERS[name]
    for seed in reader.seeds:
        if seed not in {importlib.import_module("fuzz_readers").OVERRIDE, b""}:
            assert fuzz.run_case(reader, seed, tmp_path, seconds=None) == (True, "")


def reader_that(fuzz: ModuleType, does: object) -> object:
    return fuzz.Reader(seeds=[b"x"], read=does)


def test_findings_are_found(fuzz: ModuleType, tmp_path: Path):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    inside.mkdir()

    def write(data: bytes, _: Path, __: Path) -> None:
        outside.write_bytes(data)

    def start(_: bytes, __: Path, ___: Path) -> None:
        subprocess.run(["true"], check=True)

    def fail(_: bytes, __: Path, ___: Path) -> None:
        raise KeyError("oops")

    def refuse(_: bytes, __: Path, output: Path) -> None:
        (output / "a").touch()
        raise CorpusError("no")

    def finding(does: object) -> str:
        return fuzz.run_case(reader_that(fuzz, does), b"x", inside, seconds=None)[1]

    assert finding(write).startswith(f"open of {outside}")
    assert finding(start).startswith("subprocess.Popen")
    assert finding(fail) == "KeyError: 'oops'"
    assert finding(refuse) == ""


def test_a_case_is_known_by_its_number(fuzz: ModuleType):
    reader = fuzz.READERS["description"]
    one, two = (fuzz.mutate(reader, fuzz.np.random.default_rng([1, 4, 9])) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("words", [["--readers", "nobody"], ["--cases", "0"]])
def test_a_wrong_request_is_one_sentence(
    fuzz: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
):
    assert fuzz.main([*words, "--folder", str(tmp_path), "--json", str(tmp_path / "x.json")]) == 2
    assert "fuzzing: expected readers among objects, linker parameters" in capsys.readouterr().err

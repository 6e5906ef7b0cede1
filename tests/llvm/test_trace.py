"""`mlgokit trace` on register allocation with real compilers."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
from tests.llvm.bitcode import put_bitcode

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import trace
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.problems import PROBLEMS
from mlgokit.traces import read_log
from mlgokit.traces.training_set import iter_training_set

pytestmark = pytest.mark.llvm

SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17)
#define DECLARE(N) int v##N = get(N);
#define CHANGE(N) v##N += get(i + N) * v0;
#define USE(N) put(v##N);
extern "C" void hot(int n) { ALL(DECLARE) for (int i = 0; i < n; i++) { ALL(CHANGE) } ALL(USE) }
extern "C" void once(int i) { ALL(DECLARE) ALL(CHANGE) ALL(USE) }
"""


@pytest.fixture(scope="module")
def corpus(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good module, and one that is no bitcode."""
    folder = tmp_path_factory.mktemp(f"trace-{toolchain.major}")
    put_bitcode(toolchain.clangxx, folder / "good.cpp", SOURCE, "-O2")
    (folder / "bad.bc").write_bytes(b"no bitcode")
    for name in ("good", "bad"):
        options = ("-cc1", "-triple", toolchain.target, "-O2")
        (folder / f"{name}.cmd").write_bytes(b"".join(option.encode() + b"\0" for option in options))
    description = {"has_thinlto": False, "modules": ["good", "bad"]}
    (folder / "corpus_description.json").write_text(json.dumps(description))
    return folder


@pytest.mark.parametrize("problem", ["regalloc-eviction", "regalloc-priority"])
def test_register_allocation_is_traced_with_scores_and_reasons(
    toolchain: Toolchain, corpus: Path, tmp_path: Path, problem: str
):
    def traced(policy: str) -> dict[str, tuple[float, float]]:
        folder = tmp_path / policy.strip(":")
        found = trace.run(
            trace.Trace(
                corpus=corpus,
                output=folder,
                problem=problem,
                policy=policy,
                tfrecord=folder / "x.tfrecord",
                compiler=CompilerOptions(llvm=toolchain.major, workers=1),
            )
        )
        assert (found["modules"], found["succeeded"], found["failures"]) == (2, 1, {"failed": 1})
        (failure,) = found["failed"]
        assert failure["module"] == "bad"
        assert "error:" in failure["reason"]
        log = read_log(folder / "logs" / "good.log")
        assert found["decisions"] == log.observation_count > 0
        (records,) = iter_training_set(folder / "x.tfrecord")
        assert records.observation_count == found["written_observations"] == log.observation_count
        assert set(records.columns) >= {*PROBLEMS[problem].feature_names, PROBLEMS[problem].decision}
        rows = list(csv.reader((folder / "performance.csv").read_text().splitlines()))
        assert {row[0] for row in rows} == {"good"}
        return {key: (float(default), float(policy)) for _, key, default, policy in rows}

    default, random = traced(":default"), traced(":random")
    assert sorted(default) == sorted(random) == ["hot", "once"]
    module = next(one for one in load_corpus(corpus).modules if one.name == "good")
    plain = ClangCompiler(toolchain=toolchain).compile(module, CompileRequest(regalloc=True)).regalloc
    assert plain is not None
    for key, (first, second) in default.items():
        assert first == second == plain.score_of([key])[0]
        assert random[key][0] == first
    assert any(first != second for first, second in random.values())


def test_a_trace_is_the_same_again_and_reads_the_store(toolchain: Toolchain, corpus: Path, tmp_path: Path):
    digests: list[list[str]] = []
    for folder in ("first", "second"):
        config = trace.Trace(
            corpus=corpus,
            output=tmp_path / folder,
            problem="regalloc-eviction",
            module_filter="good",
            key_filter="hot$",
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        )
        found = trace.run(config)
        assert (found["modules"], found["scored_keys"]) == (1, 1)
        again = trace.run(config)
        assert again == found
        files = [tmp_path / folder / "logs" / "good.log", tmp_path / folder / "performance.csv"]
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])
    assert digests[0] == digests[1]

"""Policies of inlining are learned and judged at any level, also where a plugin leaves modules to LLVM."""

import dataclasses
from pathlib import Path

import pytest
from tests.llvm.conftest import SOURCE, CorpusOf

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import evaluate, trace, train
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.learning.settings import Learning
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm

NOTE = "are not compiled for size (-Os or -Oz): the policy decides in them here, but a plugin does so only with"


@pytest.fixture(scope="module")
def fast_corpus(corpus_of: CorpusOf) -> Path:
    """Three modules at -O2."""
    return corpus_of("fast", {f"m{number}": SOURCE.replace("NUMBER", str(number)) for number in range(3)}, "-O2")


def test_an_o2_corpus_is_traced(toolchain: Toolchain, fast_corpus: Path, tmp_path: Path):
    said: list[str] = []
    config = trace.Trace(
        corpus=fast_corpus,
        output=tmp_path / "traces",
        tfrecord=tmp_path / "x.tfrecord",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )
    found = trace.run(config, report=lambda _done, _total, label: said.append(label))
    assert (found["modules"], found["succeeded"]) == (3, 3)
    assert found["decisions"] == found["written_observations"] > 3 * 3
    assert any(label.startswith(f"3 of 3 modules {NOTE}") for label in said)


def test_the_heuristic_that_is_asked_makes_what_llvm_makes(fast_corpus: Path, here: ClangCompiler, tmp_path: Path):
    module = load_corpus(fast_corpus).modules[0]
    use = PluginUse(policies={INLINE_SIZE.name: ":default"}, logs=(INLINE_SIZE.name,))
    plain, asked = tmp_path / "plain.o", tmp_path / "asked.o"
    assert here.compile(module, CompileRequest(keep_object=plain)).ok
    assert here.compile(module, CompileRequest(use=use)).decision_count == 0
    done = here.compile(module, CompileRequest(use=dataclasses.replace(use, any_level=True), keep_object=asked))
    assert done.decision_count > 3
    assert asked.read_bytes() == plain.read_bytes()


def test_an_o2_corpus_trains_inlining(toolchain: Toolchain, fast_corpus: Path, tmp_path: Path):
    done = train.run(
        train.Train(
            corpus=fast_corpus,
            output=tmp_path / "out",
            algorithm="effect-regression",
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
            learning=Learning(
                iterations=1,
                validation_share=0.2,
                setting=("modules=2", "fit.epochs=2", "fit.members=2", "most_decisions=0"),
            ),
        )
    )
    assert done.learned.left_out == {}
    assert done.learned.counters.failed == 0
    assert done.policy.is_file()


def test_a_policy_is_judged_on_an_o2_corpus(
    toolchain: Toolchain, fast_corpus: Path, never_policy: Path, capsys: pytest.CaptureFixture[str]
):
    said: list[str] = []
    found = evaluate.run(
        evaluate.Evaluate(
            corpus=fast_corpus,
            projects=("m0", "m1"),
            policy=(str(never_policy),),
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        ),
        report=lambda _done, _total, label: said.append(label),
    )
    assert all(project.before != project.after for project in found.projects)
    assert any(label.startswith(f"2 of 2 modules {NOTE}") for label in said)

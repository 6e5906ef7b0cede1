"""Driving an LLVM in development mode: a fake clang takes its options and writes its logs, byte by byte."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest
from tests.compiler.test_compile import CODE_BYTES, object_bytes
from tests.traces.test_development_log import eviction_log, inlining_log

from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.development import DevelopmentCompiler, development_options
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.sandbox import Sandbox
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.learning.trace import select, trace_modules, write_training_set
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE, PASS_SELECTION, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.testing import toy_source
from mlgokit.traces import read_log
from mlgokit.traces.training_set import iter_training_set

# What LLVM does with the words, and nothing else: it refuses those that it does not know, and asks for a model's files.
FAKE = f"""#!{sys.executable}
import json, pathlib, shutil, sys
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
(here / "words").write_text("\\n".join(words))
known = json.loads((here / "known.json").read_text())
given = [words[place + 1].partition("=") for place, word in enumerate(words) if word == "-mllvm"]
for name, _, value in given:
    if name not in known:
        sys.exit(f"clang (LLVM option parsing): Unknown command line argument '{{name}}={{value}}'.  Try: --help")
values = {{name: value for name, _, value in given}}
for mode, (log, model, decision) in json.loads((here / "modes.json").read_text()).items():
    if values.get(mode) != "development":
        continue
    if model in values:
        folder = pathlib.Path(values[model])
        (folder / "model.tflite").read_bytes()
        first = json.loads((folder / "output_spec.json").read_text())[0]
        if first["logging_name"] != decision:
            sys.exit("error: the first output must be the decision")
    shutil.copy(here / (mode + ".log"), values[log])
if (here / "fails").exists():
    sys.exit("error: bad module")
shutil.copy(here / "object.o", words[words.index("-o") + 1])
"""
MODES = {
    "-enable-ml-inliner": ("-training-log", "-ml-inliner-model-under-training", "inlining_decision"),
    "-regalloc-enable-advisor": ("-regalloc-training-log", "-regalloc-model", "index_to_evict"),
    "-regalloc-enable-priority-advisor": ("-regalloc-priority-training-log", "-regalloc-priority-model", "priority"),
}


@pytest.fixture
def module(tmp_path: Path) -> Module:
    return toy_source("module", bitcode=tmp_path / "module.bc", command_line=("-cc1", "-Oz"))


@pytest.fixture
def compiler(tmp_path: Path) -> DevelopmentCompiler:
    clang = tmp_path / "clang"
    clang.write_text(FAKE)
    clang.chmod(0o755)
    (tmp_path / "object.o").write_bytes(object_bytes())
    (tmp_path / "-enable-ml-inliner.log").write_bytes(inlining_log(scored=False))
    (tmp_path / "-regalloc-enable-advisor.log").write_bytes(eviction_log())
    (tmp_path / "-regalloc-enable-priority-advisor.log").write_bytes(b"")
    (tmp_path / "modes.json").write_text(json.dumps(MODES))
    (tmp_path / "known.json").write_text(json.dumps([*MODES, *(name for mode in MODES.values() for name in mode[:2])]))
    toolchain = Toolchain(major=24, version="24.0.0", clang=clang, clangxx=clang)
    return DevelopmentCompiler(clang=ClangCompiler(toolchain=toolchain))


def a_model(folder: Path, decision: str) -> Path:
    folder.mkdir()
    (folder / "model.tflite").write_bytes(b"TFL3")
    (folder / "output_spec.json").write_text(json.dumps([{"logging_name": decision}]))
    return folder


def test_logs_are_llvms_own(compiler: DevelopmentCompiler, module: Module, tmp_path: Path):
    kept = tmp_path / "kept.log"
    use = PluginUse(logs=(INLINE_SIZE.name, REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name))

    done = compiler.compile(module, CompileRequest(use=use, keep="log", keep_logs={INLINE_SIZE.name: kept}))

    assert (done.status, done.reason) == (CompileStatus.OK, "")
    assert done.measured.llvm_size_text == CODE_BYTES
    # No priority was asked for, and LLVM leaves an empty file.
    assert {name: log.observation_count for name, log in done.logs.items()} == {
        "inline-size": 3,
        "regalloc-eviction": 3,
    }
    assert done.decision_count == 6
    assert kept.read_bytes() == inlining_log(scored=False)
    assert read_log(kept).columns["inlining_decision"].ravel().tolist() == [39, 1039, 2039]


@pytest.mark.parametrize("problem", [INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY], ids=lambda one: one.name)
def test_a_model_is_named_as_llvm_wants_it(
    compiler: DevelopmentCompiler, module: Module, tmp_path: Path, problem: Problem
):
    name, decision = problem.name, problem.decision
    model = a_model(tmp_path / "model", decision)

    done = compiler.compile(module, CompileRequest(use=PluginUse(policies={name: str(model)}, logs=(name,))))

    assert done.ok
    words = (tmp_path / "words").read_text().splitlines()
    (mode,) = [mode for mode, (_, _, decides) in MODES.items() if decides == decision]
    assert f"{MODES[mode][1]}={model}" in words
    assert f"{mode}=development" in words
    (model / "output_spec.json").write_text(json.dumps([{"logging_name": "another"}]))
    wrong = compiler.compile(module, CompileRequest(use=PluginUse(policies={name: str(model)}, logs=(name,))))
    assert (wrong.status, wrong.reason) == (CompileStatus.FAILED, "error: the first output must be the decision")
    (model / "model.tflite").unlink()
    with pytest.raises(UsageError, match=r"found no model\.tflite; make one with `mlgokit export tflite`"):
        compiler.compile(module, CompileRequest(use=PluginUse(policies={name: str(model)})))


def test_a_plain_compilation_has_no_option(compiler: DevelopmentCompiler, module: Module, tmp_path: Path):
    assert compiler.compile(module).ok
    assert "-mllvm" not in (tmp_path / "words").read_text().splitlines()


def test_traces_of_a_corpus_are_training_sets(compiler: DevelopmentCompiler, module: Module, tmp_path: Path):
    logs, records = tmp_path / "logs", tmp_path / "set.tfrecord"
    model = str(a_model(tmp_path / "model", "index_to_evict"))

    (trace,) = trace_modules(compiler, [module], REGALLOC_EVICTION, policy=model, folder=logs, regalloc=False)

    assert trace.status is CompileStatus.OK
    assert list(trace.scores.values()) == [(CODE_BYTES, CODE_BYTES)]
    assert (logs / "module.log").read_bytes() == eviction_log()
    all_keys = select(modules="", keys="", keys_file=None, share=1.0, seed=0)
    assert write_training_set(records, [trace], REGALLOC_EVICTION, folder=logs, selection=all_keys) == 3
    (kept,) = iter_training_set(records)
    assert len(kept.contexts) == 2
    assert kept.columns["index_to_evict"].ravel().tolist() == [10, 11, 10]


def test_what_goes_wrong_is_a_record_or_a_sentence(compiler: DevelopmentCompiler, module: Module, tmp_path: Path):
    use = PluginUse(logs=(INLINE_SIZE.name,))
    (tmp_path / "-enable-ml-inliner.log").write_bytes(inlining_log(scored=False)[:-10])
    assert compiler.compile(module, CompileRequest(use=use)).status is CompileStatus.BAD_TRACE
    (tmp_path / "object.o").write_bytes(b"no object")
    assert compiler.compile(module, CompileRequest(use=use)).status is CompileStatus.BAD_OBJECT
    (tmp_path / "fails").touch()
    done = compiler.compile(module, CompileRequest(use=use))
    assert (done.status, done.reason) == (CompileStatus.FAILED, "error: bad module")
    (tmp_path / "known.json").write_text("[]")
    with pytest.raises(ToolError, match=r"expected an LLVM that was built with TFLite, found one without \(clang"):
        compiler.compile(module, CompileRequest(use=use))
    with pytest.raises(UsageError, match="use the plugin, as LLVM's development mode cannot explore"):
        compiler.compile(module, CompileRequest(use=dataclasses.replace(use, temperature=1.0)))
    with pytest.raises(UsageError, match="only the plugin has"):
        development_options(PASS_SELECTION, tmp_path / "log", HEURISTIC)


def test_a_sandbox_is_refused(compiler: DevelopmentCompiler):
    boxed = dataclasses.replace(compiler.clang, sandbox=Sandbox.__new__(Sandbox))
    with pytest.raises(UsageError, match="expected a corpus that was made on this machine"):
        DevelopmentCompiler(clang=boxed)


def test_no_word_of_ours_reaches_the_compiler(
    compiler: DevelopmentCompiler, module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLGOKIT_POLICY", ":never")
    script = (
        (tmp_path / "clang")
        .read_text()
        .replace(
            "words = sys.argv[1:]",
            "import os; words = sys.argv[1:]\nassert not [name for name in os.environ if name.startswith('MLGOKIT_')]",
            1,
        )
    )
    (tmp_path / "clang").write_text(script)
    assert os.environ["MLGOKIT_POLICY"]
    assert compiler.compile(module, CompileRequest(use=PluginUse(logs=(INLINE_SIZE.name,)))).ok

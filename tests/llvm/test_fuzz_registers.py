"""Random register allocation: a few compilations of ``benchmarks/fuzz_registers.py``, by the plugin and over pipes."""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.pressure import MIX

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("pipes", [0.0, 1.0])
def test_drawn_decisions_are_legal_and_make_an_object(
    toolchain: Toolchain,
    corpus_of: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pipes: float,
):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    fuzz = importlib.import_module("fuzz_registers")
    corpus = load_corpus(corpus_of("drawn", {"mix": MIX}))
    bench = fuzz.make_bench(toolchain, tmp_path, np.random.default_rng(1))
    config = fuzz.FuzzRegisters(pipes=pipes)

    found = [fuzz._one_module(config, corpus, bench, np.random.default_rng([7, seed])) for seed in range(4)]

    assert [one["sentence"] for one in found] == [""] * 4
    assert {one["outcome"] for one in found} == {"ok"}
    assert {one["channel"] for one in found} == {"pipes" if pipes else "plugin"}
    assert any(one["decisions"] > 0 for one in found)

"""Real compilers that something happens to, as benchmarks/faults.py tries it hundreds of times."""

import importlib
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("faults")


@pytest.fixture
def place(faults: ModuleType, toolchain: Toolchain, plugin: Path) -> Generator[Any]:
    with faults.make_place(toolchain, plugin, timeout_seconds=60) as made:
        yield made


@pytest.mark.parametrize("channel", ["plugin", "pipes"])
def test_a_kill_at_any_instant_is_a_sentence_and_leaves_nothing(faults: ModuleType, place: Any, channel: str):
    rows = faults.kill_often(place, channel, 4, np.random.default_rng(3), lambda _: None)

    assert sum(row[-1] for row in rows) == 4
    for _, _, status, sentence, left, _ in rows:
        assert status == "OK" or "signal" in sentence
        assert "mlgokit" not in left


def test_pipes_that_are_gone_are_a_sentence(faults: ModuleType, place: Any):
    inbound, outbound = faults.without_pipes(place)

    gone = "expected the two pipes that the compiler was to open, found them gone"
    if inbound[2] == "FAILED":
        assert inbound[3].endswith("channel regalloc-eviction: its pipes were removed")
    else:
        # A busy machine starts the compiler so late that the missing pipe is seen first.
        assert inbound[2] == "LOST"
        assert gone in inbound[3]
    assert outbound[2] == "LOST"
    assert gone in outbound[3]

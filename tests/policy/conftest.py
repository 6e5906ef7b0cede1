"""TFLite models for tests of what reads them, made by code."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``benchmarks/made_models.py``: ``inline_model``, ``eviction_model`` and what belongs to them."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("made_models")

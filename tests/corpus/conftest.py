"""Object files for tests of readers, made by hand."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``benchmarks/made_objects.py``: ``make_elf``, ``make_mach_o``, ``make_coff``."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("made_objects")

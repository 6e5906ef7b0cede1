"""The benchmark of advice: builds as released, and what counts as wrong in its tables."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def row(**built: dict[str, int]) -> dict[str, Any]:
    sizes = {"plain": (100, 10, 500), "advised": (60, 10, 300), "shipped": (55, 10, 290)}
    promised = {side: dict(zip(("text", "data", "file"), found, strict=True)) for side, found in sizes.items()}
    return {
        "advised": {"app": promised},
        "built": {"app": promised | built},
        "options": {"advised": {"compile": ["-Oz"], "link": ["-Wl,--gc-sections"]}},
        "flags": ["Oz", "gc-sections"],
        "alone": {},
        "notes": [],
        "runs": 1,
        "same_output": True,
    }


def test_a_project_as_released_has_places_for_all_options(benchmark: Callable[[str], ModuleType]):
    module, known = benchmark("advice"), benchmark("promise_projects").promised_projects()
    words = module.as_released(known["lua"]).build
    assert words == (
        "make -C src -j{jobs} lua luac CC={cc} CFLAGS='-O2 -DLUA_COMPAT_5_3 -DLUA_USE_POSIX {plugin}' LDFLAGS='{link}'",
    )
    assert "LDFLAGS='{link}'" in module.as_released(known["mawk"]).build[0]
    for project in known.values():
        assert not any(
            word in " ".join(module.as_released(project).build) for word in ("-Oz", "-Os", "-fdata-sections")
        )


def test_bytes_that_differ_from_what_was_said_are_counted(benchmark: Callable[[str], ModuleType]):
    module, known = benchmark("advice"), benchmark("promise_projects").promised_projects()
    alone = {flag.name: {"state": "smaller", "change": -0.1} for flag in module.FLAGS}
    alone["Os"] = {"state": "not tried", "change": None}
    alone["lld"] = {"state": "already there", "change": None}
    alone["no-rtti"] = {"state": "does not build", "change": None}
    good, bad = row() | {"alone": alone}, row(advised={"text": 61, "data": 10, "file": 302}) | {"alone": alone}
    found = module.result_of([(known["lzip"], good), (known["lua"], bad)], seconds=5)
    assert not found.passed
    assert found.answer.startswith("2 of 2 projects, 2 programs: 1 not as advised; 0 projects are larger, 0 behave")
    projects, singles, programs, *_ = found.tables
    assert [cells[-3:] for cells in programs.rows] == [(0, 0, 0), (0, 3, 0)]
    assert projects.rows[0][3:7] == ("Oz, gc-sections", "-36.36 %", "-7.14 %", "yes")
    cells = dict(zip(singles.columns, singles.rows[0], strict=True))
    assert (cells["Os"], cells["lld"], cells["no-rtti"], cells["Oz"]) == ("-", "=", "x", "-10.00 %")
    assert module.result_of([(known["lzip"], good)], seconds=5).passed
    assert not module.result_of([(known["lzip"], {"failure": "no"})], seconds=5).passed

"""The plugin's C++ files: folders depend on each other in one direction, files not in a circle, and none is long."""

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from importlib import resources
from pathlib import Path

import pytest

SOURCES = Path(str(resources.files("mlgokit"))) / "plugin"
FILES = sorted(path for path in SOURCES.rglob("*") if path.is_file())
MAY_INCLUDE: Mapping[str, set[str]] = {
    "": {"inliner", "regalloc", "passes", "reuse", "trials", "identity", "shared", "majors"},
    "inliner": {"identity", "shared", "majors"},
    "regalloc": {"trials", "shared", "majors"},
    "passes": {"trials", "identity", "shared", "majors"},
    "trials": {"shared", "majors"},
    "reuse": {"identity", "shared", "majors"},
    "identity": {"shared", "majors"},
    "shared": set(),
    "majors": set(),
}


def includes(path: Path) -> list[str]:
    """What a file includes of the plugin, by path from the plugin's folder."""
    found = re.findall(r'^#include "(.*)"', path.read_text(), flags=re.MULTILINE)
    return [name for name in found if not name.startswith("llvm/")]


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_a_file_includes_only_what_its_folder_may(path: Path):
    own = folder_of(str(path.relative_to(SOURCES)))

    assert [name for name in includes(path) if not (SOURCES / name).is_file()] == []
    assert {folder_of(name) for name in includes(path)} <= MAY_INCLUDE[own] | {own}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_a_file_is_short_and_a_header_begins_with_its_job(path: Path):
    text = path.read_text()

    assert path.suffix in {".cpp", ".h"}
    assert len(text.splitlines()) <= 400
    if path.suffix == ".h":
        guard = re.sub(r"\W", "_", f"MLGOKIT_{path.relative_to(SOURCES)}").upper()
        assert re.match(rf"(// .+\n|//\n)+#ifndef {guard}\n#define {guard}\n", text)


def test_no_two_files_need_each_other():
    """A ``.cpp`` and its header are one: what either includes, both need."""
    needs: dict[str, set[str]] = {}
    for path in FILES:
        unit = str(path.relative_to(SOURCES).with_suffix(""))
        needs.setdefault(unit, set()).update(name.removesuffix(".h") for name in includes(path))
        needs[unit].discard(unit)

    assert set(TopologicalSorter(needs).static_order()) == set(needs)


def test_only_one_folder_knows_the_majors_of_llvm():
    knowing = {folder_of(str(path.relative_to(SOURCES))) for path in FILES if "LLVM_VERSION_MAJOR " in path.read_text()}

    assert knowing == {"majors"}

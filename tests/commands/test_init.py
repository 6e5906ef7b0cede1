"""The settings that ``mlgokit init`` writes for each kind of project."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from mlgokit.cli import run_command
from mlgokit.commands.init import Init
from mlgokit.commands.project_kind import recognize_project
from mlgokit.commands.settings import find_settings
from mlgokit.errors import UsageError

CMAKE = "project(a)\nenable_testing()\n"
PRESETS = """{"configurePresets": [{"name": "base", "hidden": true},
{"name": "dev", "cacheVariables": {"CMAKE_BUILD_TYPE": "Debug"}},
{"name": "ship", "cacheVariables": {"CMAKE_BUILD_TYPE": {"value": "Release"}}}]}"""
OTHER_SYSTEMS = """{"configurePresets": [
{"name": "windows", "hidden": true, "condition": {"type": "equals", "lhs": "${hostSystemName}", "rhs": "Windows"}},
{"name": "studio", "generator": "Visual Studio 17 2022", "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}},
{"name": "win", "inherits": "windows", "cacheVariables": {"CMAKE_BUILD_TYPE": "MinSizeRel"}},
{"name": "mac", "condition": {"type": "inList", "string": "${hostSystemName}", "list": ["Darwin"]}},
{"name": "never", "condition": false},
{"name": "dev", "cacheVariables": {"CMAKE_BUILD_TYPE": "Debug"}},
{"name": "fast", "hidden": true, "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}},
{"name": "for ship", "inherits": ["fast", "dev"], "cacheVariables": {"A": "1"},
"condition": {"type": "notEquals", "lhs": "${hostSystemName}", "rhs": "Windows"}}]}"""
MAKE = "CFLAGS = -O2 -Wall # for speed\nall: a\nclean:\n\trm -f a\ntest: a\n\t./a\n"
PARALLEL = "cmake --build build-mlgokit --parallel 4"
CTEST = ["ctest --test-dir build-mlgokit --output-on-failure"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"CMakeLists.txt": CMAKE, "Makefile": MAKE},
            {"build": ["cmake -S . -B build-mlgokit -DCMAKE_BUILD_TYPE=MinSizeRel", PARALLEL], "test": CTEST},
        ),
        (
            {"CMakeLists.txt": CMAKE, "CMakePresets.json": PRESETS},
            {
                "build": ["cmake --preset ship -B build-mlgokit -DCMAKE_BUILD_TYPE=MinSizeRel", PARALLEL],
                "test": CTEST,
            },
        ),
        (
            {"CMakeLists.txt": "project(a)", "CMakePresets.json": OTHER_SYSTEMS},
            {"build": ["cmake --preset 'for ship' -B build-mlgokit -DCMAKE_BUILD_TYPE=MinSizeRel", PARALLEL]},
        ),
        (
            {"meson.build": "project('a', 'c')\n", "tests/meson.build": "test('a', a)\n"},
            {
                "build": ["meson setup build-mlgokit --buildtype=minsize", "meson compile -C build-mlgokit -j 4"],
                "test": ["meson test -C build-mlgokit"],
            },
        ),
        ({"Cargo.toml": "[package]\nname = 'a'\n"}, {"cargo": "cargo build --release"}),
        (
            {"configure": "", "Makefile.in": "check:\n"},
            {"build": ["./configure CFLAGS=-Os CXXFLAGS=-Os", "make -j4"], "test": ["make check"]},
        ),
        (
            {"configure.ac": "AC_INIT", "Makefile.am": "bin_PROGRAMS = a"},
            {
                "build": ["autoreconf -fi", "./configure CFLAGS=-Os CXXFLAGS=-Os", "make -j4"],
                "test": ["make check"],
            },
        ),
        (
            {"Makefile": MAKE},
            {"build": ["make -i clean", "make -j4 'CFLAGS=-Os -Wall'"], "test": ["make test 'CFLAGS=-Os -Wall'"]},
        ),
        (
            {"makefile": "CFLAGS ?= -g\n#CFLAGS += -O2\nCFLAGS+=-O3 -std=c11\nall: a\n"},
            {"build": ["make -j4 'CFLAGS=-g -Os -std=c11'"]},
        ),
        ({"GNUmakefile": "CFLAGS = -Oz\nall:\n"}, {"build": ["make -j4"]}),
        (
            {"Makefile": "CFLAGS = -O2 \\\n  -Wall # all\nall: a\n", "a.c": ""},
            {"build": ["make -j4 'CFLAGS=-Os -Wall'"]},
        ),
        ({"Makefile": "all: a\n"}, {"build": ["make -j4 CFLAGS=-Os CXXFLAGS=-Os"]}),
        ({"out/compile_commands.json": "[]"}, {"compile-commands": "out/compile_commands.json"}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_what_is_written(
    files: dict[str, str], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    result = run_command(Init(folder=tmp_path))
    values = tomllib.loads(result.file.read_text())
    assert {key: value for key, value in values.items() if key not in {"tune", "check"}} == expected
    assert (values["tune"]["output"], values["check"]["plugin"]) == ("tuned.so", "tuned.so")
    found = find_settings(tmp_path)
    assert found is not None
    assert found.values == values
    before = result.file.read_bytes()
    with pytest.raises(UsageError, match="expected no settings, found some; edit them"):
        run_command(Init(folder=tmp_path))
    assert result.file.read_bytes() == before


def test_cargo_without_fat_lto_is_told(tmp_path: Path):
    (tmp_path / "Cargo.toml").write_text("[package]\nname = 'a'\n[profile.release]\nopt-level = 's'\n")
    kind = recognize_project(tmp_path, jobs=1)
    assert kind is not None
    assert kind.notes == ('add lto = "fat" to [profile.release] of Cargo.toml: tune changes programs with fat LTO',)


def test_cargo_that_is_not_built_for_size_is_told(tmp_path: Path):
    (tmp_path / "Cargo.toml").write_text("[package]\nname = 'a'\n[profile.release]\nlto = true\n")
    kind = recognize_project(tmp_path, jobs=1)
    assert kind is not None
    assert kind.notes == ('add opt-level = "z" to [profile.release] of Cargo.toml: level "z" builds for size',)
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/config.toml").write_text("[profile.release]\nopt-level = 's'\n")
    kind = recognize_project(tmp_path, jobs=1)
    assert kind is not None
    assert kind.notes == ()


def test_a_folder_of_nothing_is_refused(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    with pytest.raises(UsageError, match=r"expected CMakeLists.txt, meson.build, .*, found none"):
        run_command(Init(folder=tmp_path))
    (tmp_path / "pyproject.toml").write_text("[tool.mlgokit]\n")
    with pytest.raises(UsageError, match="expected a project without settings, found those of"):
        run_command(Init(folder=tmp_path))
    assert not (tmp_path / "mlgokit.toml").exists()

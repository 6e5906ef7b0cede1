"""Which clang compiles a build."""

import dataclasses
import json
from pathlib import Path

import pytest

from mlgokit.builds import compilers
from mlgokit.builds.compilers import CompilerOptions, toolchain_of_build
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, SUPPORTED_MAJORS, Toolchain
from mlgokit.errors import ToolError
from mlgokit.testing import FAKE_TOOLCHAIN

INSTALLED = (22, 19)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch):
    def find(major: int | None = None, *, need_plugin: bool) -> Toolchain:
        if need_plugin and major not in {None, *SUPPORTED_MAJORS}:
            raise ToolError(f"no plugin for {major}")
        if major not in {None, *INSTALLED}:
            raise ToolError(f"no {major}")
        return dataclasses.replace(FAKE_TOOLCHAIN, major=major or INSTALLED[0])

    monkeypatch.setattr(compilers, "find_toolchain", find)
    for name in ("CC", "CXX", LOCATION_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def written(folder: Path, *programs: str) -> Path:
    entries = [
        {"directory": str(folder), "file": f"{index}.c", "arguments": [program, "-Oz", "-c", f"{index}.c"]}
        for index, program in enumerate(programs)
    ]
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize(
    ("programs", "major"),
    [
        (("/opt/none/clang-19", "/opt/none/clang++-19", "/opt/none/clang-22"), 19),
        (("/opt/none/clang-22", "/opt/none/clang-19", "/opt/none/clang-22"), 22),
        # Not installed, not for the plugin, no clang, and no command.
        (("/opt/none/clang-21", "/opt/none/clang-21", "/opt/none/clang-19"), 19),
        (("/opt/none/clang-17", "/opt/none/gcc-12"), 22),
        ((), 22),
    ],
)
def test_the_clang_of_a_database_is_that_of_most_of_its_commands(tmp_path: Path, programs: tuple[str, ...], major: int):
    database = written(tmp_path, *programs)
    assert toolchain_of_build(CompilerOptions(), database=database, commands=()).major == major
    assert toolchain_of_build(CompilerOptions(llvm=22), database=database, commands=()).major == 22


def test_the_clang_of_build_commands_is_what_they_or_the_environment_name(monkeypatch: pytest.MonkeyPatch):
    def major(*commands: str) -> int:
        return toolchain_of_build(CompilerOptions(), database=None, commands=commands).major

    assert major("make -j2 CC='/opt/none/clang-19 -m32'") == 19
    assert major("cmake -B b -DCMAKE_CXX_COMPILER:STRING=/opt/none/clang++-19", "cmake --build b") == 19
    assert major("make", "echo /opt/none/clang-19") == 22
    monkeypatch.setenv("CC", " ")
    assert major("make CC=' '", """make CC='"clang' CXX=/opt/none/clang++-19""", "make 'x") == 19
    monkeypatch.setenv("CC", '"clang')
    assert major("make") == 22
    monkeypatch.setenv("CXX", "ccache /opt/none/clang++-19")
    assert major("make") == 19
    monkeypatch.setenv(LOCATION_VARIABLE, "/opt/none")
    assert major("make") == 22

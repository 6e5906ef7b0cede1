"""One check for each source file of the plugin, as LLVM tests itself: RUN lines, and FileCheck reads their output.

A line ``RUN[aarch64]:`` is for compilers that generate code for that processor.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Generator
from importlib import resources
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import cxx_library_options
from mlgokit.compiler.prebuilt import DIALECT
from mlgokit.compiler.toolchain import Toolchain, apt_command, apt_packages, find_toolchains

SOURCES = Path(str(resources.files("mlgokit"))) / "plugin"
CHECKS = Path(__file__).parent / "plugin"
NAMES = sorted(
    str(path.relative_to(CHECKS).with_suffix("")) for path in CHECKS.glob("**/*.ll") if "Inputs" not in path.parts
)


def test_every_source_file_has_its_check():
    assert sorted(str(path.relative_to(SOURCES).with_suffix("")) for path in SOURCES.rglob("*.cpp")) == NAMES


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Words that run a command of ``tool.py``, in a process that has imported what it takes."""
    path = tmp_path_factory.mktemp("tool") / "socket"
    # A process with threads is not to be forked.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, CHECKS / "tool.py", "serve", path]
    # In a session of its own no signal to the group of this process ends it.
    with subprocess.Popen(words, env=environment, start_new_session=True) as server:
        try:
            end = time.monotonic() + 60
            while not path.exists():
                assert server.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)
            yield shlex.join([sys.executable, "-I", "-S", str(CHECKS / "ask.py"), str(path)])
        finally:
            server.kill()


def folder_of_file_check() -> Path:
    """Debian's llvm-NN-dev brings FileCheck, not and count, which are alike for all majors, to the folder of clang."""
    found = [one.clang.parent for one in find_toolchains() if (one.clang.parent / "FileCheck").is_file()]
    if not found:
        pytest.skip(f"FileCheck: expected it beside a clang, found none; {apt_command(*apt_packages(22))}")
    return found[0]


@pytest.mark.llvm
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_source_includes_what_it_needs(name: str, toolchain: Toolchain):
    """The build gives each source what ``Precompiled.h`` includes, and so does not notice."""
    words = ["-fsyntax-only", *DIALECT, *cxx_library_options(toolchain.cxx_library), "-iquote", SOURCES]
    argv = [toolchain.clangxx, *words, "-isystem", toolchain.include_dir or "", SOURCES / f"{name}.cpp"]
    done = process.run(argv, timeout_seconds=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.llvm
@pytest.mark.every_major
@pytest.mark.parametrize("name", NAMES)
def test_the_file_does_its_job(
    name: str,
    toolchain: Toolchain,
    plugin: Path,
    tool: str,
    size_level: str,
    targets: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
):
    check = CHECKS / f"{name}.ll"
    values = {
        "%plugin": plugin,
        "%tool": tool,
        "%Oz": size_level,
        "%S": check.parent,
        "%s": check,
        "%t": tmp_path / "t",
    }
    found = re.findall(r"^; RUN(?:\[(\w+)\])?: (.*)$", check.read_text(), flags=re.MULTILINE)
    lines = [line for target, line in found if not target or target in targets]
    commands = [re.sub("%plugin|%tool|%Oz|%S|%s|%t", lambda found: str(values[found[0]]), line) for line in lines]
    for name_of_tool in sorted({"opt", "llc"} & {word for line in lines for word in shlex.split(line)}):
        request.getfixturevalue(name_of_tool)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
    folders = (toolchain.clang.parent, folder_of_file_check(), environment["PATH"])
    environment["PATH"] = os.pathsep.join(map(str, folders))

    for command in commands:
        done = process.run(
            ["bash", "-o", "pipefail", "-c", command], timeout_seconds=120, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

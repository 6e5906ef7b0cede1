"""The recipes of docs/how-to/tune.md and recipes.md, word for word: small projects are built and use the decisions."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.calls import ended

from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.pretrained import policy_files

pytestmark = pytest.mark.llvm

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "how-to" / "tune.md"
TABLE = ROOT / "docs" / "how-to" / "recipes.md"
FILES = ROOT / "examples" / "recipes"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = ("-Oz", "-DNDEBUG", "-ffunction-sections", "-fdata-sections")
SOURCES = ("part1.cc", "part2.c")

# LLVM's heuristic takes the calls of `say` for as large as their bodies, and they are smaller.
SOURCE = """
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif
extern const char firstNUMBER[], secondNUMBER[], thirdNUMBER[];
void emitNUMBER(const char *text) { puts(text); }
void sayNUMBER_1(int unused) { (void)unused; emitNUMBER(firstNUMBER); }
void sayNUMBER_2(int unused) { (void)unused; emitNUMBER(secondNUMBER); }
void sayNUMBER_3(int unused) { (void)unused; emitNUMBER(thirdNUMBER); }
void partNUMBER(void) { CALLS }
const char firstNUMBER[] = "aNUMBER", secondNUMBER[] = "b", thirdNUMBER[] = "c";
#ifdef __cplusplus
}
void part2() asm("part2");
int main() { part1(); part2(); }
#endif
"""
PROJECTS = {
    "CMakeLists.txt": """
        cmake_minimum_required(VERSION 3.13)
        project(parts C CXX)
        add_executable(parts part1.cc part2.c)
    """,
    "meson.build": """
        project('parts', 'c', 'cpp')
        executable('parts', 'part1.cc', 'part2.c')
    """,
    "conanfile.py": """
        from conan import ConanFile
        from conan.tools.cmake import CMake
        class Parts(ConanFile):
            name, version, exports_sources = "parts", "1.0", ("CMakeLists.txt", "part*")
            settings = "os", "arch", "compiler", "build_type"
            generators = "CMakeToolchain"
            def build(self):
                cmake = CMake(self)
                cmake.configure()
                cmake.build()
    """,
    "Makefile": """
        parts: part1.o part2.o
        \t$(CXX) part1.o part2.o -o parts
        part1.o: part1.cc
        \t$(CXX) $(CXXFLAGS) -c part1.cc -o part1.o
        part2.o: part2.c
        \t$(CC) $(CFLAGS) -c part2.c -o part2.o
        clean:
        \trm -f parts *.o
    """,
    # What the document has for the top of the file stands above this.
    "build.ninja": """
        rule cxx
          command = clang++-22 $flags -c $in -o $out
        rule cc
          command = clang-22 $flags -c $in -o $out
        rule link
          command = clang++-22 $in -o $out
        build part1.o: cxx part1.cc
        build part2.o: cc part2.c
        build parts: link part1.o part2.o
    """,
}
RECIPES = {
    "CMake: the flags": ("cmake", "ninja"),
    "CMake: a toolchain file": ("cmake", "make"),
    "Meson": ("meson", "ninja"),
    "Make and autotools": ("make",),
    "Ninja, by hand": ("ninja",),
}
# Rows of the table of recipes.md, with what they start.
ROWS = {
    "CMake, a preset": ("cmake", "make"),
    "CMake, a toolchain file": ("cmake", "make"),
    "Meson, a native file": ("meson", "ninja"),
    "vcpkg, a triplet": ("cmake", "make"),
    "Conan, a profile": ("conan", "cmake", "make"),
}
NOT_RUN = ("Bazel, a configuration", "Nix, an overlay", "Yocto, a class", "Zephyr, a module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """What tuning made of the small project: bytes of its objects by name of the source, plain and with the plugin."""

    plugin: Path
    plain: dict[str, int]
    tuned: dict[str, int]


def section(title: str) -> str:
    """What the document has below a heading."""
    text = DOCUMENT.read_text()
    begin = text.index(f"\n### {title}\n")
    return text[begin : text.find("\n##", begin + 5)]


def put_project(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(SOURCES, 1):
        calls = " ".join(f"sayNUMBER_{1 + index % 3}(0);" for index in range(24))
        (folder / name).write_text(SOURCE.replace("CALLS", calls).replace("NUMBER", str(number)))
    for name, text in PROJECTS.items():
        (folder / name).write_text(textwrap.dedent(text))


@pytest.fixture(scope="module")
def small(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Small:
    top = tmp_path_factory.mktemp(f"recipes-{toolchain.major}")
    folder = top / "project"
    put_project(folder)
    clang = {".cc": toolchain.clangxx, ".c": toolchain.clang}

    def compiled(name: str, *more: str) -> int:
        argv = [clang[Path(name).suffix], *OPTIONS, *more, "-c", name, "-o", f"{name}.o"]
        done = process.run(argv, cwd=folder, timeout_seconds=60)
        assert done.returncode == 0, done.stderr
        return measure_object(folder / f"{name}.o").llvm_size_text

    entries = [
        {"directory": str(folder), "file": name, "arguments": ["clang", *OPTIONS, "-c", name]} for name in SOURCES
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    plugin = top / "tuned.so"
    (command,) = {line for line in section("Meson").splitlines() if line.startswith("mlgokit ")}
    given = {"build/compile_commands.json": str(folder / "compile_commands.json"), "30m": "1s", "tuned.so": str(plugin)}
    words = [given.get(word, word) for word in command.split()[1:]]
    assert ended(*words, "--folder", top / "tune", "--llvm", toolchain.major, "--workers", 1) == 0
    plain = {name: compiled(name) for name in SOURCES}
    tuned = {name: compiled(name, f"-fpass-plugin={plugin}") for name in SOURCES}
    assert all(tuned[name] < plain[name] for name in SOURCES)
    return Small(plugin=plugin, plain=plain, tuned=tuned)


def skip_without(programs: Iterable[str]) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.fixture
def project(toolchain: Toolchain, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project, in which the compilers of the recipes are this one, and the search has been made."""
    folder = tmp_path / "project"
    put_project(folder)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "clang-22").symlink_to(toolchain.clang)
    (programs / "clang++-22").symlink_to(toolchain.clangxx)
    # Here the database must be there, and the plugin comes.
    (programs / "mlgokit").write_text(
        f'#!/bin/sh\ntest "$1" = corpus && exec {sys.executable} -m mlgokit "$@"\n'
        f'test -s "$3" && cp "$3" database && cp -P {small.plugin} {small.plugin.resolve()} .\n'
    )
    (programs / "mlgokit").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return folder


def run(script: str, folder: Path) -> None:
    done = process.run(["sh", "-e", "-c", script], cwd=folder, timeout_seconds=120)
    assert done.returncode == 0, f"{done.stdout.decode()}{done.stderr}"


def sizes(built: Path) -> dict[str, int]:
    """Bytes of the objects in a folder, by the name of their source."""
    objects = [*built.rglob("*.o")]
    return {
        name: measure_object(path).llvm_size_text
        for name in SOURCES
        for path in objects
        if Path(name).stem in path.name
    }


def check_program(built: Path) -> None:
    """The program of the small project does what it should."""
    (program,) = (path for path in built.rglob("parts") if path.is_file())
    done = process.run([program], timeout_seconds=10)
    assert done.stdout.decode().split() == ["a1", "b", "c"] * 8 + ["a2", "b", "c"] * 8


def put_undecided(toolchain: Toolchain, folder: Path) -> None:
    """Put a plugin in place of the tuned one that decides as LLVM does."""
    export_plugin(toolchain, policy_files(["builtin:size"]), folder / "tuned.so", doubt=1e9)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_builds_with_the_decisions(title: str, toolchain: Toolchain, small: Small, project: Path):
    skip_without(RECIPES[title])
    scripts: list[str] = []
    text = section(title)
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        if kind == "sh":
            scripts.append(body)
        elif kind == "ninja":
            (project / "build.ninja").write_text(body + (project / "build.ninja").read_text())
        else:
            name = re.findall(r"`([\w.]+)`", text[: block.start()])[-1]
            (project / name).write_text(body)
    assert len(scripts) == 2
    for script in scripts:
        run(script, project)
    (project / "database").rename(project / "compile_commands.json")
    commands = list(read_compile_commands(project / "compile_commands.json"))
    assert sorted(one.file.name for one in commands if isinstance(one, CompileCommand)) == sorted(SOURCES)
    built = project / "release" if (project / "release").is_dir() else project
    assert sizes(built) == small.tuned
    check_program(built)
    # What must be clean is cleaned by the recipe.
    put_undecided(toolchain, project)
    again = scripts[1].replace("meson setup", "meson setup --wipe")
    run(again if title != "CMake: a toolchain file" else "cmake --build release", project)
    assert sizes(built) == small.plain


def rows() -> dict[str, tuple[list[str], str]]:
    """Files and line of each recipe of the table."""
    cells = [line.split(" | ") for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
    return {
        title.removeprefix("| "): (re.findall(r"`([^`]+)`", files), line.strip("`")) for title, files, line, _ in cells
    }


def put_recipe(project: Path, files: Iterable[str]) -> None:
    """Copy the files of a recipe, and write the plugin's place into them as a user does."""
    for name in files:
        text = (FILES / name).read_text().replace("/path/of/the/project", str(project))
        (project / name).write_text(text.replace("tuned-1a2b3c4d5e6f.plugin", (project / "tuned.so").resolve().name))


def line_of(title: str, line: str) -> str:
    """The line of a row, or what stands for it: vcpkg starts CMake with what the triplet says."""
    if title != "vcpkg, a triplet":
        return line
    text = (FILES / "x64-linux-tuned.cmake").read_text()
    (chained,) = re.findall(r"VCPKG_CHAINLOAD_TOOLCHAIN_FILE \$\{CMAKE_CURRENT_LIST_DIR\}/(.*)\)", text)
    (options,) = re.findall(r"VCPKG_CMAKE_CONFIGURE_OPTIONS (.*)\)", text)
    first = f"cmake -B release -DCMAKE_TOOLCHAIN_FILE=$PWD/{chained} -DCMAKE_BUILD_TYPE=Release {options}"
    return f"{first} && cmake --build release"


# The toolchain file is that of tune.md, and the triplet chains it.
@pytest.mark.parametrize(
    "title",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one in {"CMake, a toolchain file", "vcpkg, a triplet"} else [])
        for one in ROWS
    ],
)
def test_a_row_of_the_table_builds_with_the_decisions(
    title: str, toolchain: Toolchain, small: Small, project: Path, monkeypatch: pytest.MonkeyPatch
):
    skip_without(ROWS[title])
    # Conan builds in its cache.
    built = project / "release"
    monkeypatch.setenv("CONAN_HOME", str(built))
    files, line = rows()[title]
    if "conan" in line:
        built.mkdir()
        (built / "remotes.json").write_text('{"remotes": []}')
        run("conan profile detect", project)
    line = line_of(title, line)
    for path in (small.plugin, small.plugin.resolve()):
        shutil.copy(path, project / path.name, follow_symlinks=False)
    put_recipe(project, files)
    run(line, project)
    assert sizes(built) == small.tuned
    check_program(built)
    if "conan" in line:
        # It must build another package beside this one, as the plugin is another.
        for path in built.rglob("*.o"):
            path.unlink()
    put_undecided(toolchain, project)
    put_recipe(project, files)
    run(line.replace("meson setup", "meson setup --wipe"), project)
    assert sizes(built) == small.plain


def test_every_row_is_run_or_says_that_it_is_not():
    assert sorted(rows()) == sorted((*ROWS, *NOT_RUN))
    files = {name for one, _ in rows().values() for name in one if name != "classes"}
    assert files == {path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file()}
    assert f"```cmake\n{(FILES / 'tuned.cmake').read_text().partition(chr(10))[2]}```" in DOCUMENT.read_text()


@pytest.mark.slow  # a whole search; what it runs has tests of its own
def test_the_tutorial_ends_with_a_smaller_program(toolchain: Toolchain, project: Path):
    skip_without(["make"])
    text = (ROOT / "docs" / "tutorial.md").read_text()
    kind, body = next(BLOCK.finditer(text[text.index("\n## 5. A smaller program of your own\n") :])).groups()
    assert (kind, body.splitlines()) == ("sh", ["mlgokit init", "mlgokit tune --budget 5m"])
    for name in {*PROJECTS} - {"Makefile"}:
        (project / name).unlink()
    words = body.replace("mlgokit", f"{sys.executable} -m mlgokit").replace("5m", f"2s --llvm {toolchain.major}")
    run(words, project)
    (program,) = json.loads((project / "tune" / "tuned.json").read_text())["built"]["programs"]
    assert program["tuned"]["image"] < program["plain"]["image"]
    assert (project / "tuned.so").exists()


def test_every_recipe_is_tried():
    text = DOCUMENT.read_text()
    begin = text.index("\n## Into the build\n")
    titles = re.findall(r"^### (.*)$", text[begin : text.index("\n## ", begin + 5)], re.MULTILINE)
    assert titles == [*RECIPES, "Checked in, and in CI"]

"""The recipes of docs/how-to/tune.md, word for word: small projects are built as they say, and use the decisions."""

import os
import re
import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlgokit.cli import main
from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.pretrained import policy_files

pytestmark = pytest.mark.llvm

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "tune.md"
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

    words = [f'"{word}"' for word in OPTIONS]
    database = ",".join(
        f'{{"directory": "{folder}", "file": "{name}", "arguments": ["clang", {", ".join(words)}, "-c", "{name}"]}}'
        for name in SOURCES
    )
    (folder / "compile_commands.json").write_text(f"[{database}]")
    plugin = top / "tuned.so"
    (command,) = {line for line in section("Meson").splitlines() if line.startswith("mlgokit ")}
    given = {"build/compile_commands.json": str(folder / "compile_commands.json"), "30m": "1s", "tuned.so": str(plugin)}
    with pytest.raises(SystemExit) as ended:
        main(
            [given.get(word, word) for word in command.split()[1:]]
            + ["--folder", str(top / "tune"), "--llvm", str(toolchain.major), "--workers", "1"]
        )
    assert ended.value.code == 0
    plain = {name: compiled(name) for name in SOURCES}
    tuned = {name: compiled(name, f"-fpass-plugin={plugin}") for name in SOURCES}
    assert all(tuned[name] < plain[name] for name in SOURCES)
    return Small(plugin=plugin, plain=plain, tuned=tuned)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_builds_with_the_decisions(
    title: str, toolchain: Toolchain, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for program in RECIPES[title]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path / "project"
    put_project(folder)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "clang-22").symlink_to(toolchain.clang)
    (programs / "clang++-22").symlink_to(toolchain.clangxx)
    # The search has been made; here the database must be there, and the plugin comes.
    (programs / "mlgokit").write_text(
        f'#!/bin/sh\ntest "$1" = corpus && exec {sys.executable} -m mlgokit "$@"\n'
        f'test -s "$3" && cp "$3" database && cp -P {small.plugin} {small.plugin.resolve()} .\n'
    )
    (programs / "mlgokit").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    scripts: list[str] = []
    text = section(title)
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        if kind == "sh":
            scripts.append(body)
        elif kind == "ninja":
            (folder / "build.ninja").write_text(body + (folder / "build.ninja").read_text())
        else:
            name = re.findall(r"`([\w.]+)`", text[: block.start()])[-1]
            (folder / name).write_text(body)
    assert len(scripts) == 2

    def run(script: str) -> None:
        done = process.run(["sh", "-e", "-c", script], cwd=folder, timeout_seconds=120)
        assert done.returncode == 0, f"{done.stdout.decode()}{done.stderr}"

    for script in scripts:
        run(script)
    (folder / "database").rename(folder / "compile_commands.json")
    commands = list(read_compile_commands(folder / "compile_commands.json"))
    assert sorted(one.file.name for one in commands if isinstance(one, CompileCommand)) == sorted(SOURCES)
    built = folder / "release" if (folder / "release").is_dir() else folder

    def sizes() -> dict[str, int]:
        objects = list(built.rglob("*.o"))
        return {
            name: measure_object(path).llvm_size_text
            for name in SOURCES
            for path in objects
            if Path(name).stem in path.name
        }

    assert sizes() == small.tuned
    (program,) = (path for path in built.rglob("parts") if path.is_file())
    done = process.run([program], timeout_seconds=10)
    assert done.stdout.decode().split() == ["a1", "b", "c"] * 8 + ["a2", "b", "c"] * 8

    # One that decides as LLVM does; what must be clean is cleaned by the recipe.
    export_plugin(toolchain, policy_files(["builtin:size"]), folder / "tuned.so", doubt=1e9)
    again = scripts[1].replace("meson setup", "meson setup --wipe")
    run(again if title != "CMake: a toolchain file" else "cmake --build release")
    assert sizes() == small.plain


def test_every_recipe_is_tried():
    text = DOCUMENT.read_text()
    begin = text.index("\n## Into the build\n")
    titles = re.findall(r"^### (.*)$", text[begin : text.index("\n## ", begin + 5)], re.MULTILINE)
    assert titles == [*RECIPES, "Checked in, and in CI"]

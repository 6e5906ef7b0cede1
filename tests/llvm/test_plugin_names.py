"""A renewed plugin gives new objects where caches and build systems go by words; Meson takes none for a library."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.builds.lines import format_plugin_lines
from mlgokit.builds.site import BuildCommands
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.pretrained import policy_files

pytestmark = pytest.mark.llvm

SOURCE = """
int puts(const char *);
int sum(int x) { int s = 0; for (int i = 0; i < x; ++i) s += i + x * 3; return s; }
EXPORTED int shown(int x) { puts("a"); return sum(x) + sum(x + 2); }
"""
LIBRARY = """
project('parts', 'c', default_options: ['werror=true'])
cc = meson.get_compiler('c')
foreach word : ['-fvisibility=hidden', '-Wall', '-no-such-option']
  if cc.has_argument(word)
    add_project_arguments(word, language: 'c')
  endif
endforeach
LINE
library('parts', 'part.c')
"""
Export = Callable[..., str]


def needed(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.fixture
def export(toolchain: Toolchain, tmp_path: Path) -> Export:
    """``export(policies)``: what is printed for a plugin at the same output as before."""

    def at_the_same_output(policies: str, doubt: float | None = None) -> str:
        return export_plugin(toolchain, policy_files([policies]), tmp_path / "policy.so", doubt=doubt).flag

    return at_the_same_output


def run(words: list[str | Path], folder: Path, **variables: str) -> str:
    done = process.run(words, cwd=folder, env=os.environ | variables, timeout_seconds=60)
    assert done.returncode == 0, f"{done.stdout.decode()}{done.stderr}"
    return done.stdout.decode()


def test_a_cache_and_ninja_see_a_renewed_plugin(toolchain: Toolchain, export: Export, tmp_path: Path):
    needed("ccache", "ninja")
    (tmp_path / "part.c").write_text(SOURCE.replace("EXPORTED", ""))
    rule = f"rule cc\n  command = ccache {toolchain.clang} -Oz $flags -c $in -o $out\nbuild part.o: cc part.c\n"

    def built(flag: str) -> bytes:
        (tmp_path / "build.ninja").write_text(f"flags = {flag}\n{rule}")
        run(["ninja"], tmp_path, CCACHE_DIR=str(tmp_path / "cache"))
        return (tmp_path / "part.o").read_bytes()

    def compiled(flag: str) -> bytes:
        run([toolchain.clang, "-Oz", flag, "-c", "part.c", "-o", "fresh.o"], tmp_path)
        return (tmp_path / "fresh.o").read_bytes()

    older, newer = export("builtin:Oz"), export("builtin:size", doubt=1e9)
    expected = compiled(older), compiled(newer)
    assert expected[0] != expected[1]
    for flag, data in zip((older, newer, older), (*expected, expected[0]), strict=True):
        assert built(flag) == data
    assert "no work to do" in run(["ninja"], tmp_path, CCACHE_DIR=str(tmp_path / "cache"))


@pytest.mark.parametrize("place", ["c_args", "meson.build"])
def test_meson_checks_its_compiler_with_the_plugin_as_without(
    place: str, toolchain: Toolchain, export: Export, tmp_path: Path
):
    needed("meson", "ninja")
    flag = export("builtin:Oz")
    line = format_plugin_lines(
        BuildCommands(build=("meson setup b",)), tmp_path, Path(flag.removeprefix("-fpass-plugin=")), "compile"
    )

    def symbols(name: str, flag: str, line: str) -> set[str]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "part.c").write_text(SOURCE.replace("EXPORTED", '__attribute__((visibility("default")))'))
        (folder / "meson.build").write_text(LIBRARY.replace("LINE", line))
        words: list[str | Path] = ["meson", "setup", "b", "--buildtype=plain", f"-Dc_args=-Oz {flag}"]
        run(words, folder, CC=str(toolchain.clang))
        run(["ninja", "-C", "b"], folder)
        listed = run([toolchain.clang.parent / "llvm-nm", "-D", "--defined-only", "b/libparts.so"], folder)
        return {word.split()[-1] for word in listed.splitlines()}

    plain = symbols("plain", "", "")
    assert plain == {"shown"}
    if place == "c_args":
        assert symbols("tuned", flag, "") == plain
    else:
        assert symbols("tuned", "", line.removeprefix("in meson.build: ")) == plain

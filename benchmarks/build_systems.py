"""How each build system is told which compiler to call, and with which flags; each by a door of its own."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tuning_projects import System

from mlgokit.compiler.toolchain import Toolchain

Call = Callable[[Path, Path, Toolchain, Sequence[str], Sequence[str]], tuple[list[str], list[str], list[str]]]
"""From build folder, sources, compiler, flags of compilation and of links: the words that configure, those that
compile, and those that call make in the tests; none where there is nothing to do."""


def cmake_by_flags(
    build: Path, source: Path, toolchain: Toolchain, flags: Sequence[str], linking: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """CMake's own variables, and Ninja."""
    shown = shlex.join(flags)
    configure = [
        *_cmake(build, source, "Ninja", linking),
        f"-DCMAKE_C_COMPILER={toolchain.clang}", f"-DCMAKE_CXX_COMPILER={toolchain.clangxx}",
        f"-DCMAKE_C_FLAGS={shown}", f"-DCMAKE_CXX_FLAGS={shown}",
    ]  # fmt: skip
    return configure, ["cmake", "--build", str(build)], []


def cmake_by_toolchain_file(
    build: Path, source: Path, toolchain: Toolchain, flags: Sequence[str], linking: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """A toolchain file, and Make."""
    file = build / "toolchain.cmake"
    file.write_text(
        f"set(CMAKE_C_COMPILER {toolchain.clang})\nset(CMAKE_CXX_COMPILER {toolchain.clangxx})\n"
        f'string(APPEND CMAKE_C_FLAGS_INIT " {shlex.join(flags)}")\n'
        f'string(APPEND CMAKE_CXX_FLAGS_INIT " {shlex.join(flags)}")\n'
    )
    configure = [*_cmake(build, source, "Unix Makefiles", linking), f"-DCMAKE_TOOLCHAIN_FILE={file}"]
    return configure, ["cmake", "--build", str(build)], []


def _cmake(build: Path, source: Path, generator: str, linking: Sequence[str]) -> list[str]:
    # A build type would add its own -O behind ours, and some projects set one if there is none: this one has no flags.
    return [
        "cmake", "-G", generator, "-S", str(source), "-B", str(build), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        "-DCMAKE_BUILD_TYPE=Tuned", f"-DCMAKE_EXE_LINKER_FLAGS={shlex.join(linking)}",
        f"-DCMAKE_SHARED_LINKER_FLAGS={shlex.join(linking)}",
    ]  # fmt: skip


def meson_by_native_file(
    build: Path, source: Path, toolchain: Toolchain, flags: Sequence[str], linking: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """A native file."""
    file = build.with_name(f"{build.name}.native.ini")
    listed, linked = ("[" + ", ".join(f"'{flag}'" for flag in each) + "]" for each in (flags, linking))
    file.write_text(
        f"[binaries]\nc = '{toolchain.clang}'\ncpp = '{toolchain.clangxx}'\n"
        f"[built-in options]\nc_args = {listed}\ncpp_args = {listed}\n"
        f"c_link_args = {linked}\ncpp_link_args = {linked}\n"
    )
    configure = ["meson", "setup", str(build), str(source), "--native-file", str(file), "--buildtype=plain"]
    return configure, ["meson", "compile", "-C", str(build)], []


def autotools(
    build: Path, source: Path, toolchain: Toolchain, flags: Sequence[str], linking: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """A configure script beside the build folder, and make, recorded."""
    configure = [str(source / "configure"), *_variables(toolchain, flags, linking)]
    return configure, _recorded(build, ["make"]), ["make"]


def make(
    build: Path, _source: Path, toolchain: Toolchain, flags: Sequence[str], linking: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Make alone, in a copy of the sources, recorded."""
    words = ["make", *_variables(toolchain, flags, linking)]
    return [], _recorded(build, words), words


def _variables(toolchain: Toolchain, flags: Sequence[str], linking: Sequence[str]) -> list[str]:
    # Libtool leaves it out of LDFLAGS.
    linker = [flag for flag in linking if flag.startswith("--ld-path=")]
    shown = shlex.join(flags)
    cc, cxx = (shlex.join([str(compiler), *linker]) for compiler in (toolchain.clang, toolchain.clangxx))
    return [
        f"CC={cc}", f"CXX={cxx}", f"CFLAGS={shown}", f"CXXFLAGS={shown}", f"LDFLAGS={shlex.join(linking)}",
    ]  # fmt: skip


def _recorded(build: Path, words: Sequence[str]) -> list[str]:
    database = str(build / "compile_commands.json")
    return [sys.executable, "-m", "mlgokit", "corpus", "record", "--output", database, "--", *words]


BUILD_SYSTEMS: Mapping[System, Call] = {
    "CMake, Ninja": cmake_by_flags,
    "CMake, Make": cmake_by_toolchain_file,
    "Meson": meson_by_native_file,
    "autotools": autotools,
    "Make": make,
}
"""By their names in the list of projects."""

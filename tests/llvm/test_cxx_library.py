"""Which C++ library a compiler was built with, as its dynamic symbols and the libraries that it needs say."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import cxx_library_of
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

SOURCE = """
namespace std { namespace __1 { void put(int); } namespace __cxx11 { void put(int); } }
extern "C" void call() { std::NAMESPACE::put(1); }
"""


@pytest.mark.parametrize(("namespace", "library"), [("__1", "libc++"), ("__cxx11", "libstdc++")])
def test_names_in_a_static_compiler_say_it(toolchain: Toolchain, tmp_path: Path, namespace: str, library: str):
    source, output = tmp_path / "a.cpp", tmp_path / "a.so"
    source.write_text(SOURCE.replace("NAMESPACE", namespace))

    done = process.run([toolchain.clangxx, "-shared", "-nostdlib", "-fPIC", source, "-o", output], timeout_seconds=60)

    assert done.returncode == 0, done.stderr
    assert cxx_library_of(output) == library


@pytest.mark.every_major
def test_a_compiler_loads_the_plugin_that_was_built_with_its_library(
    toolchain: Toolchain, plugin: Path, compile_object: Callable[..., Path]
):
    assert compile_object("int a;", ("-Oz", f"-fpass-plugin={plugin}")).is_file()
    assert f"mlgokit plugin for LLVM {toolchain.major}.".encode() in plugin.read_bytes()
    assert f" with {toolchain.cxx_library}\0".encode() in plugin.read_bytes()

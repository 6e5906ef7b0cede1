"""A plugin for another major, or for compilers with another C++ library, is refused with a sentence that names both."""

from pathlib import Path

import pytest

from mlgokit.compiler.plugin_build import check_made_for
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError

CLANG = Path("/opt/llvm/bin/clang")


def toolchain(major: int, cxx_library: str) -> Toolchain:
    return Toolchain(major=major, version=f"{major}.1.2", clang=CLANG, clangxx=CLANG, cxx_library=cxx_library)


def written(folder: Path, mark: bytes) -> Path:
    plugin = folder / "p.so"
    plugin.write_bytes(b"\x7fELF..." + mark + b"\0...")
    return plugin


@pytest.mark.parametrize(("major", "library"), [(22, "libc++"), (23, "libstdc++"), (19, "libc++")])
def test_a_plugin_for_others_is_refused(tmp_path: Path, major: int, library: str):
    plugin = written(tmp_path, b"mlgokit plugin for LLVM 22.1.8 with libstdc++")

    with pytest.raises(InputError) as caught:
        check_made_for(plugin, toolchain(major, library))

    assert str(caught.value) == (
        f"{plugin}: expected a plugin for LLVM {major} with {library}, as {CLANG} was built, found one for LLVM 22 "
        "with libstdc++; give the clang that it was made for with --llvm, or make it anew with this one"
    )


@pytest.mark.parametrize(
    "mark", [b"mlgokit plugin for LLVM 23.1.4 with libc++", b"mlgokit plugin for LLVM 23.0.0git with libc++", b"other"]
)
def test_its_own_compiler_and_a_plugin_that_says_nothing_pass(tmp_path: Path, mark: bytes):
    check_made_for(written(tmp_path, mark), toolchain(23, "libc++"))


def test_no_file_is_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match=r"none\.so: expected a plugin, found No such file or directory; correct"):
        check_made_for(tmp_path / "none.so", toolchain(23, "libc++"))

"""Which compilers a plugin file is for, as it says itself: one major of LLVM, built with one C++ library."""

import re
from pathlib import Path

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError

# MlgokitMadeFor in plugin/Plugin.cpp.
_MARK = re.compile(rb"mlgokit plugin for LLVM (\d+)[.\w]* with (lib[\w+]+)\0")


def check_made_for(plugin: Path, toolchain: Toolchain) -> None:
    """Refuse a plugin that ``toolchain`` would not load; one that does not say what it is for is not refused.

    Raises:
        InputError: it is for another major, or for compilers with another C++ library; or it cannot be read.
    """
    try:
        found = _MARK.search(plugin.read_bytes())
    except OSError as error:
        raise InputError(f"{plugin}: expected a plugin, found {error.strerror}; correct the path") from error
    if found is None:
        return
    major, library = int(found[1]), found[2].decode()
    if (major, library) != (toolchain.major, toolchain.cxx_library):
        raise InputError(
            f"{plugin}: expected a plugin for LLVM {toolchain.major} with {toolchain.cxx_library}, as "
            f"{toolchain.clang} was built, found one for LLVM {major} with {library}; give the clang that it was made "
            "for with --llvm, or make it anew with this one"
        )

"""The installed compilers, as they are found."""

import pytest

from mlgokit.compiler.toolchain import Toolchain

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]


def test_the_installed_compilers_are_found_with_all_their_tools(toolchain: Toolchain):
    assert toolchain.version_text.startswith(f"{toolchain.vendor} clang version {toolchain.version}".strip())
    assert toolchain.target
    assert toolchain.include_dir is not None
    assert toolchain.library_dir is not None


@pytest.mark.usefixtures("opt")
def test_the_program_that_knows_the_folders_is_found_with_the_other_tools(toolchain: Toolchain):
    assert toolchain.llvm_config is not None

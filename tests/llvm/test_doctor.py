import pytest

from mlgokit.commands.doctor import diagnose_toolchain
from mlgokit.compiler.toolchain import Toolchain

_OPTIONAL = {"sandbox", "other object formats"}
pytestmark = [pytest.mark.llvm, pytest.mark.every_major]


def test_a_distribution_clang_opens_every_interactive_channel(toolchain: Toolchain):
    found = diagnose_toolchain(toolchain, plugin=False)

    details = {check.name: check.detail for check in found.checks if check.works and check.name not in _OPTIONAL}
    assert details.keys() == {
        "compile",
        "link C++ with lld",
        "interactive inline-size",
        "interactive regalloc-eviction",
        "interactive regalloc-priority",
    }
    assert details["interactive inline-size"] == "38 features"
    assert found.usable


def test_what_works_with_other_object_formats_is_tried(toolchain: Toolchain, targets: str):
    checks = {check.name: check for check in diagnose_toolchain(toolchain, plugin=False).checks}
    found = checks["other object formats"]
    assert found.works == ("wasm32" in targets), found.detail
    assert (found.detail == "wasm, COFF and Mach-O: objects are compiled, measured and linked") == found.works


def test_what_a_distribution_clang_lacks_is_said_in_its_own_words(toolchain: Toolchain):
    found = diagnose_toolchain(toolchain, plugin=False)

    details = {check.name: check.detail for check in found.checks if not check.works}
    assert details["training log inline-size"] == "Unknown command line argument '-training-log=inline-size.log'."
    assert "Could not setup Inlining Advisor" in details["embedded inline-size"]


def test_the_plugin_is_built_and_loaded(toolchain: Toolchain):
    found = diagnose_toolchain(toolchain)

    (check,) = [check for check in found.checks if check.name == "plugin"]
    assert check.works, check.detail
    assert check.detail.startswith("builds, and the compiler loads it: ")

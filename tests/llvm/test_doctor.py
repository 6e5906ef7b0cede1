import pytest

from mlgokit.commands.doctor import diagnose_toolchain
from mlgokit.compiler.toolchain import Toolchain

_OPTIONAL = {"sandbox", "other object formats"}
pytestmark = [pytest.mark.llvm, pytest.mark.every_major]


def test_what_a_distribution_clang_can_and_cannot_do_is_tried(toolchain: Toolchain, targets: str):
    found = diagnose_toolchain(toolchain)

    assert found.usable
    works = {check.name: check.detail for check in found.checks if check.works and check.name not in _OPTIONAL}
    assert works.keys() == {
        "compile",
        "link C++ with lld",
        "interactive inline-size",
        "interactive regalloc-eviction",
        "interactive regalloc-priority",
        "plugin",
    }
    assert works["interactive inline-size"] == "38 features"
    assert works["plugin"].startswith("builds, and the compiler loads it: ")
    # What it lacks is said in its own words.
    lacks = {check.name: check.detail for check in found.checks if not check.works}
    assert lacks["training log inline-size"] == "Unknown command line argument '-training-log=inline-size.log'."
    assert "Could not setup Inlining Advisor" in lacks["embedded inline-size"]
    (formats,) = (check for check in found.checks if check.name == "other object formats")
    assert formats.works == ("wasm32" in targets), formats.detail
    assert (formats.detail == "wasm, COFF and Mach-O: objects are compiled, measured and linked") == formats.works

"""Names that people read, from symbols; the program that makes them may be missing or fail."""

from pathlib import Path

import pytest

from mlgokit.compiler.llvm_tools import find_demangler, readable_names

SYMBOLS = ["_ZN3re24Prog7FlattenEv", "main", "_Z1fv\nmain", "_Z", "_Zqq", "_ZN1aC2Ev.cold"]


def test_without_a_demangler_symbols_stay() -> None:
    assert readable_names(SYMBOLS, None) == {}
    assert readable_names(SYMBOLS, Path("/nowhere/c++filt")) == {}
    assert readable_names(SYMBOLS, Path("/bin/false")) == {}


def test_what_is_no_mangled_name_is_left_out() -> None:
    found = find_demangler()
    if found is None:
        pytest.skip("no llvm-cxxfilt and no c++filt")
    names = readable_names(SYMBOLS, found)
    assert names.pop("_ZN1aC2Ev.cold").startswith("a::a()")
    assert names == {"_ZN3re24Prog7FlattenEv": "re2::Prog::Flatten()"}

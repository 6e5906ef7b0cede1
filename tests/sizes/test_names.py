"""Readable names, and what they are added up by."""

import pytest

from mlgokit.compiler.llvm_tools import find_demangler
from mlgokit.sizes.names import crate_of, read_names, stable_name, template_of


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("main", ""),
        ("std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector<>::push_back"),
        ("void std::__sort<int*, std::less<int> >(int*, int*, std::less<int>)", "std::__sort<>"),
        ("a::Box<b::Pair<int, (a::Kind)3> >::~Box()", "a::Box<>::~Box"),
        ("vtable for a::Box<int>", "a::Box<>"),
        ("(anonymous namespace)::List<int>::find(char const*)", "(anonymous namespace)::List<>::find"),
        ("bool operator< <int>(std::pair<int, int> const&)", "operator< <>"),
        ("std::ostream& operator<< <std::char_traits<char> >(std::ostream&, char)", "operator<< <>"),
        ("std::function<void ()>::operator()() const", "std::function<>::operator()"),
        ("f(std::vector<int>)", ""),
    ],
)
def test_the_template_of_an_instance(name: str, template: str) -> None:
    assert template_of(name) == template


@pytest.mark.parametrize(
    ("name", "crate"),
    [
        ("std::io::stdio::_print", "std"),
        ("<alloc::vec::Vec<u8> as core::ops::drop::Drop>::drop", "alloc"),
        ("<&str as core::fmt::Display>::fmt", "core"),
        ("<gimli[a1b2]::read::Unit<usize>>::new", "gimli"),
        ("rust_begin_unwind", ""),
    ],
)
def test_the_crate_of_a_function(name: str, crate: str) -> None:
    assert crate_of("_RNvC1a4main", name) == crate
    assert crate_of("_Z4mainv", name) == ""


@pytest.mark.skipif(find_demangler() is None, reason="neither llvm-cxxfilt nor c++filt")
def test_names_are_read_in_all_their_forms() -> None:
    symbols = {
        "_ZN3foo3barEi": "foo::bar(int)",
        "_ZN3foo3barEi.llvm.123456": "foo::bar(int)",
        "__ZN3foo3barEi": "foo::bar(int)",
        "_ZN62_$LT$alloc..vec..Vec$LT$u8$GT$$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE": (
            "<alloc::vec::Vec<u8> as core::fmt::Debug>::fmt"
        ),
    }
    found = read_names([*symbols, "main", "not_mangled.llvm.5"])
    assert {symbol: found.get(symbol) for symbol in symbols} == symbols
    assert set(found) == set(symbols)


def test_names_of_two_builds_are_the_same() -> None:
    assert stable_name("f.llvm.1") == stable_name("f.llvm.2") == "f"
    assert stable_name("_ZN1a1b17h0123456789abcdefE") == stable_name("_ZN1a1b17hfedcba9876543210E")
    assert stable_name("_ZN1a1bE") == "_ZN1a1bE"

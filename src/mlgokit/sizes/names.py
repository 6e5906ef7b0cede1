"""What people call a symbol: its readable name, the template that it is an instance of, its Rust crate.

Names are only shown and summed up by; a symbol stays known by the name that the file has.
"""

import re
from collections.abc import Iterable

_LLVM_SUFFIX = re.compile(r"\.llvm\.\d+")
_HASH = re.compile(r"::h[0-9a-f]{16}$")
_LEGACY_RUST = re.compile(r"_?_ZN.*17h[0-9a-f]{16}E(?:\.|$)")
_RUST = re.compile(r"_?_R[A-Z]")
_ESCAPES = {
    "$LT$": "<",
    "$GT$": ">",
    "$RF$": "&",
    "$BP$": "*",
    "$C$": ",",
    "$LP$": "(",
    "$RP$": ")",
    "$SP$": "@",
    "..": "::",
}
_ESCAPED = re.compile(r"\$(?:LT|GT|RF|BP|C|LP|RP|SP)\$|\$u(?P<number>[0-9a-f]{1,5})\$|\.\.")
_MANGLED = ("_Z", "_R", "__Z", "__R")
_CRATE = re.compile(r"[A-Za-z_]\w*(?=::|\[)")
_OPERATOR = re.compile(r"\boperator\s*(?:<=>|<<=|>>=|->\*?|<<|>>|<=|>=|<|>|\(\))")
_BRACKET = re.compile("([<>(])")
_ANONYMOUS = "(anonymous namespace)"


def stable_name(symbol: str) -> str:
    """The symbol without what differs from build to build: the number of a promoted local, the hash of Rust.

    Example:
        >>> stable_name("helper.llvm.1234"), stable_name("_ZN4core3fmt5write17h0123456789abcdefE")
        ('helper', '_ZN4core3fmt5writeE')
    """
    symbol = _LLVM_SUFFIX.sub("", symbol)
    return re.sub(r"17h[0-9a-f]{16}E", "E", symbol) if _is_legacy_rust(symbol) else symbol


def is_rust(symbol: str) -> bool:
    """Whether rustc mangled a symbol, in either of its ways."""
    return bool(_RUST.match(symbol)) or _is_legacy_rust(symbol)


def _is_legacy_rust(symbol: str) -> bool:
    # The pattern goes back and forth over each name of C++.
    return "17h" in symbol and bool(_LEGACY_RUST.match(symbol))


def read_names(symbols: Iterable[str]) -> dict[str, str]:
    """Readable names by symbol; those that need none are left out, and all of them if there is no demangler."""
    # What starts processes takes longer to import than a file of C takes to read.
    mangled = [symbol for symbol in symbols if symbol.startswith(_MANGLED)]
    if not mangled:
        return {}
    from mlgokit.compiler.llvm_tools import find_demangler, readable_names

    # Mach-O puts an underscore in front of each symbol.
    asked = {symbol: symbol[1:] if symbol.startswith(("__Z", "__R")) else symbol for symbol in mangled}
    plain = {symbol: _LLVM_SUFFIX.sub("", text) for symbol, text in asked.items()}
    found = readable_names(plain.values(), find_demangler())
    return {symbol: _tidy(symbol, found[text]) for symbol, text in plain.items() if text in found}


def _tidy(symbol: str, name: str) -> str:
    """Rust's first mangling is C++'s with escapes of its own."""
    if not _is_legacy_rust(symbol):
        return name
    name = _HASH.sub("", name)
    name = _ESCAPED.sub(lambda found: chr(int(found["number"], 16)) if found["number"] else _ESCAPES[found[0]], name)
    return re.sub(r"(^|::)_(?=[<&*(\[])", r"\1", name)


def crate_of(symbol: str, name: str) -> str:
    """The crate whose code a Rust function is; empty for other symbols.

    Of a method of a trait it is the crate of the type, or the trait's, if the type is built in.

    Example:
        >>> crate_of("_RNv", "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop"), crate_of("main", "main")
        ('alloc', '')
        >>> crate_of("_RNv", "<&T as core::fmt::Debug>::fmt")
        'core'
    """
    if not is_rust(symbol):
        return ""
    found = _CRATE.search(name)
    return found[0] if found else ""


def template_of(name: str) -> str:
    """The template of an instance, with its arguments left out; empty for what is none.

    Example:
        >>> template_of("void std::sort<int*>(int*, int*)"), template_of("main")
        ('std::sort<>', '')
        >>> template_of("std::vector<int, std::allocator<int>>::push_back(int&&)")
        'std::vector<>::push_back'
        >>> template_of("std::ostream& operator<< <char>(std::ostream&)")
        'operator<< <>'
    """
    if "<" not in name:
        return ""
    kept = name.replace(_ANONYMOUS, "\0")
    operators = list(_OPERATOR.finditer(kept)) if "operator" in kept else []
    kept = _OPERATOR.sub("\1", kept) if operators else kept
    text: list[str] = []
    depth = 0
    has_arguments = False
    for part in _BRACKET.split(kept):
        if part == "<":
            if depth == 0:
                text.append("<>")
                has_arguments = True
            depth += 1
        elif part == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            if part == "(":
                break
            text.append(part)
    if not has_arguments:
        return ""
    words = re.split(r" (?!<>)", "".join(text).strip())
    short = next((word for word in reversed(words) if "<>" in word or "\1" in word), words[-1])
    for operator in operators[: short.count("\1")]:
        short = short.replace("\1", operator[0], 1)
    return short.replace("\0", _ANONYMOUS)

from pathlib import Path

import pytest

from mlgokit.corpus.importers.compile_commands import CompileCommand
from mlgokit.corpus.importers.no_code import why_no_code


def why(line: str) -> str | None:
    words = tuple(line.split())
    return why_no_code(
        CompileCommand(directory=Path("/b"), file=Path("/b") / words[-1], arguments=words, output=Path("/b/a.o"))
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("cc -E -o a.i a.c", "it preprocesses (-E)"),
        ("ccache cc -c -E a.c", "it preprocesses (-E)"),
        ("cc -M a.c", "it lists what a source includes (-M)"),
        ("cc -MM -MF a.d -c a.c", "it lists what a source includes (-MM)"),
        ("cc -fsyntax-only a.c", "it checks a source and writes nothing (-fsyntax-only)"),
        ("cc -c -### a.c", "it prints (-###)"),
        ("cc --version a.c", "it prints (--version)"),
        ("cc -print-search-dirs a.c", "it prints (-print-search-dirs)"),
        ("cc --analyze a.c", "it analyzes a source (--analyze)"),
        ("cc -emit-ast -c a.c", "it writes a syntax tree (-emit-ast)"),
        ("cc -Xclang -ast-dump -c a.c", "it compiles nothing (-Xclang -ast-dump)"),
        ("cc -Xclang -fsyntax-only -c a.c", "it compiles nothing (-Xclang -fsyntax-only)"),
        ("c++ --precompile a.cppm", "it makes the interface of a module for the front end alone (--precompile)"),
        ("c++ -x c++-header -o p.pch p.h", "it makes a precompiled header (-x c++-header)"),
        ("cc -xc-header p.h", "it makes a precompiled header (-x c-header)"),
        ("c++ -c p.hxx", "it makes a precompiled header (p.hxx)"),
        ("c++ -Xclang -emit-pch -c p.hxx.cxx", "it makes a precompiled header (-Xclang -emit-pch)"),
        ("c++ -x c++-user-header p.h", "it makes a header unit (-x c++-user-header)"),
    ],
)  # fmt: skip
def test_a_command_that_makes_no_code_is_named(line: str, what: str):
    assert why(line) == what


@pytest.mark.parametrize(
    "line",
    [
        "cc -c a.c", "cc a.c", "cc -MD -MMD -MP -MF a.d -c a.c", "cc -S a.c", "cc -c -emit-llvm a.c", "cc -I -E -c a.c",
        "cc -D -fsyntax-only -c a.c", "cc -Wp,-MD,a.d -c a.c", "cc -Xclang -print-stats -c a.c", "cc -x c -c p.h",
        "ccache",
    ],
)  # fmt: skip
def test_a_command_that_compiles_is_not_taken_for_one_without_code(line: str):
    assert why(line) is None

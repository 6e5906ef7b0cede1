"""What a wrapped call of a compiler is asked for, as the wrapper reads it."""

from pathlib import Path

import pytest

from mlgokit.compiler.wrapper import expanded, own_cache, read_call


@pytest.mark.parametrize(
    ("words", "kind", "sources", "outputs"),
    [
        ("-O2 -c a.c -o a.o", "compile", "a.c", "a.o"),
        ("-c x/a.c b.cc", "compile", "x/a.c b.cc", "a.o b.o"),
        ("-S a.c", "compile", "a.c", "a.s"),
        ("-MD -MF a.d -I inc -include pre.h -c -o out/a.o a.cpp", "compile", "a.cpp", "out/a.o"),
        ("-Xclang -O2 -mllvm -x=1 -c a.c", "compile", "a.c", "a.o"),
        ("a.o b.o -lz -L lib -o tool", "link", "", "tool"),
        ("-shared -Wl,-soname,x a.o", "link", "", "a.out"),
        ("a.c b.o -o tool", "both", "a.c", "tool"),
        ("-x c - -c -o a.o", "compile", "-", "a.o"),
        ("-x assembler-with-cpp a.c -c", "other", "", None),
        ("-c start.S -o start.o", "other", "", None),
        ("-E a.c", "other", "a.c", None),
        ("-c -M a.c", "other", "a.c", None),
        ("-r a.o b.o -o both.o", "other", "", None),
        ("--version", "other", "", None),
        ("-print-prog-name=ld a.c", "other", "a.c", None),
        ("-v", "other", "", None),
        ("-x none a.cc -x c++ b.inc -c", "compile", "a.cc b.inc", "a.o b.o"),
        ("-x c++-header a.h -c -o a.pch", "other", "", None),
    ],
)
def test_calls(words: str, kind: str, sources: str, outputs: str | None):
    found = read_call(words.split())

    assert (found["kind"], found["sources"]) == (kind, sources.split())
    if outputs is not None:
        assert found["outputs"] == outputs.split()


def test_response_files_are_read_where_they_are(tmp_path: Path):
    (tmp_path / "one.rsp").write_text("-c 'a b.c' @two.rsp")
    (tmp_path / "two.rsp").write_text("-o a.o @two.rsp")

    assert expanded(["-O2", "@one.rsp", "@none.rsp"], str(tmp_path))[:5] == ["-O2", "-c", "a b.c", "-o", "a.o"]
    assert expanded(["@none.rsp"], str(tmp_path)) == ["@none.rsp"]


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ("clang a.o -Wl,--thinlto-cache-dir=c", "c-1a"),
        ("clang a.o -Wl,-O1,-thinlto-cache-dir=/x/c/,--gc-sections", "/x/c-1a"),
        ("clang a.o -Xlinker --thinlto-cache-dir=c", "c-1a"),
        ("ld.lld a.o --thinlto-cache-dir=b -plugin-opt=cache-dir=c", "c-1a"),
        ("clang thinlto-cache-dir=c a.o -Wl,--thinlto-cache-policy=prune_after=1h", ""),
    ],
)
def test_a_link_that_names_a_cache_is_given_another(words: str, folder: str):
    assert own_cache(words.split(), "1a") == (f"--thinlto-cache-dir={folder}" if folder else "")

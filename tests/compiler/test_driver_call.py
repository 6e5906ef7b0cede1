"""What a wrapped call of a compiler is asked for, as the wrapper reads it."""

import os
from pathlib import Path

import pytest

from mlgokit.compiler.driver_call import (
    expand_response_words,
    find_lto_linker,
    is_native,
    preprocessor_words,
    read_call,
    read_linker_call,
    separate_cache,
)


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
        ("-O2 -c a.c -oout/a.o", "compile", "a.c", "out/a.o"),
        ("--compile a.c --output=b.o", "compile", "a.c", "b.o"),
        ("-c -emit-llvm a.c", "compile", "a.c", "a.bc"),
        ("-S -emit-llvm a.c", "compile", "a.c", "a.ll"),
        ("-xc -c - -Oz", "compile", "-", "-.o"),
        ("-x c++ -c /dev/stdin -o a.o", "compile", "/dev/stdin", "a.o"),
        ("-c start.S", "other", "", "start.o"),
        ("--analyze a.c", "other", "a.c", None),
        ("-c a.CC b.CXX c.C++", "compile", "a.CC b.CXX c.C++", "a.o b.o c.o"),
        ("a.h -o a.h.pch", "other", "", None),
        ("-x c++-header a.inc -o a.pch", "other", "", None),
        ("a.c a.h", "both", "a.c", "a.out"),
        ("-nostdlib -Wl,-s,-r a.o b.o -o both.o", "other", "", None),
        ("-x c++-module -fmodule-output=m.pcm -c m.ixx -o m.o", "compile", "m.ixx", "m.o"),
        ("-c m.cppm n.pcm", "compile", "m.cppm n.pcm", "m.o n.o"),
        ("--precompile m.cppm -o m.pcm", "other", "m.cppm", None),
        ("-Xclang -emit-module-interface -c m.cppm -o m.pcm", "other", "m.cppm", None),
        ("-c -MV a.c -isystem-after inc -Xarch_host -O2 -fdebug-compilation-dir .", "compile", "a.c", "a.o"),
    ],
)
def test_a_call_of_a_compiler_driver_is_understood(words: str, kind: str, sources: str, outputs: str | None):
    found = read_call(words.split())

    assert (found["kind"], found["sources"]) == (kind, sources.split())
    if outputs is not None:
        assert found["outputs"] == outputs.split()


@pytest.mark.parametrize(
    ("words", "kind", "inputs"),
    [
        ("-v a.o -o tool", "link", "a.o"),
        ("--verbose -V a.o", "link", "a.o"),
        ("a.o --exclude-libs libb.a --rpath-link lib", "link", "a.o"),
        ("-v", "other", ""),
        ("--version a.o", "other", "a.o"),
        ("--relocatable a.o", "other", "a.o"),
    ],
)
def test_a_call_of_a_linker_is_understood(words: str, kind: str, inputs: str):
    found = read_linker_call(words.split())
    assert (found["kind"], found["inputs"]) == (kind, inputs.split())


def test_bitcode_in_a_static_library_is_linked_with_lto(tmp_path: Path):
    def member(data: bytes) -> bytes:
        return b"%-48s%-10d`\n" % (b"m.o/", len(data)) + data + b"\n" * (len(data) % 2)

    machine, bitcode = member(b"\x7fELF odd!"), member(b"BC\xc0\xde")
    path = tmp_path / "lib.a"
    for contents, linker in {
        machine + bitcode: "lld",
        machine: "",
        b"": "",
        bitcode[:50]: "",
        machine[:48] + b"-60       `\n": "",
        machine[:48] + b"many      `\n": "",
    }.items():
        path.write_bytes(b"!<arch>\n" + contents)
        assert find_lto_linker(["-fuse-ld=lld", str(path)], [str(path)]) == linker, contents


def test_response_files_are_read_where_they_are(tmp_path: Path):
    (tmp_path / "one.rsp").write_text("\ufeff-c 'a b.c'\t@two.rsp\n")
    (tmp_path / "two.rsp").write_text("-o a.o")
    # As CMake and Ninja quote, and as a shell would not read it.
    (tmp_path / "quoted.rsp").write_text(r"""-DS=\"a\" "-DT=\$x y" '-DU=a\'b'""")

    words = ["-O2", "-c", "a b.c", "-o", "a.o", "@none.rsp"]
    assert expand_response_words(["-O2", "@one.rsp", "@none.rsp"], str(tmp_path)) == words
    assert expand_response_words(["@quoted.rsp"], str(tmp_path)) == ['-DS="a"', "-DT=$x y", "-DU=a'b"]


def test_response_files_that_cannot_be_read_are_told_of(tmp_path: Path):
    (tmp_path / "itself.rsp").write_text("-c @itself.rsp")
    (tmp_path / "open.rsp").write_text("-c 'a.c")
    os.mkfifo(tmp_path / "pipe.rsp")

    for name, reason in {
        "itself": "expected response files nested at most 8 deep, found more",
        "open": 'expected every quotation mark to be closed, found "\'a.c"',
        "pipe": "expected a response file that is a regular file, so that it can be read twice, found none",
    }.items():
        with pytest.raises(ValueError, match=f"^@{name}.rsp: .*{reason}"):
            expand_response_words([f"@{name}.rsp"], str(tmp_path))


@pytest.mark.parametrize(
    ("words", "languages"),
    [
        ("-c a.c b.cc c.i d.ii", "c c++ cpp-output c++-cpp-output"),
        ("-x c++ -c a.c -xnone b.c", "c++ c"),
        ("-x c - -c", "c"),
    ],
)
def test_languages_of_sources(words: str, languages: str):
    assert read_call(words.split())["languages"] == languages.split()


def test_a_driver_for_cxx_takes_c_for_cxx():
    assert read_call(["-c", "a.c", "b.i"], is_cxx=True)["languages"] == ["c++", "cpp-output"]


def test_one_source_of_a_call_is_preprocessed_without_its_outputs():
    def preprocessed(words: str, source: str) -> str:
        return " ".join(preprocessor_words(words.split(), source))

    words = "-Oz -DA -I inc -MD -MFa.d -MT x -c a.c b.c x.o -lz -Wl,-s -oout -save-temps -x c++ -include pre.h"
    assert preprocessed(words, "b.c") == "-Oz -DA -I inc b.c -lz -x c++ -include pre.h"
    assert preprocessed(words, "") == "-Oz -DA -I inc -lz -x c++ -include pre.h"


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
    assert separate_cache(words.split(), "1a") == (f"--thinlto-cache-dir={folder}" if folder else "")


@pytest.mark.parametrize(
    ("target", "native"),
    [
        (None, True),
        ("{}-linux-gnu-", True),
        ("{}-pc-linux-gnu-", True),
        ("{}-redhat-linux-", True),
        ("{}-suse-linux-", True),
        ("{}-buildroot-linux-gnu-", False),
        ("{}-oe-linux-", False),
        ("{}-linux-musl-", False),
        ("{}-w64-mingw32-", False),
        ("arm-none-eabi-", False),
    ],
)
def test_compilers_of_distributions_are_for_this_machine(target: str | None, native: bool):
    assert is_native(target and target.format(os.uname().machine)) == native

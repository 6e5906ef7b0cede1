import hashlib
import json
from pathlib import Path

import pytest

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.options.linker_words import translate_linker
from mlgokit.corpus.options.override import (
    UNSPECIFIED,
    fill_override,
    link_options,
    split_link_command,
)
from mlgokit.errors import CorpusError, InputError, UsageError

NOBODY = Toolchain(major=19, version="19", clang=Path("/no/clang"), clangxx=Path("/no/clang++"), version_text="none")
ALWAYS = ("-ffunction-sections", "-fdata-sections", "-faddrsig")
STATIC = ("-mrelocation-model", "static")
PIC = ("-mrelocation-model", "pic", "-pic-level", "2")
O2 = ("-O2", "-vectorize-loops", "-vectorize-slp")


def test_what_lld_does_without_being_told():
    found = translate_linker(["a.o", "-o", "a.out", "-lc"])
    assert found.options == ("-cc1", *O2, *STATIC, *ALWAYS)
    assert found.defaults == found.options[1:]
    assert found.kept == ()
    assert found.dropped == tuple((word, "it is an input or an output") for word in ("a.o", "-o a.out", "-lc"))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-pie"], (*O2, *PIC, "-pic-is-pie", *ALWAYS)),
        (["-shared"], (*O2, *PIC, *ALWAYS)),
        (["-m", "elf_x86_64"], ("-triple", "x86_64-unknown-linux-gnu", *O2, *STATIC, *ALWAYS)),
        (["-m", "aarch64linux"], ("-triple", "aarch64-unknown-linux-gnu", *O2, *STATIC, *ALWAYS)),
        (["--lto-O1"], ("-O1", *STATIC, *ALWAYS)),
        (["-plugin-opt=O2", "--lto-O3"], ("-O3", "-vectorize-loops", "-vectorize-slp", *STATIC, *ALWAYS)),
        (["-mllvm", "-stats"], (*O2, *STATIC, *ALWAYS, "-mllvm", "-stats")),
        (["--mllvm=-stats"], (*O2, *STATIC, *ALWAYS, "-mllvm", "-stats")),
        (["-plugin-opt=-stats"], (*O2, *STATIC, *ALWAYS, "-mllvm", "-stats")),
        (["-plugin-opt", "mcpu=haswell"], (*O2, *STATIC, *ALWAYS, "-target-cpu", "haswell")),
        (["-mllvm", "-mattr=+a,-b"], (*O2, *STATIC, *ALWAYS, "-target-feature", "+a", "-target-feature", "-b")),
        (["-mllvm", "-code-model=large"], (*O2, *STATIC, *ALWAYS, "-mcmodel=large")),
        (["-plugin-opt=-data-sections=1"], (*O2, *STATIC, *ALWAYS)),
        (["--lto-sample-profile=a b"], (*O2, *STATIC, *ALWAYS, "-fprofile-sample-use=a b")),
        (["--lto-basic-block-sections=all"], (*O2, *STATIC, *ALWAYS, "-fbasic-block-sections=all")),
    ],
)
def test_linker_options_become_cc1_options(words: list[str], options: tuple[str, ...]):
    found = translate_linker(words)
    assert found.options == ("-cc1", *options)
    assert found.kept


def test_clang_22_is_told_of_which_kind_a_profile_of_the_link_is():
    words, path = ["--lto-cs-profile-file=cs.profdata"], "-fprofile-instrument-use-path=cs.profdata"
    assert translate_linker(words).options == ("-cc1", *O2, *STATIC, *ALWAYS, path)
    found = translate_linker(words, profile_kinds=True)
    assert found.options == ("-cc1", *O2, *STATIC, *ALWAYS, path, "-fprofile-instrument-use=csllvm")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--gc-sections"], "it concerns the image"),
        (["-z", "relro"], "it concerns the image"),
        (["--thinlto-jobs=4"], "it steers the link"),
        (["-plugin-opt=thinlto"], "it steers the link"),
        (["--save-temps=import"], "it steers the link"),
        (["--lto-CGO3"], "clang -cc1 has no equivalent"),
        (["--lto-newpm-passes=x"], "clang -cc1 has no equivalent"),
        (["-mllvm", "-no-such-option=1"], "clang -cc1 has no equivalent"),
        (["-plugin-opt=-data-sections=0"], "clang -cc1 has no equivalent"),
    ],
)
def test_dropped_linker_options_have_a_reason(words: list[str], reason: str):
    found = translate_linker(words)
    assert found.options == ("-cc1", *O2, *STATIC, *ALWAYS)
    ((_, said),) = found.dropped
    assert said.startswith(reason)


def test_the_last_level_decides():
    found = translate_linker(["--lto-O3", "--lto-O1"])
    assert found.kept == (("--lto-O1", ("-O1",)),)
    assert found.dropped[0] == ("--lto-O3", "one after it decides")
    assert found.dropped[1][0] == "code generation at level 2 with -O1"
    assert found.to_json()["kept"] == {"--lto-O1": "-O1"}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("ld.lld a.o", "ld.lld"),
        ("clang -c a.c -o a.o\n: && /opt/bin/clang++ -flto=thin a.o && :", "/opt/bin/clang++"),
        ("python3 wrap.py --output=x -- x86_64-linux-gnu-clang-19 a.o", "x86_64-linux-gnu-clang-19"),
        ("clang++ a.o \\\n  -o a", "clang++"),
        ("c++ a.o 'unclosed\nclang a.o", "clang"),
    ],
)
def test_the_link_is_found_among_commands(text: str, first: str):
    assert split_link_command(text)[0] == first


@pytest.mark.parametrize("text", ["", "make all", "clang -c a.c", "ar rcs liba.a a.o"])
def test_a_text_without_a_link_is_refused(text: str):
    with pytest.raises(UsageError, match=r"link command: expected one with clang or ld\.lld in it, found "):
        split_link_command(text)


def test_options_are_written_where_they_are_waited_for(tmp_path: Path):
    (tmp_path / "a.o.bc").write_bytes(b"BC")
    description = {"global_command_override": [UNSPECIFIED], "has_thinlto": False, "modules": ["a.o"]}
    (tmp_path / "corpus_description.json").write_text(json.dumps(description))
    options = translate_linker(["-pie"]).options
    fill_override(tmp_path, options, build=tmp_path)
    assert load_corpus(tmp_path).modules[0].command_line == options
    with pytest.raises(CorpusError, match=r"expected global_command_override to be \['<UNSPECIFIED>'\], found \['-cc1"):
        fill_override(tmp_path, options, build=tmp_path)
    with pytest.raises(CorpusError, match=r"expected a corpus's description, found: .*No such file"):
        fill_override(tmp_path / "nowhere", options, build=tmp_path)
    (tmp_path / "corpus_description.json").write_text("[" * 100_000)
    with pytest.raises(CorpusError, match=r"expected a corpus's description, found: maximum recursion"):
        fill_override(tmp_path, options, build=tmp_path)


def test_a_response_file_without_words_is_refused(tmp_path: Path):
    (tmp_path / "a.rsp").write_text("'a.o")
    with pytest.raises(
        UsageError, match=r"words of a link command, found: @a\.rsp: expected every quotation mark to be closed"
    ):
        link_options(["ld.lld", "@a.rsp"], toolchain=NOBODY, folder=tmp_path)
    found = link_options(["ld.lld", "@gone.rsp", "@", "--lto-O3"], toolchain=NOBODY, folder=tmp_path)
    assert "-O3" in found.options


def test_the_profile_of_a_link_is_copied_into_the_corpus(tmp_path: Path):
    build, corpus = tmp_path / "build", tmp_path / "corpus"
    for folder in (build, corpus):
        folder.mkdir()
    content = b"\xfflprofi\x81" + bytes(8)
    (build / "cs.profdata").write_bytes(content)
    (corpus / "corpus_description.json").write_text('{"global_command_override": ["<UNSPECIFIED>"], "modules": []}')
    options = ["-cc1", "-O2", "-fprofile-instrument-use-path=cs.profdata", "-fprofile-instrument-use=csllvm"]

    with pytest.raises(InputError, match=r"found no file .*/cs\.profdata; make it with llvm-profdata"):
        fill_override(corpus, options, build=tmp_path)
    fill_override(corpus, options, build=build)

    place = f"profiles/{hashlib.sha256(content).hexdigest()}"
    assert (corpus / place).read_bytes() == content
    written = json.loads((corpus / "corpus_description.json").read_bytes())["global_command_override"]
    assert written == [*options[:2], f"-fprofile-instrument-use-path={place}", options[3]]


def test_the_driver_is_asked_with_each_value_behind_its_option(tmp_path: Path):
    clang = tmp_path / "clang++"
    clang.write_text(f"""#!/bin/sh
printf '%s\\n' "$@" > "{tmp_path}/asked"
printf '%s\\n' 'Target: x86_64-pc-linux-gnu' ' "ld.lld" "-pie"' >&2
""")
    clang.chmod(0o755)
    toolchain = Toolchain(major=22, version="22", clang=clang, clangxx=clang, version_text="clang 22", target="t")
    words = ["-O2", "-isystem", "include", "-L", "lib", "-o", "app", "-oapp", "a.o", "-h", "name", "-Wl,--gc-sections"]
    link_options(["clang++", *words, "-z"], toolchain=toolchain)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["-###", "-O2", "-isystem", "include", "-Wl,--gc-sections", "-fuse-ld=lld", "-lc"]

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from mlgokit.corpus.corpus import Corpus, ModuleFailure, load_corpus, write_sidecar
from mlgokit.corpus.info import corpus_info
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME, decode_command_line, encode_command_line
from mlgokit.corpus.options.edits import command_line_edits
from mlgokit.corpus.writer import corpus_writer, description_fields
from mlgokit.errors import CorpusError, UsageError
from mlgokit.module import Module

CMD = b"-cc1\0-Oz\0-std=c++17\0"


def add(folder: Path, name: str, *, bitcode: bytes | None = b"BC\xc0\xde", cmd: bytes | None = CMD) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    if bitcode is not None:
        (folder / f"{name}.bc").write_bytes(bitcode)
    if cmd is not None:
        (folder / f"{name}.cmd").write_bytes(cmd)


def describe(folder: Path, *names: str, **keys: Any) -> Path:
    (folder / DESCRIPTION_NAME).write_text(json.dumps({"has_thinlto": False, "modules": list(names), **keys}))
    return folder


def test_a_corpus_of_others_is_read(tmp_path: Path):
    for name in ("leveldb/db/a.cc.o", "lib/b.o", "lua/c.c.o"):
        add(tmp_path, name)
    add(tmp_path, "lib/d.o", cmd=b"-cc1\0-std=gnu11\0")
    add(tmp_path, "lib/e.o", cmd=b"-cc1")
    names = ("leveldb/db/a.cc.o", "lib/b.o", "lua/c.c.o", "lib/d.o", "lib/e.o")
    corpus = load_corpus(describe(tmp_path, *names))
    assert [module.name for module in corpus.modules] == list(names)
    assert {module.project for module in corpus.modules} == {tmp_path.name}
    assert [module.language for module in corpus.modules] == ["c++", "c++", "c", "c", "unknown"]
    assert corpus.modules[0] == Module(
        name="leveldb/db/a.cc.o",
        project=tmp_path.name,
        language="c++",
        bitcode=tmp_path / "leveldb/db/a.cc.o.bc",
        command_line=("-cc1", "-Oz", "-std=c++17"),
        bitcode_bytes=4,
    )
    assert (corpus.failures, corpus.missing, corpus.has_thinlto) == ((), (), False)


def test_what_is_written_is_read(tmp_path: Path):
    add(tmp_path, "p/a.cc.o")
    module = Module(
        name="p/a.cc.o",
        project="other",
        language="c",
        held_out=True,
        bitcode=tmp_path / "p/a.cc.o.bc",
        command_line=decode_command_line(CMD),
        source="a.cc",
        bitcode_bytes=4,
        bitcode_sha256="ab",
        front_end_seconds=0.25,
        text_bytes=7,
    )
    failure = ModuleFailure(name="p/b.cc.o", project="other", reason="b.cc:1:1: error: no")
    with corpus_writer(tmp_path, description_fields(), remedy="add modules") as writer:
        writer.add(module)
        writer.add(failure)
    assert load_corpus(tmp_path) == Corpus(folder=tmp_path, modules=(module,), failures=(failure,))
    assert json.loads((tmp_path / DESCRIPTION_NAME).read_text()) == {"has_thinlto": False, "modules": ["p/a.cc.o"]}


def test_a_writer_tells_the_first_failures_alone(tmp_path: Path):
    with corpus_writer(tmp_path, description_fields(), remedy="") as writer:
        writer.add_name("a.o")
        for number in range(30):
            writer.add(ModuleFailure(name=f"{number}.o", project="p", reason="no"))
    found = writer.summarize()
    assert (found.failures, len(found.examples), found.examples[0].name) == (30, 20, "0.o")


def test_command_lines_survive():
    options = ("-cc1", "-DX=\udcff\n é", "-Oz")
    assert decode_command_line(encode_command_line(options)) == options
    assert encode_command_line(options).startswith(b"-cc1\0")
    assert encode_command_line(options).endswith(b"-Oz\0")


def test_unusable_modules_are_left_out_with_their_reason(tmp_path: Path):
    add(tmp_path, "p/good.o")
    add(tmp_path, "p/no-bitcode.o", bitcode=None)
    add(tmp_path, "p/empty.o", bitcode=b"")
    add(tmp_path, "p/no-cmd.o", cmd=None)
    add(tmp_path, "p/driver.o", cmd=b"clang\0-c\0")
    add(tmp_path, "p/nothing.o", cmd=b"")
    names = ("p/no-bitcode.o", "p/empty.o", "p/good.o", "p/no-cmd.o", "p/driver.o", "p/nothing.o")
    corpus = load_corpus(describe(tmp_path, *names))
    assert [module.name for module in corpus.modules] == ["p/good.o"]
    assert {failure.name: failure.reason for failure in corpus.missing} == {
        "p/no-bitcode.o": "expected bitcode in no-bitcode.o.bc, found no file",
        "p/empty.o": "expected bitcode in empty.o.bc, found an empty file",
        "p/no-cmd.o": "expected a command line in no-cmd.o.cmd, found no file",
        "p/driver.o": "expected -cc1 as the first option, found clang",
        "p/nothing.o": "expected -cc1 as the first option, found no option",
    }


def test_a_name_that_no_file_can_have_is_missing(tmp_path: Path):
    add(tmp_path, "a.o")
    corpus = load_corpus(describe(tmp_path, "\ud800.o", "a.o"))
    assert [failure.reason for failure in corpus.missing] == ["expected a name that a file can have, found '\\ud800.o'"]


@pytest.mark.parametrize("name", [f"{'a' * 300}.o", f"{'a' * 300}/b.o", "\ud800/b.o"])
def test_a_name_that_is_too_long_is_one_missing_module(tmp_path: Path, name: str):
    add(tmp_path, "b.o")
    corpus = load_corpus(describe(tmp_path, name, "b.o"))
    assert ([one.name for one in corpus.modules], [one.name for one in corpus.missing]) == (["b.o"], [name])


def test_nothing_usable_is_an_error(tmp_path: Path):
    describe(tmp_path, "p/a.o", "p/b.o")
    with pytest.raises(CorpusError, match=r"found none of 2 usable \(p/a.o: .*\); extract the corpus again"):
        load_corpus(tmp_path)


def test_an_empty_corpus_is_an_error(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"expected at least one module in corpus_description.json, found none"):
        load_corpus(describe(tmp_path))


def test_no_corpus_is_an_error(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"expected a file, found: No such file or directory; extract a corpus there"):
        load_corpus(tmp_path)


def test_a_name_given_twice_is_one_module(tmp_path: Path):
    add(tmp_path, "a.o")
    assert len(load_corpus(describe(tmp_path, "a.o", "a.o")).modules) == 1


@pytest.mark.parametrize("name", ["../a.o", "p/../../a.o", "/etc/a.o", "", ".", "p\\a.o", "p/\0a.o"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str):
    with pytest.raises(
        CorpusError,
        match=r"expected names of modules inside the folder, found .*; make the corpus again with other names",
    ):
        load_corpus(describe(tmp_path, name))


@pytest.mark.parametrize("name", ["-fpass-plugin=./x.so", "-o/a.o", "@more", "@more/a.o"])
def test_a_name_that_a_compiler_takes_for_an_option_is_refused(tmp_path: Path, name: str):
    with pytest.raises(
        CorpusError,
        match=r"expected names of modules that clang cannot take for options \(.*\), found .*; make the corpus again",
    ):
        load_corpus(describe(tmp_path, name))


@pytest.mark.parametrize(("folder", "project"), [("zlib", "zlib"), ("zlib/build", "zlib"), ("my corpus", "my-corpus")])
def test_a_corpus_of_one_build_is_one_project(tmp_path: Path, folder: str, project: str):
    names = [*(f"CMakeFiles/lib.dir/{index}.cc.o" for index in range(3)), "util/CMakeFiles/tool.dir/a.cc.o", "b.o"]
    for name in names:
        add(tmp_path / folder, name)
    corpus = load_corpus(describe(tmp_path / folder, *names, "util/gone.o"))
    assert {one.project for one in (*corpus.modules, *corpus.missing)} == {project}


def test_modules_that_a_sidecar_does_not_know_join_its_only_project(tmp_path: Path):
    for name in ("a.o", "lib/b.o"):
        add(tmp_path, name)
    write_sidecar(tmp_path, {"a.o": {"project": "zlib"}}, ())
    assert [one.project for one in load_corpus(describe(tmp_path, "a.o", "lib/b.o")).modules] == ["zlib", "zlib"]
    write_sidecar(tmp_path, {"a.o": {"project": "zlib"}, "lib/c.o": {"project": "lib"}}, ())
    assert [one.project for one in load_corpus(tmp_path).modules] == ["zlib", "lib"]


def test_paths_for_the_compiler_are_absolute(tmp_path: Path):
    add(tmp_path, "a.o")
    describe(tmp_path, "a.o")
    with contextlib.chdir(tmp_path):
        assert load_corpus(Path()).modules[0].bitcode == tmp_path / "a.o.bc"


def test_paths_for_the_compiler_need_no_folder_that_a_sandbox_hides(tmp_path: Path):
    (tmp_path / "other").mkdir()
    add(tmp_path / "corpus", "a.o")
    describe(tmp_path / "corpus", "a.o")
    (module,) = load_corpus(tmp_path / "other" / ".." / "corpus").modules
    assert module.bitcode == tmp_path / "corpus/a.o.bc"


def test_one_command_line_may_serve_all(tmp_path: Path):
    add(tmp_path, "a.o", cmd=None)
    describe(tmp_path, "a.o", global_command_override=["-cc1", "-O2"])
    assert load_corpus(tmp_path).modules[0].command_line == ("-cc1", "-O2")
    describe(tmp_path, "a.o", global_command_override=["-O2"])
    assert load_corpus(tmp_path).modules[0].command_line == ("-cc1", "-O2")
    for unfilled in ([], ["<UNSPECIFIED>"]):
        with pytest.raises(CorpusError, match=r"global_command_override: expected the options .* fill them in"):
            load_corpus(describe(tmp_path, "a.o", global_command_override=unfilled))


def test_modules_of_a_thinlto_build_have_their_index(tmp_path: Path):
    for name in ("a.o", "b.o"):
        add(tmp_path, name)
    (tmp_path / "a.o.thinlto.bc").touch()
    corpus = load_corpus(describe(tmp_path, "a.o", "b.o", has_thinlto=True))
    assert corpus.has_thinlto
    assert [module.thinlto_index for module in corpus.modules] == [tmp_path / "a.o.thinlto.bc"]
    assert corpus.missing[0].reason == "expected the module's ThinLTO index in b.o.thinlto.bc, found no file"


def test_the_description_tells_of_thinlto_and_options_for_all(tmp_path: Path):
    fields = description_fields(has_thinlto=True, override=["-cc1", "-Oz"])
    with corpus_writer(tmp_path, fields, remedy="none") as writer:
        writer.add_name("a.o")
    override = '"global_command_override": [\n    "-cc1",\n    "-Oz"\n  ]'
    modules = '"modules": [\n    "a.o"\n  ]'
    assert (tmp_path / DESCRIPTION_NAME).read_text() == f'{{\n  {override},\n  "has_thinlto": true,\n  {modules}\n}}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON, found"),
        ("[]", "expected a JSON object, found list"),
        ("[" * 100_000, "expected JSON, found"),
        ('{"modules": "a.o"}', "modules: expected a list of strings, found 'a.o'"),
        ('{"modules": ["a.o", 1]}', "modules: expected a list of strings"),
        ("{}", "modules: expected a list of strings, found None"),
        ('{"modules": ["a.o"], "has_thinlto": 1}', "has_thinlto: expected true or false, found 1"),
        ('{"modules": ["a.o"], "global_command_override": 1}', "global_command_override: expected a list of strings"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, text: str, message: str):
    (tmp_path / DESCRIPTION_NAME).write_text(text)
    with pytest.raises(CorpusError, match=message) as caught:
        load_corpus(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected a JSON object, found list"),
        ({"modules": {}}, "format_version: expected 1, found None"),
        ({"format_version": 1, "modules": []}, "expected an object 'modules'"),
        ({"format_version": 1, "modules": {"a.o": 3}}, "module 'a.o': expected an object, found 3"),
        (
            {"format_version": 1, "modules": {"a.o": {"bitcode_bytes": True}}},
            "bitcode_bytes: expected int, found True",
        ),
        (
            {"format_version": 1, "modules": {"a.o": {"source": 3}}},
            "source: expected str, found 3",
        ),
        (
            {"format_version": 1, "modules": {}, "failures": [{"name": "a", "project": "p"}]},
            r"failures\[0\]: expected the key 'reason', found none",
        ),
    ],
)
def test_a_wrong_sidecar_is_named_and_may_be_deleted(tmp_path: Path, value: object, message: str):
    add(tmp_path, "a.o")
    describe(tmp_path, "a.o")
    (tmp_path / SIDECAR_NAME).write_text(json.dumps(value))
    with pytest.raises(CorpusError, match=f"{message}.*; delete {SIDECAR_NAME} to load the corpus without it"):
        load_corpus(tmp_path)
    (tmp_path / SIDECAR_NAME).unlink()
    assert load_corpus(tmp_path).modules


def test_keys_of_later_versions_are_ignored(tmp_path: Path):
    add(tmp_path, "a.o")
    describe(tmp_path, "a.o", colour="red")
    facts = {"a.o": {"language": "c", "colour": "red"}}
    (tmp_path / SIDECAR_NAME).write_text(json.dumps({"format_version": 1, "modules": facts, "colour": "red"}))
    assert load_corpus(tmp_path).modules[0].language == "c"


def test_command_lines_are_edited_and_freed_of_what_the_front_end_reads(tmp_path: Path):
    add(tmp_path, "p/a.o", cmd=b"-cc1\0-Oz\0-dependency-file\0a.d\0-split-dwarf-file\0a.dwo\0-Iinclude\0-emit-obj\0")
    add(tmp_path, "p/b.o", cmd=b"-cc1\0-O2\0")
    edits = command_line_edits(add=["-mllvm -stats"], replace=["-O3"])
    corpus = load_corpus(describe(tmp_path, "p/a.o", "p/b.o"), edits)
    assert {module.command_line for module in corpus.modules} == {("-cc1", "-O3", "-mllvm", "-stats")}
    with pytest.raises(UsageError, match=r"p/b\.o: replace options: expected an option -split-dwarf-file"):
        load_corpus(tmp_path, command_line_edits(replace=["-split-dwarf-file=/b"]))


def test_the_override_is_edited_as_one_command_line(tmp_path: Path):
    add(tmp_path, "p/a.o", cmd=None)
    describe(tmp_path, "p/a.o", global_command_override=["-cc1", "-O2", "-fthinlto-index=a"], has_thinlto=True)
    (tmp_path / "p/a.o.thinlto.bc").write_bytes(b"")
    corpus = load_corpus(tmp_path, command_line_edits(delete=["-O"]))
    assert corpus.modules[0].command_line == ("-cc1",)
    sentence = r"corpus_description\.json: global_command_override: replace options: expected an option -target-cpu"
    with pytest.raises(UsageError, match=sentence):
        load_corpus(tmp_path, command_line_edits(replace=["-target-cpu x"]))


def test_a_strangers_modules_are_refused_one_by_one(tmp_path: Path):
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    outside.write_bytes(CMD)
    add(corpus, "p/good.o")
    add(corpus, "p/plugin.o", cmd=b"-cc1\0-load\0evil.so\0")
    for name, suffix in (("p/bitcode-link.o", "bc"), ("p/cmd-link.o", "cmd")):
        add(corpus, name)
        (corpus / f"{name}.{suffix}").unlink()
        (corpus / f"{name}.{suffix}").symlink_to(outside)
    add(corpus, "p/pipe.o", cmd=None)
    os.mkfifo(corpus / "p/pipe.o.cmd")
    add(corpus, "p/long.o", cmd=b"-cc1\0" + bytes(1 << 20))
    names = ("p/good.o", "p/plugin.o", "p/bitcode-link.o", "p/cmd-link.o", "p/pipe.o", "p/long.o")
    loaded = load_corpus(describe(corpus, *names))
    assert [module.name for module in loaded.modules] == ["p/good.o"]
    reasons = {failure.name: failure.reason for failure in loaded.missing}
    assert reasons["p/plugin.o"].startswith("expected options that only decide the code, found -load evil.so")
    assert reasons["p/bitcode-link.o"] == (
        f"expected bitcode inside of the corpus, found bitcode-link.o.bc to be a link to {outside}; copy it"
    )
    assert reasons["p/cmd-link.o"].startswith("expected a command line inside of the corpus, found cmd-link.o.cmd")
    assert reasons["p/pipe.o"] == "expected a command line in pipe.o.cmd, found no regular file"
    assert reasons["p/long.o"].startswith("expected at most 1048576 bytes of a command line in long.o.cmd, found")


def test_an_override_of_a_driver_is_translated(tmp_path: Path):
    add(tmp_path, "p/a.o", cmd=None)
    walkthrough = """-fPIC -mllvm -instcombine-lower-dbg-declare=0 -mllvm -import-instr-limit=30 -no-canonical-prefixes
        -O2 -nostdlib++ --sysroot=/path/to/sysroot -c"""
    corpus = load_corpus(describe(tmp_path, "p/a.o", global_command_override=walkthrough.split()))
    assert corpus.modules[0].command_line == (
        *("-cc1", "-O2", "-vectorize-loops", "-vectorize-slp", "-mrelocation-model", "pic", "-pic-level", "2"),
        *("-ffunction-sections", "-fdata-sections", "-faddrsig"),
        *("-mllvm", "-instcombine-lower-dbg-declare=0", "-mllvm", "-import-instr-limit=30"),
    )


@pytest.mark.parametrize(
    ("override", "tail"),
    [
        (["-Oz", "-c"], ("-Oz", "-vectorize-slp", "-mrelocation-model", "static")),
        (["-Os", "-c"], ("-Os", "-vectorize-loops", "-vectorize-slp", "-mrelocation-model", "static")),
        (["-O", "-c"], ("-O1", "-mrelocation-model", "static")),
        (["-O3", "-fPIC", "-fno-pic"], ("-O3", "-vectorize-loops", "-vectorize-slp", "-mrelocation-model", "static")),
        (["--target=armv7-linux-android", "-O1", "-c"], ("-triple", "armv7-linux-android", "-O1")),
        (["-target", "armv7-linux-android", "-O1", "-L", "y"], ("-triple", "armv7-linux-android", "-O1")),
    ],
)
@pytest.mark.parametrize("has_thinlto", [True, False])
def test_an_override_of_a_driver_keeps_its_meaning(
    tmp_path: Path, override: list[str], tail: tuple[str, ...], has_thinlto: bool
):
    add(tmp_path, "p/a.o", cmd=None)
    (tmp_path / "p/a.o.thinlto.bc").touch()
    corpus = load_corpus(describe(tmp_path, "p/a.o", global_command_override=override, has_thinlto=has_thinlto))
    assert corpus.modules[0].command_line[1 : len(tail) + 1] == tail
    assert corpus.override == tuple(override)
    assert corpus_info(corpus).translated[: len(tail) + 1] == ("-cc1", *tail)


@pytest.mark.parametrize(
    ("override", "word"),
    [
        (["-something"], "-something"),
        (["-O3", "-something", "-c"], "-something"),
        (["-O2", "-march=armv7-a", "-c"], "-march=armv7-a"),
        (["-Ofast", "-c"], "-Ofast"),
        (["-Og", "-c"], "-Og"),
        (["-O2", "-c", "a.o"], "a.o"),
        (["-O2", "-c", ""], ""),
        (["-O2", "-Xclang", "-load", "-Xclang", "x.so"], "-Xclang"),
        (["-O2", "-c", "-fno-omit-frame-pointer"], "-fno-omit-frame-pointer"),
    ],
)
@pytest.mark.parametrize("has_thinlto", [True, False])
def test_an_override_of_words_without_a_known_meaning_is_refused(
    tmp_path: Path, override: list[str], word: str, has_thinlto: bool
):
    add(tmp_path, "p/a.o", cmd=None)
    (tmp_path / "p/a.o.thinlto.bc").touch()
    describe(tmp_path, "p/a.o", global_command_override=override, has_thinlto=has_thinlto)
    sentence = re.escape(
        f"for bitcode is known, found {word!r}; leave it out, or give the line that `clang -###` prints"
    )
    with pytest.raises(CorpusError, match=rf"global_command_override: expected options of clang -cc1, .*{sentence}"):
        load_corpus(tmp_path)


def test_an_override_of_a_driver_without_a_level_is_refused(tmp_path: Path):
    add(tmp_path, "p/a.o", cmd=None)
    with pytest.raises(
        CorpusError,
        match=r"global_command_override: expected an optimization level .* found none, so clang would not optimize",
    ):
        load_corpus(describe(tmp_path, "p/a.o", global_command_override=["-fPIC", "-c"]))


def test_a_description_is_a_file_of_the_corpus(tmp_path: Path):
    corpus = tmp_path / "corpus"
    add(corpus, "a.o")
    describe(corpus, "a.o").joinpath(DESCRIPTION_NAME).rename(tmp_path / "elsewhere")
    (corpus / DESCRIPTION_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        CorpusError, match=r"expected a file inside the corpus, found a link to .*elsewhere; replace the link by a copy"
    ):
        load_corpus(corpus)
    (corpus / DESCRIPTION_NAME).unlink()
    os.mkfifo(corpus / DESCRIPTION_NAME)
    with pytest.raises(CorpusError, match=r"expected a file, found: expected a file, found a folder or a device"):
        load_corpus(corpus)


def test_a_description_that_leads_to_itself_is_an_error(tmp_path: Path):
    (tmp_path / DESCRIPTION_NAME).symlink_to(DESCRIPTION_NAME)
    with pytest.raises(CorpusError, match="expected a file, found: cannot be read: Too many levels"):
        load_corpus(tmp_path)


def test_a_description_has_a_largest_size(tmp_path: Path):
    add(tmp_path, "a.o")
    with (describe(tmp_path, "a.o") / DESCRIPTION_NAME).open("ab") as file:
        file.truncate((1 << 27) + 1)
    with pytest.raises(
        CorpusError, match=r"expected a regular file of at most 134217728 bytes, found one of 134217729"
    ):
        load_corpus(tmp_path)


@pytest.mark.parametrize(
    ("modules", "kept"), [('{"old": {"project": "p"}, "bro', ["new", "old"]), ('{"old": 5}}', ["new"]), ("", ["new"])]
)
def test_facts_of_an_import_that_ends_early_are_kept_beside_a_wrong_sidecar(
    tmp_path: Path, modules: str, kept: list[str]
):
    (tmp_path / SIDECAR_NAME).write_text(f'{{"format_version": 1, "modules": {modules}')

    def write() -> None:
        with corpus_writer(tmp_path, description_fields(), remedy="import", keep_facts=True) as writer:
            writer.add_facts("new", {"project": "p"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(json.loads((tmp_path / SIDECAR_NAME).read_bytes())["modules"]) == kept

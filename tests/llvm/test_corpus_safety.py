"""What a stranger's corpus could make a real clang do, and that it is not done."""

import json
import re
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import LLVM_KINDS, option_table, parse_options
from mlgokit.compiler.options.safety import check_command_line, is_left_out
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.layout import encode_command_line
from mlgokit.testing import toy_source

FILES = ("file", "<path", "directory", "plugin", "<dir", "output")
REVIEWED = {
    "--linker-option",
    "-fprofile-exclude-files",
    "-fprofile-filter-files",
    "-fprofile-instrument-path",
    "-fmemory-profile",
    "-fprofile-instrument",
    "-fprofile-instrument-use",
    "-ffile-reproducible",
    "-funique-source-file-identifier",
    "-object-file-name",
    "-fsanitize-undefined-strip-path-components",
    "-compress-debug-sections",
    "-fprofile-update",
    "-fprofile-function-groups",
    "-fprofile-selected-function-group",
    "-preamble-bytes",
    "--output-asm-variant",
}
EVIL = {
    "stats": ("-stats-file={out}",),
    "remarks": ("-opt-record-file", "{out}"),
    "time": ("-ftime-trace={out}",),
    "split": ("-split-dwarf-output", "{out}", "-split-dwarf-file", "{out}"),
    "dependencies": ("-dependency-file", "{out}", "-MT", "a"),
    "diagnostics": ("-diagnostic-log-file", "{out}"),
    "stack": ("-stack-usage-file", "{out}"),
    "llvm-stats": ("-mllvm", "-info-output-file={out}", "-mllvm", "-stats"),
    "remarks-from-llvm": ("-mllvm", "-lto-pass-remarks-output={out}"),
    "output": ("-o", "{out}"),
    "load": ("-load", "{out}"),
    "response": ("@{out}",),
    "execute": ("-mllvm", "-exec-on-ir-change={out}"),
    "notes": ("-coverage-notes-file={out}",),
}

pytestmark = pytest.mark.llvm


def test_options_that_clang_says_take_files_are_refused_left_out_or_reviewed(toolchain: Toolchain):
    shown = process.run(Cc1Line(toolchain.clang, own=["--help"]), timeout_seconds=60).stdout.decode().splitlines()
    suspects: set[str] = set()
    for number, line in enumerate(shown):
        text = line if len(line) > 24 else f"{line} {shown[number + 1] if number + 1 < len(shown) else ''}"
        if line.startswith("  -") and any(word in text.lower() for word in FILES):
            suspects.add(line.split()[0].partition("=")[0].partition("<")[0].rstrip(","))
    assert len(suspects) > 60
    taken = {
        name
        for name in suspects
        for words in ([f"{name}=x"], [name, "x"], [f"{name}x"])
        if (option := parse_options(words)[0]).kind not in {"unknown", "flag"}
        and check_command_line(["-cc1", *words]) is None
        and not is_left_out(option)
        and len(option.words) == len(words)
    }
    assert taken <= REVIEWED


def test_no_corpus_writes_or_runs_what_it_likes(toolchain: Toolchain, tmp_path: Path):
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    corpus.mkdir()
    source = tmp_path / "a.c"
    source.write_text("int twice(int x) { for (int i = 0; i < 9; i++) x += i * x; return x; }\n")
    bitcode = corpus / "good.bc"
    own = ["-Oz", "-disable-llvm-passes", "-emit-llvm-bc", "-o", str(bitcode), str(source)]
    assert process.run(Cc1Line(toolchain.clang, own=own), timeout_seconds=60).returncode == 0
    (corpus / "good.cmd").write_bytes(encode_command_line(("-cc1", "-Oz")))
    for name, words in EVIL.items():
        (corpus / f"{name}.bc").write_bytes(bitcode.read_bytes())
        line = tuple(word.format(out=outside / name) for word in words)
        (corpus / f"{name}.cmd").write_bytes(encode_command_line(("-cc1", "-Oz", *line)))
    outside.mkdir()
    (corpus / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": ["good", *EVIL]}))
    loaded = load_corpus(corpus)
    refused = {"llvm-stats", "remarks-from-llvm", "output", "load", "response", "execute", "notes"}
    assert {failure.name for failure in loaded.missing} == refused
    for module in loaded.modules:
        result = ClangCompiler(toolchain=toolchain).compile(module)
        assert result.sizes is not None, result.reason
    assert list(outside.iterdir()) == []


def test_the_action_that_a_foreign_corpus_names_is_not_the_one_that_is_done(toolchain: Toolchain, tmp_path: Path):
    source = tmp_path / "a.c"
    source.write_text("int f(int x) { return x + 1; }\n")
    actions = (("-emit-obj",), ("-S",), ("-emit-llvm-bc",), ("-emit-llvm", "-S", "-x", "c"))
    for number, action in enumerate(actions):
        bitcode = tmp_path / f"{number}.bc"
        own = ["-Oz", "-disable-llvm-passes", "-emit-llvm-bc", "-o", str(bitcode), str(source)]
        assert process.run(Cc1Line(toolchain.clang, own=own), timeout_seconds=60).returncode == 0
        bitcode.with_suffix(".cmd").write_bytes(encode_command_line(("-cc1", *action, "-disable-llvm-passes", "-Oz")))
    names = [str(number) for number in range(len(actions))]
    (tmp_path / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": names}))
    results = [
        ClangCompiler(toolchain=toolchain).compile(one, CompileRequest(keep_object=tmp_path / f"{one.name}.o"))
        for one in load_corpus(tmp_path).modules
    ]
    assert [result.reason for result in results] == [""] * len(actions)
    assert len({(tmp_path / f"{name}.o").read_bytes() for name in names}) == 1


def test_the_environment_does_not_reach_the_compiler(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, bitcode = tmp_path / "a.c", tmp_path / "a.bc"
    source.write_text("int f(void) { return 1; }\n")
    own = ["-Oz", "-emit-llvm-bc", "-o", str(bitcode), str(source)]
    assert process.run(Cc1Line(toolchain.clang, own=own), timeout_seconds=60).returncode == 0
    plain = ClangCompiler(toolchain=toolchain).compile(toy_source("a", bitcode=bitcode))
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "+-no-such-option")
    monkeypatch.setenv("CC_PRINT_OPTIONS", "1")
    monkeypatch.setenv("CC_PRINT_OPTIONS_FILE", str(tmp_path / "log"))
    again = ClangCompiler(toolchain=toolchain).compile(toy_source("a", bitcode=bitcode))
    assert plain.sizes is not None
    assert again.sizes is not None
    assert again.sizes.totals == plain.sizes.totals
    assert not (tmp_path / "log").exists()


def test_the_table_has_every_option_that_clang_lists(toolchain: Toolchain):
    shown = process.run(Cc1Line(toolchain.clang, own=["--help"]), timeout_seconds=60).stdout.decode()
    names = set(re.findall(r"^  (--?[A-Za-z][\w+-]*=?)", shown, re.MULTILINE))
    assert len(names) > 900
    kinds = option_table().kinds
    assert {name for name in names if name not in kinds and not any(word.startswith(name) for word in kinds)} == set()
    llvm = process.run(
        Cc1Line(toolchain.clang, own=["-mllvm", "-help-list-hidden", "-"]), timeout_seconds=60
    ).stdout.decode()
    listed = set(re.findall(r"^  --?([A-Za-z][\w.-]*)", llvm, re.MULTILINE))
    # The one of 23 has the options of one target alone.
    assert len(listed) > 1800
    assert {name for name in listed if kinds.get(name) not in LLVM_KINDS} == set()

import os
from pathlib import Path

import pytest

from mlgokit.compiler.options.parse import LLVM_KINDS, option_table, parse_options
from mlgokit.compiler.options.safety import (
    LONGEST_COMMAND_LINE,
    MOST_PROFILE_BYTES,
    check_command_line,
    check_front_end,
    is_left_out,
)

FILE_WORDS = (
    "file",
    "path",
    "dir",
    "plugin",
    "load",
    "list",
    "output",
    "log",
    "record",
    "link",
    "embed",
    "merge",
    "map",
)
REVIEWED = {
    "--linker-option=": "a word in a section",
    "-fms-secure-hotpatch-functions-list=": "names of functions",
    "-fprofile-exclude-files=": "regular expressions",
    "-fprofile-filter-files=": "regular expressions",
    "-fprofile-instrument-path=": "a name that the instrumented program will write to",
    "-fmemory-profile=": "a folder that the instrumented program will write to",
    "-fsanitize-undefined-strip-path-components=": "a number",
    "-funique-source-file-identifier=": "a word in a symbol",
    "-object-file-name=": "a name in debug information",
    "-fprofile-update=": "a word",
    "-load-bool-from-mem=": "a word",
    "-mdefault-visibility-export-mapping=": "a word",
    "-target-linker-version": "a number",
    "-loader-replaceable-function=": "names of functions",
    "-faddress-space-map-mangling=": "a word",
    "-fprofile-function-groups=": "a number",
    "-fprofile-instrument=": "a word",
    "-fprofile-instrument-use=": "a word",
    "-fprofile-selected-function-group=": "a number",
    "--offload-targets=": "triples",
    "--output-asm-variant=": "a number",
    "-fsanitize-merge=": "names of checks",
    "-fno-sanitize-merge=": "names of checks",
}


HARMLESS = {
    "aarch64-enable-logical-imm",
    "arm64ec-lower-direct-to-indirect",
    "frame-helper-size-threshold",
    "misched-postra-direction",
    "misched-prera-direction",
    "nvptx-approx-log2f32",
    "ppc-reduce-cr-logicals",
    "static-func-strip-dirname-prefix",
    "use-leb128-directives",
    "use-source-filename-for-promoted-locals",
}
"""Options of LLVM that only sound like output."""

USUAL = """
-cc1 -triple x86_64-pc-linux-gnu -emit-obj -dumpdir a- -disable-free -clear-ast-before-backend -disable-llvm-verifier
-discard-value-names -main-file-name a.cc -mrelocation-model pic -pic-level 2 -mframe-pointer=none -fmath-errno
-ffp-contract=on -fno-rounding-math -mconstructor-aliases -funwind-tables=2 -target-cpu x86-64 -tune-cpu generic
-debugger-tuning=gdb -fdebug-compilation-dir=/src -ffunction-sections -resource-dir /usr/lib -dependency-file a.d
-MT a.o -sys-header-deps -I include -D NDEBUG -internal-isystem /usr/include -Oz -Wall -std=c++17 -fdeprecated-macro
-ferror-limit 19 -fgnuc-version=4.2.1 -fno-implicit-modules -fcxx-exceptions -fexceptions -vectorize-loops
-vectorize-slp -faddrsig -fsanitize=address -mllvm -inline-threshold=5 -mllvm -stats -mllvm -regalloc=greedy
-D__GCC_HAVE_DWARF2_CFI_ASM=1 -fembed-bitcode=all -x c++
"""


@pytest.mark.parametrize(
    "words",
    [
        ["-load", "evil.so"],
        ["-fplugin=evil.so"],
        ["-fpass-plugin=evil.so"],
        ["-plugin", "print"],
        ["-add-plugin", "print"],
        ["-plugin-arg-print", "x"],
        ["-o", "/etc/passwd"],
        ["-oelsewhere"],
        ["@more"],
        ["-mllvm", "@more"],
        ["-target-cpu", "@more"],
        ["input.c"],
        ["-"],
        ["-cc1as"],
        ["-cc1gen-reproducer"],
        ["-Oz", "-target-cpu\0x"],
        ["-mllvm", "-load-pass-plugin=evil.so"],
        ["-mllvm", "-exec-on-ir-change=evil"],
        ["-mllvm", "--exec-on-ir-change=evil"],
        ["-mllvm", "-exec-on-ir-change", "-mllvm", "evil"],
        ["-mllvm", "-stats-file=1"],
        ["-mllvm", "-info-output-file=1"],
        ["-mllvm", "-pass-remarks-output=x"],
        ["-mllvm", "-inliner-interactive-channel-base=pipes/x"],
        ["-mllvm", "-regalloc-evict-interactive-channel-base=x"],
        ["-mllvm", "-training-log=x"],
        ["-mllvm", "-mlgokit-policy=5"],
        ["-mllvm", "-view-cfg"],
        ["-mllvm", "-print-changed=dot-cfg"],
        ["-mllvm", "-dot-cfg-dir=."],
        ["-mllvm", "-inline-threshold=../x"],
        ["-mllvm", "-unheard-of=name"],
        ["-mllvm"],
        ["-mmlir", "-x"],
        ["-fmemory-profile-use=/a"],
        ["-fsanitize-coverage-allowlist=a"],
        ["-coverage-notes-file=a"],
        ["-coverage-data-file=a"],
        ["-fembed-offload-object=a"],
        ["-mlink-bitcode-file", "a"],
        ["-mlink-builtin-bitcode", "a"],
        ["-fthinlto-index=a"],
        ["-fbasic-block-sections=list=a"],
        ["-ast-merge", "a"],
        ["-fixit"],
        ["-E"],
        ["-fsyntax-only"],
        ["-emit-html"],
        ["-rewrite-objc"],
        ["-working-directory", "/"],
        ["-remap-file", "a;b"],
        ["-funheard-of-file=a"],
        ["-funheard-of=/a"],
        ["-fprofile-instrument-use-path=a"],
        ["-mllvm", "-polly"],
        ["-mllvm", "-polly", "-mllvm", "-polly-export"],
        ["-mllvm", "-polly-position=early"],
        ["-mllvm", "-memprof-export-to-dot"],
        ["-mllvm", "-unheard-of"],
        ["-mllvm", "-unheard-of=3"],
        ["-funheard-of"],
        ["-Oz", "-target-cpu"],
        ["-mllvm", "-inline-threshold"],
        ["-target-cpu", "-load"],
        ["-triple", "-fplugin=evil.so"],
        ["-emit-symbol-graph"],
        ["--hipstdpar"],
    ],
)
def test_what_loads_code_or_names_files_is_refused(words: list[str], tmp_path: Path):
    reason = check_command_line(["-cc1", *words], folder=tmp_path)
    assert reason is not None
    assert reason.startswith("expected options that only decide the code, found ")
    assert "--delete-options" in reason


def test_a_usual_command_line_is_taken(tmp_path: Path):
    line = USUAL.split()
    assert check_command_line(line, folder=tmp_path) is None
    left_out = {option.name for option in parse_options(line[1:]) if is_left_out(option)}
    assert {"-dependency-file", "-MT", "-I", "-D", "-internal-isystem", "-emit-obj", "-x"} <= left_out
    assert not left_out & {"-triple", "-O", "-target-cpu", "-fsanitize=", "-funwind-tables=", "-mllvm -stats"}


def test_profiles_are_taken_from_the_corpus_only(tmp_path: Path):
    inside, outside = tmp_path / "corpus" / "p.profdata", tmp_path / "q.profdata"
    inside.parent.mkdir()
    inside.write_bytes(b"p")
    outside.write_bytes(b"")
    with (inside.with_name("large")).open("wb") as large:
        large.truncate(MOST_PROFILE_BYTES + 1)
    os.mkfifo(inside.with_name("pipe"))
    link = inside.with_name("link")
    link.symlink_to(outside)
    for option in ("-fprofile-instrument-use-path=", "-fprofile-sample-use=", "-fmemory-profile-use="):
        assert check_command_line(["-cc1", f"{option}{inside}"], folder=inside.parent) is None
        assert check_command_line(["-cc1", f"{option}p.profdata"], folder=inside.parent) is None
        refused = ["../q.profdata", "large", "pipe", "missing", ".", "a" * 300, ""]
        for path in (outside, link, inside.parent / ".." / "q.profdata", *refused):
            assert check_command_line(["-cc1", f"{option}{path}"], folder=inside.parent) is not None


def test_cc1_comes_first_and_lines_have_an_end():
    assert check_command_line([]) == "expected -cc1 as the first option, found no option"
    assert check_command_line(["-Oz", "-cc1"]) == "expected -cc1 as the first option, found -Oz"
    joined = check_command_line(["-cc1", "-Oz", "-cc1", "-Oz"])
    assert joined == "expected one command line, found a second -cc1; extract the objects before they are joined"
    long = check_command_line(["-cc1", "-target-cpu", "x" * LONGEST_COMMAND_LINE])
    assert long == f"expected at most {LONGEST_COMMAND_LINE} bytes of options, found more"


def test_every_option_that_is_named_after_files_is_refused_left_out_or_reviewed():
    taken: set[str] = set()
    for word, kind in option_table().kinds.items():
        if kind in LLVM_KINDS or kind == "flag" or not any(part in word for part in FILE_WORDS):
            continue
        words = [word, "x"] if kind in {"separate", "pair"} else [f"{word}x"]
        option = parse_options(words)[0]
        if check_command_line(["-cc1", *words]) is None and not is_left_out(option):
            taken.add(option.name)
    assert taken <= set(REVIEWED)
    assert all(option_table().kinds[name] for name in REVIEWED)


def test_no_option_of_llvm_takes_a_path():
    for word, kind in option_table().kinds.items():
        if kind in LLVM_KINDS:
            assert check_command_line(["-cc1", "-mllvm", f"-{word}=/x"]) is not None
            assert (
                kind != "llvm-text" or not word.endswith("file") or check_command_line(["-cc1", "-mllvm", f"-{word}=x"])
            )


OUTPUTS = """
-dependency-file -diagnostic-log-file -stack-usage-file -serialize-diagnostic-file -split-dwarf-output
-opt-record-file -header-include-file -module-dependency-dir -dependency-dot
"""
JOINED_OUTPUTS = "-stats-file= -ftime-trace= -fmodules-cache-path= -fthin-link-bitcode= -fmodule-output= -save-temps="


@pytest.mark.parametrize(
    "words", [[name, "x"] for name in OUTPUTS.split()] + [[f"{n}x"] for n in JOINED_OUTPUTS.split()]
)
def test_a_source_is_not_compiled_with_what_names_an_output(words: list[str]):
    assert check_front_end(["-cc1", "-Oz", "-I", "include", *words]) == (
        f"expected options that decide the code, found {' '.join(words)}, which extraction does not do; "
        "take it out of the build's command"
    )


@pytest.mark.parametrize(
    "words", [["-load", "x"], ["-I", "-load"], ["-include", "@x"], ["-o", "x"], ["x.c"], ["-I"], ["-E"]]
)
def test_a_source_is_compiled_under_the_same_gate(words: list[str]):
    assert check_front_end(["-cc1", *words]) is not None


def test_what_a_user_of_the_documentation_may_have_is_taken():
    names = (
        "inline-threshold=5", "stats", "regalloc=greedy", "ml-advisor-size-increase-threshold=2",
        "import-instr-limit=5", "instcombine-lower-dbg-declare=0", "thinlto-assume-merged",
        "enable-ml-inliner=default", "unroll-threshold=7",
    )  # fmt: skip
    for name in names:
        assert check_command_line(["-cc1", "-mllvm", f"-{name}"]) is None


def test_no_reviewed_option_of_llvm_prints_draws_or_exports():
    named = ("polly", "print", "dump", "dot-", "export", "view", "-file", "-dir", "-log", "mlgokit", "help", "plugin")
    for word, kind in option_table().kinds.items():
        if kind in LLVM_KINDS and any(part in word for part in named):
            value = "" if kind == "llvm-flag" else "=1"
            found = check_command_line(["-cc1", "-mllvm", f"-{word}{value}"])
            assert found is not None or word in HARMLESS, word

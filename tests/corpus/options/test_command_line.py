import pytest

from mlgokit.corpus.options.command_line import options_for_ir, read_dry_run
from mlgokit.errors import ToolError

DRY_RUN = """Debian clang version 19.1.7
Target: x86_64-pc-linux-gnu
 (in-process)
 "/usr/bin/clang" "-cc1" "-triple" "x86_64-pc-linux-gnu" "-emit-obj" "-main-file-name" "a.cc" "-pic-level" "2" \
"-target-feature" "-avx" "-mllvm" "-Dodd" "-fdebug-compilation-dir=/src" "-I" "/src/in clude" "-D" "A=\\"b\\"" \
"-internal-isystem" "/usr/include" "-Oz" "-Wall" "-w" "-std=c++17" "-ferror-limit" "19" "-fcxx-exceptions" \
"-D__GCC_HAVE_DWARF2_CFI_ASM=1" "-disable-llvm-passes" "-o" "a.o" "-x" "c++" "a.cc"
"""


def test_what_only_the_front_end_reads_goes():
    assert options_for_ir(read_dry_run(DRY_RUN)) == (
        "-cc1",
        *("-triple", "x86_64-pc-linux-gnu", "-pic-level", "2", "-target-feature", "-avx", "-mllvm", "-Dodd"),
        *("-Oz", "-w", "-std=c++17", "-fcxx-exceptions"),
    )


@pytest.mark.parametrize("text", ["", "clang: error: no input files", DRY_RUN + DRY_RUN])
def test_anything_else_than_one_line_is_refused(text: str):
    with pytest.raises(ToolError, match=r"clang -###: expected one line with -cc1, found [02]"):
        read_dry_run(text)


def test_an_option_without_its_value_ends_the_line():
    assert options_for_ir(["-cc1", "-mllvm", "a.c"]) == ("-cc1", "-mllvm")
    assert options_for_ir(["-cc1", "-o", "a.c"]) == ("-cc1",)


def test_a_quotation_that_does_not_end_is_refused():
    with pytest.raises(ToolError, match=r"clang -###: expected quoted words, found .*; take line breaks out of the"):
        read_dry_run(' "clang" "-cc1" "-target-cpu" "x\n86" "a.c"\n')

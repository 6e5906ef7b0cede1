"""Functions that a linker folds into one are counted as it folds them."""

from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.objects.measure import folded_functions, measure_object
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

# a and b are alike, c is not; f and g call what is alike, h does not; p and q call themselves; m and n name other data.
SOURCE = """
int x, y;
int a(int i) { return i * 77 + 5; }
int b(int i) { return i * 77 + 5; }
int c(int i) { return i * 78 + 5; }
int f(int i) { return a(i + 3) + 1; }
int g(int i) { return b(i + 3) + 1; }
int h(int i) { return c(i + 3) + 1; }
int p(int i) { return i ? p(i - 1) + x : 0; }
int q(int i) { return i ? q(i - 1) + x : 0; }
int m(void) { return x + 1; }
int n(void) { return y + 1; }
"""
FLAGS = ("-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-ffunction-sections", "-fPIC", "-c")


def test_alike_functions_share_the_bytes_of_one(toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "m.c").write_text(SOURCE)
    links = [[str(toolchain.lld), "-shared", "-Bsymbolic", f"--icf={icf}", "m.o", "-o", icf] for icf in ("all", "none")]
    for words in ([str(toolchain.clang), *FLAGS, "m.c", "-o", "m.o"], *links):
        done = process.run(words, timeout_seconds=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    whole, folded = measure_object(tmp_path / "m.o"), measure_object(tmp_path / "m.o", folds=True)
    assert whole.function_names == folded.function_names
    assert whole.totals == folded.totals
    sizes = dict(zip(folded.function_names, folded.function_text.tolist(), strict=True))
    before = dict(zip(whole.function_names, whole.function_text.tolist(), strict=True))
    for pair in ("ab", "fg"):
        assert sum(sizes[name] for name in pair) == before[pair[0]]
    assert {name for name in before if sizes[name] != before[name]} >= set("abfg")
    assert all(sizes[name] == before[name] for name in "chmn")
    groups = folded_functions(tmp_path / "m.o")
    assert len(groups) == len(before)
    assert groups["a"] == groups["b"] != groups["f"] == groups["g"] != groups["h"]
    # lld aligns each function, so that the image says it up to that.
    text = {icf: file_totals(tmp_path / icf).text for icf in ("all", "none")}
    saved = sum(before.values()) - sum(sizes.values())
    assert abs(text["none"] - text["all"] - saved) <= 16 * len(before)
    assert saved >= before["a"] + before["f"]

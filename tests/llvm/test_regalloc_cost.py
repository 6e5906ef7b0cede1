from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.bitcode import put_bitcode

from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.regalloc_cost import COUNTS
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.testing import toy_source

pytestmark = pytest.mark.llvm

# Twenty values that live across calls do not fit into the callee-saved registers of any target; the cold copy of the
# same code is reached once in a while only.
SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17)
#define DECLARE(N) int v##N = get(N);
#define CHANGE(N) v##N += get(i + N);
#define USE(N) put(v##N);
extern "C" void hot(int n) { ALL(DECLARE) for (int i = 0; i < n; i++) { ALL(CHANGE) } ALL(USE) }
extern "C" void once(int i) { ALL(DECLARE) ALL(CHANGE) ALL(USE) }
extern "C" void nothing() {}
"""


@pytest.fixture(scope="module")
def bitcode(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"regalloc-{toolchain.major}")
    return put_bitcode(toolchain.clangxx, folder / "m.cpp", SOURCE, "-O2")


@pytest.mark.parametrize("level", ["-Oz", "-O2"])
def test_costs_come_with_the_same_object(toolchain: Toolchain, bitcode: Path, tmp_path: Path, level: str):
    line = ("-cc1", "-triple", toolchain.target, level)
    compiler, module = ClangCompiler(toolchain=toolchain), toy_source("a", bitcode=bitcode, command_line=line)
    plain = compiler.compile(module, CompileRequest(keep_object=tmp_path / "plain.o"))
    costly = compiler.compile(module, CompileRequest(keep_object=tmp_path / "costly.o", regalloc=True))
    assert (plain.status, costly.status) == (CompileStatus.OK, CompileStatus.OK), costly.reason
    assert (tmp_path / "plain.o").read_bytes() == (tmp_path / "costly.o").read_bytes()
    assert plain.regalloc is None
    assert costly.regalloc is not None
    assert sorted(costly.regalloc.functions) == ["hot", "once"]
    assert costly.regalloc.score_of(["nothing"]).tolist() == [0.0]
    counts = dict(zip(COUNTS, costly.regalloc.counts[costly.regalloc.functions.index("once")], strict=True))
    assert counts["spills"] + counts["folded_spills"] > 5
    assert counts["reloads"] + counts["folded_reloads"] > 5
    hot, once = costly.regalloc.score_of(["hot", "once"])
    assert hot > 5 * once > 0
    again = compiler.compile(module, CompileRequest(regalloc=True)).regalloc
    assert again is not None
    np.testing.assert_array_equal(again.costs, costly.regalloc.costs)


def test_a_module_without_costs_has_an_empty_record(
    toolchain: Toolchain, compile_object: Callable[..., Path], tmp_path: Path
):
    bitcode = compile_object("void f() {}", ("-O2", "-emit-llvm"))
    module = toy_source("a", bitcode=bitcode, command_line=("-cc1", "-triple", toolchain.target, "-O2"))
    result = ClangCompiler(toolchain=toolchain).compile(module, CompileRequest(regalloc=True))
    assert result.status is CompileStatus.OK
    assert result.regalloc is not None
    assert result.regalloc.functions == ()

"""Attributes and options of one function: its code is what clang makes with them, and the code of others is plain."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.bitcode import put_bitcode

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import (
    IMAGE_BYTES,
    MOST_TOGGLES,
    OVERRIDE,
    TRIAL,
    Overrides,
    Series,
    Stage,
    TrialRequest,
    executed_weights,
    pass_number,
)
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module, architecture_of
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES, group_by_function, override_bytes
from mlgokit.tune.spaces.optimizer import step
from mlgokit.tune.spaces.passes.candidates import ATTRIBUTES, OPTIONS, candidates_of

pytestmark = pytest.mark.llvm

SOURCE = """
int call(int);
int NAME(int n, const int *p) {
  int found = 0;
  for (int i = 0; i < n; i++) {
    int a = p[i] * 3, b = p[i + 1] ^ n, c = p[i + 2] / 7, d = p[2 * i], e = p[3 * i] + a;
    switch (p[i]) {
    case 0: found += call(a); break;
    case 1: found ^= call(b + d); break;
    case 2: found -= call(c); break;
    case 3: found += b * call(e); break;
    case 4: found ^= call(d ^ a); break;
    case 5: found += call(e - b); break;
    case 6: found -= call(a * c); break;
    default: found += a + b + c + d + e + call(found);
    }
  }
  return found % LAST;
}
"""
BRANCHES = """
int call(int);
int NAME(int a, int b, const int *p) {
  int found = 0, product = a * b, sum = p[1] + p[2];
  if (p[0]) found = a / b; else call(LAST);
  found += a / b;
  if (p[3]) found += call(product);
  int x = p[4] ? a + 1 : b ^ LAST;
  return found + x + (p[5] ? sum * a : call(sum));
}
"""
NO_OUTLINER = ("-mllvm", "-enable-machine-outliner=never")
TARGETS = ("x86_64-linux-gnu", "aarch64-linux-gnu", "thumbv7m-none-eabi", "riscv32-linux-gnu")
FIRST, SECOND = "first", "second"
PLAIN = {INLINE_SIZE.name: HEURISTIC}
Compile = Callable[..., dict[str, str]]


@pytest.fixture
def target(toolchain: Toolchain) -> str:
    return toolchain.target


@pytest.fixture
def function() -> str:
    return SOURCE


@pytest.fixture
def module(toolchain: Toolchain, target: str, function: str, tmp_path: Path) -> Module:
    """Two functions that differ by a constant; without the outliner, which moves what they have in common."""
    texts = [function.replace("NAME", name).replace("LAST", last) for name, last in ((FIRST, "1000"), (SECOND, "77"))]
    bitcode = put_bitcode(toolchain.clang, tmp_path / "two.c", "".join(texts), "-Oz", f"--target={target}")
    features = ("-target-feature", "+m", "-target-feature", "+c", "-target-feature", "+relax")
    return Module(
        name="two.o",
        project="p",
        language="c",
        bitcode=bitcode,
        bitcode_bytes=bitcode.stat().st_size,
        command_line=(
            "-cc1",
            "-triple",
            target,
            "-Oz",
            "-ffunction-sections",
            *(features if "riscv" in target else ()),
            *NO_OUTLINER,
        ),
    )


@pytest.fixture
def compiler(toolchain: Toolchain, plugin: Path) -> ClangCompiler:
    return ClangCompiler(toolchain=toolchain, plugin=plugin)


@pytest.fixture
def disassemble(compiler: ClangCompiler, module: Module, tmp_path: Path) -> Compile:
    """``disassemble(table, *words)``: the code of both functions, compiled with a table and more words."""

    def run(table: bytes = b"", *words: str, optimizer: bytes = b"") -> dict[str, str]:
        made = tmp_path / "made.o"
        changed = dataclasses.replace(module, command_line=(*module.command_line, *words))
        use = PluginUse(policies=PLAIN, passes=table, optimizer_passes=optimizer)
        done = compiler.compile(changed, CompileRequest(use=use, keep_object=made))
        assert done.ok, done.reason
        dump = process.run(
            [str(compiler.toolchain.clang.parent / "llvm-objdump"), "-dr", "--no-show-raw-insn", str(made)],
            timeout_seconds=60,
        ).stdout.decode()
        parts = dump.split("Disassembly of section .text.")[1:]
        # Constants of both functions are in one section, at other places.
        return {part.partition(":")[0]: part.partition(":")[2].replace("<.rodata", "<") for part in parts}

    return run


@pytest.fixture
def options(toolchain: Toolchain) -> list[str]:
    """The options that this major has."""
    asked = [str(toolchain.clang), "-fsyntax-only", "-x", "c", "/dev/null", "-mllvm"]
    return [one for one in OPTIONS if process.run([*asked, one], timeout_seconds=60).returncode == 0]


def toggled(*names: str) -> Overrides:
    return Overrides(passes=np.array([(pass_number(name), 0, 0) for name in names], OVERRIDE))


def keys_of(compiler: ClangCompiler, module: Module, series: Sequence[Series] = ()) -> dict[str, int]:
    trials = TrialRequest(series=tuple(series), stages=Stage.PASSES)
    return {one.name: one.key for one in compiler.compile(module, CompileRequest(use=PluginUse(trials=trials))).tried}


@pytest.mark.parametrize("target", TARGETS)
def test_options_hold_for_one_function(
    compiler: ClangCompiler, module: Module, disassemble: Compile, options: list[str]
):
    keys, plain = keys_of(compiler, module), disassemble()
    assert disassemble(override_bytes(PASSES, {keys[FIRST]: toggled("-no-such-option=1")})) == plain
    changed = 0
    assert len(options) > 10
    for option in options:
        everywhere = disassemble(b"", "-mllvm", option)
        for name, other in ((FIRST, SECOND), (SECOND, FIRST)):
            found = disassemble(override_bytes(PASSES, {keys[name]: toggled(option)}))
            assert found[name] == everywhere[name], option
            assert found[other] == plain[other], option
        changed += everywhere != plain
    assert changed >= 3


def test_what_the_user_set_stays(compiler: ClangCompiler, module: Module, disassemble: Compile):
    table = override_bytes(PASSES, {keys_of(compiler, module)[FIRST]: toggled("-pre-RA-sched=source")})
    words = ("-mllvm", "-pre-RA-sched=list-burr")
    assert disassemble(table, *words) == disassemble(b"", *words) != disassemble(table)


@pytest.mark.every_major
def test_attributes_hold_for_one_function(compiler: ClangCompiler, module: Module, disassemble: Compile):
    keys, plain = keys_of(compiler, module), disassemble()
    found = disassemble(override_bytes(PASSES, {keys[FIRST]: toggled("no-jump-tables")}))
    assert found[FIRST] == disassemble(b"", "-mllvm", "-min-jump-table-entries=1000")[FIRST] != plain[FIRST]
    found = disassemble(override_bytes(PASSES, {keys[SECOND]: toggled("minsize")}))
    assert (found[FIRST] == plain[FIRST], found[SECOND] == plain[SECOND]) == (True, False)


@pytest.mark.every_major
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "riscv32-linux-gnu"])
def test_a_trial_measures_what_a_table_then_gives(
    compiler: ClangCompiler, module: Module, target: str, options: list[str]
):
    key = keys_of(compiler, module)[FIRST]
    # Where there is a switch, frame pointers are no candidate.
    attributes = {name for name, _ in candidates_of([architecture_of(target)])} & {*ATTRIBUTES} - {"frame-pointer"}
    names = (*sorted(attributes), *options)
    changes = np.zeros((1 + len(names), MOST_TOGGLES), OVERRIDE)
    changes[1:, 0] = [(pass_number(name), 0, 0) for name in names]
    trials = np.zeros(1 + len(names), TRIAL)
    trials["toggles"][1:] = 1
    # Nothing is better than the first, so that all depart from it.
    series = Series(key=key, base=Overrides(), score=-1.0, trials=trials, toggled=changes)
    request = TrialRequest(series=(series,), stages=Stage.PASSES, seconds=5.0, weights=executed_weights(IMAGE_BYTES))
    (tried,) = [
        one for one in compiler.compile(module, CompileRequest(use=PluginUse(trials=request))).tried if one.outcomes
    ]
    code = [outcome.measured[6] for outcome in tried.outcomes if outcome.measured is not None]
    assert len(code) == len(trials)

    for name, measured, outcome in zip(names, code[1:], tried.outcomes[1:], strict=True):
        table = override_bytes(PASSES, {key: toggled(name)})
        now = compiler.compile(module, CompileRequest(use=PluginUse(passes=table))).measured
        sizes = dict(zip(now.function_names, now.function_text.tolist(), strict=True))
        assert sizes[FIRST] == measured, name
        assert outcome.overrides.passes.tolist() == toggled(name).passes.tolist()
    assert len(set(code)) > 3


@pytest.mark.parametrize("target", TARGETS)
def test_loop_strength_reduction_is_left_out_of_one_function(
    compiler: ClangCompiler, module: Module, disassemble: Compile
):
    listed = compiler.compile(module, CompileRequest(use=PluginUse(policies=PLAIN, list_changes=True))).changes
    assert listed is not None
    plain, without = disassemble(), disassemble(b"", "-mllvm", "-disable-lsr")
    for name, other in ((FIRST, SECOND), (SECOND, FIRST)):
        key = listed.keys[name]
        assert ("loop-reduce", 0) in listed.changed[key]

        table = override_bytes(OPTIMIZER_PASSES, group_by_function([(key, pass_number("loop-reduce"), 0)]))
        found = disassemble(optimizer=table)

        assert found[name] == without[name] != plain[name]
        assert found[other] == plain[other]


@pytest.mark.every_major
@pytest.mark.parametrize("function", [BRANCHES])
def test_options_of_the_optimizer_hold_for_one_function(compiler: ClangCompiler, module: Module, disassemble: Compile):
    listed = compiler.compile(module, CompileRequest(use=PluginUse(policies=PLAIN, list_changes=True))).changes
    assert listed is not None
    plain, changed = disassemble(), Counter[str]()
    for option in step.OPTIONS:
        everywhere = disassemble(b"", "-mllvm", option)
        for name, other in ((FIRST, SECOND), (SECOND, FIRST)):
            key = listed.keys[name]
            table = override_bytes(OPTIMIZER_PASSES, group_by_function([(key, pass_number(option), 0)]))
            found = disassemble(optimizer=table)
            # Passes that read the other options run before the inliner too, where a table changes nothing yet.
            assert found[name] == everywhere[name] or option != "-enable-pre=0"
            assert found[other] == plain[other], option
            changed[option] += found != plain
            assert found == plain or (option, 0) in listed.changed[key]
    assert changed["-enable-pre=0"] == 2

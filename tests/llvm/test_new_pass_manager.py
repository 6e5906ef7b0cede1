"""Code generation by the new pass manager: LLVM 24 prepares it, clang 23 has it as an option.

What is decided before code generation holds there. The allocator's hooks are not asked, and its code is the compiler's
own; when this test fails, a major asks them, and ``docs/how-to/new-major.md`` is no longer true.
"""

from pathlib import Path

import pytest
from tests.llvm.pressure import PRESSURE

from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.pretrained import policy_file

pytestmark = [pytest.mark.llvm, pytest.mark.slow]

OPTION = "-fenable-new-pm-codegen"
CALLS = "static int next(int x) { return x + 1; } int many(int n) { return next(n) * next(n + 2); }"


@pytest.fixture
def new_toolchain(toolchain: Toolchain) -> Toolchain:
    tried = [toolchain.clang, "-Xclang", OPTION, "-fsyntax-only", "-x", "c", "/dev/null"]
    if process.run(tried, timeout_seconds=60).returncode:
        pytest.skip(f"clang {toolchain.major} has no {OPTION}")
    return toolchain


def functions_and_bytes(toolchain: Toolchain, source: Path, *words: str) -> tuple[int, bytes]:
    path = source.with_suffix(".o")
    argv = [toolchain.clangxx, "-Oz", "-Xclang", OPTION, *words, "-c", source, "-o", path]
    done = process.run(argv, timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    return len(measure_object(path).function_names), path.read_bytes()


def test_inlining_is_decided_and_registers_are_left_to_the_compiler(
    new_toolchain: Toolchain, never_policy: Path, tmp_path: Path
):
    source = tmp_path / "source.cpp"
    source.write_text(CALLS)
    never = export_plugin(new_toolchain, [never_policy], tmp_path / "never.so")
    plain, decided = (functions_and_bytes(new_toolchain, source, *words) for words in ((), (never.flag,)))
    assert (plain[0], decided[0]) == (1, 2)

    source.write_text(PRESSURE)
    weights = export_plugin(new_toolchain, [policy_file("builtin:weights-size")], tmp_path / "weights.so")
    plain, decided = (functions_and_bytes(new_toolchain, source, *words) for words in ((), (weights.flag,)))
    assert decided == plain

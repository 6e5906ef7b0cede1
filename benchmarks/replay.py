"""Inlining decisions that cost nothing: those of a policy, written down once and given again from a list."""

import os
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.module import Module

ANSWERS = "REPLAY_ANSWERS"
"""The variable that names the list, of the recorder and of the plugin that reads it."""
_SOURCE = Path(__file__).with_suffix(".cpp")
_MAKER = "makePolicyAdvisor"


def build_replay(toolchain: Toolchain, folder: Path) -> tuple[Path, Path]:
    """The recorder, which is the plugin with a listener, and the plugin that gives recorded answers, in ``folder``.

    Raises:
        ToolError: they do not build.
    """
    built = build_plugin(toolchain).parent
    options = [
        "-shared",
        "-fPIC",
        "-O2",
        "-std=c++17",
        "-fno-rtti",
        "-fno-exceptions",
        "-isystem",
        toolchain.include_dir,
    ]
    maker = _symbol(toolchain, built / "inliner" / "PolicyAdvisor.o")
    wrapped = [
        "-DMLGOKIT_RECORD",
        f'-DMLGOKIT_MAKER="{maker}"',
        f"-I{built}",
        f"-Wl,--wrap={maker}",
        *sorted(built.rglob("*.o")),
    ]
    recorder, replay = folder / "recorder.so", folder / "replay.so"
    for output, more in ((recorder, wrapped), (replay, [])):
        done = process.run([toolchain.clangxx, *options, *more, _SOURCE, "-o", output], timeout_seconds=600)
        if done.returncode != 0:
            raise ToolError(f"{output.name}: expected it to build, found {done.stderr.strip()[-300:]!r}; see {_SOURCE}")
    return recorder, replay


def record(toolchain: Toolchain, module: Module, *, recorder: Path, policy: Path, folder: Path) -> None:
    """Write down what ``policy`` decides in ``module``, for the compilations that this process starts from now on.

    Raises:
        ToolError: the compiler fails.
    """
    answers = folder / "answers"
    answers.unlink(missing_ok=True)
    os.environ[ANSWERS] = str(answers)
    argv = [
        toolchain.clang, *(word for word in module.command_line if word), f"-fpass-plugin={recorder}", "-x", "ir",
        module.bitcode.absolute(), "-emit-obj", "-o", folder / "recorded.o",
    ]  # fmt: skip
    done = process.run(argv, timeout_seconds=600, env={**os.environ, "MLGOKIT_POLICY": str(policy.absolute())})
    if done.returncode != 0:
        raise ToolError(f"{module.name}: expected the recorder to compile it, found {done.stderr.strip()[-300:]!r}")


def _symbol(toolchain: Toolchain, unit: Path) -> str:
    """The mangled name of the function that makes the policy's advisor."""
    done = process.run(
        [toolchain.clang.parent / "llvm-nm", "--defined-only", "--format=just-symbols", unit], timeout_seconds=60
    )
    found = [name for name in done.stdout.decode().split() if _MAKER in name]
    if len(found) != 1:
        raise ToolError(f"{unit}: expected one function {_MAKER}, found {len(found)}; mend benchmarks/replay.py")
    return found[0]

"""Descriptions of modules: an identity, and counts for each function, read by the plugin inside the user's compiler.

The compiler exits as soon as the description is written, which costs about as much as reading the bitcode.
"""

import enum
import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options, spell_options
from mlgokit.compiler.outcome import check_room, first_error
from mlgokit.compiler.request import HEURISTIC
from mlgokit.compiler.sandbox import Sandbox, sandbox_command, writable_folder
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError
from mlgokit.module import Module

DESCRIBE_SECONDS = 60.0
MOST_BYTES = 256 << 20
"""Limit on the size of a description; a module with more functions is a failure."""

_FIXED = 3
"""Number of fields before a function's counts: name, linkage and identity."""


class DescribeAt(enum.Enum):
    """The point in the pipeline at which a module is described."""

    START = "start"
    """Before any pass: what the module is."""
    END = "end"
    """After the last pass on IR: what code generation will get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleDescription:
    """The description of a module with F defined functions and C columns, or why there is none.

    Attributes:
        reason: the compiler's first error, or what was wrong; empty for success.
        identity: of the whole module; equal modules have equal ones whatever they name things. It begins with the
            LLVM major, as those of different majors cannot be compared.
        functions: number of functions that are defined.
        declarations: number of functions that are only declared, without LLVM's intrinsics.
        global_bytes: size of the variables that have an initial value.
        language: language by the debug information (``DW_LANG_C11``); empty without debug information.
        columns: [C] LLVM's own function properties under its names, then ours: ``instructions``, ``call_sites``,
            ``decidable_call_sites`` (direct calls to what the module defines), ``arguments``, ``blocks``, ``opcode_*``.
        names: [F] symbol names.
        linkages: [F] linkages as in IR: ``internal``, ``linkonce_odr``, ...
        identities: [F] identities of the functions: equal ones have equal bodies, and refer to equal bodies.
        values: [F, C] numbers in the columns.
        wall_seconds: elapsed time.
    """

    reason: str = ""
    identity: str = ""
    functions: int = 0
    declarations: int = 0
    global_bytes: int = 0
    language: str = ""
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    linkages: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    values: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    wall_seconds: float = 0.0

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return one column [F]; zeros if there is none, as in a module without functions."""
        if name not in self.columns:
            return np.zeros(len(self.names), np.int64)
        return self.values[:, self.columns.index(name)]

    def total(self, name: str) -> int:
        """Sum a column over the functions."""
        return int(self.column(name).sum())


def describe_module(
    toolchain: Toolchain,
    plugin: Path,
    bitcode: Path,
    *,
    command_line: Sequence[str] = (),
    allowed_options: Collection[tuple[str, ...]] = (),
    at: DescribeAt = DescribeAt.START,
    timeout_seconds: float = DESCRIBE_SECONDS,
    sandbox: Sandbox | None = None,
) -> ModuleDescription:
    """Describe one module; a failure is a result with a ``reason``.

    Args:
        toolchain: LLVM installation with the clang.
        plugin: plugin for that clang, see :func:`mlgokit.compiler.plugin_build.build_plugin`.
        bitcode: path of the module's bitcode.
        command_line: recorded ``-cc1`` options of the module. At the start only the target triple of them is used.
        allowed_options: options that the user allowed, as in :attr:`mlgokit.module.Module.allowed_options`.
        at: whether to describe the module before or after the passes.
        timeout_seconds: deadline of the compiler.
        sandbox: sandbox of the compiler; ``None`` for none.
    """
    with writable_folder(sandbox) as folder:
        output = folder / "description"
        options = tuple(command_line) if at is DescribeAt.END else ("-cc1", *_triple(command_line), "-O0")
        own = [f"-fpass-plugin={plugin}", "-mllvm", "-enable-detailed-function-properties"]
        own += ["-x", "ir", str(bitcode.absolute()), "-emit-obj", "-o", str(folder / "module.o")]
        try:
            argv = Cc1Line(toolchain.clang, options=options, own=own, allowed=allowed_options)
        except InputError as error:
            return ModuleDescription(reason=str(error))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
        environment |= {
            "MLGOKIT_DESCRIBE": str(output),
            "MLGOKIT_DESCRIBE_AT": at.value,
            "MLGOKIT_POLICY": HEURISTIC,
        }
        environment, inside = sandbox_command(sandbox, argv, environment, writable=folder, readable=(bitcode, plugin))
        done = process.run(argv, timeout_seconds=timeout_seconds, env=environment, inside=inside)
        if done.timed_out:
            reason = f"not described after {timeout_seconds:g} s"
        elif done.exceeded or done.returncode < 0:
            reason = done.exceeded or f"the compiler was ended by signal {-done.returncode}"
        elif done.returncode != 0:
            check_room(folder, done.stderr)
            reason = first_error(done.stderr)
        elif not output.exists():
            reason = "the compiler ran no passes; check the options for one that turns them off"
        elif output.stat().st_size > MOST_BYTES:
            reason = f"expected at most {MOST_BYTES} bytes of description, found {output.stat().st_size}"
        else:
            reason = ""
        if reason:
            return ModuleDescription(reason=reason, wall_seconds=done.wall_seconds)
        return read_description(output.read_text(encoding="utf-8"), wall_seconds=done.wall_seconds)


def function_names(compiler: ClangCompiler, module: Module) -> tuple[str, ...]:
    """List the symbols of all functions that a module defines, before inlining; empty without a plugin."""
    if compiler.plugin is None:
        return ()
    return describe_module(
        compiler.toolchain,
        compiler.plugin,
        module.bitcode,
        command_line=module.command_line,
        allowed_options=module.allowed_options,
        sandbox=compiler.sandbox,
    ).names


def read_description(text: str, *, wall_seconds: float = 0.0) -> ModuleDescription:
    """Parse the plugin's output: one JSON line each for the columns, for every function, and for the module."""
    try:
        lines = [json.loads(line) for line in text.split("\n") if line]
        module = cast("dict[str, Any]", lines.pop())
        columns = tuple(cast("dict[str, list[str]]", lines.pop(0))["columns"]) if lines else ()
        rows = cast("list[list[Any]]", lines)
        if len(rows) != module["functions"]:
            reason = f"expected {module['functions']} functions in the description, found {len(rows)}"
            return ModuleDescription(reason=reason, wall_seconds=wall_seconds)
        values = np.array([row[_FIXED:] for row in rows], np.int64).reshape(len(rows), len(columns))
        return ModuleDescription(
            identity=f"{module['llvm']}:{module['identity']}",
            functions=module["functions"],
            declarations=module["declarations"],
            global_bytes=module["global_bytes"],
            language=module["language"],
            columns=columns,
            names=tuple(row[0] for row in rows),
            linkages=tuple(row[1] for row in rows),
            identities=tuple(f"{module['llvm']}:{row[2]}" for row in rows),
            values=values,
            wall_seconds=wall_seconds,
        )
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError) as error:
        return ModuleDescription(reason=f"the description cannot be read: {error!r}", wall_seconds=wall_seconds)


def _triple(command_line: Sequence[str]) -> tuple[str, ...]:
    """Take the target options of a command line, without which clang replaces the module's target by its default.

    Example:
        >>> _triple(("-cc1", "-triple", "aarch64-linux-gnu", "-Oz"))
        ('-triple', 'aarch64-linux-gnu')
    """
    return spell_options(option for option in parse_options(command_line[1:]) if option.name == "-triple")

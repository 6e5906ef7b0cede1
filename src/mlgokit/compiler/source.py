"""Compiles one source of a build whole, as the build does: by the driver, from the text to the object."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import compiler_environment
from mlgokit.compiler.limits import TOOL_LIMITS
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.outcome import add_sizes, describe_end
from mlgokit.compiler.toolchain import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    """A call of the compiler's driver for one source.

    Attributes:
        name: name of the module that the source becomes.
        driver: name of the driver.
        words: options, then the source; no output, and no debug information.
        directory: working directory of the call.
    """

    name: str
    driver: Literal["clang", "clang++"]
    words: tuple[str, ...]
    directory: Path


def compile_source(
    toolchain: Toolchain,
    call: SourceCall,
    output: Path,
    *,
    options: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    timeout_seconds: float,
) -> Compilation:
    """Compile a source and measure its object. A failure is a record.

    Args:
        toolchain: LLVM installation with the clang; any that makes ELF objects.
        call: the driver's call for the source.
        output: absolute path of the object.
        options: further words for the driver.
        settings: further environment variables.
        timeout_seconds: deadline of the compiler.
    """
    driver = toolchain.clangxx if call.driver == "clang++" else toolchain.clang
    done = process.run(
        [driver, *options, "-c", "-o", output, *call.words],
        timeout_seconds=timeout_seconds,
        cwd=call.directory,
        # At one time for __DATE__ and __TIME__, so that builds differ in nothing else.
        env=compiler_environment() | {"SOURCE_DATE_EPOCH": "0", **(settings or {})},
        limits=TOOL_LIMITS,
    )
    ended = describe_end(done, output, timeout_seconds)
    return add_sizes(ended, functools.partial(measure_object, output)) if ended.status is CompileStatus.OK else ended

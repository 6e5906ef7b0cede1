"""Extraction of the options that compile a module's bitcode from the driver's dry run.

``clang -###`` prints the ``-cc1`` line of a compilation. A module keeps the options that decide how IR becomes an
object: those that LLVM puts into the ``.llvmcmd`` section, without those that only the front end reads, such as files,
macros, include folders and paths of the machine (:func:`mlgokit.compiler.options.safety.is_left_out`). So the same
options serve in any folder.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.options.parse import parse_options, spell_options
from mlgokit.compiler.options.safety import is_left_out
from mlgokit.errors import ToolError

_SECONDS = 60.0
_MOST_BYTES = 1 << 22
"""Limit on the driver's output; a line has all features of the target, hundreds for RISC-V, and all files of a link."""
_SET_BY_COMPILATION = frozenset({"-o", "-emit-llvm-only", "-emit-codegen-only", "-fsyntax-only"})
"""Options for output and action, which each compilation of bitcode sets itself."""
_SET_BY_FRONT_END = _SET_BY_COMPILATION | frozenset(
    ["-emit-obj", "-emit-llvm-bc", "-emit-llvm-uselists", "-x", "-main-file-name", "-fmodules-cache-path="]
)
"""Options that each front-end run sets itself: also those for the source's language and name, and the module cache."""


def ask_driver(
    driver: str | os.PathLike[str], words: Sequence[str], *, folder: Path | None, env: Mapping[str, str] | None = None
) -> process.Completed:
    """Let the driver print the commands that it would run for these words (``-###``)."""
    # First, because after a `--` it would be a file name, and the driver would run the commands.
    argv = [driver, "-###", *words]
    return process.run(argv, timeout_seconds=_SECONDS, cwd=folder, env=env, stderr_bytes=_MOST_BYTES)


def read_dry_run(stderr: str) -> list[str]:
    r"""Find the arguments of the single ``-cc1`` line that ``clang -###`` printed.

    Example:
        >>> read_dry_run('clang version 19.1.7\n (in-process)\n "/bin/clang" "-cc1" "-D" "A=\\"b\\"" "a.c"\n')
        ['-cc1', '-D', 'A="b"', 'a.c']

    Raises:
        ToolError: there is not exactly one such line, or an option has a line break in it.
    """
    lines = [line for line in stderr.split("\n") if ' "-cc1" ' in line]
    if len(lines) != 1:
        text = stderr.strip()[-300:]
        raise ToolError(f"clang -###: expected one line with -cc1, found {len(lines)} in {text!r}; check the compiler")
    return printed_words(lines[0])


def printed_words(line: str) -> list[str]:
    """Split the arguments of a command line that ``clang -###`` printed.

    Raises:
        ToolError: an option has a line break in it, which the driver prints as it is.
    """
    try:
        return shlex.split(line)[1:]
    except ValueError as error:
        raise ToolError(
            f"clang -###: expected quoted words, found {line.strip()[-300:]!r} ({error}); "
            "take line breaks out of the options"
        ) from error


def options_for_ir(words: Sequence[str]) -> tuple[str, ...]:
    """Select the options of a ``-cc1`` line that matter after the front end; the line's last word is the input.

    Example:
        >>> options_for_ir(["-cc1", "-emit-obj", "-D", "A", "-Oz", "-mllvm", "-Da", "-o", "a.o", "-x", "c", "a.c"])
        ('-cc1', '-Oz', '-mllvm', '-Da')
    """
    return spell_options(
        option
        for option in parse_options(words[:-1])
        if not is_left_out(option) and option.kind != "input" and option.name not in _SET_BY_COMPILATION
    )


def options_for_source(words: Sequence[str]) -> tuple[str, ...]:
    """Select the options of a ``-cc1`` line that compile a source to bitcode: all but action, language, in- and output.

    Example:
        >>> options_for_source(["-cc1", "-emit-obj", "-D", "A", "-Oz", "-o", "a.o", "-x", "c", "a.c"])
        ('-cc1', '-D', 'A', '-Oz')
    """
    return spell_options(option for option in parse_options(words[:-1]) if option.name not in _SET_BY_FRONT_END)

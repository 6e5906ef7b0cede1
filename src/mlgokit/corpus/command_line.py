"""From the driver's dry run to the options that compile a module's bitcode again.

``clang -###`` prints the ``-cc1`` line of a compilation. Of it a module keeps what decides how IR becomes an object,
which is also what LLVM itself puts into the ``.llvmcmd`` section minus what only the front end reads: files, macros,
include folders and paths of the machine. So the same options serve in any folder.
"""

import shlex
from collections.abc import Sequence

from mlgokit.errors import ToolError

_DROPPED_WITH_VALUE = frozenset(
    {
        "-D",
        "-F",
        "-I",
        "-MQ",
        "-MT",
        "-U",
        "-c-isystem",
        "-cxx-isystem",
        "-dependency-file",
        "-dumpdir",
        "-dwarf-debug-flags",
        "-ferror-limit",
        "-idirafter",
        "-iframework",
        "-imacros",
        "-include",
        "-include-pch",
        "-internal-externc-isystem",
        "-internal-iframework",
        "-internal-isystem",
        "-iprefix",
        "-iquote",
        "-isysroot",
        "-isystem",
        "-iwithprefix",
        "-iwithprefixbefore",
        "-main-file-name",
        "-o",
        "-resource-dir",
        "-serialize-diagnostic-file",
        "-split-dwarf-file",
        "-split-dwarf-output",
        "-x",
    }
)
_DROPPED = frozenset({"-MG", "-MP", "-disable-llvm-passes", "-fcolor-diagnostics", "-sys-header-deps"})
_DROPPED_PREFIXES = (
    "--warning-suppression-mappings=",
    "-D",
    "-F",
    "-I",
    "-U",
    "-W",
    "-emit-",
    "-fcoverage-compilation-dir=",
    "-fcoverage-prefix-map=",
    "-fdebug-compilation-dir=",
    "-fdebug-prefix-map=",
    "-fdiagnostics-",
    "-ferror-limit=",
    "-ffile-compilation-dir=",
    "-ffile-prefix-map=",
    "-fmacro-prefix-map=",
    "-fmessage-length=",
    "-fmodules-cache-path=",
)
_KEPT_WITH_VALUE = frozenset({"-mllvm", "-target-feature"})
"""Those whose values begin with a dash and could be taken for options."""


def read_dry_run(stderr: str) -> list[str]:
    r"""The words after the program's name of the one ``-cc1`` line that ``clang -###`` printed.

    Example:
        >>> read_dry_run('clang version 19.1.7\n (in-process)\n "/bin/clang" "-cc1" "-D" "A=\\"b\\"" "a.c"\n')
        ['-cc1', '-D', 'A="b"', 'a.c']

    Raises:
        ToolError: there is not exactly one such line.
    """
    lines = [line for line in stderr.splitlines() if ' "-cc1" ' in line]
    if len(lines) != 1:
        text = stderr.strip()[-300:]
        raise ToolError(f"clang -###: expected one line with -cc1, found {len(lines)} in {text!r}; check the compiler")
    return shlex.split(lines[0])[1:]


def options_for_ir(words: Sequence[str]) -> tuple[str, ...]:
    """The ``-cc1`` options that matter once the front end is done.

    Args:
        words: a ``-cc1`` line from :func:`read_dry_run`; its last word is the input.

    Example:
        >>> options_for_ir(["-cc1", "-emit-obj", "-D", "A", "-Oz", "-mllvm", "-Da", "-o", "a.o", "-x", "c", "a.c"])
        ('-cc1', '-Oz', '-mllvm', '-Da')
    """
    kept: list[str] = []
    rest = iter(words[:-1])
    for word in rest:
        if word in _DROPPED_WITH_VALUE:
            next(rest, None)
        elif word in _KEPT_WITH_VALUE:
            kept += [word, *([value] if (value := next(rest, None)) is not None else [])]
        elif word not in _DROPPED and not word.startswith(_DROPPED_PREFIXES):
            kept.append(word)
    return tuple(kept)

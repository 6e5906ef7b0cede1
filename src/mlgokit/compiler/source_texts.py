"""Keeps the preprocessed text of sources that a build compiles, with the file states that tell whether it is needed.

A build may delete or replace a source or a header after compiling it, or pass the source on standard input. The wrapper
of compilers imports this, so it imports little besides the parser of calls.
"""

from __future__ import annotations

import os

from mlgokit.compiler.driver_call import LANGUAGES, option_units, preprocessor_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PREPROCESSED = ("-D", "-U", "-I", "-i", "-std=", "-x", "-O", "-nostd", "-ansi", "-m32", "-m64", "-target", "--target",
                 "--sysroot", "-pthread", "-fno-exceptions", "-fno-rtti", "-fPI", "-fpi")  # fmt: skip
"""Options that affect the preprocessor; a command may have others that clang does not know."""
_PRECOMPILED = ("-include-pch", "-fmodule", "-fprebuilt-module", "-fcxx-modules", "-fimplicit-module")
"""Options with which the preprocessed text is not the complete input of the compilation."""
_SYSTEM = "/usr/"
"""Folders that no build changes."""


def run_compiler(
    argv: list[str], environment: dict[str, str], *, errors: int, piped: dict[str, tuple[int, str]]
) -> Any:
    """Run a program to its end; return exit code and resource usage.

    Its standard error goes to the descriptor ``errors``, and files take the place of the pipes in ``piped``.
    """
    actions: list[Any] = [(os.POSIX_SPAWN_DUP2, errors, 2)]
    opened = {number: os.open(path, os.O_RDONLY) for number, path in piped.values()}
    actions += [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in opened.items()]
    child = os.posix_spawn(argv[0], argv, environment, file_actions=actions)
    for descriptor in opened.values():
        os.close(descriptor)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage


def save_pipes(sources: list[str], log: str) -> dict[str, tuple[int, str]]:
    """Save standard input and other pipes among the sources to files; return descriptor and path by source.

    A pipe can be read only once, and the compiler is not the only reader.
    """
    found: dict[str, tuple[int, str]] = {}
    for source in sources:
        number = _descriptor(source)
        if number is None:
            continue
        path = f"{log}.input-{number}"
        with open(0 if source == "-" else source, "rb", closefd=source != "-") as read, open(path, "wb") as file:
            while block := read.read(1 << 20):
                file.write(block)
        found[source] = number, path
    return found


def _descriptor(source: str) -> int | None:
    """Find the file descriptor that a source such as ``/dev/fd/3`` names; ``None`` for a file."""
    if source in {"-", "/dev/stdin"}:
        return 0
    for folder in ("/dev/fd/", "/proc/self/fd/"):
        if source.startswith(folder) and source[len(folder) :].isdigit():
            return int(source[len(folder) :])
    return None


def keep_texts(
    call: dict[str, Any],
    *,
    driver: list[str],
    environment: dict[str, str],
    piped: dict[str, tuple[int, str]],
    log: str,
) -> list[dict[str, Any]]:
    """Save the preprocessed text of each source of a call, after the compiler has run.

    Args:
        call: the parsed call, with its ``words``.
        driver: clang with the options for its target.
        environment: the compiler's environment.
        piped: result of :func:`save_pipes`.
        log: prefix of the file names.

    Returns:
        For each source: path of the compressed ``text``, or the ``reason`` why there is none; the ``language`` of the
        text; whether the source ``is_piped``; and the states of the ``files`` that the text was made of, except for a
        pipe.
    """
    found: list[dict[str, Any]] = []
    for index, source in enumerate(call["sources"]):
        language, path = call["languages"][index], f"{log}-{index}.ii"
        given = preprocessor_words(call["words"], source)
        inputs = {source: piped[source]} if source in piped else {"-": (0, os.devnull)}
        place = inputs[source][1] if source in piped else source
        files = [] if source in piped else _file_states([source])
        reason = _why_not_kept(given, source, place, language)
        if not reason and language != LANGUAGES[language]:
            # Compilers of a build take options that clang does not know.
            commands = [
                [*driver, "-E", "-w", "-Qunused-arguments", *options, "-o", path]
                for options in (given, _select_preprocessor_words(given, source))
            ]
            reason, place = _preprocess(commands, environment, inputs), path
        if not reason:
            files += _compress(place, path, source)
        found.append(
            {
                "text": "" if reason else path,
                "reason": reason,
                "language": LANGUAGES[language],
                "is_piped": source in piped,
                "files": files,
            }
        )
    return found


def _why_not_kept(words: list[str], source: str, place: str, language: str) -> str:
    """Say why the preprocessed text is not the complete input of a compilation; empty if it is."""
    if language.startswith("c++-module") or any(word.startswith(_PRECOMPILED) for word in words):
        return "it is compiled with precompiled headers or modules"
    if not os.path.isfile(place):
        return "it is read from a pipe"
    if any(word != source and _descriptor(word) is not None for word in words):
        return "it includes what is read from a pipe"
    return ""


def _preprocess(commands: list[list[str]], environment: dict[str, str], inputs: dict[str, tuple[int, str]]) -> str:
    """Run the commands until one succeeds; return the error if none does."""
    reason = ""
    for command in commands:
        errors = f"{command[-1]}.errors"
        with open(errors, "w+b") as file:
            os.unlink(errors)
            code, _ = run_compiler(command, environment, errors=file.fileno(), piped=inputs)
            file.seek(0)
            said = file.read().decode("utf-8", "replace")
        if not code:
            return ""
        reason = reason or next((line for line in said.splitlines() if "error:" in line), f"clang ended with {code}")
    return f"clang does not preprocess it: {reason}"


def _compress(place: str, path: str, source: str) -> list[list[Any]]:
    """Compress text into ``path``; return the states of the files that its line markers name, except for the source."""
    import zlib

    with open(place, "rb") as file:
        text = file.read()
    with open(path, "wb") as file:
        file.write(zlib.compress(text, 1))
    return _file_states([name for name in read_line_markers(text) if name != source]) if place == path else []


def _select_preprocessor_words(words: list[str], source: str) -> list[str]:
    """Select the options that the preprocessor needs, and the source."""
    units = [unit for unit in option_units(words) if unit[0] == source or unit[0].startswith(_PREPROCESSED)]
    return [word for unit in units for word in unit]


def _file_states(paths: list[str]) -> list[list[Any]]:
    """Read the state of each file that a build may change: path, inode, size, and time of the last change."""
    found: list[list[Any]] = []
    for path in paths:
        whole = os.path.abspath(path)
        if whole.startswith(_SYSTEM):
            continue
        try:
            status = os.stat(whole)
        except OSError:
            found.append([whole, 0, 0, 0])
        else:
            found.append([whole, status.st_ino, status.st_size, status.st_mtime_ns])
    return found


def read_line_markers(text: bytes) -> list[str]:
    r"""List the files that are named by line markers in preprocessed text, the source first.

    Example:
        >>> read_line_markers(b'# 1 "a.c"\n# 1 "<built-in>" 1\n# 1 "./a \\"b.h" 1\nint x;\n# 2 "a.c" 2\n')
        ['a.c', './a "b.h']
    """
    found: dict[str, None] = {}
    end = -1
    while True:
        begin = end + 1
        if not text.startswith(b"# ", begin):
            begin = text.find(b"\n# ", begin) + 1
            if not begin:
                return list(found)
        end = text.find(b"\n", begin)
        end = len(text) if end < 0 else end
        first, last = text.find(b'"', begin, end), text.rfind(b'"', begin, end)
        if first < last and text[begin + 2 : begin + 3].isdigit():
            name = (
                text[first + 1 : last].replace(b'\\"', b'"').replace(b"\\\\", b"\\").decode("utf-8", "surrogateescape")
            )
            if not name.startswith("<"):
                found[name] = None


def content_of(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Compute size and checksum of an output, which identify it under another name; ``None`` if it cannot be read."""
    import zlib

    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    return len(data), zlib.crc32(data)

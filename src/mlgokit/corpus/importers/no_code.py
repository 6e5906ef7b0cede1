"""Recognition of commands that make no code: they preprocess, list dependencies, check, or precompile a header."""

import re

from mlgokit.compiler.driver_call import HEADERS
from mlgokit.compiler.options.parse import Option
from mlgokit.corpus.importers.build_compiler import drop_launchers
from mlgokit.corpus.importers.compile_commands import CompileCommand, named_language
from mlgokit.corpus.options.driver import driver_units

PRECOMPILES = "it makes a precompiled header"
_ACTIONS = (
    (r"-E|--preprocess", "it preprocesses"),
    (r"-MM?|--(user-)?dependencies", "it lists what a source includes"),
    (r"-fsyntax-only|--?syntax-only", "it checks a source and writes nothing"),
    (r"--?analyze(-auto)?", "it analyzes a source"),
    (r"--?emit-ast", "it writes a syntax tree"),
    (r"--?precompile|-fmodule-only", "it makes the interface of a module for the front end alone"),
    (r"-fmodule-header(=.*)?", "it makes a header unit"),
    (
        r"-###|-fdriver-only|--?print-.*|--?version|-dumpversion|-dumpfullversion|-dumpmachine|--?help(=.*)?",
        "it prints",
    ),
    (r"-rewrite-(legacy-)?objc|--?migrate|-?-extract-api|-emit-(interface-stubs|merged-ifs)", "it compiles nothing"),
)
"""Driver options that stop before code generation, wherever they stand and whatever other options there are."""
_FRONT_END_ACTIONS = re.compile(
    r"-E|-Eonly|-analyze|-ast-(dump|list|print|view)(-all)?(=.*)?|-dump-(raw-)?tokens|-fsyntax-only|-init-only"
    r"|-print-(preamble|decl-contexts|dependency-directives-minimized-source)|-rewrite-.*|-templight-dump|-verify-pch"
    r"|-emit-(ast|pch|module|module-interface|reduced-module-interface|header-unit|html|codegen-only|llvm-only"
    r"|interface-stubs|symbol-graph)|-module-file-info|-extract-api|-migrate"
)
"""The same options of ``-cc1``, passed by ``-Xclang``."""
_POSSIBLE = re.compile(
    rf"^(?:{'|'.join(pattern for pattern, _ in _ACTIONS)}|{_FRONT_END_ACTIONS.pattern}|-x.*)$", re.MULTILINE
)
"""A command makes code if this matches none of its words, one a line, and its source is no header."""
_HEADER_UNITS = re.compile(r".*-(user-header|system-header|header-unit-header)")


def why_no_code(command: CompileCommand) -> str | None:
    """Say what a command makes instead of code; ``None`` if it makes code. Assembly and IR are code.

    Example:
        >>> from pathlib import Path
        >>> def ask(line: str) -> str | None:
        ...     words, folder = tuple(line.split()), Path("/b")
        ...     command = CompileCommand(directory=folder, file=folder / words[-1], arguments=words, output=None)
        ...     return why_no_code(command)
        >>> ask("clang -MD -E a.c"), ask("clang -c pre.h"), ask("clang -MD -S a.c"), ask("clang -I -E -c a.c")
        ('it preprocesses (-E)', 'it makes a precompiled header (pre.h)', None, None)
    """
    if _POSSIBLE.search("\n".join(command.arguments)) is None and command.file.suffix not in HEADERS:
        return None
    try:
        words = drop_launchers(command.arguments)
    except ValueError:
        return None
    for unit in driver_units(words[1:]):
        if (action := _action(unit)) is not None:
            return action
    language = named_language(command)
    if _HEADER_UNITS.fullmatch(language):
        return f"it makes a header unit (-x {language})"
    named = f"-x {language}" if language.endswith("-header") else ""
    if not language and command.file.suffix in HEADERS:
        named = command.file.name
    return f"{PRECOMPILES} ({named})" if named else None


def _action(unit: Option) -> str | None:
    if unit.name == "-Xclang":
        value = unit.values[0] if unit.values else ""
        what = PRECOMPILES if value == "-emit-pch" else "it compiles nothing"
        return f"{what} (-Xclang {value})" if _FRONT_END_ACTIONS.fullmatch(value) else None
    return next((f"{what} ({unit.name})" for pattern, what in _ACTIONS if re.fullmatch(pattern, unit.name)), None)

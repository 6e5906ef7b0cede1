"""What another compiler's command asks of clang's front end.

A command of a build names any compiler; only its options are taken, and the toolchain's clang is what runs. Left out is
what says where outputs go, what the linker does, and what another program would be loaded for.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from mlgokit.corpus.importers.compile_commands import CompileCommand

Language = Literal["c++", "c"]

_WRAPPERS = frozenset({"ccache", "distcc", "sccache", "icecc", "buildcache", "gomacc", "reclient", "rewrapper", "env"})
_COMPILER = re.compile(
    r"(?P<target>(?:[a-z0-9_.]+-){1,3})?(?P<name>cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cxx|CC|c89|c99)(?:-[0-9.]+)?"
)
_LANGUAGES: dict[str, Language] = {
    ".c": "c",
    ".i": "c",
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".c++", ".cp", ".C", ".CPP", ".ii"), "c++"),
}
_NAMED_LANGUAGES: dict[str, Language] = {"c": "c", "cpp-output": "c", "c++": "c++", "c++-cpp-output": "c++"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options whose value is the next word, if it is not joined to them.
_WITH_VALUE = _words("""
    -o -x -D -U -I -L -l -u -z -T -B -F -A -e -MF -MT -MQ -MJ -include -imacros -include-pch -isystem -iquote -idirafter
    -iprefix -iwithprefix -iwithprefixbefore -isysroot -iframework -cxx-isystem -stdlib++-isystem --sysroot -target
    --target -arch -Xclang -Xassembler -Xlinker -Xpreprocessor -Xanalyzer -mllvm --param -dumpbase -dumpbase-ext
    -dumpdir -aux-info -wrapper -specs --config -ccc-gcc-name -ccc-install-dir -resource-dir -serialize-diagnostics
    --serialize-diagnostics -working-directory -ivfsoverlay -framework -install_name -gcc-toolchain
""")
_PATHS = _words("""
    -D -U -I -F -include -imacros -isystem -iquote -idirafter -iprefix -iwithprefix -iwithprefixbefore -iframework
    -cxx-isystem
""")
"""What only the front end reads: two commands that differ in nothing else compile bitcode in the same way."""

_OUTPUTS = _words("""
    -o -c -S -E -l -L -u -z -T -e -MF -MT -MQ -MJ -M -MM -MD -MMD -MG -MP -MV -Xlinker -Xassembler -Xanalyzer -B -w -Q
    -H -v -pedantic-errors -dumpbase -dumpbase-ext -dumpdir -aux-info -wrapper -specs --config -ccc-gcc-name
    -ccc-install-dir -resource-dir -include-pch -serialize-diagnostics --serialize-diagnostics -framework -install_name
    -emit-llvm -### --verbose -fsyntax-only --analyze -ftime-report -ftime-trace -fsave-optimization-record
    -fsplit-lto-unit -ffat-lto-objects -fno-fat-lto-objects -fno-lto -flto
""")
_OUTPUT_PREFIXES = tuple(
    _words("""
    -Wl, -Wp,-M -Werror -flto= -flto- -fthinlto-index= -fthin-link-bitcode= -fembed-bitcode -fuse-ld= -save-temps
    --save-temps -specs= --specs= --config= -fdump- -ftime-trace= -ccc- -fcrash-diagnostics -fproc-stat-report
    -foptimization-record -fsave-optimization-record= -resource-dir= -fdiagnostics- -fno-diagnostics-
    -fcolor-diagnostics -fno-color-diagnostics -gsplit-dwarf -print- --print- -fmodules-cache-path= -fmax-errors=
    -fstack-usage -l -L -MF -MT -MQ -MJ -z
""")
)
_ELSEWHERE = _words("--coverage -coverage -fprofile-arcs -ftest-coverage -fwhole-program-vtables")
_ELSEWHERE_PREFIXES = ("-fplugin", "-fpass-plugin", "-fvirtual-function-elimination")
"""What changes code, but writes beside it, loads other programs, or works only in a link: left out and counted."""

_PASSED_OUTPUTS = ("-include-pch", "-fembed-bitcode", "-emit-pch")
_PASSED_ELSEWHERE = ("-load", "-plugin", "-add-plugin", "-fplugin", "-fpass-plugin")
_WITH_PASSED_VALUE = frozenset({"-include-pch", "-load", "-plugin", "-add-plugin"})

# What gcc only warns about, and clang takes for an error unless it is told.
_FORGIVEN = {
    "c": (
        "implicit-function-declaration",
        "implicit-int",
        "int-conversion",
        "incompatible-pointer-types",
        "incompatible-function-pointer-types",
        "return-type",
    ),
    "c++": ("c++11-narrowing", "register", "reserved-user-defined-literal"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndCall:
    """What clang's driver is to be called with, but for the driver itself, the output and ``-c``.

    Attributes:
        language: of the source.
        driver: the driver's name, which decides about headers and standards.
        options: the build's, without what :data:`_OUTPUTS` says.
        essential: those of them that decide how the bitcode is compiled.
        input: ``-x`` and a language if the build says so, and the source.
        dropped: options of the build that would change the code and are left out.
    """

    language: Language
    driver: Literal["clang", "clang++"]
    options: tuple[str, ...]
    essential: tuple[str, ...]
    input: tuple[str, ...]
    dropped: tuple[str, ...]


def front_end_call(command: CompileCommand, *, level: str | None = None) -> FrontEndCall:
    """Find out what one command of a build asks of the front end.

    Args:
        command: from the database.
        level: in place of the build's ``-O``, without the dash (``Oz``); the build's own if left out.

    Raises:
        ValueError: it is not a compilation of C or C++; says what it is.

    Example:
        >>> from pathlib import Path
        >>> words = ("ccache", "g++", "-O2", "-flto", "-Iinclude", "-MD", "-MF", "a.d", "-o", "a.o", "-c", "a.cc")
        >>> command = CompileCommand(directory=Path("/b"), file=Path("/b/a.cc"), arguments=words, output=None)
        >>> call = front_end_call(command, level="Oz")
        >>> call.driver, call.options, call.essential, call.input
        ('clang++', ('-Iinclude', '-g0', '-Oz', ...), ('-g0', '-Oz', ...), ('a.cc',))
    """
    words = _without_wrappers(command.arguments)
    name = PurePosixPath(words[0]).name
    compiler = _COMPILER.fullmatch(name)
    if compiler is None:
        raise ValueError(f"expected a C or C++ compiler, found {name}")
    kept: list[str] = []
    essential: list[str] = []
    dropped: list[str] = []
    named: str | None = None
    spelled = str(command.file)
    for option, value, unit in _units(words[1:]):
        if option == "-x":
            named = value
        elif not option.startswith("-") or option == "-":
            spelled = option if _names(command, option) else spelled
        elif _elsewhere(option, value):
            dropped.append(option if option != "-Xclang" else f"-Xclang {value}")
        elif not _is_output(option, value) and not (level and option.startswith("-O")):
            kept += unit
            essential += () if _is_path(option) else unit
    driver = "clang++" if compiler["name"].endswith(("++", "xx")) or compiler["name"] == "CC" else "clang"
    language = _language(command.file, named, driver)
    gcc = "clang" not in compiler["name"]
    extra = ["-g0", *([f"-{level}"] if level else []), "-w", "-Qunused-arguments"]
    extra += [f"-Wno-error={warning}" for warning in _FORGIVEN[language]] if gcc else []
    if (target := compiler["target"]) and not any(word.startswith(("--target", "-target")) for word in kept):
        extra.insert(0, f"--target={target[:-1]}")
    return FrontEndCall(
        language=language,
        driver=driver,
        options=(*kept, *extra),
        essential=(*essential, *extra),
        input=(*(("-x", named) if named and named != "none" else ()), spelled),
        dropped=tuple(dropped),
    )


def _without_wrappers(arguments: Sequence[str]) -> Sequence[str]:
    """The words from the compiler on: ``ccache``, ``env A=b`` and the like are left out.

    Raises:
        ValueError: nothing is left.
    """
    for index, word in enumerate(arguments):
        if PurePosixPath(word).name not in _WRAPPERS and (index == 0 or "=" not in word):
            return arguments[index:]
    raise ValueError(f"expected a compiler, found only {arguments[0]}")


def _units(words: Sequence[str]) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
    """Each option, its value if that is a word of its own, and all its words; an input is an option without dash."""
    position = 0
    while position < len(words):
        word = words[position]
        value = words[position + 1] if word in _WITH_VALUE and position + 1 < len(words) else None
        size = 1 if value is None else 2
        if word == "-Xclang" and value in _WITH_PASSED_VALUE and "-Xclang" in words[position + 2 : position + 3]:
            size = 4
        if word != "--":
            yield word, value, tuple(words[position : position + size])
        position += size


def _elsewhere(option: str, value: str | None) -> bool:
    if option == "-Xclang" and value is not None:
        return value.startswith(_PASSED_ELSEWHERE)
    return option in _ELSEWHERE or option.startswith(_ELSEWHERE_PREFIXES)


def _is_output(option: str, value: str | None) -> bool:
    if option == "-Xclang" and value is not None:
        return value.startswith(_PASSED_OUTPUTS)
    joined = option.startswith("-o") and not option.startswith("-object")
    return joined or option in _OUTPUTS or option.startswith(_OUTPUT_PREFIXES)


def _is_path(option: str) -> bool:
    return option in _PATHS or option.startswith(("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter"))


def _names(command: CompileCommand, word: str) -> bool:
    """Whether an input of the command is its source."""
    return posixpath.normpath(command.directory / word) == str(command.file)


def _language(file: Path, named: str | None, driver: str) -> Language:
    """The language of a source.

    Raises:
        ValueError: it is neither C nor C++.
    """
    if named and named.endswith("-header"):
        raise ValueError("expected a source, found a precompiled header, which is no module")
    language = _NAMED_LANGUAGES.get(named) if named and named != "none" else _LANGUAGES.get(file.suffix)
    if language is None:
        raise ValueError(f"expected C or C++, found {f'-x {named}' if named else file.name}")
    return "c++" if driver == "clang++" and not named else language

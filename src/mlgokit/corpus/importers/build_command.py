"""What another compiler's command asks of clang's front end.

A command of a build names any compiler; only its options are taken, and the toolchain's clang is what runs. Left out is
what says where outputs go, what the linker does, and what another program would be loaded for.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from mlgokit.compiler.options.parse import Option, spell_options
from mlgokit.compiler.request import Lto
from mlgokit.corpus.build_notes import is_of_another_program
from mlgokit.corpus.importers.compile_commands import CompileCommand
from mlgokit.corpus.options.driver import driver_units, is_accelerator, may_be_asked

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
_PREPROCESSED = {".i": "cpp-output", ".ii": "c++-cpp-output"}
_NAMED_LANGUAGES: dict[str, Language] = {"c": "c", "cpp-output": "c", "c++": "c++", "c++-cpp-output": "c++"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PATHS = _words("""
    -D -U -I -F -include -imacros -isystem -iquote -idirafter -iprefix -iwithprefix -iwithprefixbefore -iframework
    -cxx-isystem
""")
_JOINED_PATHS = ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter")
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
    -fstack-usage -l -L -MF -MT -MQ -MJ -z -B
""")
)
_ELSEWHERE = _words("--coverage -coverage -fprofile-arcs -ftest-coverage -fwhole-program-vtables")
_ELSEWHERE_PREFIXES = ("-fplugin", "-fpass-plugin", "-fvirtual-function-elimination")
"""What changes code, but writes beside it, loads other programs, or works only in a link: left out and counted."""

_PASSED_OUTPUTS = ("-include-pch", "-fembed-bitcode", "-emit-pch")
_PASSED_ELSEWHERE = ("-load", "-plugin", "-add-plugin", "-fplugin", "-fpass-plugin")

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
        units: the build's options, each with its value, without what :data:`_OUTPUTS` says; what only the front end
            reads is of the kind ``path``.
        input: ``-x`` and a language if the build says so, and the source.
        source_language: what ``-cc1 -x`` is to be told; text that is preprocessed already has one of its own.
        dropped: options of the build that would change the code and are left out.
        foreign: those that are kept, and make another program than the one that is shipped.
        lto: the link-time optimization that the build's object is for; the front end alone does not do it.
    """

    language: Language
    driver: Literal["clang", "clang++"]
    units: tuple[Option, ...]
    input: tuple[str, ...]
    source_language: str
    dropped: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    lto: Lto = ""

    @property
    def options(self) -> tuple[str, ...]:
        """The words of all options."""
        return spell_options(self.units)

    @property
    def essential(self) -> tuple[Option, ...]:
        """The options that decide how the bitcode is compiled."""
        return tuple(unit for unit in self.units if unit.kind != "path")

    @property
    def paths(self) -> tuple[str, ...]:
        """What only the front end reads, as words of ``-cc1``."""
        return tuple(word for unit in self.units if unit.kind == "path" for word in (unit.name, *unit.values))


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
        >>> call.driver, call.options, call.paths, call.input
        ('clang++', ('-Iinclude', '-g0', '-Oz', ...), ('-I', 'include'), ('a.cc',))
    """
    words = _without_wrappers(command.arguments)
    name = PurePosixPath(words[0]).name
    compiler = _COMPILER.fullmatch(name)
    if compiler is None or is_accelerator(compiler["target"] or ""):
        raise ValueError(f"expected a C or C++ compiler, found {name}")
    if list(words[1:2]) == ["-cc1"]:
        # A recorder may see each program that starts, and clang starts itself where one command compiles and links.
        raise ValueError("expected a command of the build, found a step of one, which clang started itself (-cc1)")
    kept: list[Option] = []
    dropped: list[str] = []
    named: str | None = None
    spelled = str(command.file)
    for unit in driver_units(words[1:]):
        option, value = unit.name, unit.values[0] if unit.values else None
        if option.startswith("-x"):
            named = value or option[2:]
        elif unit.kind == "input":
            spelled = unit.words[0] if _names(command, unit.words[0]) else spelled
        elif _is_output(option, value) or (level and option.startswith("-O")):
            continue
        elif _elsewhere(option, value) or not may_be_asked(unit):
            dropped.append(option if option != "-Xclang" else f"-Xclang {value}")
        else:
            kept.append(_path(unit) or unit)
    if lto := lto_of(words):
        dropped.append("-flto=thin" if lto == "thin" else "-flto")
    driver = "clang++" if compiler["name"].endswith(("++", "xx")) or compiler["name"] == "CC" else "clang"
    language = _language(command.file, named, driver)
    gcc = "clang" not in compiler["name"]
    extra = ["-g0", *([f"-{level}"] if level else []), "-w", "-Qunused-arguments"]
    extra += [f"-Wno-error={warning}" for warning in _FORGIVEN[language]] if gcc else []
    if (target := compiler["target"]) and not any(unit.name.startswith(("--target", "-target")) for unit in kept):
        extra.insert(0, f"--target={target[:-1]}")
    return FrontEndCall(
        language=language,
        driver=driver,
        units=(*kept, *(Option(name=word, words=(word,), kind="driver") for word in extra)),
        input=(*(("-x", named) if named and named != "none" else ()), spelled),
        source_language=_PREPROCESSED.get(command.file.suffix, language)
        if named in {None, "none"}
        else named or language,
        dropped=tuple(dropped),
        foreign=tuple(unit.name for unit in kept if is_of_another_program(unit.name)),
        lto=lto,
    )


def lto_of(words: Sequence[str]) -> Lto:
    """The link-time optimization that a driver's command asks for.

    Example:
        >>> lto_of(["-flto=thin"]), lto_of(["-flto", "-fno-lto"]), lto_of(["-O2", "-flto=auto"])
        ('thin', '', 'full')
    """
    found = [word for word in words if word in {"-flto", "-fno-lto"} or word.startswith("-flto=")]
    if not found or found[-1] == "-fno-lto":
        return ""
    return "thin" if found[-1] == "-flto=thin" else "full"


def _without_wrappers(arguments: Sequence[str]) -> Sequence[str]:
    """The words from the compiler on: ``ccache``, ``env A=b`` and the like are left out.

    Raises:
        ValueError: nothing is left, or one of them is empty: it would be dropped, or be the value of what is not.
    """
    if "" in arguments[1:]:
        before = arguments[arguments.index("", 1) - 1]
        raise ValueError(f"expected options and a source, found an empty word after {before[:200]}")
    for index, word in enumerate(arguments):
        if PurePosixPath(word).name not in _WRAPPERS and (index == 0 or "=" not in word):
            return arguments[index:]
    raise ValueError(f"expected a compiler, found only {arguments[0]}")


def _elsewhere(option: str, value: str | None) -> bool:
    if option == "-Xclang" and value is not None:
        return value.startswith(_PASSED_ELSEWHERE)
    return option in _ELSEWHERE or option.startswith(_ELSEWHERE_PREFIXES)


def _is_output(option: str, value: str | None) -> bool:
    if option == "-Xclang" and value is not None:
        return value.startswith(_PASSED_OUTPUTS)
    joined = option.startswith("-o") and not option.startswith("-object")
    return joined or option in _OUTPUTS or option.startswith(_OUTPUT_PREFIXES)


def _path(unit: Option) -> Option | None:
    """What only the front end reads, apart from its value.

    Raises:
        ValueError: the value is none, but would be an option to a compiler that reads the line in another way.
    """
    option = unit.name
    name = option if option in _PATHS else next((name for name in _JOINED_PATHS if option.startswith(name)), None)
    if name is None:
        return None
    value = "".join(unit.values) if option in _PATHS else option.removeprefix(name)
    if not value or value.startswith(("-", "@")):
        raise ValueError(f"expected a value of {name} that is no option, found {' '.join(unit.words)[:200]}")
    return Option(name=name, values=(value,), words=unit.words, kind="path")


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

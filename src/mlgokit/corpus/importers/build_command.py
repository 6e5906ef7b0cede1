"""Conversion of a build's command, for any compiler, to a call of clang's front end.

Only the options of the command are used; the toolchain's clang runs. Options for outputs, for the linker, and options
that would load another program are left out.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from mlgokit.compiler.driver_call import SOURCES, last_lto_option
from mlgokit.compiler.options.parse import Option
from mlgokit.compiler.request import Lto
from mlgokit.corpus.build_notes import is_instrumentation
from mlgokit.corpus.importers.build_compiler import compiler_name, drop_launchers
from mlgokit.corpus.importers.compile_commands import CompileCommand, named_language, source_word
from mlgokit.corpus.importers.no_code import PRECOMPILES, why_no_code
from mlgokit.corpus.importers.precompiled import NO_HEADERS, Headers, header_text
from mlgokit.corpus.options.driver import driver_units, is_accelerator, may_be_asked, split_path_option
from mlgokit.corpus.options.linker_words import word_set

Language = Literal["c++", "c"]

_LANGUAGES: dict[str, Language] = {suffix: "c" if suffix in {".c", ".i"} else "c++" for suffix in SOURCES}
_INTERFACES = frozenset({".cppm", ".ccm", ".cxxm", ".c++m", ".ixx", ".mpp", ".mxx", ".pcm"})
_OF_MODULES = re.compile(
    r"^(?:c\+\+-module(-cpp-output)?|-xc\+\+-module.*|pcm|-fmodule-(output|file)(=.*)?|-fprebuilt-module-path=.*)$",
    re.MULTILINE,
)
_PREPROCESSED = {".i": "cpp-output", ".ii": "c++-cpp-output"}
_NAMED_LANGUAGES: dict[str, Language] = {"c": "c", "cpp-output": "c", "c++": "c++", "c++-cpp-output": "c++"}


_OUTPUTS = word_set("""
    -o -c -S -l -L -u -z -T -e -MF -MT -MQ -MJ -MD -MMD -MG -MP -MV -Xlinker -Xassembler -Xanalyzer -B -w -Q
    -H -v -pedantic-errors -dumpbase -dumpbase-ext -dumpdir -aux-info -wrapper -specs --config -ccc-gcc-name
    -ccc-install-dir -resource-dir -serialize-diagnostics --serialize-diagnostics -framework -install_name
    -emit-llvm --verbose -ftime-report -ftime-trace -fsave-optimization-record
    -fsplit-lto-unit -ffat-lto-objects -fno-fat-lto-objects -fno-lto -flto
""")
_OUTPUT_PREFIXES = tuple(
    word_set("""
    -Wl, -Wp,-M -Werror -flto= -flto- -fthinlto-index= -fthin-link-bitcode= -fembed-bitcode -fuse-ld= -save-temps
    --save-temps -specs= --specs= --config= -fdump- -ftime-trace= -ccc- -fcrash-diagnostics -fproc-stat-report
    -foptimization-record -fsave-optimization-record= -resource-dir= -fdiagnostics- -fno-diagnostics-
    -fcolor-diagnostics -fno-color-diagnostics -gsplit-dwarf -fmodules-cache-path= -fpch- -fmax-errors=
    -fstack-usage -l -L -MF -MT -MQ -MJ -z -B
""")
)
_LEFT_OUT = word_set("--coverage -coverage -fprofile-arcs -ftest-coverage -fwhole-program-vtables")
_LEFT_OUT_PREFIXES = ("-fplugin", "-fpass-plugin", "-fvirtual-function-elimination")
"""Options that affect the code but write further files, load other programs, or need a link; they are left out and
counted."""

# The same for the values of -Xclang.
_PASSED_OUTPUTS = ("-fembed-bitcode", "-emit-pch")
_PASSED_LEFT_OUT = ("-load", "-plugin", "-add-plugin", "-fplugin", "-fpass-plugin")

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
    """A call of clang's driver, without the driver's path, the output and ``-c``.

    Attributes:
        language: language of the source.
        driver: name of the driver, which affects headers and language standards.
        units: the build's options with their values, without those for outputs (:data:`_OUTPUTS`); options that only
            the front end reads have the kind ``path``.
        input: ``-x`` and a language if the build has them, and the source.
        source_language: language for ``-cc1 -x``; preprocessed text has one of its own.
        dropped: options of the build that affect the code, but are left out.
        foreign: options of the build that are kept, and instrument the program or load a plugin.
        lto: the link-time optimization that the build's object is for; the front end alone does not do it.
        after: macros that are defined only after the precompiled headers, whose text :attr:`paths` includes.
        headers: the commands that make the precompiled headers of the source, in their order.
    """

    language: Language
    driver: Literal["clang", "clang++"]
    units: tuple[Option, ...]
    input: tuple[str, ...]
    source_language: str
    dropped: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    lto: Lto = ""
    after: tuple[Option, ...] = ()
    headers: tuple[CompileCommand, ...] = ()

    @property
    def essential(self) -> tuple[Option, ...]:
        """The options that decide how the bitcode is compiled."""
        return tuple(unit for unit in self.units if unit.kind != "path")

    @property
    def paths(self) -> tuple[str, ...]:
        """Options that only the front end reads, as words of ``-cc1``."""
        return tuple(word for unit in self.units if unit.kind == "path" for word in (unit.name, *unit.values))


def front_end_call(
    command: CompileCommand, *, level: str | None = None, headers: Headers = NO_HEADERS, as_text: bool = True
) -> FrontEndCall:
    """Convert a command of a build to a call of the front end, with a level such as ``Oz`` in place of the build's own.

    With ``as_text`` the precompiled headers that the database makes are replaced by their text; otherwise only the
    options that name them are left out.

    Raises:
        ValueError: the command does not compile C or C++ by itself; the message says what it does.

    Example:
        >>> from pathlib import Path
        >>> from mlgokit.compiler.options.parse import spell_options
        >>> words = ("ccache", "g++", "-O2", "-flto", "-Iinclude", "-MD", "-MF", "a.d", "-o", "a.o", "-c", "a.cc")
        >>> command = CompileCommand(directory=Path("/b"), file=Path("/b/a.cc"), arguments=words, output=None)
        >>> call = front_end_call(command, level="Oz")
        >>> call.driver, spell_options(call.units), call.paths, call.input
        ('clang++', ('-Iinclude', '-g0', '-Oz', ...), ('-I', 'include'), ('a.cc',))
    """
    words = drop_launchers(command.arguments)
    compiler = compiler_name(words[0])
    if compiler is None or is_accelerator(compiler.target):
        raise ValueError(f"expected clang or a compiler with GCC's options, found {PurePosixPath(words[0]).name}")
    if list(words[1:2]) == ["-cc1"]:
        # A recorder may see each program that starts, and clang starts itself where one command compiles and links.
        raise ValueError("expected a command as the build runs it, found the -cc1 step that a clang driver starts")
    _check_no_module(command, words[1:])
    units = tuple(driver_units(words[1:]))
    kept, dropped = _sort_units(units, level)
    text = header_text(command, headers)
    if text is not None and (as_text or not text.made_by):
        kept = [*(unit for unit in kept if unit.kind != "path"), *text.units]
    elif text is not None:
        kept = [unit for unit in kept if unit not in text.used]
    if lto := lto_of(words):
        dropped.append("-flto=thin" if lto == "thin" else "-flto")
    driver = "clang++" if compiler.is_cxx else "clang"
    named = named_language(command)
    language, source_language = _languages(command, named, driver)
    extra = ["-g0", *([f"-{level}"] if level else []), "-w", "-Qunused-arguments"]
    extra += [] if compiler.is_clang else [f"-Wno-error={warning}" for warning in _FORGIVEN[language]]
    if compiler.target and not any(unit.name.startswith(("--target", "-target")) for unit in kept):
        extra.insert(0, f"--target={compiler.target}")
    return FrontEndCall(
        language=language,
        driver=driver,
        units=(*kept, *(Option(name=word, words=(word,), kind="driver") for word in extra)),
        input=(*(("-x", named) if named else ()), source_word(command)),
        source_language=source_language,
        dropped=tuple(dropped),
        foreign=tuple(unit.name for unit in kept if is_instrumentation(unit.name)),
        lto=lto,
        after=() if text is None or not as_text else text.after,
        headers=() if text is None else text.made_by,
    )


def _sort_units(units: Iterable[Option], level: str | None) -> tuple[list[Option], list[str]]:
    """Separate the options to keep from the names of those that are left out although they affect the code."""
    kept: list[Option] = []
    dropped: list[str] = []
    for unit in units:
        option, value = unit.name, unit.values[0] if unit.values else None
        if (
            unit.kind == "input"
            or option.startswith("-x")
            or _is_output(option, value)
            or (level and option.startswith("-O"))
        ):
            continue
        if _is_left_out(option, value) or not may_be_asked(unit):
            dropped.append(option if option != "-Xclang" else f"-Xclang {value}")
        else:
            kept.append(split_path_option(unit) or unit)
    return kept, dropped


def lto_of(words: Sequence[str]) -> Lto:
    """Find the kind of link-time optimization that a driver's command asks for.

    Example:
        >>> lto_of(["-flto=thin"]), lto_of(["-flto", "-fno-lto"]), lto_of(["-O2", "-flto=auto"])
        ('thin', '', 'full')
    """
    option = last_lto_option(words)
    if option in {"", "-fno-lto"}:
        return ""
    return "thin" if option == "-flto=thin" else "full"


def _is_left_out(option: str, value: str | None) -> bool:
    """Whether the option affects the code, but writes further files, loads a program or needs a link."""
    if option == "-Xclang" and value is not None:
        return value.startswith(_PASSED_LEFT_OUT)
    return option in _LEFT_OUT or option.startswith(_LEFT_OUT_PREFIXES)


def _is_output(option: str, value: str | None) -> bool:
    if option == "-Xclang" and value is not None:
        return value.startswith(_PASSED_OUTPUTS)
    joined = option.startswith("-o") and not option.startswith("-object")
    return joined or option in _OUTPUTS or option.startswith(_OUTPUT_PREFIXES)


def _check_no_module(command: CompileCommand, words: Sequence[str]) -> None:
    match = _OF_MODULES.search("\n".join(words))
    interface = command.file.name if match is None and command.file.suffix in _INTERFACES else match and match[0]
    if interface is not None:
        raise ValueError(
            "expected a source that is compiled by itself, found one that makes or imports a C++20 module "
            f"({interface}), whose interfaces would have to be compiled first; this source is left out"
        )


def _languages(command: CompileCommand, named: str, driver: str) -> tuple[Language, str]:
    """Find the language of a source, and its name for ``-cc1 -x``."""
    suffix = command.file.suffix
    language = _NAMED_LANGUAGES.get(named) if named else _LANGUAGES.get(suffix)
    if language is None:
        if (why_no_code(command) or "").startswith(PRECOMPILES):
            by_driver = "c++" if driver == "clang++" else "c"
            language = _NAMED_LANGUAGES.get(named.removesuffix("-header"), by_driver)
            return language, f"{language}-header"
        raise ValueError(f"expected C or C++, found {f'-x {named}' if named else command.file.name}")
    if named:
        return language, named
    return "c++" if driver == "clang++" else language, _PREPROCESSED.get(suffix, language)

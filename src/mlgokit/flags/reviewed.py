"""The reviewed list of flags that are tried, what each costs, and whether a build has it already.

Not in the list: what breaks the language or the system's protection without a word. ``-fmerge-all-constants`` gives
different objects one address, ``-fno-stack-protector``, ``-no-pie`` and ``-z norelro`` remove what protects a program,
and ``-ffast-math`` changes results. ``-mllvm -enable-merge-functions`` changes nothing in clang; ``-Xclang
-fmerge-functions`` does. Machine outlining and ``-inline-threshold`` made real C++ projects larger.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlgokit.builds.lines import PREFIXES

Needs = Literal["", "one language", "C++", "executables", "debug information", "RISC-V", "WebAssembly"]
"""What a build has to have for a flag to be tried: not both C and C++, nor shared libraries in C; some C++; no shared
library; some compilation for RISC-V or WebAssembly."""
Counts = Literal["loaded", "file"]
"""Which bytes a flag is for: those that are loaded into memory, or those of the whole file."""
_RISK, _SPEED = 0.005, 0.002
"""What risk, and what speed of programs or builds, is worth at least: shares of the bytes."""
_LLD = "-fuse-ld=lld"
_LLD_NAME = re.compile(r"(?:-fuse-ld=|--ld-path=)?(?:.*/)?(?:ld(?:64)?\.)?lld(?:-[\d.]+)?")
_LTO = re.compile(r"(-flto|-fno-lto)(=.*)?")
"""Options that choose link-time optimization; clang takes ``full``, ``auto`` and ``jobserver`` for the same."""
_SECTIONS = ("-ffunction-sections", "-fdata-sections")
LEVEL = "Oz"
"""The flag of the level at which the policies of the package decide."""
_NO_TABLES = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag, or several that only pay together.

    Attributes:
        name: by which results and ``--without`` call it.
        compile: options of all compilations of C and C++.
        link: options of all links.
        profile: settings of cargo's release profile, as TOML has them.
        rustc: options of all calls of rustc.
        cost: what it costs, in words.
        group: of flags that exclude each other; later ones of the list are stronger.
        needs: what a build has to have.
        risk: whether programs can behave otherwise with it, so that only their tests can accept it.
        worth: share of the bytes that it has to save on top of others to be worth its cost.
        counts: which bytes it is for.
    """

    name: str
    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    profile: tuple[tuple[str, str], ...] = ()
    rustc: tuple[str, ...] = ()
    cost: str
    group: str = ""
    needs: Needs = ""
    risk: bool = False
    worth: float = 0.0
    counts: Counts = "loaded"

    @property
    def text(self) -> str:
        """The options as a user types them."""
        words = (*self.compile, *(word for word in self.link if word not in self.compile), *self.rustc)
        return " ".join((*words, *(f"{key} = {value}" for key, value in self.profile)))


FLAGS = (
    Flag(name="lld", link=(_LLD,), cost="nothing; the linker of LLVM in the place of the system's"),
    Flag(name="lld-O2", link=(_LLD, "-Wl,-O2"), cost="time of links, for merged ends of strings"),
    Flag(
        name="relr",
        link=(_LLD, "-Wl,-z,pack-relative-relocs"),
        cost="needs glibc 2.36, musl 1.2.4 or Android 11 to run",
    ),
    Flag(
        name="gc-sections",
        compile=_SECTIONS,
        link=("-Wl,--gc-sections",),
        cost="nothing, unless code finds data by the name of its section: mark that with `retain` or KEEP",
    ),
    Flag(
        name="icf-safe",
        compile=_SECTIONS,
        link=(_LLD, "-Wl,--icf=safe"),
        cost="backtraces and profiles name one of several equal functions",
        group="icf",
    ),
    Flag(
        name="icf-all",
        worth=_RISK,
        compile=_SECTIONS,
        link=(_LLD, "-Wl,--icf=all"),
        cost="as icf-safe; and two equal functions can have one address, which breaks programs that compare them",
        group="icf",
        risk=True,
    ),
    Flag(
        name="Os",
        worth=_SPEED,
        compile=("-Os",),
        link=("-Os",),
        cost="speed: less inlining, no vector code",
        group="level",
    ),
    Flag(name="Oz", worth=_SPEED, compile=("-Oz",), link=("-Oz",), cost="speed, more than -Os", group="level"),
    Flag(
        name="lto-thin",
        worth=_SPEED,
        compile=("-flto=thin",),
        link=("-flto=thin", _LLD),
        cost="time and memory of links; static libraries need llvm-ar; undefined behaviour across files can show",
        group="lto",
    ),
    Flag(
        name="lto",
        worth=_SPEED,
        compile=("-flto",),
        link=("-flto", _LLD),
        cost="as lto-thin, and each link runs on one processor",
        group="lto",
    ),
    Flag(
        name="merge-functions",
        worth=_SPEED,
        compile=("-Xclang", "-fmerge-functions"),
        cost="backtraces and profiles name one of several equal functions; an option that clang does not document",
    ),
    Flag(
        name="no-unwind-tables",
        compile=_NO_TABLES,
        needs="one language",
        worth=_SPEED,
        cost="no backtraces in crash reports, profilers and debuggers without debug information; exceptions pass "
        "through C++ as before, but not through C that a C++ program calls; pthread_cancel runs no clean-up of C",
    ),
    Flag(
        name="no-exceptions",
        worth=_RISK,
        compile=("-fno-exceptions", *_NO_TABLES),
        needs="C++",
        risk=True,
        cost="an exception, of the standard library too, ends the program; no backtraces without debug information",
    ),
    Flag(
        name="no-rtti",
        worth=_RISK,
        compile=("-fno-rtti",),
        needs="C++",
        risk=True,
        cost="no typeid and dynamic_cast, and none across libraries that have them",
    ),
    Flag(
        name="hidden",
        worth=_RISK,
        compile=("-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        needs="executables",
        risk=True,
        cost="plugins that a program loads do not find its symbols unless these are marked as visible",
    ),
    Flag(
        name="no-plt",
        worth=_SPEED,
        compile=("-fno-plt",),
        cost="functions of libraries are looked up when a program starts",
    ),
    Flag(name="no-jump-tables", worth=_SPEED, compile=("-fno-jump-tables",), cost="speed of large switches"),
    Flag(
        name="save-restore",
        worth=_SPEED,
        compile=("-msave-restore",),
        needs="RISC-V",
        cost="speed of calls: functions of the compiler's library save and restore registers",
    ),
    Flag(
        name="no-loop-reduce",
        worth=_SPEED,
        compile=("-mllvm", "-disable-lsr"),
        needs="WebAssembly",
        cost="speed of some loops; an option that LLVM does not document",
    ),
    Flag(
        name="no-pre",
        worth=_SPEED,
        compile=("-mllvm", "-enable-pre=0"),
        needs="WebAssembly",
        cost="speed, where a value is computed again that one path has already; an option that LLVM does not document",
    ),
    Flag(
        name="gvn-sink",
        worth=_RISK,
        compile=("-mllvm", "-enable-gvn-sink"),
        needs="WebAssembly",
        risk=True,
        cost="a pass that LLVM does not run by default, so that few compilations have tested it",
    ),
    Flag(
        name="compressed-debug",
        compile=("-gz=zlib",),
        link=("-gz=zlib",),
        needs="debug information",
        counts="file",
        group="symbols",
        cost="debuggers read it a little slower, and have to know zlib",
    ),
    Flag(
        name="strip",
        link=("-Wl,-s",),
        counts="file",
        group="symbols",
        cost="no names in backtraces, no debugging; keep a copy that is not stripped",
    ),
)
"""For C and C++. Those with the same options of compilations follow each other, as one tree serves their links."""

RUST_FLAGS = (
    Flag(
        name="codegen-units-1",
        worth=_SPEED,
        profile=(("codegen-units", "1"),),
        cost="time of builds: one processor a crate",
    ),
    Flag(
        name="opt-s",
        worth=_SPEED,
        profile=(("opt-level", '"s"'),),
        cost="speed: less inlining, no vector code",
        group="level",
    ),
    Flag(name="opt-z", worth=_SPEED, profile=(("opt-level", '"z"'),), cost="speed, more than with s", group="level"),
    Flag(name="lto-thin", worth=_SPEED, profile=(("lto", '"thin"'),), cost="time of builds", group="lto"),
    Flag(
        name="lto-fat",
        worth=_SPEED,
        profile=(("lto", '"fat"'),),
        cost="time and memory of builds, more than thin",
        group="lto",
    ),
    Flag(
        name="panic-abort",
        worth=_RISK,
        profile=(("panic", '"abort"'),),
        risk=True,
        cost="a panic ends the whole program: nothing catches it, no destructors run",
    ),
    Flag(
        name="icf-all",
        worth=_RISK,
        rustc=(f"-Clink-arg={_LLD}", "-Clink-arg=-Wl,--icf=all"),
        risk=True,
        cost="two equal functions can have one address; backtraces name one of them",
    ),
    Flag(
        name="relr",
        rustc=(f"-Clink-arg={_LLD}", "-Clink-arg=-Wl,-z,pack-relative-relocs"),
        cost="needs glibc 2.36 or musl 1.2.4 to run",
    ),
    Flag(
        name="strip",
        profile=(("strip", '"symbols"'),),
        counts="file",
        cost="no names in backtraces, no debugging; keep a copy that is not stripped",
    ),
)


def is_present(flag: Flag, compilations: Iterable[Sequence[str]], links: Iterable[Sequence[str]]) -> bool:
    """Whether all compilations and links of a build have the options of a flag in effect.

    Example:
        >>> oz, gc = FLAGS[7], FLAGS[3]
        >>> is_present(oz, [["-O2", "-Oz"]], [[]]), is_present(oz, [["-Oz", "-O2"]], [[]])
        (True, False)
        >>> is_present(gc, [["-ffunction-sections", "-fdata-sections"]], [["-Wl,-O1,--gc-sections"]])
        True
    """
    linked = [split_linker_words(words) for words in links]
    # A level in a link matters to link-time optimization alone, and follows that of the compilations.
    options = [option for option in flag.link if option not in flag.compile]
    return all(_takes_effect(option, words) for option in flag.compile for words in compilations) and all(
        _takes_effect(option, words) for option in options for words in linked
    )


def split_linker_words(words: Sequence[str]) -> list[str]:
    """Split the words of a link, so that each of the linker's options has a ``-Wl,`` of its own, ``-z`` its keyword.

    Example:
        >>> split_linker_words(["clang", "-Wl,-shared,-soname,a.so", "-Wl,-z,now"])
        ['clang', '-Wl,-shared', '-Wl,-soname', '-Wl,a.so', '-Wl,-z,now']
        >>> split_linker_words(["-Xlinker", "--gc-sections", "-z", "now", "-s"])
        ['-Wl,--gc-sections', '-Wl,-z,now', '-Wl,-s']
    """
    parts: list[str] = []
    for before, word in itertools.pairwise(("", *words)):
        if word.startswith("-Wl,"):
            parts += [f"-Wl,{part}" for part in word.split(",")[1:]]
        elif before == "-Xlinker" or word in {"-s", "-z"}:
            parts.append(f"-Wl,{word}")
        elif word != "-Xlinker":
            parts.append(word)
    found: list[str] = []
    for part in parts:
        if found[-1:] == ["-Wl,-z"]:
            found[-1] = f"-Wl,-z,{part.removeprefix('-Wl,')}"
        else:
            found.append("-Wl,-s" if part == "-Wl,--strip-all" else part)
    return found


def _takes_effect(option: str, words: Sequence[str]) -> bool:
    """Whether ``words`` have an option, and no later word of its kind overrides it."""
    # The option that follows it is asked about by itself.
    if option in PREFIXES:
        return True
    if option.startswith("-O"):
        kind = [word for word in words if word.startswith("-O")]
    elif option.startswith("-flto"):
        kind = [found[1] + (found[2] if found[2] == "=thin" else "") for found in map(_LTO.fullmatch, words) if found]
    elif option == _LLD:
        # The last of them counts; without one, the words may be those of a linker that was called itself.
        named = [word for word in words if word.startswith(("-fuse-ld=", "--ld-path="))] or words[:1]
        kind = [_LLD for word in named[-1:] if _LLD_NAME.fullmatch(word)]
    elif "=" in option:
        kind = [word for word in words if word.startswith(option.partition("=")[0] + "=")]
    else:
        plain = option.replace("-fno-", "-f", 1)
        kind = [word for word in words if word in {option, plain, plain.replace("-f", "-fno-", 1)}]
    return bool(kind) and kind[-1] == option

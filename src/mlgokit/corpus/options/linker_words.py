"""Translation of options of ``ld.lld`` that affect a module's code to options of ``clang -cc1``.

Facts about lld are from ``createConfig`` in ``lld/ELF/LTO.cpp``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlgokit.compiler.driver_call import LINKER_WITH_VALUE
from mlgokit.compiler.options.parse import LLVM_KINDS, option_table

DEFAULT_LEVEL = "2"
"""lld's default optimization level."""

Words = tuple[str, ...]


def word_set(text: str) -> frozenset[str]:
    """Make a set of the words of a text."""
    return frozenset(text.split())


_EMULATIONS = {"elf_x86_64": "x86_64-unknown-linux-gnu", "aarch64linux": "aarch64-unknown-linux-gnu"}
_COUNTERS, _CONTEXT_SENSITIVE = "-fprofile-instrument-use-path=", ("-fprofile-instrument-use=csllvm",)
_FLAGS = {
    "lto-unique-basic-block-section-names": "-funique-basic-block-section-names",
    "lto-basic-block-address-map": "-fbasic-block-address-map",
}
_VALUES = {
    "plugin-opt=mcpu": "-target-cpu",
    "lto-sample-profile": "-fprofile-sample-use=",
    "plugin-opt=sample-profile": "-fprofile-sample-use=",
    "lto-cs-profile-file": _COUNTERS,
    "plugin-opt=cs-profile-path": _COUNTERS,
    "lto-basic-block-sections": "-fbasic-block-sections=",
}
_CODE_GENERATOR = {
    "mcpu": "-target-cpu",
    "code-model": "-mcmodel=",
    "target-abi": "-target-abi",
    "tls-size": "-mtls-size=",
    "relocation-model": "-mrelocation-model",
}
"""Codegen options that are LLVM options in lld, and clang's own options in clang."""
_SWITCHES = {
    ("function-sections", True): "-ffunction-sections",
    ("data-sections", True): "-fdata-sections",
    ("unique-section-names", False): "-fno-unique-section-names",
    ("emulated-tls", True): "-femulated-tls",
    ("stack-size-section", True): "-fstack-size-section",
    ("addrsig", True): "-faddrsig",
}
_ABOUT_CODE = re.compile(
    r"-*(mllvm|plugin-opt=-|plugin-opt=(O|lto-partitions|disable-verify)|load-pass-plugin"
    r"|lto-(newpm-passes|aa-pipeline|CGO|partitions|cs-profile-generate))"
)
_NOT_IN_CLANG = "clang -cc1 has no equivalent: objects may differ from the build's"
_STEERS = re.compile(r"-*(plugin|lto|thinlto|save-temps|no-lto|fat-lto)")
_POSITION_INDEPENDENT = frozenset({"-pie", "--pie", "--pic-executable", "-shared", "--shared", "-Bshareable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """A translated command line of a linker.

    Attributes:
        options: words for clang, beginning with ``-cc1``.
        kept: words of the linker, each with the options that replace it.
        defaults: the options that express lld's defaults.
        dropped: words of the linker without an option for clang, each with the reason.
    """

    options: Words
    kept: tuple[tuple[str, Words], ...]
    defaults: Words
    dropped: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Convert the options to plain JSON values."""
        return {
            "options": list(self.options),
            "kept": {word: " ".join(options) for word, options in self.kept},
            "defaults": list(self.defaults),
            "dropped": dict(self.dropped),
        }


def translate_linker(words: Sequence[str], *, triple: str | None = None, profile_kinds: bool = False) -> LinkOptions:
    """Translate the words after ``ld.lld`` to options of ``clang -cc1``.

    Without a triple, the target is the one that ``-m`` stands for. For ``profile_kinds`` see
    :attr:`Toolchain.wants_profile_kinds`: an option for a profile then needs its kind beside it.

    Example:
        >>> found = translate_linker(["-pie", "--lto-O3", "-mllvm", "-inline-threshold=5", "--gc-sections", "a.o"])
        >>> found.kept[2]
        ('-mllvm -inline-threshold=5', ('-mllvm', '-inline-threshold=5'))
        >>> found.dropped[0]
        ('--gc-sections', 'it concerns the image, not the code of a module')
    """
    level, position = DEFAULT_LEVEL, ""
    kept: list[tuple[str, Words]] = []
    dropped: list[tuple[str, str]] = []
    for word in _linker_words(words):
        if match := re.fullmatch(r"--?(?:lto-O|plugin-opt=O)([0-3sz])", word):
            level = DEFAULT_LEVEL if match[1] in "sz" else match[1]
            dropped += [(other, "one after it decides") for other, options in kept if options[0].startswith("-O")]
            kept = [entry for entry in kept if not entry[1][0].startswith("-O")] + [(word, (f"-O{level}",))]
        elif word in _POSITION_INDEPENDENT:
            position = "-pic-is-pie" if "pi" in word else "-pic-level"
            kept.append((word, ("-mrelocation-model", "pic")))
        elif word.startswith("-m ") and word[3:] in _EMULATIONS:
            triple = triple or _EMULATIONS[word[3:]]
            kept.append((word, ("-triple", triple)))
        elif options := _translate(word):
            kind = _CONTEXT_SENSITIVE if profile_kinds and options[0].startswith(_COUNTERS) else ()
            kept.append((word, (*options, *kind)))
        else:
            dropped.append((word, _why_dropped(word)))
    if level in {"0", "1"}:
        # args::getCGOptLevel in lld/Common/Args.cpp; clang derives the code generator's level from -O.
        dropped.append((f"code generation at level 2 with -O{level}", _NOT_IN_CLANG))
    first: list[Words] = [("-triple", triple)] if triple else []
    first += [(f"-O{level}",)]
    first += [("-vectorize-loops",), ("-vectorize-slp",)] if level in {"2", "3"} else []
    first += [("-mrelocation-model", "pic"), ("-pic-level", "2")] if position else [("-mrelocation-model", "static")]
    first += [("-pic-is-pie",)] if position == "-pic-is-pie" else []
    first += [("-ffunction-sections",), ("-fdata-sections",), ("-faddrsig",)]
    given = [options for _, options in kept]
    return LinkOptions(
        options=(
            "-cc1",
            *(word for option in first for word in option),
            *(word for option in given if option not in first for word in option),
        ),
        kept=tuple(kept),
        defaults=tuple(word for option in first if option not in given for word in option),
        dropped=tuple(dropped),
    )


def _linker_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the linker's options; a separate value is joined to its option by a space."""
    rest = iter(words)
    for word in rest:
        value = next(rest, None) if word in LINKER_WITH_VALUE else None
        if word in {"-plugin-opt", "--plugin-opt"} and value is not None:
            yield f"{word}={value}"
        else:
            yield word if value is None else f"{word} {value}"


def _translate(word: str) -> Words:
    name, equals, value = word.lstrip("-").partition("=")
    if name == "plugin-opt":
        key, equals, value = value.partition("=")
        name = f"{name}={key}"
    if word.startswith("-") and name in _FLAGS:
        return (_FLAGS[name],)
    if equals and name in _VALUES:
        return _spell(_VALUES[name], value)
    if match := re.fullmatch(r"--?(?:mllvm[ =]|plugin-opt=)(-.+)", word):
        return _llvm_option(match[1])
    return ()


def _llvm_option(word: str) -> Words:
    """Translate an LLVM option of the linker (``-mllvm``) to options of ``clang -cc1``; empty if there are none."""
    name, _, value = word.lstrip("-").partition("=")
    if name == "mattr":
        return tuple(part for feature in value.split(",") for part in ("-target-feature", feature))
    if name in _CODE_GENERATOR:
        return _spell(_CODE_GENERATOR[name], value)
    if switch := _SWITCHES.get((name, value not in {"0", "false"})):
        return (switch,)
    return ("-mllvm", word) if option_table().kinds.get(name) in LLVM_KINDS else ()


def _spell(option: str, value: str) -> Words:
    """Spell an option with its value: one word if its name ends in ``=``, else two."""
    return (f"{option}{value}",) if option.endswith("=") else (option, value)


def _why_dropped(word: str) -> str:
    if _ABOUT_CODE.match(word):
        return _NOT_IN_CLANG
    if not word.startswith("-") or word.startswith(("-o ", "-l", "-L")):
        return "it is an input or an output"
    if _STEERS.match(word):
        return "it steers the link or names files beside the objects"
    return "it concerns the image, not the code of a module"

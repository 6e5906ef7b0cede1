"""A module: bitcode and the options that compile it, as a value."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

_ARCHITECTURES = (
    ("x86_64", re.compile(r"x86_64h?|amd64")),
    ("i386", re.compile(r"i[3-9]86")),
    ("aarch64_32", re.compile(r"(aarch64|arm64)_32")),
    ("aarch64", re.compile(r"aarch64|arm64(e|ec)?")),
    ("armeb", re.compile(r"armeb.*|armv.*eb")),
    ("thumbeb", re.compile(r"thumbeb.*|thumbv.*eb")),
    ("thumbv6m", re.compile(r"(arm|thumb)v(6s?m|8m\.base)")),
    ("arm", re.compile(r"arm(v.*)?|thumb(v.*)?|xscale")),
)
"""Pattern of the names in triples for each architecture, by LLVM's name. Arm's two instruction sets are one, but cores
that have the 16-bit Thumb instructions alone (Cortex-M0, M0+, M23) are another, as what saves bytes there differs."""


def architecture_of(triple: str) -> str:
    """Determine the architecture of a target triple, by its name in policy files.

    `architectureOf` in `plugin/shared/Policy.cpp` is the C++ twin.

    Example:
        >>> [architecture_of(one) for one in ("thumbv7em-none-eabi", "thumbv6m-none-eabi", "arm64-apple-macos", "")]
        ['arm', 'thumbv6m', 'aarch64', '']
    """
    first = triple.partition("-")[0].lower()
    return next((name for name, known in _ARCHITECTURES if known.fullmatch(first)), first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module: its bitcode, its options, and facts about it.

    A program's full link-time optimization is a module too (:mod:`mlgokit.compiler.lto`), which the linker compiles:
    ``bitcode`` is then what the linker merged, and ``command_line`` the linker's call, program first, without output.

    Attributes:
        name: name of the module in the corpus, unique, and the same on every machine.
        project: name of the module's project.
        language: ``c++``, ``c``, or ``unknown``.
        held_out: whether the module is kept out of training.
        split: what assigned the module to training or held out, if a split did; see :mod:`mlgokit.corpus.split`.
        bitcode: path of the bitcode.
        command_line: options for clang, ``-cc1`` first, without input and output.
        allowed_options: options of the command line that the user gave, and that are not checked for safety; each as
            its words.
        source: path of the source below the project's root, if known.
        bitcode_bytes: size of the bitcode.
        bitcode_sha256: digest of the bitcode when it was extracted, if known.
        front_end_seconds: user time of the front end, if known.
        text_bytes: size of the code under plain ``-Oz``, if known.
        profile_mismatched: number of functions whose control flow differs from that in the profile that the module is
            compiled with, if known.
        profile_missing: number of functions that the profile lacks, if known.
        thinlto_index: path of the module's part of the ThinLTO index, in a corpus of a ThinLTO build.
        link_folder: working directory of the linker that makes the module's object; ``None`` if clang makes it.
        defers: whether the compile steps before that link inline nothing, so that the link decides about all calls.
    """

    name: str
    project: str
    language: str
    held_out: bool = False
    split: str | None = None
    bitcode: Path
    command_line: tuple[str, ...]
    allowed_options: tuple[tuple[str, ...], ...] = ()
    source: str | None = None
    bitcode_bytes: int
    bitcode_sha256: str | None = None
    front_end_seconds: float | None = None
    text_bytes: int | None = None
    profile_mismatched: int | None = None
    profile_missing: int | None = None
    thinlto_index: Path | None = None
    link_folder: Path | None = None
    defers: bool = False

    @property
    def is_for_size(self) -> bool:
        """Whether the command line has ``-Os`` or ``-Oz``."""
        return "-Oz" in self.command_line or "-Os" in self.command_line

    @property
    def triple(self) -> str:
        """Target triple of the command line; empty if it names none."""
        pairs = itertools.pairwise(self.command_line)
        return next((after for word, after in pairs if word == "-triple"), "")

    @property
    def architecture(self) -> str:
        """Architecture of the target, by :func:`architecture_of`; empty if the command line names no triple."""
        return architecture_of(self.triple)

"""A module: one unit of compilation, as a value."""

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
    ("arm", re.compile(r"arm(v.*)?|thumb(v.*)?|xscale")),
)
"""The names of LLVM's triples that say the same, by LLVM's name; ARM's two instruction sets are one architecture."""


_OTHER_FORMATS = (
    ("wasm", re.compile(r"^wasm(32|64)|-wasm$")),
    ("COFF", re.compile(r"windows|mingw|win32|cygwin|-uefi|-coff$")),
    ("Mach-O", re.compile(r"apple|darwin|-macho$")),
)


def object_format_of(triple: str) -> str:
    """The format of objects for a target, by LLVM's names.

    Example:
        >>> [object_format_of(one) for one in ("wasm32-wasi", "x86_64-w64-mingw32", "arm64-apple-macos", "")]
        ['wasm', 'COFF', 'Mach-O', 'ELF']
    """
    return next((name for name, known in _OTHER_FORMATS if known.search(triple.lower())), "ELF")


def architecture_of(triple: str) -> str:
    """The architecture that a triple names, as a policy file has it; `Policy::isFor` in the plugin is the twin.

    Example:
        >>> [architecture_of(one) for one in ("thumbv7em-none-eabi", "arm64-apple-macos", "riscv64-linux-gnu", "")]
        ['arm', 'aarch64', 'riscv64', '']
    """
    first = triple.partition("-")[0].lower()
    return next((name for name, known in _ARCHITECTURES if known.fullmatch(first)), first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module: what is needed to compile it again, and what is known about it.

    A program's full link-time optimization is a module too (:mod:`mlgokit.compiler.lto`): the linker compiles it.

    Attributes:
        name: its name in the corpus, unique, the same on every machine.
        project: whose it is.
        language: ``c++``, ``c``, or ``unknown``.
        held_out: kept out of training.
        split: who decided that, if a split did; see :mod:`mlgokit.corpus.split`.
        bitcode: path of the bitcode.
        command_line: options for clang, ``-cc1`` first, without input and output.
        allowed_options: options in it that the gate does not question, by their words: those that the user gave.
        source: path of the source below the project's root, if known.
        bitcode_bytes: size of the bitcode.
        bitcode_sha256: its digest when it was extracted, if known.
        front_end_seconds: user time of the front end, if known.
        text_bytes: size of its code under plain ``-Oz``, if known.
        profile_mismatched: functions whose control flow is another one than in the profile that the module is compiled
            with, if it is known how that fits.
        profile_missing: functions that the profile does not know.
        thinlto_index: path of its part of the ThinLTO index, in a corpus of a ThinLTO build.
        link_folder: where the linker runs that makes the module's object; ``None`` if that is not a linker's work. Then
            ``bitcode`` is what the linker merged, and ``command_line`` its call, program first, without output.
        defers: whether the compile steps before that link inline nothing, so that it decides about all calls.
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
        """Whether its command line says ``-Os`` or ``-Oz``."""
        return "-Oz" in self.command_line or "-Os" in self.command_line

    @property
    def triple(self) -> str:
        """What its code is for, as its command line has it; empty if that does not say."""
        pairs = itertools.pairwise(self.command_line)
        return next((after for word, after in pairs if word == "-triple"), "")

    @property
    def architecture(self) -> str:
        """What its code is for, see :func:`architecture_of`; empty if its command line does not say."""
        return architecture_of(self.triple)

"""Profiles that a build is compiled with: checked, and copied into a corpus under the digest of their content.

A corpus holds what its modules are compiled with, so that it gives the same code on another machine, and after the
build was profiled anew. Its command lines name a profile by its place in the corpus, ``profiles/<SHA-256>``, which is
made a whole path when the corpus is loaded (:func:`mlgokit.corpus.options.edits.command_line_to_compile`).
"""

import contextlib
import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.options.parse import Option, parse_options
from mlgokit.compiler.options.safety import MOST_PROFILE_BYTES, names_a_profile
from mlgokit.corpus.files import copy_bytes, explain_write_errors, open_untrusted, read_bytes
from mlgokit.errors import InputError

PROFILES = "profiles"
"""The folder of profiles in a corpus."""
COUNTERS, SAMPLES = "-fprofile-instrument-use-path=", "-fprofile-sample-use="
_INDEXED = b"\xfflprofi\x81"
"""How begins what llvm-profdata writes of counters, and of allocations."""
_GCC_SAMPLES = b"adcg"
_LINES = {
    SAMPLES: re.compile(rb"\S.*:\d+(:\d+)?\s*"),
    "-fprofile-remapping-file=": re.compile(rb"(name|type|encoding) \S+ \S+\s*"),
}
"""The first line of a profile that is text, blank ones and comments left out."""
_NAME = re.compile(r"[0-9a-f]{64}")
_HEAD_BYTES = 1 << 16
_BY_IR = 1 << 56
"""The bit of the version of an indexed profile that is clear if the front end put the counters in."""


@dataclass(slots=True, kw_only=True)
class ProfileCopies:
    """Copies profiles into a corpus, each content once.

    Attributes:
        corpus_folder: where to.
        known: by kind and path, what was copied already.
    """

    corpus_folder: Path
    known: dict[tuple[str, Path], str] = field(default_factory=dict[tuple[str, Path], str])

    def __call__(self, option: Option, directory: Path) -> str:
        """Copy what an option of a command that ran in ``directory`` names; its path, from the corpus on."""
        path = _path(option, directory)
        key = option.name, path
        if key not in self.known:
            with _open_profile(option, path) as descriptor, explain_write_errors(PROFILES, self.corpus_folder):
                fresh = self.corpus_folder / PROFILES / f"{os.getpid()}.new"
                digest = copy_bytes(descriptor, 0, os.fstat(descriptor).st_size, fresh)
                fresh.replace(fresh.with_name(digest))
            self.known[key] = f"{PROFILES}/{digest}"
        return self.known[key]


def profile_of(option: Option, directory: Path) -> str:
    """The path of what an option of a command that ran in ``directory`` names, if it is a profile of its kind.

    Raises:
        InputError: it is not a profile; the message says what it is.
    """
    path = _path(option, directory)
    with _open_profile(option, path):
        return str(path)


def profile_files(folder: Path) -> list[Path]:
    """The files in a corpus that are named like a profile."""
    return sorted(path for path in (folder / PROFILES).glob("*") if _NAME.fullmatch(path.name))


def profiles_in(words: Iterable[str]) -> list[Option]:
    """The options of a ``-cc1`` line that name profiles.

    Example:
        >>> [option.name for option in profiles_in(["-cc1", "-Oz", "-fprofile-sample-use=a.prof"])]
        ['-fprofile-sample-use=']
    """
    return [option for option in parse_options(words) if names_a_profile(option)]


def with_profiles(words: Sequence[str], place: Callable[[Option], str | None]) -> tuple[str, ...]:
    """A ``-cc1`` line with its profiles where ``place`` says, and without those of which it says ``None``.

    Example:
        >>> with_profiles(["-cc1", "-fprofile-sample-use=a.prof", "-Oz"], lambda option: f"/b/{option.values[0]}")
        ('-cc1', '-fprofile-sample-use=/b/a.prof', '-Oz')
    """
    edited: list[str] = []
    for option in parse_options(words):
        if not names_a_profile(option):
            edited += option.words
        elif (path := place(option)) is not None:
            edited.append(f"{option.name}{path}")
    return tuple(edited)


def counts_by_front_end(path: Path) -> bool:
    """Whether the front end put in the counters of a profile, and so reads it: bitcode has what it says."""
    with contextlib.suppress(InputError, OSError), open_untrusted(path, "") as descriptor:
        head = read_bytes(descriptor, 0, 16)
        return head.startswith(_INDEXED) and not int.from_bytes(head[8:], "little") & _BY_IR
    return False


def _path(option: Option, directory: Path) -> Path:
    return directory / (option.values[0] if option.values else "")


@contextlib.contextmanager
def _open_profile(option: Option, path: Path) -> Generator[int]:
    """A profile, open for reading."""
    words = " ".join(option.words)[:200]
    remedy = "make it with llvm-profdata, then import again"
    with open_untrusted(path, f"expected the profile of {words}, found no file {path}; {remedy}") as descriptor:
        size = os.fstat(descriptor).st_size
        if size > MOST_PROFILE_BYTES:
            raise InputError(f"expected at most {MOST_PROFILE_BYTES} bytes in the profile of {words}, found {size}")
        if not _is_profile(option.name, os.pread(descriptor, _HEAD_BYTES, 0)):
            raise InputError(
                f"expected a profile of LLVM's for {words}, found another kind of file in {path}; {remedy}"
            )
        yield descriptor


def _is_profile(name: str, head: bytes) -> bool:
    """Whether a file's first bytes are those of the kind that an option reads; no other file gets into a corpus."""
    if head.startswith(_INDEXED):
        return name not in _LINES
    if name == SAMPLES and (head.startswith(_GCC_SAMPLES) or _leb128(head) >> 8 == int.from_bytes(b"SPROF42", "big")):
        return True
    lines = (line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#"))
    return name in _LINES and _LINES[name].fullmatch(next(lines, b"")) is not None


def _leb128(data: bytes) -> int:
    """The number that begins the binary formats of LLVM's samples; its last byte says which of them."""
    value = 0
    for index, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    return value

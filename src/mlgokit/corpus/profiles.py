"""Profiles of a build, which are checked and copied into a corpus under the digest of their content.

A corpus holds what its modules are compiled with, so that it gives the same code on another machine, and after the
build was profiled anew. Its command lines name a profile by its place in the corpus, ``profiles/<SHA-256>``, which is
made a whole path when the corpus is loaded (:func:`mlgokit.corpus.options.edits.command_line_to_compile`).
"""

import contextlib
import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

from mlgokit.compiler.options.parse import Option, parse_options
from mlgokit.compiler.options.safety import MOST_PROFILE_BYTES, names_a_profile
from mlgokit.corpus.files import copy_bytes, explain_write_errors, open_untrusted, read_bytes
from mlgokit.errors import InputError

PROFILES = "profiles"
"""Folder in a corpus for profiles."""
COUNTERS, SAMPLES = "-fprofile-instrument-use-path=", "-fprofile-sample-use="
_INDEXED = b"\xfflprofi\x81"
"""First bytes of indexed profiles of counters and of memory allocations, as llvm-profdata writes them."""
_GCC_SAMPLES = b"adcg"
_LINES = {
    SAMPLES: re.compile(rb"\S.*:\d+(:\d+)?\s*"),
    "-fprofile-remapping-file=": re.compile(rb"(name|type|encoding) \S+ \S+\s*"),
}
"""First line of a text profile, after blank lines and comments."""
_NAME = re.compile(r"[0-9a-f]{64}")
_HEAD_BYTES = 1 << 16
_BY_IR = 1 << 56
"""Bit of the version of an indexed profile that is not set if the front end inserted the counters."""


def profile_copier(corpus_folder: Path) -> Callable[[Option, Path], str]:
    """Return a function that copies the profile which an option of a command in a folder names, each content once.

    It returns the path in the corpus.
    """
    known: dict[tuple[str, Path], str] = {}

    def copy(option: Option, directory: Path) -> str:
        path = _profile_path(option, directory)
        key = option.name, path
        if key not in known:
            with _open_profile(option, path) as descriptor, explain_write_errors(PROFILES, corpus_folder):
                fresh = corpus_folder / PROFILES / f"{os.getpid()}.new"
                digest = copy_bytes(descriptor, 0, os.fstat(descriptor).st_size, fresh)
                fresh.replace(fresh.with_name(digest))
            known[key] = f"{PROFILES}/{digest}"
        return known[key]

    return copy


def profile_of(option: Option, directory: Path) -> str:
    """Find the profile that an option of a command in ``directory`` names, and check that it is of the option's kind.

    Raises:
        InputError: the file is not such a profile; the message says what it is.
    """
    path = _profile_path(option, directory)
    with _open_profile(option, path):
        return str(path)


def profile_files(folder: Path) -> list[Path]:
    """List the files in a corpus that are named as profiles."""
    return sorted(path for path in (folder / PROFILES).glob("*") if _NAME.fullmatch(path.name))


def profiles_in(words: Iterable[str]) -> list[Option]:
    """List the options of a ``-cc1`` line that name profiles.

    Example:
        >>> [option.name for option in profiles_in(["-cc1", "-Oz", "-fprofile-sample-use=a.prof"])]
        ['-fprofile-sample-use=']
    """
    return [option for option in parse_options(words) if names_a_profile(option)]


def replace_profiles(words: Sequence[str], place: Callable[[Option], str | None]) -> tuple[str, ...]:
    """Replace the paths of profiles in a ``-cc1`` line by ``place(option)``; where that is ``None``, drop the option.

    Example:
        >>> replace_profiles(["-cc1", "-fprofile-sample-use=a.prof", "-Oz"], lambda option: f"/b/{option.values[0]}")
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
    """Whether the front end inserted a profile's counters; then it reads the profile, and bitcode has the counts."""
    with contextlib.suppress(InputError, OSError), open_untrusted(path, "") as descriptor:
        head = read_bytes(descriptor, 0, 16)
        return head.startswith(_INDEXED) and not int.from_bytes(head[8:], "little") & _BY_IR
    return False


def _profile_path(option: Option, directory: Path) -> Path:
    return directory / (option.values[0] if option.values else "")


@contextlib.contextmanager
def _open_profile(option: Option, path: Path) -> Generator[int]:
    words = " ".join(option.words)[:200]
    remedy = "make it with llvm-profdata, then import again"
    with open_untrusted(path, f"expected the profile of {words}, found no file {path}; {remedy}") as descriptor:
        size = os.fstat(descriptor).st_size
        if size > MOST_PROFILE_BYTES:
            raise InputError(f"expected at most {MOST_PROFILE_BYTES} bytes in the profile of {words}, found {size}")
        if not _is_profile(option.name, os.pread(descriptor, _HEAD_BYTES, 0)):
            raise InputError(
                f"expected a profile that LLVM wrote for {words}, found another kind of file in {path}; {remedy}"
            )
        yield descriptor


def _is_profile(name: str, head: bytes) -> bool:
    """Whether a file's first bytes are those of the kind of profile that an option reads; others are not copied."""
    if head.startswith(_INDEXED):
        return name not in _LINES
    if name == SAMPLES and (head.startswith(_GCC_SAMPLES) or _leb128(head) >> 8 == int.from_bytes(b"SPROF42", "big")):
        return True
    lines = (line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#"))
    return name in _LINES and _LINES[name].fullmatch(next(lines, b"")) is not None


def _leb128(data: bytes) -> int:
    """Read the LEB128 number at the start of LLVM's binary sample profiles, whose last byte tells the format."""
    value = 0
    for index, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    return value

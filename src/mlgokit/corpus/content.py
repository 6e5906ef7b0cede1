"""Counts of what modules contain, cached in a file beside the corpus by digest of the bitcode."""

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlgokit.compiler.describe import ModuleDescription
from mlgokit.decode import decode
from mlgokit.errors import InputError
from mlgokit.files import whole_file, writing

CONTENTS_NAME = "corpus_contents.jsonl"
CONTENTS_VERSION = 1
LONGEST_LINE = 1 << 20
MOST_BYTES = 1 << 30
"""Limits on what is read from the file, which may come from elsewhere."""

TRIVIAL_INSTRUCTIONS = 32
"""Minimum number of instructions before any pass, where ``return a + b;`` has seven; smaller modules and functions may
be equal by chance."""

_SHARED_LINKAGES = frozenset({"linkonce_odr", "linkonce", "weak_odr", "available_externally"})
_SKETCH_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleContent:
    """Counts of one module, before any pass.

    Attributes:
        bitcode_sha256: SHA-256 of the bitcode that was described.
        identity: digest that is the same for modules that differ in names, paths and debug information only.
        declarations: number of functions that the module only declares, without intrinsics.
        call_sites: number of calls, without calls of intrinsics.
        decidable_call_sites: number of calls that an inliner can decide: direct calls to functions defined here.
        instructions: number of instructions, without debug intrinsics.
        global_bytes: size of the variables that have an initial value.
        language: language by the debug information; empty without debug information.
        own_functions: beginnings of the identities of a quarter of the functions that no header brings along and that
            are not trivial; the same quarter in every module, so that shares of them estimate shares of all.
    """

    bitcode_sha256: str
    identity: str
    functions: int
    declarations: int
    call_sites: int
    decidable_call_sites: int
    instructions: int
    blocks: int
    global_bytes: int
    language: str = ""
    own_functions: tuple[str, ...] = ()

    @property
    def trivial(self) -> bool:
        """Whether the module is too small for copies of it to matter."""
        return self.instructions < TRIVIAL_INSTRUCTIONS


def content_of(description: ModuleDescription, *, bitcode_sha256: str) -> ModuleContent:
    """Make the counts of a module, and a sample of its own functions' digests, from a successful description."""
    own = {
        identity.partition(":")[2][:_SKETCH_DIGITS]
        for identity, linkage, size in zip(
            description.identities, description.linkages, description.column("instructions").tolist(), strict=True
        )
        if linkage not in _SHARED_LINKAGES and size >= TRIVIAL_INSTRUCTIONS
    }
    return ModuleContent(
        bitcode_sha256=bitcode_sha256,
        identity=description.identity,
        functions=description.functions,
        declarations=description.declarations,
        call_sites=description.total("call_sites"),
        decidable_call_sites=description.total("decidable_call_sites"),
        instructions=description.total("instructions"),
        blocks=description.total("blocks"),
        global_bytes=description.global_bytes,
        language=description.language,
        # A quarter of them, the same in all modules: those whose last digit is a multiple of 4.
        own_functions=tuple(sorted(digits for digits in own if int(digits[-1], 16) % 4 == 0)),
    )


def read_contents(folder: Path, *, major: int | None = None) -> dict[str, ModuleContent]:
    """Read the cached counts, by digest of the bitcode; with a ``major`` only those made by that LLVM.

    Incomplete lines and lines of other versions are skipped: the file is only a cache. Identities of different majors
    cannot be compared.
    """
    contents: dict[str, ModuleContent] = {}
    descriptor = _open_plain(folder / CONTENTS_NAME, os.O_RDONLY)
    if descriptor is None:
        return contents
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        left = MOST_BYTES
        while left > 0 and (line := file.readline(LONGEST_LINE)):
            left -= len(line)
            content = _parse(line)
            if content is not None and (major is None or content.identity.startswith(f"{major}:")):
                contents[content.bitcode_sha256] = content
    return contents


def _open_plain(path: Path, flags: int) -> int | None:
    """Open a regular file; not a link, which might lead out of the corpus, a pipe or a device."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    return None


def append_contents(folder: Path, contents: Iterable[ModuleContent]) -> None:
    """Append counts to the cache of a corpus."""
    lines = [json.dumps({"format_version": CONTENTS_VERSION, **asdict(content)}) for content in contents]
    path = folder / CONTENTS_NAME
    # A line of its own, though another run died in the middle of its last one.
    text = "\n" + "\n".join(lines) + "\n"
    with writing(path):
        descriptor = _open_plain(path, os.O_WRONLY | os.O_APPEND)
        if descriptor is not None:
            # In one call: others who read the corpus may append at the same time.
            with os.fdopen(descriptor, "ab", buffering=0) as file:
                file.write(text.encode())
            return
        # Whatever stands there is put aside by a new file; where a link leads to is not touched.
        with whole_file(path) as file:
            file.write(text.encode())


def _parse(line: str) -> ModuleContent | None:
    try:
        entry: Any = json.loads(line)
        content: ModuleContent = decode(ModuleContent, entry, CONTENTS_NAME)
    except (ValueError, RecursionError, InputError):
        return None
    return content if entry.get("format_version") == CONTENTS_VERSION else None

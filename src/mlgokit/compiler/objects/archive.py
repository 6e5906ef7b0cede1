"""Static libraries: list the objects in one, and make one from objects.

The format is that of System V and GNU ``ar``: ``!<arch>`` and a line end, then members of a 60-byte header and their
bytes, padded to an even length. Long names stand in the member ``//``, each before a line end or, in libraries for
Microsoft's linker, a zero; ``#1/N`` puts a name in front of the bytes, as BSD does. A thin archive (``!<thin>``) has
paths in place of bytes.
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.errors import InputError, ToolError
from mlgokit.files import open_regular

if TYPE_CHECKING:
    from mlgokit.compiler.toolchain import Toolchain

MAGIC, THIN_MAGIC = b"!<arch>\n", b"!<thin>\n"
_HEADER_BYTES = 60
_LONG_NAMES = "//"
_LONG_NAME = re.compile(rb"[^\n\0]*")
_REMEDY = "build it again"
_TABLES = frozenset({"/", "/SYM64/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An object in a static library.

    Attributes:
        name: name of the object without folders, or its path in a thin archive.
        file: path of the file that contains its bytes.
        offset: offset of its first byte in ``file``.
        size: number of bytes.
    """

    name: str
    file: Path
    offset: int
    size: int

    def data(self) -> bytes:
        """Read the object's bytes.

        Raises:
            InputError: the file is gone.
        """
        try:
            with open_regular(self.file) as source:
                # A thin archive has the size of a file elsewhere, and may say anything.
                left = os.fstat(source.fileno()).st_size - self.offset
                source.seek(self.offset)
                return source.read(max(0, min(self.size, left)))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.file}: expected the object {self.name}, found: {getattr(error, 'strerror', None) or error}; "
                "build it again"
            ) from error


def is_archive(path: Path) -> bool:
    """Whether a file is a static library."""
    try:
        with open_regular(path) as source:
            return source.read(len(MAGIC)) in {MAGIC, THIN_MAGIC}
    except (OSError, ValueError):
        return False


def read_members(path: Path) -> list[Member]:
    """List the objects in a static library, in order, without its symbol tables.

    Raises:
        InputError: the file cannot be read, is no archive, or is damaged.
    """
    members: list[Member] = []
    long_names = b""
    try:
        with open_regular(path) as source:
            magic = source.read(len(MAGIC))
            if magic not in {MAGIC, THIN_MAGIC}:
                raise InputError(f"{path}: expected a static library, found another file; {_REMEDY}")
            is_thin = magic == THIN_MAGIC
            file_bytes = os.fstat(source.fileno()).st_size
            position = len(MAGIC)
            while header := source.read(_HEADER_BYTES):
                name, size = _name_and_size(header, path, position)
                begin = position + _HEADER_BYTES
                is_inside = not is_thin or name in _TABLES or name == _LONG_NAMES
                if is_inside and begin + size > file_bytes:
                    raise InputError(f"{path}: expected {size} bytes of {name} at byte {begin}, found less; {_REMEDY}")
                position = begin + (size + size % 2 if is_inside else 0)
                if name == _LONG_NAMES:
                    long_names = source.read(size)
                elif name.startswith("#1/"):
                    length = min(int(name[3:]) if _is_number(name[3:]) else 0, size, file_bytes)
                    name = source.read(length).rstrip(b"\0").decode("utf-8", "surrogateescape")
                    begin, size = begin + length, size - length
                elif name.startswith("/") and _is_number(name[1:]):
                    text = _LONG_NAME.match(long_names, int(name[1:]))
                    name = text[0].decode("utf-8", "surrogateescape") if text else ""
                source.seek(position)
                if name not in _TABLES and name != _LONG_NAMES:
                    name = name.removesuffix("/")
                    where = (path, begin) if is_inside else (path.parent / name, 0)
                    members.append(Member(name=name, file=where[0], offset=where[1], size=size))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: expected a static library, found: {reason}; {_REMEDY}") from error
    return members


def _is_number(text: str) -> bool:
    """Whether :func:`int` can parse the text; :meth:`str.isdigit` also accepts digits such as a superscript two."""
    return text.isascii() and text.isdigit()


def _name_and_size(header: bytes, path: Path, position: int) -> tuple[str, int]:
    """Name and size of a member, from its header at ``position`` of the archive."""
    digits = header[48:58].strip()
    if len(header) < _HEADER_BYTES or header[58:] != b"`\n" or not digits.isdigit():
        raise InputError(f"{path}: expected a member's header at byte {position}, found none; {_REMEDY}")
    return header[:16].decode("latin-1").rstrip(), int(digits)


def find_ar(toolchain: "Toolchain") -> Path:
    """Find a program that makes static libraries: ``llvm-ar`` beside clang, else one in ``PATH``.

    Raises:
        ToolError: there is none.
    """
    found = toolchain.find_tool("llvm-ar") or shutil.which("ar")
    if found is None:
        beside = toolchain.clang.resolve().with_name("llvm-ar")
        raise ToolError(f"ar: expected {beside} or ar in PATH, found neither; apt-get install binutils")
    return Path(found)


def write_archive(ar: Path, output: Path, objects: Sequence[Path], *, timeout_seconds: float) -> str:
    """Make a static library with an index from objects; return the error, or an empty string."""
    output.unlink(missing_ok=True)
    # Whoever reads a library starts no process.
    from mlgokit.compiler import process

    done = process.run([ar, "qcs", output, *objects], timeout_seconds=timeout_seconds)
    if done.timed_out:
        return f"{ar} did not end within {timeout_seconds:.0f} s"
    return "" if done.returncode == 0 else f"{ar}: {done.stderr.strip()[-400:] or done.returncode}"

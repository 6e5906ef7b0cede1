"""The object formats that are measured, and which one a file has."""

from collections.abc import Callable
from pathlib import Path

from mlgokit.compiler.objects.elf import read_elf
from mlgokit.compiler.objects.elf_object import ElfObject
from mlgokit.compiler.objects.object_file import ObjectFile, SectionTotals, read_bytes
from mlgokit.compiler.objects.wasm_object import WASM, read_wasm

_READERS: dict[bytes, Callable[[bytes, str], ObjectFile]] = {WASM: read_wasm}
"""Readers of other formats than ELF, by the first bytes of their files."""


def read_object(source: bytes | Path, *, where: str = "object in memory") -> ObjectFile:
    """Read an object or a linked file; ``where`` names bytes in messages.

    Raises:
        InputError: the file is missing, damaged, or of no format that is known.
    """
    data, where = read_bytes(source, where=where)
    read = next((reader for magic, reader in _READERS.items() if data.startswith(magic)), None)
    return ElfObject(elf=read_elf(data, where=where)) if read is None else read(data, where)


def file_totals(source: bytes | Path) -> SectionTotals:
    """Sum the sections of an object or a linked file by kind.

    Raises:
        InputError: the file is missing, damaged, or of no format that is known.
    """
    return read_object(source).totals()

"""The object formats that are measured, and which one a file has."""

from collections.abc import Callable
from pathlib import Path

from mlgokit.compiler.objects.coff_object import IMAGE, OBJECTS, read_coff
from mlgokit.compiler.objects.elf import MAGIC, read_elf
from mlgokit.compiler.objects.elf_object import ElfObject
from mlgokit.compiler.objects.macho_object import MACH_O, MACH_O_32, read_macho
from mlgokit.compiler.objects.object_file import ObjectFile, SectionTotals, read_bytes
from mlgokit.compiler.objects.wasm_object import WASM, read_wasm

_READERS: dict[bytes, tuple[str, Callable[[bytes, str], ObjectFile]]] = {
    WASM: ("wasm", read_wasm),
    **dict.fromkeys((IMAGE, *OBJECTS), ("COFF", read_coff)),
    **dict.fromkeys((MACH_O, MACH_O_32), ("Mach-O", read_macho)),
}
"""Names and readers of other formats than ELF, by the first bytes of their files."""
_LONGEST_MAGIC = 4


def read_object(source: bytes | Path, *, where: str = "object in memory") -> ObjectFile:
    """Read an object or a linked file; ``where`` names bytes in messages.

    Raises:
        InputError: the file is missing, damaged, or of no format that is known.
    """
    data, where = read_bytes(source, where=where)
    found = next((named for magic, named in _READERS.items() if data.startswith(magic)), None)
    return ElfObject(elf=read_elf(data, where=where)) if found is None else found[1](data, where)


def has_reader(data: bytes) -> bool:
    """Whether a file is of a format that is known, by its first bytes."""
    return data.startswith((MAGIC, *_READERS))


def format_of(path: Path) -> str:
    """The format of a file by LLVM's names, by its first bytes; ELF for what is not known, or cannot be read."""
    try:
        with path.open("rb") as file:
            begin = file.read(_LONGEST_MAGIC)
    except OSError:
        begin = b""
    return next((name for magic, (name, _) in _READERS.items() if begin.startswith(magic)), "ELF")


def file_totals(source: bytes | Path) -> SectionTotals:
    """Sum the sections of an object or a linked file by kind.

    Raises:
        InputError: the file is missing, damaged, or of no format that is known.
    """
    return read_object(source).totals()

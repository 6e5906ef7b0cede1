"""The object formats that are measured, and which one a file has."""

from pathlib import Path

from mlgokit.compiler.objects.magic import COFF_BIG_OBJECT, COFF_IMAGE, COFF_OBJECTS, ELF, MACH_O, MACH_O_32, WASM
from mlgokit.compiler.objects.object_file import ObjectFile, SectionTotals, read_bytes

_NAMES = {
    WASM: "wasm",
    **dict.fromkeys((COFF_IMAGE, COFF_BIG_OBJECT, *COFF_OBJECTS), "COFF"),
    **dict.fromkeys((MACH_O, MACH_O_32), "Mach-O"),
}
"""Names of other formats than ELF, by the first bytes of their files."""
_LONGEST_MAGIC = 6


def read_object(source: bytes | Path, *, where: str = "object in memory") -> ObjectFile:
    """Read an object or a linked file; ``where`` names bytes in messages.

    Raises:
        InputError: the file is missing, damaged, or of no format that is known.
    """
    data, where = read_bytes(source, where=where)
    name = next((name for magic, name in _NAMES.items() if data.startswith(magic)), "ELF")
    # A reader takes as long to import as most files take to read, so that only the one that is needed is.
    if name == "wasm":
        from mlgokit.compiler.objects.wasm_object import read_wasm as read
    elif name == "COFF":
        from mlgokit.compiler.objects.coff_object import read_coff as read
    elif name == "Mach-O":
        from mlgokit.compiler.objects.macho_object import read_macho as read
    else:
        from mlgokit.compiler.objects.elf_object import read_elf_object as read
    return read(data, where)


def has_reader(data: bytes) -> bool:
    """Whether a file is of a format that is known, by its first bytes."""
    return data.startswith((ELF, *_NAMES))


def format_of(path: Path) -> str:
    """The format of a file by LLVM's names, by its first bytes; ELF for what is not known, or cannot be read."""
    try:
        with path.open("rb") as file:
            begin = file.read(_LONGEST_MAGIC)
    except OSError:
        begin = b""
    return next((name for magic, name in _NAMES.items() if begin.startswith(magic)), "ELF")


def file_totals(source: bytes | Path) -> SectionTotals:
    """Sum the sections of an object or a linked file by kind.

    Raises:
        InputError: the file is missing, damaged, or of no format that is known.
    """
    return read_object(source).totals()

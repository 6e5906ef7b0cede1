"""Files of any format as sections and symbols; the members of a static library together."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np

from mlgokit.compiler.objects import archive
from mlgokit.compiler.objects.formats import has_reader, read_object
from mlgokit.compiler.objects.object_file import LARGEST_FILE, FileSection
from mlgokit.errors import InputError
from mlgokit.files import read_bounded
from mlgokit.sizes.binary import Binary, Layer, make_layer, outside_of
from mlgokit.sizes.record import OutsideSize

_REFUSED = {
    b"\xca\xfe\xba\xbe": "a universal Mach-O file; give one of its parts, which `llvm-lipo -thin` takes out",
    b"BC\xc0\xde": "LLVM bitcode, which has no sizes yet; link it, or compile it without -flto",
    b"\xde\xc0\x17\x0b": "LLVM bitcode, which has no sizes yet; link it, or compile it without -flto",
    b"#!": "a script; give the program that it starts",
}
"""What other files are, and what to do, by their first bytes."""
_WANTED = "an ELF, COFF, Mach-O or wasm program, shared library, static library or object"


def read_binary(path: Path) -> Binary:
    """Read a program, a library or an object.

    Raises:
        InputError: there is no such file, it is another kind of file, or it is damaged.
    """
    if archive.is_archive(path):
        return _read_library(path)
    try:
        data = read_bounded(path, LARGEST_FILE)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: expected {_WANTED}, found: {reason}; give one") from error
    return _read_file(data, str(path))


def _read_file(data: bytes, where: str) -> Binary:
    if not has_reader(data):
        raise _refusal(data, where)
    file = read_object(data, where=where)
    layout = file.layout()
    extents = [(one.offset, one.file_bytes) for one in layout.sections]
    own, rest = outside_of(len(data), [*extents, *((begin, size) for _, begin, size in layout.tables)])
    sections = tuple(
        one if one.file_bytes == size else dataclasses.replace(one, file_bytes=size)
        for one, size in zip(layout.sections, own, strict=False)
    )
    tables = zip(layout.tables, own[len(sections) :], strict=True)
    between = "between sections" if layout.tables else "headers, symbol tables and between sections"
    return Binary(
        kind=layout.kind,
        is_linked=not file.is_object,
        sections=sections,
        symbols=make_layer([(name,) for name in layout.names], layout.section, layout.begin, layout.end, sections),
        outside=(
            *(OutsideSize(name=name, file=size) for (name, _, _), size in tables),
            OutsideSize(name=between, file=rest),
        ),
    )


def _refusal(data: bytes, where: str) -> InputError:
    refused = next((words for begin, words in _REFUSED.items() if data.startswith(begin)), None)
    if refused is None:
        refused = f"{len(data)} bytes that begin with {data[:4].hex()}; give one" if data else "an empty file; give one"
    return InputError(f"{where}: expected {_WANTED}, found {refused}")


def _read_library(path: Path) -> Binary:
    """The members of a static library as one binary; each section knows its member."""
    members = archive.read_members(path)
    found: list[tuple[str, Binary]] = []
    others: Counter[str] = Counter()
    for member in members:
        data = member.data()
        if has_reader(data):
            found.append((member.name, _read_file(data, f"{path}({member.name})")))
        else:
            others["members that are no objects"] += len(data)
    if not found:
        raise InputError(
            f"{path}: expected a static library of objects, found no object among its {len(members)} members; name "
            "another library"
        )
    is_thin = any(member.file != path for member in members)
    for _, binary in found:
        for one in binary.outside:
            others[one.name] += one.file
    inside = sum(binary.file_bytes for _, binary in found) + others["members that are no objects"]
    if not is_thin:
        others["index and headers of members"] = path.stat().st_size - inside
    kinds = sorted({binary.kind.rsplit(" ", 1)[0] for _, binary in found})
    return Binary(
        kind=f"{' and '.join(kinds)} static library",
        is_linked=False,
        sections=tuple(
            dataclasses.replace(section, member=name) for name, binary in found for section in binary.sections
        ),
        symbols=_join([(binary.symbols, binary.sections) for _, binary in found]),
        outside=tuple(OutsideSize(name=name, file=count) for name, count in others.items()),
    )


def _join(layers: list[tuple[Layer, tuple[FileSection, ...]]]) -> Layer:
    """Layers of several files, whose sections stand one behind the other."""
    owners: list[tuple[str, ...]] = []
    columns: list[list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = [[], [], [], []]
    first = 0
    for layer, sections in layers:
        parts = (layer.owner + len(owners), layer.section + first, layer.begin, layer.end)
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
        owners += layer.owners
        first += len(sections)
    owner, section, begin, end = (np.concatenate(column) for column in columns)
    return Layer(owners=tuple(owners), owner=owner, section=section, begin=begin, end=end)

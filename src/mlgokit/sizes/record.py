"""Where the bytes of a file are, as values and as JSON."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlgokit.decode import check_format, decode

FORMAT = "mlgokit sizes"
FORMAT_VERSION = 1

Grouping = Literal["section", "symbol", "source", "library", "template", "crate"]
GROUPINGS: tuple[Grouping, ...] = ("section", "symbol", "source", "library", "template", "crate")
DEFAULT_GROUPINGS: tuple[Grouping, ...] = ("section", "symbol")


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSize:
    """A section, and what of it belongs to symbols.

    Attributes:
        name: as the file has it.
        member: the member of a static library that it is of, else empty.
        address: where it is loaded; 0 in objects.
        size: what ``llvm-size -A`` says of it.
        listed: whether ``llvm-size -A`` lists it.
        file: its bytes in the file.
        memory: its bytes in memory.
        no_symbol_file: those of ``file`` that belong to no symbol.
        no_symbol_memory: those of ``memory`` that belong to no symbol.
    """

    name: str
    member: str
    address: int
    size: int
    listed: bool
    file: int
    memory: int
    no_symbol_file: int
    no_symbol_memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolSize:
    """A function or variable, once, however many names it has.

    Attributes:
        names: its symbols; several for aliases and for functions that the linker folded.
        readable: the first of them, demangled.
        section: name of its section.
        member: the member of a static library that it is in, else empty.
        address: where it begins: where it is loaded, or its offset in the section of an object.
        file: bytes in the file.
        memory: bytes in memory.
        source: the compilation unit that it comes from, if DWARF tells, else empty.
        library: the archive member or object of the link that it comes from, if a linker's map tells; the member of a
            static library; else empty.
        template: the template that it is an instance of, without arguments, else empty.
        crate: the crate of Rust code, else empty.
    """

    names: tuple[str, ...]
    readable: str
    section: str
    member: str
    address: int
    file: int
    memory: int
    source: str = ""
    library: str = ""
    template: str = ""
    crate: str = ""

    @property
    def size(self) -> int:
        """Bytes in the file, or in memory if that is more."""
        return max(self.file, self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """The bytes of a source, a library, a template or a crate.

    Attributes:
        name: its name; empty for bytes of which it is not known.
        symbols: how many symbols are in it.
        file: bytes in the file.
        memory: bytes in memory.
    """

    name: str
    symbols: int
    file: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSize:
    """Bytes of a file that are in no section: headers, tables, and what is between sections."""

    name: str
    file: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Where the bytes of a file are.

    ``file_bytes`` is the sum of ``file`` over ``sections`` and ``outside``. In ``sources`` and in ``libraries``, which
    are empty if nothing told of them, it is the sum together with ``outside`` as well; ``templates`` and ``crates``
    have bytes of symbols alone.

    Attributes:
        path: the file.
        kind: its format, processor and role.
        file_bytes: its size.
        memory_bytes: what is loaded of it.
        sections: all sections.
        outside: what is in no section.
        symbols: functions and variables, the largest first.
        sources: by compilation unit.
        libraries: by archive member or object of the link.
        templates: by template.
        crates: by crate.
        notes: sentences about what could not be told.
    """

    path: str
    kind: str
    file_bytes: int
    memory_bytes: int
    sections: tuple[SectionSize, ...]
    outside: tuple[OutsideSize, ...]
    symbols: tuple[SymbolSize, ...]
    sources: tuple[GroupSize, ...] = ()
    libraries: tuple[GroupSize, ...] = ()
    templates: tuple[GroupSize, ...] = ()
    crates: tuple[GroupSize, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the file that are loaded: without zeros, padding to a page, debug information and symbol tables."""
        return sum(one.file for one in self.sections if one.memory)

    def to_json(self) -> dict[str, Any]:
        """The record of docs/formats.md."""
        # dataclasses.asdict copies each value on its way down, which takes seconds for a hundred thousand symbols.
        values = {name: getattr(self, name) for name in (field.name for field in dataclasses.fields(self))}
        rows = {name: [_values(row) for row in values[name]] for name in _ROWS}
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **values, **rows}

    @classmethod
    def from_json(cls, value: object, where: str = "sizes") -> "Sizes":
        """Read a record.

        Raises:
            InputError: it is none.
        """
        remedy = "make it again with `mlgokit size --output`"
        return decode(cls, check_format(value, FORMAT, FORMAT_VERSION, where=where, remedy=remedy), where)


_ROWS = ("sections", "outside", "symbols", "sources", "libraries", "templates", "crates")


def _values(row: Any) -> dict[str, Any]:
    """A dataclass without dataclasses in it, as JSON values."""
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def sum_by(rows: Iterable[tuple[str, int, int]]) -> tuple[GroupSize, ...]:
    """Groups by name of symbols with bytes in file and memory, the largest first; those without a name are left out."""
    sums: dict[str, list[int]] = {}
    for name, file, memory in rows:
        if name:
            one = sums.setdefault(name, [0, 0, 0])
            one[0] += 1
            one[1] += file
            one[2] += memory
    groups = (GroupSize(name=name, symbols=one[0], file=one[1], memory=one[2]) for name, one in sums.items())
    return tuple(sorted(groups, key=lambda group: (-max(group.file, group.memory), group.name)))


def size_limit_json(sizes: Sizes) -> list[dict[str, Any]]:
    """What the npm tool size-limit prints with ``--json``, with the file as its one check."""
    return [{"name": Path(sizes.path).name, "size": sizes.file_bytes}]

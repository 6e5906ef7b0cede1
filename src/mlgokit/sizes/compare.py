"""The difference between two files: what is new, gone, grown and shrunk."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mlgokit.decode import check_format, decode
from mlgokit.sizes.names import stable_name
from mlgokit.sizes.record import GroupSize, Sizes

FORMAT = "mlgokit size difference"
FORMAT_VERSION = 1

State = Literal["new", "gone", "grown", "shrunk", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two files.

    Attributes:
        loaded_bytes: those of ``file_bytes`` that are loaded; ``None`` in a record of an earlier version.
    """

    path: str
    kind: str
    file_bytes: int
    memory_bytes: int
    loaded_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A section, symbol or group whose bytes differ.

    Attributes:
        name: what it is known by on both sides; of a symbol without what differs from build to build.
        readable: the name that people read.
        state: ``moved`` is one whose bytes went from file to memory alone, or back.
        file_before: bytes in the file before; likewise the others.
    """

    name: str
    readable: str
    state: State
    file_before: int
    file_after: int
    memory_before: int
    memory_after: int

    @property
    def before(self) -> int:
        """Bytes before, in the file or in memory, where there are more."""
        return max(self.file_before, self.memory_before)

    @property
    def after(self) -> int:
        """Bytes after."""
        return max(self.file_after, self.memory_after)

    @property
    def difference(self) -> int:
        """Bytes gained."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDifference:
    """What differs between two files; of each list the largest difference is first.

    What is outside of sections is among the sections, so that their differences sum up to that of the files.
    """

    before: Side
    after: Side
    sections: tuple[Changed, ...]
    symbols: tuple[Changed, ...]
    unchanged_symbols: int
    sources: tuple[Changed, ...] = ()
    libraries: tuple[Changed, ...] = ()
    templates: tuple[Changed, ...] = ()
    crates: tuple[Changed, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record of docs/formats.md."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, value: object, where: str = "size difference") -> "SizeDifference":
        """Read a record.

        Raises:
            InputError: it is none.
        """
        remedy = "make it again with `mlgokit size BEFORE AFTER --output`"
        return decode(cls, check_format(value, FORMAT, FORMAT_VERSION, where=where, remedy=remedy), where)


Bytes = dict[str, tuple[str, int, int]]
"""Readable name, bytes in the file and bytes in memory, by the name that both sides know."""


def compare_sizes(before: Sizes, after: Sizes) -> SizeDifference:
    """Compare two files by section, symbol, source, library, template and crate."""
    symbols, unchanged = _changes(_symbols(before), _symbols(after))
    sections, _ = _changes(_sections(before), _sections(after))
    groups = {
        name: _changes(_groups(getattr(before, name)), _groups(getattr(after, name)))[0]
        for name in ("sources", "libraries", "templates", "crates")
        # A side without debug information would make all of the other new or gone.
        if getattr(before, name) and getattr(after, name)
    }
    return SizeDifference(
        before=_side(before),
        after=_side(after),
        sections=sections,
        symbols=symbols,
        unchanged_symbols=unchanged,
        **groups,
    )


def _side(sizes: Sizes) -> Side:
    return Side(**{field.name: getattr(sizes, field.name) for field in dataclasses.fields(Side)})


def _sum(rows: Iterable[tuple[str, str, int, int]]) -> Bytes:
    sums: Bytes = {}
    for name, readable, file, memory in rows:
        _, old_file, old_memory = sums.get(name, ("", 0, 0))
        sums[name] = (readable, old_file + file, old_memory + memory)
    return sums


def _symbols(sizes: Sizes) -> Bytes:
    return _sum(
        (min(stable_name(name) for name in one.names), one.readable, one.file, one.memory) for one in sizes.symbols
    )


def _sections(sizes: Sizes) -> Bytes:
    outside = ((one.name, one.name, one.file, 0) for one in sizes.outside)
    return _sum([*((one.name, one.name, one.file, one.memory) for one in sizes.sections), *outside])


def _groups(groups: Iterable[GroupSize]) -> Bytes:
    return _sum((one.name, one.name, one.file, one.memory) for one in groups)


def _changes(before: Bytes, after: Bytes) -> tuple[tuple[Changed, ...], int]:
    """What differs, and how many do not."""
    changed: list[Changed] = []
    names = [*before, *(name for name in after if name not in before)]
    for name in names:
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and old[1:] == new[1:]:
            continue
        readable = (new or old or (name,))[0]
        (_, old_file, old_memory), (_, new_file, new_memory) = old or ("", 0, 0), new or ("", 0, 0)
        gained = max(new_file, new_memory) - max(old_file, old_memory)
        state: State = "new" if old is None else "gone" if new is None else "grown" if gained > 0 else "shrunk"
        changed.append(
            Changed(
                name=name,
                readable=readable,
                state="moved" if state == "shrunk" and not gained else state,
                file_before=old_file,
                file_after=new_file,
                memory_before=old_memory,
                memory_after=new_memory,
            )
        )
    changed.sort(key=lambda one: (-abs(one.difference), one.name))
    return tuple(changed), len(names) - len(changed)

"""Sizes and differences as pages: tables, and a treemap of section, file and symbol."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.pages.model import (
    Branch,
    Column,
    Page,
    Part,
    Row,
    Table,
    Tile,
    Tree,
    Treemap,
    Trees,
    before_after_cells,
    before_after_columns,
    count_columns,
    drop_empty,
    format_difference,
    percent,
    relative_change,
    text_columns,
)
from mlgokit.sizes.record import DEFAULT_GROUPINGS, GROUPINGS, Grouping, GroupSize, SectionSize, Sizes, SymbolSize
from mlgokit.terminal import counted

if TYPE_CHECKING:
    from mlgokit.sizes.compare import Changed, SizeDifference
    from mlgokit.sizes.why import Reasons, User

MOST_ROWS = 5000
"""Symbols that the table of a document has."""
MOST_TILES = 3000
"""Symbols that the treemap has; those that are smaller share a tile in each file."""
LINES_OF_TREE = 10
"""Lines of a tree in the terminal."""
NO_SYMBOL = "no symbol"
NO_SOURCE = "no source"
NOT_LOADED = "in the file alone"
_FAMILIES = (
    ".text", ".rodata", ".data.rel.ro", ".data", ".bss", ".tdata", ".tbss", ".gcc_except_table", ".init_array",
    ".fini_array", ".rela", ".rel", ".ARM.exidx", ".ARM.extab", ".rdata", ".pdata", ".xdata",
)  # fmt: skip
"""Names that compilers put a function's name behind."""
_GROUPS: dict[Grouping, tuple[str, str]] = {
    "source": ("sources", "Sources"),
    "library": ("libraries", "Libraries and objects"),
    "template": ("templates", "Templates"),
    "crate": ("crates", "Crates"),
}
"""Their place in a record, and their title."""


def section_family(name: str) -> str:
    """The name of a section without that of the function which an object has it for.

    Example:
        >>> section_family(".text.unlikely._Z3fooi"), section_family(".text$main"), section_family(".comment")
        ('.text', '.text', '.comment')
    """
    return next((family for family in _FAMILIES if re.match(rf"{re.escape(family)}(?:[.$]|$)", name)), name)


def size_page(
    sizes: Sizes,
    *,
    shown: Sequence[Grouping] = DEFAULT_GROUPINGS,
    top: int | None = None,
    width: int | None = None,
    command: str = "",
    symbols: int | None = None,
) -> Page:
    """The page of one file.

    Args:
        sizes: where its bytes are.
        shown: the tables of the terminal; documents have all.
        top: rows of each table in the terminal, by default all.
        width: longest name in the terminal; longer ones lose their middle. Documents have whole names.
        command: what was typed.
        symbols: number of all symbols if ``sizes`` tells the largest alone; the page then has what the terminal shows.
    """
    family = _family_of(sizes)
    no_symbol = sum(one.no_symbol_file for one in sizes.sections) + sum(one.file for one in sizes.outside)
    name = Path(sizes.path).name
    count = len(sizes.symbols) if symbols is None else symbols
    tables: dict[Grouping, Table] = {
        "section": _section_table(sizes, family),
        "symbol": _symbol_table(sizes, width, count),
        **{one: _group_table(one, getattr(sizes, of), sizes, width, count) for one, (of, _) in _GROUPS.items()},
    }
    parts = _arrange(tables, shown, top)
    return Page(
        title=f"Sizes of {name}",
        headline=f"{name}: {sizes.file_bytes:,} bytes in the file, {sizes.memory_bytes:,} in memory; "
        f"symbols own {sizes.file_bytes - no_symbol:,} bytes of the file.",
        sentences=sizes.notes,
        parts=(*(size_treemap(sizes) if symbols is None else ()), *parts),
        command=command,
        facts=(("file", sizes.path), ("kind", sizes.kind)),
        names={one.names[0]: one.readable for one in sizes.symbols[:MOST_ROWS]} if width is None else {},
    )


def _arrange(tables: dict[Grouping, Table], shown: Sequence[Grouping], top: int | None) -> tuple[Part, ...]:
    """The tables that have rows, those that the terminal shows in its order first."""
    order: list[Grouping] = [*shown, *(grouping for grouping in GROUPINGS if grouping not in shown)]
    return drop_empty(dataclasses.replace(tables[one], terminal_rows=top if one in shown else 0) for one in order)


def _family_of(sizes: Sizes) -> Callable[[str], str]:
    """Sections of a linked file have the names that they have."""
    is_linked = not sizes.kind.endswith(("object", "library")) or sizes.kind.endswith("shared library")
    return (lambda name: name) if is_linked else section_family


def shorten(name: str, width: int | None) -> str:
    """A name of at most ``width`` letters, whose middle is left out.

    Example:
        >>> shorten("abcdefghij", 7)
        'abc...j'
    """
    if width is None or len(name) <= width:
        return name
    tail = (width - 3) // 3
    return f"{name[: width - 3 - tail]}...{name[-tail:]}" if tail > 0 else name[:width]


def _shorten_path(name: str, width: int | None) -> str:
    """A path of at most ``width`` letters, whose begin is left out."""
    return name if width is None or len(name) <= width else f"...{name[3 - width :]}"


def _section_table(sizes: Sizes, family: Callable[[str], str]) -> Table:
    groups: dict[str, list[SectionSize]] = {}
    for one in sizes.sections:
        groups.setdefault(family(one.name), []).append(one)
    rows: list[Row] = [
        (
            name,
            sum(one.file for one in ones),
            sum(one.memory for one in ones),
            sum(max(one.no_symbol_file, one.no_symbol_memory) for one in ones),
        )
        for name, ones in groups.items()
    ]
    rows += [(one.name, one.file, 0, one.file) for one in sizes.outside]
    rows = [row for row in rows if row[1] or row[2]]
    # What is loaded comes first: debug information and symbol tables are often the larger part, and seldom shipped.
    rows.sort(key=lambda row: (-_number(row[2]), -_number(row[1]), str(row[0])))
    return Table(
        title="Sections",
        columns=(*text_columns("section"), *count_columns("file", "memory", "unowned")),
        rows=tuple(rows),
        total=("all", sizes.file_bytes, sizes.memory_bytes, sum(_number(row[3]) for row in rows)),
        note="Bytes in the file and in memory, as llvm-size -A counts them, and those that belong to no symbol. What "
        "is in no section, such as headers, has a row of its own.",
    )


def _number(cell: object) -> int:
    return cell if isinstance(cell, int) else 0


def _symbol_table(sizes: Sizes, width: int | None, count: int) -> Table:
    kept = sizes.symbols[: MOST_ROWS if width is None else None]
    rows: list[Row] = [
        (
            one.names[0] if width is None else shorten(one.readable, width),
            one.section if width is None else shorten(one.section, 18),
            one.source or one.library,
            ", ".join(one.names[1:]),
            one.file,
            one.memory,
        )
        for one in kept
    ]
    more = len(sizes.symbols) - len(kept)
    return Table(
        title="Symbols",
        columns=(
            *text_columns("symbol", "section"),
            *text_columns("source", "also named", terminal="none"),
            *count_columns("file", "memory"),
        ),
        rows=tuple(rows),
        note="Functions and variables; each byte counts once, for one symbol."
        + (f" The largest {len(kept):,} of {len(sizes.symbols):,}." if more else ""),
        symbols=width is None,
        left_out=count - len(sizes.symbols),
    )


def _group_table(grouping: Grouping, groups: Sequence[GroupSize], sizes: Sizes, width: int | None, count: int) -> Table:
    whole = grouping in {"source", "library"}
    cut = _shorten_path if whole else shorten
    rows: list[Row] = [
        (cut(one.name, width) if one.name else f"no {grouping}", one.symbols, one.file, one.memory) for one in groups
    ]
    outside = sum(one.file for one in sizes.outside)
    if whole and rows:
        rows.append(("outside of sections", 0, outside, 0))
    notes = {
        "source": "By the compilation unit of DWARF that the code is of; what was inlined counts where it went.",
        "library": "By the archive member or object of the link.",
        "template": "Instances of one template together; only symbols count.",
        "crate": "By the crate whose code it is; only symbols count.",
    }
    return Table(
        title=_GROUPS[grouping][1],
        columns=(*text_columns(grouping), *count_columns("symbols", "file", "memory")),
        rows=tuple(rows),
        total=("all", count, sizes.file_bytes, sizes.memory_bytes) if whole and rows else (),
        note=notes[grouping],
    )


def size_treemap(sizes: Sizes, *, title: str = "Map", most: int = MOST_TILES) -> tuple[Treemap, ...]:
    """The treemap of a file, with a tile for each of its ``most`` largest symbols; nothing for a file without bytes."""
    family = _family_of(sizes)
    sections: dict[str, dict[str, list[SymbolSize]]] = {}
    has_files = bool(sizes.sources or sizes.libraries)
    for one in sizes.symbols:
        file = (one.source or one.library or NO_SOURCE) if has_files else ""
        sections.setdefault(family(one.section), {}).setdefault(file, []).append(one)
    least = sizes.symbols[most].size if len(sizes.symbols) > most else 0
    rest: dict[str, int] = {}
    loaded: set[str] = set()
    for one in sizes.sections:
        name = family(one.name)
        rest[name] = rest.get(name, 0) + max(one.no_symbol_file, one.no_symbol_memory)
        if one.memory:
            loaded.add(name)
    tiles: list[Tile] = []
    unloaded = [Tile(name=one.name, size=one.file) for one in sizes.outside]
    for name, own in rest.items():
        files = sections.get(name, {})
        inside = [
            _tile(file, _symbol_tiles(symbols, least)) for file, symbols in files.items() if file
        ] or _symbol_tiles(files.get("", []), least)
        if own:
            inside.append(Tile(name=NO_SYMBOL, size=own))
        if name in loaded:
            tiles.append(_tile(name, inside))
        else:
            unloaded.append(Tile(name=name, size=own))
    # Debug information and symbol tables are often the larger part, and seldom shipped.
    tiles.append(_tile(NOT_LOADED, [tile for tile in unloaded if tile.size]))
    tiles = [tile for tile in tiles if tile.size]
    if not tiles:
        return ()
    return (
        Treemap(
            title=title,
            tiles=_by_size(tiles),
            note="Each area is as large as its bytes, in the file or in memory: sections, in them "
            + ("files, in these symbols." if has_files else "symbols."),
        ),
    )


def _tile(name: str, tiles: Sequence[Tile]) -> Tile:
    return Tile(name=name, size=sum(tile.size for tile in tiles), tiles=_by_size(tiles))


def _by_size(tiles: Iterable[Tile]) -> tuple[Tile, ...]:
    return tuple(sorted(tiles, key=lambda tile: (-tile.size, tile.name)))


def _symbol_tiles(symbols: Sequence[SymbolSize], least: int) -> list[Tile]:
    """A tile for each symbol, and one for those that are too small for a tile."""
    tiles = [Tile(name=one.readable, size=one.size) for one in symbols if one.size > least]
    small = [one.size for one in symbols if one.size <= least]
    if small:
        tiles.append(Tile(name=f"{counted(len(small), 'smaller symbol')}", size=sum(small)))
    return tiles


def difference_page(
    found: "SizeDifference",
    *,
    shown: Sequence[Grouping] = DEFAULT_GROUPINGS,
    top: int | None = None,
    width: int | None = None,
    command: str = "",
) -> Page:
    """The page of a difference; see :func:`size_page`."""
    before, after = found.before, found.after
    in_file, in_memory = after.file_bytes - before.file_bytes, after.memory_bytes - before.memory_bytes
    # What is loaded decides: debug information may be the larger part of a file, and is seldom shipped. Memory has
    # padding to a page, which hides what the code gained.
    gained = (after.loaded_bytes or 0) - (before.loaded_bytes or 0) or in_memory or in_file
    answer = "larger" if gained > 0 else "smaller" if gained < 0 else "same size"
    tables: dict[Grouping, Table] = {
        "section": _changed_sections(found),
        "symbol": symbol_changes(found, width=width),
        **{one: _changed_table(title, one, getattr(found, of), width) for one, (of, title) in _GROUPS.items()},
    }
    states = ("new", "gone", "grown", "shrunk")
    counts = [f"{sum(one.state == state for one in found.symbols):,} {state}" for state in states]
    return Page(
        title=f"Sizes of {Path(before.path).name} and {Path(after.path).name}",
        answer=answer.capitalize(),
        good=gained <= 0,
        headline=f"{before.memory_bytes:,} -> {after.memory_bytes:,} bytes in memory "
        f"({format_difference(in_memory)}, {percent(relative_change(before.memory_bytes, after.memory_bytes))}), "
        f"{before.file_bytes:,} -> {after.file_bytes:,} in the file "
        f"({format_difference(in_file)}, {percent(relative_change(before.file_bytes, after.file_bytes))}).",
        sentences=(f"Symbols: {', '.join(counts)}, {found.unchanged_symbols:,} unchanged.",),
        parts=_arrange(tables, shown, top),
        command=command,
        facts=(("before", before.path), ("after", after.path), ("kind", after.kind)),
        names={one.name: one.readable for one in found.symbols[:MOST_ROWS]} if width is None else {},
    )


def _changed_sections(found: "SizeDifference") -> Table:
    # As in the table of one file, what is loaded comes first.
    order = sorted(found.sections, key=lambda one: (-abs(one.memory_after - one.memory_before), -abs(one.difference)))
    rows: list[Row] = [
        (one.name, *before_after_cells(one.file_before, one.file_after), one.memory_after - one.memory_before)
        for one in order
    ]
    before, after = found.before, found.after
    return Table(
        title="Sections",
        columns=(*text_columns("section"), *before_after_columns(), Column(title="in memory", kind="difference")),
        rows=tuple(rows),
        total=(
            "all",
            *before_after_cells(before.file_bytes, after.file_bytes),
            after.memory_bytes - before.memory_bytes,
        ),
        note="Bytes in the file, and the difference in memory; sections that are alike are not shown.",
    )


def symbol_changes(
    found: "SizeDifference", *, title: str = "Symbols", most: int = MOST_ROWS, width: int | None = None
) -> Table:
    """The table of the symbols that differ, the ``most`` largest differences first; see :func:`size_page`."""
    return _changed_table(title, "symbol", found.symbols[:most], width, is_symbols=True)


def _changed_table(
    title: str, what: Grouping, changes: "Sequence[Changed]", width: int | None, *, is_symbols: bool = False
) -> Table:
    in_document = is_symbols and width is None
    rows: list[Row] = [
        (
            one.name if in_document else shorten(one.readable, width) or f"no {what}",
            one.state,
            *before_after_cells(one.before, one.after),
        )
        for one in changes[:MOST_ROWS]
    ]
    return Table(
        title=title,
        columns=(*text_columns(what, "state"), *before_after_columns()),
        rows=tuple(rows),
        note="What differs; the largest difference is first.",
        symbols=in_document,
    )


def reasons_page(found: "Reasons", *, top: int | None = None, width: int | None = None, command: str = "") -> Page:
    """The page about one symbol; see :func:`size_page`."""
    name = shorten(found.readable, width)
    in_section = f"{found.size:,} bytes in {found.section}" if found.size else "no code of its own"
    used = len(found.users) + found.others
    sentences = list(found.notes)
    if found.chain:
        sentences.append(f"A shortest way to it: {' > '.join(shorten(one, width) for one in found.chain)}.")
    elif found.size and not used:
        sentences.append(
            "Nothing in the file refers to it: it is exported, or called by the system, or kept because the linker was "
            "not told to remove what is not used (-ffunction-sections -fdata-sections -Wl,--gc-sections)."
        )
    tree = Tree(symbol=name, change=in_section, branches=tuple(_branch(user, width) for user in found.users))
    rows: list[Row] = [(shorten(one.into, width), one.copies, one.bytes) for one in found.inlined]
    return Page(
        title=f"Why {name} is in {Path(found.path).name}",
        headline=f"{name}: {in_section}, used by {used:,}; inlined copies: "
        f"{sum(one.copies for one in found.inlined):,}, of {sum(one.bytes for one in found.inlined):,} bytes.",
        sentences=tuple(sentences),
        parts=(
            *((Trees(title="Used by", trees=(tree,), terminal_rows=top or LINES_OF_TREE),) if found.users else ()),
            *drop_empty(
                (
                    Table(
                        title="Inlined into",
                        columns=(*text_columns("function"), *count_columns("copies", "bytes")),
                        rows=tuple(rows),
                        note="As DWARF tells it; bytes are those of all copies, with what was inlined into them.",
                        terminal_rows=top or LINES_OF_TREE,
                    ),
                )
            ),
        ),
        command=command,
        facts=(("file", found.path), ("symbol", ", ".join(found.names))),
    )


def _branch(user: "User", width: int | None) -> Branch:
    more = (f"{counted(user.others, 'more user')}",) if user.others else ()
    return Branch(
        how="called by" if user.calls else "referred to by",
        symbol=shorten(user.readable, width),
        marks=(f"{user.size:,} bytes", *more) if user.size else more,
        branches=tuple(_branch(one, width) for one in user.users),
    )

"""What the dynamic linker needs for the calls of an object that it binds: symbols, entries of ``.plt``, relocations.

One function that is called costs this once, however often and by whom it is called; so those that call it share it.
"""

from typing import Literal

import numpy as np

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf, Ints, Symbols
from mlgokit.compiler.objects.ownership import Functions

Image = Literal["", "program", "library"]
"""What an object is linked to: a program or a shared library with other shared libraries, or something without any."""
PLT_ENTRY = 16
"""Bytes of ``.plt`` for each function."""
_RELOCATION = 24
_SYMBOL = 24 + 2
"""Beside its name: an entry of ``.dynsym``, and its version."""
_CALLS = {62: (4,), 183: (282, 283)}
"""Types of relocations by machine: ``R_X86_64_PLT32``, ``R_AARCH64_JUMP26`` and ``R_AARCH64_CALL26``."""
_DEFAULT_VISIBILITY = 0


def dynamic_bytes(elf: Elf, symbols: Symbols, code: Functions, image: Image) -> tuple[Ints, Ints]:
    """Each function's share [F] of ``.plt``, and of the tables that the dynamic linker reads; 0 for other machines.

    Args:
        elf: the object.
        symbols: its symbols.
        code: its functions.
        image: a shared library may be given other definitions of what it exports, so calls of that are bound as well.
    """
    plt, tables = np.zeros(len(code.names), np.int64), np.zeros(len(code.names), np.int64)
    called, elsewhere = _references(elf, symbols, code, _CALLS.get(elf.machine, ()))
    info, section = symbols.table["info"].astype(np.int64), symbols.section
    named = (symbols.table["name"] > 0) & (info >> 4 != e.STB_LOCAL)
    undefined = named & (symbols.table["section"] == 0)
    exported = named & (section >= 0) & (symbols.table["other"] & 3 == _DEFAULT_VISIBILITY)
    for symbol, callers in called.items():
        if not (undefined[symbol] or (image == "library" and exported[symbol])):
            continue
        _share(plt, callers, PLT_ENTRY)
        # Data that refers to it keeps the symbol there in any case.
        new = undefined[symbol] and symbol not in elsewhere
        name = e.text_at(symbols.strings, int(symbols.table["name"][symbol]))
        _share(tables, callers, _RELOCATION + (_SYMBOL + len(name.encode()) + 1 if new else 0))
    return plt, tables


def _references(
    elf: Elf, symbols: Symbols, code: Functions, calls: tuple[int, ...]
) -> tuple[dict[int, list[int]], set[int]]:
    """By symbol the functions that call it, and the symbols that something else refers to."""
    called: dict[int, set[int]] = {}
    elsewhere: set[int] = set()
    targets = elf.sections["info"].astype(np.int64)
    for source in np.flatnonzero(np.isin(elf.sections["type"], (e.SHT_RELA, e.SHT_REL))).tolist() if calls else ():
        section = int(targets[source])
        if not int(elf.sections["flags"][section]) & e.SHF_ALLOC:
            continue
        table = e.read_relocations(elf, source, symbols)
        symbol, offset = table["symbol"].astype(np.int64), table["offset"].astype(np.int64)
        function = code.at(np.full(len(table), section, np.int64), offset)
        by_call = np.isin(table["type"], calls) & (function >= 0)
        for one, caller in set(zip(symbol[by_call].tolist(), function[by_call].tolist(), strict=True)):
            called.setdefault(one, set()).add(caller)
        elsewhere.update(symbol[~by_call].tolist())
    return {symbol: sorted(callers) for symbol, callers in called.items()}, elsewhere


def _share(column: Ints, functions: list[int], size: int) -> None:
    """Divide some bytes among functions, what is left over among the first ones."""
    each, more = divmod(size, len(functions))
    column[functions] += each
    column[functions[:more]] += 1

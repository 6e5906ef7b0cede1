"""Which functions of an object a linker folds into one: identical code folding, as lld does it with ``--icf=all``.

Two functions are alike if their sections have the same bytes, and relocations at the same places that name the same
things, or functions that are alike themselves. So all are taken for alike that have the same bytes, and told apart
until nothing more does.
"""

from collections.abc import Sequence

import numpy as np

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf, Ints, Symbols
from mlgokit.compiler.objects.ownership import Functions


def alike_functions(elf: Elf, symbols: Symbols, code: Functions, except_table: Ints) -> Ints:
    """[F] a number for each function, the same for those that are folded into one.

    Args:
        elf: the object.
        symbols: its symbols.
        code: its functions.
        except_table: [F] bytes of each function's exception table. One that has any is not folded, nor is one that
            shares its section with another one.
    """
    count = len(code.names)
    alone = np.bincount(code.section, minlength=len(elf.names))[code.section] == 1 if count else np.zeros(0, bool)
    candidates = np.flatnonzero((except_table == 0) & alone).tolist()
    function_at = np.full(len(elf.names) + 1, -1, np.int64)
    function_at[code.section[candidates]] = candidates
    numbers, known = np.arange(count, dtype=np.int64), dict[object, int]()
    named: list[Ints] = []
    for function in candidates:
        section = int(code.section[function])
        begin, size = int(elf.sections["offset"][section]), int(elf.sections["size"][section])
        facts: list[object] = [int(elf.sections["flags"][section]), elf.data[begin : begin + size]]
        targets = [np.empty(0, np.int64)]
        for source in e.relocation_sections(elf, section):
            table = e.read_relocations(elf, source, symbols)
            symbol = table["symbol"].astype(np.int64)
            target = symbols.section[symbol].astype(np.int64)
            value = np.where(target >= 0, symbols.table["value"][symbol].astype(np.int64), 0) + table["addend"]
            # What another file defines is told by its symbol, all else by where it is.
            targets.append(np.where(target >= 0, target, -2 - symbol))
            facts += [table["offset"].tobytes(), table["type"].tobytes(), value.tobytes()]
        numbers[function] = known.setdefault(tuple(facts), function)
        named.append(np.concatenate(targets))
    groups = 0
    while len(known) != groups:
        groups = len(known)
        known.clear()
        found = numbers.copy()
        for function, targets in zip(candidates, named, strict=True):
            callee = function_at[np.maximum(targets, -1)]
            key = np.where(callee >= 0, numbers[callee], -1).tobytes(), np.where(callee >= 0, -1, targets).tobytes()
            found[function] = known.setdefault((int(numbers[function]), *key), function)
        numbers = found
    return numbers


def shared(columns: Sequence[Ints], alike: Ints) -> list[Ints]:
    """Each function's bytes [F], those that are folded into one divided among all that are.

    Example:
        >>> shared([np.array([7, 5, 7])], np.array([0, 1, 0]))[0].tolist()
        [4, 5, 3]
    """
    _, group, count = np.unique(alike, return_inverse=True, return_counts=True)
    place = np.empty(len(alike), np.int64)
    place[np.argsort(group, kind="stable")] = np.arange(len(alike)) - np.repeat(np.cumsum(count) - count, count)
    many = count[group]
    # The bytes of a group are those of the first: of the others the tables may differ, and go with them.
    first = np.unique(group, return_index=True)[1][group]
    return [column[first] // many + (place < column[first] % many) for column in columns]

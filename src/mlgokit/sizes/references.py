"""Who refers to whom in a file: calls and uses in code, as ``llvm-objdump`` disassembles it, and pointers in data.

In a linked ELF file a pointer is a word of data, or the addend of a relocation, that is the address of a symbol. In
objects it is a relocation. An address that AArch64 puts together of two instructions is found in objects alone.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.llvm_tools import member_of_line, run_llvm_tool
from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.object_file import LARGEST_SECTION, FileSection, Ints, read_bytes
from mlgokit.compiler.objects.wasm_object import read_wasm
from mlgokit.sizes.binary import Binary, signed
from mlgokit.sizes.measure import NOBODY, owner_at, symbols_at

_ADDRESSED_HEAD = re.compile(r"([0-9a-f]+) <(.+)>:\s*")
_ADDRESS = re.compile(r" *[0-9a-f]+:(?=\s)")
_HEAD = re.compile(r"<(.+)>:\s*")
_TARGET = re.compile(r"<([^<>]*(?:<[^<>]*>[^<>]*)*?)(?:\+0x[0-9a-f]+)?>\s*$")
_RELOCATION = re.compile(r"\t\t\t?\s*(?:[0-9a-f]+:\s+)?([A-Z][A-Z0-9_]+)\s+(\S+)")
_RECORD = re.compile(r"([0-9a-f]+) +\S+ +(\S+)")
_RECORDS = re.compile(r"RELOCATION RECORDS FOR \[(.*)\]:")
_OFFSET = re.compile(r"[-+](?:0x)?[0-9a-f]+$")
_CALLS = re.compile(r"call|bl$|blx$|b$|b\.|j|tail|return_call")
_WASM_CALL = re.compile(r"(?:call|return_call)\s+(\d+)$")
_PAGE = "adrp"


@dataclass(slots=True, kw_only=True)
class References:
    """Who refers to a symbol: by its name the names of who does, each with whether it is called there."""

    users: dict[str, dict[str, bool]] = field(default_factory=dict[str, dict[str, bool]])

    def add(self, user: str, target: str, *, is_call: bool) -> None:
        """Note a use; one of a symbol by itself is none."""
        if user and user != target:
            one = self.users.setdefault(target, {})
            one[user] = one.get(user, False) or is_call


def find_references(path: Path, binary: Binary) -> References:
    """Read all of a file's code and data.

    Raises:
        ToolError: there is no LLVM, or it takes too long.
        InputError: it cannot read the file.
    """
    found = References()
    aliases = {name: names[0] for names in binary.symbols.owners for name in names}
    text = run_llvm_tool("llvm-objdump", "-dr", "--no-show-raw-insn", file=path)
    lines = _without_addresses(text, binary)
    functions: dict[int, str] = {}
    if binary.kind.startswith("wasm") and binary.is_linked:
        functions = dict(read_wasm(*read_bytes(path)).function_names())
    for user, target, is_call in _uses_in_code(lines, functions):
        found.add(aliases.get(user, user), aliases.get(target, target), is_call=is_call)
    pointers = _pointers_of_elf(path, binary) if binary.kind.startswith("ELF") and binary.is_linked else ()
    if not binary.is_linked:
        pointers = _relocated_pointers(path, binary)
    for user, target in pointers:
        found.add(user, aliases.get(target, target), is_call=False)
    return found


def _without_addresses(text: str, binary: Binary) -> Iterator[str]:
    """A disassembly without the addresses of its lines; Mach-O's functions have their own names there.

    The assembler for Mach-O puts a label of its own at the begin of a section, which hides the first function.
    """
    renames = binary.kind.startswith("Mach-O")
    for line in text.splitlines():
        if head := _ADDRESSED_HEAD.fullmatch(line):
            yield f"<{_names_at(binary, signed([int(head[1], 16)]))[0] if renames else head[2]}>:"
        else:
            yield _ADDRESS.sub("", line)


def _uses_in_code(lines: Iterable[str], functions: dict[int, str]) -> Iterator[tuple[str, str, bool]]:
    """User, target, and whether it is called, in a disassembly with relocations behind their instructions."""
    user, target, is_call = "", "", False
    for line in lines:
        if line[:1] == "<" and (head := _HEAD.fullmatch(line)):
            user, target = head[1], ""
        elif line[:2] == "\t\t" and (relocation := _RELOCATION.match(line)):
            # What the instruction seems to refer to is what stands there until it is relocated.
            target = ""
            yield user, _OFFSET.sub("", relocation[2]), is_call or "_CALL" in relocation[1]
        elif user:
            if target:
                yield user, target, is_call
            words = line.split(None, 1)
            mnemonic = words[0] if words else ""
            is_call = _CALLS.match(mnemonic) is not None
            at = _TARGET.search(line) if mnemonic != _PAGE else None
            target = at[1].removesuffix("@plt") if at else ""
            if functions and is_call and (called := _WASM_CALL.match(line.strip())):
                target = functions.get(int(called[1]), "")
    if target:
        yield user, target, is_call


def _pointers_of_elf(path: Path, binary: Binary) -> Iterator[tuple[str, str]]:
    """User and target of the pointers in the data of a linked file."""
    elf = e.read_elf(path)
    word = elf.bits // 8
    addresses = binary.addresses
    places: list[Ints] = []
    values: list[Ints] = []
    for index, section in enumerate(binary.sections):
        if section.is_code or not section.memory_bytes or not section.file_bytes:
            continue
        begin, kind = int(elf.sections["offset"][index]), int(elf.sections["type"][index])
        if kind == e.SHT_RELA and elf.bits == 64:
            table = e.read_table(elf, index, e.RELOCATION)
            places.append(table["offset"].astype(np.int64))
            values.append(table["addend"].astype(np.int64))
        elif kind == 1 or kind in {14, 15, 16}:
            skipped = -section.address % word
            count = max(0, section.file_bytes - skipped) // word
            words = np.frombuffer(elf.data, f"<u{word}", count, begin + skipped)
            places.append(addresses[index] + skipped + word * np.arange(count, dtype=np.int64))
            values.append(words.astype(np.int64))
    if not places:
        return
    place, value = np.concatenate(places), np.concatenate(values)
    symbols = binary.symbols
    begins = addresses[symbols.section] + symbols.begin
    order = np.argsort(begins, kind="stable")
    if not len(order):
        return
    at = np.minimum(np.searchsorted(begins[order], value), len(order) - 1)
    # Code for Thumb is pointed to by an odd address.
    odd = np.minimum(np.searchsorted(begins[order], value - 1), len(order) - 1) if elf.machine == e.ARM else at
    at = np.where(begins[order][at] == value, at, odd)
    hit = np.abs(begins[order][at] - value) <= (1 if elf.machine == e.ARM else 0)
    hit &= value != 0
    users = _names_at(binary, place[hit])
    targets: list[int] = symbols.owner[order][at[hit]].tolist()
    for user, target in zip(users, targets, strict=True):
        yield user, symbols.owners[target][0]


def _names_at(binary: Binary, address: Ints) -> list[str]:
    """The symbols that own the bytes at addresses of a linked file, or the sections."""
    symbols, section = symbols_at(binary, address)
    indexes: list[int] = section.tolist()
    return [name or f"section {binary.sections[index].name}" for name, index in zip(symbols, indexes, strict=True)]


def _relocated_pointers(path: Path, binary: Binary) -> Iterator[tuple[str, str]]:
    """User and target of the relocations of data in objects."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(binary.sections):
        places.setdefault((one.member, one.name), []).append(place)
    found: list[tuple[int, str, str]] = []
    for (member, name), tables in _relocation_tables(path).items():
        sections = places.get((member, name), [])
        if not any(_may_point(binary.sections[place]) for place in sections):
            continue
        # Only sections with relocations have a table, which does not say which of the name it is of.
        firsts = [place * LARGEST_SECTION for place in sections] if len(sections) == len(tables) else None
        for number, table in enumerate(tables):
            found += [(NOBODY if firsts is None else firsts[number] + offset, name, target) for offset, target in table]
    if not found:
        return
    owners: list[int] = owner_at(binary.symbols, np.array([key for key, _, _ in found], np.int64)).tolist()
    for owner, (_, name, target) in zip(owners, found, strict=True):
        yield binary.symbols.owners[owner][0] if owner >= 0 else f"section {name}", target


def _may_point(section: FileSection) -> bool:
    return section.memory_bytes > 0 and not section.is_code and ".eh_frame" not in section.name


def _relocation_tables(path: Path) -> dict[tuple[str, str], list[list[tuple[int, str]]]]:
    """Offset and target of the relocations of objects, by member and name of section: of each such section in order."""
    tables: dict[tuple[str, str], list[list[tuple[int, str]]]] = {}
    table: list[tuple[int, str]] = []
    member = ""
    for line in run_llvm_tool("llvm-objdump", "-r", file=path).splitlines():
        if (begun := member_of_line(line, path)) is not None:
            member = begun
        elif head := _RECORDS.match(line):
            table = []
            tables.setdefault((member, head[1]), []).append(table)
        elif record := _RECORD.match(line):
            table.append((int(record[1], 16), _OFFSET.sub("", record[2])))
    return tables

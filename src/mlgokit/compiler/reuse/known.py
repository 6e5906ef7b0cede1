"""A cache of function sizes, so that code generation can skip functions whose final IR is known.

After the last pass over the IR the plugin drops the bodies of functions whose digest is known, and lists them
(``plugin/reuse/KnownFunctions.cpp``; ``docs/formats.md``, "Known functions"). The object then has the others, and all
data. Here the sizes of the dropped functions are added again, so that the sizes are those of the whole object, to the
byte. ``docs/internals/reuse.md``, "Known functions are not generated again", says why that is exact. Functions that do
not meet its conditions are not cached, and an object that contradicts them ends the use of the cache for its module.
"""

import dataclasses
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects import elf as e, magic
from mlgokit.compiler.objects.elf import Elf, Symbols
from mlgokit.compiler.objects.frames import FrameTable, read_frame_table
from mlgokit.compiler.objects.measure import COLUMNS, ObjectSizes, measure_object
from mlgokit.compiler.objects.object_file import Functions, Ints, References, read_bytes
from mlgokit.compiler.objects.ownership import find_functions
from mlgokit.errors import InputError

MOST_KNOWN = 8192
"""Maximum number of cached functions of a module; the least recently used are evicted."""
MOST_KNOWN_OF_ALL = 1_000_000
"""Maximum number of cached functions of all modules, at some 500 bytes each; the modules used least recently are
evicted."""
DIGEST_BYTES = 16
_SHF_STRINGS, _SHF_LINK_ORDER = 0x20, 0x80
_SHARED = (".rodata", ".data.rel.ro", ".data.rel.ro.local")
_LAYOUT = (
    "-mllvm",
    "-load",
    "-plugin",
    "-no-integrated-as",
    "-fno-integrated-as",
    "-fbasic-block-",
    "-fsplit-machine-functions",
    "-fno-unique-section-names",
    "-fxray-",
    "-fpatchable-",
    "-fsanitize",
    "-fprofile-",
    "-fcoverage-",
    "-fcs-profile-",
    "-pg",
    "-mfentry",
    "-mcmodel=",
    "-fembed-bitcode",
    "-fsplit-stack",
)
"""Prefixes of options under which the code of a function depends on other functions, or is laid out differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A function that reached code generation.

    Attributes:
        name: symbol of the function.
        digest: digest of its final IR.
        dropped: whether its code generation was skipped, so that the object lacks it.
        droppable: whether its IR allows skipping it.
        constants: bytes of its constants in mergeable sections, which functions share; ``None`` if it was not
            generated, or has constants in other shared sections as well.
        executed: instructions that one call executes, by LLVM's estimate; 0 if it was not generated.
    """

    name: str
    digest: bytes
    dropped: bool
    droppable: bool
    constants: int | None
    executed: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The sizes of a function's code in its object.

    Attributes:
        text: bytes of machine code.
        rodata: bytes of jump tables and the exception table.
        except_table: bytes of the exception table, which are a part of ``rodata``.
        frame: bytes of the FDE, without the padding of the section's last one; 0 without an FDE.
        personality: symbol of the personality in the FDE's CIE.
        signature: COMDAT signature of the function's group; empty outside of groups.
        constants: bytes of its constants in mergeable sections, which functions share.
        executed: instructions that one call executes, by LLVM's estimate.
        references: names of the symbols that it refers to.
    """

    text: int
    rodata: int
    except_table: int
    frame: int
    personality: str
    signature: str
    constants: int
    executed: float
    references: tuple[str, ...] = ()


Codes = Mapping[bytes, Code]
"""Sizes of functions by digest of their IR."""


@dataclass(slots=True, kw_only=True, eq=False)
class KnownFunctions:
    """The size cache of one module with one command line. Thread-safe.

    Attributes:
        codes: sizes of functions by digest of their IR, the least recently used first.
        content: digest of the module's files, its options and the plugin, for which the cache is valid.
        cies: bytes of the CIE by personality.
        groups: for each personality whose reference is a COMDAT group: bytes [3] of text, rodata and eh_frame, and of
            data.
        refused: why the cache is not used for this module; empty if it is.
        hits: number of functions that were not generated.
        misses: number of functions that were generated.
    """

    codes: dict[bytes, Code] = field(default_factory=dict[bytes, Code])
    cies: dict[str, int] = field(default_factory=dict[str, int])
    groups: dict[str, tuple[Ints, int]] = field(default_factory=dict[str, tuple[Ints, int]])
    content: str = ""
    refused: str = ""
    hits: int = 0
    misses: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def snapshot(self) -> Codes:
        """Copy the cache for one compilation, so that evictions do not affect it."""
        with self._lock:
            return dict(self.codes)

    def settings(self, folder: Path, functions: Path, known: Codes) -> dict[str, str]:
        """Write the known digests into ``folder``, and return the plugin's environment variables."""
        path = folder / "known"
        path.write_bytes(b"".join(known))
        return {"MLGOKIT_KNOWN": str(path), "MLGOKIT_FUNCTIONS": str(functions)}

    def complete(self, path: Path, functions: Path, *, known: Codes) -> ObjectSizes | None:
        """Compute the sizes of the whole object from an object without known functions; cache its new functions.

        Args:
            path: path of the object.
            functions: path of the plugin's list of functions.
            known: snapshot of the cache when the compilation began.

        Returns:
            The sizes; ``None`` if they cannot be computed, and then :attr:`refused` says why.
        """
        listed = read_functions(functions)
        if not listed:
            return measure_object(path, references=True)
        data, where = read_bytes(path)
        if not data.startswith(magic.ELF):
            self.refused = "its object is not ELF, whose sections alone are put together from parts"
            return None
        elf = e.read_elf(data, where=where)
        part = _Part.read(elf, {function.name: order for order, function in enumerate(listed)})
        if isinstance(part, str):
            self.refused = part
            return None
        with self._lock:
            self._learn(part, listed)
            dropped = [function for function in listed if function.dropped]
            self.hits += len(dropped)
            self.misses += len(listed) - len(dropped)
            whole = self._add_known(part, listed, dropped, known)
            if isinstance(whole, str):
                self.refused = whole
                return None
            for function in dropped:
                self.codes[function.digest] = self.codes.pop(function.digest, known[function.digest])
            while len(self.codes) > MOST_KNOWN:
                del self.codes[next(iter(self.codes))]
        return whole

    def _learn(self, part: "_Part", listed: Sequence[Listed]) -> None:
        """Cache the sizes of the functions that were generated."""
        for personality, size in part.frames.cies.items():
            self.cies[personality] = size
        for index, signature in enumerate(part.sizes.signatures):
            if signature in part.frames.cies:
                self.groups[signature] = part.sizes.signature_rest[index], int(part.sizes.signature_data[index])
        places = {name: function for function, name in enumerate(part.sizes.function_names)}
        for entry in listed:
            function = places.get(entry.name)
            counted = entry.droppable and entry.constants is not None
            if counted and function is not None and part.separate[function]:
                self.codes[entry.digest] = part.code_entry(
                    function, constants=entry.constants or 0, executed=entry.executed
                )

    def _add_known(
        self, part: "_Part", listed: Sequence[Listed], dropped: Sequence[Listed], known: Codes
    ) -> ObjectSizes | str:
        """Add the cached sizes of skipped functions to those of the object; or return why that is impossible."""
        sizes = part.sizes
        codes = [known.get(function.digest) for function in dropped]
        known_codes = [code for code in codes if code is not None]
        if len(known_codes) < len(dropped):
            return "a function was skipped although its code is not known"
        signatures = list(sizes.signatures)
        places = {signature: index for index, signature in enumerate(signatures)}
        rest, data = [sizes.signature_rest], [sizes.signature_data]
        indices: list[int] = []
        for code in known_codes:
            if code.signature in places:
                return f"the group {code.signature} has more than its function"
            indices.append(len(signatures) if code.signature else -1)
            if code.signature:
                places[code.signature] = len(signatures)
                signatures.append(code.signature)
                rest.append(np.zeros((1, COLUMNS), np.int64))
                data.append(np.zeros(1, np.int64))
        personal = {code.personality for code in known_codes if code.frame}
        for personality in personal - places.keys():
            if personality in self.groups:
                group, written = self.groups[personality]
                signatures.append(personality)
                rest.append(group[None])
                data.append(np.array([written]))
        frame = np.concatenate([part.frame, np.array([code.frame for code in known_codes], np.int64)])
        used = personal | part.frames.cies.keys()
        shared = sum(self.cies[personality] for personality in used)
        padding = -(int(frame.sum()) + shared) % 8
        order = {function.name: index for index, function in enumerate(listed)}
        names = (*sizes.function_names, *(function.name for function in dropped))
        personalities = (*part.personality, *(code.personality for code in known_codes))
        # The table is padded to 8 bytes at its last entry: that of the last personality, and there the last function.
        if padding:
            described = np.flatnonzero(frame).tolist()
            frame[max(described, key=lambda index: (personalities[index].encode(), order[names[index]]))] += padding
        text, rodata, except_table = (
            np.concatenate([before, np.array([getattr(code, name) for code in known_codes], np.int64)])
            for before, name in (
                (sizes.function_text, "text"),
                (sizes.function_rodata, "rodata"),
                (sizes.function_except_table, "except_table"),
            )
        )
        all_rest, all_data = np.concatenate(rest), np.concatenate(data)
        more = all_rest[len(sizes.signatures) :].sum(axis=0)
        constants = sum(code.constants for code in known_codes)
        totals = dataclasses.replace(
            sizes.totals,
            text=sizes.totals.text + sum(code.text for code in known_codes) + int(more[0]),
            rodata=sizes.totals.rodata + sum(code.rodata for code in known_codes) + int(more[1]) + constants,
            except_table=sizes.totals.except_table + sum(code.except_table for code in known_codes),
            eh_frame=int(frame.sum()) + shared,
            data=sizes.totals.data + int(all_data[len(sizes.signatures) :].sum()),
        )
        return ObjectSizes(
            totals=totals,
            function_names=names,
            function_text=text,
            function_rodata=rodata,
            function_except_table=except_table,
            function_eh_frame=frame,
            function_signature=np.concatenate([sizes.function_signature, np.array(indices, np.int64)]),
            signatures=tuple(signatures),
            signature_rest=all_rest,
            signature_data=all_data,
            rest=np.array([sizes.rest[0], sizes.rest[1] + constants, shared]),
            references=_add_references(sizes.references, known_codes),
        )


def _add_references(references: References | None, known_codes: Sequence[Code]) -> References | None:
    """Add those of skipped functions."""
    if references is None:
        return None
    return dataclasses.replace(
        references, by_function=(*references.by_function, *(code.references for code in known_codes))
    )


def may_drop(command_line: Sequence[str]) -> bool:
    """Whether these options allow skipping the code generation of functions.

    Example:
        >>> may_drop(["-cc1", "-Oz"]), may_drop(["-cc1", "-Oz", "-mllvm", "-enable-ipra"])
        (True, False)
    """
    return not any(option.startswith(_LAYOUT) for option in command_line)


def read_functions(path: Path) -> list[Listed]:
    """Read the plugin's list of functions; empty if it wrote none.

    Raises:
        InputError: a line is not one of the plugin's.
    """
    if not path.exists():
        return []
    functions: dict[str, Listed] = {}
    for line in path.read_bytes().splitlines():
        kind, digest, name = line[:1], line[2 : 2 + 2 * DIGEST_BYTES], line[3 + 2 * DIGEST_BYTES :]
        try:
            value = bytes.fromhex(digest.decode("ascii"))
        except ValueError:
            value = b""
        # Objects of one module have their names in common.
        text = sys.intern(name.decode("utf-8", "backslashreplace"))
        if kind not in b"dnkc" or len(value) != DIGEST_BYTES or not name or (kind == b"c") != (text in functions):
            raise InputError(
                f"{path}: expected lines of a letter, a digest and a name, found {line[:60]!r}; build the plugin again"
            )
        if kind == b"c":
            merged, others, executed = struct.unpack(">IId", value)
            functions[text] = dataclasses.replace(
                functions[text], constants=None if others else merged, executed=executed
            )
        else:
            functions[text] = Listed(
                name=text, digest=value, dropped=kind == b"d", droppable=kind != b"k", constants=None
            )
    return list(functions.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """An object in which functions may be missing; F functions.

    Attributes:
        sizes: sizes of the functions and data that are in the object.
        frames: its unwind table.
        frame: [F] bytes of each function's FDE, without padding.
        personality: [F] personality in the FDE's CIE.
        separate: [F] whether all sections of the function are its own, except for those of mergeable constants.
    """

    sizes: ObjectSizes
    frames: FrameTable
    frame: Ints
    personality: tuple[str, ...]
    separate: npt.NDArray[np.bool_]

    @classmethod
    def read(cls, elf: Elf, order: dict[str, int]) -> "_Part | str":
        """Read an object whose known functions were not generated; or return why their sizes cannot be added to it.

        ``order`` has the functions that the plugin listed, by name.
        """
        sizes, symbols = measure_object(elf.data, references=True), e.read_symbols(elf)
        flags = elf.sections["flags"]
        code = find_functions(elf, symbols, (flags & e.SHF_EXECINSTR) != 0)
        frames = read_frame_table(elf, symbols, code)
        if isinstance(frames, str):
            return frames
        if code.names != sizes.function_names or sizes.rest[2] != sum(frames.cies.values()):
            return "its unwind table has bytes of no function"
        frame, personality = np.zeros(len(code.names), np.int64), [""] * len(code.names)
        for function, size, name in zip(frames.function, frames.size, frames.personality, strict=True):
            if frame[function] or code.names[function] not in order:
                return "its unwind table has two entries for a function, or one for a function that was not listed"
            frame[function], personality[function] = size, name
        return cls(
            sizes=sizes,
            frames=frames,
            frame=frame,
            personality=tuple(personality),
            separate=_is_separate(elf, sizes, code, *_refers_to_constants(elf, symbols)),
        )

    def code_entry(self, function: int, *, constants: int, executed: float) -> Code:
        """Collect the sizes, the frame and the personality of the function with this index, as an entry of the cache.

        Args:
            function: index of the function in the object.
            constants: bytes of its constants in mergeable sections, which functions share.
            executed: instructions that one call executes, by LLVM's estimate.
        """
        sizes = self.sizes
        signature = int(sizes.function_signature[function])
        return Code(
            text=int(sizes.function_text[function]),
            rodata=int(sizes.function_rodata[function]),
            except_table=int(sizes.function_except_table[function]),
            frame=int(self.frame[function]),
            personality=self.personality[function],
            signature=sizes.signatures[signature] if signature >= 0 else "",
            constants=constants,
            executed=executed,
            references=() if sizes.references is None else sizes.references.by_function[function],
        )


def _refers_to_constants(elf: Elf, symbols: Symbols) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Find for each section [N] whether it refers to constants that functions share: mergeable ones, and others."""
    sections = elf.sections
    flags = sections["flags"]
    merged = ((flags & e.SHF_MERGE) != 0) & ((flags & _SHF_STRINGS) == 0) & ((flags & e.SHF_ALLOC) != 0)
    merged &= sections["size"] > 0
    others = np.array([name in _SHARED for name in elf.names], bool) & ~merged
    to_merged, to_others = np.zeros(len(sections), bool), np.zeros(len(sections), bool)
    for source in np.flatnonzero(sections["type"] == e.SHT_RELA).tolist():
        target = symbols.section[e.read_relocations(elf, source, symbols)["symbol"]]
        target = target[target >= 0]
        to_merged[int(sections["info"][source])] |= bool(merged[target].any())
        to_others[int(sections["info"][source])] |= bool(others[target].any())
    return to_merged, to_others


def _is_separate(
    elf: Elf, sizes: ObjectSizes, code: Functions, to_merged: npt.NDArray[np.bool_], to_others: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether the sections of each function [F] are its own, and only its code refers to mergeable constants."""
    sections = elf.sections
    alone = (np.bincount(code.section, minlength=len(sections)) == 1)[code.section] & (code.begin == 0)
    alone &= code.size == sections["size"][code.section].astype(np.int64)
    places: list[int] = code.section.tolist()
    named = [elf.names[place].endswith(f".{name}") for name, place in zip(code.names, places, strict=True)]
    alone &= np.array(named, bool)
    pooled = to_merged | to_others
    spoiled = to_others.copy()
    owner = {name: int(section) for name, section in zip(code.names, code.section.tolist(), strict=True)}
    for index in np.flatnonzero(sections["flags"] & e.SHF_ALLOC).tolist():
        name = elf.names[index]
        if sections["flags"][index] & _SHF_LINK_ORDER:
            section = int(sections["link"][index])
            if pooled[index] or not name.startswith(".gcc_except_table"):
                spoiled[section] = True
        elif name.startswith(".rodata.") and pooled[index] and (section := owner.get(name[8:])) is not None:
            spoiled[section] = True
    alone &= ~spoiled[code.section]
    signature = sizes.function_signature
    functions = np.bincount(signature[signature >= 0], minlength=len(sizes.signatures))
    # Groups that consist of one function.
    lonely = (functions == 1) & (sizes.signature_rest.sum(axis=1) == 0) & (sizes.signature_data == 0)
    return alone & np.append(lonely, True)[signature]

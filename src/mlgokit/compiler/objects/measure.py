"""Sizes of an object by section kind, function and COMDAT signature, and the scores that are computed from them.

Every byte that ``llvm-size`` calls *text* (allocated, not writable) is owned exactly once: by a function, by a COMDAT
signature (vtables, typeinfo names and other group contents that no function owns), or by the rest (constants,
strings, the CIEs of ``.eh_frame``, padding between functions that share a section). For RISC-V, what a linker takes
out of calls is owned by nobody.

The scores: a linker keeps one copy of a COMDAT signature however many modules define it, so the link-aware score
counts its bytes 1/k in a module of a project in which k modules define it (``docs/scores.md``).
"""

import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects.elf_object import ElfObject, read_elf_object
from mlgokit.compiler.objects.formats import read_object
from mlgokit.compiler.objects.object_file import (
    BSS,
    DATA,
    NONE,
    TEXT,
    Image,
    Ints,
    Parts,
    References,
    SectionTotals,
    extents,
)

Floats = npt.NDArray[np.float64]

COLUMNS = 3
"""Columns of the byte tables: text, rodata, eh_frame, in this order."""


class Objective(enum.Enum):
    """Which bytes of an object count."""

    LINK_AWARE = "link-aware"
    """Text, read-only data and unwind tables; a COMDAT signature that k objects define counts 1/k."""
    LINK_AWARE_TEXT = "link-aware-text"
    """Machine code only, COMDAT signatures at 1/k; for builds without unwind tables."""
    OBJECT_TEXT = "object-text"
    """llvm-size's text, the score of google/ml-compiler-opt; it ignores that the linker merges COMDAT copies. For
    RISC-V without what a linker takes out of calls."""
    EXECUTED = "executed"
    """What functions execute in the profiled run, at a price in bytes, and by how much they are larger than plainly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSizes:
    """The sizes of one object, with F functions and S COMDAT signatures.

    Attributes:
        totals: bytes by section kind.
        function_names: [F] one symbol name for each function; if several share an address, the defining one.
        function_text: [F] machine code; the whole section including padding, if the function has a section of its own;
            for RISC-V without what a linker takes out of calls.
        function_rodata: [F] jump tables in sections of the function, and ``function_except_table``.
        function_except_table: [F] the function's LSDA.
        function_eh_frame: [F] the function's FDEs.
        function_signature: [F] index of the COMDAT signature, or -1 outside of groups.
        signatures: [S] COMDAT signatures that this object defines.
        signature_rest: [S, 3] text, rodata and eh_frame bytes of the group that no function owns.
        signature_data: [S] writable bytes of the group (vtables of position-independent code).
        rest: [3] text, rodata and eh_frame bytes that belong to no function and no signature.
        references: what refers to the functions; ``None`` if nobody asked.
        live: [F] whether the link keeps the function, whose bytes count only then; ``None`` if it keeps all of them, as
            far as is known.
        run_cost: [F] score of the function for :attr:`Objective.EXECUTED`; ``None`` if nobody counted.
    """

    totals: SectionTotals
    function_names: tuple[str, ...]
    function_text: Ints
    function_rodata: Ints
    function_except_table: Ints
    function_eh_frame: Ints
    function_signature: Ints
    signatures: tuple[str, ...]
    signature_rest: Ints
    signature_data: Ints
    rest: Ints
    references: References | None = None
    live: npt.NDArray[np.bool_] | None = None
    run_cost: Floats | None = None

    def scores_of_functions(self, objective: Objective) -> Floats:
        """The score [F] of each function, before COMDAT signatures are weighed."""
        if objective is Objective.EXECUTED and self.run_cost is not None:
            return self.run_cost.copy()
        scores = self.function_bytes[:, : columns_of(objective)].sum(axis=1).astype(np.float64)
        return scores if self.live is None else scores * self.live

    @property
    def llvm_size_text(self) -> int:
        """Bytes in llvm-size's text column."""
        return self.totals.llvm_size_text

    @property
    def function_bytes(self) -> Ints:
        """[F, 3] text, rodata and eh_frame of each function."""
        return np.stack([self.function_text, self.function_rodata, self.function_eh_frame], axis=1)


def measure_object(
    data: bytes | Path, *, folds: bool = False, image: Image = "", references: bool = False
) -> ObjectSizes:
    """Read an object and assign every byte of it to an owner.

    Args:
        data: content or path of the object.
        folds: whether the linker folds identical functions (ICF); such functions share the bytes of one of them. The
            totals are still those of the object.
        image: kind of the image that the object is linked into, if functions are to be charged for the bytes of dynamic
            calls; else empty.
        references: whether to find what functions refer to.

    Raises:
        InputError: the file is missing, damaged, or no relocatable object of a format and target that is known.
    """
    file = read_object(data)
    parts = file.parts()
    kind, group, code = parts.kind, parts.group, parts.functions
    left = np.where(kind == NONE, 0, parts.size)
    np.subtract.at(left, code.section, code.size)

    rest, signature_rest = np.zeros(COLUMNS, np.int64), np.zeros((len(parts.signatures), COLUMNS), np.int64)
    eh_frame, except_table = _share_frames(parts, left, rest, signature_rest)
    rodata = except_table.copy()
    for index, function in parts.tables:
        rodata[function] += left[index]
        left[index] = 0

    text = code.size
    if isinstance(file, ElfObject):
        text = text - file.relaxed_bytes(code)
        # Both are of links with -flto, which are read for ELF alone.
        if folds:
            alike = file.number_alike(code, except_table)
            text, rodata, eh_frame = share_folded_bytes([text, rodata, eh_frame], alike)
        if image:
            stubs, tables_read = file.dynamic_bytes(code, image)
            text, rodata = text + stubs, rodata + tables_read

    column = kind - TEXT
    counted = (column >= 0) & (column < COLUMNS)
    grouped = counted & (group >= 0)
    np.add.at(signature_rest, (group[grouped], column[grouped]), left[grouped])
    np.add.at(rest, column[counted & (group < 0)], left[counted & (group < 0)])
    written = (group >= 0) & ((kind == DATA) | (kind == BSS))
    signature_data = np.zeros(len(parts.signatures), np.int64)
    np.add.at(signature_data, group[written], left[written])
    # Objects of a project have most of their names in common.
    return ObjectSizes(
        totals=file.totals(),
        function_names=tuple(map(sys.intern, code.names)),
        function_text=text,
        function_rodata=rodata,
        function_except_table=except_table,
        function_eh_frame=eh_frame,
        function_signature=group[code.section],
        signatures=tuple(map(sys.intern, parts.signatures)),
        signature_rest=signature_rest,
        signature_data=signature_data,
        rest=rest,
        references=file.references(parts) if references else None,
    )


def _share_frames(parts: Parts, left: Ints, rest: Ints, signature_rest: Ints) -> tuple[Ints, Ints]:
    """Bytes of unwind and of exception tables by function [F].

    They are taken from the bytes of the sections, ``left`` [N]; those of no function are added to ``signature_rest``
    [S, 3] or to ``rest`` [3].
    """
    frames, group, count = parts.frames, parts.group, len(parts.functions.names)
    eh_frame, except_table = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.subtract.at(left, frames.table, frames.size)
    owned = frames.function >= 0
    np.add.at(eh_frame, frames.function[owned], frames.size[owned])
    owner = np.where(frames.section >= 0, group[frames.section], -1)
    grouped = ~owned & (owner >= 0)
    np.add.at(signature_rest[:, 2], owner[grouped], frames.size[grouped])
    rest[2] += int(frames.size[~owned & ~grouped].sum())
    table_size = extents(parts.size, frames.table_section, frames.table_begin)
    described = table_size > 0
    np.add.at(except_table, frames.function[described], table_size[described])
    np.subtract.at(left, frames.table_section[described], table_size[described])
    return eh_frame, except_table


def folded_functions(data: bytes | Path) -> dict[str, int]:
    """Number the functions of an ELF object, by name; functions that a linker folds have the same number."""
    file = read_elf_object(data)
    parts = file.parts()
    unowned = np.zeros((len(parts.signatures), COLUMNS), np.int64)
    _, except_table = _share_frames(parts, parts.size.copy(), np.zeros(COLUMNS, np.int64), unowned)
    names = parts.functions.names
    return dict(zip(names, file.number_alike(parts.functions, except_table).tolist(), strict=True))


def link_weights(objects: Iterable[ObjectSizes]) -> dict[str, int]:
    """For each COMDAT signature, the number k of a project's baseline objects that define it."""
    weights: dict[str, int] = {}
    for sizes in objects:
        for signature in set(sizes.signatures):
            weights[signature] = weights.get(signature, 0) + 1
    return weights


def size_score(sizes: ObjectSizes, weights: Mapping[str, int], *, objective: Objective = Objective.LINK_AWARE) -> float:
    """Score an object by an objective; a signature that is not in ``weights`` counts fully."""
    scores, rest = _weigh(sizes, weights, objective)
    return float(scores.sum()) + rest


def function_scores(
    sizes: ObjectSizes, weights: Mapping[str, int], *, objective: Objective = Objective.LINK_AWARE
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], float]:
    """Divide an object's score among its functions: names [F], scores [F], and the score of all other bytes."""
    return sizes.function_names, *_weigh(sizes, weights, objective)


def project_image_estimate(objects: Iterable[ObjectSizes], *, objective: Objective = Objective.LINK_AWARE) -> float:
    """Bytes of all objects with every COMDAT signature counted once, by its first definition.

    Unreferenced sections are not removed. ``OBJECT_TEXT`` merges nothing, and gives the sum over the objects.
    """
    seen: set[str] = set()
    total = 0.0
    for sizes in objects:
        unknown = dict.fromkeys(sizes.signatures, 1)
        total += size_score(sizes, unknown, objective=objective)
        if objective is not Objective.OBJECT_TEXT:
            duplicate = np.array([signature in seen for signature in sizes.signatures], bool)
            total -= float(sizes.signature_rest[duplicate][:, : columns_of(objective)].sum())
            inside = np.append(duplicate, False)[sizes.function_signature]
            total -= float(sizes.scores_of_functions(objective)[inside].sum())
            seen.update(sizes.signatures)
    return total


def columns_of(objective: Objective) -> int:
    """The number of columns of text, rodata and eh_frame that count."""
    return 1 if objective is Objective.LINK_AWARE_TEXT else COLUMNS


def _weigh(
    sizes: ObjectSizes, weights: Mapping[str, int], objective: Objective
) -> tuple[npt.NDArray[np.float64], float]:
    """Scores of the functions [F], and the score of everything else."""
    columns = columns_of(objective)
    functions = sizes.scores_of_functions(objective)
    groups = sizes.signature_rest[:, :columns].sum(axis=1)
    rest = float(sizes.rest[:columns].sum())
    if objective is Objective.OBJECT_TEXT:
        return functions, rest + float(groups.sum())
    share = np.array([1.0 / weights.get(signature, 1) for signature in sizes.signatures] + [1.0])
    return functions * share[sizes.function_signature], rest + float(groups @ share[:-1])


def share_folded_bytes(columns: Sequence[Ints], alike: Ints) -> list[Ints]:
    """Divide the bytes [F] of functions that are folded into one among these functions.

    Example:
        >>> share_folded_bytes([np.array([7, 5, 7])], np.array([0, 1, 0]))[0].tolist()
        [4, 5, 3]
    """
    _, group, count = np.unique(alike, return_inverse=True, return_counts=True)
    rank = np.empty(len(alike), np.int64)
    rank[np.argsort(group, kind="stable")] = np.arange(len(alike)) - np.repeat(np.cumsum(count) - count, count)
    many = count[group]
    # The bytes of a group are those of the first: of the others the tables may differ, and go with them.
    first = np.unique(group, return_index=True)[1][group]
    return [column[first] // many + (rank < column[first] % many) for column in columns]

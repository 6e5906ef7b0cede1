"""The check of reused results: a sample of them is compiled again and compared."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.errors import StaleError
from mlgokit.traces import render_log

SHARE = 0.01
"""Default share of cached results that are compiled again."""
_LONGEST = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Which cached results are compiled again.

    Attributes:
        share: fraction of results, from 0 to 1.
        seed: random seed; the choice does not depend on the order of threads.
    """

    share: float
    seed: int

    def draws(self, key: str) -> bool:
        """Whether the result with a key is compiled again, drawn by a hash of the key."""
        if not 0 < self.share < 1:
            return self.share >= 1
        number = int.from_bytes(hashlib.sha256(f"{self.seed} {key}".encode()).digest()[:8], "big")
        return number < self.share * 2**64


NO_RECHECK = Recheck(share=0.0, seed=0)


def difference(recalled: Compilation, made: Compilation) -> str:
    """Describe how a cached result (recalled) differs from a fresh one (made) of one compilation; empty if it does not.

    Compilers that were killed are not compared, nor are messages and times.
    """
    if made.was_ended:
        return ""
    if recalled.status is not made.status:
        return f"status: {recalled.status.value} recalled, {made.status.value} made"
    if recalled.decision_count != made.decision_count:
        return f"decisions: {recalled.decision_count} recalled, {made.decision_count} made"
    both = recalled.logs.keys() & made.logs.keys()
    if other := next((name for name in both if render_log(recalled.logs[name]) != render_log(made.logs[name])), ""):
        return f"the log of {other}"
    parts = "sizes", "decisions", "regalloc", "changes"
    return next(filter(None, (_differing_part(name, recalled, made) for name in parts)), "")


def _differing_part(name: str, recalled: Compilation, made: Compilation) -> str:
    """Describe how one field of two compilations differs; empty if it does not."""
    stored, remade = getattr(recalled, name), getattr(made, name)
    if stored is None or remade is None:
        return "" if stored is remade else f"{name}: {'made' if stored is None else 'recalled'} only"
    if isinstance(stored, ObjectSizes) and isinstance(remade, ObjectSizes):
        stored, remade = _sort_by_name(stored), _sort_by_name(remade)
    mismatch = _first_difference(stored, remade)
    return f"{name}: {mismatch}" if mismatch else ""


def stale_error(module: str, mismatch: str, *, memory: str, key: Mapping[str, object], remedy: str) -> StaleError:
    """Make the error for a recalled result that differs from a fresh compilation.

    Args:
        module: name of the module.
        mismatch: the difference, from :func:`difference`.
        memory: name of the cache that gave the result.
        key: fields of the cache key.
        remedy: what the user can do about it.
    """
    had = "; ".join(f"{name} {_short(value)}" for name, value in key.items())
    return StaleError(
        f"{module}: the compiler's result differs from what {memory} gave ({mismatch}), so the cache key "
        f"({had}) lacks something that affects the result; {remedy}"
    )


def _short(value: object) -> str:
    """Show a value as text, cut off if it is long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]}... ({len(text)} characters)"


def _first_difference(stored: object, remade: object) -> str:
    """Describe the first field that differs, by its sums if it is an array; empty if none does."""
    for field_ in dataclasses.fields(stored):  # pyright: ignore[reportArgumentType]
        before: Any = getattr(stored, field_.name)
        after: Any = getattr(remade, field_.name)
        if before is None or after is None:
            # Compilations that explored are stored without the keys of call sites.
            continue
        if isinstance(before, np.ndarray):
            was, now = cast("npt.NDArray[Any]", before), cast("npt.NDArray[Any]", after)
            if not np.array_equal(was, now, equal_nan=was.dtype.kind == "f"):
                return f"{field_.name} (sum {was.sum()} recalled, {now.sum()} made)"
        elif before != after:
            return f"{field_.name} ({_short(str(before))} recalled, {_short(str(after))} made)"
    return ""


def _sort_by_name(sizes: ObjectSizes) -> ObjectSizes:
    """Sort functions and signatures by name, since reused functions are at the end of an object's list."""
    ranks = sorted(range(len(sizes.signatures)), key=sizes.signatures.__getitem__)
    # What is in no group has the index -1, which is the last one here.
    renamed = np.full(len(ranks) + 1, -1, np.int64)
    renamed[ranks] = np.arange(len(ranks))
    signature = renamed[sizes.function_signature]
    columns = (sizes.function_text, sizes.function_rodata, sizes.function_except_table, sizes.function_eh_frame)
    numbers: list[list[int]] = np.stack([signature, *columns], axis=1).tolist()
    # Local functions may share a name.
    rows = list(zip(sizes.function_names, numbers, strict=True))
    order = sorted(range(len(rows)), key=rows.__getitem__)
    text, rodata, except_table, eh_frame = (column[order] for column in columns)
    return dataclasses.replace(
        sizes,
        function_names=tuple(sizes.function_names[index] for index in order),
        function_text=text,
        function_rodata=rodata,
        function_except_table=except_table,
        function_eh_frame=eh_frame,
        function_signature=signature[order],
        signatures=tuple(sizes.signatures[index] for index in ranks),
        signature_rest=sizes.signature_rest[ranks],
        signature_data=sizes.signature_data[ranks],
        references=None,
    )

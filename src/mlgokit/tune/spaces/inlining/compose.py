"""What a module's build would be with some of the flips of an explored one, without compiling it.

Flips that cannot change the same function do not meet. So with those of some components only, a function is as in the
explored build where these components reach it, and as in the base where the others do. ``docs/scores.md`` says what
that misses; the search compiles what it keeps.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import function_ids
from mlgokit.compiler.compilation import Compilation, InlineDecisions
from mlgokit.compiler.objects.measure import ObjectSizes, SectionTotals

Ints = npt.NDArray[np.int64]

_FUNCTION_COLUMNS = ("function_text", "function_rodata", "function_except_table", "function_eh_frame")


def compose(base: Compilation, explored: Compilation, as_before: Ints) -> Compilation:
    """The build whose functions are those of the explored one, but for some that are as in the base.

    A decision is taken from where its caller is. Bytes that no function owns and no group of one are those of the base.

    Args:
        base: of the module, with decisions.
        explored: the same with some of them flipped.
        as_before: ids of the functions that are as in the base.
    """
    first, second = base.decisions, explored.decisions
    old, new = np.isin(first.caller, as_before), ~np.isin(second.caller, as_before)
    places = np.flatnonzero(old), np.flatnonzero(new)
    values = np.concatenate([first.values_at(places[0]), second.values_at(places[1])])

    def both(column: str) -> Any:
        return np.concatenate([getattr(first, column)[old], getattr(second, column)[new]])

    return dataclasses.replace(
        explored,
        sizes=_sizes(base.measured, explored.measured, as_before),
        decisions=InlineDecisions(
            caller=both("caller"),
            callee=both("callee"),
            inlined=both("inlined"),
            flipped=both("flipped"),
            site=both("sites"),
            names=first.names,
            rows=np.arange(len(values)),
            values=values,
        ),
    )


def _sizes(base: ObjectSizes, explored: ObjectSizes, as_before: Ints) -> ObjectSizes:
    old = np.isin(function_ids(base.function_names), as_before)
    new = ~np.isin(function_ids(explored.function_names), as_before)
    functions = {
        name: np.concatenate([getattr(base, name)[old], getattr(explored, name)[new]]) for name in _FUNCTION_COLUMNS
    }
    owners = [*_owners(base, old), *_owners(explored, new)]
    # A group of functions comes and goes with them; one of data, such as a vtable, is taken from the base.
    data = set(base.signatures) - set(_owners(base, np.ones(len(old), bool)))
    signatures = tuple(dict.fromkeys((*(owner for owner in owners if owner), *sorted(data))))
    places = {signature: place for place, signature in enumerate(signatures)} | {"": -1}
    there = {signature: (one, place) for one in (explored, base) for place, signature in enumerate(one.signatures)}
    where = [there[signature] for signature in signatures]
    rest = np.array([one.signature_rest[place] for one, place in where], np.int64).reshape(-1, 3)
    written = np.array([one.signature_data[place] for one, place in where], np.int64)
    sums = [int(functions[name].sum()) for name in ("function_text", "function_rodata", "function_eh_frame")]
    text, rodata, eh_frame = (np.array(sums) + rest.sum(axis=0) + base.rest).tolist()
    return ObjectSizes(
        totals=SectionTotals(
            text=text,
            rodata=rodata,
            eh_frame=eh_frame,
            data=base.totals.data,
            bss=base.totals.bss,
            except_table=int(functions["function_except_table"].sum()),
        ),
        function_names=(*_chosen(base.function_names, old), *_chosen(explored.function_names, new)),
        **functions,
        function_signature=np.array([places[owner] for owner in owners], np.int64),
        signatures=signatures,
        signature_rest=rest,
        signature_data=written,
        rest=base.rest,
    )


def _chosen(names: tuple[str, ...], which: npt.NDArray[np.bool_]) -> list[str]:
    return [names[place] for place in np.flatnonzero(which).tolist()]


def _owners(sizes: ObjectSizes, which: npt.NDArray[np.bool_]) -> list[str]:
    """The signatures of some functions; empty outside of groups."""
    signatures = (*sizes.signatures, "")
    return [signatures[index] for index in sizes.function_signature[which].tolist()]

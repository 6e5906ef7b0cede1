"""Functions compared in two verified builds: which of them cost more, or are larger, with a table than without."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.lto import folds_code
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, folded_functions
from mlgokit.compiler.objects.object_file import is_outlined
from mlgokit.module import Module
from mlgokit.traces.function_id import function_id
from mlgokit.tune.verify import VerifiedBuild, grew


def keys_of(keys: Iterable[Mapping[str, int]], functions: Collection[int]) -> set[int]:
    """Select the keys of functions by the ids of their names, of modules whose functions have ``keys`` by name."""
    return {key for by_name in keys for name, key in by_name.items() if function_id(name) in functions}


def scores_of(done: Compilation) -> dict[str, float]:
    """Costs of spills, reloads and copies, by function with costs."""
    costs = done.regalloc
    return {} if costs is None else dict(zip(costs.functions, costs.scores.tolist(), strict=True))


def dearer_functions(
    keys: Mapping[str, int], chosen: set[int], before: Compilation, after: Compilation
) -> tuple[set[int], str]:
    """Keys of a module's functions that cost more with the table, or of all if one without an entry changed; and why.

    Args:
        keys: table keys of the module's functions, by name.
        chosen: keys that the table has.
        before: the module compiled without the table.
        after: the module compiled with the table.
    """
    known = scores_of(before)
    worse = {keys[name] for name, score in scores_of(after).items() if name in keys and score > known.get(name, 0.0)}
    if worse - chosen:
        return chosen, "a function changed that has no entry in the table"
    return worse, f"{len(worse)} of its functions cost more with the result"


def folded_in(module: Module, build: VerifiedBuild) -> dict[str, int]:
    """Number the functions of a module, by name; those that its linker folds into one have the same number.

    Empty if the linker folds nothing.
    """
    return folded_functions(build.objects[module.name]) if folds_code(module) else {}


def larger_functions(
    keys: Mapping[str, int],
    chosen: set[int],
    first: ObjectSizes,
    second: ObjectSizes,
    *,
    text_only: bool,
    folded: Mapping[str, int] | None = None,
) -> set[int]:
    """Keys of a module's functions that are larger with the table, or of all if it cannot be told which.

    Functions that the linker folds into one count together: with the table they may be alike no longer.

    Args:
        keys: table keys of the module's functions, by name.
        chosen: keys that the table has.
        first: sizes of the object without the table.
        second: sizes of the object with the table.
        text_only: whether only code counts.
        folded: numbers of the functions in the first object, as of :func:`folded_in`; empty if none are folded.
    """
    groups = _groups(first, second, folded or {})
    code, larger = (_larger(groups, first, second, text_only=each) for each in (True, text_only))

    def chosen_of(groups: Iterable[Sequence[str]]) -> set[int]:
        return {keys[name] for group in groups for name in group if keys.get(name) in chosen}

    worse, is_larger = chosen_of(larger), _total(second, text_only=text_only) > _total(first, text_only=text_only)
    if _is_outlined(first) or _is_outlined(second):
        # Code moves between functions, so functions without an entry may grow.
        return (worse or chosen) if is_larger else set()
    if not all(chosen_of([group]) for group in code):
        # Two functions are folded only as long as the functions that they call are.
        return (worse | chosen_of(group for group in groups if len(group) > 1)) or chosen
    # The padding at the end of unwind tables belongs to the last function, which may be unchanged.
    return worse or (chosen if is_larger else set())


def slower_functions(keys: Mapping[str, int], chosen: set[int], first: ObjectSizes, second: ObjectSizes) -> set[int]:
    """Keys of a module's functions whose bytes and executed instructions together are worth more with the table.

    Arguments are those of :func:`larger_functions`.
    """

    def scores(one: ObjectSizes) -> dict[str, float]:
        return dict(zip(one.function_names, one.scores_of_functions(Objective.EXECUTED).tolist(), strict=True))

    before, after = scores(first), scores(second)
    return {keys[name] for name in after if keys.get(name) in chosen and after[name] > before.get(name, 0.0)}


def grown_functions(first: ObjectSizes, second: ObjectSizes, *, text_only: bool, folded: Mapping[str, int]) -> set[str]:
    """Functions of a module that are larger in its second object; arguments as for :func:`larger_functions`."""
    groups = _larger(_groups(first, second, folded), first, second, text_only=text_only)
    return {name for group in groups for name in group}


def objection_in_bytes(before: VerifiedBuild, after: VerifiedBuild, objective: Objective) -> str:
    """Why the whole project is not smaller, by the link, the account or the user's own measure; empty if it is by all.

    Functions of the same code that a link would fold may be allocated differently.
    """
    larger = after.total_bytes(objective) > before.total_bytes(objective)
    # Fewer instructions may take more bytes; the user's own programs are weighed at the end.
    larger |= objective is not Objective.EXECUTED and grew(before.link, after.link)
    if after.judged is not None and before.judged is not None:
        first, second = before.judged.after, after.judged.after
        larger |= (first is not None and second is not None and second > first) or not after.judged.is_no_worse
    return "the whole was not smaller with it" if larger else ""


def _is_outlined(sizes: ObjectSizes) -> bool:
    """Whether LLVM outlined code that functions have in common."""
    return any(map(is_outlined, sizes.function_names))


def _groups(first: ObjectSizes, second: ObjectSizes, folded: Mapping[str, int]) -> list[list[str]]:
    """Group the functions of both objects; those that are folded into one in the first object are one group."""
    groups: dict[int | str, list[str]] = {}
    for name in dict.fromkeys((*first.function_names, *second.function_names)):
        groups.setdefault(folded.get(name, name), []).append(name)
    return list(groups.values())


def _larger(
    groups: Sequence[Sequence[str]], first: ObjectSizes, second: ObjectSizes, *, text_only: bool
) -> list[Sequence[str]]:
    """Groups of functions that are larger in the second object."""

    def sizes_of(one: ObjectSizes) -> dict[str, int]:
        sizes = one.function_text if text_only else one.function_bytes.sum(axis=1)
        return dict(zip(one.function_names, sizes.tolist(), strict=True))

    before, after = sizes_of(first), sizes_of(second)
    return [
        group
        for group in groups
        if sum(after.get(name, 0) for name in group) > sum(before.get(name, 0) for name in group)
    ]


def _total(one: ObjectSizes, *, text_only: bool) -> int:
    """The bytes of an object that count: code alone, or all of llvm-size's text."""
    columns = 1 if text_only else None
    parts = (one.function_bytes, one.signature_rest, one.rest[np.newaxis])
    return int(sum(part[:, :columns].sum() for part in parts))

"""What the objects of two verified builds say of a search function by function."""

from collections.abc import Mapping

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.tune.verify import VerifiedBuild, grew


def scores_of(found: Compilation) -> dict[str, float]:
    """What spills, reloads and copies cost, by function with costs."""
    costs = found.regalloc
    return {} if costs is None else dict(zip(costs.functions, costs.scores.tolist(), strict=True))


def dearer_functions(
    keys: Mapping[str, int], chosen: set[int], before: Compilation, after: Compilation
) -> tuple[set[int], str]:
    """Functions of a module that cost more with the table, or all if one changed that is not in it; and why.

    Args:
        keys: of the module's functions, by name.
        chosen: those that the table has.
        before: the module compiled without the table.
        after: with it.
    """
    known = scores_of(before)
    worse = {keys[name] for name, score in scores_of(after).items() if name in keys and score > known.get(name, 0.0)}
    if worse - chosen:
        return chosen, "a function changed that was to stay plain"
    return worse, f"{len(worse)} of its functions cost more with the result"


def larger_functions(
    keys: Mapping[str, int], chosen: set[int], first: ObjectSizes, second: ObjectSizes, *, text_only: bool
) -> set[int]:
    """Functions of a module that are larger with the table, or all if that cannot be told.

    Args:
        keys: of the module's functions, by name.
        chosen: those that the table has.
        first: the object without the table.
        second: with it.
        text_only: count code alone.
    """
    totals = [one.totals.text if text_only else one.totals.llvm_size_text for one in (first, second)]
    code, larger = (_larger(first, second, text_only=each) for each in (True, text_only))
    worse = {keys[function] for function in larger if keys.get(function) in chosen}
    if _is_outlined(first) or _is_outlined(second):
        # Code moves between functions: those that nobody touched may grow.
        return (worse or chosen) if totals[1] > totals[0] else set()
    if any(keys.get(function) not in chosen for function in code):
        return chosen
    # The filling at the end of unwind tables belongs to the last function, which may have stayed as it was.
    return worse or (chosen if totals[1] > totals[0] else set())


def objection_in_bytes(before: VerifiedBuild, after: VerifiedBuild, objective: Objective) -> str:
    """Why the whole is not better: the link, the account or the user's own measure says so; empty if none does.

    Functions of the same code that a link would fold may be allocated differently.
    """
    larger = grew(before.link, after.link) or after.total_bytes(objective) > before.total_bytes(objective)
    if after.judged is not None and before.judged is not None:
        first, second = before.judged.after, after.judged.after
        larger |= (first is not None and second is not None and second > first) or not after.judged.is_no_worse
    return "the whole was not smaller with it" if larger else ""


def _is_outlined(sizes: ObjectSizes) -> bool:
    """Whether LLVM made functions of code that several have (``llvm/lib/CodeGen/MachineOutliner.cpp``)."""
    return any(name.startswith("OUTLINED_FUNCTION_") for name in sizes.function_names)


def _larger(first: ObjectSizes, second: ObjectSizes, *, text_only: bool) -> set[str]:
    """Functions that are larger in the second object."""

    def sizes_of(one: ObjectSizes) -> dict[str, int]:
        found = one.function_text if text_only else one.function_bytes.sum(axis=1)
        return dict(zip(one.function_names, found.tolist(), strict=True))

    before = sizes_of(first)
    return {name for name, size in sizes_of(second).items() if size > before.get(name, 0)}

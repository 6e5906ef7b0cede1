"""Compares the modules, functions, images and costs of register allocation of two builds, as rows of an evaluation."""

from collections.abc import Mapping, Sequence

import numpy as np

from mlgokit.builds.images import LINKED, FunctionBytes, WeighedImage
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import ObjectSizes, size_score
from mlgokit.compiler.regalloc_cost import COUNTS, OFFSET, RegallocCosts, align_scores
from mlgokit.evaluation.records import (
    BITCODE,
    OK,
    BuiltModule,
    CostComparison,
    FunctionComparison,
    ImageComparison,
    ModuleComparison,
)


def built_module(done: Compilation | None, weights: Mapping[str, int], *, plugin: bool) -> BuiltModule:
    """Make one build's half of a module's row; ``weights`` count the baseline's modules that define each COMDAT."""
    if done is None:
        return BuiltModule(status="absent", reason="this build made no such object", plugin=plugin)
    if done.status is not CompileStatus.OK:
        return BuiltModule(
            status=done.status.name.lower(), reason=done.reason, plugin=plugin, user_seconds=done.user_seconds
        )
    if done.sizes is None:
        return BuiltModule(status=BITCODE, plugin=plugin, user_seconds=done.user_seconds)
    totals = done.sizes.totals
    return BuiltModule(
        status=OK,
        plugin=plugin,
        objects=totals.llvm_size_text,
        text=totals.text,
        rodata=totals.rodata,
        eh_frame=totals.eh_frame,
        data=totals.data,
        link_aware=size_score(done.sizes, weights),
        user_seconds=done.user_seconds,
    )


def compare_module(
    name: str,
    builds: tuple[Compilation | None, Compilation | None],
    weights: Mapping[str, int],
    plugins: tuple[bool, bool] = (False, False),
) -> ModuleComparison:
    """Compare a module of two builds, with the functions that differ; ``None`` for a build that made no such object.

    ``weights`` are those of :func:`built_module`, and ``plugins`` says whether the compilers had the plugin.
    """
    before, after = (_function_sizes(done) for done in builds)
    measured = [done.sizes for done in builds if done is not None and done.sizes is not None]
    comdat = {one for sizes in measured for one in _comdat_functions(sizes)}
    first, second = builds
    return ModuleComparison(
        module=name,
        before=built_module(first, weights, plugin=plugins[0]),
        after=built_module(second, weights, plugin=plugins[1]),
        functions=len(before.keys() | after.keys()),
        # Where one side has no object, nothing is known of its functions.
        differing=differing_functions(before, after, comdat) if len(measured) == len(builds) else (),
    )


def differing_functions(
    before: Mapping[str, FunctionBytes], after: Mapping[str, FunctionBytes], comdat: set[str]
) -> tuple[FunctionComparison, ...]:
    """List the functions whose bytes or costs differ, those that grew most first; ``comdat`` names those in COMDATs."""
    found = [
        FunctionComparison(function=name, before=before.get(name), after=after.get(name), comdat=name in comdat)
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]
    return tuple(sorted(found, key=lambda one: (-one.growth, one.function)))


def compare_costs(
    pairs: Sequence[tuple[RegallocCosts | None, RegallocCosts | None]], *, unread: str = ""
) -> CostComparison | None:
    """Compare the costs of register allocation of a project's functions; ``None`` if costs were not asked for.

    Each function is compared with itself, since LLVM's block frequencies are relative to the function's entry.
    ``unread`` says why costs of some functions are missing.
    """
    known = [(first, second) for first, second in pairs if first is not None and second is not None]
    if not known:
        nothing = CostComparison(
            functions=0, change=0.0, cheaper=0, dearer=0, counts_before={}, counts_after={}, unread=unread
        )
        return nothing if unread else None
    scores = [align_scores(*pair)[1:] for pair in known]
    before, after = (np.concatenate([one[side] for one in scores]) for side in (0, 1))
    logs = np.log((after + OFFSET) / (before + OFFSET))
    counts = [sum(pair[side].counts.sum(axis=0) for pair in known) for side in (0, 1)]
    return CostComparison(
        functions=len(logs),
        change=float(np.expm1(logs.mean())) if len(logs) else 0.0,
        cheaper=int((after < before).sum()),
        dearer=int((after > before).sum()),
        counts_before=dict(zip(COUNTS, np.atleast_1d(counts[0]).tolist(), strict=True)),
        counts_after=dict(zip(COUNTS, np.atleast_1d(counts[1]).tolist(), strict=True)),
        unread=unread,
    )


def _function_sizes(done: Compilation | None) -> dict[str, FunctionBytes]:
    """Sum the sizes of functions by name, and add their costs; local functions may have equal names."""
    if done is None or done.sizes is None:
        return {}
    costs = None
    if done.regalloc is not None:
        costs = dict(zip(done.regalloc.functions, done.regalloc.scores.tolist(), strict=True))
    sums: dict[str, list[int]] = {}
    for name, row in zip(done.sizes.function_names, done.sizes.function_bytes.tolist(), strict=True):
        known = sums.setdefault(name, [0, 0, 0])
        for column, count in enumerate(row):
            known[column] += count
    return {
        name: FunctionBytes(
            text=row[0], rodata=row[1], eh_frame=row[2], cost=None if costs is None else costs.get(name, 0.0)
        )
        for name, row in sums.items()
    }


def _comdat_functions(sizes: ObjectSizes) -> list[str]:
    return [sizes.function_names[index] for index in np.flatnonzero(sizes.function_signature >= 0).tolist()]


def compare_image(name: str, before: WeighedImage, after: WeighedImage) -> ImageComparison:
    """Compare an image of two builds, with the functions that differ; a stripped image has none."""
    both = before.row.status == after.row.status == LINKED
    return ImageComparison(
        image=name,
        before=before.row,
        after=after.row,
        functions=len(before.functions.keys() | after.functions.keys()),
        differing=differing_functions(before.functions, after.functions, set()) if both else (),
    )


def link_costs(before: WeighedImage, after: WeighedImage) -> list[tuple[RegallocCosts | None, RegallocCosts | None]]:
    """Pair the costs of two link-time optimizations by part; empty if the costs of a part are missing on one side."""
    if before.costs.keys() != after.costs.keys():
        return []
    return [(costs, after.costs[part]) for part, costs in before.costs.items()]

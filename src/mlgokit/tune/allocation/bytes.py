"""Bytes that register allocation saves, beside the inlining of a tuning: search, proof, and one plugin with both.

Spills, copies and callee-saved registers are code, and LLVM weighs them by how often they are executed, for size too.
Each trial emits its function and counts bytes (``plugin/regalloc/Trials.cpp``); the proof is the objects.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.reuse.trials import CODE_BYTES, IMAGE_BYTES, Overrides
from mlgokit.progress import Report
from mlgokit.tables.allocations import write_allocations
from mlgokit.tables.decisions import renew_summary
from mlgokit.tune.allocation.loop import AllocationSearch, open_allocation_search
from mlgokit.tune.allocation.proof import promise_of
from mlgokit.tune.allocation.search import AllocationBench
from mlgokit.tune.allocation.state import ModuleSearch
from mlgokit.tune.measurement import Comparison
from mlgokit.tune.project import Search
from mlgokit.tune.proof import (
    ALLOCATED,
    DECIDED,
    PLAIN,
    VerifiedBuild,
    Verifier,
    compile_all,
    grew,
    judge_proof,
    link_proof,
    total_bytes,
)
from mlgokit.tune.result import AllocatedBytes, Tuned

FOLDER = "allocation"
"""Where this search is kept, in that of the tuning."""
_LEAST = 0.5
"""Bytes: costs decide among allocations of one size, and have no part in this."""


def open_allocation(
    search: Search, tuned: Tuned, *, start: Mapping[int, Overrides], workers: int, report: Report
) -> AllocationSearch:
    """Begin with the functions as the decisions of ``tuned`` make them, or go on from what is known of them.

    Args:
        search: the tuning, whose decisions are chosen.
        tuned: its proof.
        start: by function, what an earlier plugin does otherwise than LLVM; tried first.
        workers: compilers that run at once.
        report: told after every module.
    """
    text_only = search.config.objective is Objective.LINK_AWARE_TEXT
    bench = AllocationBench(
        toolchain=search.bench.toolchain,
        plugin=search.bench.plugin,
        decisions=Path(tuned.table).resolve(),
        weights=CODE_BYTES if text_only else IMAGE_BYTES,
        timeout_seconds=search.bench.timeout_seconds,
    )
    return open_allocation_search(
        [one.module for one in search.modules.values()],
        bench=bench,
        folder=search.folder / FOLDER,
        start=start,
        seed=search.config.seed,
        workers=workers,
        report=report,
    )


def finish_bytes(proving: Verifier, tuned: Tuned, found: AllocationSearch) -> Tuned:
    """Put the allocations into the plugin of ``tuned`` as well, and compile everything with it once more.

    A function that is then larger than by the decisions alone is put back, and all functions of a module that is; so
    the result is no larger than ``tuned`` in any module.

    Args:
        proving: what :func:`mlgokit.tune.result.finish` has compiled.
        tuned: what it said.
        found: the search for allocations.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    search = proving.search
    functions = [one for module in found.modules for one in module.functions]
    chosen = {one.key: one.departures for one in functions if one.score < one.plain - _LEAST and len(one.departures)}
    # What an earlier plugin does, and there was no time to try, is for the proof to judge.
    chosen |= {one.key: one.start for one in functions if one.start is not None and len(one.start) and not one.trials}
    wanted, output = len(chosen), Path(tuned.plugin)
    kinds = proving.inside(Path(tuned.table))
    table = found.folder / "allocations"
    both = kinds | {"allocations": table}
    plain, before = proving.proofs[PLAIN], proving.proofs[DECIDED]
    after, link, judged = before, tuned.tuned_link, tuned.judged
    while chosen:
        write_allocations(table, chosen, promise_of(found, chosen))
        link_policies(search.bench.toolchain, both, output)
        after = compile_all(proving, ALLOCATED, output)
        wrong = {key for module in found.modules for key in _wrong(module, before, after, chosen, search)}
        if not wrong:
            link = link_proof(proving, ALLOCATED)
            judged = judge_proof(proving, ALLOCATED, any_changed=True)
            larger = grew(tuned.tuned_link, link) or total_bytes(search, after) > tuned.tuned_bytes
            if not larger and not _is_worse(judged, tuned.judged):
                break
            wrong = set(chosen)
        chosen = {key: departures for key, departures in chosen.items() if key not in wrong}
    else:
        after, link, judged = before, tuned.tuned_link, tuned.judged
        link_policies(search.bench.toolchain, kinds, output)
    by_module = {one.module.name: sum(key in chosen for key in one.keys.values()) for one in found.modules}
    rows = tuple(
        dataclasses.replace(
            row,
            tuned_bytes=search.account.module_bytes(row.name, after.sizes[row.name]),
            plain=row.plain and plain.objects[row.name].read_bytes() == after.objects[row.name].read_bytes(),
            allocated=by_module.get(row.name, 0),
        )
        if row.name in after.sizes
        else row
        for row in tuned.modules
    )
    whole = total_bytes(search, after)
    if chosen and renew_summary(Path(tuned.table), whole):
        link_policies(search.bench.toolchain, both, output)
    allocated = AllocatedBytes(
        functions=sum(bool(one.trials) for one in functions),
        changed=len(chosen),
        before_bytes=tuned.tuned_bytes,
        after_bytes=whole,
        put_back=wanted - len(chosen),
        user_seconds=found.spent.user_seconds,
        compilations=found.spent.compilations,
        trials=found.spent.trials,
    )
    return dataclasses.replace(
        tuned,
        tuned_bytes=whole,
        tuned_link=link,
        judged=judged,
        modules=rows,
        user_seconds=tuned.user_seconds + found.spent.user_seconds,
        compilations=tuned.compilations + found.spent.compilations,
        allocated=allocated,
    )


def _is_worse(judged: Comparison | None, before: Comparison | None) -> bool:
    """Whether the user's own link is larger than plain, or than by the decisions alone.

    Functions of the same code that a link would fold may be allocated differently.
    """
    if judged is None or before is None:
        return False
    grew = judged.after is not None and before.after is not None and judged.after > before.after
    return grew or not judged.is_no_worse


def _wrong(
    module: ModuleSearch, before: VerifiedBuild, after: VerifiedBuild, chosen: Mapping[int, Overrides], search: Search
) -> set[int]:
    """Functions of a module that are to be put back."""
    name = module.module.name
    mine = {key for key in module.keys.values() if key in chosen}
    if name not in before.sizes or not mine:
        return set()
    if name not in after.sizes:
        return mine
    text_only = search.config.objective is Objective.LINK_AWARE_TEXT
    first, second = before.sizes[name], after.sizes[name]
    totals = [one.totals.text if text_only else one.totals.llvm_size_text for one in (first, second)]
    code, larger = (_larger(first, second, text_only=each) for each in (True, text_only))
    worse = {module.keys[function] for function in larger if module.keys.get(function) in mine}
    if _is_outlined(first) or _is_outlined(second):
        # Code moves between functions: those that nobody touched may grow.
        return (worse or mine) if totals[1] > totals[0] else set()
    if any(module.keys.get(function) not in mine for function in code):
        return mine
    # The filling at the end of unwind tables belongs to the last function, which may have stayed as it was.
    return worse or (mine if totals[1] > totals[0] else set())


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

"""The policies that come with the package as what a tuning is compared with: free, and never better than its result."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from mlgokit.builds.measurement import Comparison
from mlgokit.builds.variant import policies_by_problem
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.tables.decisions import TuningSummary, write_table
from mlgokit.tune.result import ShippedPolicies, Tuned
from mlgokit.tune.spaces.functions.finish import INLINING_TABLE, with_build
from mlgokit.tune.verify import PLAIN, VerifiedBuild, Verifier, grew

SHIPPED = "builtin:Oz"
"""All policies that come with the package for code that is to be small."""
_TABLE = "shipped.table"


def compare_with_shipped(
    verifier: Verifier, tuned: Tuned, objective: Objective, bytes_of: Callable[[str, ObjectSizes], float]
) -> Tuned:
    """Compile everything with ``builtin:Oz``, and take that for the result if the search is behind it.

    It is behind if the whole or a program of it is larger. What is taken is no larger than the plain build either.

    Args:
        verifier: has verified ``tuned``.
        tuned: the result of the search.
        objective: which bytes count.
        bytes_of: what a module answers for in the project's account with an object of these sizes.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    plain, latest = verifier.plain, verifier.latest
    inside, tables, builds = dict(verifier.inside), dict(verifier.tables), dict(verifier.builds)
    # A plugin that was tuned has a table; without entries it leaves every module to the policies.
    table = verifier.folder / _TABLE
    summary = TuningSummary(
        llvm=verifier.compiler.toolchain.major,
        objective=objective.value,
        plain_bytes=plain.total_bytes(objective),
        tuned_bytes=plain.total_bytes(objective),
        modules=(),
    )
    write_table(table, [], summary)
    policies = {problem: Path(file) for problem, file in policies_by_problem([SHIPPED]).items()}
    verifier.inside = {**policies, INLINING_TABLE: table}
    verifier.link_plugin()
    build = verifier.compile_all("shipped", verifier.plugin)
    compiles = build.sizes.keys() >= plain.sizes.keys()
    if compiles:
        build = verifier.measure("shipped", build, changed=True)
        shipped = ShippedPolicies(name=SHIPPED, bytes=build.total_bytes(objective), judged=build.judged)
        tuned = dataclasses.replace(tuned, shipped=shipped)
        if _has_grown(build, latest, objective) and not _has_grown(plain, build, objective):
            verifier.tables = {table: verifier.search_folder / INLINING_TABLE}
            verifier.builds = {PLAIN: plain, INLINING_TABLE: build}
            return with_build(verifier, _without_decisions(tuned), build, objective, bytes_of)
        if behind := _larger_programs(build.judged, latest.judged):
            note = f"smaller with {SHIPPED} alone, which makes the whole larger: {', '.join(behind)}"
            tuned = dataclasses.replace(tuned, notes=(*tuned.notes, note))
    verifier.inside, verifier.tables, verifier.builds = inside, tables, builds
    verifier.link_again()
    return tuned


def _has_grown(before: VerifiedBuild, after: VerifiedBuild, objective: Objective) -> bool:
    """Whether the whole is larger in the second build: by its programs, or else by the link and the account."""
    first, second = before.judged, after.judged
    if first is not None and second is not None and first.after is not None and second.after is not None:
        return second.after > first.after or (before is not after and bool(second.larger))
    return grew(before.link, after.link) or after.total_bytes(objective) > before.total_bytes(objective)


def _larger_programs(first: Comparison | None, second: Comparison | None) -> list[str]:
    """Programs that are larger in the second of two builds that were measured against plain."""
    if first is None or second is None:
        return []
    sizes = {name: size for name, (_, size) in first.programs.items()}
    return [name for name, (_, size) in second.programs.items() if size > sizes.get(name, size)]


def _without_decisions(tuned: Tuned) -> Tuned:
    """The result as it is if the policies alone decide; its sizes are yet to come."""
    note = f"{SHIPPED} was smaller than what the search found, so the plugin has its policies and no decisions"
    return dataclasses.replace(
        tuned,
        modules=tuple(
            dataclasses.replace(row, plain=True, decisions=0, allocated=0, passes=0, optimizer_passes=0)
            for row in tuned.modules
        ),
        notes=(*tuned.notes, note),
        allocated=None,
        passes=None,
        optimizer_passes=None,
    )

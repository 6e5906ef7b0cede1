"""Register policies inside a tuned plugin: they decide in functions that they make smaller than the search did.

They decide about live ranges as these come, so their decisions are in no table. A function that is smaller by LLVM's
own allocation gets an entry without overrides, which keeps the policies out of it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.tables.overrides import ALLOCATIONS, read_overrides, write_overrides
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.functions.compare import folded_in, grown_functions, objection_in_bytes
from mlgokit.tune.spaces.functions.finish import with_build
from mlgokit.tune.spaces.functions.opening import FunctionSearch
from mlgokit.tune.verify import VerifiedBuild, Verifier

_TABLE = ALLOCATIONS.table
_OBJECTS = "policies"
"""Folder of the objects; the objects before are kept, for the case that these are no smaller."""


def add_policies(
    verifier: Verifier,
    search: FunctionSearch,
    tuned: Tuned,
    bytes_of: Callable[[str, ObjectSizes], float],
    *,
    policies: Mapping[str, Path],
) -> Tuned:
    """Put register policies into the plugin of ``tuned``, if the project is smaller with them.

    A function that they would make larger stays as it was.

    Args:
        verifier: what has verified ``tuned``.
        search: the one for allocations.
        tuned: the result without them.
        bytes_of: what a module answers for in the project's account with an object of these sizes.
        policies: files by problem: priorities, spill weights.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    space, before = search.space, verifier.latest
    inside, tables, builds = dict(verifier.inside), dict(verifier.tables), dict(verifier.builds)
    kept: Mapping[int, Overrides] = read_overrides(ALLOCATIONS, inside[_TABLE]).by_key if _TABLE in inside else {}
    verifier.inside = {kind: path for kind, path in inside.items() if kind != _TABLE} | dict(policies)
    verifier.link_plugin()
    alone = verifier.compile_all(_OBJECTS, verifier.plugin)
    smaller, larger = _grown(search, alone, before), _grown(search, before, alone)
    entries = {key: overrides for key, overrides in kept.items() if key not in smaller}
    entries |= {key: kept.get(key, Overrides()) for key in larger}
    table = verifier.folder / "policies.table"
    space.candidate.write(table, kept)
    summary = read_overrides(ALLOCATIONS, table).summary
    verifier.inside |= {_TABLE: table}
    verifier.tables = {path: target for path, target in tables.items() if path != inside.get(_TABLE)}
    verifier.tables[table] = search.folder / space.candidate.kind
    for last in (False, True):
        write_overrides(ALLOCATIONS, table, entries, summary)
        verifier.link_plugin()
        after = verifier.compile_all(_OBJECTS, verifier.plugin)
        worse = _grown(search, before, after)
        if last or not worse:
            break
        # A function may depend on the registers of another.
        entries |= {key: kept.get(key, Overrides()) for key in worse}
    if after.sizes.keys() == before.sizes.keys():
        after = verifier.measure(_OBJECTS, after, changed=True)
        if _is_smaller(before, after, space.objective):
            verifier.builds[_TABLE] = after
            return _with_policies(search, with_build(verifier, tuned, after, space.objective, bytes_of), entries)
    verifier.inside, verifier.tables, verifier.builds = inside, tables, builds
    verifier.link_again()
    return tuned


def _grown(search: FunctionSearch, first: VerifiedBuild, second: VerifiedBuild) -> set[int]:
    """Keys of the functions that are larger in the second build."""
    text_only = search.space.objective is Objective.LINK_AWARE_TEXT
    grown: set[int] = set()
    for unit in search.space.units:
        before, after = (build.compilations[unit.module.name].sizes for build in (first, second))
        if before is not None and after is not None:
            folded = folded_in(unit.module, first)
            grown |= grown_functions(unit.keys, before, after, text_only=text_only, folded=folded)
    return grown


def _is_smaller(before: VerifiedBuild, after: VerifiedBuild, objective: Objective) -> bool:
    gained = before.total_bytes(objective) - after.total_bytes(objective)
    return gained > 0 and not objection_in_bytes(before, after, objective)


def _with_policies(search: FunctionSearch, tuned: Tuned, entries: Mapping[int, Overrides]) -> Tuned:
    keys = {key for unit in search.space.units for key in unit.keys.values()}
    allocated = tuned.allocated and dataclasses.replace(tuned.allocated, after_bytes=tuned.tuned_bytes)
    note = (
        f"the policies of registers that come with mlgokit are in the plugin; they decide in "
        f"{len(keys - entries.keys()):,} of {len(keys):,} functions, where nothing smaller was found"
    )
    return dataclasses.replace(tuned, allocated=allocated, notes=(*tuned.notes, note))

"""The end of a search function by function: the plugin verified with its table, and the result."""

import dataclasses
from collections.abc import Sequence

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.tables.decisions import renew_summary
from mlgokit.tables.overrides import ALLOCATIONS, OPTIMIZER_PASSES, PASSES, renew_scores
from mlgokit.tune.loop import combine_end_reasons
from mlgokit.tune.result import SearchedFunctions, Tuned, TunedModule, costs_of
from mlgokit.tune.spaces.functions.compare import scores_of
from mlgokit.tune.spaces.functions.opening import FunctionSearch
from mlgokit.tune.spaces.functions.state import ModuleFunctions
from mlgokit.tune.spaces.optimizer.opening import OptimizerSearch
from mlgokit.tune.spaces.optimizer.state import PassModule
from mlgokit.tune.verify import Verified, VerifiedBuild, Verifier, verify

INLINING_TABLE = "decisions"
FIELDS = {ALLOCATIONS.table: "allocated", PASSES.table: "passes", OPTIMIZER_PASSES.table: "optimizer_passes"}
"""The field of :class:`Tuned` and of its rows for each table of functions, by table."""

TableSearch = FunctionSearch | OptimizerSearch
"""A search for bytes whose table has entries by function."""


def finish_bytes(verifier: Verifier, search: TableSearch, tuned: Tuned, account: ProjectAccount) -> Tuned:
    """Verify the table of a search on top of the plugin of ``tuned``.

    A function that is larger than before is reverted, and so are all functions of a larger module; so no module is
    larger than in ``tuned``.

    Args:
        verifier: the verifier of ``tuned``.
        search: search over allocations, or over passes.
        tuned: the result without the search's table.
        account: the project's account, whose objective decides which bytes count.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    space = search.space
    done = verify(verifier, space, search.folder / space.kind)
    changed = {name: _changed(unit, done) for unit in space.units for name in unit.names}
    field = FIELDS[space.kind]
    rows = tuple(
        dataclasses.replace(row, **{field: changed.get(row.name, 0)}) if row.name in done.after.sizes else row
        for row in tuned.modules
    )
    result = with_build(verifier, dataclasses.replace(tuned, modules=rows), done.after, account)
    searched = SearchedFunctions(
        # An entry of an earlier plugin may be kept without a trial.
        functions=len(space.tried_functions | done.kept),
        changed=len(done.kept),
        before_bytes=tuned.tuned_bytes,
        after_bytes=result.tuned_bytes,
        put_back=len(done.reverted),
        user_seconds=search.user_seconds,
        compilations=search.compilations,
        trials=search.trials,
    )
    return dataclasses.replace(
        result,
        user_seconds=tuned.user_seconds + search.user_seconds,
        compilations=tuned.compilations + search.compilations,
        ended=combine_end_reasons(tuned.ended, search.ended),
        **{field: searched},
    )


def with_build(verifier: Verifier, tuned: Tuned, after: VerifiedBuild, account: ProjectAccount) -> Tuned:
    """Replace the sizes in a result by those of a build; the summary inside the plugin is renewed too.

    Args:
        verifier: verifier with the plugin.
        tuned: the result before.
        after: the build with the plugin as it is now.
        account: the project's account, whose objective decides which bytes count.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    plain, sizes, whole = verifier.plain, after.sizes, after.total_bytes(account.objective)
    if after is not plain and renew_summary(verifier.inside[INLINING_TABLE], whole):
        verifier.mark_stale()
    rows = tuple(
        dataclasses.replace(
            row,
            tuned_bytes=account.module_bytes(row.name, sizes[row.name]),
            plain=row.plain and plain.objects[row.name].read_bytes() == after.objects[row.name].read_bytes(),
        )
        if row.name in sizes
        else row
        for row in tuned.modules
    )
    return dataclasses.replace(tuned, tuned_bytes=whole, tuned_link=after.link, judged=after.judged, modules=rows)


def finish_costs(verifier: Verifier, search: FunctionSearch) -> Tuned:
    """Verify the table of a search for costs, and make the plugin with it.

    A function that costs more than in the plain build is reverted, and so are all functions of a module that does not
    compile with the table.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked, or nothing compiles with it.
    """
    space = search.space
    table = search.folder / space.kind
    done = verify(verifier, space, table)
    if renew_scores(ALLOCATIONS, done.table, *_promise(space.units, done)):
        verifier.mark_stale()
    rows = tuple(_row(unit, done) for unit in space.units)
    pairs = [pair for unit in space.units for pair in _cost_pairs(unit.module.name, done)]
    before, after = (sum(column) for column in zip(*((one.plain_bytes, one.tuned_bytes) for one in rows), strict=True))
    return Tuned(
        plugin=str(verifier.output),
        table=str(table),
        plain_bytes=before,
        tuned_bytes=after,
        ended=search.ended,
        modules=rows,
        failures=dict(space.failures),
        curve=tuple(search.curve),
        user_seconds=search.user_seconds,
        compilations=search.compilations,
        allocated=SearchedFunctions(
            functions=len(pairs),
            changed=sum(one.allocated for one in rows),
            before_bytes=before,
            after_bytes=after,
            put_back=len(done.reverted),
            user_seconds=search.user_seconds,
            compilations=search.compilations,
            trials=search.trials,
            costs=costs_of(pairs),
        ),
    )


def _changed(unit: ModuleFunctions | PassModule, done: Verified) -> int:
    """Number of a module's functions that the verified table has."""
    return sum(key in done.kept for key in unit.keys.values())


def _cost_pairs(name: str, done: Verified) -> list[tuple[float, float]]:
    """Costs, plain and tuned, of a module's functions with costs in the plain build."""
    after = scores_of(done.after.compilations[name])
    return [(score, after.get(function, 0.0)) for function, score in scores_of(done.before.compilations[name]).items()]


def _promise(units: Sequence[ModuleFunctions], done: Verified) -> tuple[float, float]:
    """Sum the costs before and after, counting a function of several modules once, as `mlgokit check` does."""
    once: dict[int | tuple[str, str], tuple[float, float]] = {}
    for unit in units:
        name = unit.module.name
        before, after = (scores_of(build.compilations[name]) for build in (done.before, done.after))
        for function in dict.fromkeys((*before, *after)):
            pair = before.get(function, 0.0), after.get(function, 0.0)
            once.setdefault(unit.keys.get(function, (name, function)), pair)
    return sum(before for before, _ in once.values()), sum(after for _, after in once.values())


def _row(unit: ModuleFunctions, done: Verified) -> TunedModule:
    """The result for one module of a search for costs."""
    name, changed = unit.module.name, _changed(unit, done)
    first, second = (build.objects[name] for build in (done.before, done.after))
    note = done.notes.get(name, "")
    if not changed and second.exists() and first.read_bytes() != second.read_bytes():
        note = note or "its object is not the plain one"
    return TunedModule(
        name=name,
        plain_bytes=_text(done.before.compilations[name]),
        tuned_bytes=_text(done.after.compilations[name]),
        plain=not changed,
        allocated=changed,
        note=note,
        costs=costs_of(_cost_pairs(name, done)),
    )


def _text(done: Compilation) -> int:
    """Bytes of code; 0 if the module does not compile."""
    return 0 if done.sizes is None else done.sizes.totals.text

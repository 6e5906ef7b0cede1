"""The policies that come with the package, beside the tables of a tuned plugin.

A policy decides in functions without an entry. So each function gets what makes it smallest: the entries that a search
found, LLVM's own decisions (an entry without overrides), or the decisions of the policies. The modules of a program
that would be larger than with the policies alone are left to the policies.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.variant import policies_by_problem
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.policy.pretrained import SHIPPED
from mlgokit.problems import INLINE_SIZE, PASS_SELECTION, REGALLOC_PRIORITY, REGALLOC_WEIGHT
from mlgokit.tables.decisions import TableEntry, TuningSummary, read_table, write_table
from mlgokit.tables.overrides import (
    ALLOCATIONS,
    OPTIMIZER_PASSES,
    PASSES,
    OverrideKind,
    OverrideSummary,
    read_overrides,
    write_overrides,
)
from mlgokit.tune.result import ShippedPolicies, Tuned
from mlgokit.tune.spaces.functions.compare import folded_in, grown_functions
from mlgokit.tune.spaces.functions.finish import FIELDS, INLINING_TABLE, TableSearch, with_build
from mlgokit.tune.verify import PLAIN, VerifiedBuild, Verifier, grew

_KINDS = {
    INLINE_SIZE.name: (),
    PASS_SELECTION.name: (OPTIMIZER_PASSES, PASSES),
    REGALLOC_PRIORITY.name: (ALLOCATIONS,),
    REGALLOC_WEIGHT.name: (ALLOCATIONS,),
}
"""The tables whose entries keep a problem's policy out of a function, by problem."""
_CORRECTIONS = 3
"""How often functions and modules are taken from the policies, or left to them, after a build shows that they are
larger."""

_Functions = Mapping[str, Mapping[str, int]]
"""Keys of functions, by module and name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedTables:
    """The tables of a tuned plugin.

    Attributes:
        decisions: entries of the decision table, by module.
        summary: summary of the decision table.
        functions: the functions that a table of functions may have, by kind of table.
        entries: the entries that a table of functions has, by kind of table.
        summaries: summaries of the tables of functions, by kind of table.
        folders: folders that the tables of functions are published to, by kind of table.
    """

    decisions: Mapping[str, TableEntry]
    summary: TuningSummary | None
    functions: Mapping[OverrideKind, _Functions]
    entries: Mapping[OverrideKind, Mapping[int, Overrides]]
    summaries: Mapping[OverrideKind, OverrideSummary | None]
    folders: Mapping[OverrideKind, Path]


@dataclass(slots=True, kw_only=True, eq=False)
class PolicyScope:
    """The modules and functions that are left to the policies, beside all functions without entries.

    Attributes:
        modules: modules whose decisions and entries are dropped.
        functions: functions whose entries are dropped, by module.
        excluded: functions that keep their entries, or get one without overrides, by module.
    """

    modules: set[str] = field(default_factory=set[str])
    functions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    excluded: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def exclude(self, module: str, functions: set[str]) -> bool:
        """Keep the policies out of functions; return whether that changes anything."""
        known = self.excluded.setdefault(module, set())
        is_new = not functions <= known
        known |= functions
        return is_new

    def entries(self, tables: TunedTables, kind: OverrideKind) -> dict[int, Overrides]:
        """The entries of a table that are left, and those without overrides that keep the policies out."""
        known, functions = tables.entries[kind], tables.functions[kind]

        def keys(names: Mapping[str, set[str]]) -> set[int]:
            listed = ((functions.get(module, {}), some) for module, some in names.items())
            return {of[name] for of, some in listed for name in some if name in of}

        whole = {key for module in self.modules for key in functions.get(module, {}).values()}
        excluded = keys(self.excluded) - whole
        dropped = (keys(self.functions) | whole) - excluded
        return {key: known.get(key, Overrides()) for key in (known.keys() | excluded) - dropped}


def shipped_policies() -> dict[str, Path]:
    """The files of the shipped policies, by problem."""
    return {problem: Path(file) for problem, file in policies_by_problem([SHIPPED]).items()}


def add_shipped(
    verifier: Verifier,
    tuned: Tuned,
    searches: Mapping[OverrideKind, TableSearch],
    account: ProjectAccount,
    *,
    with_all: bool = False,
) -> Tuned:
    """Put the policies that come with the package into the plugin of ``tuned``, as far as the project is smaller.

    The result is the smallest of the tuned build, of ``builtin:Oz`` alone, and of both together, of those in which no
    program is larger than with ``builtin:Oz`` alone or than the plain one.

    Args:
        verifier: the verifier of ``tuned``.
        tuned: the result without policies.
        searches: searches that found the entries of the tables of functions, by kind of table. A policy that no table
            can keep out of functions is not put into the plugin.
        account: the project's account, whose objective decides which bytes count.
        with_all: put in policies that no table can keep out of functions too, as there was no time to list functions.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    before, inside, destinations = verifier.latest, dict(verifier.inside), dict(verifier.tables)
    tables = _read_tables(verifier, searches)
    policies = shipped_policies()
    mix = _Mix(verifier=verifier, tables=tables, account=account, inside=inside, before=before)

    alone = mix.measure(
        mix.compile("shipped", policies, PolicyScope(modules=set(tables.decisions)), with_functions=False)
    )
    if lost := sorted(before.sizes.keys() - alone.sizes.keys()):
        mix.restore(inside, destinations)
        note = (
            f"{SHIPPED} is not in the plugin: {lost[0]} does not compile with it: {alone.compilations[lost[0]].reason}"
        )
        return dataclasses.replace(tuned, notes=(*tuned.notes, note))
    tuned = dataclasses.replace(
        tuned, shipped=ShippedPolicies(name=SHIPPED, bytes=alone.total_bytes(account.objective), judged=alone.judged)
    )
    usable = {
        problem: file
        for problem, file in policies.items()
        if problem not in inside and (with_all or all(kind in searches for kind in _KINDS[problem]))
    }
    scope, mixed = mix.search(usable, alone)
    builds = [before, *([mixed] if mix.compiles(mixed) else []), alone]
    build = min(builds, key=lambda one: mix.rank(one, alone))
    if behind := larger_programs(alone, build):
        note = (
            f"these programs would be smaller with {SHIPPED} alone, which was not chosen because another program would "
            f"then grow: {', '.join(behind)}"
        )
        tuned = dataclasses.replace(tuned, notes=(*tuned.notes, note))
    if build is before:
        mix.restore(inside, destinations)
        return tuned
    if build is alone:
        result = _without_decisions(tuned)
        mix.write(policies, PolicyScope(modules=set(tables.decisions)), with_functions=False)
    else:
        result = mix.describe(tuned, scope)
        mix.write(usable, scope)
    if result.shipped is not None:
        added = dataclasses.replace(result.shipped, before_bytes=tuned.tuned_bytes)
        result = dataclasses.replace(result, shipped=added)
    verifier.builds = {PLAIN: verifier.plain, **dict.fromkeys(verifier.inside, build)}
    verifier.mark_stale()
    return with_build(verifier, result, build, account)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Mix:
    """Builds with policies and the tables of a tuned plugin.

    Attributes:
        verifier: verifier that compiles and measures.
        tables: tables of the tuned plugin.
        account: the project's account, whose objective decides which bytes count.
        inside: policies and tables in the tuned plugin, by kind.
        before: the build with the tuned plugin.
    """

    verifier: Verifier
    tables: TunedTables
    account: ProjectAccount
    inside: Mapping[str, Path]
    before: VerifiedBuild

    def search(self, policies: Mapping[str, Path], alone: VerifiedBuild) -> tuple[PolicyScope, VerifiedBuild]:
        """Find the modules and functions that are smaller with the policies; return these and the build with them.

        The first build has the policies and the decision table, the second also the entries that remain. Corrections
        follow, because a function depends on the ones that it inlines, and a program on its link.

        Args:
            policies: files of the policies that the plugin may have, by problem.
            alone: the build with policies and no tables.
        """
        scope = PolicyScope()
        free = self.compile("free", policies, scope, with_functions=False)
        for module in self.tables.decisions if INLINE_SIZE.name in policies else ():
            if module in alone.sizes and self._bytes(alone, module) < min(
                self._bytes(self.before, module), self._bytes(free, module)
            ):
                scope.modules.add(module)
        for module in self.before.sizes.keys() & free.sizes.keys():
            scope.functions[module] = self._grown(module, free, self.before)
            scope.exclude(module, self._grown(module, self.before, free))
        mixed = self.compile("mixed", policies, scope)
        for _ in range(_CORRECTIONS):
            changed = [
                scope.exclude(module, self._grown(module, self.before, mixed))
                for module in mixed.sizes.keys() - scope.modules
            ]
            if any(changed):
                mixed = self.compile("mixed", policies, scope)
                continue
            if not self.compiles(mixed):
                break
            mixed = self.measure(mixed)
            if not self._correct(scope, mixed, alone, policies):
                return scope, mixed
            mixed = self.compile("mixed", policies, scope)
        return scope, self.measure(mixed) if self.compiles(mixed) else mixed

    def _correct(
        self, scope: PolicyScope, mixed: VerifiedBuild, alone: VerifiedBuild, policies: Mapping[str, Path]
    ) -> bool:
        """Leave programs that are smaller with the policies alone to them, and keep them out of programs that grew.

        Returns:
            Whether anything changed.
        """
        if self.verifier.judge is None or mixed.judged is None:
            return False
        modules_of = self.verifier.judge.measure.linked_modules
        grown = modules_of(mixed.judged.larger) if mixed.judged.larger else set[str]()
        behind = larger_programs(alone, mixed) if INLINE_SIZE.name in policies else []
        freed = (modules_of(behind) if behind else set[str]()) - grown - scope.modules
        scope.modules = (scope.modules | freed) - grown
        is_changed = bool(freed)
        # A module that does not compile keeps the object of the build in its program.
        for module in sorted(grown & self.before.sizes.keys()):
            is_changed |= scope.exclude(module, set(self.before.sizes[module].function_names))
        return is_changed

    def compile(
        self, name: str, policies: Mapping[str, Path], scope: PolicyScope, *, with_functions: bool = True
    ) -> VerifiedBuild:
        """Compile all modules with the policies and the entries of the tables that are left."""
        self.write(policies, scope, with_functions=with_functions)
        self.verifier.link_plugin()
        return self.verifier.compile_all(name, self.verifier.plugin)

    def write(self, policies: Mapping[str, Path], scope: PolicyScope, *, with_functions: bool = True) -> None:
        """Write the tables that are left, and choose them and the policies for the plugin."""
        verifier, tables = self.verifier, self.tables
        inside = {kind: path for kind, path in self.inside.items() if kind in _KINDS} | dict(policies)
        decisions = {name: entry for name, entry in tables.decisions.items() if name not in scope.modules}
        # A plugin that was tuned has this table; without entries it leaves every module to the policies.
        inside[INLINING_TABLE] = verifier.folder / "shipped.decisions"
        summary = tables.summary and dataclasses.replace(tables.summary, modules=tuple(decisions))
        write_table(inside[INLINING_TABLE], list(decisions.values()), summary)
        destinations = {inside[INLINING_TABLE]: verifier.search_folder / INLINING_TABLE}
        for kind in tables.functions if with_functions else ():
            if entries := scope.entries(tables, kind):
                inside[kind.table] = verifier.folder / f"shipped.{kind.table}"
                write_overrides(kind, inside[kind.table], entries, tables.summaries[kind])
                destinations[inside[kind.table]] = tables.folders[kind] / kind.table
        verifier.inside, verifier.tables = inside, destinations

    def restore(self, inside: Mapping[str, Path], destinations: Mapping[Path, Path]) -> None:
        """Link the plugin as it was tuned again."""
        self.verifier.inside, self.verifier.tables = dict(inside), dict(destinations)
        self.verifier.mark_stale()

    def measure(self, build: VerifiedBuild) -> VerifiedBuild:
        """Link and measure a build, if all its modules compile."""
        return self.verifier.measure("shipped", build, changed=True) if self.compiles(build) else build

    def compiles(self, build: VerifiedBuild) -> bool:
        """Whether all modules compile that do in the tuned build."""
        return build.sizes.keys() >= self.before.sizes.keys()

    def rank(self, build: VerifiedBuild, alone: VerifiedBuild) -> tuple[bool, bool, float]:
        """Sort key, best first: whether a program is larger than plain, or than by the policies alone; then bytes."""
        judged, link = build.judged, self.verifier.plain.link
        if judged is not None and judged.after is not None:
            return bool(judged.larger), bool(larger_programs(alone, build)), judged.after
        is_larger = grew(link, build.link) or (build is not self.before and grew(self.before.link, build.link))
        return is_larger, False, build.total_bytes(self.account.objective)

    def describe(self, tuned: Tuned, scope: PolicyScope) -> Tuned:
        """The result with the numbers of entries that the tables still have, and a note on the policies."""
        entries = {kind: scope.entries(self.tables, kind) for kind in self.tables.functions}

        def count(kind: OverrideKind, module: str) -> int:
            keys = self.tables.functions[kind].get(module, {}).values()
            return sum(bool(entries[kind].get(key)) for key in keys)

        rows = tuple(
            dataclasses.replace(
                row,
                decisions=0 if row.name in scope.modules else row.decisions,
                **{FIELDS[kind.table]: count(kind, row.name) for kind in entries},
            )
            for row in tuned.modules
        )
        kept_out = sum(len(names) for module, names in scope.excluded.items() if module not in scope.modules)
        note = (
            f"The plugin has the policies {SHIPPED} as well. They do not act in {kept_out:,} functions that they would "
            f"make larger, and decide the inlining of {len(scope.modules)} of {len(rows)} modules"
        )
        return dataclasses.replace(tuned, modules=rows, notes=(*tuned.notes, note))

    def _bytes(self, build: VerifiedBuild, module: str) -> float:
        """Bytes of a module in the account; infinite if it does not compile."""
        sizes = build.sizes.get(module)
        return float("inf") if sizes is None else self.account.module_bytes(module, sizes)

    def _grown(self, module: str, first: VerifiedBuild, second: VerifiedBuild) -> set[str]:
        """Functions of a module that are larger in the second build."""
        before, after = first.sizes.get(module), second.sizes.get(module)
        if before is None or after is None:
            return set()
        text_only = self.account.objective is Objective.LINK_AWARE_TEXT
        folded = folded_in(next(one for one in self.verifier.modules if one.name == module), first)
        return grown_functions(before, after, text_only=text_only, folded=folded)


def _read_tables(verifier: Verifier, searches: Mapping[OverrideKind, TableSearch]) -> TunedTables:
    """Read the tables that were verified."""
    table = read_table(verifier.inside[INLINING_TABLE])
    names = () if table.summary is None else table.summary.modules
    read = {
        kind: read_overrides(kind, verifier.inside[kind.table]) for kind in searches if kind.table in verifier.inside
    }
    return TunedTables(
        decisions=dict(zip(names, table.entries, strict=True)),
        summary=table.summary,
        functions={
            kind: {name: unit.keys for unit in search.space.units for name in unit.names}
            for kind, search in searches.items()
        },
        entries={kind: read[kind].by_key if kind in read else {} for kind in searches},
        summaries={kind: read[kind].summary if kind in read else None for kind in searches},
        folders={kind: search.folder for kind, search in searches.items()},
    )


def larger_programs(first: VerifiedBuild, second: VerifiedBuild) -> list[str]:
    """Programs that are larger in the second of two builds."""
    if first.judged is None or second.judged is None:
        return []
    sizes = {name: size for name, (_, size) in first.judged.programs.items()}
    return [name for name, (_, size) in second.judged.programs.items() if size > sizes.get(name, size)]


def _without_decisions(tuned: Tuned) -> Tuned:
    """The result for a plugin with the policies alone; its sizes are filled in later."""
    note = f"{SHIPPED} was smaller than what the search found, so the plugin has its policies and no decisions"
    return dataclasses.replace(
        tuned,
        modules=tuple(
            dataclasses.replace(row, plain=True, decisions=0, allocated=0, passes=0, optimizer_passes=0)
            for row in tuned.modules
        ),
        notes=(*tuned.notes, note),
        **{
            field: searched and dataclasses.replace(searched, changed=0, after_bytes=searched.before_bytes)
            for field in FIELDS.values()
            for searched in (getattr(tuned, field),)
        },
    )

"""How much of a tuned plugin still applies to code that changed since it was tuned, and what it saves there now."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from mlgokit.builds.images import LINKED
from mlgokit.builds.recorded import TunedBuild, TunedProgram
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.regalloc_cost import align_scores
from mlgokit.compiler.request import Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Overrides, Stage, TrialRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tables.decisions import DecisionTable, strong_names
from mlgokit.tables.overrides import OverrideTable
from mlgokit.tune.result import SpillCosts, costs_of, json_of

State = Literal["tuned", "by policies", "left plain", "new"]
WORTH_KEEPING = 0.8
"""Share of the promised saving below which it is time to tune again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuildPair:
    """A module compiled without and with the plugin.

    Attributes:
        plain: the compilation without the plugin.
        tuned: the compilation with the plugin.
        objects: paths of the object without and of the one with the plugin.
        listed: a compilation with the plugin that only lists functions, if there was one.
    """

    plain: Compilation
    tuned: Compilation
    objects: tuple[Path, Path]
    listed: Compilation | None = None

    @property
    def functions(self) -> Mapping[str, int]:
        """Keys of all functions that came to the register allocator, by name, if they were asked for."""
        return self.keys(Stage.REGISTERS)

    def keys(self, stage: Stage) -> Mapping[str, int]:
        """Keys of all functions that came to a stage, by name, if they were asked for."""
        tried = (*self.tuned.tried, *(() if self.listed is None else self.listed.tried))
        return {one.name: one.key for one in tried if one.stage is stage}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModule:
    """One module of today's code.

    Attributes:
        name: name of the module.
        plain_bytes: its bytes in the project's account without the plugin, or of its code if the objective is costs.
        tuned_bytes: its bytes in the project's account with the plugin, or of its code if the objective is costs.
        state: whether a table has entries for it, only policies in the plugin make it another one, nothing does, or the
            decision table does not know it.
        asked: number of decisions that the compiler asked the plugin for; 0 in a module that the plugin leaves to LLVM.
        kept: number of these decisions that the table made.
        allocated: number of functions whose registers the plugin allocates; a COMDAT function counts in each module.
        worse: names of functions that cost more with the plugin than without, if the objective is costs.
        costs: costs of its functions, if the objective is costs.
    """

    name: str
    plain_bytes: float
    tuned_bytes: float
    state: State = "new"
    asked: int = 0
    kept: int = 0
    allocated: int = 0
    worse: tuple[str, ...] = ()
    costs: SpillCosts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a tuned plugin saves in today's code.

    Attributes:
        plugin: path of the plugin.
        modules: the modules that compile without and with the plugin.
        gone: names of modules in the decision table that today's code does not have.
        failures: reasons by name for modules that do not compile, without or with the plugin.
        decisions: number of decisions in the decision table.
        asked: number of decisions that the compiler asked for in modules that the plugin decides.
        kept: number of these decisions that the table made; each key of the table applies once.
        allocations: number of functions whose registers the plugin allocates.
        allocations_kept: number of these functions that are unchanged in today's code.
        passes: number of functions that skip passes with the plugin; a function counts twice if it skips passes of the
            optimizer and of the code generator.
        passes_kept: number of these functions that are unchanged in today's code.
        promised_change: relative change, such as -0.06, of the project's account or of the sum of costs when the plugin
            was tuned.
        plain_bytes: the project's account in today's plain build; bytes of its code, if the objective is costs.
        tuned_bytes: the project's account in today's build with the plugin; bytes of its code, if the objective is
            costs.
        plain_link: link of all plain objects with --gc-sections; ``None`` unless both builds could be linked.
        tuned_link: the same of all tuned objects.
        costs: costs of today's functions, a COMDAT function once, if the plugin was tuned for costs.
        left_out: reasons by name for sources of the project that were not compiled.
        notes: notes on the build for the user, such as options that are left out.
        linked: whether the plugin was tuned by what a link keeps, so that a larger object says nothing.
        built: today's build with the plugin, if the build was given.
        violations: sentences about programs that exceed their limits.
    """

    plugin: str
    modules: tuple[CheckedModule, ...]
    failures: dict[str, str]
    promised_change: float | None
    plain_bytes: float
    tuned_bytes: float
    gone: tuple[str, ...] = ()
    decisions: int = 0
    asked: int = 0
    kept: int = 0
    allocations: int = 0
    allocations_kept: int = 0
    passes: int = 0
    passes_kept: int = 0
    plain_link: LinkedImage | None = None
    tuned_link: LinkedImage | None = None
    costs: SpillCosts | None = None
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    linked: bool = False
    built: TunedBuild | None = None
    violations: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Share of the decisions, or with costs of the allocated functions, that still apply; 1 if there are none."""
        all_of, kept = (self.decisions, self.kept) if self.costs is None else (self.allocations, self.allocations_kept)
        return kept / all_of if all_of else 1.0

    @property
    def is_stale(self) -> bool:
        """Whether any part of the plugin no longer applies, or cannot be looked at."""
        kept = (self.kept, self.allocations_kept, self.passes_kept)
        held = (self.decisions, self.allocations, self.passes)
        return any(one < whole for one, whole in zip(kept, held, strict=True)) or bool(self.failures)

    @property
    def change(self) -> float:
        """Relative change of the project's account, or of the sum of costs, that the plugin makes in today's code."""
        before, after = self.plain_bytes, self.tuned_bytes
        if self.costs is not None:
            before, after = self.costs.plain, self.costs.tuned
        return after / before - 1 if before else 0.0

    @property
    def programs(self) -> tuple[TunedProgram, ...]:
        """The programs that today's build links, both plain and with the plugin."""
        return () if self.built is None else tuple(one for one in self.built.programs if one.is_linked)

    @property
    def larger(self) -> tuple[str, ...]:
        """Programs that are larger with the plugin than plain; without their links, such modules, if bytes count."""
        if self.programs:
            return tuple(one.program for one in self.programs if one.tuned.image > one.plain.image)
        grown = (one.name for one in self.modules if one.costs is None and one.tuned_bytes > one.plain_bytes)
        return () if self.linked else tuple(grown)

    @property
    def tune_again(self) -> bool:
        """Whether clearly less is saved than was promised, or something is worse than plain."""
        promised = self.promised_change
        lost = promised is not None and promised < 0 and self.change > WORTH_KEEPING * promised
        return bool(self.larger) or lost or any(one.worse for one in self.modules)

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return json_of(self) | {
            "share": self.share,
            "change": self.change,
            "larger": list(self.larger),
            "tune_again": self.tune_again,
        }


def check_plugin(
    modules: Sequence[Module],
    compiler: Compiler,
    plugin: Path,
    decisions: DecisionTable | None,
    allocations: OverrideTable | None,
    *,
    passes: OverrideTable | None = None,
    optimizer_passes: OverrideTable | None = None,
    left_out: Mapping[str, str] = MappingProxyType({}),
    report: Report,
) -> CheckResult:
    """Compile every module without and with a tuned plugin, and compare bytes; or costs, if it has no decisions.

    Args:
        modules: modules of today's code, in link order.
        compiler: compiler of the modules.
        plugin: path of the tuned plugin.
        decisions: its decision table, if it has one.
        allocations: its allocation table, if it has one; a plugin has decisions, allocations, or both.
        passes: its table of passes of the code generator, if it has one.
        optimizer_passes: its table of passes of the optimizer, if it has one.
        left_out: reasons by name for sources of today's code that are no modules, as they do not compile.
        report: called after every module.
    """
    # A request without trials lists all functions.
    use = PluginUse(
        plugin=plugin.resolve(),
        logs=() if decisions is None else (INLINE_SIZE.name,),
        trials=None if allocations is None else TrialRequest(stages=Stage.REGISTERS),
        list_changes=optimizer_passes is not None,
    )
    # A policy for passes of the code generator does not act where functions are listed for them.
    listing = None if passes is None else PluginUse(plugin=use.plugin, trials=TrialRequest(stages=Stage.PASSES))
    changed, skipping, not_run = (
        _changed_functions(allocations),
        _changed_functions(passes),
        _changed_functions(optimizer_passes),
    )
    with tempfile.TemporaryDirectory(prefix="mlgokit-check-") as scratch:
        folder = Path(scratch)
        pairs, failures = compile_pairs(
            modules, compiler, use, folder, listing=listing, costs=decisions is None, report=report
        )
        if decisions is None:
            compared = _compare_costs(pairs, changed)
        else:
            touched = {name for name, one in pairs.items() if _has_entry(one, changed, skipping, not_run)}
            compared = _compare_bytes(pairs, changed, touched, decisions)
            # What does not compile today is there all the same.
            compared["gone"] = tuple(name for name in compared["gone"] if name not in {**failures, **left_out})
            compared |= _link_both(list(pairs.values()), folder, compiler.toolchain)
    kept, skipping_kept = (
        wanted & {key for one in pairs.values() for key in one.keys(stage).values()}
        for wanted, stage in ((changed, Stage.REGISTERS), (skipping, Stage.PASSES))
    )
    changes = [pair.tuned.changes for pair in pairs.values() if pair.tuned.changes is not None]
    not_run_kept = not_run & {key for listed in changes for key in listed.keys.values()}
    return CheckResult(
        plugin=str(plugin),
        failures=failures,
        promised_change=_promised_change(decisions, allocations),
        allocations=len(changed),
        allocations_kept=len(kept),
        passes=len(skipping) + len(not_run),
        passes_kept=len(skipping_kept) + len(not_run_kept),
        left_out=dict(left_out),
        **compared,
    )


def compile_pairs(
    modules: Sequence[Module],
    compiler: Compiler,
    use: PluginUse,
    folder: Path,
    *,
    listing: PluginUse | None = None,
    costs: bool,
    report: Report,
) -> tuple[dict[str, BuildPair], dict[str, str]]:
    """Compile modules without and with the plugin; return the pairs by module, and the reasons for modules that fail.

    Args:
        modules: modules of today's code.
        compiler: compiler of the modules.
        use: the plugin, and what it shall do.
        folder: folder for the objects.
        listing: how the plugin is used once more where functions are listed whose objects must not be measured.
        costs: whether costs of register allocation are read.
        report: called after every module.
    """
    failures: dict[str, str] = {}

    def compile_one(place: tuple[int, Module]) -> BuildPair | None:
        index, module = place
        found: list[Compilation] = []
        objects = folder / f"{index}.plain", folder / f"{index}.tuned"
        for one, path in zip((None, use), objects, strict=True):
            done = compiler.compile(module, CompileRequest(use=one, keep_object=path, regalloc=costs))
            if not done.ok:
                how = "plainly" if one is None else "with the plugin"
                failures[module.name] = f"{how}: {done.status.value}: {done.reason}"
                return None
            found.append(done)
        listed = None if listing is None else compiler.compile(module, CompileRequest(use=listing))
        if listed is not None and not listed.ok:
            failures[module.name] = f"with the plugin, listing functions: {listed.status.value}: {listed.reason}"
            return None
        return BuildPair(plain=found[0], tuned=found[1], objects=objects, listed=listed)

    pairs = parallel(
        compile_one, list(enumerate(modules)), workers=compiler, report=report,
        label="compile plainly and tuned",
    )  # fmt: skip
    return {module.name: one for module, one in zip(modules, pairs, strict=True) if one is not None}, failures


def read_programs(path: Path) -> dict[str, int]:
    """Read the bytes of each program that was linked with the plugin from an earlier result of ``tune`` or ``check``.

    Raises:
        InputError: the file has no such result.
    """
    try:
        result: Any = json.loads(path.read_bytes())
        by_cargo: dict[str, Any] = result.get("cargo_programs") or {}
        programs: dict[str, Any] = {name: sizes[1] for name, sizes in by_cargo.items()}
        programs = programs or {
            one["program"]: one["tuned"]["image"]
            for one in result["built"]["programs"]
            if one["tuned"].get("status", LINKED) == LINKED
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            f"--against {path}: expected the JSON result of `mlgokit tune --build` or `mlgokit --json check --build`, "
            f"found {error!r:.200}; give tuned.json of the tuning"
        ) from error
    if not all(isinstance(size, int) for size in programs.values()):
        raise InputError(
            f"--against {path}: expected the size of each program in bytes, found {programs!r:.200}; tune again"
        )
    return programs


def find_violations(
    built: TunedBuild,
    *,
    max_bytes: int | None,
    max_growth: float | None,
    earlier: Mapping[str, int],
    bytes_of: Mapping[str, float] = MappingProxyType({}),
    growth_of: Mapping[str, float] = MappingProxyType({}),
) -> tuple[str, ...]:
    """A sentence for each program that exceeds its limit, or that cannot be compared.

    Args:
        built: today's build with the plugin.
        max_bytes: maximum bytes of a program; ``None`` for no maximum.
        max_growth: percentage by which a program may be larger than before; ``None`` for no limit.
        earlier: bytes of the programs before, by program.
        bytes_of: programs with a limit of their own in place of ``max_bytes``, by path or name.
        growth_of: programs with a limit of their own in place of ``max_growth``, by path or name.
    """
    found: list[str] = []
    names = {one.program for one in built.programs}
    known = names | {Path(name).name for name in names}
    for one in built.programs:
        size, before = one.tuned.image, earlier.get(one.program)
        name = Path(one.program).name
        most = bytes_of.get(one.program, bytes_of.get(name, max_bytes))
        growth = growth_of.get(one.program, growth_of.get(name, max_growth))
        if one.tuned.status != LINKED:
            found.append(f"{one.program}: expected an image with the plugin, found none: {one.tuned.reason}")
        elif most is not None and size > most:
            found.append(f"{one.program}: {size:,} bytes, {size - most:,.0f} more than --max-bytes {most:,.0f}")
        elif growth is not None and before is not None and size > before * (1 + growth / 100):
            found.append(
                f"{one.program}: {size:,} bytes, {100 * (size / before - 1) if before else 100:.2f} % more than the "
                f"{before:,} of --against; --max-growth is {growth:g} %"
            )
    unknown = sorted({*bytes_of, *growth_of} - known)
    found += [f"{name}: has a limit, and today's build does not link it" for name in unknown]
    found += [f"{name}: today's build does not link it, and --against has it" for name in earlier if name not in names]
    return tuple(found)


def _has_entry(one: BuildPair, changed: frozenset[int], skipping: frozenset[int], not_run: frozenset[int]) -> bool:
    """Whether a function of this module has an entry in one of the tables of functions, given by their keys."""
    changes = one.tuned.changes
    return bool(
        changed & set(one.functions.values())
        or skipping & set(one.keys(Stage.PASSES).values())
        or (changes is not None and not_run & set(changes.keys.values()))
    )


def _changed_functions(table: OverrideTable | None) -> frozenset[int]:
    """Keys of the functions that have overrides in a table."""
    by_key = dict[int, Overrides]() if table is None else table.by_key
    return frozenset(key for key, overrides in by_key.items() if len(overrides))


def _promised_change(decisions: DecisionTable | None, allocations: OverrideTable | None) -> float | None:
    """The change that was measured when the plugin was tuned: of bytes, or of costs if it has no decisions."""
    before, after = 0.0, 0.0
    if decisions is not None and decisions.summary is not None:
        before, after = decisions.summary.plain_bytes, decisions.summary.tuned_bytes
    elif decisions is None and allocations is not None and allocations.summary is not None:
        before, after = allocations.summary.plain_score, allocations.summary.tuned_score
    return after / before - 1 if before else None


def _compare_costs(pairs: Mapping[str, BuildPair], changed: frozenset[int]) -> dict[str, Any]:
    """Compare modules by the costs of spills, reloads and copies; returns fields of :class:`CheckResult`."""
    once: dict[int | tuple[str, str], tuple[float, float]] = {}
    rows: list[CheckedModule] = []
    for module, one in pairs.items():
        costs = _cost_pairs(one)
        for name, pair in costs.items():
            once.setdefault(one.functions.get(name, (module, name)), pair)
        rows.append(
            CheckedModule(
                name=module,
                plain_bytes=one.plain.measured.totals.text,
                tuned_bytes=one.tuned.measured.totals.text,
                allocated=len(changed & set(one.functions.values())),
                worse=tuple(function for function, (before, after) in costs.items() if after > before),
                costs=costs_of(list(costs.values())),
            )
        )
    return {
        "modules": tuple(rows),
        "plain_bytes": sum(row.plain_bytes for row in rows),
        "tuned_bytes": sum(row.tuned_bytes for row in rows),
        "costs": costs_of(list(once.values())),
    }


def _cost_pairs(one: BuildPair) -> dict[str, tuple[float, float]]:
    """Plain and tuned costs by function, of functions with costs in either build."""
    plain, tuned = one.plain.regalloc, one.tuned.regalloc
    if plain is None or tuned is None:
        return {}
    names, before, after = align_scores(plain, tuned)
    return dict(zip(names, zip(before.tolist(), after.tolist(), strict=True), strict=True))


def _compare_bytes(
    pairs: Mapping[str, BuildPair], changed: frozenset[int], touched: AbstractSet[str], table: DecisionTable
) -> dict[str, Any]:
    """Compare modules by the project's account, and count the decisions of the table; returns fields of the result.

    ``touched`` are modules with functions in another table: they are tuned even if their inlining is LLVM's.
    """
    summary = table.summary
    objective = Objective.LINK_AWARE if summary is None else Objective(summary.objective)
    names = list(pairs)
    plain = account_of(names, {name: one.plain.measured for name, one in pairs.items()}, objective=objective)
    tuned = account_of(names, {name: one.tuned.measured for name, one in pairs.items()}, objective=objective)
    rows: list[CheckedModule] = []
    # A source that several targets compile has an entry for each, of which the compiler finds any.
    groups = [entry.names.tobytes() or index for index, entry in enumerate(table.entries)]
    answered: dict[bytes | int, set[int]] = {}
    elsewhere = 0
    for name, one in pairs.items():
        index = table.find_entry(name, strong_names(one.plain.measured), _answered_sites(one))
        state: State = "new"
        if index is None:
            elsewhere += len(_answered_sites(one))
        else:
            answered.setdefault(groups[index], set()).update(_answered_sites(one).tolist())
            state = "tuned"
            if table.entries[index].plain and name not in touched:
                state = "left plain" if one.plain.measured.totals == one.tuned.measured.totals else "by policies"
        rows.append(
            CheckedModule(
                name=name,
                state=state,
                asked=len(one.tuned.decisions),
                kept=len(_answered_sites(one)),
                allocated=len(changed & set(one.functions.values())),
                plain_bytes=tuned.module_bytes(name, one.plain.measured),
                tuned_bytes=tuned.module_bytes(name, one.tuned.measured),
            )
        )
    known = summary.modules if summary is not None else ()
    decided: dict[bytes | int, set[int]] = {}
    for group, entry in zip(groups, table.entries, strict=True):
        if not entry.plain:
            decided.setdefault(group, set()).update((entry.keys & ~np.uint64(1)).tolist())
    return {
        "modules": tuple(rows),
        "gone": tuple(
            known[index] if index < len(known) else f"module {index}"
            for index in range(len(table.entries))
            if groups[index] not in answered and len(table.entries[index].names)
        ),
        "decisions": sum(map(len, decided.values())),
        "asked": sum(row.asked for row in rows),
        "kept": elsewhere + sum(len(sites & decided.get(group, set())) for group, sites in answered.items()),
        "plain_bytes": plain.image,
        "tuned_bytes": tuned.image,
        "linked": summary is not None and summary.linked,
    }


def _answered_sites(one: BuildPair) -> Any:
    """Keys [K] of the call sites that the decision table decided."""
    decisions = one.tuned.decisions
    by_table = np.zeros(len(decisions), bool) if decisions.by_table is None else decisions.by_table
    return decisions.sites[by_table]


def _link_both(both: Sequence[BuildPair], folder: Path, toolchain: Toolchain) -> dict[str, LinkedImage]:
    """Link the objects of both builds; empty without a linker, or if one link fails."""
    if toolchain.lld is None or not both:
        return {}
    plain, tuned = zip(*(one.objects for one in both), strict=True)
    roots = link_roots(plain)
    before = link_image(plain, folder / "plain.image", roots=roots, lld=toolchain.lld, timeout_seconds=120)
    after = link_image(tuned, folder / "tuned.image", roots=roots, lld=toolchain.lld, timeout_seconds=120)
    linked = before.status is after.status is LinkStatus.LINKED
    return {"plain_link": before, "tuned_link": after} if linked else {}

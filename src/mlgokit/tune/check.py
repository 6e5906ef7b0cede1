"""What of a tuned plugin still applies to code that changed since, and what it saves there now."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compile import HEURISTIC, CompileResult, PluginUse, compile_module
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tables.allocations import allocations_inside
from mlgokit.tables.decisions import DecisionTable, TableEntry, strong_names
from mlgokit.tune.build_pair import WORTH_KEEPING, BuildPair, BuildPairConfig, compile_pairs
from mlgokit.tune.project import Search, try_on_all
from mlgokit.tune.search import ModuleState

State = Literal["tuned", "left plain", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModule:
    """One module of today's code.

    Attributes:
        name: the module.
        state: whether the table has decisions for it, or left it plain, or does not know it.
        asked: decisions that the compiler asked for with the plugin; 0 where the plugin stays out.
        kept: of those, the ones that the table answered.
        allocated: functions that the plugin's other table allocates otherwise; a COMDAT function counts in each module.
        plain_bytes: what it answers for in the project's account under the plain build.
        tuned_bytes: the same with the plugin.
    """

    name: str
    state: State
    asked: int
    kept: int
    allocated: int
    plain_bytes: float
    tuned_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a tuned plugin does for today's code.

    Attributes:
        plugin: the plugin.
        modules: those that compile both ways.
        gone: modules of the table that today's code does not have.
        failures: modules that the compiler does not compile, plainly or with the plugin, with the reason.
        decisions: how many the table holds.
        asked: how many were asked for in modules that the plugin decides.
        kept: how many of those the table answered; each key answers once.
        allocations: functions that the plugin allocates otherwise than LLVM.
        allocations_kept: how many of those today's code has, as they were.
        promised_change: of the project's account when it was tuned, such as -0.06.
        plain_bytes: the account of today's plain build.
        tuned_bytes: the same with the plugin.
        plain_link: all plain objects linked with --gc-sections, or why that failed.
        tuned_link: the same with the plugin.
        left_out: sources of the project that were not compiled, with the reason.
    """

    plugin: str
    modules: tuple[CheckedModule, ...]
    gone: tuple[str, ...]
    failures: dict[str, str]
    decisions: int
    asked: int
    kept: int
    allocations: int
    allocations_kept: int
    promised_change: float | None
    plain_bytes: float
    tuned_bytes: float
    plain_link: LinkedImage | None
    tuned_link: LinkedImage | None
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def share(self) -> float:
        """The part of the table's decisions that today's code asks for; 1 if it has none."""
        return self.kept / self.decisions if self.decisions else 1.0

    @property
    def change(self) -> float:
        """Of the project's account now, with the plugin against plain."""
        return self.tuned_bytes / self.plain_bytes - 1 if self.plain_bytes else 0.0

    @property
    def larger(self) -> tuple[str, ...]:
        """Modules that are larger with the plugin than plain."""
        return tuple(one.name for one in self.modules if one.tuned_bytes > one.plain_bytes)

    @property
    def tune_again(self) -> bool:
        """Whether less is saved than what was promised by more than a little, or a module is larger than plain."""
        lost = self.promised_change is not None and self.change > WORTH_KEEPING * self.promised_change
        return bool(self.larger) or lost

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        value = dataclasses.asdict(self)
        for key in ("plain_link", "tuned_link"):
            if value[key] is not None:
                value[key]["status"] = value[key]["status"].value
        return value | {
            "share": self.share,
            "change": self.change,
            "larger": list(self.larger),
            "tune_again": self.tune_again,
        }


def check_decisions(
    modules: Sequence[Module], config: BuildPairConfig, decided: DecisionTable, *, report: Report
) -> CheckResult:
    """Compile every module plainly and with the plugin of ``config``, whose table is ``decided``, and compare.

    Raises:
        InputError: the plugin's other table is damaged.
    """
    plugin = config.use.plugin
    assert plugin is not None  # noqa: S101  (of a tuning)
    allocations = frozenset(allocations_inside(plugin))
    with tempfile.TemporaryDirectory(prefix="mlgokit-check-") as scratch:
        config = dataclasses.replace(
            config,
            use=dataclasses.replace(config.use, logs=(INLINE_SIZE.name,)),
            lists=bool(allocations),
            objects=Path(scratch),
        )
        twice, failures = compile_pairs(modules, config, report=report)
        links = _links(list(twice.values()), Path(scratch), config.toolchain)
    both = {name: _compared(one, allocations) for name, one in twice.items()}
    return _summary(both, failures, links, plugin=plugin, decided=decided, allocations=len(allocations))


def try_start(search: Search, table: Path, *, workers: int, report: Report) -> None:
    """Compile every module by what of an earlier table still applies, and adopt what is smaller."""

    def compile_one(searched: ModuleState) -> CompileResult:
        return compile_module(
            search.bench.toolchain,
            searched.module.command_line,
            searched.module.bitcode,
            use=PluginUse(
                plugin=search.bench.plugin,
                policies={INLINE_SIZE.name: HEURISTIC},
                logs=(INLINE_SIZE.name,),
                decisions=table.resolve(),
            ),
            timeout_seconds=search.bench.timeout_seconds,
            thinlto_index=searched.module.thinlto_index,
        )

    try_on_all(search, compile_one, workers=workers, report=report, label="try the earlier decisions")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Both:
    """A module compiled plainly and with the plugin.

    Attributes:
        plain: the plain object.
        tuned: the other.
        sites: [D] keys of the decisions that were asked for.
        by_table: [D] whether the table answered.
        functions: keys of the functions that the allocation table has.
    """

    plain: ObjectSizes
    tuned: ObjectSizes
    sites: npt.NDArray[np.uint64]
    by_table: npt.NDArray[np.bool_]
    functions: frozenset[int]


def _compared(one: BuildPair, allocations: frozenset[int]) -> _Both:
    log = one.tuned.logs.get(INLINE_SIZE.name)
    if log is None:
        sites, by_table = np.zeros(0, np.uint64), np.zeros(0, np.bool_)
    else:
        sites = log.columns["site"][:, 0].astype(np.int64).view(np.uint64)
        by_table = log.columns["decided_by_table"][:, 0] != 0
    plain, tuned = one.sizes
    functions = allocations & frozenset(one.functions.values())
    return _Both(plain=plain, tuned=tuned, sites=sites, by_table=by_table, functions=functions)


def _summary(
    both: Mapping[str, _Both],
    failures: dict[str, str],
    links: tuple[LinkedImage | None, LinkedImage | None],
    *,
    plugin: Path,
    decided: DecisionTable,
    allocations: int,
) -> CheckResult:
    promise = decided.promise
    objective = Objective.LINK_AWARE if promise is None else Objective(promise.objective)
    plain = account_of(list(both), {name: one.plain for name, one in both.items()}, objective=objective)
    tuned = account_of(list(both), {name: one.tuned for name, one in both.items()}, objective=objective)
    rows: list[CheckedModule] = []
    seen: set[int] = set()
    for name, one in both.items():
        index = _entry_of(one, decided.entries)
        state: State = "new"
        if index is not None:
            seen.add(index)
            state = "left plain" if decided.entries[index].plain else "tuned"
        rows.append(
            CheckedModule(
                name=name,
                state=state,
                asked=len(one.sites),
                kept=int(one.by_table.sum()),
                allocated=len(one.functions),
                plain_bytes=tuned.module_bytes(name, one.plain),
                tuned_bytes=tuned.module_bytes(name, one.tuned),
            )
        )
    names = promise.modules if promise is not None else ()
    return CheckResult(
        plugin=str(plugin),
        modules=tuple(rows),
        gone=tuple(
            names[index] if index < len(names) else f"module {index}"
            for index in range(len(decided.entries))
            if index not in seen and len(decided.entries[index].names)
        ),
        failures=failures,
        decisions=sum(len(entry.keys) for entry in decided.entries if not entry.plain),
        asked=sum(row.asked for row in rows),
        kept=sum(row.kept for row in rows),
        allocations=allocations,
        allocations_kept=len(frozenset[int]().union(*(one.functions for one in both.values()))),
        promised_change=promise.tuned_bytes / promise.plain_bytes - 1 if promise and promise.plain_bytes else None,
        plain_bytes=plain.image,
        tuned_bytes=tuned.image,
        plain_link=links[0],
        tuned_link=links[1],
    )


def _entry_of(one: _Both, entries: Sequence[TableEntry]) -> int | None:
    """The entry that a module was compiled by: the one with the keys that were answered, else with most names."""
    answered = one.sites[one.by_table]
    names = strong_names(one.plain)
    best, score = None, (0, 0)
    for index, entry in enumerate(entries):
        shared = int(np.isin(names, entry.names).sum())
        found = int(np.isin(answered, entry.keys & ~np.uint64(1)).sum()) if shared and len(answered) else 0
        if (found, shared) > score:
            best, score = index, (found, shared)
    return best


def _links(
    both: Sequence[BuildPair], folder: Path, toolchain: Toolchain
) -> tuple[LinkedImage | None, LinkedImage | None]:
    if toolchain.lld is None or not both:
        return None, None
    plain, tuned = zip(*(one.objects for one in both), strict=True)
    roots = link_roots(plain)
    before = link_image(plain, folder / "plain.image", roots=roots, lld=toolchain.lld, timeout_seconds=120)
    after = link_image(tuned, folder / "tuned.image", roots=roots, lld=toolchain.lld, timeout_seconds=120)
    linked = before.status is after.status is LinkStatus.LINKED
    return (before, after) if linked else (None, None)

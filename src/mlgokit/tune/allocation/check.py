"""What of a plugin that was tuned for spill cost still applies to code that changed since, and what it is worth."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tables.allocations import AllocationTable
from mlgokit.tune.allocation.state import mean_ratio
from mlgokit.tune.build_pair import WORTH_KEEPING, BuildPair, BuildPairConfig, compile_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAllocationModule:
    """One module of today's code.

    Attributes:
        name: the module.
        functions: how many have costs, plainly or with the plugin.
        allocated: functions that the plugin allocates otherwise; a COMDAT function counts in each module.
        worse: functions that cost more with the plugin than plain.
        plain_score: the sum of the functions' scores in the plain build.
        tuned_score: the same with the plugin.
        plain_text: bytes of code in the plain build.
        tuned_text: the same with the plugin.
    """

    name: str
    functions: int
    allocated: int
    worse: tuple[str, ...]
    plain_score: float
    tuned_score: float
    plain_text: int
    tuned_text: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationCheckResult:
    """What a plugin that was tuned for spill cost does for today's code.

    Attributes:
        plugin: the plugin.
        modules: those that compile both ways.
        failures: modules that the compiler does not compile, plainly or with the plugin, with the reason.
        allocations: functions that the plugin allocates otherwise than LLVM.
        allocations_kept: how many of those today's code has, as they were.
        promised_change: of the sum of scores when it was tuned, such as -0.06.
        plain_score: the sum of the functions' scores in today's plain build, a COMDAT function once.
        tuned_score: the same with the plugin.
        mean_change: geometric mean of tuned by plain score over those functions, minus 1.
        left_out: sources of the project that were not compiled, with the reason.
    """

    plugin: str
    modules: tuple[CheckedAllocationModule, ...]
    failures: dict[str, str]
    allocations: int
    allocations_kept: int
    promised_change: float | None
    plain_score: float
    tuned_score: float
    mean_change: float
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def share(self) -> float:
        """The part of the plugin's functions that today's code has; 1 if it has none."""
        return self.allocations_kept / self.allocations if self.allocations else 1.0

    @property
    def change(self) -> float:
        """Of the sum of scores now, with the plugin against plain."""
        return self.tuned_score / self.plain_score - 1 if self.plain_score else 0.0

    @property
    def tune_again(self) -> bool:
        """Whether less is saved than what was promised by more than a little, or a function costs more than plain."""
        lost = self.promised_change is not None and self.change > WORTH_KEEPING * self.promised_change
        return lost or any(one.worse for one in self.modules)

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return dataclasses.asdict(self) | {"share": self.share, "change": self.change, "tune_again": self.tune_again}


def check_allocations(
    modules: Sequence[Module], config: BuildPairConfig, allocations: AllocationTable, *, report: Report
) -> AllocationCheckResult:
    """Compile every module plainly and with the plugin of ``config``, whose table is ``allocations``, and compare."""
    both, failures = compile_pairs(modules, dataclasses.replace(config, regalloc=True), report=report)
    otherwise = {key for key, departures in allocations.by_key.items() if len(departures)}
    once: dict[int | tuple[str, str], tuple[float, float]] = {}
    found: set[int] = set()
    rows: list[CheckedAllocationModule] = []
    for module, one in both.items():
        mine = otherwise & set(one.functions.values())
        found |= mine
        scores = _scores(one)
        for name, pair in scores.items():
            once.setdefault(one.functions.get(name, (module, name)), pair)
        rows.append(_row(module, one, scores, allocated=len(mine)))
    promise = allocations.promise
    return AllocationCheckResult(
        plugin=str(config.use.plugin),
        modules=tuple(rows),
        failures=failures,
        allocations=len(otherwise),
        allocations_kept=len(found),
        promised_change=promise.tuned_score / promise.plain_score - 1 if promise and promise.plain_score else None,
        plain_score=sum(plain for plain, _ in once.values()),
        tuned_score=sum(tuned for _, tuned in once.values()),
        mean_change=mean_ratio(list(once.values())),
    )


def _scores(one: BuildPair) -> dict[str, tuple[float, float]]:
    """Plain and tuned, by function; only of those with costs in either."""
    plain, tuned = one.plain.regalloc, one.tuned.regalloc
    if plain is None or tuned is None:
        return {}
    names = list(dict.fromkeys((*plain.functions, *tuned.functions)))
    pairs = zip(plain.score_of(names).tolist(), tuned.score_of(names).tolist(), strict=True)
    return dict(zip(names, pairs, strict=True))


def _row(
    name: str, one: BuildPair, scores: dict[str, tuple[float, float]], *, allocated: int
) -> CheckedAllocationModule:
    plain, tuned = one.sizes
    return CheckedAllocationModule(
        name=name,
        functions=len(scores),
        allocated=allocated,
        worse=tuple(function for function, (before, after) in scores.items() if after > before),
        plain_score=sum(before for before, _ in scores.values()),
        tuned_score=sum(after for _, after in scores.values()),
        plain_text=plain.totals.text,
        tuned_text=tuned.totals.text,
    )

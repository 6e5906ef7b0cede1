"""The search over register allocations of one project: its functions, what is tried, and what is kept on disk.

Functions are allocated one by one, so every trial says of its function alone what it is worth, to the last digit. Each
departs from the best of the function so far: some evictions and priorities are drawn anew (``plugin/Trials.cpp``).
"""

import io
import json
import math
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.collect import Report, parallel
from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.regalloc_cost import COSTS, OFFSET
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.trials import (
    DEPARTURE,
    TRIAL,
    Departures,
    Outcome,
    Records,
    Series,
    Tried,
    read_tried,
    request_bytes,
)
from mlgokit.corpus.module import Module
from mlgokit.errors import CorpusError, InputError
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.manifest import atomic_write
from mlgokit.tune.project import progress_path

FIRST_TRIALS = 8
MOST_TRIALS = 96
"""Trials of one function in one compilation."""
ROUND_SECONDS = 8.0
"""Processor time of trials in one compilation, at most; less for modules that are compiled quickly."""
LEAST_TRIAL_SECONDS = 1.0
_TINY = 1e-12
"""A probability at which nothing is turned, but questions are counted."""
_PATIENCE = 48
_PATIENCE_PER_QUESTION = 3
_MOST_PATIENCE = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationBench:
    """What compilations of such a tuning have in common.

    Attributes:
        toolchain: whose clang.
        plugin: the generic plugin.
        policies: by problem, policies whose decisions are tried as well.
        eviction: whether evictions are searched.
        priority: whether priorities are.
        timeout_seconds: deadline of one compilation, without trials.
    """

    toolchain: Toolchain
    plugin: Path
    policies: dict[str, str] = field(default_factory=dict[str, str])
    eviction: bool = True
    priority: bool = True
    timeout_seconds: float = 60.0

    def compile(
        self, module: Module, series: Sequence[Series] = (), *, seconds: float = 1.0, costs: bool = False
    ) -> tuple[CompileResult, list[Tried]]:
        """Compile a module as LLVM would, and make the trials of its functions, each within ``seconds``."""
        with tempfile.TemporaryDirectory(prefix="mlgokit-tune-") as scratch:
            folder = Path(scratch)
            (folder / "trials").write_bytes(request_bytes(series, seconds=seconds))
            use = PluginUse(
                plugin=self.plugin,
                policies=self.policies,
                trials=folder / "trials",
                tried=folder / "tried",
            )
            trials = sum(len(one.trials) for one in series)
            result = compile_module(
                self.toolchain,
                module.command_line,
                module.bitcode,
                use=use,
                regalloc=costs,
                timeout_seconds=self.timeout_seconds + 10 * ROUND_SECONDS + 0.1 * trials,
                thinlto_index=module.thinlto_index,
            )
            if result.status is not CompileStatus.OK or not (folder / "tried").exists():
                return result, []
            return result, read_tried(folder / "tried")


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionSearch:
    """A function in the search.

    Attributes:
        key: as the plugin tells it.
        name: its symbol.
        plain: its score as LLVM allocates it.
        score: the best one.
        spills: whether it has costs beside copies, of which most cannot be saved.
        departures: the decisions that gave it.
        start: decisions of an earlier plugin, to be tried first.
        evictions: questions about evictions, once they were counted.
        priorities: questions about priorities.
        trials: how many there were.
        gained: after how many of them the score became better last.
        seconds: what one takes.
    """

    key: int
    name: str
    plain: float
    score: float
    spills: bool = True
    departures: Departures = field(default_factory=Departures)
    start: Departures | None = None
    evictions: int = 0
    priorities: int = 0
    trials: int = 0
    gained: int = 0
    seconds: float = 0.01

    @property
    def exhausted(self) -> bool:
        """Whether so many trials gave nothing that the time is better spent elsewhere."""
        patience = _PATIENCE + _PATIENCE_PER_QUESTION * (self.evictions + self.priorities)
        return self.score <= 0 or self.trials - self.gained >= min(patience, _MOST_PATIENCE)


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleSearch:
    """A module in the search.

    Attributes:
        module: what is compiled.
        keys: of all its functions that come to the allocator, by name.
        functions: those with costs that no earlier module has too.
        compile_seconds: of one compilation without trials.
        rate: gain per second lately; infinite before the first round if there are spills.
        failures: rounds in a row that gave nothing since the compiler failed.
    """

    module: Module
    keys: dict[str, int]
    functions: list[FunctionSearch]
    compile_seconds: float
    rate: float = math.inf
    failures: int = 0

    def __post_init__(self) -> None:
        if not any(one.spills for one in self.functions):
            self.rate = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing to try any more."""
        return self.failures >= 2 or all(one.exhausted for one in self.functions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The search at one moment.

    Attributes:
        wall_seconds: elapsed time.
        user_seconds: processor time of all compilations, trials included.
        compilations: how many there were.
        trials: likewise.
        score: the sum of the best scores.
        change: geometric mean of best by plain score over functions with costs, minus 1.
    """

    wall_seconds: float = 0.0
    user_seconds: float = 0.0
    compilations: int = 0
    trials: int = 0
    score: float = 0.0
    change: float = 0.0


def mean_ratio(scores: Sequence[tuple[float, float]]) -> float:
    """Geometric mean of after by before, each with the offset of relative changes, minus 1.

    Example:
        >>> round(mean_ratio([(100.0, 50.0), (100.0, 100.0)]), 3)
        -0.293
    """
    if not scores:
        return 0.0
    before, after = (np.array(scores) + OFFSET).T
    return geometric_mean_change(before, after)


def open_modules(
    modules: Sequence[Module],
    *,
    bench: AllocationBench,
    folder: Path,
    start: dict[int, Departures],
    workers: int,
    report: Report,
) -> tuple[list[ModuleSearch], dict[str, str], float]:
    """Compile every module once: its functions, what they cost, and how far an earlier search came.

    Returns:
        The modules that compile, reasons for the others by name, and processor seconds.

    Raises:
        CorpusError: no module compiles, or nothing has costs.
    """

    def begin(module: Module) -> tuple[CompileResult, list[Tried]]:
        return bench.compile(module, costs=True)

    results = parallel(begin, modules, workers=workers, report=report, label="compile every module plainly")
    found: list[ModuleSearch] = []
    failures: dict[str, str] = {}
    known: set[int] = set()
    for module, (result, tried) in zip(modules, results, strict=True):
        if result.status is not CompileStatus.OK or result.regalloc is None:
            failures[module.name] = f"{result.status.value}: {result.reason}"
            continue
        keys = {one.name: one.key for one in tried}
        progress = load_functions(progress_path(folder, module.name))
        functions: list[FunctionSearch] = []
        costs = result.regalloc
        beside_copies = costs.costs[:, [name != "copies" for name in COSTS]].sum(axis=1)
        spills: list[bool] = (beside_copies > 0).tolist()
        for name, score, has_spills in zip(costs.functions, costs.scores.tolist(), spills, strict=True):
            key = keys.get(name)
            if key is None or key in known or score <= 0:
                continue
            known.add(key)
            one = FunctionSearch(key=key, name=name, plain=score, score=score, spills=has_spills, start=start.get(key))
            if (kept := progress.get(key)) is not None and kept.score <= score:
                one.score, one.departures = kept.score, kept.departures
                one.trials, one.gained, one.seconds = kept.trials, kept.gained, kept.seconds
                one.evictions, one.priorities = kept.evictions, kept.priorities
            functions.append(one)
        found.append(ModuleSearch(module=module, keys=keys, functions=functions, compile_seconds=result.user_seconds))
    if not any(one.functions for one in found):
        reason = next((f" ({name}: {reason})" for name, reason in failures.items()), "")
        raise CorpusError(
            f"tune: expected functions with spills, reloads or copies, found none in {len(modules)} modules{reason}; "
            "build with -O1 or more: at -O0 LLVM has another allocator"
        )
    return found, failures, sum(result.user_seconds for result, _ in results)


def plan_round(bench: AllocationBench, one: ModuleSearch, rng: np.random.Generator) -> list[Series]:
    """What to try next with the functions of a module."""
    active = [function for function in one.functions if not function.exhausted]
    # Copies come when nothing else is left.
    active = [function for function in active if function.spills] or active
    wanted = [min(MOST_TRIALS, FIRST_TRIALS + 2 * function.trials) for function in active]
    seconds = sum(count * function.seconds for count, function in zip(wanted, active, strict=True))
    room = min(ROUND_SECONDS, max(1.0, 4 * one.compile_seconds))
    share = min(1.0, room / max(seconds, 1e-9))
    asked: list[Series] = []
    for function, count in zip(active, wanted, strict=True):
        trials = _draw(bench, function, max(2, round(share * count)), rng)
        if not function.trials:
            trials["eviction_flips"][0] = trials["priority_flips"][0] = _TINY
            if function.start is not None:
                asked.append(Series(key=function.key, base=function.start, score=math.inf, trials=trials[:1]))
        asked.append(Series(key=function.key, base=function.departures, score=function.score, trials=trials))
    return asked


def _draw(bench: AllocationBench, function: FunctionSearch, count: int, rng: np.random.Generator) -> Records:
    """[count] trials that turn round some decisions, or most.

    Many at once find more than few: measured at 10 s for seven modules, rates drawn evenly from the whole range, or
    their squares, saved a tenth more than rates that are even in their logarithm, and twice as much as small ones.
    """
    trials = np.zeros(count, TRIAL)
    trials["seed"] = rng.integers(0, 2**63, count)
    both = bench.eviction and bench.priority
    which = rng.integers(0, 3, count) if both else np.zeros(count, np.int64)
    for column, searched, left_out in (
        ("eviction_flips", bench.eviction, 1),
        ("priority_flips", bench.priority, 2),
    ):
        rate = rng.random(count) ** rng.integers(1, 4, count)
        trials[column] = np.where(which == left_out, 0.0, rate) if searched else 0.0
    if bench.policies and not function.trials:
        # The policy as it is, and with some decisions turned.
        trials["by_rule"][1::2] = 1
        trials["eviction_flips"][1] = trials["priority_flips"][1] = 0
    return trials


def take(function: FunctionSearch, outcomes: Sequence[Outcome]) -> float:
    """Enter trials of a function; gives by how much the logarithm of its score became smaller."""
    before = function.score
    for outcome in outcomes:
        function.trials += 1
        function.evictions = max(function.evictions, outcome.evictions)
        function.priorities = max(function.priorities, outcome.priorities)
        as_good = outcome.score == function.score and len(outcome.departures) < len(function.departures)
        if outcome.score < function.score or as_good:
            function.gained = function.trials if outcome.score < function.score else function.gained
            function.score, function.departures = outcome.score, outcome.departures
    if outcomes:
        function.seconds = float(np.mean([outcome.seconds for outcome in outcomes]))
    return math.log((before + OFFSET) / (function.score + OFFSET))


def run_round(bench: AllocationBench, one: ModuleSearch, rng: np.random.Generator) -> tuple[CompileResult, int, float]:
    """Try something with each function of a module; gives the compilation, the trials and the gain."""
    asked = plan_round(bench, one, rng)
    by_key = {function.key: function for function in one.functions}
    longest = max((by_key[series.key].seconds for series in asked), default=0.0)
    try:
        result, tried = bench.compile(one.module, asked, seconds=LEAST_TRIAL_SECONDS + 20 * longest)
    except InputError:
        result, tried = CompileResult(status=CompileStatus.BAD_TRACE), []
    made = [found for found in tried if found.outcomes and found.key in by_key]
    one.failures = 0 if made else one.failures + 1
    gain = sum(take(by_key[found.key], found.outcomes) for found in made)
    return result, sum(len(found.outcomes) for found in made), gain


def save_functions(path: Path, functions: Sequence[FunctionSearch]) -> None:
    """Keep what is known of a module's functions.

    Raises:
        StorageError: the disk is full or not writable.
    """
    numbers = [
        (one.evictions, one.priorities, one.trials, one.gained, len(one.departures.evictions), len(one.departures))
        for one in functions
    ]
    records = [part for one in functions for part in (one.departures.evictions, one.departures.priorities)]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        key=np.array([one.key for one in functions], np.uint64),
        score=np.array([(one.plain, one.score, one.seconds) for one in functions], np.float64).reshape(-1, 3),
        numbers=np.array(numbers, np.int64).reshape(-1, 6),
        records=np.concatenate([np.zeros(0, DEPARTURE), *records]).view(np.uint64),
    )
    atomic_write(path, file.getvalue())


def load_functions(path: Path) -> dict[int, FunctionSearch]:
    """What is known of a module's functions, by key; nothing if there is none or its file is damaged."""
    found: dict[int, FunctionSearch] = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            records = stored["records"].view(DEPARTURE)
            rows = zip(stored["key"].tolist(), stored["score"].tolist(), stored["numbers"].tolist(), strict=True)
            for key, (plain, score, seconds), (evictions, priorities, trials, gained, first, both) in rows:
                mine, records = records[:both], records[both:]
                found[key] = FunctionSearch(
                    key=key,
                    name="",
                    plain=plain,
                    score=score,
                    departures=Departures(evictions=mine[:first], priorities=mine[first:]),
                    evictions=evictions,
                    priorities=priorities,
                    trials=trials,
                    gained=gained,
                    seconds=seconds,
                )
    except (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile):
        return {}
    return found


def load_reached(path: Path) -> Reached:
    """Where an earlier search stood."""
    try:
        return Reached(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return Reached()

"""The search over register allocations of one project: its functions, what is tried, and what is kept on disk.

Functions are allocated one by one, so every trial says of its function alone what it is worth, to the last digit. Each
departs from the best of the function so far: some evictions and priorities are drawn anew
(``plugin/regalloc/Trials.cpp``).
What a score is, weights say: what spills, reloads and copies cost, or bytes.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mlgokit.compiler.compile import HEURISTIC, CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.regalloc_cost import COSTS, OFFSET
from mlgokit.compiler.reuse.trials import (
    PENALTY,
    SPILL_COST,
    TRIAL,
    Floats,
    Outcome,
    Overrides,
    Records,
    Series,
    Tried,
    read_tried,
    request_bytes,
)
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError, InputError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tune.allocation.state import FunctionSearch, ModuleSearch, load_functions
from mlgokit.tune.project import progress_path

FIRST_TRIALS = 8
MOST_TRIALS = 96
"""Trials of one function in one compilation."""
ROUND_SECONDS = 8.0
"""Processor time of trials in one compilation, at most; less for modules that are compiled quickly."""
LEAST_TRIAL_SECONDS = 1.0
FEW = (1, 2, 4, 8)
"""Decisions that are turned round in the mean in some of the trials that want bytes."""
EXPECTED = 0.02
"""Part of a function that its first 32 trials are expected to save."""
SHARE_OF_FEW = 0.5
"""How many of the trials."""
_TINY = 1e-12
"""A probability at which nothing is turned, but questions are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationBench:
    """What compilations of such a tuning have in common.

    Attributes:
        toolchain: whose clang.
        plugin: the generic plugin.
        policies: by problem, policies whose decisions are tried as well.
        decisions: a table by which modules are inlined; LLVM's heuristic without one.
        weights: [7] of what a trial measures in the score.
        eviction: whether evictions are searched.
        priority: whether priorities are.
        timeout_seconds: deadline of one compilation, without trials.
    """

    toolchain: Toolchain
    plugin: Path
    policies: dict[str, str] = field(default_factory=dict[str, str])
    decisions: Path | None = None
    weights: Floats = field(default_factory=lambda: SPILL_COST)
    eviction: bool = True
    priority: bool = True
    timeout_seconds: float = 60.0

    @property
    def in_bytes(self) -> bool:
        """Whether scores are bytes of the function, not LLVM's costs."""
        return bool(np.any(self.weights[len(COSTS) :]))

    def compile(
        self, module: Module, series: Sequence[Series] = (), *, seconds: float = 1.0, costs: bool = False
    ) -> tuple[CompileResult, list[Tried]]:
        """Compile a module as LLVM would, and make the trials of its functions, each within ``seconds``."""
        with tempfile.TemporaryDirectory(prefix="mlgokit-tune-") as scratch:
            folder = Path(scratch)
            (folder / "trials").write_bytes(
                request_bytes(series, seconds=seconds, weights=self.weights, penalty=PENALTY if self.in_bytes else 0.0)
            )
            inlining = {} if self.decisions is None else {INLINE_SIZE.name: HEURISTIC}
            use = PluginUse(
                plugin=self.plugin,
                policies=self.policies | inlining,
                decisions=self.decisions,
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
            return result, read_tried(folder / "tried", weights=self.weights)


def open_modules(
    modules: Sequence[Module],
    *,
    bench: AllocationBench,
    folder: Path,
    start: Mapping[int, Overrides],
    workers: int,
    report: Report,
) -> tuple[list[ModuleSearch], dict[str, str], float]:
    """Compile every module once: its functions, what they cost, and how far an earlier search came.

    Returns:
        The modules that compile, reasons for the others by name, and processor seconds.

    Raises:
        CorpusError: no module compiles, or nothing has costs; bytes have all functions.
    """

    def begin(module: Module) -> tuple[CompileResult, list[Tried]]:
        return bench.compile(module, costs=not bench.in_bytes)

    label = "compile every module plainly" if bench.decisions is None else "list the functions"
    results = parallel(begin, modules, workers=workers, report=report, label=label)
    found: list[ModuleSearch] = []
    failures: dict[str, str] = {}
    known: set[int] = set()
    for module, (result, tried) in zip(modules, results, strict=True):
        if result.status is not CompileStatus.OK or (result.regalloc is None and not bench.in_bytes):
            failures[module.name] = f"{result.status.value}: {result.reason}"
            continue
        keys = {one.name: one.key for one in tried}
        progress = load_functions(progress_path(folder, module.name))
        functions: list[FunctionSearch] = []
        for one in _functions_of(result, keys):
            if one.key in known:
                continue
            known.add(one.key)
            one.start = start.get(one.key)
            if (kept := progress.get(one.key)) is not None and kept.score <= one.score:
                one.plain, one.cost = min(one.plain, kept.plain), kept.cost
                one.score, one.departures = kept.score, kept.departures
                one.trials, one.gained, one.seconds = kept.trials, kept.gained, kept.seconds
                one.evictions, one.priorities = kept.evictions, kept.priorities
            functions.append(one)
        found.append(ModuleSearch(module=module, keys=keys, functions=functions, compile_seconds=result.user_seconds))
    if not bench.in_bytes and not any(one.functions for one in found):
        reason = next((f" ({name}: {reason})" for name, reason in failures.items()), "")
        raise CorpusError(
            f"tune: expected functions with spills, reloads or copies, found none in {len(modules)} modules{reason}; "
            "build with -O1 or more: at -O0 LLVM has another allocator"
        )
    return found, failures, sum(result.user_seconds for result, _ in results)


def _functions_of(result: CompileResult, keys: Mapping[str, int]) -> list[FunctionSearch]:
    """The functions with costs; all of them, with scores to be measured, if costs were not asked for."""
    if result.regalloc is None:
        return [FunctionSearch(key=key, name=name, plain=math.inf, score=math.inf) for name, key in keys.items()]
    costs = result.regalloc
    beside_copies = costs.costs[:, [name != "copies" for name in COSTS]].sum(axis=1)
    spills: list[bool] = (beside_copies > 0).tolist()
    return [
        FunctionSearch(key=keys[name], name=name, plain=score, score=score, spills=has_spills)
        for name, score, has_spills in zip(costs.functions, costs.scores.tolist(), spills, strict=True)
        if name in keys and score > 0
    ]


def plan_round(bench: AllocationBench, one: ModuleSearch, rng: np.random.Generator) -> list[Series]:
    """What to try next with the functions of a module."""
    active = [function for function in one.functions if not function.exhausted]
    # Copies come when nothing else is left.
    active = [function for function in active if function.spills] or active
    wanted = [min(MOST_TRIALS, FIRST_TRIALS + 2 * function.trials) for function in active]
    seconds = sum(count * function.seconds for count, function in zip(wanted, active, strict=True))
    room = max(1.0, min(ROUND_SECONDS, 4 * one.compile_seconds), one.compile_seconds)
    share = min(1.0, room / max(seconds, 1e-9))
    if bench.in_bytes and share < 1 and all(function.trials for function in active):
        active, wanted = _most_promising(active, wanted, room)
        share = 1.0
    asked: list[Series] = []
    for function, count in zip(active, wanted, strict=True):
        trials = _draw(bench, function, max(2, round(share * count)), rng)
        if not function.trials:
            trials["eviction_flips"][0] = trials["priority_flips"][0] = _TINY
            if function.start is not None:
                asked.append(Series(key=function.key, base=function.start, score=math.inf, trials=trials[:1]))
        asked.append(
            Series(key=function.key, base=function.departures, score=function.score, trials=trials, free=function.cost)
        )
    return asked


def _most_promising(
    active: Sequence[FunctionSearch], wanted: Sequence[int], room: float
) -> tuple[list[FunctionSearch], list[int]]:
    """Those functions, with all their trials, that saved most in a second lately, as long as there is room."""
    chosen: list[FunctionSearch] = []
    counts: list[int] = []
    for function, count in sorted(zip(active, wanted, strict=True), key=lambda one: -one[0].rate):
        if room <= 0:
            break
        chosen.append(function)
        counts.append(count)
        room -= count * function.seconds
    return chosen, counts


def _draw(bench: AllocationBench, function: FunctionSearch, count: int, rng: np.random.Generator) -> Records:
    """[count] trials that turn round some decisions, or most.

    Of costs, many at once find more than few: measured at 10 s for seven modules, rates drawn evenly from the whole
    range, or their squares, saved a tenth more than rates that are even in their logarithm, and twice as much as small
    ones. Of bytes, few in half of the trials find about as much (docs/results/tuning_registers.md).
    """
    trials = np.zeros(count, TRIAL)
    trials["seed"] = rng.integers(0, 2**63, count)
    both = bench.eviction and bench.priority
    questions = function.evictions + function.priorities if bench.in_bytes else 0
    few, turned = rng.random(count) < SHARE_OF_FEW, rng.choice(FEW, count)
    which = rng.integers(0, 3, count) if both else np.zeros(count, np.int64)
    for column, searched, left_out in (
        ("eviction_flips", bench.eviction, 1),
        ("priority_flips", bench.priority, 2),
    ):
        rate = rng.random(count) ** rng.integers(1, 4, count)
        if questions:
            rate = np.where(few, np.minimum(1.0, turned / questions), rate)
        trials[column] = np.where(which == left_out, 0.0, rate) if searched else 0.0
    if bench.policies and not function.trials:
        # The policy as it is, and with some decisions turned.
        trials["by_rule"][1::2] = 1
        trials["eviction_flips"][1] = trials["priority_flips"][1] = 0
    return trials


def take(function: FunctionSearch, outcomes: Sequence[Outcome], *, in_bytes: bool = False) -> float:
    """Enter trials of a function; gives by how much its score became smaller, of costs the logarithm of it."""
    if math.isinf(function.plain):
        plain = next((one for one in outcomes if not len(one.departures)), None)
        if plain is not None:
            function.plain, function.cost = plain.score, plain.cost
    if math.isinf(function.plain):
        function.trials += len(outcomes)
        return 0.0
    before = min(function.score, function.plain)
    if in_bytes:
        outcomes = [replace(one, score=one.score + PENALTY * max(0.0, one.cost - function.cost)) for one in outcomes]
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
    if in_bytes:
        gain, spent = before - min(function.score, before), sum(one.seconds for one in outcomes)
        first = EXPECTED * function.plain / max(32 * function.seconds, 1e-6)
        earlier = first if math.isinf(function.rate) else function.rate
        function.rate = 0.5 * earlier + 0.5 * gain / max(spent, 1e-6)
        return gain
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
    gain = sum(take(by_key[found.key], found.outcomes, in_bytes=bench.in_bytes) for found in made)
    return result, sum(len(found.outcomes) for found in made), gain

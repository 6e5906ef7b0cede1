"""One step of the search on one module: many independent flips in one compilation, kept by component.

A step compiles once. What would come out with the kept flips alone is composed of what is known, and the next step goes
on from there; so each exploration also shows whether that was right, where its own flips do not reach. Now and then,
and before the search ends, the composed build is compiled. Only builds that were compiled are in the account.
"""

import dataclasses
import functools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, attribute
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.search import functions_as_before, independent_moves, judge, moves_of
from mlgokit.compiler.compile import HEURISTIC, CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.reuse.known import KnownFunctions, may_drop
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import entry_of, strong_names, table_bytes
from mlgokit.tune.compose import compose, ids_of
from mlgokit.tune.state import Build, Keys, build_of

Floats = npt.NDArray[np.float64]
Rank = Callable[[Build], Floats]
"""For each decision [T] the bytes that turning it round is expected to save."""
Propose = Callable[[ScoredBuild], list[tuple[int, ...]]]
"""The moves that may be made from a build, each as positions of the decisions that it turns round."""

COMPOSED = 8
"""Builds that are composed one from the other before the last one is compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What compilations of a tuning have in common.

    Attributes:
        toolchain: whose clang.
        plugin: the generic plugin.
        timeout_seconds: deadline of one compilation.
        residents: compilers that stay, each for a module that is searched; ``None`` starts one for each compilation.
        known: by module, functions that are not generated again; ``None`` generates all.
    """

    toolchain: Toolchain
    plugin: Path
    timeout_seconds: float
    residents: Residents | None = field(default_factory=Residents)
    known: dict[str, KnownFunctions] | None = field(default_factory=dict[str, KnownFunctions])

    def compile(
        self,
        module: Module,
        *,
        decisions: Mapping[int, bool] | None = None,
        names: Keys | None = None,
        policy: str = HEURISTIC,
        keep_object: Path | None = None,
    ) -> CompileResult:
        """Compile a module under the plugin: by ``decisions`` where they know the call site, else by ``policy``."""
        with tempfile.TemporaryDirectory(prefix="mlgokit-tune-") as scratch:
            table = None
            if decisions is not None:
                table = Path(scratch) / "decisions"
                sites, inlined = np.array(list(decisions), np.uint64), np.array(list(decisions.values()), bool)
                table.write_bytes(table_bytes([entry_of(() if names is None else names, sites, inlined)]))
            use = PluginUse(
                plugin=self.plugin,
                policies={INLINE_SIZE.name: policy},
                logs=(INLINE_SIZE.name,),
                decisions=table,
                log_default=False,
            )
            whole = functools.partial(
                compile_module,
                self.toolchain,
                module.command_line,
                module.bitcode,
                use=use,
                keep_object=keep_object,
                timeout_seconds=self.timeout_seconds,
                thinlto_index=module.thinlto_index,
                residents=self.residents,
            )
            known = None
            if self.known is not None and keep_object is None and may_drop(module.command_line):
                known = self.known.setdefault(module.name, KnownFunctions())
            if known is None or known.refused:
                return whole()
            part = whole(known=known)
            if part.status is CompileStatus.TIMED_OUT or (part.status is CompileStatus.OK and not known.refused):
                return part
            known.refused = known.refused or part.reason
            again = whole()
            return dataclasses.replace(again, user_seconds=part.user_seconds + again.user_seconds)

    def compile_plain(self, module: Module, *, keep_object: Path | None = None) -> CompileResult:
        """Compile a module without the plugin."""
        return compile_module(
            self.toolchain,
            module.command_line,
            module.bitcode,
            keep_object=keep_object,
            timeout_seconds=self.timeout_seconds,
            thinlto_index=module.thinlto_index,
        )

    def rest(self) -> None:
        """End the compilers that stay."""
        if self.residents is not None:
            self.residents.close()


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleState:
    """A module in the search.

    Attributes:
        module: what is compiled.
        plain: its object without the plugin.
        build: the best build under the plugin that was compiled.
        names: ids by which the plugin finds the module's decisions.
        composed: what the search goes on from, if it has not been compiled yet.
        composed_steps: how many steps with gains made it.
        tried: how often a move was made in vain.
        rate: bytes saved per second of processor time lately; infinite before the first step.
        exhausted: every decision was tried since the last gain.
        others: of whole builds by other rules the keys of call sites, bit 0 being the decision; not kept on disk.
        idle_seconds: processor time since the last gain.
        drawn: how often a move of a restart was made in vain; not kept on disk.
        pass_from: the build with which the present pass over all moves began; ``None`` before the first.
        passes: how many passes were worth another one.
        vain: restarts in vain since the last gain.
        refused: how often a judge took back what was found.
    """

    module: Module
    plain: ObjectSizes
    build: Build
    names: Keys = field(init=False)
    composed: Build | None = None
    composed_steps: int = 0
    tried: Counter[int] = field(default_factory=Counter[int])
    rate: float = float("inf")
    exhausted: bool = False
    others: list[Keys] = field(default_factory=list[Keys])
    idle_seconds: float = 0.0
    drawn: Counter[int] = field(default_factory=Counter[int])
    pass_from: Build | None = None
    passes: int = 0
    vain: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.names = strong_names(self.plain)


def indifferent(build: Build) -> Floats:
    """The rank that expects nothing of any decision."""
    return np.zeros(len(build.site))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePriority:
    """What a step tries first, and how much of it.

    Attributes:
        rank: what is expected of each decision.
        noise: scale of the random part of the order, in bytes.
        most: moves made at once.
        tries: how often a move may fail before it is left alone.
    """

    rank: Rank
    noise: float
    most: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepResult:
    """What one step did.

    Attributes:
        build: a better build that was compiled, or ``None``.
        composed: what to go on from in place of ``build``, if that was not compiled; ``None`` for the best build.
        composed_steps: how many steps with gains made it.
        failed: keys of the moves that were made in vain.
        compilations: how many were made.
        user_seconds: their processor time.
        flips: decisions turned round; 0 if the step confirmed a composed build.
        kept: of those, the ones that made their component smaller.
        saved: bytes that these save.
        effects: what the flips taught.
    """

    build: Build | None = None
    composed: Build | None = None
    composed_steps: int = 0
    failed: frozenset[int] = frozenset()
    compilations: int = 0
    user_seconds: float = 0.0
    flips: int = 0
    kept: int = 0
    saved: float = 0.0
    effects: MeasuredEffects | None = None


def compiled(
    build: Build, account: ProjectAccount, name: str, flipped: Keys | None = None
) -> tuple[ScoredBuild, float]:
    """A build, ready for credit, and the bytes that the module answers for."""
    functions, scores, rest = account.functions(name, build.sizes)
    turned = np.zeros(len(build.site), bool) if flipped is None else np.isin(build.site, flipped)
    ready = ScoredBuild(
        caller=build.caller,
        callee=build.callee,
        inlined=build.inlined,
        flipped=turned,
        functions=ids_of(functions),
        scores=scores,
    )
    return ready, float(scores.sum()) + rest


def step(
    bench: Bench,
    searched: ModuleState,
    account: ProjectAccount,
    *,
    lock: threading.Lock,
    order: MovePriority,
    rng: np.random.Generator,
    propose: Propose = moves_of,
) -> StepResult:
    """Turn many independent decisions of a module round in one compilation, and keep those that paid.

    Or, if that is due or nothing is left to try, compile what was composed.

    Args:
        bench: how to compile.
        searched: the module; not changed here.
        account: the project's, read under ``lock``, for other modules change while this one is compiled.
        lock: of the account.
        order: what to try first.
        rng: of the random part of the order.
        propose: the moves that there are.
    """
    if searched.composed is not None and searched.composed_steps >= COMPOSED:
        return confirm_composed(bench, searched, account, lock=lock)
    build, name = searched.composed or searched.build, searched.module.name
    with lock:
        base, _ = compiled(build, account, name)
    moves = propose(base)
    sites = build.site.tolist()
    names = [move_key([sites[position] for position in move]) for move in moves]
    expected = order.rank(build)
    worth = np.array([float(expected[list(move)].sum()) for move in moves])
    worth += order.noise * rng.gumbel(size=len(moves))
    ranked: list[int] = np.argsort(-worth).tolist()
    wanted = [index for index in ranked if searched.tried[names[index]] < order.tries]
    made = independent_moves(base, moves, wanted, most=order.most)
    if not made:
        return StepResult() if searched.composed is None else confirm_composed(bench, searched, account, lock=lock)
    every = {sites[position]: names[index] for index in made for position in moves[index]}
    decisions = build.decisions
    turned = decisions | {key: not decisions[key] for key in every}
    result = bench.compile(searched.module, decisions=turned, names=searched.names)
    explored = build_of(result)
    vain = StepResult(
        composed=searched.composed,
        composed_steps=searched.composed_steps,
        failed=frozenset(every.values()),
        compilations=1,
        user_seconds=result.user_seconds,
        flips=len(every),
    )
    if explored is None:
        return vain
    with lock:
        base, _ = compiled(build, account, name)
        after, _ = compiled(explored, account, name, np.array(list(every), np.uint64))
    credit = attribute(base, after)
    if not len(credit.flips):
        return vain
    verdict = judge(credit)
    vain = dataclasses.replace(vain, effects=_effects(explored, credit.flips, credit.component, credit.change))
    if not verdict.kept.any() and searched.composed is None:
        return vain
    kept = frozenset(explored.site[credit.flips[verdict.kept]].tolist())
    tried = dataclasses.replace(
        vain,
        failed=frozenset(move for key, move in every.items() if key not in kept),
        kept=len(kept),
        saved=verdict.gain,
    )
    # What no flip that is taken back has touched, was compiled as it is.
    composed = None if verdict.kept.all() else compose(build, explored, functions_as_before(credit, verdict.kept))
    return _settled(tried, searched, account, explored, composed, lock=lock)


def confirm_composed(
    bench: Bench, searched: ModuleState, account: ProjectAccount, *, lock: threading.Lock
) -> StepResult:
    """Compile what was composed, and go on from that; or from the last build that was, if it is no smaller."""
    if searched.composed is None:
        return StepResult()
    result = bench.compile(searched.module, decisions=searched.composed.decisions, names=searched.names)
    done = StepResult(compilations=1, user_seconds=result.user_seconds)
    return _settled(done, searched, account, build_of(result), None, lock=lock)


def _settled(
    done: StepResult,
    searched: ModuleState,
    account: ProjectAccount,
    real: Build | None,
    composed: Build | None,
    *,
    lock: threading.Lock,
) -> StepResult:
    """The step with what to go on from: the composed build, else the real one, if it is smaller than the best one."""
    name = searched.module.name
    with lock:
        best, known = compiled(searched.build, account, name)
        total = known if real is None else compiled(real, account, name)[1]
        promises = composed is not None and compiled(composed, account, name)[1] < min(known, total)
    smaller = total < known
    done = dataclasses.replace(
        done,
        # Flips that are taken back would shift what other modules answer for.
        build=real if smaller and not promises else None,
        composed=composed if promises else None,
        composed_steps=searched.composed_steps + bool(done.kept) if promises else 0,
    )
    if smaller or promises:
        return done
    # What the flips since the best build seemed to save is not there.
    wanted = composed or real or searched.composed
    lost = frozenset[int]() if wanted is None else moves_between(best, searched.build.site, wanted.decisions)
    return dataclasses.replace(done, failed=done.failed | lost, kept=0, saved=0.0)


def moves_between(base: ScoredBuild, site: Keys, decisions: Mapping[int, bool]) -> frozenset[int]:
    """Keys of the moves that lead from a build with calls at ``site`` [T] to other decisions.

    Example:
        >>> ids = np.array([1, 2])
        >>> none = np.zeros(2, bool)
        >>> base = ScoredBuild(caller=ids, callee=ids, inlined=none, flipped=none, functions=ids, scores=np.zeros(2))
        >>> moves_between(base, np.array([20, 22], np.uint64), {22: True, 24: False})
        frozenset({22})
    """
    sites = site.tolist()
    departed = {
        key for key, taken in zip(sites, base.inlined.tolist(), strict=True) if decisions.get(key, taken) != taken
    }
    keys = ([sites[position] for position in move] for move in moves_of(base))
    return frozenset(move_key(move) for move in keys if departed.issuperset(move))


def move_key(sites: list[int]) -> int:
    """A number for the decisions of a move, the same in every build that asks for them."""
    key = len(sites) - 1
    for site in sites:
        key ^= site
    return key


def _effects(
    build: Build, flips: npt.NDArray[np.int64], component: npt.NDArray[np.int64], change: Floats
) -> MeasuredEffects:
    order = np.argsort(component, kind="stable")
    return MeasuredEffects(
        names=build.names,
        values=build.values[flips[order]],
        sign=np.where(build.inlined[flips[order]], 1, -1).astype(np.float32),
        component=component[order],
        change=change.astype(np.float32),
        project=np.zeros(len(change), np.int64),
        projects=("tuned",),
    )

"""Restarts: larger changes of a module, once no single move makes it smaller any more."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.credit import ScoredBuild
from mlgokit.algorithms.moves import chains, draw_halves, like_decisions, moves_towards, neighbourhood, related_pairs
from mlgokit.algorithms.search import LARGEST_MOVE
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.request import Compiler
from mlgokit.tune.space import IsOver
from mlgokit.tune.spaces.inlining.state import ModuleState, RestartKind, StepResult
from mlgokit.tune.spaces.inlining.step import (
    MovePriority,
    Propose,
    compile_decided,
    indifferent,
    merge,
    scored,
    step,
)

_LEAST_SHARE, _LARGEST_SHARE = 0.05, 0.3
"""Limits on the size of a neighbourhood, as shares of a module's decisions; the size is drawn between them."""
_LOCAL_STEPS = 3
"""Steps of local search after the decisions of a neighbourhood were drawn again."""
_MEMORY = 0.9
"""Factor on the earlier statistics of a kind of restart when one more restart is counted."""
_OPTIMISM = 0.1
"""Lowest rate that is assumed of a kind of restart, as a share of the best kind's bytes per second."""


@dataclass(slots=True, kw_only=True)
class ArmStatistics:
    """The gain of a kind of restart lately; older restarts count less.

    Attributes:
        saved: bytes saved.
        seconds: processor time.
        restarts: number of restarts.
    """

    saved: float = 0.0
    seconds: float = 0.0
    restarts: float = 0.0

    @property
    def rate(self) -> float:
        """Bytes saved per second."""
        return self.saved / max(self.seconds, 1e-3)

    @property
    def mean_seconds(self) -> float:
        """Mean processor time of a restart in seconds; 1 before the first."""
        return self.seconds / self.restarts if self.restarts else 1.0

    def enter(self, saved: float, seconds: float) -> None:
        """Count one more restart."""
        self.saved = _MEMORY * self.saved + saved
        self.seconds = _MEMORY * self.seconds + seconds
        self.restarts = _MEMORY * self.restarts + 1


def choose_restart(arms: Mapping[RestartKind, ArmStatistics], rng: np.random.Generator) -> RestartKind:
    """Draw a kind of restart, so that each gets time in proportion to the bytes per second that it saved.

    Kinds that were not tried yet come first.
    """
    kinds = list(RestartKind)
    if fresh := [kind for kind in kinds if kind not in arms]:
        return fresh[int(rng.integers(len(fresh)))]
    rates = np.array([arms[kind].rate for kind in kinds])
    shares = np.maximum(rates, _OPTIMISM * rates.max()) if rates.max() > 0 else np.ones(len(kinds))
    weights = shares / [max(arms[kind].mean_seconds, 1e-3) for kind in kinds]
    return kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]


def restart(
    compiler: Compiler,
    state: ModuleState,
    account: ProjectAccount,
    *,
    kind: RestartKind,
    priority: MovePriority,
    rng: np.random.Generator,
    is_over: IsOver,
) -> StepResult:
    """Change a module's best build by more than one move, and keep the parts that are smaller.

    Args:
        compiler: compiler of the module.
        state: the module; not changed here.
        account: the project's account, read under its lock.
        kind: kind of the restart.
        priority: order of the moves of local search; restarts with moves of their own ignore its ranks.
        rng: source of random draws.
        is_over: whether the budget is spent, so that the restart gives up.
    """
    if kind is RestartKind.NEIGHBOURHOOD:
        done = _search_neighbourhood(compiler, state, account, priority=priority, rng=rng, is_over=is_over)
        return dataclasses.replace(done, kind=kind, base=state.build)
    fresh = ModuleState(module=state.module, plain=state.plain, build=state.build, tried=state.drawn)
    done = step(
        compiler,
        fresh,
        account,
        # The proposal has drawn its moves.
        priority=dataclasses.replace(priority, rank=indifferent),
        rng=rng,
        propose=_moves_of_kind(kind, state, rng),
    )
    return dataclasses.replace(done, kind=kind, base=state.build, made=frozenset())


def _moves_of_kind(kind: RestartKind, state: ModuleState, rng: np.random.Generator) -> Propose:
    """A function that proposes the moves of a kind of restart, for a single step."""

    def propose(base: ScoredBuild) -> list[tuple[int, ...]]:
        if kind is RestartKind.PAIRS:
            return related_pairs(base, rng)
        if kind is RestartKind.OTHERS:
            if not state.others:
                return []
            other = state.others[int(rng.integers(len(state.others)))]
            best, decision = state.build.decisions, np.uint64(1)
            known = np.isin(best.sites | decision, other | decision)
            wanted = np.where(known, np.isin(best.sites | decision, other), best.inlined)
            return moves_towards(base, wanted, by_caller=rng.random() < 0.5)
        if kind is RestartKind.CALLERS:
            alike = [group for group in like_decisions(base, by_caller=True) if len(group) > 1]
            return alike + draw_halves(moves_towards(base, ~base.inlined, by_caller=True), rng)
        groups = like_decisions(base)
        many = [group for group in groups if len(group) > LARGEST_MOVE]
        return many + chains(base, rng) + draw_halves(groups, rng)

    return propose


def _search_neighbourhood(
    compiler: Compiler,
    state: ModuleState,
    account: ProjectAccount,
    *,
    priority: MovePriority,
    rng: np.random.Generator,
    is_over: IsOver,
) -> StepResult:
    """Draw the decisions of a neighbourhood again, search locally from there, and merge what is smaller."""
    build, name = state.build, state.module.name
    with account.lock:
        base, _ = scored(build, account, name)
    size = max(2, round(rng.uniform(_LEAST_SHARE, _LARGEST_SHARE) * len(build.decisions)))
    start = _override_by_rule(build, neighbourhood(base, size, rng), priority, rng)
    result = compile_decided(compiler, state.module, start, state.names)
    compilations, seconds = 1, result.user_seconds
    if not result.ok or not len(result.decisions):
        return StepResult(compilations=compilations, user_seconds=seconds)
    elsewhere = ModuleState(module=state.module, plain=state.plain, build=result)
    for _ in range(_LOCAL_STEPS):
        if is_over():
            break
        done = step(compiler, elsewhere, account, priority=priority, rng=rng)
        if not done.compilations:
            break
        compilations, seconds = compilations + done.compilations, seconds + done.user_seconds
        elsewhere.tried.update(done.failed)
        elsewhere.build = done.build or elsewhere.build
        elsewhere.composed, elsewhere.climb.composed_steps = done.composed, done.composed_steps
    result = elsewhere.build
    with account.lock:
        merged = merge(build, elsewhere.current, account, name)
    if merged.taken and (merged.is_new or elsewhere.composed is not None) and not is_over():
        result = compile_decided(compiler, state.module, merged.decisions, state.names)
        compilations, seconds = compilations + 1, seconds + result.user_seconds
    with account.lock:
        before = account.module_bytes(name, build.measured)
        saved = before - account.module_bytes(name, result.measured) if result.ok else 0.0
    return StepResult(
        build=result if saved > 0 else None,
        compilations=compilations,
        user_seconds=seconds,
        flips=merged.differing,
        kept=merged.taken if saved > 0 else 0,
        saved=max(saved, 0.0),
    )


def _override_by_rule(
    build: Compilation, positions: tuple[int, ...], priority: MovePriority, rng: np.random.Generator
) -> dict[int, bool]:
    """The decisions of a build, with those at ``positions`` replaced by a drawn rule.

    Rules are: at random, never, always, LLVM's decision, and the decision that a policy prefers, with noise.
    """
    places = list(positions)
    decisions, keys = build.decisions.by_site, build.decisions.sites[places].tolist()
    noise = rng.gumbel(size=len(places)) - rng.gumbel(size=len(places))
    rules = (
        rng.random(len(places)) < 0.5,
        np.zeros(len(places), bool),
        np.ones(len(places), bool),
        build.decisions.inlined[places] ^ (priority.rank(build)[places] + priority.noise * noise > 0),
    )
    rule = int(rng.integers(len(rules) + 1))
    if rule == len(rules):
        # LLVM decides about call sites without a decision.
        left = decisions.keys() - set(keys)
        return {key: inlined for key, inlined in decisions.items() if key in left}
    inlined = rules[rule]
    return decisions | dict(zip(keys, inlined.tolist(), strict=True))

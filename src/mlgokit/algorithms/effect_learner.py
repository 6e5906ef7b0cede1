"""Decision-effect regression as a learner: explore around the last fit, and refit to the effects of all turns."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import EffectRegressionConfig
from mlgokit.algorithms.effect_fit import FitReport, fit_effects
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.gate import GateEvidence
from mlgokit.algorithms.learner import DEFAULT_RULE, Actor, Experience, Ints, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import draw_modules, draw_seeds, propose_following
from mlgokit.algorithms.rewards import relative_gain
from mlgokit.errors import UsageError
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import policy_bytes, read_policy_bytes

_BASE = 1
"""Position of the proposal that the explorations are compared with."""
_POLICY = "policy"
"""Name of the state array with the bytes of the fitted policy's file."""
_EXPLORED_MARGINS = "policy/explored_margins"


def make(task: Task, settings: EffectRegressionConfig) -> Learner:
    """Make the learner of decision-effect regression.

    Raises:
        UsageError: all modules have more decisions than ``settings.most_decisions``.
    """
    small = _small_modules(task, settings)

    def start(rng: np.random.Generator) -> State:
        del rng
        return {}

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        del rng
        modules, seeds = _draw_modules(task, settings, small, turn=_turns(state))
        actor = DEFAULT_RULE if _POLICY not in state and task.start is None else _exploring_policy(best(state), state)
        base = dataclasses.replace(propose_following(actor, modules), detail="scores")
        return (_propose_exploring(task, settings, actor, np.repeat(modules, settings.explorations), seeds), base)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        del proposals, rng
        fitting = np.random.default_rng([task.seed, _turns(state)])
        state = {**state, "turns": np.array(_turns(state) + 1)}
        effects = append_effects(state, experiences, task)
        state = {**state, **{f"effects/{name}": value for name, value in effects.items()}}
        metrics = _metrics(experiences, effects)
        if not len(effects["change"]):
            return state, metrics
        policy, report, fitted_on = _fit(effects, task, settings, fitting)
        metrics |= {"correlation": report.correlation, **_gate_metrics(report.gate)}
        explored = {_EXPLORED_MARGINS: np.array([side.explored_margin for side in report.gate])} if report.gate else {}
        file = np.frombuffer(policy_bytes(policy), np.uint8)
        return {**state, _POLICY: file, **explored, "policy/fitted_on": fitted_on}, metrics

    def best(state: State) -> Policy:
        if _POLICY in state:
            return read_policy_bytes(state[_POLICY].tobytes(), "of the checkpoint")
        return _zero_policy(task, settings) if task.start is None else task.start

    def best_without(state: State, project: int) -> Policy | None:
        fitted_on = state.get("policy/fitted_on")
        return None if fitted_on is None else best(state).select_members(~fitted_on[:, project])

    return Learner(start=start, ask=ask, tell=tell, best=best, best_without=best_without)


def _small_modules(task: Task, settings: EffectRegressionConfig) -> Ints:
    """Select the modules with at most ``settings.most_decisions`` decisions."""
    if task.decisions is None or not settings.most_decisions:
        return np.arange(task.modules)
    small = np.flatnonzero(task.decisions <= settings.most_decisions)
    if not len(small):
        raise UsageError(
            f"effect-regression: expected at least one of {task.modules} modules to have at most most_decisions="
            f"{settings.most_decisions} decisions, found {task.decisions.min()} in the smallest; "
            "raise it, as with --setting most_decisions=100000"
        )
    return small


def _turns(state: State) -> int:
    """Count the finished turns."""
    return int(state.get("turns", np.array(0)))


def _draw_modules(task: Task, settings: EffectRegressionConfig, small: Ints, *, turn: int) -> tuple[Ints, Ints]:
    """Draw the modules of a turn, counted from 0, and a seed for each exploration of them.

    The draws of all turns are one stream from the run's seed, over all modules that compile, as in the published
    results. So the draws of earlier turns are repeated here, and modules without decisions are drawn and dropped.
    """
    rng = np.random.default_rng(task.seed)
    place = np.arange(task.modules) if task.place is None else task.place
    large = np.delete(place, small)
    drawable = np.setdiff1d(np.arange(max(task.modules, task.compiled)), large)
    first = min(settings.modules or len(drawable), len(drawable))

    def next_draws(count: int) -> tuple[Ints, Ints]:
        modules = drawable if count == len(drawable) else drawable[draw_modules(len(drawable), count, rng)]
        return modules, draw_seeds(count * settings.explorations, rng)

    places, seeds = next_draws(first)
    for _ in range(turn):
        places, seeds = next_draws(max(1, round(settings.later_share * first)))
    decide = np.isin(places, place)
    return np.searchsorted(place, places[decide]), seeds[np.repeat(decide, settings.explorations)]


def _propose_exploring(
    task: Task, settings: EffectRegressionConfig, actor: Actor, modules: Ints, seeds: Ints
) -> Proposal:
    """Propose explorations around ``actor``; flip probabilities count for modules that take no decision table."""
    share = np.full(len(modules), settings.flip_probability)
    if task.decisions is not None:
        share = np.maximum(share, settings.least_flips / np.maximum(task.decisions[modules], 1))
    return Proposal(
        actor=actor,
        modules=modules,
        seeds=seeds,
        temperature=0.0 if isinstance(actor, str) else settings.temperature,
        flip_probability=np.minimum(0.3, share),
        independent=settings.independent,
        base=_BASE,
        detail="departures",
    )


def _fit(
    effects: Mapping[str, npt.NDArray[Any]], task: Task, settings: EffectRegressionConfig, rng: np.random.Generator
) -> tuple[Policy, FitReport, npt.NDArray[np.bool_]]:
    """Fit a policy to all effects; returns it, the report, and which of the task's projects each member was fitted on.

    The last is bool [K, projects of the task].
    """
    # Members leave projects out, and one without effects would be left out for nothing.
    present, project = np.unique(effects["project"], return_inverse=True)
    measured = MeasuredEffects(
        names=task.features,
        values=effects["values"],
        sign=effects["sign"],
        component=effects["component"],
        change=effects["change"],
        project=project,
        projects=tuple(str(number) for number in present.tolist()),
        departs=effects["away"],
    )
    policy, report = fit_effects(measured, settings.fit, problem=task.problem, rng=rng)
    fitted_on = np.zeros((len(report.fitted_on), int(task.project.max()) + 1), bool)
    fitted_on[:, present] = report.fitted_on
    return policy, report, fitted_on


def _metrics(experiences: Sequence[Experience], effects: Mapping[str, npt.NDArray[Any]]) -> dict[str, float]:
    """Compute the numbers that a turn reports: of its compilations, and of all effects so far."""
    changed = sum(float(np.abs(one.change).sum()) for one in experiences if one.change is not None)
    missed = sum(one.unattributed for one in experiences)
    return {
        "gain": relative_gain(experiences),
        "base_change": -relative_gain([one for one in experiences if one.proposal == _BASE]),
        "flips": float(len(effects["sign"])),
        "components": float(len(effects["change"])),
        "unattributed_share": missed / max(changed + missed, 1e-9),
    }


def _exploring_policy(policy: Policy, state: State) -> Policy:
    """Make the policy to explore around: its gate is open on each side that paid over all projects."""
    if policy.gate is None or _EXPLORED_MARGINS not in state:
        return policy
    unset, is_set = state[_EXPLORED_MARGINS].tolist()
    return dataclasses.replace(policy, gate=dataclasses.replace(policy.gate, margins=(unset, is_set)))


def _gate_metrics(gate: Sequence[GateEvidence]) -> dict[str, float]:
    """Flatten the evidence of each side of the gate into numbers by name, such as ``gate/set/margin``."""
    return {
        f"gate/{'set' if side.feature_is_set else 'unset'}/{name}": float(getattr(side, name))
        for side in gate
        for name in ("departures", "saved_bytes", "error_bytes", "alone_saved_bytes", "alone_error_bytes", "margin")
        # A closed side has no margin.
        if math.isfinite(getattr(side, name))
    }


def append_effects(state: State, experiences: Sequence[Experience], task: Task) -> dict[str, npt.NDArray[Any]]:
    """Append the effects of ``experiences`` to those in ``state``; returns fields of ``MeasuredEffects``."""
    width = len(task.features)
    parts: dict[str, list[npt.NDArray[Any]]] = {
        "values": [state.get("effects/values", np.zeros((0, width), np.int64))],
        "sign": [state.get("effects/sign", np.zeros(0, np.float32))],
        "component": [state.get("effects/component", np.zeros(0, np.int64))],
        "change": [state.get("effects/change", np.zeros(0, np.float32))],
        "project": [state.get("effects/project", np.zeros(0, np.int64))],
        "away": [state.get("effects/away", np.zeros(0, bool))],
    }
    begin = len(parts["change"][0])
    for experience in experiences:
        if experience.component is None or experience.change is None:
            continue
        flips = np.flatnonzero(experience.component >= 0)
        used, component = np.unique(experience.component[flips], return_inverse=True)
        # The regression wants the flips of a component next to each other.
        order = np.argsort(component, kind="stable")
        parts["values"].append(experience.features[flips[order]].astype(np.int64))
        parts["sign"].append(np.where(experience.decisions[flips[order]] > 0, 1.0, -1.0).astype(np.float32))
        parts["away"].append((experience.decisions != experience.defaults)[flips[order]])
        parts["component"].append(component[order].astype(np.int64) + begin)
        parts["change"].append(experience.change[used].astype(np.float32))
        parts["project"].append(np.full(len(used), task.project[experience.module], np.int64))
        begin += len(used)
    return {name: np.concatenate(parts[name]) for name in parts}


def _zero_policy(task: Task, settings: EffectRegressionConfig) -> Policy:
    """Make a policy that predicts no effect, and so never inlines."""
    width = len(task.features)
    return Policy(
        problem=task.problem,
        features=task.features,
        normaliser=SignedLog(mean=np.zeros(width, np.float32), scale=np.zeros(width, np.float32), clip=1.0),
        layers=(Layer(np.zeros((1, width, 1), np.float32), np.zeros((1, 1), np.float32)),),
        output=OutputKind.EFFECT_BYTES,
        bytes_per_unit=settings.fit.bytes_per_unit,
    )

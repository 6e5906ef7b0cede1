"""Decision-effect regression as a learner: explore around the last fit, and fit anew to the effects of all rounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import EffectRegressionConfig
from mlgokit.algorithms.effect_fit import fit_effects
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.learner import DEFAULT_RULE, Actor, Experience, Ints, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import drawn_modules, drawn_seeds, followed
from mlgokit.algorithms.rewards import relative_gain
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog

_EFFECTS = ("values", "sign", "component", "change", "project", "away")


def make(task: Task, settings: EffectRegressionConfig) -> Learner:
    """Effect regression for ``task``."""

    def start(rng: np.random.Generator) -> State:
        del rng
        return {"decisions": np.zeros(task.modules, np.int64)}

    def actor_of(state: State) -> Actor:
        if "policy/mean" in state:
            return best(state)
        return DEFAULT_RULE if task.start is None else task.start

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        modules = drawn_modules(task.modules, min(settings.modules, task.modules), rng)
        actor = actor_of(state)
        exploring = _exploring(settings, actor, np.repeat(modules, settings.explorations), state["decisions"], rng)
        return (exploring, followed(actor, modules))

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        del proposals
        counts = state["decisions"].copy()
        for experience in experiences:
            counts[experience.module] = len(experience.decisions)
        effects = with_effects(state, experiences, task)
        metrics = {"gain": relative_gain(experiences), "flips": float(len(effects["sign"]))}
        state = {**state, "decisions": counts, **{f"effects/{name}": value for name, value in effects.items()}}
        if not len(effects["change"]):
            return state, metrics
        names = tuple(str(project) for project in range(int(task.project.max()) + 1))
        measured = MeasuredEffects(names=task.features, projects=names, **effects)
        policy, report = fit_effects(measured, settings.fit, problem=task.problem, rng=rng)
        return {**state, **_packed(policy)}, metrics | {"correlation": report.correlation}

    def best(state: State) -> Policy:
        if "policy/mean" in state:
            return _unpacked(state, task, settings)
        return _nothing_known(task, settings) if task.start is None else task.start

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _exploring(
    settings: EffectRegressionConfig, actor: Actor, modules: Ints, decisions: Ints, rng: np.random.Generator
) -> Proposal:
    """Explorations around ``actor``; ``decisions`` is how many each module had, or 0 before it was seen."""
    seeds, nothing = drawn_seeds(len(modules), rng), np.zeros(len(modules))
    if settings.independent:
        return Proposal(
            actor=actor,
            modules=modules,
            seeds=seeds,
            temperature=0.0,
            flip_probability=nothing,
            independent=settings.independent,
            base=1,
        )
    # Before a module was seen, its share of flips is a guess.
    known = decisions[modules]
    least = np.where(known > 0, settings.least_flips / np.maximum(known, 1), settings.flip_probability)
    return Proposal(
        actor=actor,
        modules=modules,
        seeds=seeds,
        temperature=0.0 if isinstance(actor, str) else settings.temperature,
        flip_probability=np.minimum(0.3, np.maximum(settings.flip_probability, least)),
        base=1,
    )


def with_effects(state: State, experiences: Sequence[Experience], task: Task) -> dict[str, npt.NDArray[Any]]:
    """The effects in ``state`` and those of the departures in ``experiences``, as fields of ``MeasuredEffects``."""
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
    return {name: np.concatenate(parts[name]) for name in _EFFECTS}


def _nothing_known(task: Task, settings: EffectRegressionConfig) -> Policy:
    """A policy that expects no effect of anything, and so never inlines."""
    width = len(task.features)
    return Policy(
        problem=task.problem,
        features=task.features,
        normaliser=SignedLog(mean=np.zeros(width, np.float32), scale=np.zeros(width, np.float32), clip=1.0),
        layers=(Layer(np.zeros((1, width, 1), np.float32), np.zeros((1, 1), np.float32)),),
        output=OutputKind.EFFECT_BYTES,
        bytes_per_unit=settings.fit.bytes_per_unit,
    )


def _packed(policy: Policy) -> State:
    if not isinstance(policy.normaliser, SignedLog):
        raise TypeError("effect regression fits policies with the signed-log normaliser")
    arrays: dict[str, npt.NDArray[Any]] = {
        "policy/mean": policy.normaliser.mean,
        "policy/scale": policy.normaliser.scale,
        "policy/clip": np.array(policy.normaliser.clip),
    }
    if policy.gate is not None:
        arrays["policy/margins"] = np.array(policy.gate.margins)
    for index, layer in enumerate(policy.layers):
        arrays |= {f"policy/weight{index}": layer.weight, f"policy/bias{index}": layer.bias}
    return arrays


def _unpacked(state: State, task: Task, settings: EffectRegressionConfig) -> Policy:
    depth = len(settings.fit.hidden) + 1
    gate = None
    if "policy/margins" in state:
        elsewhere, there = state["policy/margins"].tolist()
        gate = Gate(feature=settings.fit.gate_feature, margins=(elsewhere, there))
    return Policy(
        problem=task.problem,
        features=task.features,
        normaliser=SignedLog(mean=state["policy/mean"], scale=state["policy/scale"], clip=float(state["policy/clip"])),
        layers=tuple(Layer(state[f"policy/weight{index}"], state[f"policy/bias{index}"]) for index in range(depth)),
        output=OutputKind.EFFECT_BYTES,
        bytes_per_unit=settings.fit.bytes_per_unit,
        caution=settings.fit.caution,
        gate=gate,
    )

"""One contract for all learners: on a small world with a known best, each finds most of it, and does so repeatably.

The world: modules of 5 to 30 decisions with six features; each decision changes the score by an amount that its
features decide, plus a little noise. The heuristic is a poor rule. A learner's share is what its policy saves against
the heuristic, as a part of what the best decisions would save, on modules that it has not seen.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.config import (
    BcConfig,
    DistillationConfig,
    DqnConfig,
    EffectConfig,
    EffectRegressionConfig,
    ImitationConfig,
    PpoConfig,
)
from mlgokit.algorithms.learner import Experience, Learner, Proposal, State, Task, state_bytes, state_from_bytes
from mlgokit.algorithms.registry import LEARNERS, check_recurrent, make_learner
from mlgokit.errors import InputError, UsageError
from mlgokit.policy.network import Gate, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import policy_bytes
from mlgokit.spec import AdviceKind

FEATURES = ("cost", "uses", "depth", "size", "calls", "noise")
COLUMNS = 5
CASES = [(name, kind) for name, entry in LEARNERS.items() for kind in AdviceKind if kind in entry.kinds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """N decisions: features [N, 6] or [N, 5, 6], mask [N, 5], and what the choices cost."""

    features: np.ndarray
    mask: np.ndarray | None
    defaults: np.ndarray
    component: np.ndarray
    context: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    kind: AdviceKind
    modules: tuple[Module, ...]


def effect(features: np.ndarray) -> np.ndarray:
    """Bytes that choosing this adds."""
    cost, uses, depth, size = (features[..., index].astype(float) for index in range(4))
    return np.where(uses == 1, -18 - 0.2 * size, 0.6 * cost - 12) + 2 * np.minimum(depth, 3)


def wanted(features: np.ndarray) -> np.ndarray:
    """The best real answer."""
    return np.log1p(features[..., 0]) - 0.4 * features[..., 2]


def make_world(kind: AdviceKind, *, modules: int, seed: int) -> World:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(modules):
        count = int(rng.integers(5, 31))
        shape = (count, COLUMNS) if kind is AdviceKind.MASKED_CHOICE else (count,)
        bounds = ((0, 60), (1, 4), (0, 6), (0, 80), (0, 9), (-9, 9))
        features = np.stack([rng.integers(low, high, shape) for low, high in bounds], axis=-1)
        mask = None
        if kind is AdviceKind.MASKED_CHOICE:
            mask = rng.random(shape) < 0.7
            mask[np.arange(count), rng.integers(0, COLUMNS, count)] = True
            defaults: np.ndarray = np.where(mask, features[..., 0], 99).argmin(axis=1)
        elif kind is AdviceKind.BINARY:
            defaults = (features[:, 0] < 10).astype(np.int64)
        else:
            defaults = features[:, 0] / 20
        component = np.cumsum(rng.random(count) < 0.6)
        context = component // 4 if kind is not AdviceKind.BINARY else np.zeros(count, np.int64)
        made.append(Module(features=features, mask=mask, defaults=defaults, component=component, context=context))
    return World(kind=kind, modules=tuple(made))


def costs(world: World, module: Module, decisions: np.ndarray) -> np.ndarray:
    """What each decision adds to the score."""
    if world.kind is AdviceKind.BINARY:
        return effect(module.features) * decisions
    if world.kind is AdviceKind.MASKED_CHOICE:
        return effect(module.features)[np.arange(len(decisions)), decisions] + 30
    return 10 * (decisions - wanted(module.features)) ** 2


def best_decisions(world: World, module: Module) -> np.ndarray:
    if world.kind is AdviceKind.BINARY:
        return (effect(module.features) < 0).astype(np.int64)
    if module.mask is not None:
        return np.where(module.mask, effect(module.features), np.inf).argmin(axis=1)
    return wanted(module.features)


def preferences(world: World, actor: Policy | str, module: Module) -> np.ndarray:
    """What the actor prefers: [N], or [N, 5]."""
    if isinstance(actor, Policy):
        if world.kind is AdviceKind.BINARY:
            return actor.preferences(module.features)
        answers = actor.answers(module.features.reshape(-1, len(FEATURES))).mean(axis=0)
        return answers.reshape(module.features.shape[:-1])
    if world.kind is AdviceKind.MASKED_CHOICE:
        return np.where(np.arange(COLUMNS) == module.defaults[:, None], 99.0, 0.0)
    if world.kind is AdviceKind.REAL:
        return module.defaults.astype(float)
    return {":default": np.where(module.defaults > 0, 60.0, -60.0), ":always": np.full(len(module.defaults), 60.0)}.get(
        actor, np.full(len(module.defaults), -60.0)
    )


def decide(
    world: World, preference: np.ndarray, mask: np.ndarray | None, temperature: float, flip: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Decisions [N] and the logarithms of their chances, as :class:`Proposal` describes them."""
    rng = np.random.default_rng(seed)
    count = len(preference)
    if world.kind is AdviceKind.REAL:
        noise = rng.normal(size=count) * temperature
        density = -0.5 * (noise / (temperature or 1)) ** 2 - np.log((temperature or 1) * np.sqrt(2 * np.pi))
        return preference + noise, density
    choices = np.stack([-preference, preference], axis=1) / 2 if world.kind is AdviceKind.BINARY else preference
    legal = np.ones(choices.shape, bool) if mask is None else mask
    scaled = np.where(legal, choices, -np.inf)
    if temperature:
        chance = np.exp((scaled - scaled.max(axis=1, keepdims=True)) / temperature)
        chance /= chance.sum(axis=1, keepdims=True)
    else:
        chance = np.eye(choices.shape[1])[scaled.argmax(axis=1)]
    others = np.maximum(legal.sum(axis=1, keepdims=True) - 1, 0)
    turned = np.where(legal & (others > 0), (1 - chance) / np.maximum(others, 1), chance)
    chance = chance * (1 - flip) + turned * flip
    decisions = np.minimum((rng.random(count)[:, None] > np.cumsum(chance, axis=1)).sum(axis=1), chance.shape[1] - 1)
    if mask is not None:
        decisions = np.where(mask[np.arange(count), decisions], decisions, scaled.argmax(axis=1))
    return decisions, np.log(np.maximum(chance[np.arange(count), decisions], 1e-30))


def compile_all(world: World, proposals: Sequence[Proposal]) -> list[Experience]:
    """What the loop with the real compiler does, credit against the base included."""
    decided: dict[tuple[int, int], np.ndarray] = {}
    done: list[Experience] = []
    for number in sorted(range(len(proposals)), key=lambda number: proposals[number].base is not None):
        proposal = proposals[number]
        for position, index in enumerate(proposal.modules.tolist()):
            module = world.modules[index]
            preference = preferences(world, proposal.actor, module)
            seed = int(proposal.seeds[position])
            flip = float(proposal.flip_probability[position])
            decisions, logs = decide(world, preference, module.mask, proposal.temperature, flip, seed)
            if proposal.forced:
                decisions[proposal.forced[position].sites] = proposal.forced[position].decisions
            base = None if proposal.base is None else decided[proposal.base, index]
            if proposal.independent and base is not None:
                # One of each component, in a random order.
                order = np.random.default_rng(seed).permutation(len(base))
                _, first = np.unique(module.component[order], return_index=True)
                decisions = base.copy()
                decisions[order[first][: proposal.independent]] ^= 1
            decided[number, index] = decisions
            done.append(experience(world, module, decisions, base, logs, (number, position, index)))
    return sorted(done, key=lambda one: (one.proposal, one.compilation))


def experience(
    world: World,
    module: Module,
    decisions: np.ndarray,
    base: np.ndarray | None,
    logs: np.ndarray,
    place: tuple[int, int, int],
) -> Experience:
    contexts = int(module.context[-1]) + 1
    noise = np.random.default_rng([*place, int(abs(decisions.sum() * 1000))]).normal(size=contexts)
    component: np.ndarray | None = None
    change: np.ndarray | None = None
    if base is not None:
        departed = decisions != base
        difference = costs(world, module, decisions) - costs(world, module, base)
        component = np.where(departed, module.component, -1)
        change = np.bincount(module.component, difference).astype(np.float64)

    def scores(chosen: np.ndarray) -> np.ndarray:
        return 150 + np.bincount(module.context, 30 + costs(world, module, chosen), minlength=contexts)

    return Experience(
        proposal=place[0],
        compilation=place[1],
        module=place[2],
        features=module.features,
        mask=module.mask,
        decisions=decisions,
        log_probability=logs,
        defaults=module.defaults,
        sites=np.arange(len(decisions)),
        context=module.context,
        context_ids=np.arange(contexts) + 100,
        scores=scores(decisions) + noise,
        default_scores=scores(module.defaults),
        component=component,
        change=change,
        base_decisions=base,
    )


def task_of(world: World) -> Task:
    rows = np.concatenate([module.features.reshape(-1, len(FEATURES)) for module in world.modules])
    return Task(
        problem="inline-size",
        kind=world.kind,
        features=FEATURES,
        normaliser=fit_signed_log(rows),
        mask="mask" if world.kind is AdviceKind.MASKED_CHOICE else "",
        project=np.arange(len(world.modules)) % 5,
    )


def learn(
    learner: Learner, world: World, *, compilations: int, seed: int = 1, state: State | None = None, turns: int = 10_000
) -> tuple[State, int]:
    """Turns until the budget is spent; each turn has a generator of its own, as a loop that can be resumed must."""
    if state is None:
        state = learner.start(np.random.default_rng([seed, 0]))
        first = 1
    else:
        first = int(state["turn"])
        state = {name: value for name, value in state.items() if name != "turn"}
    spent = 0
    for turn in range(first, first + turns):
        rng = np.random.default_rng([seed, turn])
        proposals = learner.ask(state, rng)
        spent += sum(len(proposal.modules) for proposal in proposals)
        if spent > compilations and turn > 1:
            return {**state, "turn": np.array(turn)}, spent
        before = {name: value.copy() for name, value in state.items()}
        after, metrics = learner.tell(state, proposals, compile_all(world, proposals), rng)
        assert all(np.array_equal(before[name], state[name]) for name in before), "tell changed its argument"
        assert all(np.isfinite(value) for value in metrics.values()), metrics
        state = after
    return {**state, "turn": np.array(first + turns)}, spent


def share_of_best(world: World, policy: Policy) -> float:
    saved = possible = 0.0
    for module in world.modules:
        preference = preferences(world, policy, module)
        chosen, _ = decide(world, preference, module.mask, 0.0, 0.0, 0)
        default = costs(world, module, module.defaults).sum()
        saved += default - costs(world, module, chosen).sum()
        possible += default - costs(world, module, best_decisions(world, module)).sum()
    return saved / possible


LEAST_SHARE = {
    # It imitates the heuristic, whose own share is 0 by definition.
    ("behavioural-cloning", AdviceKind.BINARY): -0.1,
    ("behavioural-cloning", AdviceKind.MASKED_CHOICE): -0.1,
    ("behavioural-cloning", AdviceKind.REAL): -0.1,
    # It only knows whole contexts to be better or worse, not decisions.
    ("bc-max", AdviceKind.MASKED_CHOICE): 0.5,
    # It only knows whole networks to be better or worse.
    ("es", AdviceKind.REAL): 0.6,
}
"""Where less than 0.7 is expected."""

COMPILATIONS = {
    "behavioural-cloning": 300,
    "bc-max": 2000,
    "dqn": 600,
    "effect-regression": 700,
    "es": 2000,
    "local-search": 1600,
    "ppo": 1200,
}
"""What each may spend; the two that only know whole contexts or networks to be better or worse need more."""


def settings(name: str) -> Any:
    """The defaults; the thresholds above are reached with what a user gets."""
    return LEARNERS[name].presets["default"]


def quick_settings(name: str) -> Any:
    """As the defaults, with less work where the defaults take seconds for a turn."""
    if name == "effect-regression":
        return EffectRegressionConfig(fit=EffectConfig(members=2, epochs=3, batch_flips=256))
    return settings(name)


LONG = {
    ("bc-max", AdviceKind.BINARY),
    ("bc-max", AdviceKind.MASKED_CHOICE),
    ("dqn", AdviceKind.BINARY),
}
"""Fifteen seconds together; the same learners learn another kind of advice in the fast half."""


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*case, marks=pytest.mark.slow) if case in LONG else case for case in CASES]
)
def test_it_finds_most_of_the_best_on_modules_it_has_not_seen(name: str, kind: AdviceKind):
    world, unseen = make_world(kind, modules=200, seed=1), make_world(kind, modules=100, seed=2)
    learner = make_learner(name, task_of(world), settings(name))

    state, spent = learn(learner, world, compilations=COMPILATIONS.get(name, 1000))

    share = share_of_best(unseen, learner.best(state))
    assert share >= LEAST_SHARE.get((name, kind), 0.7), f"{share:.2f} of the best after {spent} compilations"


def test_effect_regression_learns_from_random_flips():
    world, unseen = (
        make_world(AdviceKind.BINARY, modules=200, seed=1),
        make_world(AdviceKind.BINARY, modules=100, seed=2),
    )
    learner = make_learner("effect-regression", task_of(world), preset="random")

    state, spent = learn(learner, world, compilations=700)

    share = share_of_best(unseen, learner.best(state))
    assert share >= 0.7, f"{share:.2f} of the best after {spent} compilations"


def test_effect_regression_explores_where_its_policy_leaves_decisions_to_the_heuristic():
    world = make_world(AdviceKind.BINARY, modules=20, seed=3)
    fit = EffectConfig(members=2, epochs=3, batch_flips=256, gate_feature="calls")
    learner = make_learner("effect-regression", task_of(world), EffectRegressionConfig(fit=fit))
    learned, _ = learn(learner, world, compilations=10**6, turns=1)
    state = {name: value for name, value in learned.items() if name != "turn"}
    closed = dataclasses.replace(learner.best(state), gate=Gate(feature="calls", margins=(np.inf, 2.0)))
    changed = {
        "policy": np.frombuffer(policy_bytes(closed), np.uint8), "policy/explored_margins": np.array([2.0, 2.0]),
    }  # fmt: skip
    assert changed.keys() <= state.keys()

    actors = [one.actor for one in learner.ask({**state, **changed}, np.random.default_rng(1))]

    explored = [actor.gate.margins for actor in actors if isinstance(actor, Policy) and actor.gate is not None]
    assert explored == [(2.0, 2.0)] * len(actors)
    handed_out = learner.best({**state, **changed})
    assert handed_out.gate is not None
    assert handed_out.gate.margins == (np.inf, 2.0)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_run_that_was_interrupted_gives_the_same_bits(name: str, kind: AdviceKind):
    world = make_world(kind, modules=5, seed=3)
    learner = make_learner(name, task_of(world), quick_settings(name))

    whole, _ = learn(learner, world, compilations=10**6, turns=3)
    half, _ = learn(learner, world, compilations=10**6, turns=1)
    stored = state_bytes(half, learner=name)
    rest, _ = learn(
        make_learner(name, task_of(world), quick_settings(name)),
        world,
        compilations=10**6,
        turns=2,
        state=state_from_bytes(stored, learner=name),
    )

    assert state_bytes(state_from_bytes(stored, learner=name), learner=name) == stored
    assert state_bytes(rest, learner=name) == state_bytes(whole, learner=name)


def test_ppo_keeps_its_bonus_for_the_unseen_in_a_checkpoint():
    world = make_world(AdviceKind.BINARY, modules=5, seed=3)
    settings = PpoConfig(modules=5, distillation=DistillationConfig(scale=1.0))
    learner = make_learner("ppo", task_of(world), settings)

    whole, _ = learn(learner, world, compilations=10**6, turns=2)
    half, _ = learn(learner, world, compilations=10**6, turns=1)
    stored = state_from_bytes(state_bytes(half, learner="ppo"), learner="ppo")
    rest, _ = learn(learner, world, compilations=10**6, turns=1, state=stored)

    assert whole["distillation/moments"][3] == 2 * settings.steps
    assert state_bytes(rest, learner="ppo") == state_bytes(whole, learner="ppo")
    plain, _ = learn(make_learner("ppo", task_of(world)), world, compilations=10**6, turns=1)
    assert not [name for name in plain if name.startswith("distillation")]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("behavioural-cloning", BcConfig(imitation=ImitationConfig(recurrent=4, steps=5))),
        ("dqn", DqnConfig(recurrent=4, modules=5, steps=5)),
    ],
)
def test_a_recurrent_network_is_in_the_checkpoint(name: str, settings: Any):
    world = make_world(AdviceKind.BINARY, modules=5, seed=3)
    learner = make_learner(name, task_of(world), settings)

    whole, _ = learn(learner, world, compilations=10**6, turns=2)
    half, _ = learn(learner, world, compilations=10**6, turns=1)
    stored = state_from_bytes(state_bytes(half, learner=name), learner=name)
    rest, _ = learn(learner, world, compilations=10**6, turns=1, state=stored)

    assert state_bytes(rest, learner=name) == state_bytes(whole, learner=name)
    assert learner.best({key: value for key, value in rest.items() if key != "turn"}).recurrent == 4


def test_other_learners_and_problems_refuse_a_recurrent_network():
    for name, problem in (("ppo", "inline-size"), ("local-search", "inline-size"), ("dqn", "regalloc-eviction")):
        with pytest.raises(UsageError, match=f"algorithm {name}: expected one of behavioural-cloning, dqn, bc-max and"):
            check_recurrent(name, problem, 3)
        check_recurrent(name, problem, 0)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_nothing_that_compiles_is_no_reason_to_fail(name: str, kind: AdviceKind):
    world = make_world(kind, modules=5, seed=3)
    learner = make_learner(name, task_of(world), quick_settings(name))
    state = learner.start(np.random.default_rng(0))
    proposals = learner.ask(state, np.random.default_rng(1))

    after, _ = learner.tell(state, proposals, [], np.random.default_rng(1))

    assert learner.ask(after, np.random.default_rng(2))
    assert learner.best(after).features == FEATURES


def test_a_learner_refuses_a_kind_of_advice_it_cannot_learn():
    world = make_world(AdviceKind.REAL, modules=2, seed=1)
    for name, entry in LEARNERS.items():
        if AdviceKind.REAL not in entry.kinds:
            with pytest.raises(UsageError, match=f"algorithm {name}: expected an algorithm that learns real advice"):
                make_learner(name, task_of(world))


def test_names_presets_and_settings_are_checked():
    task = task_of(make_world(AdviceKind.BINARY, modules=2, seed=1))
    with pytest.raises(UsageError, match=r"algorithm: expected one of .*ppo.*, found 'a2c'; name one of these"):
        make_learner("a2c", task)
    with pytest.raises(UsageError, match="algorithm ppo: expected one of the presets default, reference, found 'huge'"):
        make_learner("ppo", task, preset="huge")
    with pytest.raises(UsageError, match="algorithm ppo: expected settings of the class PpoConfig, found int"):
        make_learner("ppo", task, 3)


def test_the_bytes_of_another_state_are_refused():
    data = state_bytes({"a": np.zeros(2)}, learner="ppo")
    with pytest.raises(InputError, match="expected version 2 of a state of 'dqn', found version 2 of 'ppo'"):
        state_from_bytes(data, learner="dqn")
    with pytest.raises(InputError, match="expected the safetensors file of a learner's state, found something else"):
        state_from_bytes(data[:40], learner="ppo")

"""Decision-effect regression: predict what a decision does to the size, and decide by the sign.

A network f(x) predicts the change of the score, in bytes, when the call site with features x is inlined rather than
not. The sum of sign * f over the flips of a component is fitted to the component's measured change (Huber loss). All
members of an ensemble are fitted at once, each on a random share of the projects, with early stopping on the others;
early stopping by project keeps the policy from overfitting to its training projects.
"""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.gate import GateEvidence, choose_gate
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog, fit_signed_log

Weights = list[dict[str, jax.Array]]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """Diagnostics of a fit; K members, P projects.

    Attributes:
        correlation: correlation of predicted and measured changes on validation projects, over all members.
        gate: evidence for the policy's gate; empty if the policy has none.
        fitted_on: bool [K, P] which projects each member was fitted on.
    """

    correlation: float
    gate: tuple[GateEvidence, ...]
    fitted_on: npt.NDArray[np.bool_]


def fit_effects(
    effects: MeasuredEffects, config: EffectConfig, *, problem: str, rng: np.random.Generator
) -> tuple[Policy, FitReport]:
    """Fit an ensemble to ``effects``; ``rng`` draws the split, the initial weights, the order and the dropout."""
    normaliser = fit_signed_log(effects.values)
    inputs = normaliser.apply(effects.values)
    fitted_on, training, validation = _split(effects, config, rng)
    weights = _initial(inputs.shape[1], config, rng)
    batches_per_epoch = max(1, -(-len(effects.sign) // config.batch_flips))
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.epochs * (batches_per_epoch + 1))
    optimiser = optax.adamw(schedule, weight_decay=config.weight_decay)
    state = optimiser.init(weights)
    step = _step_function(optimiser, config)
    predict = jax.jit(_predict)
    best = weights
    lowest = np.full(config.members, np.inf)
    target = effects.change / config.unit_bytes
    huber = config.huber_bytes / config.unit_bytes
    for _ in range(config.epochs):
        for flips, segments, components in _batches(effects.component, config.batch_flips, rng):
            key = jax.random.key(int(rng.integers(2**31)))
            weights, state = step(
                weights,
                state,
                inputs[flips],
                np.where(segments < len(components), effects.sign[flips], 0).astype(np.float32),
                segments,
                target[components],
                training[:, components] * (components >= 0),
                key,
            )
        sums = _component_sums(np.asarray(predict(weights, inputs)), effects)
        errors = np.abs(sums - target)
        loss = np.where(errors < huber, errors**2 / 2, huber * (errors - huber / 2))
        validated = (loss * validation).sum(axis=1) / np.maximum(validation.sum(axis=1), 1e-9)
        better = validated < lowest
        lowest = np.where(better, validated, lowest)
        best = _better_of(better, weights, best)
    predicted = np.asarray(predict(best, inputs))
    sums = _component_sums(predicted, effects)
    unseen = validation > 0
    correlation = _correlation(sums[unseen], np.broadcast_to(target, sums.shape)[unseen])
    validating = unseen[:, effects.component]
    # A component that every member was fitted on is validated by none, and predicts 0.
    prediction = (predicted * validating).sum(axis=0) / np.maximum(validating.sum(axis=0), 1)
    gate, evidence = choose_gate(
        effects, prediction * config.unit_bytes, feature=config.gate_feature, margin=config.gate_margin
    )
    report = FitReport(correlation=correlation, gate=evidence, fitted_on=fitted_on)
    policy = _policy(best, normaliser, effects.names, config, problem)
    return dataclasses.replace(policy, gate=gate), report


def _split(
    effects: MeasuredEffects, config: EffectConfig, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """Draw the projects that each member is fitted on.

    Returns:
        bool [K, P] which projects each member is fitted on; the weight [K, C] of each component in training; and its
        weight [K, C] in validation. A component weighs 1 / sqrt(components of its project), or 0 on the other side.
    """
    count = len(effects.projects)
    share = np.bincount(effects.project, minlength=count)
    weight = (1 / np.sqrt(np.maximum(share, 1)))[effects.project].astype(np.float32)
    weight /= weight.mean()
    # Each project is left out about equally often: members take the next ones of shuffled rounds of all projects.
    absent = max(1, round(count * (1 - config.project_share))) if count > 1 else 0
    queue: list[int] = []
    training = np.ones((config.members, count), bool)
    for member in range(config.members):
        while len(set(queue)) < absent:
            queue += rng.permutation(count).tolist()
        out = list(dict.fromkeys(queue))[:absent]
        for project in out:
            queue.remove(project)
        training[member, out] = False
    chosen = training[:, effects.project]
    validation = ~chosen if absent else chosen
    return training, weight * chosen, (weight * validation).astype(np.float32)


def _initial(width: int, config: EffectConfig, rng: np.random.Generator) -> Weights:
    """Make He-normal hidden layers and a last layer of zeros, so that the initial prediction is no effect."""
    layers: Weights = []
    sizes = [width, *config.hidden, 1]
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        scale = 0.0 if index == len(config.hidden) else np.sqrt(2 / inputs)
        drawn = rng.normal(size=(config.members, inputs, outputs)) * scale
        layers.append({"weight": jnp.asarray(drawn, jnp.float32), "bias": jnp.zeros((config.members, outputs))})
    return layers


def _better_of(better: npt.NDArray[np.bool_], new: Weights, old: Weights) -> Weights:
    """Take the ``new`` weights of the members that are ``better`` [K], and the ``old`` ones of the others."""
    return jax.tree.map(lambda one, other: jnp.where(better.reshape(-1, *[1] * (one.ndim - 1)), one, other), new, old)


def _predict(weights: Weights, inputs: Any, key: Any = None, dropout: float = 0.0) -> jax.Array:
    """Predict the effects [K, N] of inputs [N, W] by each member, in units of ``EffectConfig.unit_bytes``."""
    hidden = jnp.broadcast_to(inputs, (weights[0]["weight"].shape[0], *inputs.shape))
    for index, layer in enumerate(weights):
        hidden = jnp.einsum("kni,kio->kno", hidden, layer["weight"]) + layer["bias"][:, None, :]
        if index + 1 < len(weights):
            hidden = jax.nn.relu(hidden)
            if key is not None:
                keep = jax.random.bernoulli(jax.random.fold_in(key, index), 1 - dropout, hidden.shape)
                hidden = jnp.where(keep, hidden / (1 - dropout), 0)
    return hidden[:, :, 0]


def _step_function(optimiser: optax.GradientTransformation, config: EffectConfig) -> Any:
    """Make the compiled function that performs one gradient step on a batch of components."""
    huber = config.huber_bytes / config.unit_bytes

    def loss(weights: Weights, *batch: Any) -> jax.Array:
        inputs, sign, segments, target, share, key = batch
        effect = _predict(weights, inputs, key, config.dropout) * sign
        sums = jax.vmap(lambda row: jax.ops.segment_sum(row, segments, num_segments=len(target) + 1))(effect)[:, :-1]
        return jnp.sum(optax.huber_loss(sums, jnp.broadcast_to(target, sums.shape), delta=huber) * share) / jnp.maximum(
            share.sum() / share.shape[0], 1e-9
        )

    @jax.jit
    def step(weights: Weights, state: Any, *batch: Any) -> tuple[Weights, Any]:
        gradient = jax.grad(loss)(weights, *batch)
        updates, state = optimiser.update(gradient, state, weights)
        return cast("Weights", optax.apply_updates(weights, updates)), state

    return step


def _batches(
    component: npt.NDArray[np.int64], size: int, rng: np.random.Generator
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Draw batches of whole components: flips [B], the segment of each [B], and the components [B]; padded.

    A component with more flips than a batch is left out. Padding flips are in the segment after the last component.
    """
    starts = np.flatnonzero(np.diff(component, prepend=-1))
    counts = np.diff(starts, append=len(component))
    order = rng.permutation(np.flatnonzero(counts <= size))
    ends = np.cumsum(counts[order])
    begin = 0
    while begin < len(order):
        base = ends[begin - 1] if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, base + size, side="right")))
        chosen = order[begin:stop]
        begin = stop
        places = np.repeat(np.arange(len(chosen)), counts[chosen])
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(counts[chosen]) - counts[chosen], counts[chosen])
        flips = np.zeros(size, np.int64)
        segments = np.full(size, size, np.int64)
        components = np.full(size, -1, np.int64)
        flips[: len(places)] = starts[chosen][places] + offsets
        segments[: len(places)] = places
        components[: len(chosen)] = chosen
        yield flips, segments, components


def _component_sums(predicted: Floats, effects: MeasuredEffects) -> Floats:
    """Sum sign * prediction [K, N] over the flips of each component, [K, C]."""
    sums = np.zeros((len(predicted), len(effects.change)), np.float32)
    for row, prediction in zip(sums, predicted, strict=True):
        row[:] = np.bincount(effects.component, prediction * effects.sign, minlength=len(effects.change))
    return sums


def _correlation(predicted: Floats, measured: Floats) -> float:
    """Compute Pearson's correlation; 0 where it is not defined."""
    if len(predicted) < 2 or predicted.std() == 0 or measured.std() == 0:
        return 0.0
    return float(np.corrcoef(predicted, measured)[0, 1])


def _policy(
    weights: Weights, normaliser: SignedLog, names: tuple[str, ...], config: EffectConfig, problem: str
) -> Policy:
    """Make the policy of fitted weights, with the output scaled from units to bytes."""
    layers = [Layer(np.asarray(layer["weight"]), np.asarray(layer["bias"])) for layer in weights]
    unit = np.float32(config.unit_bytes)
    layers[-1] = Layer(layers[-1].weight * unit, layers[-1].bias * unit)
    return Policy(
        problem=problem,
        features=names,
        normaliser=normaliser,
        layers=tuple(layers),
        output=OutputKind.EFFECT_BYTES,
        bytes_per_unit=config.bytes_per_unit,
        doubt=config.doubt,
    )

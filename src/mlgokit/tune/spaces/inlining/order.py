"""In which order decisions are tried: by what a policy expects, which is fitted to what the search has measured."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.effects import MeasuredEffects, join_effects
from mlgokit.compiler.compilation import Compilation
from mlgokit.module import Module
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.targets import for_modules
from mlgokit.problems import INLINE_SIZE
from mlgokit.tune.spaces.inlining.step import Floats, Rank, indifferent

LEAST_COMPONENTS = 500
"""Labels below which no policy is fitted."""
LEAST_MODULES = 4
"""Modules below which steps take their place: members stop on modules that they were not fitted on."""
_GROUPS = 8
"""Of steps, in place of modules."""
_MOST_RANKED = 256
"""Builds whose order is kept."""


def rank_by(policy: Policy | None) -> Rank:
    """Order decisions by what a policy expects of flipping them; without a policy, all are alike."""
    if policy is None:
        return indifferent
    known: dict[int, tuple[Compilation, Floats]] = {}
    scale = policy.bytes_per_unit if policy.output is OutputKind.EFFECT_BYTES else 1.0

    def rank(build: Compilation) -> Floats:
        # The build is kept beside the answer, so that no other one can have its id.
        if id(build) in known:
            return known[id(build)][1]
        decisions = build.decisions
        if not len(decisions) or not set(policy.features) <= set(decisions.names):
            return np.zeros(len(decisions))
        columns = [decisions.names.index(name) for name in policy.features]
        towards = scale * policy.preferences(decisions.values[:, columns])
        found: Floats = np.where(decisions.inlined, -towards, towards)
        if len(known) >= _MOST_RANKED:
            known.clear()
        known[id(build)] = build, found
        return found

    return rank


def fit_order(
    effects: Sequence[MeasuredEffects], config: EffectConfig, modules: Sequence[Module], *, rng: np.random.Generator
) -> Policy | None:
    """Fit a policy to what was measured; ``None`` if that is too little, or the framework is not there.

    Args:
        effects: of each step.
        config: settings of the regression.
        modules: of the project, for whose target the policy decides.
        rng: draws.
    """
    if len(modules) < LEAST_MODULES:
        effects = [
            dataclasses.replace(part, projects=(f"steps {index % _GROUPS}",)) for index, part in enumerate(effects)
        ]
    groups = {part.projects for part in effects}
    if sum(len(part.change) for part in effects) < LEAST_COMPONENTS or len(groups) < LEAST_MODULES:
        return None
    try:
        from mlgokit.algorithms.effect_fit import fit_effects
    except ImportError:
        return None
    fitted, _ = fit_effects(join_effects(effects), config, problem=INLINE_SIZE.name, rng=rng)
    return for_modules(fitted, modules)

"""All learners by name. An entry names its module, so that the table can be read without loading JAX."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mlgokit.algorithms.config import (
    BC_REFERENCE,
    DQN_REFERENCE,
    EFFECT_RANDOM,
    ES_CMA,
    ES_REFERENCE,
    PPO_REFERENCE,
    BcConfig,
    BcMaxConfig,
    DqnConfig,
    EffectRegressionConfig,
    EsConfig,
    LocalSearchConfig,
    PpoConfig,
)
from mlgokit.algorithms.learner import Learner, Task
from mlgokit.errors import UsageError
from mlgokit.spec import AdviceKind

BINARY_ONLY = frozenset({AdviceKind.BINARY})
DISCRETE = frozenset({AdviceKind.BINARY, AdviceKind.MASKED_CHOICE})
ALL_KINDS = frozenset(AdviceKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One learner.

    Attributes:
        summary: one line for help texts.
        module: where its function ``make(task, settings)`` is.
        kinds: the kinds of advice that it can learn.
        presets: settings by name; ``default`` is always there.
    """

    summary: str
    module: str
    kinds: frozenset[AdviceKind]
    presets: Mapping[str, Any]


LEARNERS: dict[str, Entry] = {
    "behavioural-cloning": Entry(
        summary="imitation of the heuristic",
        module="mlgokit.algorithms.behavioural_cloning",
        kinds=ALL_KINDS,
        presets={"default": BcConfig(), "reference": BC_REFERENCE},
    ),
    "dqn": Entry(
        summary="a value for each answer, the highest is taken",
        module="mlgokit.algorithms.dqn",
        kinds=DISCRETE,
        presets={"default": DqnConfig(), "reference": DQN_REFERENCE},
    ),
    "effect-regression": Entry(
        summary="what a decision does to the score in bytes, decided by its sign",
        module="mlgokit.algorithms.effect_learner",
        kinds=BINARY_ONLY,
        presets={"default": EffectRegressionConfig(), "random": EFFECT_RANDOM},
    ),
    "es": Entry(
        summary="evolution strategies: perturbed networks, and the direction in which scores fall",
        module="mlgokit.algorithms.es",
        kinds=ALL_KINDS,
        presets={
            "default": EsConfig(),
            "cma": ES_CMA,
            "reference": ES_REFERENCE,
        },
    ),
    "bc-max": Entry(
        summary="imitation of whichever of several advisors did best",
        module="mlgokit.algorithms.bc_max",
        kinds=ALL_KINDS,
        presets={"default": BcMaxConfig()},
    ),
    "local-search": Entry(
        summary="imitation of what single departures found to be better",
        module="mlgokit.algorithms.local_search",
        kinds=ALL_KINDS,
        presets={"default": LocalSearchConfig()},
    ),
    "ppo": Entry(
        summary="clipped policy gradient, as the reference implementation's",
        module="mlgokit.algorithms.ppo",
        kinds=ALL_KINDS,
        presets={"default": PpoConfig(), "reference": PPO_REFERENCE},
    ),
}


def make_learner(name: str, task: Task, settings: Any = None, *, preset: str = "default") -> Learner:
    """The learner ``name`` for ``task``, with ``settings`` or those of a preset.

    Raises:
        UsageError: there is no such learner or preset, the settings are another learner's, or the learner cannot learn
            this kind of advice.
    """
    if name not in LEARNERS:
        raise UsageError(f"algorithm: expected one of {', '.join(LEARNERS)}, found {name!r}; name one of these")
    entry = LEARNERS[name]
    if preset not in entry.presets:
        raise UsageError(
            f"algorithm {name}: expected one of the presets {', '.join(entry.presets)}, found {preset!r}; "
            "name one of these"
        )
    chosen = entry.presets[preset] if settings is None else settings
    wanted = cast("type[object]", type(entry.presets["default"]))
    if not isinstance(chosen, wanted):
        raise UsageError(
            f"algorithm {name}: expected settings of the class {wanted.__name__}, found {type(chosen).__name__}; "
            "give it its own settings"
        )
    if task.kind not in entry.kinds:
        able = ", ".join(key for key, other in LEARNERS.items() if task.kind in other.kinds)
        raise UsageError(
            f"algorithm {name}: expected one that learns {task.kind.value} advice, as {task.problem} needs; "
            f"use one of {able}"
        )
    return cast("Learner", importlib.import_module(entry.module).make(task, chosen))

"""The table of all learners. An entry names its module, so that the table can be read without loading JAX."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from mlgokit.algorithms.config import (
    BC_REFERENCE,
    BC_REFERENCE_EVICTION,
    BC_SMALL,
    DQN_REFERENCE,
    EFFECT_RANDOM,
    EFFECT_SMALL,
    ES_CMA,
    ES_REFERENCE,
    ES_REFERENCE_EVICTION,
    PPO_REFERENCE,
    PPO_REFERENCE_EVICTION,
    PPO_REFERENCE_PRIORITY,
    BcConfig,
    BcMaxConfig,
    DqnConfig,
    EffectRegressionConfig,
    EsConfig,
    LocalSearchConfig,
    PassTrialsConfig,
    PpoConfig,
    RangeTrialsConfig,
)
from mlgokit.algorithms.learner import Learner, Task
from mlgokit.errors import ToolError, UsageError
from mlgokit.problems import INLINE_SIZE
from mlgokit.spec import AdviceKind

BINARY_ONLY = frozenset({AdviceKind.BINARY})
DISCRETE = frozenset({AdviceKind.BINARY, AdviceKind.MASKED_CHOICE})
ALL_KINDS = frozenset(AdviceKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDefaults:
    """Defaults of the training loop for a preset.

    Attributes:
        iterations: iterations of a run without a budget.
        evaluate_every: iterations between validations; 0 for never.
        validation_share: share of the training projects that is kept apart for validation. If it is 0, members of an
            ensemble are validated on projects that they were not fitted on.
        normaliser: kind of normaliser that is fitted to a trace of the heuristic.
    """

    iterations: int = 20
    evaluate_every: int = 5
    validation_share: float = 0.2
    normaliser: Literal["signed-log", "quantile"] = "signed-log"


FEW_TURNS = LoopDefaults(iterations=3, evaluate_every=1, validation_share=0.0)
"""A few iterations without projects for validation only: members of the ensemble are validated on projects that they
were not fitted on."""

ONE_TURN = LoopDefaults(iterations=1, evaluate_every=0, validation_share=0.0, normaliser="quantile")
"""One iteration. There is one policy to choose from, so nothing is validated."""

TRIALS = "trials"
"""Name of the preset that tries whole policies on single functions, in forked copies of the compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One learner of the table.

    Attributes:
        module: name of the Python module that has the learner's function ``make(task, settings)``.
        kinds: kinds of advice that it can learn.
        presets: settings by name; there is always ``default``.
        of_problem: by problem, settings that replace those of all presets.
        reference: settings of the preset ``reference`` by problem, where google/ml-compiler-opt trains that problem so.
        trials: settings of the preset ``trials`` by problem, for problems that can be learned from trials of functions.
        loops: defaults of the training loop by preset, where they are not the ordinary ones.
        fits_normaliser: whether the learner fits its own normaliser, and so needs no trace with all features.
        recurrent: whether the learner can train recurrent networks, of inlining.
    """

    module: str
    kinds: frozenset[AdviceKind]
    presets: Mapping[str, Any]
    of_problem: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    reference: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    trials: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    loops: Mapping[str, LoopDefaults] = dataclasses.field(default_factory=dict[str, LoopDefaults])
    fits_normaliser: bool = False
    recurrent: bool = False

    @property
    def preset_names(self) -> tuple[str, ...]:
        """Names of all presets."""
        return (*self.presets, *(("reference",) if self.reference else ()), *((TRIALS,) if self.trials else ()))

    def settings(self, preset: str, problem: str, *, name: str) -> Any:
        """Look up the settings of a preset for a problem; ``name`` is the learner's, for the error.

        Raises:
            UsageError: there is no such preset, or it has no settings for this problem.
        """
        if preset not in self.preset_names:
            raise UsageError(
                f"algorithm {name}: expected one of the presets {', '.join(self.preset_names)}, found {preset!r}; "
                "name one of these"
            )
        if preset in self.presets:
            return self.of_problem.get(problem, self.presets[preset])
        by_problem, which = (
            (self.trials, "that it learns from trials of single functions")
            if preset == TRIALS
            else (self.reference, "for which google/ml-compiler-opt has settings")
        )
        if problem not in by_problem:
            raise UsageError(
                f"algorithm {name}, preset {preset}: expected a problem {which} "
                f"({', '.join(by_problem) or 'none'}), found {problem}; give --preset default"
            )
        return by_problem[problem]

    def loop(self, preset: str) -> LoopDefaults:
        """Look up the defaults of the training loop for a preset; google/ml-compiler-opt normalises by quantiles."""
        ordinary = LoopDefaults(normaliser="quantile") if preset == "reference" else LoopDefaults()
        return self.loops.get(preset, ordinary)


LEARNERS: dict[str, Entry] = {
    "behavioural-cloning": Entry(
        module="mlgokit.algorithms.behavioural_cloning",
        kinds=ALL_KINDS,
        presets={"default": BcConfig(), "small": BC_SMALL},
        reference={"inline-size": BC_REFERENCE, "regalloc-eviction": BC_REFERENCE_EVICTION},
        loops={"default": ONE_TURN},
        recurrent=True,
    ),
    "dqn": Entry(
        module="mlgokit.algorithms.dqn",
        kinds=DISCRETE,
        presets={"default": DqnConfig()},
        recurrent=True,
        reference={"inline-size": DQN_REFERENCE},
    ),
    "effect-regression": Entry(
        module="mlgokit.algorithms.effect_learner",
        kinds=BINARY_ONLY,
        presets={"default": EffectRegressionConfig(), "random": EFFECT_RANDOM, "small": EFFECT_SMALL},
        of_problem={"pass-selection": PassTrialsConfig()},
        loops={"default": FEW_TURNS, "random": FEW_TURNS},
        fits_normaliser=True,
    ),
    "es": Entry(
        module="mlgokit.algorithms.es",
        kinds=ALL_KINDS,
        presets={
            "default": EsConfig(),
            "cma": ES_CMA,
        },
        trials={
            "regalloc-priority": RangeTrialsConfig(),
            "regalloc-weight": RangeTrialsConfig(
                score="executed",
                functions=3000,
                module_functions=150,
                share=0.5,
                generations=14,
                opening=0.5,
                spread=0.2,
                csr_first_time_costs=(16384, 24576, 32768),
            ),
        },
        reference={"inline-size": ES_REFERENCE, "regalloc-eviction": ES_REFERENCE_EVICTION},
    ),
    "bc-max": Entry(
        module="mlgokit.algorithms.bc_max",
        kinds=ALL_KINDS,
        presets={"default": BcMaxConfig()},
        recurrent=True,
    ),
    "local-search": Entry(
        module="mlgokit.algorithms.local_search",
        kinds=BINARY_ONLY,
        presets={"default": LocalSearchConfig()},
    ),
    "ppo": Entry(
        module="mlgokit.algorithms.ppo",
        kinds=ALL_KINDS,
        presets={"default": PpoConfig()},
        reference={
            "inline-size": PPO_REFERENCE,
            "regalloc-eviction": PPO_REFERENCE_EVICTION,
            "regalloc-priority": PPO_REFERENCE_PRIORITY,
        },
    ),
}


def check_framework() -> None:
    """Check that JAX and optax are installed, which only learning imports.

    Raises:
        ToolError: a package that training needs is not installed.
    """
    if missing := missing_framework():
        raise ToolError(
            f"training: expected the Python packages jax and optax, found no {' and no '.join(missing)}; "
            "run `pip install 'mlgokit[train]'`"
        )


def missing_framework() -> list[str]:
    """List the Python packages that learning needs and that are not installed."""
    return [name for name in ("jax", "optax") if importlib.util.find_spec(name) is None]


def default_learner(problem: str) -> tuple[str, str]:
    """Look up the learner of a problem for users that name none, and its preset.

    Example:
        >>> default_learner("inline-size"), default_learner("regalloc-weight")
        (('effect-regression', 'default'), ('es', 'trials'))
    """
    names = [name for name, entry in LEARNERS.items() if problem in entry.trials]
    return (names[0], TRIALS) if names else ("effect-regression", "default")


def find_learner(name: str) -> Entry:
    """Look up a learner by name.

    Raises:
        UsageError: there is no such learner.
    """
    if name not in LEARNERS:
        raise UsageError(f"algorithm: expected one of {', '.join(LEARNERS)}, found {name!r}; name one of these")
    return LEARNERS[name]


def check_learner(name: str, problem: str, kind: AdviceKind) -> None:
    """Check that a learner can learn the kind of advice of a problem, before anything is compiled.

    Raises:
        UsageError: there is no such learner, or it cannot.
    """
    if kind not in find_learner(name).kinds:
        able = ", ".join(key for key, other in LEARNERS.items() if kind in other.kinds)
        raise UsageError(
            f"algorithm {name}: expected an algorithm that learns {kind.value} advice, which {problem} needs, found "
            f"one that does not; use one of {able}"
        )


def check_recurrent(name: str, problem: str, units: int) -> None:
    """Check that a learner can train a recurrent network for a problem; ``units`` is 0 for others.

    Raises:
        UsageError: it cannot.
    """
    if units and not (find_learner(name).recurrent and problem == INLINE_SIZE.name):
        able = ", ".join(key for key, entry in LEARNERS.items() if entry.recurrent)
        raise UsageError(
            f"algorithm {name}: expected one of {able} and the problem {INLINE_SIZE.name} for a recurrent network, "
            f"found {name} for {problem}; leave out the setting recurrent or the recurrent policy"
        )


def make_learner(name: str, task: Task, settings: Any = None, *, preset: str = "default") -> Learner:
    """Make the learner ``name`` for ``task``, with ``settings`` or those of a preset.

    Raises:
        UsageError: there is no such learner or preset, the settings are another learner's, or the learner cannot learn
            this kind of advice.
    """
    entry = find_learner(name)
    chosen = entry.settings(preset, task.problem, name=name) if settings is None else settings
    wanted = cast("type[object]", type(entry.presets["default"]))
    if not isinstance(chosen, wanted):
        raise UsageError(
            f"algorithm {name}: expected settings of the class {wanted.__name__}, found {type(chosen).__name__}; "
            "give it its own settings"
        )
    check_learner(name, task.problem, task.kind)
    return cast("Learner", importlib.import_module(entry.module).make(task, chosen))

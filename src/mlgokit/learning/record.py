"""The record of a finished training, as read from ``metrics.json``; its report is made from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mlgokit.decode import decode, of_format
from mlgokit.learning.validation import ValidatedModule

FORMAT = "mlgokit training"
FORMAT_VERSION = 1
_OF_ALL = ("round", "compilations", "user_seconds", "wall_seconds", "failures", "validation_gain", "reward", "gate")
"""Keys that every round has; all others are metrics of the learner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSide:
    """Statistics of one side of a gate, see ``docs/formats.md``."""

    feature_is_set: bool
    departures: int
    saved_bytes: float
    error_bytes: float
    margin: float
    alone_saved_bytes: float = 0.0
    alone_error_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The metrics of one turn.

    Attributes:
        round: number of the turn, from 0.
        compilations: number of compilations.
        user_seconds: their processor time.
        wall_seconds: elapsed time of the turn.
        failures: number of failed compilations by reason.
        validation_gain: of the policy after the turn; NaN if it was not validated.
        reward: mean over the turn's compilations.
        numbers: metrics of the learner.
        gate: statistics of each side of the gate.
    """

    round: int
    compilations: int
    user_seconds: float
    wall_seconds: float
    failures: dict[str, int]
    validation_gain: float
    reward: float = math.nan
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    gate: tuple[GateSide, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """A finished training.

    Attributes:
        policy: the file of the policy.
        counters: how far it went.
        taught: number of training modules.
        judged: number of validation modules.
        left_out: reason to number of modules that could not be used.
        rounds: one each.
        judged_modules: scores of the validation modules under the best policy.
        algorithm: name of the algorithm.
        problem: name of the problem.
        settings: by name.
        source: the corpus.
        command: the command line.
        mlgokit_version: of this package.
        toolchain: tool name -> version.
    """

    policy: str
    counters: dict[str, float]
    taught: int
    judged: int
    left_out: dict[str, int]
    rounds: tuple[Round, ...]
    judged_modules: tuple[ValidatedModule, ...] = ()
    algorithm: str = ""
    problem: str = ""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    source: str = ""
    command: str = ""
    mlgokit_version: str = ""
    toolchain: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def from_json(cls, value: object) -> "TrainingRecord":
        """Decode ``metrics.json``; unknown keys are ignored.

        Raises:
            InputError: another format or version, a missing key, or a value of another type.
        """
        given = of_format(value, FORMAT, FORMAT_VERSION, where="training", remedy="train again with this version")
        rounds = given.get("rounds")
        if isinstance(rounds, list):
            given = given | {"rounds": [_with_numbers(one) for one in cast("list[object]", rounds)]}
        return decode(cls, given, "training")


def _with_numbers(one: object) -> object:
    """Move the learner's metrics of a round into ``numbers``, and decode its gate."""
    if not isinstance(one, dict):
        return one
    found = cast("Mapping[str, Any]", one)
    kept = {name: found[name] for name in _OF_ALL if name in found}
    numbers = {name: value for name, value in found.items() if name not in _OF_ALL}
    sides = [_with_margin(side) for side in cast("list[object]", kept.get("gate") or [])]
    return kept | {"numbers": numbers, "gate": sides}


def _with_margin(side: object) -> object:
    """Decode a missing margin as infinite, which means a closed gate."""
    if not isinstance(side, dict):
        return side
    found = cast("dict[str, Any]", side)
    return {**found, "margin": math.inf} if found.get("margin", 0) is None else found

"""The record of a finished training, which is read from ``metrics.json``, and from which its report is made."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mlgokit.decode import check_format, decode
from mlgokit.learning.validation import ValidatedModule

FORMAT = "mlgokit training"
FORMAT_VERSION = 1
_ROUND_KEYS = ("round", "compilations", "user_seconds", "wall_seconds", "failures", "validation_gain", "reward", "gate")
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
        user_seconds: processor time of the compilations.
        wall_seconds: elapsed time of the turn.
        failures: number of failed compilations by reason.
        validation_gain: gain of the policy after the turn in validation; NaN if it was not validated.
        reward: mean reward of the turn's compilations.
        numbers: metrics of the learner by name.
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
        policy: name of the policy file.
        counters: progress of the run by name, as in :class:`mlgokit.learning.run_folder.Counters`.
        taught: number of training modules.
        judged: number of validation modules.
        left_out: number of modules that could not be used, by reason.
        rounds: metrics of each turn.
        judged_modules: scores of the validation modules under the best policy.
        algorithm: name of the algorithm.
        problem: name of the problem.
        settings: settings by name.
        source: path of the corpus.
        command: command line of the training.
        mlgokit_version: version of mlgokit that trained.
        toolchain: version of each tool.
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
            InputError: the value has another format or version, lacks a key, or has a value of another type.
        """
        given = check_format(value, FORMAT, FORMAT_VERSION, where="training", remedy="train again with this version")
        rounds = given.get("rounds")
        if isinstance(rounds, list):
            given = given | {"rounds": [_collect_numbers(one) for one in cast("list[object]", rounds)]}
        return decode(cls, given, "training")


def _collect_numbers(one: object) -> object:
    """Move the learner's metrics of a round into ``numbers``, and decode its gate."""
    if not isinstance(one, dict):
        return one
    found = cast("Mapping[str, Any]", one)
    kept = {name: found[name] for name in _ROUND_KEYS if name in found}
    numbers = {name: value for name, value in found.items() if name not in _ROUND_KEYS}
    sides = [_decode_margin(side) for side in cast("list[object]", kept.get("gate") or [])]
    return kept | {"numbers": numbers, "gate": sides}


def _decode_margin(side: object) -> object:
    """Decode a margin of null as infinite, which means a closed gate."""
    if not isinstance(side, dict):
        return side
    found = cast("dict[str, Any]", side)
    return {**found, "margin": math.inf} if found.get("margin", 0) is None else found

"""Settings of the loop, and changes to a learner's preset as a user types them."""

import contextlib
import dataclasses
import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import tyro

from mlgokit.algorithms.registry import LEARNERS
from mlgokit.compiler.objects.measure import Objective
from mlgokit.errors import InputError, UsageError
from mlgokit.files import digest_file

UNBOUND_ITERATIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How a learner is run."""

    preset: str = "default"
    """Settings of the algorithm by name; reference has those of the reference implementation."""
    setting: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """One changed setting of the algorithm, as in --setting modules=8 or --setting imitation.steps=50."""
    seed: int = 1
    """Of everything random."""
    start: Path | None = None
    """A policy to start from; it decides features, normaliser and network."""
    vocab: Path | None = None
    """Folder of .buckets files that the features are normalised with, instead of what is fitted to
    the trace; features that it lacks are not used."""
    normaliser: Literal["signed-log", "quantile"] | None = None
    """What is fitted to a trace of the heuristic; signed-log if not given, quantile for the preset reference."""
    excluded: tuple[str, ...] = ("node_count", "edge_count")
    """Features the policy shall not see."""
    objective: Objective = Objective.LINK_AWARE
    """Which bytes count, for inlining."""
    iterations: int | None = None
    """Stop after so many requests of the learner; 20 if no budget is given."""
    compilations: int | None = None
    """Begin no request after so many compilations of the learner's."""
    evaluate_every: int = 5
    """Requests between evaluations on projects kept apart from training; 0 for never."""
    validation_share: float = 0.2
    """Part of the training projects, or of the modules of an only project, that is kept apart for that."""
    patience: int = 0
    """Stop after so many evaluations in a row without improvement; 0 for never."""

    @property
    def last_iteration(self) -> int | None:
        """Where to stop."""
        if self.iterations is None and self.compilations is None:
            return UNBOUND_ITERATIONS
        return self.iterations

    def deciding(self) -> dict[str, Any]:
        """What decides the course of a run; budgets only decide where it ends, and may be raised later.

        Raises:
            InputError: a file that it names cannot be read.
        """
        left_out = {"iterations", "compilations", "start", "vocab"}
        values = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in left_out
        }
        try:
            start = None if self.start is None else digest_file(self.start)
            files = [] if self.vocab is None else sorted(self.vocab.iterdir())
            vocab = {path.name: digest_file(path) for path in files if path.is_file()}
        except OSError as error:
            raise InputError(
                f"{error.filename}: expected to read what training starts from, found: {error.strerror}; "
                "check --start and --vocab"
            ) from error
        return values | {"start": start, "vocab": vocab}


DEFAULT_LEARNING = Learning()


def check_learning(config: Learning) -> None:
    """Make sure that the numbers make sense.

    Raises:
        UsageError: one does not.
    """
    for name in ("iterations", "compilations"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name}: expected at least 1, found {value}; give more or leave it out")
    for name in ("evaluate_every", "patience"):
        if getattr(config, name) < 0:
            option = name.replace("_", "-")
            raise UsageError(f"--{option}: expected 0 or more, found {getattr(config, name)}; correct it")
    if not 0 <= config.validation_share < 1:
        raise UsageError(
            f"--validation-share: expected a share from 0 to below 1, found {config.validation_share:g}; correct it"
        )
    if config.patience and not config.evaluate_every:
        raise UsageError("--patience: expected evaluations to wait for, found --evaluate-every 0; give one above 0")


def settings_of(algorithm: str, preset: str, changes: Sequence[str]) -> Any:
    """The settings of a preset with changes such as ``modules=8``.

    Raises:
        UsageError: there is no such algorithm, preset or setting, or its value is not of its type.

    Example:
        >>> settings_of("ppo", "reference", ["modules=8", "hidden=[4]"]).hidden
        (4,)
    """
    if algorithm not in LEARNERS:
        raise UsageError(f"algorithm: expected one of {', '.join(LEARNERS)}, found {algorithm!r}; name one of these")
    presets = LEARNERS[algorithm].presets
    if preset not in presets:
        raise UsageError(
            f"algorithm {algorithm}: expected one of the presets {', '.join(presets)}, found {preset!r}; "
            "name one of these"
        )
    settings = presets[preset]
    for change in changes:
        name, found, value = change.partition("=")
        if not found:
            raise UsageError(f"--setting {change}: expected name=value, found no '='; write it as modules=8")
        settings = _changed(settings, name.strip(), value.strip(), shown=change)
    return settings


def _changed(settings: Any, name: str, value: str, *, shown: str) -> Any:
    first, _, rest = name.partition(".")
    fields = [field.name for field in dataclasses.fields(settings)]
    if first not in fields:
        raise UsageError(f"--setting {shown}: expected one of {', '.join(fields)}, found {first!r}; name one of these")
    old = getattr(settings, first)
    if rest or dataclasses.is_dataclass(old):
        if not rest or not dataclasses.is_dataclass(old):
            raise UsageError(f"--setting {shown}: expected a single setting, found {name!r}; name a part of {first}")
        return dataclasses.replace(settings, **{first: _changed(old, rest, value, shown=shown)})
    return dataclasses.replace(settings, **{first: _value(old, value, shown)})


def _value(old: object, text: str, shown: str) -> object:
    """``text`` as a value of the type of ``old``."""
    new: object = None
    with contextlib.suppress(ValueError):
        if isinstance(old, enum.Enum):
            return type(old)(text)
        new = text if isinstance(old, str) else json.loads(text)
    if isinstance(old, tuple) and isinstance(new, list):
        return tuple(cast("list[object]", new))
    if isinstance(old, float) and type(new) is int:
        return float(new)
    if type(new) is not type(cast("object", old)):
        example = repr(cast("object", old.value if isinstance(old, enum.Enum) else old))
        raise UsageError(f"--setting {shown}: expected a value such as {example}, found {text!r}; correct it")
    return new

"""A module in the search over inlining decisions, and its progress on disk."""

import copy
import enum
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.compiler.arrays import DAMAGE, Arrays, TooLargeError, column, read_arrays, unpacked_bytes
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.limits import format_bytes
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.errors import InputError
from mlgokit.files import atomic_write, read_bounded, writing
from mlgokit.module import Module
from mlgokit.tables.decisions import strong_names
from mlgokit.tune.composing import Climb
from mlgokit.tune.search import read_kept

Keys = npt.NDArray[np.uint64]

COMPOSED = 8
"""Steps with gains after which the composed build is compiled."""
_PROGRESS = frozenset({"site", "inlined", "tried_site", "tried_count", "composed_site", "composed_inlined"})
_EFFECTS = frozenset({"names", "values", "sign", "component", "change", "projects"})
_MOST_EFFECT_BYTES = 1 << 30
"""Limit on the file of measured effects, for three million flips."""


class RestartKind(enum.Enum):
    """The kinds of restart, by the decisions that they flip together."""

    PAIRS = "two groups of like decisions, about callees of one caller"
    CALLERS = "all like decisions in one caller, or a drawn half of all"
    CALLEES = "like decisions about a callee: very many, a drawn half, or with some of those inside it"
    OTHERS = "all calls in one caller, or of one callee, as in a whole build by another rule"
    NEIGHBOURHOOD = "all decisions of a neighbourhood in the call graph anew, then local search, then the best of both"


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleState:
    """A module in the search.

    Attributes:
        module: the module that is compiled.
        plain: sizes of its object without the plugin.
        build: the best build under the plugin that was compiled.
        names: ids by which the plugin finds the module's decisions.
        composed: the composed build that the search continues from; ``None`` to continue from ``build``.
        tried: number of times that a move gave no gain, by key of the move.
        climb: the state of the search over its moves.
        others: decisions of whole builds by other rules: keys of call sites with the decision in bit 0; not saved.
        idle_seconds: processor time since the last gain.
        drawn: number of times that a move of a restart gave no gain, by key of the move; not saved.
        vain_restarts: number of restarts since the last gain.
        reverted: number of times that a judge reverted the module.
    """

    module: Module
    plain: ObjectSizes
    build: Compilation
    names: Keys = field(init=False)
    composed: Compilation | None = None
    tried: Counter[int] = field(default_factory=Counter[int])
    climb: Climb[int] = field(default_factory=lambda: Climb[int](most_composed=COMPOSED))
    others: list[Keys] = field(default_factory=list[Keys])
    idle_seconds: float = 0.0
    drawn: Counter[int] = field(default_factory=Counter[int])
    vain_restarts: int = 0
    reverted: int = 0

    def __post_init__(self) -> None:
        self.names = strong_names(self.plain)

    @property
    def current(self) -> Compilation:
        """The build that the search continues from."""
        return self.composed or self.build

    def snapshot(self) -> Self:
        """A copy of the module's state for a step, during which other steps may be accepted."""
        copied = copy.copy(self)
        copied.climb = copy.copy(self.climb)
        return copied


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepResult:
    """The outcome of one step.

    Attributes:
        build: a better build that was compiled, or ``None``.
        composed: the composed build to continue from; ``None`` to continue from the best build.
        composed_steps: number of steps with gains in the composed build.
        failed: keys of the moves that gave no gain.
        compilations: number of compilations.
        user_seconds: processor time of the compilations.
        flips: number of flipped decisions; 0 if the step confirmed a composed build.
        kept: number of flips that made their component smaller.
        saved: bytes that the kept flips save.
        effects: labels from the flips.
        kind: kind of the restart; ``None`` for a step.
        trials: always 0: each variant is a compilation here.
        base: the build that the step varied; ``None`` for one that did nothing.
        made: keys of the moves that were made.
        confirms: whether the step only compiled the base.
    """

    build: Compilation | None = None
    composed: Compilation | None = None
    composed_steps: int = 0
    failed: frozenset[int] = frozenset()
    compilations: int = 0
    user_seconds: float = 0.0
    flips: int = 0
    kept: int = 0
    saved: float = 0.0
    effects: MeasuredEffects | None = None
    kind: RestartKind | None = None
    trials: int = 0
    base: Compilation | None = None
    made: frozenset[int] = frozenset()
    confirms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """The progress of a module on disk.

    Attributes:
        decisions: decisions of the best build, by key of the call site.
        tried: number of times that a move gave no gain, by key of the move.
        composed: decisions of the composed build, by key of the call site; empty without one.
    """

    decisions: dict[int, bool]
    tried: dict[int, int]
    composed: dict[int, bool] = field(default_factory=dict[int, bool])


def save_progress(path: Path, progress: Progress) -> None:
    """Write the progress of a module to a file.

    Raises:
        StorageError: the disk is full or not writable.
    """
    file = io.BytesIO()
    np.savez(
        file,
        site=np.array(list(progress.decisions), np.uint64),
        inlined=np.array(list(progress.decisions.values()), bool),
        tried_site=np.array(list(progress.tried), np.uint64),
        tried_count=np.array(list(progress.tried.values()), np.int64),
        composed_site=np.array(list(progress.composed), np.uint64),
        composed_inlined=np.array(list(progress.composed.values()), bool),
    )
    atomic_write(path, file.getvalue(), durable=True)


def load_progress(path: Path) -> Progress | None:
    """Read the progress of a module; ``None`` if there is no file.

    Raises:
        InputError: the file is damaged.
    """
    return read_kept(path, _PROGRESS, _progress_of, what="what the search knows of a module")


def _progress_of(arrays: Arrays) -> Progress:
    # Earlier versions composed nothing.
    stored = {"composed_site": np.zeros(0, np.uint64), "composed_inlined": np.zeros(0, bool)} | arrays

    def by_site(sites: str, values: str, kind: str) -> dict[int, Any]:
        return dict(zip(column(stored, sites, "u").tolist(), column(stored, values, kind).tolist(), strict=True))

    return Progress(
        decisions=by_site("site", "inlined", "b"),
        tried=by_site("tried_site", "tried_count", "i"),
        composed=by_site("composed_site", "composed_inlined", "b"),
    )


def append_effects(path: Path, effects: MeasuredEffects) -> None:
    """Append the effects that a step measured to a file, as 4 bytes with a length and an npz file of that length.

    Raises:
        StorageError: the disk is full or not writable.
    """
    file = io.BytesIO()
    np.savez_compressed(
        file,
        names=np.array(effects.names),
        values=effects.values,
        sign=effects.sign,
        component=effects.component,
        change=effects.change,
        projects=np.array(effects.projects),
    )
    with writing(path), path.open("ab") as end:
        end.write(len(file.getvalue()).to_bytes(4, "little") + file.getvalue())


def load_effects(path: Path) -> list[MeasuredEffects]:
    """Read the effects that all steps measured. An incomplete last record is removed; damaged ones are skipped.

    Raises:
        InputError: the file or its arrays are too large.
        StorageError: the incomplete record cannot be removed.
    """
    try:
        data = read_bounded(path, _MOST_EFFECT_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _too_much(path, str(error.strerror)) from error
    effects: list[MeasuredEffects] = []
    position, left = 0, _MOST_EFFECT_BYTES
    while (end := position + 4 + int.from_bytes(data[position : position + 4], "little")) <= len(data) > position:
        try:
            arrays = read_arrays(data[position + 4 : end], _EFFECTS, most_bytes=left)
            left -= unpacked_bytes(arrays)
            effects.append(_effects_of(arrays))
        except TooLargeError as error:
            raise _too_much(path, str(error)) from error
        except DAMAGE:
            pass
        position = end
    if position < len(data):
        atomic_write(path, data[:position])
    return effects


def _too_much(path: Path, found: str) -> InputError:
    """The error for a file of effects that is too large, or cannot be read."""
    return InputError(
        f"{path}: expected at most {format_bytes(_MOST_EFFECT_BYTES)} of measured effects, found {found}; restore a "
        "copy, or delete the file: only the order of what to try first is lost"
    )


def _effects_of(arrays: Arrays) -> MeasuredEffects:
    names, projects = (tuple(column(arrays, name, "U").tolist()) for name in ("names", "projects"))
    sign, component, change = (
        column(arrays, name, kind) for name, kind in (("sign", "f"), ("component", "i"), ("change", "f"))
    )
    values = column(arrays, "values", "i", width=len(names))
    fits = len(values) == len(sign) == len(component) and len(projects) == 1
    if not fits or (len(component) and not 0 <= component.min() <= component.max() < len(change)):
        raise ValueError(
            "effects: expected one project, and a component with a measured change for each flip, found arrays of "
            "other lengths or numbers"
        )
    return MeasuredEffects(
        names=names,
        values=values,
        sign=sign,
        component=component,
        change=change,
        project=np.zeros(len(change), np.int64),
        projects=projects,
    )

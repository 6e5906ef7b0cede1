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
"""Of all records in a file: what was measured of three million flips."""


class RestartKind(enum.Enum):
    """How a restart departs from the best build."""

    PAIRS = "two groups of like decisions, about callees of one caller"
    CALLERS = "all like decisions in one caller, or a drawn half of all"
    CALLEES = "like decisions about a callee: very many, a drawn half, or with some of those inside it"
    OTHERS = "all calls in one caller, or of one callee, as in a whole build by another rule"
    NEIGHBOURHOOD = "all decisions of a neighbourhood in the call graph anew, then local search, then the best of both"


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleState:
    """A module in the search.

    Attributes:
        module: what is compiled.
        plain: its object without the plugin.
        build: the best build under the plugin that was compiled.
        names: ids by which the plugin finds the module's decisions.
        composed: what the search goes on from, if it has not been compiled yet.
        tried: how often a move gave nothing.
        climb: the moves in the search.
        others: of whole builds by other rules the keys of call sites, bit 0 being the decision; not kept on disk.
        idle_seconds: processor time since the last gain.
        drawn: how often a move of a restart gave nothing; not kept on disk.
        vain_restarts: restarts without a gain since the last gain.
        reverted: how often a judge reverted what was found.
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
        """What the search goes on from."""
        return self.composed or self.build

    def view(self) -> Self:
        """The module as it is now, for a step while which others are accepted."""
        view = copy.copy(self)
        view.climb = copy.copy(self.climb)
        return view


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepResult:
    """What one step did.

    Attributes:
        build: a better build that was compiled, or ``None``.
        composed: what to go on from in place of ``build``, if that was not compiled; ``None`` for the best build.
        composed_steps: how many steps with gains made it.
        failed: keys of the moves that gave nothing.
        compilations: how many were made.
        user_seconds: their processor time.
        flips: flipped decisions; 0 if the step confirmed a composed build.
        kept: of those, the ones that made their component smaller.
        saved: bytes that these save.
        effects: labels that the flips gave.
        kind: of restart, if it was one.
        trials: none; each variant is a compilation here.
        base: the build that the step departed from; ``None`` for one that did nothing.
        made: keys of the moves that were made.
        confirms: whether the base was compiled, and nothing else.
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
    """The progress of a module that is kept on disk.

    Attributes:
        decisions: of the best build.
        tried: how often a move gave nothing.
        composed: of the build that the search went on from, if that was not compiled; else none.
    """

    decisions: dict[int, bool]
    tried: dict[int, int]
    composed: dict[int, bool] = field(default_factory=dict[int, bool])


def save_progress(path: Path, progress: Progress) -> None:
    """Keep the progress of a module.

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
    """The progress of a module; nothing if there is none.

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
    """Add what a step measured to the file of all of them: 4 bytes with a length, and so many of an npz file.

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
    """What all steps measured. A record that a kill cut short is cut off; one that is damaged is passed over.

    Raises:
        InputError: it is more than is read.
        StorageError: what was cut short cannot be cut off.
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
        raise ValueError("flips and components that do not belong together")
    return MeasuredEffects(
        names=names,
        values=values,
        sign=sign,
        component=component,
        change=change,
        project=np.zeros(len(change), np.int64),
        projects=projects,
    )

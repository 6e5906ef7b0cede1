"""What is known about a module while it is tuned, and its file."""

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.collect import NOT_FEATURES
from mlgokit.compiler.compile import CompileResult
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.files import atomic_write, writing
from mlgokit.problems import INLINE_SIZE

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Build:
    """One compilation of a module under the plugin; T decisions, F features.

    Attributes:
        sizes: of the object.
        site: [T] keys of the call sites, in the order of the decisions.
        caller: [T] ids of the functions with the call sites.
        callee: [T] ids of the functions called.
        inlined: [T] decisions.
        names: the features.
        values: [T, F].
        user_seconds: what it took.
    """

    sizes: ObjectSizes
    site: Keys
    caller: Ints
    callee: Ints
    inlined: npt.NDArray[np.bool_]
    names: tuple[str, ...]
    values: Ints
    user_seconds: float

    @property
    def decisions(self) -> dict[int, bool]:
        """The decision by the key of its call site."""
        return dict(zip(self.site.tolist(), self.inlined.tolist(), strict=True))


def build_of(result: CompileResult) -> Build | None:
    """What tuning needs of a compilation; nothing if it failed."""
    if result.sizes is None or result.reason:
        return None
    columns: dict[str, Any] = dict(result.logs[INLINE_SIZE.name].columns) if INLINE_SIZE.name in result.logs else {}

    def column(name: str) -> Any:
        return np.ascontiguousarray(columns[name][:, 0]) if columns else np.zeros(0, np.int64)

    names = tuple(name for name in columns if name not in NOT_FEATURES)
    return Build(
        sizes=result.sizes,
        site=column("site").astype(np.int64).view(np.uint64),
        caller=column("caller_id"),
        callee=column("callee_id"),
        inlined=column("inlining_decision") != 0,
        names=names,
        values=np.stack([columns[name][:, 0] for name in names], axis=1) if names else np.zeros((0, 0), np.int64),
        user_seconds=result.user_seconds,
    )


def nothing_decided(sizes: ObjectSizes) -> Build:
    """A build that cannot be searched."""
    return Build(
        sizes=sizes,
        site=np.zeros(0, np.uint64),
        caller=np.zeros(0, np.int64),
        callee=np.zeros(0, np.int64),
        inlined=np.zeros(0, bool),
        names=(),
        values=np.zeros((0, 0), np.int64),
        user_seconds=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """What survives of a module's search when the process ends.

    Attributes:
        decisions: of the best build.
        tried: how often a move was made in vain.
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
    atomic_write(path, file.getvalue())


def load_progress(path: Path) -> Progress | None:
    """The progress of a module; nothing if there is none or its file is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            # Earlier versions composed nothing.
            nothing: dict[str, npt.NDArray[Any]] = {
                "composed_site": np.zeros(0, np.uint64),
                "composed_inlined": np.zeros(0, bool),
            }
            stored = nothing | dict(found)
            return Progress(
                decisions=dict(zip(stored["site"].tolist(), stored["inlined"].tolist(), strict=True)),
                tried=dict(zip(stored["tried_site"].tolist(), stored["tried_count"].tolist(), strict=True)),
                composed=dict(zip(stored["composed_site"].tolist(), stored["composed_inlined"].tolist(), strict=True)),
            )
    except (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile):
        return None


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
    """What all steps measured; a record that a kill cut short is cut off, and what is damaged ends the list."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    found: list[MeasuredEffects] = []
    position = 0
    while (end := position + 4 + int.from_bytes(data[position : position + 4], "little")) <= len(data) > position:
        try:
            with np.load(io.BytesIO(data[position + 4 : end]), allow_pickle=False) as stored:
                found.append(
                    MeasuredEffects(
                        names=tuple(stored["names"].tolist()),
                        values=stored["values"],
                        sign=stored["sign"],
                        component=stored["component"],
                        change=stored["change"],
                        project=np.zeros(len(stored["change"]), np.int64),
                        projects=tuple(stored["projects"].tolist()),
                    )
                )
        except (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile):
            break
        position = end
    if position < len(data):
        atomic_write(path, data[:position])
    return found

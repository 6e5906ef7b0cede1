"""Progress of a comparison on disk, so that the same command continues after a kill.

In the folder of each workload stands ``kept.json`` with what was found so far, written after each step. It is believed
if all that decides the numbers is the same by content, and the builds that it tells of are there.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.bench.build import BuildContext, Workspace, image_of
from mlgokit.bench.record import SIDES, WorkloadResult
from mlgokit.bench.workloads import Workload
from mlgokit.compiler.inputs import named_files
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.decode import decode, read_json
from mlgokit.errors import InputError, StorageError
from mlgokit.files import atomic_write, writing
from mlgokit.manifest import digest_value, finite_json, package_version

Step = str
"""The last step that was done: ``before`` (one side is built), ``built``, ``counted``, ``timed``, or none."""
STEPS: tuple[Step, ...] = ("before", "built", "counted", "timed")
_NAME = "kept.json"
_VARIABLES = ("CFLAGS", "CXXFLAGS", "PATH")
"""Of the environment, what decides how a user's own commands build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The progress of a workload.

    Attributes:
        of: digest of everything that affects its results, see :func:`key_of`.
        step: the last step that was done.
        row: the results so far.
    """

    of: str
    step: Step
    row: WorkloadResult

    def has(self, step: Step) -> bool:
        """Whether a step was done."""
        return self.step in STEPS and STEPS.index(self.step) >= STEPS.index(step)


def key_of(workload: Workload, context: BuildContext, folder: Path, settings: Mapping[str, object]) -> str:
    """Digest of everything that affects a workload's results.

    Of files that options or variables name it is the content; of folders with drivers or the user's sources the names,
    sizes and times of all files.

    Args:
        workload: which.
        context: how it is built.
        folder: what is left out of these, as the comparison itself writes there.
        settings: of counting and timing.

    Raises:
        StorageError: a file cannot be read.
    """
    try:
        sides = {
            side: {
                "words": flags.words,
                "environment": flags.environment,
                "files": dict(
                    named_files((*flags.words, *(f"{name}={value}" for name, value in flags.environment.items())))
                ),
            }
            for side, flags in context.sides.items()
        }
        folders = [workload.drivers] if workload.driver else []
        folders += [] if workload.source is None else [workload.source]
        return digest_value(
            {
                "workload": workload,
                "sides": sides,
                "toolchain": context.toolchain.describe(),
                "folders": [_stamps(one, folder) for one in folders],
                "variables": {name: os.environ.get(name, "") for name in _VARIABLES},
                "settings": settings,
                "mlgokit": package_version(),
            }
        )
    except OSError as error:
        raise StorageError(
            f"workload {workload.name!r}: expected to be able to read what it is made of, found: {error}; correct the "
            "permissions"
        ) from error


def read_kept(workspace: Workspace, workload: Workload, toolchain: Toolchain, key: str) -> Kept | None:
    """Read the progress of a workload, and restore its builds; ``None`` to start again."""
    try:
        value: Any = read_json(workspace.folder / _NAME, expected="what a comparison kept", remedy="it is made again")
        found: Kept = decode(Kept, value, _NAME)
    except InputError:
        return None
    sides = SIDES[:1] if found.step == STEPS[0] else SIDES
    if found.of != key or found.step not in STEPS:
        return None
    with writing(workspace.folder):
        _put_back(workspace, sides)
    waits = dict(zip(SIDES, (found.row.before, found.row.after), strict=True))
    for side in sides if found.step != STEPS[-1] else ():
        # After a power cut a file may be there and empty.
        if (
            not (workspace.folder / side).is_dir()
            or image_of(workload, workspace, toolchain, side) != waits[side].image
        ):
            return None
    return found


def keep(workspace: Workspace, kept: Kept) -> None:
    """Store the progress; a row with a failure is not stored, so that the next run tries again.

    Raises:
        StorageError: the disk is full or not writable.
    """
    if not kept.row.failures:
        atomic_write(workspace.folder / _NAME, json.dumps(finite_json(dataclasses.asdict(kept))) + "\n")


def forget(folder: Path, workloads: Sequence[str]) -> None:
    """Delete the progress of workloads, so that the next comparison in this folder starts again.

    Raises:
        StorageError: that cannot be done.
    """
    with writing(folder):
        for workload in workloads:
            (folder / workload / _NAME).unlink(missing_ok=True)


def _put_back(workspace: Workspace, sides: Sequence[str]) -> None:
    """Clean up after a kill: move a finished build back to its side, or delete a partial one."""
    if workspace.build.is_dir():
        missing = [side for side in sides if not (workspace.folder / side).is_dir()]
        if len(missing) == 1:
            workspace.build.rename(workspace.folder / missing[0])
        else:
            shutil.rmtree(workspace.build)
    for side in SIDES:
        if side not in sides:
            shutil.rmtree(workspace.folder / side, ignore_errors=True)


def _stamps(folder: Path, without: Path) -> str:
    """Digest of names, sizes and times of all files below a folder, but for those in another one."""
    left_out = without.resolve()
    found: list[tuple[str, int, int]] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if (Path(place) / name).resolve() != left_out)
        for name in sorted(names):
            path = Path(place) / name
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                found.append((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return digest_value(found)

"""The progress of a comparison on disk, so that the same command continues after a kill.

The folder of each workload has ``kept.json`` with its results so far, written after each step. It is reused if all that
affects the numbers has the same content as before, and the finished builds are still there.
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
"""The last finished step: ``before`` (the baseline is built), ``built``, ``counted``, ``timed``, or empty for none."""
STEPS: tuple[Step, ...] = ("before", "built", "counted", "timed")
_NAME = "kept.json"
_VARIABLES = ("CFLAGS", "CXXFLAGS", "PATH")
"""Environment variables that affect a build by the user's own commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The progress of a workload.

    Attributes:
        of: digest of everything that affects the workload's results, see :func:`key_of`.
        step: last finished step.
        row: results so far.
    """

    of: str
    step: Step
    row: WorkloadResult

    def is_done(self, step: Step) -> bool:
        """Whether a step is finished."""
        return self.step in STEPS and STEPS.index(self.step) >= STEPS.index(step)


def key_of(workload: Workload, context: BuildContext, folder: Path, settings: Mapping[str, object]) -> str:
    """Compute the digest of everything that affects a workload's results.

    Files that options or variables name are included by content; folders of drivers or of the user's sources by the
    names, sizes and times of all their files.

    Args:
        workload: workload.
        context: settings of all builds.
        folder: folder that is ignored below those folders, as the comparison itself writes there.
        settings: settings of counting and timing.

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
                "folders": [_digest_stamps(one, folder) for one in folders],
                "variables": {name: os.environ.get(name, "") for name in _VARIABLES},
                "settings": settings,
                "mlgokit": package_version(),
            }
        )
    except OSError as error:
        raise StorageError(
            f"workload {workload.name!r}: expected readable files of its drivers, sources and options, found: {error}; "
            "correct the permissions"
        ) from error


def read_kept(workspace: Workspace, workload: Workload, toolchain: Toolchain, key: str) -> Kept | None:
    """Read the progress of a workload, and restore its builds; ``None`` if it must start again.

    ``key`` is the digest of :func:`key_of`, which must be that of the stored progress.
    """
    try:
        value: Any = read_json(workspace.folder / _NAME, expected="progress of a comparison", remedy="it is made again")
        found: Kept = decode(Kept, value, _NAME)
    except InputError:
        return None
    sides = SIDES[:1] if found.step == STEPS[0] else SIDES
    if found.of != key or found.step not in STEPS:
        return None
    with writing(workspace.folder):
        _restore_builds(workspace, sides)
    results = dict(zip(SIDES, (found.row.before, found.row.after), strict=True))
    for side in sides if found.step != STEPS[-1] else ():
        # After a power cut a file may be there and empty.
        if (
            not (workspace.folder / side).is_dir()
            or image_of(workload, workspace, toolchain, side) != results[side].image
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
        StorageError: a file cannot be deleted.
    """
    with writing(folder):
        for workload in workloads:
            (folder / workload / _NAME).unlink(missing_ok=True)


def _restore_builds(workspace: Workspace, sides: Sequence[str]) -> None:
    """Clean up after a kill: keep one finished build for each of ``sides``, and no other build.

    A finished build is in the folder of its side, or in ``build`` while it runs. So if exactly one side has no folder,
    ``build`` is that side's; otherwise ``build`` is partial, and is deleted.
    """
    if workspace.build.is_dir():
        missing = [side for side in sides if not (workspace.folder / side).is_dir()]
        if len(missing) == 1:
            workspace.build.rename(workspace.folder / missing[0])
        else:
            shutil.rmtree(workspace.build)
    for side in SIDES:
        if side not in sides:
            shutil.rmtree(workspace.folder / side, ignore_errors=True)


def _digest_stamps(folder: Path, without: Path) -> str:
    """Compute the digest of names, sizes and times of all files below a folder, except for those below ``without``."""
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

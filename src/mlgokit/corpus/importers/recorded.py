"""What a wrapped build compiled and linked, as a compilation database and as link commands."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import WrappedCall
from mlgokit.files import atomic_write


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLink:
    """A link of a build.

    Attributes:
        command: as a shell would be given it; a call that also compiles names objects in the places of its sources.
        folder: where it ran.
        output: what it wrote.
    """

    command: str
    folder: Path
    output: Path


def write_database(calls: Sequence[WrappedCall], path: Path, *, toolchain: Toolchain) -> int:
    """Write the compilation database of a build; gives the number of its entries.

    Args:
        calls: of the project; of several that made the same object, the last counts.
        path: of the database.
        toolchain: whose clang compiled.

    Raises:
        StorageError: the disk is full or not writable.
    """
    entries: dict[Path, dict[str, Any]] = {}
    for call in calls:
        if call.kind == "link" or call.code:
            continue
        for source, output in zip(call.sources, _objects(call), strict=False):
            entries[output] = {
                "directory": str(call.folder),
                "file": str(source),
                "arguments": [_driver(call, toolchain), *call.words],
                "output": str(output),
            }
    atomic_write(path, json.dumps(list(entries.values()), indent=1))
    return len(entries)


def recorded_links(calls: Sequence[WrappedCall], *, toolchain: Toolchain) -> dict[Path, RecordedLink]:
    """The links of a build that succeeded, by what they wrote; of several the last."""
    found: dict[Path, RecordedLink] = {}
    for call in calls:
        if call.kind == "compile" or call.code:
            continue
        objects = dict(zip(call.sources, _objects(call), strict=False)) if call.kind == "both" else {}
        named = {path: str(made) for path, made in objects.items()}
        words = [named.get(Path(os.path.normpath(call.folder / word)), word) for word in call.words]
        for output in call.outputs:
            command = shlex.join([_driver(call, toolchain), *words])
            found[output] = RecordedLink(command=command, folder=call.folder, output=output)
    return found


def in_place_of(calls: Sequence[WrappedCall]) -> str:
    """Of a baseline, in the place of which compilers of the build our clang compiled; empty of no call.

    Example:
        >>> in_place_of([])
        ''
    """
    names = sorted({PurePosixPath(call.name).name for call in calls if call.kind != "link"})
    return f", in the place of the build's {' and '.join(names)}" if names else ""


def _objects(call: WrappedCall) -> list[Path]:
    """The object of each source; where a call also links, one that is named after both, as clang names it."""
    if call.kind == "compile":
        return list(call.outputs)
    (output,) = call.outputs
    return [output.with_name(f"{output.name}-{source.stem}.o") for source in call.sources]


def _driver(call: WrappedCall, toolchain: Toolchain) -> str:
    """The program that ran: a name with two pluses is one for C++."""
    return str(toolchain.clangxx if "++" in call.name else toolchain.clang)

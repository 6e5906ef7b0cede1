"""Conversion of a recorded build to a compilation database and to link commands.

A source that the build deleted or changed after compiling it, or that includes such a file, is in the database as the
preprocessed text that was saved.
"""

import json
import os
import shlex
import shutil
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mlgokit.compiler.driver_call import option_units, preprocessor_words
from mlgokit.compiler.project_calls import LeftOut, shown_path
from mlgokit.compiler.wrapping import WrappedCall
from mlgokit.errors import InputError, ReuseError
from mlgokit.files import atomic_write, writing
from mlgokit.manifest import has_manifest, write_manifest
from mlgokit.unpacking import inflate

_SUFFIXES = {"cpp-output": ".i", "c++-cpp-output": ".ii"}
_LONGEST_TEXT = 256 << 20
_PREPROCESSOR_OPTIONS = ("-D", "-U", "-I", "-i", "-x", "-F", "--include")
"""Options that make no sense for preprocessed text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDatabase:
    """A compilation database that was written: its entries, and those of them that compile preprocessed text."""

    entries: int
    kept: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLink:
    """A link of a build, as a shell command; for a call that also compiles, objects replace its sources."""

    command: str
    folder: Path
    output: Path


def write_database(calls: Sequence[WrappedCall], path: Path, *, kept: Path | None = None) -> WrittenDatabase:
    """Write the compilation database of a build's recorded calls.

    ``kept`` is a folder for preprocessed texts, replaced by this call; without it, sources that need one are left out.

    Raises:
        ReuseError: ``kept`` is a folder of someone else.
        StorageError: the disk is full or not writable.
    """
    if kept is not None:
        _remove_texts(kept)
    entries: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    texts = 0
    for call in calls:
        if call.kind == "link":
            continue
        if call.code:
            left_out += [
                LeftOut(name=shown_path(source, path.parent), reason=f"it failed: {call.reason}")
                for source in call.sources
            ]
            continue
        for index, (source, output) in enumerate(zip(call.sources, _objects_of(call), strict=False)):
            lost = _why_lost(call, index)
            entry: dict[str, Any] = {"directory": str(call.folder), "output": str(output)}
            if not lost:
                entries.append(entry | {"file": str(source), "arguments": [str(call.program), *call.words]})
            elif kept is not None and index < len(call.texts) and (packed := call.texts[index].text) is not None:
                text = _save_text(packed, kept, output.stem + _SUFFIXES[call.texts[index].language])
                entries.append(entry | {"file": str(text), "arguments": _words_of_text(call, index, text, output)})
                texts += 1
            else:
                left_out.append(LeftOut(name=shown_path(source, path.parent), reason=lost))
    atomic_write(path, json.dumps(entries, indent=1))
    return WrittenDatabase(entries=len(entries), kept=texts, left_out=tuple(left_out))


def recorded_links(calls: Sequence[WrappedCall]) -> dict[Path, RecordedLink]:
    """Collect the successful links of a build by output; of several links of one output, the last."""
    links: dict[Path, RecordedLink] = {}
    for call in calls:
        if call.kind == "compile" or call.code:
            continue
        words = list(call.words)
        if call.kind == "both":
            objects = dict(zip(call.sources, _objects_of(call), strict=False))
            named = {path: str(made) for path, made in objects.items()}
            # -x would be applied to objects.
            words = [word for unit in option_units(words) if not unit[0].startswith("-x") for word in unit]
            words = [named.get(Path(os.path.normpath(call.folder / word)), word) for word in words]
        for output in call.outputs:
            command = shlex.join([str(call.program), *words])
            links[output] = RecordedLink(command=command, folder=call.folder, output=output)
    return links


def describe_replaced_compilers(calls: Sequence[WrappedCall]) -> str:
    """Describe which of the build's compilers the baseline's clang replaced; empty without calls."""
    names = sorted({PurePosixPath(call.name).name for call in calls if call.kind != "link"})
    return f", in the place of the build's {' and '.join(names)}" if names else ""


def _objects_of(call: WrappedCall) -> list[Path]:
    """List the object of each source; if a call also links, the object has clang's default name for it."""
    if call.kind == "compile":
        return list(call.outputs)
    (output,) = call.outputs
    names = Counter[str]()
    objects: list[Path] = []
    for source in call.sources:
        names[source.stem] += 1
        number = f"-{names[source.stem]}" if names[source.stem] > 1 else ""
        objects.append(output.with_name(f"{output.name}-{source.stem}{number}.o"))
    return objects


def _why_lost(call: WrappedCall, index: int) -> str:
    """Say why a source cannot be compiled again as it was during the build; empty if it can."""
    source = call.sources[index]
    text = call.texts[index] if index < len(call.texts) else None
    if text is None:
        return "" if source.is_file() else "it came from standard input, or the build removed it"
    if text.is_piped:
        reason = "it was given on standard input"
    elif changed := text.changed:
        how = "changed" if changed[0].exists() else "removed"
        reason = f"the build has {how} {'it' if changed[0] == source else changed[0]} after it was compiled"
    else:
        return ""
    return f"{reason}, and its text was not kept: {text.reason}"


def _save_text(packed: Path, folder: Path, name: str) -> Path:
    """Unpack preprocessed text into a folder of mlgokit, under a name that is free there."""
    if not folder.exists():
        write_manifest(folder, kind="kept sources", config={}, toolchain=None, inputs={})
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = (folder / name).with_stem(f"{Path(name).stem}-{number}")
    try:
        text = inflate(packed.read_bytes(), most_bytes=_LONGEST_TEXT)
    except (ValueError, zlib.error) as error:
        raise InputError(
            f"{packed}: expected preprocessed text of at most {_LONGEST_TEXT} bytes, found: {error}; record the "
            "build again"
        ) from error
    atomic_write(path, text)
    return path


def _remove_texts(folder: Path) -> None:
    if folder.exists() and not has_manifest(folder):
        raise ReuseError(
            f"{folder}: expected the folder where mlgokit keeps copies of sources, found another one; rename it, "
            "or name another database"
        )
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _words_of_text(call: WrappedCall, index: int, text: Path, output: Path) -> list[str]:
    """Make the command that compiles the preprocessed text of a source, without include paths and macros."""
    units = option_units(preprocessor_words(list(call.words), ""))
    options = [word for unit in units if not unit[0].startswith(_PREPROCESSOR_OPTIONS) for word in unit]
    return [str(call.program), *options, "-c", "-x", call.texts[index].language, str(text), "-o", str(output)]

"""Manifests, which record by what command and configuration a folder was made.

Every folder that a stage makes has a ``manifest.json`` with these keys:

===================  =======================================================================================
``format_version``   1; a reader refuses any other
``kind``             what the folder is: ``corpus``, ``trace``, ``policy``, ...
``mlgokit_version``  the version that made it; recorded, not compared
``config``           the configuration of the stage, as JSON
``toolchain``        tool name to version, or null if no compiler took part
``inputs``           name of an input to its digest
===================  =======================================================================================
"""

import dataclasses
import enum
import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from mlgokit.errors import ReuseError
from mlgokit.files import atomic_write
from mlgokit.locks import LOCK_NAME

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"

_ABSENT = "nothing"
_SIGNED = {"search", "corpus", "build", "trace", "train", "work"}
_WORKPLACE = _SIGNED | {
    "cargo", "judge", "link", "profile", "runs", "sources", "store", "compile-steps-stay", "finished",
    "evaluation.json", "results.json",
    "results.md", "builtin.so", "policy.so", "before.so", "after.so",
    *(f"{name}.{suffix}" for name in ("tuned", "report", "bench") for suffix in ("json", "html", "md")), LOCK_NAME,
}  # fmt: skip
"""Names that `mlgokit tune`, `quickstart` and `bench` leave in their folder, which has no manifest of its own."""


def digest_value(value: object) -> str:
    """Compute the SHA-256 of a configuration value in its canonical JSON form, in hexadecimal.

    Example:
        >>> digest_value({"a": 1, "b": (2, 3)}) == digest_value({"b": [2, 3], "a": 1})
        True
    """
    return hashlib.sha256(json.dumps(plain_json(value), sort_keys=True).encode()).hexdigest()


def plain_json(value: object) -> Any:
    """Convert a configuration value to plain JSON values: dataclasses to objects, paths and enums to strings.

    Example:
        >>> plain_json({"folder": Path("a/b"), "sizes": (1, 2)})
        {'folder': 'a/b', 'sizes': [1, 2]}

    Raises:
        TypeError: the value has a part with no JSON form.
    """
    return json.loads(json.dumps(value, default=_plain_part))


def finite_json(value: Any) -> Any:
    """Replace NaN and infinite numbers in a JSON value by ``None``, as JSON does not have them."""
    if isinstance(value, dict):
        return {key: finite_json(part) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [finite_json(part) for part in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_part(value: object) -> object:
    """Convert a part that ``json.dumps`` cannot encode."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[str]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    raise TypeError(f"{value!r} has no JSON form; give the manifest numbers, strings, lists, mappings or dataclasses")


def write_manifest(
    folder: Path,
    *,
    kind: str,
    config: Mapping[str, object],
    toolchain: Mapping[str, str] | None,
    inputs: Mapping[str, str],
) -> None:
    """Write ``folder/manifest.json``; the folder is made if it is missing.

    Args:
        folder: folder that the manifest describes.
        kind: kind of folder, such as ``corpus``.
        config: all settings that affect the folder's content; leave out others, such as the number of workers.
        toolchain: version of each tool that takes part.
        inputs: digest of each input, by name.
    """
    record = _record(kind=kind, config=config, toolchain=toolchain, inputs=inputs)
    atomic_write(folder / MANIFEST_NAME, json.dumps(record, indent=2) + "\n", durable=True)


def has_manifest(folder: Path) -> bool:
    """Whether a folder has a manifest, of any kind and configuration."""
    return bool(_signature(folder))


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration in a folder's manifest; empty if the folder has none."""
    config = _signature(folder).get("config")
    return cast("dict[str, Any]", config) if isinstance(config, dict) else {}


def _signature(folder: Path) -> dict[str, Any]:
    """Read a folder's manifest; empty if there is none, or it is malformed."""
    try:
        manifest: Any = json.loads((folder / MANIFEST_NAME).read_bytes())
    except (ValueError, OSError, RecursionError):
        return {}
    is_manifest = isinstance(manifest, dict) and {"format_version", "kind", "mlgokit_version"} <= manifest.keys()
    return cast("dict[str, Any]", manifest) if is_manifest else {}


def sign_new(folder: Path, kind: str) -> None:
    """Write a manifest into a new or empty folder, which marks all that will be in it as mlgokit's own."""
    if not _has_files(folder):
        write_manifest(folder, kind=kind, config={}, toolchain=None, inputs={})


def has_copies(folder: Path) -> bool:
    """Whether a folder has copies of a build's sources that an earlier version made, without a manifest."""
    return all((folder / name).exists() for name in ("plain-build.log", "source", "tree"))


def is_ours(folder: Path) -> bool:
    """Whether mlgokit made a folder and all that is in it, so that no user's build needs it.

    Such a folder has a manifest; or it is the folder of `mlgokit tune`, `quickstart` or `bench`: its subfolders have
    manifests, and all its files have names that these commands write.
    """
    if has_manifest(folder):
        return True
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError:
        return False
    if has_copies(folder) or {"plain-build.log", "recorded.json"} <= names:
        return True
    if not names & _SIGNED or any(name not in _WORKPLACE and not name.endswith(".plugin") for name in names):
        return False
    return all(is_ours(folder / name) for name in names & _SIGNED)


def check_manifest(
    folder: Path,
    *,
    kind: str,
    config: Mapping[str, object],
    toolchain: Mapping[str, str] | None,
    inputs: Mapping[str, str] | None,
) -> bool:
    """Check that ``folder`` was made by this configuration; ``False`` if the folder is absent or empty.

    The arguments are those of :func:`write_manifest`.

    Without ``inputs`` it may have been made of any.

    Raises:
        ReuseError: the folder was made by another configuration, or has other files; names the first key that differs.
    """
    path = folder / MANIFEST_NAME
    remedy = "choose another folder or delete this one"
    try:
        if not _has_files(folder):
            return False
        manifest: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        expected = f"a folder with {MANIFEST_NAME}, or an empty one"
        raise ReuseError(f"{folder}: expected {expected}, found other files; {remedy}") from None
    except NotADirectoryError:
        raise ReuseError(f"{folder}: expected a folder, found a file; {remedy}") from None
    except (ValueError, OSError, RecursionError) as error:
        raise ReuseError(f"{path}: expected a readable JSON object, found: {error}; {remedy}") from error
    expected = plain_json(_record(kind=kind, config=config, toolchain=toolchain, inputs=inputs or {}))
    for name in ("mlgokit_version", *(("inputs",) if inputs is None else ())):
        del expected[name]
    for key, value in expected.items():
        found_value = cast("dict[str, object]", manifest).get(key) if isinstance(manifest, dict) else manifest
        difference = _first_difference(key, value, found_value)
        if difference is not None:
            where, wanted, got = difference
            raise ReuseError(f"{folder}: {where}: expected {wanted}, found {got}; {remedy}")
    return True


def _record(
    *,
    kind: str,
    config: Mapping[str, object],
    toolchain: Mapping[str, str] | None,
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """Make the content of a manifest."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "mlgokit_version": package_version(),
        "config": plain_json(config),
        "toolchain": None if toolchain is None else dict(toolchain),
        "inputs": dict(inputs),
    }


def _has_files(folder: Path) -> bool:
    """Whether ``folder`` has any file except a lock and temporary files of a killed :func:`atomic_write`."""
    try:
        names = [entry.name for entry in folder.iterdir()]
        return any(name != LOCK_NAME and not (name.startswith(".") and name.endswith(".tmp")) for name in names)
    except FileNotFoundError:
        return False


def package_version() -> str:
    """Return the installed version of this package, or ``unknown``."""
    try:
        return importlib.metadata.version("mlgokit")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _first_difference(where: str, expected: object, actual: object) -> tuple[str, str, str] | None:
    """Find the first difference of two JSON values: dotted key, expected and found; ``None`` if they are equal."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        wanted, got = cast("dict[str, object]", expected), cast("dict[str, object]", actual)
        for key in [*wanted, *(key for key in got if key not in wanted)]:
            inner = f"{where}.{key}"
            if key not in wanted:
                return inner, _ABSENT, _short(json.dumps(got[key]))
            if key not in got:
                return inner, _short(json.dumps(wanted[key])), _ABSENT
            difference = _first_difference(inner, wanted[key], got[key])
            if difference is not None:
                return difference
        return None
    expected_text, found_text = json.dumps(expected), json.dumps(actual)
    return None if expected_text == found_text else (where, _short(expected_text), _short(found_text))


def _short(text: str) -> str:
    """Shorten a text for an error message."""
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"

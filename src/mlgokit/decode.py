"""Decodes JSON values into the dataclasses that they were made from."""

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, cast

from mlgokit.errors import InputError


def read_json(path: Path, *, expected: str, remedy: str) -> Any:
    """Read the JSON value of a file; ``expected`` and ``remedy`` are parts of the error message.

    Raises:
        InputError: the file cannot be read, or is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected {expected}, found: {error}; {remedy}") from error


def check_format(value: object, name: str, version: int, *, where: str, remedy: str) -> dict[str, Any]:
    """Check that a JSON value is a result file of this format and version, and return it as an object.

    ``where`` and ``remedy`` are parts of the error message.

    Raises:
        InputError: the value has another format or version, or is no object.

    Example:
        >>> given = {"format": "mlgokit tuning", "format_version": 1, "modules": []}
        >>> check_format(given, "mlgokit tuning", 1, where="tuning", remedy="tune again with this version")["modules"]
        []
    """
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    found = given.get("format"), given.get("format_version")
    if found != (name, version):
        raise InputError(
            f"{where}: expected a JSON object with format {name!r} and format_version {version}, found "
            f"{found[0]!r:.60} and {found[1]!r:.20}; {remedy}"
        )
    return given


def decode(kind: Any, value: Any, where: str) -> Any:  # noqa: PLR0911  (one return for each kind)
    """Decode a JSON value as the type ``kind``, such as a dataclass or the type of a field; unknown keys are ignored.

    ``where`` names the value in error messages.

    Raises:
        InputError: the value does not fit the type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else decode(arguments[0], value, where)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints, required = _fields(cast("type", kind))
        given = cast("dict[str, Any]", value)
        if absent := sorted(required - set(given)):
            raise _wrong(where, f"the key {absent[0]!r}", "none")
        names = [name for name in hints if name in given]
        return cast("Any", kind)(**{name: decode(hints[name], given[name], f"{where}.{name}") for name in names})
    if origin is dict and isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: decode(arguments[1], part, f"{where}.{key}") for key, part in items}
    if origin is tuple and isinstance(value, list):
        parts = cast("list[Any]", value)
        return tuple(decode(arguments[0], part, f"{where}[{index}]") for index, part in enumerate(parts))
    if kind is float and (value is None or type(value) in {int, float}):
        return math.nan if value is None else float(value)
    if (kind in {int, bool, str} and type(value) is kind) or (origin is typing.Literal and value in arguments):
        return value
    if isinstance(kind, enum.EnumMeta) and value in [one.value for one in cast("Any", kind)]:
        return kind(value)
    expected = "an object" if dataclasses.is_dataclass(kind) else getattr(kind, "__name__", str(kind))
    raise _wrong(where, expected, repr(value)[:80])


@functools.cache
def _fields(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    """Collect the types of a dataclass's fields, and the names of the fields that have no default."""
    fields = dataclasses.fields(cast("Any", kind))
    missing = dataclasses.MISSING
    required = frozenset(one.name for one in fields if one.default is missing and one.default_factory is missing)
    return typing.get_type_hints(kind), required


def _wrong(where: str, expected: str, found: str) -> InputError:
    """Make the error for a value that does not fit its type."""
    return InputError(f"{where}: expected {expected}, found {found}; make the results again with this version")

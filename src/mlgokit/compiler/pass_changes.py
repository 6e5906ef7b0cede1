"""What optional passes of the optimizer changed in one compilation: the list that the plugin writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlgokit.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassChanges:
    """The functions of a module, and what passes changed in them.

    Attributes:
        keys: of the functions that the inliner found, by name.
        changed: by key, each pass that changed the function, and the how manieth question of this pass about it that
            was, from 0; in the order in which they ran.
        executed: by name, instructions of one call of the function's code, by LLVM's estimate of frequencies.
    """

    keys: Mapping[str, int]
    changed: Mapping[int, tuple[tuple[str, int], ...]]
    executed: Mapping[str, float]


def read_changes(path: Path) -> PassChanges:
    """Read a list of the plugin: docs/formats.md, "List of passes".

    Raises:
        InputError: the file is missing or damaged.
    """
    keys: dict[str, int] = {}
    changed: dict[int, list[tuple[str, int]]] = {}
    executed: dict[str, float] = {}
    try:
        # Names may be any bytes but line breaks.
        for line in path.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]:
            kind, key, rest = line.split(" ", 2)
            if kind == "function":
                keys[rest] = int(key, 16)
                changed.setdefault(int(key, 16), [])
            elif kind == "executed":
                executed[rest] = float(key)
            else:
                name, number = rest.rsplit(" ", 1)
                changed[int(key, 16)].append((name, int(number)))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"list of passes {path}: expected functions, and passes that changed them, found {error!r}; the plugin is "
            "of another version of mlgokit"
        ) from error
    return PassChanges(keys=keys, changed={key: tuple(found) for key, found in changed.items()}, executed=executed)

"""What modules that judge say of a policy: the gain of all together, and each by itself."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mlgokit.decode import decode, read_json
from mlgokit.errors import InputError
from mlgokit.files import atomic_write

JUDGED_NAME = "judged.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedModule:
    """A module that judged, with its score under the heuristic and under the policy; smaller is better."""

    module: str
    project: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How a policy did.

    Attributes:
        gain: by which part all scores together are smaller than the heuristic's; for register allocation, where scores
            do not add up, the mean over modules. Minus infinity if none compiled.
        modules: those that compiled.
    """

    gain: float
    modules: tuple[JudgedModule, ...] = ()


def write_judged(folder: Path, modules: Sequence[JudgedModule]) -> None:
    """Keep what the best policy's judges said.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(folder / JUDGED_NAME, json.dumps([asdict(one) for one in modules]))


def read_judged(folder: Path) -> tuple[JudgedModule, ...]:
    """What was kept; nothing if there is none, or if it is damaged: only the report has it."""
    try:
        value = read_json(folder / JUDGED_NAME, expected="modules that judged", remedy="train again")
        return decode(tuple[JudgedModule, ...], value, JUDGED_NAME)
    except InputError:
        return ()

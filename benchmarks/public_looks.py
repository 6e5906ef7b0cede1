"""The log of looks at the test projects of the public benchmark, where the same policies have one look."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from public_projects import VERSION
from results import Cell, Result, Table, today

from mlgokit.errors import InputError, UsageError

LOOK_COLUMNS = (
    "date", "list", "policies", "SHA-256", "LLVM", "projects", "failed", "C++ image", "C++ .text", "C++ image, icf=all",
    "C image", "worst image", "modules not larger", "asked again",
)  # fmt: skip


def read_looks(path: Path) -> list[tuple[Cell, ...]]:
    """The looks at the test so far.

    Raises:
        InputError: the file is no such log.
    """
    if not path.exists():
        return []
    try:
        table = json.loads(path.read_bytes())["tables"][0]
        columns, rows = tuple(table["columns"]), [tuple(row) for row in table["rows"]]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path}: expected a log of looks, found: {error}; restore it from the history") from error
    if columns != LOOK_COLUMNS:
        raise InputError(
            f"{path}: expected the columns {', '.join(LOOK_COLUMNS)}, found {', '.join(columns)}; add them"
        )
    return rows


def check_look(looks: Sequence[tuple[Cell, ...]], digests: Mapping[str, str], *, again: bool) -> None:
    """Refuse a second look by the same policies.

    Raises:
        UsageError: they had one, and ``again`` does not ask for another.
    """
    dates = [str(row[0]) for row in looks if row[LOOK_COLUMNS.index("SHA-256")] == _digests(digests)]
    if dates and not again:
        raise UsageError(
            f"--split test: expected policies that have not looked at it, found a look of {', '.join(dates)} by "
            f"{', '.join(digests)}; choose on the validation split, or say --again, which is written down"
        )


def look(numbers: Sequence[Cell], digests: Mapping[str, str], *, llvm: int, again: bool) -> tuple[Cell, ...]:
    """A look as a row of the log, with ``numbers`` for its columns from ``projects`` on."""
    return (today(), VERSION, ", ".join(digests), _digests(digests), llvm, *numbers, "yes" if again else "no")


def log_of(looks: Sequence[tuple[Cell, ...]]) -> Result:
    """The log of looks as a result."""
    return Result(
        benchmark="public_looks",
        question="Which policies were scored on the test projects of the public benchmark, and when?",
        answer=f"{len(looks)} {'look' if len(looks) == 1 else 'looks'} at the test",
        seed=0,
        tables=(
            Table(
                title="Looks",
                columns=LOOK_COLUMNS,
                rows=tuple(looks),
                note="Against plain -Oz, in the geometric mean over projects. Policies that had a look may not have "
                "another, unless one asks for it.",
            ),
        ),
    )


def _digests(digests: Mapping[str, str]) -> str:
    return ", ".join(sorted(digests.values()))

"""Counting with callgrind (valgrind): exact, on any machine, some fifty times slower than the program."""

import re
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.bench.counts import EVENTS, Counted, Counts, Execution, run_under
from mlgokit.compiler import process
from mlgokit.compiler.compile import first_error
from mlgokit.compiler.toolchain import apt_command
from mlgokit.errors import InputError, ToolError

SLOWER = 150.0
"""How many times the deadline of a plain run it may take."""
_TERMS = {"instructions": ("Ir",), "loads": ("Dr",), "stores": ("Dw",), "branches": ("Bc", "Bi")}
_OBJECT = re.compile(r"(c?)ob=\((\d+)\)(?: (.*))?$")
_POSITIONS = "+-*0123456789"
_SWITCHES = ("-q", "--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes", "--trace-children=yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callgrind:
    """A counter that runs programs under valgrind.

    Attributes:
        valgrind: the program.
        version: what it says it is.
    """

    valgrind: str
    version: str

    @property
    def name(self) -> str:
        """Callgrind and the version of valgrind."""
        return f"callgrind ({self.version})"

    @property
    def exact(self) -> bool:
        """It counts what is executed, and nothing else takes part."""
        return True

    @property
    def events(self) -> tuple[str, ...]:
        """All of them."""
        return EVENTS

    def count(self, execution: Execution, scratch: Path) -> Counted:
        """Run the program under callgrind, its children too, and add up their profiles.

        Raises:
            ToolError: valgrind cannot be started.
        """
        for old in scratch.glob("profile.*"):
            old.unlink()
        words = [self.valgrind, *_SWITCHES, f"--callgrind-out-file={scratch / 'profile.%p'}"]
        if reason := run_under("callgrind", words, execution, timeout_seconds=SLOWER * execution.timeout_seconds):
            return Counted(reason=reason)
        try:
            profiles = [read_profile(path, execution.own) for path in sorted(scratch.glob("profile.*"))]
        except InputError as error:
            return Counted(reason=str(error))
        own, whole = (_sum([profile[part] for profile in profiles]) for part in (0, 1))
        if not own.instructions:
            return Counted(reason=f"nothing below {execution.own} was executed")
        return Counted(whole=whole, own=own)


def find_callgrind() -> Callgrind:
    """The callgrind of this machine, once it has run a program.

    Raises:
        ToolError: valgrind is missing, or does not work here.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise ToolError(f"valgrind: expected it in PATH, found none; run `{apt_command('valgrind')}`")
    tried = process.run([valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "true"], timeout_seconds=60)
    if tried.returncode != 0:
        raise ToolError(
            f"valgrind {valgrind}: expected it to run `true` under callgrind, found: {first_error(tried.stderr)}; "
            "install a valgrind that fits this system"
        )
    said = process.run([valgrind, "--version"], timeout_seconds=60).stdout.decode("utf-8", "replace").strip()
    return Callgrind(valgrind=valgrind, version=said)


def read_profile(path: Path, own: Path) -> tuple[Counts, Counts]:
    """What a file, or the files of a folder, executed by a profile, and what the whole process did.

    The format is callgrind's: a line with costs follows its position, and one after ``calls=`` is of the called
    function, which has lines of its own (https://valgrind.org/docs/manual/cl-format.html).

    Raises:
        InputError: it is no such profile.
    """
    place = own.resolve()
    known: dict[str, bool] = {}
    totals: tuple[list[int], list[int]] | None = None
    columns: list[str] = []
    for object_file, costs in _costs(path):
        if totals is None:
            columns = object_file.split()
            totals = ([0] * len(columns), [0] * len(columns))
            continue
        if object_file not in known:
            found = Path(object_file).resolve()
            known[object_file] = found == place or place in found.parents
        for column, cost in enumerate(costs[: len(columns)]):
            totals[1][column] += cost
            totals[0][column] += cost if known[object_file] else 0
    if totals is None:
        raise InputError(f"{path}: expected a profile of callgrind, found no line with events; run it again")
    return _counts(columns, totals[0]), _counts(columns, totals[1])


def _costs(path: Path) -> Generator[tuple[str, list[int]]]:
    """First the names of the events; then of each line its object file and costs, without zeros at the end."""
    names: dict[str, str] = {}
    current, skipped, begun = "", False, False
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("events:"):
                begun = True
                yield line.partition(":")[2], []
            elif found := _OBJECT.match(line):
                if found[3] is not None:
                    names.setdefault(found[2], found[3])
                if not found[1]:
                    current = names.get(found[2], "")
            elif line.startswith("calls="):
                skipped = True
            elif begun and line[0] in _POSITIONS:
                if not skipped:
                    yield current, [int(word) for word in line.split()[1:]]
                skipped = False


def _counts(columns: Sequence[str], totals: Sequence[int]) -> Counts:
    by_name = dict(zip(columns, totals, strict=True))
    return Counts(
        **{
            event: sum(by_name[term] for term in terms) if set(terms) <= by_name.keys() else None
            for event, terms in _TERMS.items()
        }
    )


def _sum(counts: Sequence[Counts]) -> Counts:
    values = [one.to_json() for one in counts]
    return Counts(
        **{
            event: sum(number for one in values if (number := one[event]) is not None)
            for event in EVENTS
            if values and all(one[event] is not None for one in values)
        }
    )

"""Counting of executed instructions with callgrind (valgrind): exact on any machine, but fifty times slower."""

import functools
import re
import shutil
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mlgokit.bench.counts import EVENTS, Counted, Counts, Execution, run_under
from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.run_costs import FunctionCosts, symbol_of
from mlgokit.compiler.toolchain import apt_command
from mlgokit.errors import InputError, ToolError

SLOWER = 150.0
"""Factor by which the deadline of a run is extended under callgrind."""
_TERMS = {"instructions": ("Ir",), "loads": ("Dr",), "stores": ("Dw",), "branches": ("Bc", "Bi")}
_NAMED = re.compile(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$")
_POSITIONS = "+-*0123456789"
_SWITCHES = ("-q", "--tool=callgrind", "--trace-children=yes", "--demangle=no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callgrind:
    """A counter that runs programs under valgrind.

    Attributes:
        valgrind: path of valgrind.
        version: version of valgrind.
        simulates: whether caches and branches are simulated, which loads, stores and branches are counted by; without
            it only instructions are, several times as fast.
    """

    valgrind: str
    version: str
    simulates: bool = True

    @property
    def name(self) -> str:
        """Callgrind and the version of valgrind."""
        return f"callgrind ({self.version})"

    @property
    def exact(self) -> bool:
        """Always true: only executed instructions are counted."""
        return True

    def count(self, execution: Execution, scratch: Path) -> Counted:
        """Run the program and its children under callgrind, and add up their profiles.

        Raises:
            ToolError: valgrind cannot be started.
        """
        for old in scratch.glob("profile.*"):
            old.unlink()
        switches = (*_SWITCHES, *(["--cache-sim=yes", "--branch-sim=yes"] if self.simulates else []))
        words = [self.valgrind, *switches, f"--callgrind-out-file={scratch / 'profile.%p'}"]
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
    """Find callgrind, and try it on a program.

    Raises:
        ToolError: valgrind is missing, or does not work here.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise ToolError(f"callgrind: expected valgrind in PATH, found none; run `{apt_command('valgrind')}`")
    tried = process.run([valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "true"], timeout_seconds=60)
    if tried.returncode != 0:
        raise ToolError(
            f"valgrind {valgrind}: expected it to run `true` under callgrind, found: {first_error(tried.stderr)}; "
            "install a valgrind that fits this system"
        )
    version = process.run([valgrind, "--version"], timeout_seconds=60).stdout.decode("utf-8", "replace").strip()
    return Callgrind(valgrind=valgrind, version=version)


def read_profile(path: Path, own: Path) -> tuple[Counts, Counts]:
    """Sum a callgrind profile: the events in the object file ``own`` (or all in that folder), and in the whole process.

    A line with costs follows its position; one after ``calls=`` belongs to the called function, which has lines of its
    own (https://valgrind.org/docs/manual/cl-format.html).

    Raises:
        InputError: the file is no callgrind profile.
    """
    columns, lines = _read(path, own)
    mine, whole = ([0] * len(columns), [0] * len(columns))
    for is_own, line in lines:
        for column, cost in enumerate(line.costs[: len(columns)]):
            whole[column] += cost
            mine[column] += cost if is_own else 0
    return _counts(columns, mine), _counts(columns, whole)


def read_costs(paths: Iterable[Path], own: Path) -> FunctionCosts:
    """Sum what functions execute and call in the processes that executed a file in the folder ``own``.

    Raises:
        InputError: a file is no callgrind profile.
    """
    instructions, calls = Counter[str](), Counter[tuple[str, str]]()
    for path in paths:
        columns, lines = _read(path, own)
        if "Ir" not in columns:
            raise InputError(
                f"{path}: expected counts of instructions (Ir), found {' '.join(columns)}; run callgrind again"
            )
        place = columns.index("Ir")
        its_instructions, its_calls, is_of_build = Counter[str](), Counter[tuple[str, str]](), False
        for is_own, line in lines:
            is_of_build |= is_own
            function = symbol_of(line.function)
            its_instructions[function] += line.costs[place] if len(line.costs) > place else 0
            if line.calls:
                its_calls[function, symbol_of(line.called)] += line.calls
        if is_of_build:
            instructions += its_instructions
            calls += its_calls
    return FunctionCosts(own=instructions, calls=calls)


class _Line(NamedTuple):
    """A line of a profile: costs of a function, or calls that it makes.

    Attributes:
        object_file: path of the file with the function.
        function: its symbol.
        costs: by event; empty for calls, whose costs are those of the called functions.
        called: symbol of the called function.
        calls: number of calls.
    """

    object_file: str = ""
    function: str = ""
    costs: Sequence[int] = ()
    called: str = ""
    calls: int = 0


def _read(path: Path, own: Path) -> tuple[list[str], Iterator[tuple[bool, _Line]]]:
    """Read the names of the events, and the lines of :func:`_lines`, with whether the object file is in ``own``."""
    place = own.resolve()

    @functools.cache
    def is_own(object_file: str) -> bool:
        resolved = Path(object_file).resolve()
        return resolved == place or place in resolved.parents

    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: expected a profile of callgrind, found no line with events; run callgrind again")
    return first.called.split(), ((is_own(line.object_file), line) for line in lines)


def _lines(path: Path) -> Generator[_Line]:
    """Parse a profile: first yield the names of events, as ``called``; then each line with costs or calls."""
    names: dict[tuple[str, str], str] = {}
    current = {"ob": "", "fn": "", "cfn": ""}
    begun = False
    calls: int | None = None
    positions = 1
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("events:"):
                begun = True
                yield _Line(called=line.partition(":")[2])
            elif line.startswith("positions:"):
                positions = len(line.split()) - 1
            elif found := _NAMED.match(line):
                is_called, kind, number, name = found.groups()
                if name is not None:
                    names.setdefault((kind, number), name)
                current[is_called + kind] = names.get((kind, number), "")
            elif line.startswith("calls="):
                calls = int(line.partition("=")[2].split()[0])
            elif begun and line[0] in _POSITIONS:
                if calls is not None:
                    yield _Line(current["ob"], current["fn"], called=current["cfn"], calls=calls)
                else:
                    costs = [int(word) for word in line.split()[positions:]]
                    yield _Line(current["ob"], current["fn"], costs)
                calls = None


def _counts(columns: Sequence[str], totals: Sequence[int]) -> Counts:
    """Make counts of callgrind's totals; an event is ``None`` if the profile lacks its columns."""
    by_name = dict(zip(columns, totals, strict=True))
    return Counts(
        **{
            event: sum(by_name[term] for term in terms) if set(terms) <= by_name.keys() else None
            for event, terms in _TERMS.items()
        }
    )


def _sum(counts: Sequence[Counts]) -> Counts:
    """Add up counts; an event is ``None`` if it is missing in one of them."""
    values = [one.to_json() for one in counts]
    return Counts(
        **{
            event: sum(number for one in values if (number := one[event]) is not None)
            for event in EVENTS
            if values and all(one[event] is not None for one in values)
        }
    )

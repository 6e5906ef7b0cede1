"""Counts executed instructions with hardware counters, by ``perf stat``: at full speed, on machines that have them.

Virtual machines and containers often list events that never count. So each event is tried on a program, and only events
that give a number there are used.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.bench.counts import EVENTS, Counted, Counts, Execution, run_under
from mlgokit.compiler import process

_NAMES: Mapping[str, tuple[str, ...]] = {
    "instructions": ("instructions:u",),
    "loads": ("mem_inst_retired.all_loads:u", "ls_dispatch.ld_dispatch:u", "L1-dcache-loads:u"),
    "stores": ("mem_inst_retired.all_stores:u", "ls_dispatch.store_dispatch:u", "L1-dcache-stores:u"),
    "branches": ("branches:u",),
}
"""Perf's names of each event, the exact ones first: Intel's, AMD's, and the generic one that each machine maps."""
_LEAST = 1000
"""Minimum count in a run of Python, which executes millions; a lower count means that the event does not count."""
_WHOLE_TIME = 99.9
"""Minimum percentage of the time in which an event was counted; below that perf extrapolates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Perf:
    """A counter that uses hardware events.

    Attributes:
        perf: path of perf.
        version: version of perf.
        names: perf's name of each event that counts on this machine.
    """

    perf: str
    version: str
    names: Mapping[str, str]

    @property
    def name(self) -> str:
        """Perf's version and its names of the events."""
        return f"{self.version}: {', '.join(self.names.values())}"

    @property
    def exact(self) -> bool:
        """Always false: interrupts and page faults disturb the last digits."""
        return False

    def count(self, execution: Execution, scratch: Path) -> Counted:
        """Run the program and its children under ``perf stat``.

        Raises:
            ToolError: perf cannot be started.
        """
        output = scratch / "perf.csv"
        output.unlink(missing_ok=True)
        words = _words(self.perf, tuple(self.names.values()), output)
        if reason := run_under("perf", words, execution, timeout_seconds=execution.timeout_seconds):
            return Counted(reason=reason)
        found = read_counters(output.read_text(encoding="utf-8", errors="replace")) if output.exists() else {}
        values = {event: found[name] for event, name in self.names.items() if name in found}
        if "instructions" not in values:
            return Counted(reason="perf counted no instructions in this run")
        return Counted(whole=Counts(**values))


def find_perf(scratch: Path) -> Perf | str:
    """Find perf and all events that count on this machine, or return why none does.

    Args:
        scratch: folder for temporary files.
    """
    perf = shutil.which("perf")
    if perf is None:
        return "perf is not installed"
    names: dict[str, str] = {}
    for event in EVENTS:
        for name in _NAMES[event]:
            output = scratch / "tried.csv"
            output.unlink(missing_ok=True)
            process.run([*_words(perf, [name], output), sys.executable, "-I", "-c", "pass"], timeout_seconds=60)
            text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
            if read_counters(text).get(name, 0) >= _LEAST:
                names[event] = name
                break
        if "instructions" not in names:
            return "perf counts no instructions on this machine"
    version = process.run([perf, "--version"], timeout_seconds=60).stdout.decode("utf-8", "replace").strip()
    return Perf(perf=perf, version=version, names=names)


def _words(perf: str, names: Sequence[str], output: Path) -> list[str]:
    """Make the beginning of a command line that counts events and writes them to ``output``."""
    return [perf, "stat", "-x", ",", "--no-big-num", "-e", ",".join(names), "-o", str(output), "--"]


def read_counters(text: str) -> dict[str, int]:
    r"""Parse the events in the output of ``perf stat -x,``; those that were not counted all the time are dropped.

    A line is value, unit, event, time counted, percent of the time, and what depends on the event.

    Example:
        >>> read_counters("# started on Sun\n5000,,instructions:u,9,100.00,,\n<not counted>,,branches:u,0,0.00,,\n")
        {'instructions:u': 5000}
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split(",")
        if len(words) >= 5 and words[0].isdecimal() and _number(words[4]) >= _WHOLE_TIME:
            found[words[2]] = int(words[0])
    return found


def _number(text: str) -> float:
    """Parse a number; 0 for any other text."""
    try:
        return float(text)
    except ValueError:
        return 0.0

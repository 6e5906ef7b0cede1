"""What a comparison of running programs found, as values: what ``bench.json`` has.

``before`` is the side that is compared with, plain unless something else was asked for; ``after`` is the side that is
judged. Changes are after / before less 1, so negative is less.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.bench.counts import Counts
from mlgokit.builds.variant import VariantRecord
from mlgokit.decode import decode, of_format, read_json
from mlgokit.manifest import finite_json

FORMAT = "mlgokit bench"
FORMAT_VERSION = 1
SideName = str
"""``before`` or ``after``."""
SIDES: tuple[SideName, SideName] = ("before", "after")
Verdict = str
"""``less``, ``more``, ``same`` or ``undecided``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A step that failed for a workload, whose numbers are then missing.

    Attributes:
        side: side of the build.
        step: ``build``, ``run``, ``output``, ``count``, ``time`` or ``results``.
        reason: the reason.
    """

    side: SideName
    step: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCost:
    """The cost of one build.

    Attributes:
        seconds: processor time, in user and system mode, of all commands; the link is not in it where we link.
        peak_bytes: largest resident set of one process.
        compilations: how many there were; 0 where the user's own commands compile.
    """

    seconds: float
    peak_bytes: int
    compilations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number that varies, measured on both sides alternately.

    Attributes:
        name: of the benchmark or test within the workload; empty for the workload itself.
        measure: what it is, such as ``time`` or ``exec_time``.
        unit: of ``before`` and ``after``; empty where the file says none.
        before: mean over the runs.
        after: likewise.
        low: lower end of the interval of the relative change, if there is one.
        high: its upper end.
        runs: on each side.
        verdict: what the interval says.
    """

    name: str = ""
    measure: str
    unit: str
    before: float
    after: float
    low: float | None
    high: float | None
    runs: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SideResult:
    """One build of one workload.

    Attributes:
        image: bytes of code, read-only data and unwind tables of the program, if it is an ELF file that was built.
        own: executed in the files that were built; hardware counters do not know.
        whole: executed in the whole process and its children.
        cost: of the build.
    """

    image: int | None = None
    own: Counts | None = None
    whole: Counts | None = None
    cost: BuildCost | None = None

    @property
    def counts(self) -> Counts:
        """What was executed: in the workload's own files where that is known."""
        return self.own or self.whole or Counts()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """The results of one workload.

    Attributes:
        name: name of the workload.
        kind: kind of program.
        failures: steps that failed.
        same_output: whether both builds ended alike and put out the same; ``None`` if one did not run.
        before: the one build.
        after: the other one.
        time: processor time of a run.
        untimed: why there is none, where that is no failure.
        results: what the runs said of themselves, by benchmark or test.
    """

    name: str
    kind: str
    failures: tuple[Failure, ...] = ()
    same_output: bool | None = None
    before: SideResult = SideResult()
    after: SideResult = SideResult()
    time: Measured | None = None
    untimed: str = ""
    results: tuple[Measured, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of a measure over the workloads: geometric mean, and 95 % interval.

    Attributes:
        measure: its name.
        mean: relative change.
        low: lower end of the interval; ``None`` with one workload.
        high: its upper end.
        workloads: how many have it on both sides.
    """

    measure: str
    mean: float
    low: float | None
    high: float | None
    workloads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A comparison of two builds by what their programs execute.

    Attributes:
        before: the side that is compared with.
        after: the side that is judged.
        counter: who counted, and what of; empty if nobody did.
        exact: whether two runs of one program are counted alike.
        uncounted: why hardware counters were not used, or why nothing was counted.
        toolchain: versions of the compiler and the linker.
        workloads: one each.
        changes: over the workloads.
        seed: of their intervals.
        command: what was typed.
        mlgokit_version: of this package.
    """

    before: VariantRecord
    after: VariantRecord
    counter: str
    exact: bool
    uncounted: str
    toolchain: dict[str, str]
    workloads: tuple[WorkloadResult, ...]
    changes: tuple[Change, ...]
    seed: int = 1
    command: str = ""
    mlgokit_version: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all workloads were built and ran with equal output."""
        return all(not one.failures and one.same_output is not False for one in self.workloads)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return finite_json({"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, value: object, where: str) -> "Bench":
        """What :meth:`to_json` gave; ``where`` names it in errors.

        Raises:
            InputError: another format or version, a missing key, or a value of another type.
        """
        given = of_format(value, FORMAT, FORMAT_VERSION, where=where, remedy="make it again with this version")
        return decode(cls, given, where)


def load_bench(path: Path) -> Bench:
    """Read what :meth:`Bench.to_json` gave.

    Raises:
        InputError: it is no such file, or of another version.
    """
    return Bench.from_json(read_json(path, expected="the JSON of `mlgokit bench`", remedy="make it again"), str(path))

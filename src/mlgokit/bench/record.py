"""The results of a comparison of running programs, as values, which ``bench.json`` has.

``before`` is the baseline, plain unless another is asked for; ``after`` is the candidate. Changes are after / before
minus 1, so negative is less.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.bench.counts import Counts
from mlgokit.builds.variant import VariantRecord
from mlgokit.decode import check_format, decode, read_json
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
        side: side that failed.
        step: step that failed: ``build``, ``run``, ``output``, ``count``, ``time`` or ``results``.
        reason: why it failed.
    """

    side: SideName
    step: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCost:
    """The cost of one build.

    Attributes:
        seconds: processor time of all commands, in user and system mode, without the link of a workload of projects.
        peak_bytes: largest resident set of one process.
        compilations: number of compilations; 0 where the user's own commands compile.
    """

    seconds: float
    peak_bytes: int
    compilations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number that varies, measured on both sides alternately.

    Attributes:
        name: name of the benchmark or test within the workload; empty for the workload itself.
        measure: name of the measure, such as ``time`` or ``exec_time``.
        unit: unit of ``before`` and ``after``; empty if it is not known.
        before: mean over the baseline's runs.
        after: mean over the candidate's runs.
        low: lower end of the interval of the relative change, if there is one.
        high: upper end of that interval.
        runs: number of runs of each side.
        verdict: classification of the interval.
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
        own: events in the files that were built; ``None`` with hardware counters, which cannot tell.
        whole: events in the whole process and its children.
        cost: cost of the build.
    """

    image: int | None = None
    own: Counts | None = None
    whole: Counts | None = None
    cost: BuildCost | None = None

    @property
    def counts(self) -> Counts:
        """Executed events: those in the workload's own files if they are known, else those of the whole process."""
        return self.own or self.whole or Counts()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """The results of one workload.

    Attributes:
        name: name of the workload.
        kind: kind of program.
        failures: steps that failed.
        same_output: whether both builds had the expected exit code and the same output; ``None`` if one did not run.
        before: results of the baseline.
        after: results of the candidate.
        time: processor time of a run.
        untimed: why there is no time, if that is no failure.
        results: results that the runs wrote themselves, by benchmark or test.
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
        measure: name of the measure.
        mean: relative change.
        low: lower end of the interval; ``None`` with one workload.
        high: upper end of the interval.
        workloads: number of workloads that have the measure on both sides.
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
        before: the baseline.
        after: the candidate.
        counter: name of the counter, with the names of its events; empty if nothing was counted.
        exact: whether two runs of one program have the same counts.
        uncounted: why hardware counters were not used, or why nothing was counted.
        toolchain: versions of the compiler and the linker.
        workloads: results of each workload.
        changes: mean changes over the workloads.
        seed: random seed of the intervals of these changes.
        command: command line of the comparison.
        mlgokit_version: version of mlgokit that compared.
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
        """Convert the comparison to plain JSON values."""
        return finite_json({"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, value: object, where: str) -> "Bench":
        """Decode what :meth:`to_json` encoded; ``where`` names it in error messages.

        Raises:
            InputError: the value has another format or version, lacks a key, or has a value of another type.
        """
        given = check_format(value, FORMAT, FORMAT_VERSION, where=where, remedy="make it again with this version")
        return decode(cls, given, where)


def load_bench(path: Path) -> Bench:
    """Read ``bench.json``.

    Raises:
        InputError: the file cannot be read, or has another format or version.
    """
    return Bench.from_json(read_json(path, expected="the JSON of `mlgokit bench`", remedy="make it again"), str(path))

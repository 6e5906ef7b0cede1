"""What a whole run gave: ``results.json``. A change is after / before less 1, so negative is smaller."""

from dataclasses import dataclass
from typing import Any, cast

from mlgokit.errors import InputError
from mlgokit.evaluation.decode import decode
from mlgokit.evaluation.program import ProgramComparison
from mlgokit.evaluation.records import Evaluation
from mlgokit.manifest import finite_json, plain_json
from mlgokit.pages.model import percent, relative_change
from mlgokit.terminal import counted

FORMAT_VERSION = 1
RESULTS_NAME = "results.json"
FORMAT = "mlgokit run"
REPORT_NAME = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """One round of training.

    Attributes:
        round: counted from 0.
        compilations: compilations of the round.
        user_seconds: their processor time.
        flips: flipped decisions collected so far.
        components: labels made of them.
        correlation: of predicted and measured changes on projects not learned from; NaN if unknown.
        unattributed_share: part of all measured change that no flip explains, 0 to 1.
        failures: compilations that failed.
    """

    round: int
    compilations: int
    user_seconds: float
    flips: int
    components: int
    correlation: float
    unattributed_share: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """What a stage of the run cost; ``reused`` if an earlier run had done it."""

    stage: str
    seconds: float
    compilations: int
    reused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Everything that a run gave, and what makes it repeatable.

    Attributes:
        command: what was typed.
        mlgokit_version: of this package.
        toolchain: tool name -> version.
        seed: random seed.
        corpus: what was counted (``projects``, ``modules``, ``c++ modules``, ``failures``) -> number.
        stages: in the order in which they ran.
        rounds: of training.
        evaluation: the policy on projects held out of training.
        control: the heuristic echoed through the plugin on the same projects; about 0 everywhere.
        program: a real program, or ``None`` if none was built.
        policy: file of the policy.
        plugin: file for ``clang -fpass-plugin=``.
        peak_bytes: largest resident memory of the run.
        shipped: the same program by the policies that come with the package, before anything is trained, or ``None``.
    """

    command: str
    mlgokit_version: str
    toolchain: dict[str, str]
    seed: int
    corpus: dict[str, int]
    stages: tuple[StageTime, ...]
    rounds: tuple[RoundReport, ...]
    evaluation: Evaluation
    control: Evaluation | None
    program: ProgramComparison | None
    policy: str
    plugin: str
    peak_bytes: int
    shipped: ProgramComparison | None = None

    @property
    def policy_file(self) -> str:
        """Its path, without the digest behind it."""
        return self.policy.partition(" (sha256 ")[0]

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values; a number that is not finite is ``None``."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **finite_json(plain_json(self))}

    @classmethod
    def from_json(cls, value: object) -> "RunReport":
        """The report that :meth:`to_json` gave; keys that are not known are ignored.

        Raises:
            InputError: another format version, a missing key, or a value of another type.
        """
        version = cast("dict[str, Any]", value).get("format_version") if isinstance(value, dict) else None
        if version != FORMAT_VERSION:
            raise InputError(
                f"results: expected a JSON object with format_version {FORMAT_VERSION}, found {version}; "
                "make the results again with this version"
            )
        return decode(cls, value, "results")


def program_sentence(program: ProgramComparison) -> str:
    """What became of the real program, in one sentence."""
    change = percent(relative_change(program.before.image, program.after.image))
    sizes = f"{program.name}: linked image {program.before.image:,} -> {program.after.image:,} bytes ({change})"
    if program.runs == 0:
        return f"{sizes}; it was not run."
    behaviour = "the same behaviour" if program.same_behaviour else "NOT the same behaviour"
    return f"{sizes}; {behaviour} in {counted(program.runs, 'run')}."


def failures(report: RunReport) -> list[tuple[str, str, str]]:
    """Everything that went wrong: where, what, and why."""
    found: list[tuple[str, str, str]] = []
    for label, evaluation in (("policy", report.evaluation), ("control", report.control)):
        for project in evaluation.projects if evaluation is not None else ():
            if project.link_failure:
                found.append((project.project, f"link, {label}", project.link_failure))
            found += [
                (failure.module, f"compile {failure.build}, {label}", failure.reason) for failure in project.failures
            ]
    found += [
        (f"round {entry.round + 1}", "training", f"{entry.failures} of {entry.compilations} compilations failed")
        for entry in report.rounds
        if entry.failures
    ]
    for program in (report.shipped, report.program):
        if program is not None:
            found += [(program.name, "run", f"other behaviour of: {difference}") for difference in program.differences]
    return found

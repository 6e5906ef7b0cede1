"""The result of a tuning: totals and one row for each module, whatever was searched."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlgokit.builds.measurement import Comparison
from mlgokit.builds.recorded import TunedBuild
from mlgokit.compiler.objects.link import LinkedImage
from mlgokit.compiler.regalloc_cost import OFFSET
from mlgokit.decode import check_format, decode
from mlgokit.statistics import geometric_mean_change
from mlgokit.tune.replay import ReplayResult
from mlgokit.tune.search import CurvePoint

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = "mlgokit tuning"
COMPRESSED = "compressed"
"""The objective that counts compressed files."""
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillCosts:
    """What spills, reloads and copies cost by LLVM's estimate, relative to the entry of each function.

    Attributes:
        functions: how many have costs in either build.
        plain: the sum of their costs in the plain build.
        tuned: the same with the plugin.
        change: geometric mean of tuned by plain costs, minus 1.
    """

    functions: int
    plain: float
    tuned: float
    change: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModule:
    """One module of the result.

    Attributes:
        name: the module.
        plain_bytes: what it answers for in the project's account under the plain build; its code, where costs count.
        tuned_bytes: the same under the artifact.
        plain: whether it stays as in the plain build, byte for byte.
        decisions: how many the artifact holds for it.
        allocated: how many of its functions are allocated otherwise; a COMDAT function counts in each module.
        passes: how many of its functions some passes are left out of, likewise.
        optimizer_passes: how many of its functions some passes of the optimizer are left out of.
        note: what was put back although something better had been found, and why; empty otherwise.
        costs: of its functions, where these count.
    """

    name: str
    plain_bytes: float
    tuned_bytes: float
    plain: bool
    note: str
    decisions: int = 0
    allocated: int = 0
    passes: int = 0
    optimizer_passes: int = 0
    costs: SpillCosts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedFunctions:
    """The result of a search function by function: over register allocations, or over passes.

    Attributes:
        functions: how many were measured; where costs count, those with costs in each module that has them.
        changed: how many the artifact changes.
        before_bytes: the project's account without this table; its code, where costs count.
        after_bytes: the same with them.
        put_back: functions that the objects refuted; all of a module if it is no smaller.
        user_seconds: processor time of this search.
        compilations: how many there were.
        trials: how often the code of a function was made, or its registers allocated.
        costs: of the functions, where these count.
    """

    functions: int
    changed: int
    before_bytes: float
    after_bytes: float
    put_back: int
    user_seconds: float
    compilations: int
    trials: int
    costs: SpillCosts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPolicies:
    """The same project with the policies that come with the package.

    Attributes:
        name: of the policies, such as ``builtin:Oz``.
        bytes: the project's account.
        judged: the plain build and this one by the user's own links or command.
        before_bytes: the account of the tuned build without them; ``None`` if its plugin does not have them.
    """

    name: str
    bytes: float
    judged: Comparison | None = None
    before_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of a tuning.

    Attributes:
        plugin: the shared library, by the name that was asked for.
        built: the user's build with the plugin, if the tuning was of a build.
        plugin_sha256: digest of the library that was verified; empty before it is published.
        versioned: the same library by a name with its digest, which builds load; empty before it is published.
        table: the decision table; the allocation table, where costs count.
        flag: what to add to clang's command line; of a cargo build the command with the plugin.
        plain_bytes: the project's account under the plain build: every COMDAT signature once; its code, where costs
            count.
        tuned_bytes: the same under the artifact, from the objects that were compiled with it.
        plain_link: all plain objects linked with --gc-sections, or why that failed.
        tuned_link: the same with the tuned ones.
        judged: the plain build and the tuned one by the user's own link or command, if that is the objective.
        allocated: result of the search over register allocations, if there was one.
        passes: the same over passes of the code generator.
        optimizer_passes: the same over passes of the optimizer.
        left_out: sources of the project that were not tuned, with the reason.
        notes: remarks about the build, such as options that are left out of it.
        taken_back: how often a judge reverted a module.
        ended: why the search stopped.
        modules: one each.
        failures: modules that the compiler does not compile, with the reason.
        curve: of the search with which the table was made.
        user_seconds: processor time of all compilations.
        compilations: how many there were.
        wall_seconds: from the call to the result, with the user's builds; 0 if not known.
        objective: what was minimised.
        baseline: what sizes are compared with: compiler, version and levels.
        seed: of the search.
        command: the command line.
        mlgokit_version: of this package.
        toolchain: tool name -> version.
        report: path of the report.
        cargo_programs: of a cargo build, code, read-only data and unwind tables of each program as rustc links it,
            plain and tuned.
        replay: result of the decisions as a replay list, if one was asked for.
        shipped: the project with the policies that come with the package, which are free.
    """

    plugin: str
    table: str
    plain_bytes: float
    tuned_bytes: float
    plain_link: LinkedImage | None
    tuned_link: LinkedImage | None
    judged: Comparison | None
    taken_back: int
    ended: str
    modules: tuple[TunedModule, ...]
    failures: dict[str, str]
    curve: tuple[CurvePoint, ...]
    user_seconds: float
    compilations: int
    flag: str = ""
    allocated: SearchedFunctions | None = None
    passes: SearchedFunctions | None = None
    optimizer_passes: SearchedFunctions | None = None
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    plugin_sha256: str = ""
    versioned: str = ""
    built: TunedBuild | None = None
    wall_seconds: float = 0.0
    objective: str = ""
    baseline: str = ""
    seed: int | None = None
    command: str = ""
    mlgokit_version: str = ""
    toolchain: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    report: str = ""
    cargo_programs: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict[str, tuple[int, int]])
    replay: ReplayResult | None = None
    shipped: ShippedPolicies | None = None

    @property
    def costs(self) -> SpillCosts | None:
        """Of the functions, where these count and not bytes."""
        return None if self.allocated is None else self.allocated.costs

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **json_of(self)}

    @classmethod
    def from_json(cls, value: object) -> "Tuned":
        """The result that :meth:`to_json` gave; keys that are not known are ignored.

        Raises:
            InputError: another format or version, a missing key, or a value of another type.
        """
        given = check_format(value, FORMAT, FORMAT_VERSION, where="tuning", remedy="tune again with this version")
        return decode(cls, given, "tuning")


def costs_of(pairs: Sequence[tuple[float, float]]) -> SpillCosts:
    """The costs of functions, plain and tuned."""
    return SpillCosts(
        functions=len(pairs),
        plain=sum(plain for plain, _ in pairs),
        tuned=sum(tuned for _, tuned in pairs),
        change=mean_ratio(pairs),
    )


def mean_ratio(scores: Sequence[tuple[float, float]]) -> float:
    """Geometric mean of after by before, each with the offset of relative changes, minus 1.

    Example:
        >>> round(mean_ratio([(100.0, 50.0), (100.0, 100.0)]), 3)
        -0.293
    """
    if not scores:
        return 0.0
    before, after = (np.array(scores) + OFFSET).T
    return geometric_mean_change(before, after)


def json_of(result: "DataclassInstance") -> dict[str, Any]:
    """The fields of a result as plain JSON values; costs are left out where they do not count."""
    value = dataclasses.asdict(result)
    for key in ("plain_link", "tuned_link"):
        if value[key] is not None:
            value[key]["status"] = value[key]["status"].value
    searches = [value.get(name) for name in ("allocated", "passes", "optimizer_passes")]
    for part in (value, *searches, *value["modules"]):
        # What a check says of passes is a number.
        if part is not None and not isinstance(part, int) and part.get("costs") is None:
            part.pop("costs", None)
            part.pop("worse", None)
    return value

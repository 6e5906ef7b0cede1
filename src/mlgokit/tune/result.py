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
    """Costs of spills, reloads and copies by LLVM's estimate, relative to the entry of each function.

    Attributes:
        functions: number of functions with costs in either build.
        plain: sum of their costs in the plain build.
        tuned: sum of their costs with the plugin.
        change: geometric mean of the ratios of tuned to plain costs, minus 1.
    """

    functions: int
    plain: float
    tuned: float
    change: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModule:
    """One module of the result.

    Attributes:
        name: name of the module.
        plain_bytes: its bytes in the project's account without the plugin, or of its code if the objective is costs.
        tuned_bytes: its bytes in the project's account with the plugin, or of its code if the objective is costs.
        plain: whether it stays as in the plain build, byte for byte.
        decisions: number of inlining decisions that the plugin has for it.
        allocated: number of its functions whose registers the plugin allocates, with COMDAT functions of other modules.
        passes: number of its functions that skip passes of the code generator, with COMDAT functions of other modules.
        optimizer_passes: number of its functions that skip passes of the optimizer.
        note: why its search result was reverted; empty if it was not.
        costs: costs of its functions, if the objective is costs.
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
        functions: number of functions that were measured; if the objective is costs, of those with costs, in each
            module that has them.
        changed: number of functions that the plugin changes.
        before_bytes: the project's account without this table; bytes of its code, if the objective is costs.
        after_bytes: the project's account with this table; bytes of its code, if the objective is costs.
        put_back: number of functions that were reverted, because they were no smaller in the objects.
        user_seconds: processor time of this search.
        compilations: number of compilations.
        trials: number of times that the code of a function was generated, or its registers allocated.
        costs: costs of the functions, if the objective is costs.
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
    """The project built with the pretrained policies that come with the package, without a search.

    Attributes:
        name: name of the policies, such as ``builtin:Oz``.
        bytes: the project's account with the policies alone.
        judged: comparison of the plain build and this one by the user's own links or command.
        before_bytes: the account of the tuned build without the policies; ``None`` if its plugin does not have them.
    """

    name: str
    bytes: float
    judged: Comparison | None = None
    before_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRun:
    """A command that the user's build ran, plain and tuned.

    Attributes:
        command: the command.
        held_out: whether the profile was not made of it.
        plain: executed instructions of the programs that the build links, without the plugin.
        tuned: the same with it.
    """

    command: str
    held_out: bool
    plain: int
    tuned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of a tuning.

    Attributes:
        plugin: path of the plugin, by the name that the user asked for.
        built: the user's build with the plugin, if a build was tuned.
        plugin_sha256: SHA-256 of the verified plugin; empty before it is published.
        versioned: path of the same plugin with a digest in its name, which builds load; empty before it is published.
        table: path of the decision table; of the allocation table, if the objective is costs.
        flag: what to add to clang's command line; for a cargo build the command with the plugin.
        plain_bytes: the project's account without the plugin, every COMDAT signature once; bytes of its code, if the
            objective is costs.
        tuned_bytes: the project's account with the plugin, from objects that were compiled with it; bytes of its code,
            if the objective is costs.
        plain_link: link of all plain objects with --gc-sections, or why that failed.
        tuned_link: link of all tuned objects with --gc-sections, or why that failed.
        judged: comparison of the plain and the tuned build by the user's own link or command, if that is the objective.
        allocated: result of the search over register allocations, if there was one.
        passes: result of the search over passes of the code generator, if there was one.
        optimizer_passes: result of the search over passes of the optimizer, if there was one.
        left_out: reasons by name for sources of the project that were not tuned.
        notes: notes for the user, such as options that are left out of the build.
        taken_back: number of times that a judge reverted a module.
        ended: why the search ended.
        modules: the modules, in link order.
        failures: reasons by name for modules that do not compile.
        curve: the course of the first search.
        user_seconds: processor time of all compilations.
        compilations: number of compilations.
        wall_seconds: elapsed time of the whole command, with the user's builds; 0 if not known.
        earlier_seconds: elapsed time of the earlier sessions that it continues, of those that ended with a result.
        objective: name of the objective that was minimised.
        baseline: description of the baseline: compiler, version and optimization levels.
        seed: random seed of the search.
        command: the command line.
        mlgokit_version: version of this package.
        toolchain: versions of the tools, by tool.
        report: path of the report.
        cargo_programs: bytes of each program of a cargo build as rustc links it (llvm-size's text), plain and tuned.
        replay: result of replaying the decisions as a list, if one was asked for.
        shipped: the project with the pretrained policies alone, which need no search.
        runs: what the user's commands execute, if that is the objective.
        counter: the tool that counted.
    """

    plugin: str
    table: str
    plain_bytes: float
    tuned_bytes: float
    ended: str
    modules: tuple[TunedModule, ...]
    failures: dict[str, str]
    curve: tuple[CurvePoint, ...]
    user_seconds: float
    compilations: int
    plain_link: LinkedImage | None = None
    tuned_link: LinkedImage | None = None
    judged: Comparison | None = None
    taken_back: int = 0
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
    earlier_seconds: float = 0.0
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
    runs: tuple[CountedRun, ...] = ()
    counter: str = ""

    @property
    def costs(self) -> SpillCosts | None:
        """Costs of the functions, if the objective is costs."""
        return None if self.allocated is None else self.allocated.costs

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **json_of(self)}

    @classmethod
    def from_json(cls, value: object) -> "Tuned":
        """Read a result that :meth:`to_json` wrote; unknown keys are ignored.

        Raises:
            InputError: another format or version, a missing key, or a value of another type.
        """
        given = check_format(value, FORMAT, FORMAT_VERSION, where="tuning", remedy="tune again with this version")
        return decode(cls, given, "tuning")


def costs_of(pairs: Sequence[tuple[float, float]]) -> SpillCosts:
    """Sum up the costs of functions, each given as a pair of plain and tuned costs.

    Example:
        >>> round(costs_of([(100.0, 50.0), (100.0, 100.0)]).change, 3)
        -0.293
    """
    before, after = np.array(pairs).reshape(-1, 2).T + OFFSET
    return SpillCosts(
        functions=len(pairs),
        plain=sum(plain for plain, _ in pairs),
        tuned=sum(tuned for _, tuned in pairs),
        change=geometric_mean_change(before, after) if pairs else 0.0,
    )


def json_of(result: "DataclassInstance") -> dict[str, Any]:
    """The fields of a result as plain JSON values; costs are left out unless they are the objective."""
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

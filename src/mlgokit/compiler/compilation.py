"""The record of a compilation: its status, the sizes of its object, and the decisions."""

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.compiler.reuse.trials import TrialResults
from mlgokit.errors import InputError, UsageError
from mlgokit.problems import INLINE_SIZE
from mlgokit.traces import Log

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]

Keep = Literal["none", "flips", "all", "log"]
"""What is kept of logs: feature values of no inlining decision, of flipped ones, of all; or the complete logs."""

NOT_FEATURES = (
    "caller_id", "callee_id", "site", "decided_by_table", "inlining_default", "inlining_decision", "log_probability",
)  # fmt: skip
"""Columns of the plugin's inlining log that describe the decision, not the call site."""

_LOG_HALF = math.log(0.5)


class CompileStatus(enum.Enum):
    """How a compilation ended."""

    OK = "the compiler succeeded"
    FAILED = "the compiler reported an error"
    CRASHED = "the compiler was ended by a signal"
    TIMED_OUT = "the compiler did not finish in time and was killed"
    LIMITED = "the compiler took more than it may"
    BAD_OBJECT = "the compiler succeeded but its object cannot be read"
    BAD_TRACE = "the compiler succeeded but its training log cannot be read"
    BAD_RECORD = "the compiler succeeded but its optimization record cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InlineDecisions:
    """T decisions of the inliner in one compilation, the features of V of them; F features.

    Attributes:
        caller: [T] ids of the functions with the call sites.
        callee: [T] ids of the functions called.
        inlined: [T] decisions.
        flipped: [T] whether the decision was the less likely one, or one that the request counts as flipped.
        by_table: [T] whether the decision table answered; empty in records of older versions.
        heuristic: [T] LLVM's default decisions; empty if they were not requested.
        site: [T] keys of the call sites; empty in cached compilations with exploration.
        names: [F] names of the features.
        rows: [V] ascending positions of the decisions whose features are kept.
        values: int64 [V, F] features of these decisions.
    """

    caller: Ints
    callee: Ints
    inlined: Bools
    flipped: Bools
    by_table: Bools | None = None
    heuristic: Bools | None = None
    site: Keys | None = None
    names: tuple[str, ...] = ()
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    values: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    def __len__(self) -> int:
        """The number of decisions."""
        return len(self.caller)

    @property
    def sites(self) -> Keys:
        """[T] keys of the call sites.

        Raises:
            UsageError: the keys were not kept.
        """
        if self.site is None:
            raise UsageError(
                "inlining decisions: expected the keys of their call sites, found a compilation that explored and was "
                "stored without them; compile it without the store, or keep its log"
            )
        return self.site

    @property
    def by_site(self) -> dict[int, bool]:
        """The decisions by key of the call site."""
        return dict(zip(self.sites.tolist(), self.inlined.tolist(), strict=True))

    def values_at(self, positions: Ints) -> Ints:
        """Look up the features [P, F] of the decisions at ``positions`` [P], which must be among :attr:`rows`."""
        return self.values[np.searchsorted(self.rows, positions)]


def no_decisions() -> InlineDecisions:
    """Make an empty record, for a compilation in which the inliner decided nothing or was not logged."""
    nothing, no = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return InlineDecisions(
        caller=nothing, callee=nothing, inlined=no, flipped=no, by_table=no, heuristic=no, site=np.zeros(0, np.uint64)
    )


def decode_decisions(
    log: Log, *, keep: Keep = "all", flips: Ints | None = None, defaults_known: bool = True
) -> InlineDecisions:
    """Decode the inlining decisions in a log of the plugin.

    Args:
        log: training log of the inliner.
        keep: which decisions keep their features.
        flips: keys of call sites, with the decision in bit 0. If given, exactly these count as flips where the decision
            table answered; otherwise a flip is a decision that was less likely than its opposite.
        defaults_known: whether the log has LLVM's decision everywhere.

    Raises:
        InputError: the log is not one of the inliner.
    """
    columns = log.columns
    for name in ("caller_id", "callee_id", "inlining_decision"):
        if name not in columns:
            raise InputError(
                f"inlining log: expected a column {name!r}, found {', '.join(columns) or 'none'}; "
                "build the plugin of this version of mlgokit"
            )
    count = log.observation_count

    def column(name: str) -> Ints | None:
        """Return a column of the log; ``None`` if the log lacks it."""
        return columns[name].reshape(count).astype(np.int64) if name in columns else None

    inlined = columns["inlining_decision"].reshape(count) != 0
    site, by_table, default = (column(name) for name in ("site", "decided_by_table", "inlining_default"))
    if flips is not None and site is not None and by_table is not None:
        flipped = (by_table != 0) & np.isin((site & ~1) | inlined, flips)
    elif "log_probability" in columns:
        flipped = columns["log_probability"].reshape(count) < _LOG_HALF
    else:
        flipped = np.zeros(count, np.bool_)
    nothing = np.zeros(0, np.int64)
    rows = {"none": nothing, "log": nothing, "flips": np.flatnonzero(flipped), "all": np.arange(count)}[keep]
    names = tuple(name for name in columns if name not in NOT_FEATURES)
    values = np.empty((len(rows), len(names)), np.int64)
    for index, name in enumerate(names):
        feature = columns[name].reshape(count)
        values[:, index] = feature if keep == "all" else feature[rows]
    return InlineDecisions(
        caller=columns["caller_id"].reshape(count).astype(np.int64),
        callee=columns["callee_id"].reshape(count).astype(np.int64),
        inlined=inlined,
        flipped=flipped,
        by_table=None if by_table is None else by_table != 0,
        heuristic=None if default is None or not defaults_known else default != 0,
        site=None if site is None else site.view(np.uint64),
        names=names,
        rows=rows.astype(np.int64),
        values=values,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassChanges:
    """Which passes changed which functions of a module.

    Attributes:
        keys: hash keys of the functions that the inliner saw, by name.
        changed: for each key, the passes that changed the function, in the order in which they ran; each with the
            number of its earlier runs on the function.
        executed: for each function name, the estimated number of instructions that one call executes, from LLVM's block
            frequencies.
        entries: how often each function is entered, by the profile that the module is compiled with.
        calls: how often each function calls others directly, by the profile.
    """

    keys: Mapping[str, int]
    changed: Mapping[int, tuple[tuple[str, int], ...]]
    executed: Mapping[str, float]
    entries: Mapping[str, float] = field(default_factory=dict[str, float])
    calls: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compilation:
    """The record of one compilation, failed or not.

    Attributes:
        status: how it ended; the value is the sentence to show.
        reason: the compiler's first error, or what was wrong with its output; empty for success.
        sizes: sizes of the object, if it could be read.
        decisions: decisions of the inliner, if its log was requested.
        decision_count: number of observations in all requested logs.
        logs: logs by problem, if they were to be kept; a problem without decisions has none.
        regalloc: costs of register allocation by function, if requested.
        changes: functions that optional passes of the optimizer changed, if requested.
        tried: results of the requested trials, by function in the order of compilation.
        user_seconds: processor time of the compiler.
        wall_seconds: elapsed time.
        killed: whether signal 9 ended the compiler, as when memory runs out.
    """

    status: CompileStatus
    reason: str = ""
    sizes: ObjectSizes | None = None
    decisions: InlineDecisions = field(default_factory=no_decisions)
    decision_count: int = 0
    logs: Mapping[str, Log] = field(default_factory=dict[str, Log])
    regalloc: RegallocCosts | None = None
    tried: tuple[TrialResults, ...] = ()
    changes: PassChanges | None = None
    user_seconds: float = 0.0
    wall_seconds: float = 0.0
    killed: bool = False

    @property
    def ok(self) -> bool:
        """Whether the compiler succeeded and its object was measured."""
        return self.status is CompileStatus.OK and self.sizes is not None

    @property
    def was_ended(self) -> bool:
        """Whether a kill or a limit ended the compiler, which says nothing about the module."""
        return self.killed or self.status in {CompileStatus.TIMED_OUT, CompileStatus.LIMITED}

    @property
    def measured(self) -> ObjectSizes:
        """The object's sizes.

        Raises:
            UsageError: there is no object.
        """
        if self.sizes is None:
            raise UsageError(
                f"sizes: expected a compilation with an object, found one where {self.status.value}; leave this "
                "compilation out"
            )
        return self.sizes


def add_logs(
    done: Compilation,
    logs: Mapping[str, Log],
    *,
    keep: Keep = "all",
    flips: Ints | None = None,
    defaults_known: bool = True,
) -> Compilation:
    """Add the contents of the logs to a compilation; arguments and errors as for :func:`decode_decisions`."""
    return dataclasses.replace(
        done,
        decisions=decode_decisions(logs[INLINE_SIZE.name], keep=keep, flips=flips, defaults_known=defaults_known)
        if INLINE_SIZE.name in logs
        else done.decisions,
        decision_count=sum(log.observation_count for log in logs.values()),
        logs=logs if keep == "log" else {},
    )


def read_pass_changes(path: Path) -> PassChanges:
    """Read the plugin's list of the passes that changed each function, with the functions' execution counts.

    docs/formats.md, "List of passes", has the form.

    Raises:
        InputError: the file is missing or damaged.
    """
    keys: dict[str, int] = {}
    changed: dict[int, list[tuple[str, int]]] = {}
    executed: dict[str, float] = {}
    entries: dict[str, float] = {}
    calls: dict[str, dict[str, float]] = {}
    try:
        # Names may be any bytes but line breaks.
        for line in path.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]:
            kind, key, rest = line.split(" ", 2)
            if kind == "function":
                keys[rest] = int(key, 16)
                changed.setdefault(int(key, 16), [])
            elif kind == "executed":
                executed[rest] = float(key)
            elif kind == "entries":
                entries[rest] = float(key)
                calls[rest] = {}
            elif kind == "calls":
                # They follow the entries of their caller.
                calls[next(reversed(calls))][rest] = float(key)
            else:
                name, number = rest.rsplit(" ", 1)
                changed[int(key, 16)].append((name, int(number)))
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise InputError(
            f"list of passes {path}: expected functions, and passes that changed them, found {error!r}; the plugin is "
            "of another version of mlgokit"
        ) from error
    return PassChanges(
        keys=keys,
        changed={key: tuple(passes) for key, passes in changed.items()},
        executed=executed,
        entries=entries,
        calls=calls,
    )

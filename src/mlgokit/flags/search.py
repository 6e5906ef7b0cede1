"""Each flag alone, then those that pay together, within a bound of time."""

import dataclasses
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from mlgokit.errors import UsageError
from mlgokit.flags.record import State, Step, Trial, TriedFlag
from mlgokit.flags.reviewed import Counts, Flag
from mlgokit.flags.trials import ALREADY, Trials
from mlgokit.progress import Report

SINGLES_SHARE = 0.6
"""Of the time: what the flags alone may take; the rest is for combinations."""
_LINK_SHARE = 0.3
"""Of the time of a build: what one takes that only links, roughly."""
_OUT_OF_TIME = "out of time: run the same command again to go on, with more --seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Seconds for all trials, and for a build with its tests; it began at a time of :func:`time.monotonic`."""

    seconds: float
    build_seconds: float
    began: float = field(default_factory=time.monotonic)

    def allows(self, trials: Trials, flags: Sequence[Flag], share: float = 1.0) -> bool:
        """Whether a trial would end before a share of the time is over; a trial that is stored takes none."""
        if trials.is_known(flags):
            return True
        needed = self.build_seconds * (_LINK_SHARE if trials.only_links(flags) else 1.0)
        return time.monotonic() - self.began + needed <= share * self.seconds

    def learn(self, trial: Trial) -> "Budget":
        """Lower the estimate to the time of a trial that compiled, as the plain build may have had a busy machine."""
        if trial.reason:
            return self
        return dataclasses.replace(self, build_seconds=min(self.build_seconds, trial.wall_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Flags that pay together, in the order in which they were added, what was tried, and the build with them."""

    flags: tuple[Flag, ...]
    steps: tuple[Step, ...]
    trial: Trial


def check_names(without: Collection[str], flags: Sequence[Flag]) -> None:
    """Check that each name of ``--without`` is the name of a flag.

    Raises:
        UsageError: a name is unknown.
    """
    known = [flag.name for flag in flags]
    if unknown := sorted(set(without) - set(known)):
        raise UsageError(f"--without {unknown[0]}: expected one of {', '.join(known)}; correct the name")


def describe_budget(trials: Trials, without: Collection[str], budget: Budget) -> str:
    """Say how many flags will be tried, and estimate how long that takes."""
    excluded = trials.list_excluded()
    tried = [flag for flag in trials.flags if flag.name not in excluded and flag.name not in without]
    links = sum(not flag.compile and not flag.profile for flag in tried)
    # Each is built alone, and once more on top of others.
    builds = 2 * (len(tried) - links + _LINK_SHARE * links)
    needed = builds * budget.build_seconds
    bound = f"at most {budget.seconds:.0f} s (--seconds)" if needed > budget.seconds else f"about {needed:.0f} s"
    return f"{len(tried)} flags, each build about {budget.build_seconds:.1f} s: {bound}"


def try_alone(
    trials: Trials, plain: Trial, without: Collection[str], budget: Budget, report: Report
) -> tuple[list[TriedFlag], Budget]:
    """Build with each flag alone, and say what that saves, or why it was not tried; learn what a build takes.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
    """
    excluded = trials.list_excluded()
    found: list[TriedFlag] = []
    for index, flag in enumerate(trials.flags):
        report(index, len(trials.flags), f"flags alone · {flag.name}")
        row = TriedFlag(name=flag.name, text=flag.text, cost=flag.cost, counts=flag.counts, state="not tried")
        if flag.name in without:
            row = dataclasses.replace(row, reason="--without")
        elif reason := excluded.get(flag.name):
            state: State = "already there" if reason == ALREADY else "not tried"
            row = dataclasses.replace(row, state=state, reason="" if reason == ALREADY else reason)
        elif not budget.allows(trials, [flag], SINGLES_SHARE):
            row = dataclasses.replace(row, reason=_OUT_OF_TIME)
        else:
            # Asked before, as the trial leaves objects that another one can link.
            compiles = not trials.is_known([flag]) and not trials.only_links([flag])
            trial = trials.make([flag])
            row, budget = _add_result(row, plain, trial), budget.learn(trial) if compiles else budget
        found.append(row)
    report(len(trials.flags), len(trials.flags), "flags alone")
    return found, budget


def _add_result(row: TriedFlag, plain: Trial, trial: Trial) -> TriedFlag:
    """Add the result of a flag's trial to its row: why it failed, or the bytes that it saves."""
    state, reason = _failure(trial)
    if state is not None:
        return dataclasses.replace(row, state=state, reason=reason, trial=trial)
    saved = plain.count(row.counts) - trial.count(row.counts)
    return dataclasses.replace(row, state="smaller" if saved > 0 else "no smaller", trial=trial, saved=saved)


def _failure(trial: Trial) -> tuple[State | None, str]:
    """Return the state and the reason of a trial that failed; ``None`` and an empty reason if it works."""
    if trial.reason:
        return "does not build", trial.reason
    return ("fails the tests", trial.tests) if trial.tests else (None, "")


def combine(trials: Trials, plain: Trial, tried: Sequence[TriedFlag], budget: Budget, report: Report) -> Combination:
    """Add flags one by one, and keep each that makes the build with those before it smaller.

    The flags that saved most alone come first. All that work are tried, as some save bytes only together with others.
    Of flags that exclude each other, one replaces another if it saves more. A flag that can change what a program does
    is only kept if tests pass with it.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
    """
    by_name = {flag.name: flag for flag in trials.flags}
    working = [row for row in tried if row.state in {"smaller", "no smaller"}]
    ordered = [by_name[row.name] for row in sorted(working, key=lambda row: (row.counts == "file", -row.saved))]
    found = Combination(flags=(), steps=(), trial=plain)
    for index, flag in enumerate(ordered):
        report(index, len(ordered), f"flags together · {'+'.join(one.name for one in (*found.flags, flag))}")
        found = _try_to_add(found, flag, trials, budget)
    # A flag that lost to one that excludes it may save more now, together with those that were added later.
    for flag in ordered:
        if flag not in found.flags and _rival(found, flag) is not None:
            found = _try_to_add(found, flag, trials, budget)
    report(len(ordered), len(ordered), "flags together")
    return found


def _rival(found: Combination, flag: Flag) -> Flag | None:
    """Find the flag of a combination that excludes ``flag``, as both are of one group."""
    return next((one for one in found.flags if flag.group and one.group == flag.group), None)


def _try_to_add(found: Combination, flag: Flag, trials: Trials, budget: Budget) -> Combination:
    """Build a combination with one more flag; keep the flag if it pays, and append a step with the result."""
    rival, best = _rival(found, flag), found.trial
    candidate = (*(one for one in found.flags if one is not rival), flag)
    saved, reason = 0, ""
    if flag.risk and not trials.has_passing_tests:
        reason = "it can change what the program does, and no --test judges"
    elif not budget.allows(trials, candidate):
        reason = _OUT_OF_TIME
    else:
        trial = trials.make(candidate)
        state, why = _failure(trial)
        saved = 0 if state is not None else best.count(flag.counts) - trial.count(flag.counts)
        reason = f"{state}: {why}" if state is not None else _objection(flag, rival, best, trial)
        found = found if reason else dataclasses.replace(found, flags=candidate, trial=trial)
    steps = [step for step in found.steps if step.flag != flag.name]
    if rival is not None and not reason:
        steps = _drop(rival, steps, f"{flag.name} saves more in its place")
    step = Step(flag=flag.name, counts=flag.counts, saved=saved, kept=not reason, reason=reason)
    return dataclasses.replace(found, steps=(*steps, step))


def _drop(flag: Flag, steps: Sequence[Step], reason: str) -> list[Step]:
    """Note in the steps why a flag that was kept stays no longer."""
    return [dataclasses.replace(step, kept=False, reason=reason) if step.flag == flag.name else step for step in steps]


def _objection(flag: Flag, rival: Flag | None, best: Trial, trial: Trial) -> str:
    """Say why a flag is not worth its cost on top of the best build, or in place of a rival; empty if it is."""
    before, saved = best.count(flag.counts), best.count(flag.counts) - trial.count(flag.counts)
    if saved <= 0:
        return "it saves nothing on top" if rival is None else f"{rival.name} saves as much or more in its place"
    if trial.count("loaded") > best.count("loaded"):
        return "more bytes are loaded with it"
    worth = flag.worth - (0.0 if rival is None else rival.worth)
    if saved < worth * before:
        return f"its cost is worth {100 * worth:g} %, not {100 * saved / before:.2f} %"
    return ""


def confirm(trials: Trials, plain: Trial, found: Combination, report: Report) -> tuple[Combination, Trial | None]:
    """Make the whole build with the flags, all of its commands from its sources.

    The last flag is dropped while that fails, or is no smaller than the plain build: what configures a build may see
    the flags then.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
    """
    flags, steps = list(found.flags), list(found.steps)
    while flags:
        report(0, 1, f"the whole build with {', '.join(flag.name for flag in flags)}")
        whole = trials.make(flags, whole=True)
        objection = _whole_objection(flags, plain, whole)
        if not objection:
            report(1, 1, f"the whole build with {', '.join(flag.name for flag in flags)}")
            return Combination(flags=tuple(flags), steps=tuple(steps), trial=whole), whole
        steps = _drop(flags.pop(), steps, f"the whole build {objection}")
    return Combination(flags=(), steps=tuple(steps), trial=plain), None


def _whole_objection(flags: Sequence[Flag], plain: Trial, whole: Trial) -> str:
    """Say why the whole build with flags is not advised; empty if it works and is smaller than the plain one."""
    state, reason = _failure(whole)
    if state is not None:
        return f"{state}: {reason}"
    counts: Counts = "file" if all(flag.counts == "file" for flag in flags) else "loaded"
    return "" if whole.count(counts) < plain.count(counts) else "is no smaller than the plain one"

"""Which decisions of a tuned plugin another compiler can replay by source position, and how much of the saving is left.

One list serves a whole build. Where modules disagree about a call site, the first module in link order that the plugin
makes smaller decides, as the linker keeps its copy of a shared function. Everything is compiled with the list and
measured, and modules that are larger lose their lines until none is.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mlgokit.compiler.objects.account import ProjectAccount, account_of
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.export.replay import ReplayLine

State = Literal["replayed", "left out", "nothing to replay"]
Key = tuple[str, str]
CompileAll = Callable[[Sequence[ReplayLine]], tuple[Mapping[str, ObjectSizes], Mapping[str, str]]]
"""A function that compiles all modules with a list; returns sizes by module, and reasons for modules that fail."""
_MOST_FAILURES = 2
"""Number of rounds in which a module may be larger or fail before the whole list is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplaySource:
    """A module before its decisions are replayed.

    Attributes:
        name: name of the module.
        plain: sizes of its object by the compiler that replays, without a list.
        plugin_plain: sizes of its object by the plugin's compiler, without the plugin.
        tuned: sizes of its object by the plugin's compiler, with the plugin.
        lines: all inlining decisions of the compilation with the plugin, in order.
    """

    name: str
    plain: ObjectSizes
    plugin_plain: ObjectSizes
    tuned: ObjectSizes
    lines: Sequence[ReplayLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedModule:
    """A module after its decisions were replayed; bytes are those of the project's account.

    Attributes:
        name: name of the module.
        state: whether its decisions are in the list.
        decisions: number of its decisions in the list, those shared with other modules too.
        plugin_plain_bytes: its bytes by the plugin's compiler without the plugin.
        tuned_bytes: its bytes by the plugin's compiler with the plugin.
        plain_bytes: its bytes by the compiler that replays, without the list.
        replayed_bytes: its bytes by the compiler that replays, with the list.
    """

    name: str
    state: State
    decisions: int
    plugin_plain_bytes: float
    tuned_bytes: float
    plain_bytes: float
    replayed_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of replaying the decisions of a tuned plugin without the plugin.

    Attributes:
        modules: the modules that compile in all builds, in the order of the build.
        failures: reasons by name for modules that do not compile in some build; the list has no decisions of them.
        left_out: reasons by name for sources of the build that are not compiled at all.
        decisions: number of decisions in the list.
        disputed: number of call sites about which modules, or copies of one call in a module, disagree.
        rounds: number of times that the build was compiled with a list.
        plugin_plain_bytes: the project's account, each COMDAT signature once, by the plugin's compiler without the
            plugin.
        tuned_bytes: the project's account by the plugin's compiler with the plugin.
        plain_bytes: the project's account by the compiler that replays, without the list.
        replayed_bytes: the project's account by the compiler that replays, with the list.
        plugin: path of the plugin.
        compiler: version of the compiler that replays.
        plugin_compiler: version of the plugin's compiler.
        lines: path of the list.
        config: path of the configuration file for clang, or of the file of arguments for rustc.
        flag: what to add to clang's command line; for a cargo build the command with the list.
        notes: notes for the user, a sentence each.
    """

    modules: tuple[ReplayedModule, ...]
    failures: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    decisions: int
    disputed: int = 0
    rounds: int = 0
    plugin_plain_bytes: float
    tuned_bytes: float
    plain_bytes: float
    replayed_bytes: float
    plugin: str = ""
    compiler: str = ""
    plugin_compiler: str = ""
    lines: str = ""
    config: str = ""
    flag: str = ""
    notes: tuple[str, ...] = ()

    @property
    def tuned_change(self) -> float:
        """Relative change of the project's bytes by the plugin; negative is smaller."""
        return self.tuned_bytes / self.plugin_plain_bytes - 1 if self.plugin_plain_bytes else 0.0

    @property
    def change(self) -> float:
        """Relative change of the project's bytes by the list."""
        return self.replayed_bytes / self.plain_bytes - 1 if self.plain_bytes else 0.0

    @property
    def share(self) -> float:
        """The part of the plugin's relative saving that the list gives; 0 if the plugin saves nothing."""
        return self.change / self.tuned_change if self.tuned_change < 0 and self.change else 0.0

    @property
    def larger(self) -> tuple[str, ...]:
        """Modules that are larger than plain, because of line tables alone."""
        return tuple(one.name for one in self.modules if one.replayed_bytes > one.plain_bytes)

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        derived = {
            "larger": list(self.larger),
            "tuned_change": self.tuned_change,
            "change": self.change,
            "share": self.share,
        }
        return dataclasses.asdict(self) | derived


def replay_list(sources: Sequence[ReplaySource], *, objective: Objective) -> tuple[list[ReplayLine], int]:
    """Merge the decisions of modules that the plugin makes smaller; return the list, and the number of disputed sites.

    Args:
        sources: the modules, in the order of the build.
        objective: decides which bytes count.
    """
    chosen: dict[Key, ReplayLine] = {}
    disputed: set[Key] = set()
    tuned = _account(sources, {source.name: source.tuned for source in sources}, objective)
    for source in sources:
        if tuned.module_bytes(source.name, source.tuned) >= tuned.module_bytes(source.name, source.plugin_plain):
            continue
        for key, line in _vote_by_key(source.lines, disputed).items():
            if chosen.setdefault(key, line).inlined != line.inlined:
                disputed.add(key)
    return list(chosen.values()), len(disputed)


def _account(
    sources: Sequence[ReplaySource], objects: Mapping[str, ObjectSizes], objective: Objective
) -> ProjectAccount:
    return account_of([source.name for source in sources], objects, objective=objective)


def _vote_by_key(lines: Sequence[ReplayLine], disputed: set[Key]) -> dict[Key, ReplayLine]:
    """One line for each key; copies of a call that share a key follow their majority, and have no line in a tie."""
    votes: Counter[Key] = Counter()
    for line in lines:
        votes[line.key] += 1 if line.inlined else -1
    disputed.update({line.key for line in lines if line.inlined} & {line.key for line in lines if not line.inlined})
    return {line.key: line for line in lines if votes[line.key] and (votes[line.key] > 0) == line.inlined}


def replay_build(
    sources: Sequence[ReplaySource], compile_all: CompileAll, *, objective: Objective
) -> tuple[list[ReplayLine], ReplayResult]:
    """Find a list that makes no module larger, and measure it; the list is empty if the project would not shrink.

    Some majors write more unwind tables where there are line tables (clang 14 to 16: one for each function that has
    none). A module that is larger than plain for that reason alone keeps its lines.

    Args:
        sources: the modules, in the order of the build.
        compile_all: function that compiles all modules with a list, and with line tables.
        objective: decides which bytes count.
    """
    first, disputed = replay_list(sources, objective=objective)
    lines, rounds = first, 0
    plain = {source.name: source.plain for source in sources}
    bounds: list[Mapping[str, ObjectSizes]] = [plain]
    failed_rounds: Counter[str] = Counter()
    replayed: Mapping[str, ObjectSizes] = plain
    while lines:
        rounds += 1
        replayed, failures = compile_all(lines)
        troubled = [*failures, *_larger_modules(sources, replayed, bounds, objective)]
        if troubled and len(bounds) == 1:
            rounds += 1
            bounds.append(compile_all([])[0])
            troubled = [*failures, *_larger_modules(sources, replayed, bounds, objective)]
        if not troubled:
            break
        failed_rounds.update(troubled)
        lines = _without(first, sources, failed_rounds)
    if lines and _account(sources, replayed, objective).image >= _account(sources, plain, objective).image:
        lines = []
    if not lines:
        replayed = plain
    found = _result(sources, replayed, lines, failed_rounds, objective)
    return lines, dataclasses.replace(found, disputed=disputed, rounds=rounds)


def _result(
    sources: Sequence[ReplaySource],
    replayed: Mapping[str, ObjectSizes],
    lines: Sequence[ReplayLine],
    left_out: Collection[str],
    objective: Objective,
) -> ReplayResult:
    plain, after, plugin_plain, tuned = (
        _account(sources, objects, objective)
        for objects in (
            {one.name: one.plain for one in sources},
            replayed,
            {one.name: one.plugin_plain for one in sources},
            {one.name: one.tuned for one in sources},
        )
    )
    keys = {line.key for line in lines}
    rows: list[ReplayedModule] = []
    for one in sources:
        decisions = len(keys & {line.key for line in one.lines})
        rows.append(
            ReplayedModule(
                name=one.name,
                state="left out" if one.name in left_out else "replayed" if decisions else "nothing to replay",
                decisions=decisions,
                plugin_plain_bytes=tuned.module_bytes(one.name, one.plugin_plain),
                tuned_bytes=tuned.module_bytes(one.name, one.tuned),
                plain_bytes=after.module_bytes(one.name, one.plain),
                replayed_bytes=after.module_bytes(one.name, replayed[one.name]),
            )
        )
    return ReplayResult(
        modules=tuple(rows),
        decisions=len(lines),
        plugin_plain_bytes=plugin_plain.image,
        tuned_bytes=tuned.image,
        plain_bytes=plain.image,
        replayed_bytes=after.image,
    )


def _larger_modules(
    sources: Sequence[ReplaySource],
    replayed: Mapping[str, ObjectSizes],
    bounds: Sequence[Mapping[str, ObjectSizes]],
    objective: Objective,
) -> list[str]:
    """Names of the modules that are larger than in each of the builds in ``bounds``."""
    after = _account(sources, replayed, objective)
    return [
        name
        for name, sizes in replayed.items()
        if after.module_bytes(name, sizes)
        > max(after.module_bytes(name, bound[name]) for bound in bounds if name in bound)
    ]


def _without(
    lines: Sequence[ReplayLine], sources: Sequence[ReplaySource], failed_rounds: Mapping[str, int]
) -> list[ReplayLine]:
    """The lines that are left, given the number of rounds in which each module was larger or failed.

    After one round, the lines of the module's call sites go. LLVM may then ask about other call sites, which the module
    shares with others: after a second round, all lines in functions of the module go too, and after a third, all lines.
    """
    banned = {line.key for one in sources if failed_rounds[one.name] for line in one.lines}
    functions = {
        name for one in sources if failed_rounds[one.name] > 1 for line in one.lines for name in line.functions
    }
    if any(count > _MOST_FAILURES for count in failed_rounds.values()):
        return []
    return [line for line in lines if line.key not in banned and functions.isdisjoint(line.functions)]

"""A session of tuning: search, verification, the user's own build with the plugin, and what is published."""

import dataclasses
import functools
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.algorithms.registry import missing_framework
from mlgokit.builds.build import Build, CandidatePlugin
from mlgokit.builds.compression import Compressor
from mlgokit.builds.lto import GIVES_UP
from mlgokit.builds.measurement import Measure, link_failures, repeatable_links
from mlgokit.builds.recorded import RecordedBuild, try_plugin
from mlgokit.builds.roots import find_roots
from mlgokit.compiler.executed import count_executed
from mlgokit.compiler.live import LivenessCompiler
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.plugin_name import versioned_path
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.compiler.run_costs import FunctionCosts
from mlgokit.errors import RejectedError
from mlgokit.files import remove_leftovers
from mlgokit.manifest import package_version
from mlgokit.module import Module
from mlgokit.pages.html import write_page
from mlgokit.policy.pretrained import SHIPPED, policy_file
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.policy.targets import architectures_of, describe_missing_policies, restrict_to_targets
from mlgokit.problems import INLINE_SIZE, PASS_SELECTION, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report
from mlgokit.tables.decisions import DecisionTable
from mlgokit.tables.overrides import (
    ALLOCATIONS,
    OPTIMIZER_PASSES,
    PASSES,
    OverrideKind,
    OverrideTable,
    read_plugin_overrides,
)
from mlgokit.terminal import counted
from mlgokit.tune.judge import Judge, JudgeConfig, conclude, open_judge, plain_object
from mlgokit.tune.loop import NOT_RECOVERED, YieldRule, run_search
from mlgokit.tune.page import tuned_page
from mlgokit.tune.proof import SearchedTables
from mlgokit.tune.publish import RESULT_NAME, complete_publishing, publish
from mlgokit.tune.replay_export import ReplayRequest, export_replay
from mlgokit.tune.result import Tuned
from mlgokit.tune.runs import Runs
from mlgokit.tune.shipped import add_shipped, shipped_policies
from mlgokit.tune.spaces.allocation.trials import TrialConfig, allocation_plan
from mlgokit.tune.spaces.functions.finish import TableSearch, finish_costs
from mlgokit.tune.spaces.functions.opening import open_functions, open_verified
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import InliningSearch, known_policy, open_inlining, try_whole
from mlgokit.tune.spaces.inlining.space import POLICY_NAME, SearchConfig
from mlgokit.tune.spaces.optimizer.opening import open_optimizer
from mlgokit.tune.spaces.passes.trials import pass_plan
from mlgokit.tune.verify import Verifier

SEARCH = "search"
"""Where progress is kept, below the folder of a call."""
_JUDGE = "judge"
"""Objects and images of the search while it lasts."""
PASSES_GAIN = 20.0
"""Bytes per second of processor time that searches over passes gained at least, in two small projects."""
LEAST_STEPS = 12
"""Compilations that a search over passes of the optimizer takes to find something."""
_POLICY_LOOKS = 1.2
"""Looks at all modules, each compiled once, that the first try of a policy takes: parts that pay are compiled again."""
_LOOKS = {"inlining": 2.0, "passes": 5.7, "allocations": 2.0, "shipped policies": 3.5}
"""Looks at all modules beside the search, by what is tuned: to list functions, to try policies, and to verify."""
LONGEST_LOOK = 60.0
"""Seconds that a look at all modules may take before a search over passes or registers, whatever the budget is."""
_ON_TOP = ("optimizer", "passes", "allocation")
"""Folders of the searches on top of that over inlining."""
_MANY_MODULES, _SAMPLE, _LEAST_SAMPLE_SECONDS = 100, 0.05, 5.0
"""A project of so many modules is announced early, by this share of them, after so many seconds."""
_MINUTES = 150.0
"""Seconds from which on a time is told in minutes."""
_OBJECTIVES = {
    "text": Objective.LINK_AWARE_TEXT,
    "object": Objective.OBJECT_TEXT,
    "instructions": Objective.EXECUTED,
}
"""What the search counts; for all others the bytes of the image."""
_MOST_ROUNDS = 6
"""Times that parts of a plugin are taken back and the runs counted again."""
SIZES = frozenset({"image", "text", "object", "linked", "compressed"})
"""Objectives that are bytes of what the build makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """How a project is tuned.

    Attributes:
        folder: where everything of the tuning is kept.
        output: the plugin to write.
        seconds: budget of the search.
        objective: what is to become smaller, as ``mlgokit tune --objective`` names it.
        problems: decisions of the register allocator that are searched for spill cost.
        policies: to start from, by problem.
        start: an earlier plugin to start from.
        earlier: the table inside it.
        allocation_share: share of the budget for register allocation.
        pass_share: share of the budget for passes.
        least_pass_share: part of that which passes get whatever inlining gains.
        least_steps: steps below which passes of the optimizer are not searched.
        slowdown: part by which a function may execute more instructions, by LLVM's estimate.
        adds_shipped_policies: whether the policies that come with the package are in the plugin where they pay.
        falls_back_to_policy: whether the policy decides code that changed after the search.
        judge: settings of the confirmation by a link or a command.
        search: settings of the search.
        replay: the list for compilers that load no plugin, if it is wanted.
        compressor: measures the files of the programs of a recorded build.
        began: when the tuning began, as :func:`time.monotonic` has it.
    """

    folder: Path
    output: Path
    seconds: float
    objective: str
    problems: frozenset[str] = frozenset({REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name})
    policies: Mapping[str, Path] = field(default_factory=dict[str, Path])
    start: Path | None = None
    earlier: DecisionTable | OverrideTable | None = None
    allocation_share: float = 0.0
    pass_share: float = 0.0
    least_pass_share: float = 0.0
    least_steps: int = 0
    slowdown: float = 0.0
    adds_shipped_policies: bool = False
    falls_back_to_policy: bool = False
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    replay: ReplayRequest | None = None
    compressor: Compressor | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def search_folder(self) -> Path:
        """Where the search is kept."""
        return self.folder / SEARCH


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRecovered:
    """A search was given up: compile steps that leave inlining to the link made the image larger than it could mend.

    Attributes:
        larger: part by which the image still was larger than the build's own.
        seconds_left: of the budget.
    """

    larger: float
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session:
    """A project that is tuned.

    Attributes:
        settings: how.
        build: what is tuned.
        compiler: compiles its modules.
        baseline: what sizes are compared with, in words.
        claim: signs the folder; called when nothing can be wrong with the call any more.
        left_out: sources of the project that are not tuned, with the reason.
        notes: what is to be said of the build.
        recorded: the user's whole build, if that is made again with the plugin.
        report: told what is done.
        runs: the commands that prove a tuning for executed instructions.
    """

    settings: TuneSettings
    build: Build
    compiler: Compiler
    baseline: str
    claim: Callable[[], None]
    left_out: Mapping[str, str]
    report: Report
    notes: tuple[str, ...] = ()
    recorded: RecordedBuild | None = None
    runs: Runs | None = None

    @property
    def without_refits(self) -> str:
        """What the search does not do because the learning framework is not installed; empty if it does all."""
        settings = self.settings
        missing = missing_framework() if settings.objective != "spill-cost" and settings.search.refits else []
        if not missing:
            return ""
        return (
            f"without {' and '.join(missing)} the search cannot fit a policy that orders what to try; install "
            "them with `pip install 'mlgokit[train]'`"
        )

    def publish(self, verifier: Verifier, tuned: Tuned, tables: SearchedTables | None = None) -> Tuned:
        """Put what was verified where the user wants it, with ``tuned.json``; first the user's build tries it.

        Args:
            verifier: has verified it.
            tuned: what was verified.
            tables: those that the runs may speak against.

        Raises:
            RejectedError: the build fails with it.
            ToolError: the link that was tuned does not give what was verified.
        """
        verifier.check_link()
        settings, candidate = self.settings, _candidate(verifier)
        proof = self.build.prove(candidate, verifier.folder)
        tuned = dataclasses.replace(
            tuned,
            judged=proof.judged or tuned.judged,
            flag=proof.flag or tuned.flag,
            cargo_programs=dict(proof.programs) or tuned.cargo_programs,
        )
        if self.recorded is not None:
            tuned = self._try_in_build(self.recorded, verifier, tuned, tables)
            candidate = _candidate(verifier)
        if settings.replay is not None:
            request = dataclasses.replace(settings.replay, plugin=candidate.file)
            replay = export_replay(request, report=self.report)
            tuned = dataclasses.replace(tuned, replay=dataclasses.replace(replay, plugin=str(candidate.output)))
        result = settings.folder / RESULT_NAME
        tuned = dataclasses.replace(
            tuned,
            baseline=self.baseline,
            left_out=dict(self.left_out),
            notes=(*self.notes, *tuned.notes, *proof.notes, *filter(None, (self.without_refits,))),
            objective=settings.objective,
            wall_seconds=time.monotonic() - settings.began,
            seed=settings.search.seed,
            command=shlex.join(["mlgokit", *sys.argv[1:]]),
            mlgokit_version=package_version(),
            toolchain=self.compiler.toolchain.describe(),
            report=str(result.with_suffix(".html")),
        )
        tuned = publish(verifier, tuned, settings.folder)
        # Made of what is published, so a kill before it loses nothing: mlgokit report makes it again.
        write_page(tuned_page(tuned, settings.folder), result)
        return tuned

    def _try_in_build(
        self, recorded: RecordedBuild, verifier: Verifier, tuned: Tuned, tables: SearchedTables | None
    ) -> Tuned:
        """Make the user's build with the plugin; what runs do not bear out leaves the plugin.

        First that is what the tables decide about the functions that execute more, a few times over; then one table
        after the other, the last first.

        Raises:
            RejectedError: the build fails with it, or its runs execute more with every table.
        """
        settings, runs = self.settings, self.runs
        costs = dict[str, FunctionCosts]()

        def count() -> None:
            costs.update({} if runs is None else runs.count_tuned())

        rounds = _MOST_ROUNDS
        while True:
            built = try_plugin(
                recorded,
                _candidate(verifier),
                self.build.plugin_place,
                by_size=settings.objective in SIZES,
                compressor=settings.compressor,
                run=count,
                report=self.report,
            )
            tuned = dataclasses.replace(tuned, built=built)
            if runs is None or tables is None:
                return tuned
            compared = runs.compare(costs)
            tuned = dataclasses.replace(tuned, runs=compared, counter=runs.counter)
            objection, rounds = runs.objection(compared, built.programs), rounds - 1
            taken = runs.functions_to_take_back(costs, built.programs, tables.growth()) if rounds >= 0 else set[str]()
            notes, left = tuned.notes, tables.take_back(taken) if taken else None
            if left is not None:
                why = objection or "functions executed more with the plugin"
                self.report(1, 1, f"taken back in {counted(len(taken), 'function')}: {why}")
            elif not objection:
                return dataclasses.replace(tuned, notes=(*notes, *tables.notes))
            else:
                dropped = tables.drop_last()
                if dropped is None:
                    raise RejectedError(
                        f"--objective instructions: expected fewer executed instructions with the plugin, found that "
                        f"{objection}; no plugin was written, give another --run, or search longer with --continue"
                    )
                kind, left = dropped
                self.report(1, 1, f"taken back: {objection}")
                notes += (f"the {kind.table.replace('_', ' ')} that were found left the plugin again: {objection}",)
            tuned = dataclasses.replace(left, notes=notes)


def _candidate(verifier: Verifier) -> CandidatePlugin:
    """The plugin as it is linked now."""
    published = versioned_path(verifier.output, verifier.plugin)
    return CandidatePlugin(file=verifier.plugin, output=verifier.output, published=published)


def tune(session: Session) -> Tuned | NotRecovered:
    """Tune a project, after the folder is as the last session should have left it.

    Raises:
        RejectedError: the user's build fails with the plugin.
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked, or a link does not give what was verified.
    """
    settings = session.settings
    complete_publishing(settings.search_folder, settings.output, settings.folder)
    remove_leftovers(settings.folder)
    remove_leftovers(settings.output.absolute().parent, below=False)
    try:
        if settings.objective == "instructions":
            compiler = count_executed(session.compiler, session.build.modules, report=session.report)
            session = dataclasses.replace(session, compiler=compiler)
        return _tune_costs(session) if settings.objective == "spill-cost" else _tune_bytes(session)
    finally:
        session.compiler.close()


def announce_time(compiling: float, settings: TuneSettings, *, spent: float, build: float = 0.0) -> str:
    """Tell how long a tuning takes in all.

    Args:
        compiling: seconds in which all modules were compiled, once plainly and once under the plugin.
        settings: of the tuning.
        spent: seconds that it took so far.
        build: seconds of the user's build and tests, which are made once more at the end; 0 if they are not.

    Example:
        >>> settings = TuneSettings(folder=Path(), output=Path(), seconds=60.0, objective="image", pass_share=0.4)
        >>> announce_time(4.0, settings, spent=10.0, build=12.0)
        'about 100 s: 10 s so far, the search 60 s, first policies and verifications 18 s, your build again 12 s'
        >>> announce_time(60.0, settings, spent=90.0)
        'about 7 min: 90 s so far, the search 60 s, first policies and verifications 4 min'
    """
    beside = compiling / 2 * _count_looks(settings, compiling)
    parts = {
        "{} so far": spent,
        "the search {}": settings.seconds,
        "first policies and verifications {}": beside,
        "your build again {}": build,
    }

    def text(seconds: float) -> str:
        return f"{seconds / 60:.0f} min" if seconds >= _MINUTES else f"{seconds:.0f} s"

    listed = ", ".join(part.format(text(seconds)) for part, seconds in parts.items() if seconds)
    return f"about {text(sum(parts.values()))}: {listed}"


def _build_seconds(session: Session) -> float:
    """Return the seconds of the user's build and tests; 0 if they are not made again."""
    return 0.0 if session.recorded is None else session.recorded.seconds


def _count_looks(settings: TuneSettings, compiling: float) -> float:
    """How often all modules are compiled beside the search, in compilations of each."""
    is_large = _is_too_large(settings, compiling)
    wanted = {
        "inlining": True,
        "passes": settings.pass_share > 0 and not is_large,
        "allocations": settings.allocation_share > 0 and not is_large,
        "shipped policies": settings.adds_shipped_policies,
    }
    rules = int(_tries_rule(settings, is_large=is_large))
    policies = rules + len(settings.policies) + isinstance(settings.earlier, DecisionTable)
    return _POLICY_LOOKS * policies + sum(count for what, count in _LOOKS.items() if wanted[what])


def _announce_early(settings: TuneSettings, report: Report, *, build: float) -> Report:
    """Make a report that also tells how long a large project takes, as soon as some of its modules were compiled.

    ``build`` is that of :func:`announce_time`.
    """
    began, said = time.monotonic(), False

    def tell(done: int, total: int, label: str) -> None:
        nonlocal said
        report(done, total, label)
        passed = time.monotonic() - began
        if not said and total >= _MANY_MODULES and total > done >= _SAMPLE * total and passed >= _LEAST_SAMPLE_SECONDS:
            said, compiling = True, passed * total / done
            spent = time.monotonic() - settings.began + compiling - passed
            announced = announce_time(compiling, settings, spent=spent, build=build)
            report(1, 1, f"by the first {done} of {total} modules {announced}")

    return tell


def _tune_costs(session: Session) -> Tuned:
    """Search and verify register allocations for spill cost."""
    settings, report = session.settings, session.report
    policies = settings.policies
    falls_back = dict(policies) if settings.falls_back_to_policy else dict[str, Path]()
    search = open_functions(
        session.build.modules,
        compiler=session.compiler,
        config=TrialConfig(
            policies={problem: str(path) for problem, path in policies.items()},
            eviction=REGALLOC_EVICTION.name in settings.problems,
            priority=REGALLOC_PRIORITY.name in settings.problems,
        ),
        folder=settings.search_folder,
        start=settings.earlier.by_key if isinstance(settings.earlier, OverrideTable) else {},
        list_all=bool(falls_back),
        seed=settings.search.seed,
        report=report,
    )
    session.claim()
    run_search(search, seconds=settings.seconds, workers=session.compiler, report=report)
    with Verifier(
        compiler=session.compiler,
        modules=[one.module for one in search.space.units],
        output=settings.output,
        search_folder=settings.search_folder,
        inside=falls_back,
        report=report,
        costs=True,
    ) as verifier:
        return session.publish(verifier, finish_costs(verifier, search))


def _open_bytes(session: Session) -> tuple[InliningSearch, Judge | None, tuple[str, ...], float]:
    """Open the search for inlining decisions and what judges it.

    Returns:
        Both, notes on programs whose links cannot judge, and the seconds in which all modules were compiled.
    """
    settings, compiler, report, modules = session.settings, session.compiler, session.report, session.build.modules
    measure = session.build.measure
    # The link runs in another folder.
    workplace = settings.folder.resolve() / _JUDGE
    objects = {one.name: plain_object(workplace, index) for index, one in enumerate(modules)} if measure else None
    if measure is not None and objects is not None and _discards_functions(measure, settings):
        roots = functools.partial(find_roots, measure, objects, scratch=workplace / "roots")
        compiler = LivenessCompiler(compiler=compiler, find_roots=roots)
    began = time.monotonic()
    search = open_inlining(
        modules,
        compiler=compiler,
        config=settings.search,
        objective=_OBJECTIVES.get(settings.objective, Objective.LINK_AWARE),
        folder=settings.search_folder,
        report=_announce_early(settings, report, build=_build_seconds(session)),
        keep=objects,
    )
    compiling = time.monotonic() - began
    judge = None
    notes: tuple[str, ...] = ()
    if changed := search.space.changed:
        note = (
            f"{len(changed)} of {len(search.space.units)} modules, such as {min(changed)}, changed since the last "
            "session: they start from the decisions that still apply, and are searched first"
        )
        report(1, 1, note)
        notes = (note,)
    if measure is not None and objects is not None and measure.expected:
        plain = {name: path for name, path in objects.items() if path.exists()}
        measure, failures = repeatable_links(measure, plain, workplace / "links")
        failed = tuple(link_failures(failures))
        notes += failed
        for note in failed:
            report(1, 1, note)
    if measure is not None and objects is not None:
        judge = open_judge(search, measure, settings.judge, objects, folder=workplace, report=report)
    return search, judge, notes, compiling


def _discards_functions(measure: Measure, settings: TuneSettings) -> bool:
    """Whether links may tell which functions count: where the image counts, and the links only link."""
    return (
        bool(measure.plans) and not measure.is_lto and settings.objective in {"image", "text", "linked", "compressed"}
    )


def _tune_bytes(session: Session) -> Tuned | NotRecovered:
    """Search and verify inlining decisions, then passes and register allocations beside them."""
    settings, report = _share_by_target(session.settings, session.build.modules), session.report
    search, judge, notes, compiling = _open_bytes(session)
    compiler = search.space.compiler
    session.claim()
    whole = settings.seconds
    spent = time.monotonic() - settings.began
    announced = announce_time(compiling, settings, spent=spent, build=_build_seconds(session))
    for note in filter(None, (session.without_refits, announced)):
        report(1, 1, note)
    # What a command measures may be anything, and need not become better with fewer bytes.
    by_bytes = settings.objective != "command"
    is_large = by_bytes and _is_too_large(settings, compiling)
    table = settings.earlier if isinstance(settings.earlier, DecisionTable) else None
    try_whole(
        search,
        policies=dict(settings.policies),
        earlier=table,
        by_rule=_tries_rule(settings, is_large=is_large),
        report=report,
    )
    known = search.folder / POLICY_NAME
    search.space.policy = known_policy(known)
    if search.space.policy is None and INLINE_SIZE.name in settings.policies:
        given = load_policy(settings.policies[INLINE_SIZE.name], problem=INLINE_SIZE.name)
        search.space.policy = restrict_to_targets(given, session.build.modules)
    if is_large:
        note = (
            f"only inlining is searched: a look at all modules takes {compiling / 2:.0f} s, and passes and registers "
            f"need a budget of as much, found {whole:.0f} s"
        )
        report(1, 1, note)
        notes += (note,)
    seconds, yield_rule = _inlining_share(settings, alone=is_large or not by_bytes)
    end = time.monotonic() + whole
    run_search(
        search,
        seconds=seconds,
        workers=compiler,
        report=report,
        judge=judge,
        yield_rule=yield_rule,
        recover_by=GIVES_UP * seconds,
    )
    if judge is not None and search.ended == NOT_RECOVERED:
        return NotRecovered(larger=judge.excess, seconds_left=max(0.0, end - time.monotonic()))
    if judge is not None:
        conclude(judge, seconds=seconds)
    fallback = {INLINE_SIZE.name: known} if settings.falls_back_to_policy and known.exists() else {}
    with Verifier(
        compiler=compiler,
        modules=[one.module for one in search.space.units],
        output=settings.output,
        search_folder=settings.search_folder,
        inside=fallback,
        report=report,
        judge=judge,
    ) as verifier:
        left = end - time.monotonic()
        if judge is not None:
            verifier.adopt_plain({one.module.name: one.plain for one in search.space.units}, judge.plain.objects)
        tuned, tables = finish_inlining(verifier, search), SearchedTables(verifier=verifier, inlining=search)
        if by_bytes:
            if not is_large:
                tuned = _tune_functions(settings, tables, tuned, left=left, report=report)
            if settings.adds_shipped_policies:
                space = search.space
                tuned = add_shipped(
                    verifier,
                    tuned,
                    tables.on_top,
                    space.account,
                    with_all=is_large,
                )
                policies = {problem: load_policy(file) for problem, file in shipped_policies().items()}
                notes += describe_missing_policies(SHIPPED, policies, architectures_of(session.build.modules))
        tuned = session.publish(verifier, dataclasses.replace(tuned, notes=(*tuned.notes, *notes)), tables)
    shutil.rmtree(settings.folder.resolve() / _JUDGE, ignore_errors=True)
    return tuned


def _has_trials(modules: Sequence[Module]) -> bool:
    """Whether forks of the compiler can generate functions in several ways; for WebAssembly the plugin does not."""
    return not all(one.architecture.startswith("wasm") for one in modules)


def _share_by_target(settings: TuneSettings, modules: Sequence[Module]) -> TuneSettings:
    """Give register allocation no share of the budget where there is none."""
    return settings if _has_trials(modules) else dataclasses.replace(settings, allocation_share=0.0)


def _inlining_share(settings: TuneSettings, *, alone: bool) -> tuple[float, YieldRule | None]:
    """The seconds that the search over inlining has at most, all of them if it is ``alone``, and when it gives way."""
    if alone:
        return settings.seconds, None
    seconds = (1 - settings.pass_share - settings.allocation_share) * settings.seconds
    if not settings.pass_share:
        return seconds, None
    rule = YieldRule(after=seconds, rate=PASSES_GAIN)
    return seconds + (settings.pass_share - settings.least_pass_share) * settings.seconds, rule


def _is_too_large(settings: TuneSettings, compiling: float) -> bool:
    """Whether a look at all modules takes longer than the budget, so that what begins with one is not searched.

    What an earlier session or plugin found is looked at in any case, or it would be lost. ``compiling`` are the seconds
    in which all modules were compiled twice.
    """
    is_known = settings.start is not None or any((settings.search_folder / name).exists() for name in _ON_TOP)
    is_searched = settings.pass_share + settings.allocation_share > 0
    return is_searched and not is_known and compiling / 2 > max(LONGEST_LOOK, settings.seconds)


def _tries_rule(settings: TuneSettings, *, is_large: bool) -> bool:
    """Whether all modules are built by a rule beside the policies; a large project is not, where one has a policy."""
    return not (is_large and settings.policies)


def _tune_functions(
    settings: TuneSettings, tables: SearchedTables, tuned: Tuned, *, left: float, report: Report
) -> Tuned:
    """Search and verify passes that are left out, first of the optimizer, then register allocations on top of them.

    What is found on top of the verified decisions is added to ``tables``, which gave ``tuned``. Of the ``left`` seconds
    passes have what registers have no share in, and registers what is left then.
    """
    verifier, space, folder, seed = tables.verifier, tables.inlining.space, tables.inlining.folder, tables.inlining.seed
    objective = space.objective
    policy = _policy_of_passes(folder, verifier.modules) if settings.adds_shipped_policies else None

    def open_search(kind: OverrideKind) -> TableSearch:
        start = dict[int, Overrides]() if settings.start is None else read_plugin_overrides(kind, settings.start)
        if kind is OPTIMIZER_PASSES:
            return open_optimizer(
                verifier, objective=objective, slowdown=settings.slowdown, folder=folder, start=start, policy=policy,
                seed=seed, report=report,
            )  # fmt: skip
        architectures = (one.architecture for one in verifier.modules)
        plan, name = (
            (allocation_plan(objective), "allocation")
            if kind is ALLOCATIONS
            else (pass_plan(objective, architectures, slowdown=settings.slowdown), "passes")
        )
        return open_verified(
            verifier, plan, objective=objective, folder=folder / name, start=start, seed=seed, report=report
        )

    def run(kind: OverrideKind, seconds: float) -> Tuned:
        found = open_search(kind)
        run_search(found, seconds=seconds, workers=space.compiler, report=report)
        return tables.verify(kind, found, tuned)

    kept = settings.allocation_share * settings.seconds
    kinds = (OPTIMIZER_PASSES, PASSES) if settings.pass_share else ()
    if not _has_trials(verifier.modules):
        kinds = kinds[:1]
    for index, kind in enumerate(kinds):
        begin, seconds = time.monotonic(), max(0.0, left - kept) / (len(kinds) - index)
        # All workers make steps, if only in one module.
        steps = seconds * space.compiler.workers / max(_step_seconds(verifier), 1e-9)
        if kind is OPTIMIZER_PASSES and steps < settings.least_steps:
            seconds = 0.0
        tuned = run(kind, seconds)
        left -= min(seconds, time.monotonic() - begin)
    if settings.allocation_share:
        tuned = run(ALLOCATIONS, max(kept, left))
    return tuned


def _policy_of_passes(folder: Path, modules: Sequence[Module]) -> Path:
    """The shipped policy of passes, made to decide for the modules' targets: the search keeps only what pays."""
    policy = load_policy(policy_file("builtin:passes"), problem=PASS_SELECTION.name)
    path = folder / "passes.policy"
    save_policy(restrict_to_targets(policy, modules), path)
    return path


def _step_seconds(verifier: Verifier) -> float:
    """Processor time of a step over passes of the optimizer, which compiles one module."""
    found = [one.user_seconds for one in verifier.latest.compilations.values()]
    return sum(found) / max(1, len(found))

"""A session of `mlgokit tune`: search, verification, and what is published."""

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.algorithms.registry import missing_framework
from mlgokit.commands.tune_builds import Recorded
from mlgokit.commands.tune_cargo import CargoTuning, prove_programs
from mlgokit.commands.tune_checks import seconds_of
from mlgokit.commands.tune_defer import GIVES_UP
from mlgokit.commands.tune_functions import tune_functions
from mlgokit.commands.tune_lto import LinkTuning, prove_link
from mlgokit.commands.tune_options import PASSES_GAIN, Tune
from mlgokit.commands.tune_replay import with_replay
from mlgokit.commands.tune_report import publish_with_report
from mlgokit.commands.tune_trial import PluginTrial, try_plugin
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.plugin_name import versioned_path
from mlgokit.compiler.request import Compiler
from mlgokit.corpus.build_notes import baseline_of
from mlgokit.evaluation.linked import loading_options
from mlgokit.evaluation.sides import PluginPlace, cache_key
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report
from mlgokit.tables.decisions import DecisionTable
from mlgokit.tables.overrides import OverrideTable
from mlgokit.tune.judge import conclude, open_judge, plain_object
from mlgokit.tune.loop import NOT_RECOVERED, YieldRule, run_search
from mlgokit.tune.measurement import Measure
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.finish import finish_costs
from mlgokit.tune.spaces.functions.opening import open_functions
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import known_policy, open_inlining, try_whole
from mlgokit.tune.spaces.inlining.space import POLICY_NAME
from mlgokit.tune.verify import Verifier

SEARCH = "search"
"""Where progress is kept, below the folder of a call."""
_JUDGE = "judge"
"""Objects and images of the search while it lasts."""


_BOTH_PLACES = (
    "the first word to add is for the compile steps, which leave inlining to the link, the others are for the link; "
    "the plugin needs both"
)
_BESIDE = 6
"""How much longer than the opening all that takes that is not searched: about a dozen compilations of all modules."""
_MINUTES = 90.0
"""Seconds from which on a time is told in minutes."""
_OBJECTIVES = {"text": Objective.LINK_AWARE_TEXT, "object": Objective.OBJECT_TEXT}
"""What the search counts; for all others the bytes of the image."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session:
    """What both ways of tuning have in common.

    Attributes:
        config: the call.
        compiler: compiles.
        modules: what is tuned, in link order.
        policies: to start from, by problem.
        earlier: the table of an earlier plugin that the search starts from.
        claim: signs the folder; called when nothing can be wrong with the call any more.
        left_out: sources of the project that are not tuned, with the reason.
        notes: what is to be said of the build.
        recorded: the user's build, if that is what is tuned.
        report: told what is done.
        linking: the link, if its modules are what is tuned.
        cargo: the cargo build, if the modules are its programs.
    """

    config: Tune
    compiler: Compiler
    modules: Sequence[Module]
    policies: dict[str, Path]
    earlier: DecisionTable | OverrideTable | None
    claim: Callable[[], None]
    left_out: dict[str, str]
    report: Report
    notes: tuple[str, ...] = ()
    recorded: Recorded | None = None
    linking: LinkTuning | None = None
    cargo: CargoTuning | None = None

    @property
    def folder(self) -> Path:
        """Where the search is kept."""
        return self.config.folder / SEARCH

    @property
    def place(self) -> PluginPlace:
        """The steps of the build that are tuned."""
        if self.linking is None:
            return "compile"
        return "link" if self.linking.steps is None else "both"

    @property
    def without_refits(self) -> str:
        """What the search does not do because the learning framework is not installed; empty if it does all."""
        missing = missing_framework() if self.config.objective != "spill-cost" and self.config.search.refits else []
        if not missing:
            return ""
        return (
            f"without {' and '.join(missing)} the search fits no policy to what it measures, to say what to try first; "
            "`pip install 'mlgokit[train]'` brings them"
        )

    @property
    def baseline(self) -> str:
        """What sizes are compared with."""
        if self.cargo is not None:
            return f"{self.cargo.compiler.rustc.version}, {self.config.cargo}"
        stood_in = "" if self.recorded is None else self.recorded.in_place_of
        return f"{baseline_of(self.compiler.toolchain.version, self.modules)}{stood_in}"

    def publish(self, verifier: Verifier, tuned: Tuned) -> Tuned:
        """Put what was verified where the user wants it, with ``tuned.json``; first the user's build tries it.

        Raises:
            RejectedError: the build fails with it.
            ToolError: the link that was tuned does not give what was verified.
        """
        notes = tuple(filter(None, (self.without_refits,)))
        loaded = versioned_path(verifier.output, verifier.plugin)
        if self.linking is not None:
            judged = prove_link(self.linking, verifier.plugin, verifier.folder) or tuned.judged
            words = self.linking.plan.words
            options = loading_options(words, loaded, cache=cache_key(verifier.plugin))
            if self.linking.steps is not None:
                options = [f"-fpass-plugin={loaded}", *options]
                notes = (*notes, _BOTH_PLACES)
            tuned = dataclasses.replace(tuned, judged=judged, flag=" ".join(options))
        if self.cargo is not None:
            tuned = prove_programs(self.cargo, verifier.plugin, verifier.output, tuned, loaded=loaded)
        if self.recorded is not None:
            trial = PluginTrial(plugin=verifier.plugin, published=loaded, place=self.place)
            built = try_plugin(self.config, self.recorded, trial, self.compiler.toolchain, report=self.report)
            tuned = dataclasses.replace(tuned, built=built)
        if self.config.artifact == "replay":
            tuned = with_replay(self.config, verifier.plugin, tuned, report=self.report)
        tuned = dataclasses.replace(
            tuned, baseline=self.baseline, left_out=self.left_out, notes=(*self.notes, *tuned.notes, *notes)
        )
        return publish_with_report(verifier, tuned, self.config, self.compiler.toolchain)


class NotMadeGoodError(Exception):
    """A search of a link whose compile steps inline nothing was given up, as that was not made good.

    Attributes:
        larger: part by which the image still was larger than the build's own.
        left: seconds of the budget that are left.
    """

    def __init__(self, *, larger: float, left: float) -> None:
        super().__init__(f"{larger:.1%}")
        self.larger, self.left = larger, left


def beside_budget(opening: float, *, budget: float) -> str:
    """What to say of the time that a tuning takes beside its budget; empty if the search takes more.

    Args:
        opening: seconds that it took to compile all modules twice.
        budget: seconds of the search.

    Example:
        >>> beside_budget(50.0, budget=60.0)
        'beside the budget, first policies and proofs take about 5 min, as each compiles all modules'
        >>> beside_budget(50.0, budget=1800.0)
        ''
    """
    seconds = _BESIDE * opening
    if seconds <= budget:
        return ""
    said = f"{seconds / 60:.0f} min" if seconds >= _MINUTES else f"{seconds:.0f} s"
    return f"beside the budget, first policies and proofs take about {said}, as each compiles all modules"


def tune_costs(session: Session) -> Tuned:
    """Search and verify register allocations for spill cost."""
    config, policies, report = session.config, session.policies, session.report
    falls_back = policies if config.fallback == "policy" else {}
    search = open_functions(
        session.modules,
        compiler=session.compiler,
        config=TrialConfig(
            policies={problem: str(path) for problem, path in policies.items()},
            eviction=config.problem != REGALLOC_PRIORITY.name,
            priority=config.problem != REGALLOC_EVICTION.name,
        ),
        folder=session.folder,
        start=session.earlier.by_key if isinstance(session.earlier, OverrideTable) else {},
        list_all=bool(falls_back),
        seed=config.search.seed,
        report=report,
    )
    session.claim()
    run_search(search, seconds=seconds_of(config.budget), workers=session.compiler, report=report)
    with Verifier(
        compiler=session.compiler,
        modules=[one.module for one in search.space.units],
        output=config.output,
        search_folder=session.folder,
        inside=dict(falls_back),
        report=report,
        costs=True,
    ) as verifier:
        return session.publish(verifier, finish_costs(verifier, search))


def tune_bytes(session: Session, measure: Measure | None) -> Tuned:
    """Search and verify inlining decisions, then passes and register allocations beside them.

    Raises:
        NotMadeGoodError: compile steps that leave inlining to the link make that larger than the search can mend.
    """
    config, compiler, report = session.config, session.compiler, session.report
    # The link runs in another folder.
    workplace = config.folder.resolve() / _JUDGE
    objects = (
        {one.name: plain_object(workplace, index) for index, one in enumerate(session.modules)} if measure else None
    )
    began = time.monotonic()
    search = open_inlining(
        session.modules,
        compiler=compiler,
        config=dataclasses.replace(config.search, objective=_OBJECTIVES.get(config.objective, Objective.LINK_AWARE)),
        folder=session.folder,
        report=report,
        keep=objects,
    )
    judge = None
    if measure is not None and objects is not None:
        judge = open_judge(search, measure, config.judge, objects, folder=workplace, report=report)
    session.claim()
    whole = seconds_of(config.budget)
    for note in filter(None, (session.without_refits, beside_budget(time.monotonic() - began, budget=whole))):
        report(1, 1, note)
    table = session.earlier if isinstance(session.earlier, DecisionTable) else None
    try_whole(search, policies=session.policies, earlier=table, report=report)
    known = search.folder / POLICY_NAME
    search.space.policy = known_policy(known)
    if search.space.policy is None and config.policy is not None:
        search.space.policy = load_policy(config.policy, problem=INLINE_SIZE.name)
    # What a command measures may be anything, and need not become better with fewer bytes.
    by_bytes = config.objective != "command"
    shares = config.share_for_passes + config.allocation_share if by_bytes else 0.0
    seconds, end = (1 - shares) * whole, time.monotonic() + whole
    yield_rule = None
    if by_bytes and config.share_for_passes:
        yield_rule = YieldRule(after=seconds, rate=PASSES_GAIN)
        seconds += (config.share_for_passes - config.least_for_passes) * whole
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
        raise NotMadeGoodError(larger=judge.excess, left=max(0.0, end - time.monotonic()))
    if judge is not None:
        conclude(judge, seconds=seconds)
    fallback = {INLINE_SIZE.name: known} if config.fallback == "policy" and known.exists() else {}
    with Verifier(
        compiler=compiler,
        modules=[one.module for one in search.space.units],
        output=config.output,
        search_folder=session.folder,
        inside=fallback,
        report=report,
        judge=judge,
    ) as verifier:
        left = end - time.monotonic()
        tuned = finish_inlining(verifier, search)
        if by_bytes:
            tuned = tune_functions(config, verifier, search, tuned, whole=whole, left=left, report=report)
        tuned = session.publish(verifier, tuned)
    shutil.rmtree(workplace, ignore_errors=True)
    return tuned

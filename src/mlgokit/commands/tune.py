"""The command that tunes one project: search, verification, and one plugin to add to the build."""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from mlgokit.commands.build_site import BuildOptions, WholeBuild
from mlgokit.commands.chosen import (
    ModuleSelection,
    check_given,
    given_corpus,
    modules_for_size,
    modules_of_project,
)
from mlgokit.commands.options import COMPILER, Compiling, check_sandbox, open_sandbox_for
from mlgokit.commands.tune_builds import Recorded, check_build, record_plain, with_recorded
from mlgokit.commands.tune_cargo import CargoTuning, check_cargo, open_cargo, prove_programs, versions_of
from mlgokit.commands.tune_checks import (
    check_claim,
    check_keep_hot,
    check_link_without_profile,
    check_objective,
    check_shares,
    earlier_table,
    measure_of,
    policies_of,
    seconds_of,
    with_hot_functions,
)
from mlgokit.commands.tune_functions import tune_functions
from mlgokit.commands.tune_lto import LinkTuning, link_options, open_link, prove_link, without_lto
from mlgokit.commands.tune_report import publish_with_report
from mlgokit.commands.tune_trial import PluginTrial, try_plugin
from mlgokit.compiler.compile import COMPILE_SECONDS, ClangCompiler
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.importers.database import Level
from mlgokit.corpus.importers.project_name import default_project
from mlgokit.files import digest_file, remove_leftovers
from mlgokit.locks import locked, locked_output, reading
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.decisions import DecisionTable
from mlgokit.tables.overrides import OverrideTable
from mlgokit.tune.judge import JudgeConfig, conclude, open_judge, plain_object
from mlgokit.tune.loop import run_search
from mlgokit.tune.measurement import Measure
from mlgokit.tune.publish import complete_publishing
from mlgokit.tune.render import print_tuned
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.finish import finish_costs
from mlgokit.tune.spaces.functions.opening import open_functions
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import known_policy, open_inlining, try_whole
from mlgokit.tune.spaces.inlining.space import POLICY_NAME, SearchConfig
from mlgokit.tune.verify import Verifier

ALLOCATION_SHARE = 0.4
"""Of the budget: inlining pays longer in C++, register allocation more in C."""
PASS_SHARE = 0.0
"""Of the budget."""
SLOWDOWN = 0.0
"""Of any function by passes that do not run, as far as LLVM estimates it."""
_JUDGE = "judge"
"""Objects and images of the search while it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Make one project smaller: search its compiler's decisions, verify the result, and put it into one plugin."""

    compile_commands: Path | None = None
    """Compilation database (compile_commands.json) of the project; name this, --build or a corpus."""
    built: WholeBuild = dataclasses.field(default_factory=BuildOptions)
    """Build to record, and to make again with the plugin."""
    corpus: Path | None = None
    """Folder of a corpus with the project's modules."""
    cargo: str | None = None
    """Cargo build of a Rust project in place of both, as in --cargo 'cargo build --release'; it runs in the current
    folder or --link-folder, and each program with lto = "fat" is tuned, std and all crates in it."""
    project: str | None = None
    """Name of the project to tune, in a corpus of several."""
    budget: str = "30m"
    """Time for the search, such as 90s, 30m or 2h."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("tuned.so")
    """Plugin to write."""
    folder: Path = Path("tune")
    """Folder where the search is kept, so that it can go on later."""
    go_on: Annotated[bool, tyro.conf.arg(name="continue")] = False
    """Go on where the search in the folder stopped."""
    objective: Literal["image", "text", "object", "linked", "command", "spill-cost"] = "image"
    """Bytes to save: code, read-only data and unwind tables as the linker keeps them; code alone; whole objects; what
    the link command writes; or a number that a command prints. Or how often spills, reloads and copies are executed."""
    problem: Literal["both", "regalloc-eviction", "regalloc-priority"] = "both"
    """With `spill-cost`: decisions of the register allocator that are searched."""
    link_command: str | None = None
    """With `linked` or `command`: link command of the build, with paths of objects, or {objects} and {output}."""
    link_folder: Path | None = None
    """Folder where the link command runs; by default that of compile_commands.json, else the current one."""
    command: str | None = None
    """With `command`: command that prints a number for the linked {output} or the {objects}; smaller is better."""
    start: Path | None = None
    """Plugin of an earlier version of the code; the search starts from its decisions that still apply."""
    allocation_share: float = ALLOCATION_SHARE
    """Share of the budget for register allocation, for the bytes that it saves; 0 leaves it to LLVM."""
    pass_share: float = PASS_SHARE
    """Share of the budget for passes of the code generator that do not run on a function where it is smaller without
    them; 0 lets all run."""
    slowdown: float = SLOWDOWN
    """Part by which a function may execute more instructions than with all passes, by LLVM's estimate, such as 0.01."""
    policy: Path | None = None
    """Policy file to start from, as `mlgokit train` writes it; with `spill-cost` one of evictions or priorities."""
    fallback: Literal["heuristic", "policy"] = "heuristic"
    """Advisor for code that changed after the search: LLVM's heuristic, or the policy that the search ended with."""
    keep_hot: float = 0.0
    """Percent of the executions in the build's profile whose functions stay as LLVM has them, calls and registers, such
    as 99, to save size and leave hot code alone; 0 keeps none. LLVM knows 90, 95, 99, 99.9 and finer, and takes the
    next of these."""
    level: Level | None = None
    """Optimization level in place of the build's own; needs --compile-commands, and must be one for size."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    judge: JudgeConfig = dataclasses.field(default_factory=JudgeConfig)
    """Settings of the confirmation by the link or the command."""
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    """Settings of the search."""


_OBJECTIVES = {"text": Objective.LINK_AWARE_TEXT, "object": Objective.OBJECT_TEXT}
"""What the search counts; for all others the bytes of the image."""


def run(config: Tune, *, report: Report = say_nothing) -> Tuned:
    """Tune a project, and leave the plugin, and ``tuned.json`` in the folder.

    Raises:
        BusyError: another process works in the folder, makes the same output, or changes the corpus.
        UsageError: the call contradicts itself.
        ReuseError: the folder has another search, or one that is not to be gone on with.
        CorpusError: there is nothing to tune.
    """
    seconds_of(config.budget)
    check_objective(config)
    check_shares(config)
    check_keep_hot(config)
    check_build(config)
    cargo = None if config.cargo is None else check_cargo(config)
    if not config.built.build and cargo is None:
        check_given("tune", compile_commands=config.compile_commands, corpus=config.corpus)
    with locked(config.folder), locked_output(config.output), contextlib.ExitStack() as stack:
        return _tune(config, stack, report) if cargo is None else _tune_programs(config, cargo, report)


def _tune_programs(config: Tune, words: tuple[str, ...], report: Report) -> Tuned:
    """Tune what cargo builds, in a folder that is ours."""
    policies = policies_of(config)
    found = open_cargo(config, words, report=report)
    earlier = earlier_table(config, found.compiler.toolchain)
    session = _Session(
        config=config,
        compiler=found.compiler,
        modules=found.modules,
        policies=policies,
        earlier=earlier,
        claim=check_claim(config, config.folder / "search", found.inputs, versions_of(found)),
        left_out=found.left_out,
        cargo=found,
        report=report,
    )
    return _tune_session(session, None)


def _tune(config: Tune, stack: contextlib.ExitStack, report: Report) -> Tuned:
    """Tune in a folder that is ours; the stack holds the corpus."""
    policies = policies_of(config)
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
    check_sandbox(config.compiler, toolchain)
    earlier = earlier_table(config, toolchain)
    recorded = record_plain(config, toolchain, report=report) if config.built.build else None
    if recorded is not None:
        config = with_recorded(config, recorded)
    found = _material(config, toolchain, stack, report)
    session = _Session(
        config=config,
        compiler=ClangCompiler(
            toolchain=toolchain,
            plugin=build_plugin(toolchain),
            workers=config.compiler.workers,
            timeout_seconds=config.compiler.deadline(
                config.judge.timeout_seconds if found.linking else COMPILE_SECONDS
            ),
            limits=config.compiler.limits(),
            sandbox=found.corpus and open_sandbox_for(config.compiler, toolchain, corpus=found.corpus, report=report),
            room=config.compiler.room(config.folder),
            residents=Residents(),
            known={},
            recheck=config.compiler.recheck(),
            keep_hot=config.keep_hot,
        ),
        modules=found.modules,
        policies=policies,
        earlier=earlier,
        claim=check_claim(config, config.folder / "search", found.inputs, toolchain.describe()),
        left_out=found.left_out | dict(recorded.left_out if recorded is not None else {}),
        notes=found.notes,
        recorded=recorded,
        linking=found.linking,
        report=report,
    )
    return _tune_session(session, found.measure)


def _tune_session(session: "_Session", measure: Measure | None) -> Tuned:
    """Tune what was found, after the folder is as the last session should have left it."""
    config = session.config
    complete_publishing(session.folder, config.output, config.folder)
    remove_leftovers(config.folder)
    remove_leftovers(config.output.absolute().parent, below=False)
    try:
        return _tune_costs(session) if config.objective == "spill-cost" else _tune_bytes(session, measure)
    finally:
        session.compiler.close()


def render(result: Tuned, console: Console) -> None:
    """Print what became smaller or cheaper, and what to do with the plugin."""
    print_tuned(result, console)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Session:
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
        return self.config.folder / "search"

    def publish(self, verifier: Verifier, tuned: Tuned) -> Tuned:
        """Put what was verified where the user wants it, with ``tuned.json``; first the user's build tries it.

        Raises:
            RejectedError: the build fails with it.
            ToolError: the link that was tuned does not give what was verified.
        """
        if self.linking is not None:
            judged = prove_link(self.linking, verifier.plugin, verifier.folder) or tuned.judged
            options = link_options(self.linking, verifier.output, digest=digest_file(verifier.plugin))
            tuned = dataclasses.replace(tuned, judged=judged, flag=" ".join(options))
        if self.cargo is not None:
            tuned = prove_programs(self.cargo, verifier.plugin, verifier.output, tuned)
        if self.recorded is not None:
            trial = PluginTrial(plugin=verifier.plugin, place="compile" if self.linking is None else "link")
            built = try_plugin(self.config, self.recorded, trial, self.compiler.toolchain, report=self.report)
            tuned = dataclasses.replace(tuned, built=built)
        tuned = dataclasses.replace(tuned, left_out=self.left_out, notes=self.notes)
        return publish_with_report(verifier, tuned, self.config, self.compiler.toolchain)


def _tune_costs(session: _Session) -> Tuned:
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
    run_search(search, seconds=seconds_of(config.budget), workers=config.compiler.workers, report=report)
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


def _tune_bytes(session: _Session, measure: Measure | None) -> Tuned:
    """Search and verify inlining decisions, then passes and register allocations beside them."""
    config, compiler, report = session.config, session.compiler, session.report
    # The link runs in another folder.
    workplace = config.folder.resolve() / _JUDGE
    objects = (
        {one.name: plain_object(workplace, index) for index, one in enumerate(session.modules)} if measure else None
    )
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
    table = session.earlier if isinstance(session.earlier, DecisionTable) else None
    try_whole(search, policies=session.policies, earlier=table, report=report)
    known = search.folder / POLICY_NAME
    search.space.policy = known_policy(known)
    if search.space.policy is None and config.policy is not None:
        search.space.policy = load_policy(config.policy, problem=INLINE_SIZE.name)
    whole = seconds_of(config.budget)
    # What a command measures may be anything, and need not become better with fewer bytes.
    by_bytes = config.objective != "command"
    shares = config.pass_share + config.allocation_share if by_bytes else 0.0
    seconds, end = (1 - shares) * whole, time.monotonic() + whole
    run_search(search, seconds=seconds, workers=config.compiler.workers, report=report, judge=judge)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Material:
    """What is tuned, and where it comes from.

    Attributes:
        modules: in link order.
        left_out: what is not tuned, with the reason.
        inputs: digests of what the search depends on.
        measure: what judges, if the objective is more than the account.
        corpus: the folder of the modules, if they are a corpus.
        linking: the link, if its modules are what is tuned.
        notes: what is to be said of the build.
    """

    modules: Sequence[Module]
    left_out: dict[str, str]
    inputs: dict[str, str]
    measure: Measure | None
    corpus: Path | None = None
    linking: LinkTuning | None = None
    notes: tuple[str, ...] = ()


def _material(config: Tune, toolchain: Toolchain, stack: contextlib.ExitStack, report: Report) -> _Material:
    """Find what is to be tuned, and say what is left out."""
    if (linking := open_link(config, toolchain, report=report)) is not None:
        check_link_without_profile(config)
        chosen = ModuleSelection(modules=linking.modules, left_out=linking.left_out)
        chosen.tell(report)
        return _Material(
            modules=chosen.modules,
            left_out=chosen.left_out,
            inputs=linking.inputs,
            measure=linking.measure,
            linking=linking,
        )
    corpus = given_corpus(
        compile_commands=config.compile_commands,
        corpus=config.corpus,
        folder=config.folder / "corpus",
        level=config.level,
        llvm=toolchain.major,
        workers=config.compiler.workers,
        report=report,
        project=default_project(config.built.build_folder) if config.built.build else None,
    )
    stack.enter_context(reading(corpus))
    chosen = (modules_of_project if config.objective == "spill-cost" else modules_for_size)(corpus, config.project)
    lto = without_lto(config)
    notes = tuple(note for note in chosen.notes if note.partition(" ")[0] not in lto)
    chosen = ModuleSelection(modules=chosen.modules, left_out=lto | chosen.left_out, notes=notes)
    chosen = with_hot_functions(config, chosen)
    chosen.tell(report)
    measure = measure_of(config, chosen.modules, toolchain)
    by_name = {module.name: module for module in chosen.modules}
    return _Material(
        modules=chosen.modules if measure is None else [by_name[name] for name in measure.modules],
        left_out=chosen.left_out,
        inputs={"corpus": digest_file(corpus / "corpus_description.json")},
        measure=measure,
        corpus=corpus,
        notes=chosen.notes,
    )

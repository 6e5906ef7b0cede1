"""From nothing to a smaller binary: every stage in order, on real code, with a table and a report at the end."""

import dataclasses
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from mlgokit.builds.outside import make_outside_folder
from mlgokit.commands import evaluate, trace, train
from mlgokit.commands.corpus import extract, fetch
from mlgokit.commands.importance import Importance, importance_of
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.commands.progress_bar import NEWS
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.info import CorpusInfo, corpus_info
from mlgokit.corpus.sources.projects import choose_projects
from mlgokit.errors import InputError, MlgokitError, UsageError
from mlgokit.evaluation.program import ProgramComparison, compare_program
from mlgokit.evaluation.records import Evaluation, drop_rows
from mlgokit.evaluation.run import (
    RESULTS_NAME,
    RoundReport,
    RunReport,
    StageTime,
    program_sentence,
    run_page,
    write_report,
)
from mlgokit.export.plugin import export_plugin
from mlgokit.files import atomic_write, digest_file
from mlgokit.learning.run_folder import rounds_of
from mlgokit.learning.settings import LIKE_PRESET, Learning
from mlgokit.locks import locked
from mlgokit.manifest import package_version, sign_new
from mlgokit.pages.model import Part
from mlgokit.pages.terminal import print_page
from mlgokit.policy.importance import importance_parts
from mlgokit.policy.pretrained import SHIPPED, policy_files
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import join_names
from mlgokit.progress import Report, say_nothing

Value = TypeVar("Value")

_OBSERVATIONS, _EXPLAINED = 1000, 96
"""Of the traces, for what the policy goes by: some seconds of work."""

SHIPPED_STAGE = "build a program with what comes with mlgokit"
TURNS = 2
"""Turns of training unless a budget is given: a count, so that the policy does not depend on the machine's speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart:
    """Run all steps once: fetch, extract, trace, train, evaluate, export, build a program, report."""

    folder: Path = Path("quickstart")
    """Folder for sources, corpus, training and results; a second run reuses what is there."""
    projects: tuple[str, ...] = ()
    """Names of the projects to use, among those that --manifest lists; all if none is given."""
    manifest: Path | None = None
    """TOML file that lists the projects; the list that comes with mlgokit if not given."""
    minutes: float = math.inf
    """Minutes of training after which no further iteration begins; the first one always runs. A training that is cut
    short depends on the machine's speed."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    training: Learning = LIKE_PRESET
    """Settings of the training; it has two iterations unless --training.iterations or --training.compilations is
    given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """The results of a run, and the page that shows them."""

    run: RunReport
    report: Path

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: those of the run."""
        return self.run.to_json()


def run(config: Quickstart, *, report: Report = say_nothing) -> FinishedRun:
    """Run all stages; a run that was finished with the same settings is only shown again.

    Raises:
        BusyError: another process works in the folder.
        UsageError: there is no project to learn from.
    """
    projects = choose_projects(config.manifest, config.projects)
    if all(project.program is not None for project in projects):
        raise UsageError(
            f"quickstart: expected a project to learn from, found {join_names(one.name for one in projects)} alone, "
            "whose program is what the policy is tried on; name another one, too"
        )
    with locked(config.folder):
        return _run_unless_finished(config, report)


def _run_unless_finished(config: Quickstart, report: Report) -> FinishedRun:
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
    digest = _digest(config, ClangCompiler(toolchain=toolchain).loaded.facts)
    finished = _finished_run(config.folder, digest)
    if finished is None:
        finished, importance = _run(config, toolchain, report)
        write_report(finished, config.folder, importance)
        atomic_write(config.folder / "finished", digest)
    else:
        stages_reused = tuple(dataclasses.replace(stage, reused=True) for stage in finished.stages)
        finished = dataclasses.replace(finished, stages=stages_reused)
    return FinishedRun(run=finished, report=(config.folder / "report.html").resolve())


def render(finished: FinishedRun, console: Console) -> None:
    """The held-out projects, the program, what everything cost, and the result in a sentence."""
    print_page(run_page(finished.run), console, report=str(finished.report))


def exit_code(config: Quickstart, finished: FinishedRun) -> int:  # noqa: ARG001  (as of other commands)
    """1 if the program built with a policy behaves differently."""
    programs = (finished.run.shipped, finished.run.program)
    return 0 if all(one is None or one.same_behaviour for one in programs) else MlgokitError.exit_code


def default_to_two_turns(training: Learning) -> Learning:
    """The settings of the training, with two turns if they name no budget.

    Example:
        >>> default_to_two_turns(LIKE_PRESET).iterations, default_to_two_turns(Learning(compilations=500)).iterations
        (2, None)
    """
    if training.iterations is None and training.compilations is None:
        return dataclasses.replace(training, iterations=TURNS)
    return training


def _digest(config: Quickstart, compiler: Mapping[str, object]) -> str:
    """Digest of everything that affects the result; a finished run with the same digest is not repeated."""
    projects = None if config.manifest is None or not config.manifest.is_file() else digest_file(config.manifest)
    facts = [dataclasses.asdict(config), compiler, projects, package_version()]
    return json.dumps(facts, default=str, sort_keys=True)


def _finished_run(folder: Path, digest: str) -> RunReport | None:
    """The results of an earlier run with that digest, if all its files are still there."""
    try:
        if (folder / "finished").read_text() != digest or not (folder / "policy.so").exists():
            return None
        return RunReport.from_json(json.loads((folder / RESULTS_NAME).read_bytes()))
    except (OSError, ValueError, RecursionError, InputError):
        return None


def _run(config: Quickstart, toolchain: Toolchain, report: Report) -> tuple[RunReport, list[Part]]:
    stages: list[StageTime] = []

    def timed(stage: str, work: Callable[[], Value], compilations: Callable[[Value], int] = lambda _: 0) -> Value:
        """Do ``work``, and note its duration."""
        begin = time.monotonic()
        value = work()
        seconds = time.monotonic() - begin
        stages.append(StageTime(stage=stage, seconds=seconds, compilations=compilations(value), reused=False))
        return value

    folder = config.folder
    timed("build the plugin", lambda: build_plugin(toolchain))
    sign_new(folder, "quickstart")
    sources, corpus_folder, store = make_outside_folder(folder) / "sources", folder / "corpus", folder / "store"
    projects = choose_projects(config.manifest, config.projects)
    with_program = [project for project in projects if project.program is not None]

    def compare(plugin: Path) -> ProgramComparison:
        return compare_program(
            with_program[0],
            toolchain=toolchain,
            sources_folder=sources,
            plugin=plugin,
            workers=config.compiler.workers,
            report=report,
        )

    def try_shipped() -> tuple[ProgramComparison, str]:
        """Compare the program under the pretrained policies, which the user sees before the training ends."""
        fetch.run(
            fetch.Fetch(projects=(with_program[0].name,), manifest=config.manifest, folder=sources), report=report
        )
        exported = export_plugin(toolchain, policy_files([SHIPPED]), folder / "builtin.so")
        found = compare(folder / "builtin.so")
        report(1, 1, f"{SHIPPED_STAGE}{NEWS}{SHIPPED}, {program_sentence(found)}")
        return found, exported.versioned

    shipped, shipped_plugin = timed(SHIPPED_STAGE, try_shipped) if with_program else (None, "")
    fetching = fetch.Fetch(projects=config.projects, manifest=config.manifest, folder=sources)
    timed("fetch", lambda: fetch.run(fetching, report=report))
    # The program is built from its sources below, so its modules need not be in the corpus.
    extracting = extract.Extract(
        projects=tuple(project.name for project in projects if project not in with_program),
        manifest=config.manifest,
        sources=sources,
        corpus=corpus_folder,
        compiler=config.compiler,
    )
    timed("extract the corpus", lambda: extract.extract(extracting, report=report))
    corpus = load_corpus(corpus_folder)
    tracing = trace.Trace(corpus=corpus_folder, output=folder / "trace", store=store, compiler=config.compiler)
    timed("default trace", lambda: trace.run(tracing, report=report), lambda value: int(value["modules"]))
    training = train.Train(
        corpus=corpus_folder,
        output=folder / "train",
        store=store,
        compiler=config.compiler,
        learning=default_to_two_turns(config.training),
        minutes=config.minutes,
    )
    trained = timed(
        "train",
        lambda: train.run(training, report=report),
        lambda value: value.learned.counters.compilations,
    )
    evaluating = evaluate.Evaluate(policy=(str(trained.policy),), corpus=corpus_folder, compiler=config.compiler)
    evaluation: Evaluation = timed(
        "evaluate", lambda: evaluate.run(evaluating, report=report), lambda value: value.compilations
    )
    atomic_write(folder / "evaluation.json", json.dumps(evaluation.to_json(), indent=1))
    plugin = folder / "policy.so"
    exported = timed("export the plugin", lambda: export_plugin(toolchain, [trained.policy], plugin))
    program: ProgramComparison | None = None
    if with_program:
        program = timed("build a program twice", lambda: compare(plugin))
    importance = timed("measure importance", lambda: _importance(trained.policy, folder / "trace", report))
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    run_report = RunReport(
        command="mlgokit quickstart" if not sys.argv[1:] else " ".join(["mlgokit", *sys.argv[1:]]),
        mlgokit_version=package_version(),
        toolchain=toolchain.describe(),
        seed=config.training.seed,
        corpus=_counts(corpus_info(corpus)),
        stages=tuple(stages),
        rounds=tuple(_round(result) for result in rounds_of(trained.learned.rows)),
        evaluation=drop_rows(evaluation),
        program=program,
        policy=f"{trained.policy} (sha256 {digest_file(trained.policy)})",
        plugin=exported.versioned,
        # The largest process of each kind; compilers run next to this one.
        peak_bytes=1024 * (usage[0] + config.compiler.workers * usage[1]),
        shipped=shipped,
        shipped_plugin=shipped_plugin,
    )
    return run_report, importance


def _importance(path: Path, traces: Path, report: Report) -> list[Part]:
    """The policy's feature importance for the report; empty if the traces are too small."""
    policy = load_policy(path)
    asking = Importance(policy=path, traces=traces, observations=_OBSERVATIONS, explained=_EXPLAINED)
    try:
        return importance_parts(importance_of(policy, asking, report=report), policy.output)
    except UsageError as error:
        report(1, 1, str(error))
        return []


def _counts(info: CorpusInfo) -> dict[str, int]:
    return {
        "projects": len(info.projects),
        "modules": info.modules,
        "c++ modules": sum(project.modules for project in info.projects if "c++" in project.languages),
        "failures": len(info.failures),
    }


def _round(result: dict[str, Any]) -> RoundReport:
    return RoundReport(
        round=result["round"],
        compilations=result["compilations"],
        user_seconds=result["user_seconds"],
        flips=result["flips"],
        components=result["components"],
        correlation=result.get("correlation", math.nan),
        unattributed_share=result["unattributed_share"],
        failures=sum(result["failures"].values()),
    )

"""From nothing to a smaller binary: every stage in order, on real code, with a table and a report at the end."""

import dataclasses
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from mlgokit import commands
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.info import CorpusInfo, corpus_info
from mlgokit.errors import InputError
from mlgokit.evaluation.compare import Evaluation
from mlgokit.evaluation.markdown import render_markdown
from mlgokit.evaluation.program import ProgramComparison, compare_program
from mlgokit.evaluation.render import print_run
from mlgokit.evaluation.report import RESULTS_NAME, RoundReport, RunReport, StageTime, write_report
from mlgokit.export.plugin import export_plugin
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import package_version
from mlgokit.progress import Report
from mlgokit.train import EffectTraining, RoundResult

Value = TypeVar("Value")

EVALUATION_SECONDS = 150.0
"""Kept back from the training time for what comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart:
    """Do everything once: fetch, extract, trace, train, evaluate, export, build a program, report."""

    folder: Path = Path("quickstart")
    """Where everything goes; a second run reuses what is there."""
    projects: tuple[str, ...] = ()
    """Names of the projects; all of the list if none is named."""
    manifest: Path | None = None
    """A TOML file that lists the projects; the list that comes with mlgokit if not given."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = commands.WORKERS
    """Compilers that run at once."""
    minutes: float = 9.5
    """Training rounds begin only while this many minutes, less two and a half for the rest, are not over."""
    training: EffectTraining = dataclasses.field(default_factory=EffectTraining)
    """How to train."""


class _Clock:
    """Times the stages of one run."""

    __slots__ = ("stages",)

    def __init__(self) -> None:
        self.stages: list[StageTime] = []

    def time(self, stage: str, work: Callable[[], Value], compilations: Callable[[Value], int] = lambda _: 0) -> Value:
        """Do ``work`` and note what it took."""
        begin = time.monotonic()
        value = work()
        self.stages.append(
            StageTime(stage=stage, seconds=time.monotonic() - begin, compilations=compilations(value), reused=False)
        )
        return value


def quickstart(config: Quickstart, *, as_json: bool, report: Report) -> int:
    """Run every stage; returns the exit code, 1 if the program built with the policy behaves differently."""
    out = Console(file=sys.stderr if as_json else None, markup=False, emoji=False)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    digest = _digest(config, toolchain.version_text)
    finished = _finished_run(config.folder, digest)
    if finished is None:
        finished = _run(config, report)
        write_report(finished, config.folder)
        atomic_write(config.folder / "results.md", render_markdown(finished))
        (config.folder / "finished").write_text(digest)
    else:
        stages_reused = tuple(dataclasses.replace(stage, reused=True) for stage in finished.stages)
        finished = dataclasses.replace(finished, stages=stages_reused)
    print_run(finished, out)
    out.print(f"plugin: {finished.plugin}", highlight=False, soft_wrap=True)
    out.print(f"report: {(config.folder / 'report.html').resolve()}", highlight=False, soft_wrap=True)
    if as_json:
        json.dump(finished.to_json(), sys.stdout, indent=1)
        sys.stdout.write("\n")
    return 0 if finished.program is None or finished.program.same_behaviour else 1


def _digest(config: Quickstart, compiler: str) -> str:
    """What decides the result; a finished run with the same digest is shown again, not repeated."""
    return json.dumps([dataclasses.asdict(config), compiler, package_version()], default=str, sort_keys=True)


def _finished_run(folder: Path, digest: str) -> RunReport | None:
    """What an earlier run with that digest found, if all that it left is still there."""
    try:
        if (folder / "finished").read_text() != digest or not (folder / "policy.so").exists():
            return None
        return RunReport.from_json(json.loads((folder / RESULTS_NAME).read_bytes()))
    except (OSError, ValueError, InputError):
        return None


def _run(config: Quickstart, report: Report) -> RunReport:
    begin = time.monotonic()
    clock = _Clock()
    folder = config.folder
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    clock.time("build the plugin", lambda: build_plugin(toolchain))
    sources, corpus_folder, store = folder / "sources", folder / "corpus", folder / "store"
    fetch = commands.Sources(projects=config.projects, manifest=config.manifest, folder=sources)
    clock.time("fetch", lambda: commands.fetch(fetch, report=report))
    projects = commands.choose_projects(config.manifest, config.projects)
    with_program = [project for project in projects if project.program is not None]
    # The program is built from its sources below, so its modules need not be in the corpus.
    extract = commands.Extract(
        projects=tuple(project.name for project in projects if project not in with_program),
        manifest=config.manifest,
        sources=sources,
        corpus=corpus_folder,
        llvm=config.llvm,
        workers=config.workers,
    )
    clock.time("extract the corpus", lambda: commands.extract(extract, report=report))
    corpus = load_corpus(corpus_folder)
    trace = commands.Trace(
        corpus=corpus_folder, output=folder / "trace", store=store, llvm=config.llvm, workers=config.workers
    )
    clock.time("default trace", lambda: commands.trace(trace, report=report), lambda value: int(value["modules"]))
    left = config.minutes - (time.monotonic() - begin + EVALUATION_SECONDS) / 60
    train = commands.Train(
        corpus=corpus_folder,
        output=folder / "train",
        store=store,
        llvm=config.llvm,
        workers=config.workers,
        effects=config.training,
        minutes=max(0.0, left),
    )
    trained = clock.time(
        "train",
        lambda: commands.train(train, report=report),
        lambda value: sum(result.compilations for result in value.rounds),
    )
    evaluate = commands.Evaluate(
        policy=str(trained.policy), corpus=corpus_folder, llvm=config.llvm, workers=config.workers
    )
    evaluation: Evaluation = clock.time(
        "evaluate", lambda: commands.evaluate(evaluate, report=report), lambda value: value.compilations
    )
    plugin = folder / "policy.so"
    clock.time("export the plugin", lambda: export_plugin(toolchain, [trained.policy], plugin))
    program: ProgramComparison | None = None
    if with_program:
        program = clock.time(
            "build a program twice",
            lambda: compare_program(
                with_program[0],
                toolchain=toolchain,
                sources_folder=sources,
                plugin=plugin,
                workers=config.workers,
                report=report,
            ),
        )
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return RunReport(
        command="mlgokit quickstart" if not sys.argv[1:] else " ".join(["mlgokit", *sys.argv[1:]]),
        mlgokit_version=package_version(),
        toolchain=toolchain.describe(),
        seed=config.training.seed,
        corpus=_counts(corpus_info(corpus)),
        stages=tuple(clock.stages),
        rounds=tuple(_round(result) for result in trained.rounds),
        evaluation=evaluation,
        control=None,
        program=program,
        policy=f"{trained.policy} (sha256 {digest_file(trained.policy)})",
        plugin=str(plugin),
        # The largest process of each kind; compilers run next to this one.
        peak_bytes=1024 * (usage[0] + config.workers * usage[1]),
    )


def _counts(info: CorpusInfo) -> dict[str, int]:
    return {
        "projects": len(info.projects),
        "modules": info.modules,
        "c++ modules": sum(project.modules for project in info.projects if "c++" in project.languages),
        "failures": len(info.failures),
    }


def _round(result: RoundResult) -> RoundReport:
    return RoundReport(
        round=result.round,
        compilations=result.compilations,
        user_seconds=result.user_seconds,
        flips=result.flips,
        components=result.components,
        correlation=result.correlation,
        unattributed_share=result.unattributed_share,
        failures=sum(result.failures.values()),
    )

"""The stage that tunes one project: search, proof, and one plugin to add to the build."""

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mlgokit.collect import Report, say_nothing
from mlgokit.compiler.compile import NEVER
from mlgokit.compiler.measure import Objective
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.commands_import import Level
from mlgokit.corpus.module import Module, load_corpus
from mlgokit.deploy.decisions import read_table, write_table
from mlgokit.errors import CorpusError, ReuseError, UsageError
from mlgokit.manifest import atomic_write, check_manifest, digest_file, write_manifest
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.stages.builds import Import, import_build
from mlgokit.tune.kept import try_start
from mlgokit.tune.loop import POLICY_NAME, run_search
from mlgokit.tune.project import SearchConfig, open_search, try_policy
from mlgokit.tune.result import Tuned, finish
from mlgokit.tune.search import Bench

_SIZE_LEVELS = ("-Oz", "-Os")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Make one project smaller: search its inlining decisions, prove the result, and put it into one plugin."""

    compile_commands: Path | None = None
    """The project's compile_commands.json; name this or a corpus."""
    corpus: Path | None = None
    """A corpus with the project's modules."""
    project: str | None = None
    """With a corpus of several projects: the one to tune."""
    budget: str = "30m"
    """Time for the search, such as 90s, 30m or 2h."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("tuned.so")
    """The plugin to write."""
    folder: Path = Path("tune")
    """Where the search is kept, to go on later."""
    go_on: Annotated[bool, tyro.conf.arg(name="continue")] = False
    """Go on where the search in the folder stopped."""
    objective: Literal["image", "text", "object"] = "image"
    """Bytes to save: code, read-only data and unwind tables as the linker keeps them; code alone; or whole objects."""
    start: Path | None = None
    """The plugin of an earlier version of the code: the search starts from what of it still applies."""
    policy: Path | None = None
    """A policy to start from, as `mlgokit train` writes it."""
    fallback: Literal["heuristic", "policy"] = "heuristic"
    """Who decides where the code has changed since: LLVM, or the policy that the search ended with."""
    level: Level | None = None
    """With a database: optimization level in place of the build's own; must be one for size."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = os.cpu_count() or 1
    """Compilers that run at once."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    """How the search goes."""


_OBJECTIVES = {"image": Objective.LINK_AWARE, "text": Objective.LINK_AWARE_TEXT, "object": Objective.OBJECT_TEXT}


def seconds_of(budget: str) -> float:
    """The seconds that a user means.

    Raises:
        UsageError: it is no time.

    Example:
        >>> seconds_of("1.5h")
        5400.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if found is None:
        raise UsageError(f"budget: expected a number with s, m or h, such as 30m, found {budget!r}")
    return float(found[1]) * _UNITS[found[2]]


def tune(config: Tune, *, report: Report = say_nothing) -> Tuned:
    """Tune a project, and leave the plugin, and ``tuned.json`` in the folder.

    Raises:
        UsageError: the call contradicts itself.
        ReuseError: the folder has another search, or one that is not to be gone on with.
        CorpusError: there is nothing to tune.
    """
    seconds = seconds_of(config.budget)
    if (config.compile_commands is None) == (config.corpus is None):
        raise UsageError("tune: expected either --compile-commands or --corpus, found both or neither; name one")
    if config.policy is not None:
        load_policy(config.policy, problem=INLINE_SIZE.name)
    earlier = None if config.start is None else read_table(config.start)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    if earlier is not None and earlier.promise is not None and earlier.promise.llvm != toolchain.major:
        raise UsageError(
            f"{config.start}: expected a plugin tuned with LLVM {toolchain.major}, found one for "
            f"{earlier.promise.llvm}, whose keys are others; give --llvm {earlier.promise.llvm}, or no --start"
        )
    corpus = config.corpus or config.folder / "corpus"
    if config.compile_commands is not None:
        build = Import(
            compile_commands=config.compile_commands,
            corpus=corpus,
            level=config.level,
            llvm=toolchain.major,
            workers=config.workers,
        )
        import_build(build, report=report)
    modules = modules_to_tune(corpus, config.project)
    settings = dataclasses.replace(config.search, objective=_OBJECTIVES[config.objective])
    place = config.folder / "search"
    _claim(config, place, corpus, toolchain.describe())
    search = open_search(
        modules,
        bench=Bench(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=config.timeout_seconds),
        config=settings,
        folder=place,
        workers=config.workers,
        report=report,
    )
    # A search that was killed before its first step has not tried all of them.
    if not (begun := place / "begun").exists():
        try_policy(search, NEVER, workers=config.workers, report=report)
        if earlier is not None:
            write_table(place / "start", earlier.entries)
            try_start(search, place / "start", workers=config.workers, report=report)
        if config.policy is not None:
            try_policy(search, str(config.policy), workers=config.workers, report=report)
        atomic_write(begun, "")
    known = place / POLICY_NAME
    if start := known if known.exists() else config.policy:
        search.policy = load_policy(start, problem=INLINE_SIZE.name)
    run_search(search, seconds=seconds, workers=config.workers, report=report)
    fallback = known if config.fallback == "policy" and known.exists() else None
    tuned = finish(search, config.output, policy=fallback, workers=config.workers, report=report)
    atomic_write(config.folder / "tuned.json", json.dumps(tuned.to_json(), indent=1))
    return tuned


def modules_to_tune(folder: Path, project: str | None) -> list[Module]:
    """The modules of one project that are compiled for size.

    Raises:
        UsageError: the corpus has several projects and none was named, or has no such one.
        CorpusError: none of the project's modules is compiled for size.
    """
    corpus = load_corpus(folder)
    projects = sorted({module.project for module in corpus.modules})
    if project is None and len(projects) > 1:
        raise UsageError(f"{folder}: expected one project, found {', '.join(projects)}; name one with --project")
    if project is not None and project not in projects:
        raise UsageError(f"{folder}: expected the project {project}, found {', '.join(projects)}; correct the name")
    chosen = [module for module in corpus.modules if project in (None, module.project)]
    found = [module for module in chosen if set(_SIZE_LEVELS) & set(module.command_line)]
    if not found:
        raise CorpusError(
            f"{folder}: expected modules compiled with -Oz or -Os, found none of {len(chosen)}; "
            "build for size, or give --level Oz and then build with -Oz as well"
        )
    return found


def _claim(config: Tune, place: Path, corpus: Path, versions: dict[str, str]) -> None:
    """Sign the folder; refuse one with another search, and one that a search began in unless it is to go on."""
    inputs = {"corpus": digest_file(corpus / "corpus_description.json")}
    settings = {"objective": config.objective, "project": config.project}
    began = check_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=inputs)
    if began and not config.go_on:
        raise ReuseError(
            f"{place}: expected a new folder, found a search of the same project; "
            "add --continue to go on with it, or name another --folder"
        )
    if not began:
        write_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=inputs)

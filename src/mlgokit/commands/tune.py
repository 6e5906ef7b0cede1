"""The command that tunes one project: search, proof, and one plugin to add to the build."""

import dataclasses
import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from mlgokit.commands.chosen import check_given, given_corpus, modules_for_size
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.compiler.compile import NEVER
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.importers.database import Level, module_outputs
from mlgokit.errors import ReuseError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.allocations import allocations_inside
from mlgokit.tables.decisions import DecisionTable, read_table, write_table
from mlgokit.tune.allocation.bytes import finish_bytes, open_allocation
from mlgokit.tune.allocation.loop import run_allocation_search
from mlgokit.tune.allocation.proof import Allocated
from mlgokit.tune.allocation.render import print_allocated
from mlgokit.tune.check import try_start
from mlgokit.tune.judge import JudgeConfig, conclude, open_judge, plain_object
from mlgokit.tune.linked import OUTPUT, link_words, plan_link
from mlgokit.tune.loop import POLICY_NAME, run_search
from mlgokit.tune.measurement import Measure, measuring_words
from mlgokit.tune.project import Search, SearchConfig, open_search, try_policy
from mlgokit.tune.proof import open_verifier
from mlgokit.tune.render import print_tuned
from mlgokit.tune.result import Tuned, finish
from mlgokit.tune.search import Bench

ALLOCATION_SHARE = 0.4
"""Of the budget: inlining pays longer in C++, register allocation more in C."""
_JUDGE = "judge"
"""Objects and images of the search while it lasts."""
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
    objective: Literal["image", "text", "object", "linked", "command", "spill-cost"] = "image"
    """Bytes to save: code, read-only data and unwind tables as the linker keeps them; code alone; whole objects; what
    the link command writes; or a number that a command prints. Or how often spills, reloads and copies are executed."""
    problem: Literal["both", "regalloc-eviction", "regalloc-priority"] = "both"
    """With `spill-cost`: which decisions of the register allocator are searched."""
    link_command: str | None = None
    """With `linked` or `command`: the link of the build, by its objects' paths, or with {objects} and {output}."""
    link_folder: Path | None = None
    """Where the link command is run; by default the folder of compile_commands.json, else the current one."""
    command: str | None = None
    """With `command`: prints a number, smaller being better, for the linked {output} or for the {objects}."""
    start: Path | None = None
    """The plugin of an earlier version of the code: the search starts from what of it still applies."""
    allocation_share: float = ALLOCATION_SHARE
    """Part of the budget that goes to register allocation, for the bytes that it saves; 0 to leave it as it is."""
    policy: Path | None = None
    """A policy to start from, as `mlgokit train` writes it; with `spill-cost` one of evictions or priorities."""
    fallback: Literal["heuristic", "policy"] = "heuristic"
    """Who decides where the code has changed since: LLVM, or the policy that the search ended with."""
    level: Level | None = None
    """With a database: optimization level in place of the build's own; must be one for size."""
    compiler: Compiling = COMPILER
    """How modules are compiled."""
    judge: JudgeConfig = dataclasses.field(default_factory=JudgeConfig)
    """How the link or the command confirms what the search finds."""
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    """How the search goes."""


_OBJECTIVES = {"text": Objective.LINK_AWARE_TEXT, "object": Objective.OBJECT_TEXT}
"""What the search counts; for all others the bytes of the image."""


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


def run(config: Tune, *, report: Report = say_nothing) -> Tuned | Allocated:
    """Tune for bytes, or for spill cost if that is the objective."""
    # It takes the configuration from here.
    from mlgokit.commands.tuning_allocations import tune_allocations

    return (tune_allocations if config.objective == "spill-cost" else tune)(config, report=report)


def render(result: Tuned | Allocated, console: Console) -> None:
    """Print what became smaller or cheaper, and what to do with the plugin."""
    if isinstance(result, Allocated):
        print_allocated(result, console)
    else:
        print_tuned(result, console)


def tune(config: Tune, *, report: Report = say_nothing) -> Tuned:
    """Tune a project, and leave the plugin, and ``tuned.json`` in the folder.

    Raises:
        UsageError: the call contradicts itself.
        ReuseError: the folder has another search, or one that is not to be gone on with.
        CorpusError: there is nothing to tune.
    """
    seconds_of(config.budget)
    if not 0 <= config.allocation_share <= 1:
        raise UsageError(
            f"--allocation-share: expected a part from 0 to 1, found {config.allocation_share:g}; correct it"
        )
    _check_objective(config)
    if config.objective == "spill-cost":
        raise UsageError("tune: expected an objective in bytes, found spill-cost; call tune_allocations instead")
    check_given("tune", compile_commands=config.compile_commands, corpus=config.corpus)
    if config.policy is not None:
        load_policy(config.policy, problem=INLINE_SIZE.name)
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
    earlier = _earlier(config.start, toolchain)
    corpus = corpus_to_tune(config, toolchain, report=report)
    chosen = modules_for_size(corpus, config.project)
    chosen.tell(report)
    modules = list(chosen.modules)
    means = _means(config, modules, toolchain)
    if means is not None:
        by_name = {module.name: module for module in modules}
        modules = [by_name[name] for name in means.modules]
    claim = check_claim(config, config.folder / "search", corpus, toolchain.describe())
    bench = Bench(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=config.compiler.deadline())
    try:
        tuned = _searched(config, bench, modules, means, earlier, claim=claim, report=report)
    finally:
        bench.rest()
    tuned = dataclasses.replace(tuned, left_out=chosen.left_out)
    atomic_write(config.folder / "tuned.json", json.dumps(tuned.to_json(), indent=1))
    return tuned


def corpus_to_tune(config: Tune, toolchain: Toolchain, *, report: Report) -> Path:
    """The folder of the corpus, imported if a compilation database was named."""
    return given_corpus(
        compile_commands=config.compile_commands,
        corpus=config.corpus,
        folder=config.folder / "corpus",
        level=config.level,
        llvm=toolchain.major,
        workers=config.compiler.workers,
        report=report,
    )


def _searched(
    config: Tune,
    bench: Bench,
    modules: list[Module],
    means: Measure | None,
    earlier: DecisionTable | None,
    *,
    claim: Callable[[], None],
    report: Report,
) -> Tuned:
    """Search and prove; the folder is signed with ``claim`` when nothing can be wrong with the call any more."""
    # The link runs in another folder.
    workplace = config.folder.resolve() / _JUDGE
    kept = {module.name: plain_object(workplace, index) for index, module in enumerate(modules)} if means else None
    objective = _OBJECTIVES.get(config.objective, Objective.LINK_AWARE)
    search = open_search(
        modules,
        bench=bench,
        config=dataclasses.replace(config.search, objective=objective),
        folder=config.folder / "search",
        workers=config.compiler.workers,
        report=report,
        keep=kept,
    )
    judge = None
    if means is not None and kept is not None:
        judge = open_judge(
            search,
            means,
            config.judge,
            kept,
            folder=workplace,
            workers=config.compiler.workers,
            report=report,
        )
    claim()
    _try_whole(search, config, earlier, report=report)
    known = search.folder / POLICY_NAME
    if start := known if known.exists() else config.policy:
        search.policy = load_policy(start, problem=INLINE_SIZE.name)
    whole = seconds_of(config.budget)
    # What a command measures may be anything, and need not become better with fewer bytes.
    share = 0.0 if config.objective == "command" else config.allocation_share
    seconds, begin = (1 - share) * whole, time.monotonic()
    run_search(search, seconds=seconds, workers=config.compiler.workers, report=report, judge=judge)
    if judge is not None:
        conclude(judge, seconds=seconds)
    left = max(share * whole, whole - (time.monotonic() - begin))
    fallback = known if config.fallback == "policy" and known.exists() else None
    with open_verifier(search, policy=fallback, workers=config.compiler.workers, report=report, judge=judge) as proving:
        tuned = finish(proving, config.output)
        if share:
            known_before = dict[int, Overrides]() if config.start is None else allocations_inside(config.start)
            found = open_allocation(search, tuned, start=known_before, workers=config.compiler.workers, report=report)
            run_allocation_search(found, seconds=left, workers=config.compiler.workers, report=report)
            tuned = finish_bytes(proving, tuned, found)
    shutil.rmtree(workplace, ignore_errors=True)
    return tuned


def _earlier(start: Path | None, toolchain: Toolchain) -> DecisionTable | None:
    """The decisions of an earlier plugin.

    Raises:
        UsageError: it was tuned with another LLVM.
    """
    if start is None:
        return None
    earlier = read_table(start)
    if earlier.promise is not None and earlier.promise.llvm != toolchain.major:
        raise UsageError(
            f"{start}: expected a plugin tuned with LLVM {toolchain.major}, found one for {earlier.promise.llvm}, "
            f"whose keys are others; give --llvm {earlier.promise.llvm}, or no --start"
        )
    return earlier


def _try_whole(search: Search, config: Tune, earlier: DecisionTable | None, *, report: Report) -> None:
    """Build everything by a rule, the earlier plugin and the policy, unless the search is beyond that."""
    # A search that was killed before its first step has not tried all of them.
    if (begun := search.folder / "begun").exists():
        return
    try_policy(search, NEVER, workers=config.compiler.workers, report=report)
    if earlier is not None:
        write_table(search.folder / "start", earlier.entries)
        try_start(search, search.folder / "start", workers=config.compiler.workers, report=report)
    if config.policy is not None:
        try_policy(search, str(config.policy), workers=config.compiler.workers, report=report)
    atomic_write(begun, "")


def _check_objective(config: Tune) -> None:
    """Refuse commands that the objective has no use for, and an objective without its commands.

    Raises:
        UsageError: such a call.
    """
    if config.problem != "both" and config.objective != "spill-cost":
        raise UsageError(
            f"--problem {config.problem}: expected --objective spill-cost with it, found {config.objective}; "
            "add or leave out"
        )
    if config.command is not None and config.objective != "command":
        raise UsageError(f"--command: expected --objective command with it, found {config.objective}; add or leave out")
    if config.link_command is not None and config.objective not in {"linked", "command"}:
        raise UsageError(
            f"--link-command: expected --objective linked or command with it, found {config.objective}; change one"
        )
    if config.link_command is None and config.objective == "linked":
        raise UsageError(
            "--objective linked: expected --link-command with the link of the build, found none; "
            "add the last line of `ninja -t commands PROGRAM`, or what link.txt says"
        )
    if config.link_command is not None:
        link_words(config.link_command)
    if config.objective == "command":
        if config.command is None:
            raise UsageError(
                "--objective command: expected --command with what prints a number, found none; add it, "
                'as in --command "./measure.sh {output}"'
            )
        if any(OUTPUT in word for word in measuring_words(config.command)) and config.link_command is None:
            raise UsageError(
                f"--command: expected --link-command to make {OUTPUT}, found none; add it, or measure {{objects}}"
            )


def _means(config: Tune, modules: Sequence[Module], toolchain: Toolchain) -> Measure | None:
    """What judges, if the objective is more than the account."""
    if config.objective not in {"linked", "command"}:
        return None
    plan, database = None, config.compile_commands
    if config.link_command is not None:
        folder = config.link_folder or (Path() if database is None else database.resolve().parent)
        plan = plan_link(
            link_words(config.link_command),
            folder=folder.resolve(),
            outputs={} if database is None else module_outputs(database, level=config.level),
            modules=[module.name for module in modules],
            toolchain=toolchain,
        )
    return Measure(
        plan=plan,
        command=() if config.command is None else measuring_words(config.command),
        modules=tuple(module.name for module in modules) if plan is None else plan.modules,
        timeout_seconds=config.judge.timeout_seconds,
        error=config.judge.error,
    )


def check_claim(config: Tune, place: Path, corpus: Path, versions: dict[str, str]) -> Callable[[], None]:
    """What signs the folder; refuses one with another search, and one that a search began in unless it is to go on."""
    inputs = {"corpus": digest_file(corpus / "corpus_description.json")}
    commands = {"link_command": config.link_command, "command": config.command}
    settings = {"objective": config.objective, "project": config.project}
    settings |= {"problem": config.problem} if config.objective == "spill-cost" else {}
    settings |= {name: value for name, value in commands.items() if value is not None}
    began = check_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=inputs)
    if began and not config.go_on:
        raise ReuseError(
            f"{place}: expected a new folder, found a search of the same project; "
            "add --continue to go on with it, or name another --folder"
        )

    def claim() -> None:
        if not began:
            write_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=inputs)

    return claim

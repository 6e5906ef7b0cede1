"""The stage that tunes the register allocation of one project."""

import dataclasses
import json
from pathlib import Path

from mlgokit.commands.chosen import check_given, modules_of_project
from mlgokit.commands.tune import Tune, check_claim, corpus_to_tune, seconds_of
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.policy.store import load_policy
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.allocations import read_allocations
from mlgokit.tune.allocation.loop import open_allocation_search, run_allocation_search
from mlgokit.tune.allocation.proof import Allocated, finish_allocations
from mlgokit.tune.allocation.search import AllocationBench


def tune_allocations(config: Tune, *, report: Report = say_nothing) -> Allocated:
    """Search evictions and priorities of a project, and leave the plugin, and ``tuned.json`` in the folder.

    Raises:
        UsageError: the call contradicts itself.
        ReuseError: the folder has another search, or one that is not to be gone on with.
        CorpusError: there is nothing to tune.
    """
    seconds = seconds_of(config.budget)
    for name, value in (("link-command", config.link_command), ("command", config.command)):
        if value is not None:
            raise UsageError(f"--{name}: expected --objective linked or command with it, found spill-cost; change one")
    check_given("tune", compile_commands=config.compile_commands, corpus=config.corpus)
    problem = _problem_of(config.policy)
    if config.fallback == "policy" and problem is None:
        raise UsageError(
            "--fallback policy: expected --policy with --objective spill-cost, as this search makes none; add it"
        )
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
    start = _earlier(config.start, toolchain)
    corpus = corpus_to_tune(config, toolchain, report=report)
    chosen = modules_of_project(corpus, config.project)
    chosen.tell(report)
    place = config.folder / "search"
    claim = check_claim(config, place, corpus, toolchain.describe())
    bench = AllocationBench(
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        policies={} if problem is None else {problem: str(config.policy)},
        eviction=config.problem != REGALLOC_PRIORITY.name,
        priority=config.problem != REGALLOC_EVICTION.name,
        timeout_seconds=config.compiler.deadline(),
    )
    search = open_allocation_search(
        chosen.modules,
        bench=bench,
        folder=place,
        start=start,
        seed=config.search.seed,
        workers=config.compiler.workers,
        report=report,
    )
    claim()
    run_allocation_search(search, seconds=seconds, workers=config.compiler.workers, report=report)
    allocated = finish_allocations(
        search,
        config.output,
        policy=config.policy if config.fallback == "policy" else None,
        problem=problem or "",
        workers=config.compiler.workers,
        report=report,
    )
    allocated = dataclasses.replace(allocated, left_out=chosen.left_out)
    atomic_write(config.folder / "tuned.json", json.dumps(allocated.to_json(), indent=1))
    return allocated


def _problem_of(policy: Path | None) -> str | None:
    """What a policy decides.

    Raises:
        UsageError: nothing in register allocation.
    """
    if policy is None:
        return None
    problem = load_policy(policy).problem
    if problem not in (REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name):
        raise UsageError(
            f"--policy {policy}: expected one for {REGALLOC_EVICTION.name} or {REGALLOC_PRIORITY.name} with "
            f"--objective spill-cost, found one for {problem}; name another"
        )
    return problem


def _earlier(start: Path | None, toolchain: Toolchain) -> dict[int, Overrides]:
    """What an earlier plugin does otherwise than LLVM.

    Raises:
        UsageError: it was tuned with another LLVM.
    """
    if start is None:
        return {}
    earlier = read_allocations(start)
    if earlier.promise is not None and earlier.promise.llvm != toolchain.major:
        raise UsageError(
            f"{start}: expected a plugin tuned with LLVM {toolchain.major}, found one for {earlier.promise.llvm}, "
            f"whose functions are others; give --llvm {earlier.promise.llvm}, or no --start"
        )
    return dict(earlier.by_key)

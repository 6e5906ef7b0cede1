"""The beginning of a search function by function: the functions of every module, and their progress."""

import contextlib
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.inputs import named_files
from mlgokit.compiler.live import dead_functions
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.regalloc_cost import COSTS
from mlgokit.compiler.request import Compiler, PluginUse
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.errors import CorpusError
from mlgokit.files import digest_cached
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES
from mlgokit.tune.search import Search, progress_path
from mlgokit.tune.spaces.functions.compare import folded_in
from mlgokit.tune.spaces.functions.rounds import TrialPlan
from mlgokit.tune.spaces.functions.space import FunctionSpace
from mlgokit.tune.spaces.functions.state import FunctionState, ModuleFunctions, load_functions
from mlgokit.tune.verify import VerifiedBuild, Verifier

_WORTH_TRIALS = 3e-4
"""Least share of what a project executes."""
FunctionSearch = Search[FunctionSpace]


def open_functions(
    modules: Sequence[Module],
    *,
    compiler: Compiler,
    config: TrialPlan,
    beneath: PluginUse | None = None,
    objective: Objective = Objective.LINK_AWARE,
    folder: Path,
    start: Mapping[int, Overrides],
    list_all: bool = False,
    seed: int,
    report: Report,
) -> FunctionSearch:
    """Begin a search, or go on with the one in the folder; every module is compiled once.

    Args:
        modules: modules of the project, in link order.
        compiler: compiler of the modules.
        config: the kind of trials.
        beneath: the tables that modules are compiled with beside the overrides that are tried; ``None`` for none.
        objective: decides which bytes count, if scores are bytes.
        folder: folder for the progress.
        start: overrides of an earlier plugin by key of the function, which are tried first.
        list_all: whether the table also lists functions without overrides.
        seed: random seed.
        report: called after every module.

    Raises:
        CorpusError: scores are costs, and no function of a module that compiles has any.
    """
    space = FunctionSpace(
        folder=folder,
        compiler=compiler,
        config=config,
        beneath=beneath or PluginUse(),
        objective=objective,
        list_all=list_all,
    )
    space.measured_by = _measured_by(compiler, modules, space.beneath.passes, slowdown=config.slowdown)

    def begin(module: Module) -> Compilation:
        return space.compile(module, costs=not config.in_bytes)

    label = "list the functions" if space.beneath.decisions else "compile every module plainly"
    results = parallel(
        begin, modules, workers=compiler, report=report, label=label, cost=lambda module: module.bitcode_bytes
    )
    known: set[int] = set()
    price, least = _price_of_entries(results) if objective is Objective.EXECUTED else (None, 0.0)
    for module, done in zip(modules, results, strict=True):
        if not done.ok or (done.regalloc is None and not config.in_bytes):
            space.failures[module.name] = f"{done.status.value}: {done.reason}"
            continue
        keys = {one.name: one.key for one in done.tried if one.stage is config.stage}
        progress = load_functions(
            progress_path(folder, module.name), measured_by=space.measured_by.get(module.name, "")
        )
        functions: list[FunctionState] = []
        for one in _functions_of(done, keys):
            if price is not None:
                one.worth, one.code_bytes = _executed_worth(price, done, one.name)
            if one.key not in known and one.code_bytes >= least:
                known.add(one.key)
                one.start = start.get(one.key)
                one.recall(progress.get(one.key))
                functions.append(one)
        space.units.append(
            ModuleFunctions(module=module, keys=keys, functions=functions, compile_seconds=done.user_seconds)
        )
    if not config.in_bytes and not space.functions:
        reason = next((f" ({name}: {reason})" for name, reason in space.failures.items()), "")
        raise CorpusError(
            f"tune: no function in {len(modules)} modules has spills, reloads or copies{reason}; build with -O1 "
            "or more, as -O0 uses LLVM's fast allocator"
        )
    search = Search(folder=folder, space=space, seed=seed, label=config.label)
    search.count(sum(done.user_seconds for done in results), compilations=len(modules))
    search.recall()
    search.mark()
    return search


def _executed_worth(price: float, done: Compilation, name: str) -> tuple[float, float]:
    """What an instruction of each call of a function is worth in bytes, and all of them."""
    if done.changes is None:
        return 0.0, 0.0
    worth = price * done.changes.entries.get(name, 0.0)
    return worth, worth * done.changes.executed.get(name, 0.0)


def _price_of_entries(compiled: Sequence[Compilation]) -> tuple[float, float]:
    """Bytes that an executed instruction is worth, and those that a function's must be worth for its trials to pay.

    The costs of runs leave out the entries of functions in COMDAT groups, whose calls cost their callers.
    """
    listed = [(one, one.changes) for one in compiled if one.ok and one.changes is not None]
    costs = sum(float(one.measured.run_cost.sum()) for one, _ in listed if one.measured.run_cost is not None)
    executed = sum(
        count * changes.executed.get(name, 0.0) for _, changes in listed for name, count in changes.entries.items()
    )
    return costs / max(executed, 1.0), max(_WORTH_TRIALS * costs, 1.0)


def _measured_by(compiler: Compiler, modules: Sequence[Module], passes: bytes, *, slowdown: float) -> dict[str, str]:
    """A digest by module of all that scores depend on, except for the code of the functions, which their keys have."""
    beneath: list[object] = [hashlib.sha256(passes).hexdigest()] if passes else []
    # Under a closer bound, what was found may execute too many instructions.
    beneath += [slowdown] if slowdown else []
    plugin, loaded = compiler.plugin, compiler.loaded.facts
    digests: dict[str, str] = {}
    for module in modules:
        words = module.command_line
        with contextlib.suppress(OSError):
            made = None if plugin is None else digest_cached(plugin)
            digests[module.name] = digest_value([loaded, made, words, dict(named_files(words)), *beneath])
    return digests


def open_verified(
    verifier: Verifier,
    config: TrialPlan,
    *,
    objective: Objective,
    folder: Path,
    start: Mapping[int, Overrides],
    seed: int,
    report: Report,
) -> FunctionSearch:
    """Begin a search on top of the verified tables, or go on with the one in the folder.

    Args:
        verifier: verifier with the verified inlining decisions, and passes if they were searched.
        config: the kind of trials.
        objective: decides which bytes count.
        folder: folder of this search.
        start: overrides of an earlier plugin by key of the function, which are tried first.
        seed: random seed.
        report: called after every module.
    """
    passes, optimizer_passes = (
        verifier.inside[kind.table].read_bytes() if kind.table in verifier.inside else b""
        for kind in (PASSES, OPTIMIZER_PASSES)
    )
    decisions = verifier.inside["decisions"].read_bytes()
    search = open_functions(
        verifier.modules,
        compiler=verifier.compiler,
        config=config,
        beneath=PluginUse(decisions=decisions, passes=passes, optimizer_passes=optimizer_passes),
        objective=objective,
        folder=folder,
        start=start,
        seed=seed,
        report=report,
    )
    search.space.twins = _twins(search.space.units, verifier.latest)
    return search


def _twins(units: Sequence[ModuleFunctions], build: VerifiedBuild) -> list[frozenset[int]]:
    """Keys of functions in groups that the linker folds into one although the keys differ."""
    twins: list[frozenset[int]] = []
    for unit in units:
        groups: dict[int, set[int]] = {}
        for name, group in folded_in(unit.module, build).items():
            if name in unit.keys:
                groups.setdefault(group, set()).add(unit.keys[name])
        twins += [frozenset(keys) for keys in groups.values() if len(keys) > 1]
    return twins


def _functions_of(done: Compilation, keys: Mapping[str, int]) -> list[FunctionState]:
    """The functions with costs; or all functions, with scores still to be measured, if costs were not read."""
    if done.regalloc is None:
        sizes = (
            {}
            if done.sizes is None
            else dict(zip(done.sizes.function_names, done.sizes.function_text.tolist(), strict=True))
        )
        dead = set[str]() if done.sizes is None else set(dead_functions(done.sizes))
        return [
            FunctionState(key=key, name=name, plain=math.inf, score=math.inf, code_bytes=float(sizes.get(name, 0.0)))
            for name, key in keys.items()
            if name not in dead
        ]
    costs = done.regalloc
    beside_copies = costs.costs[:, [name != "copies" for name in COSTS]].sum(axis=1)
    spills: list[bool] = (beside_copies > 0).tolist()
    return [
        FunctionState(key=keys[name], name=name, plain=score, score=score, spills=has_spills)
        for name, score, has_spills in zip(costs.functions, costs.scores.tolist(), spills, strict=True)
        if name in keys and score > 0
    ]

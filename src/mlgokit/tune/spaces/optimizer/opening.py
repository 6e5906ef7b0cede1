"""The beginning of a search over passes of the optimizer, on top of verified decisions."""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from mlgokit.compiler.compilation import Compilation, PassChanges
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Overrides, pass_number
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tables.overrides import EACH_TIME, LeftOut
from mlgokit.tune.search import Search, progress_path
from mlgokit.tune.space import expected_rate
from mlgokit.tune.spaces.optimizer.space import OptimizerSpace
from mlgokit.tune.spaces.optimizer.state import PassBuild, PassModule, PassVariant, left_out_of, load_left_out
from mlgokit.tune.spaces.optimizer.step import (
    EXCLUDED,
    PassStep,
    bytes_of,
    compile_unit,
    compile_variants,
    explore,
    is_refused,
)
from mlgokit.tune.verify import Verifier

OptimizerSearch = Search[OptimizerSpace]
_Listed = tuple[Module, Compilation, PassChanges]


def open_optimizer(
    verifier: Verifier,
    *,
    objective: Objective,
    slowdown: float,
    folder: Path,
    start: Mapping[int, Overrides],
    policy: Path | None = None,
    seed: int,
    report: Report,
) -> OptimizerSearch:
    """Begin a search on top of the verified decisions, or go on with the one in the folder.

    Args:
        verifier: verifier with the verified inlining decisions.
        objective: decides which bytes count.
        slowdown: share by which a function may execute more instructions, by LLVM's estimate.
        folder: folder of the search for inlining decisions; this search gets one below it.
        start: overrides of an earlier plugin by key of the function, which are tried first.
        policy: policy of passes. What it leaves out is tried next, in modules where nothing is left out yet.
        seed: random seed.
        report: called after every module.
    """
    folder = folder / "optimizer"
    compiler = verifier.compiler
    space = OptimizerSpace(
        folder=folder,
        compiler=compiler,
        decisions=verifier.inside["decisions"].read_bytes(),
        units=[],
        failures={},
        account=account_of([one.name for one in verifier.modules], {}, objective=objective),
        before_bytes=0.0,
        slowdown=slowdown,
    )

    search = Search(folder=folder, space=space, seed=seed, label="passes of the optimizer")

    def begin(module: Module) -> Compilation:
        done = _counted(search, space.compile(module, frozenset(), log=True))
        if done.ok and not len(done.decisions):
            # The plugin logs nothing in a module that it leaves to LLVM; its decisions are then those of LLVM.
            use = PluginUse(policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,), log_default=False)
            asked = _counted(search, compiler.compile(module, CompileRequest(use=use, keep="none", reuse=True)))
            done = dataclasses.replace(done, decisions=asked.decisions)
        return done

    results = parallel(
        begin,
        verifier.modules,
        workers=compiler,
        report=report,
        label="list what passes change",
        cost=lambda module: module.bitcode_bytes,
    )
    known: list[_Listed] = []
    for module, done in zip(verifier.modules, results, strict=True):
        if done.ok and done.changes is not None:
            known.append((module, done, done.changes))
        else:
            space.failures[module.name] = f"{done.status.value}: {done.reason}"
    # A build often compiles a source twice, for a static and a shared library: both gain what one of them does.
    alike: dict[frozenset[tuple[str, int]], list[_Listed]] = {}
    for one in known:
        alike.setdefault(frozenset(one[2].keys.items()), []).append(one)
    uses = Counter(key for group in alike.values() for key in set(group[0][2].keys.values()))
    space.shared = sum(count > 1 for count in uses.values())
    for group in alike.values():
        (module, done, changes), *_ = group
        # A symbol is in one function; two of them with one key are the same to the table.
        keys = Counter(changes.keys.values())
        (names, _), *variants = _same_code(group)
        unit = PassModule(
            module=module,
            copies=names[1:],
            variants=tuple(
                PassVariant(module=first, copies=copies[1:], build=its, executed=listed.executed)
                for copies, (first, its, listed) in variants
            ),
            keys=changes.keys,
            current=PassBuild(done=done, left_out=frozenset()),
            allowed=frozenset(key for key, count in keys.items() if count == 1 == uses[key]),
            executed=changes.executed,
        )
        space.units.append(unit)
        for other, its, _ in group:
            space.account.put(other.name, its.measured)
    space.before_bytes = space.account.image
    _rank_by_executed(space)
    _restore(search, left_out_of(start), report)
    if policy is not None:
        _try_policy(search, policy, report)
    search.recall()
    search.mark()
    return search


def _rank_by_executed(space: OptimizerSpace) -> None:
    """Let the search begin with the modules and functions that execute most by the profile, if that is what counts."""
    if space.objective is not Objective.EXECUTED:
        return
    executed: list[dict[int, float]] = []
    for unit in space.units:
        changes = unit.current.done.changes
        entries: Mapping[str, float] = {} if changes is None else changes.entries
        executed.append({key: entries.get(name, 0.0) * unit.executed.get(name, 0.0) for name, key in unit.keys.items()})
    total = max(sum(sum(one.values()) for one in executed), 1.0)
    for unit, by_key in zip(space.units, executed, strict=True):
        unit.shares = {key: count / total for key, count in by_key.items()}
        unit.climb.rate = expected_rate(sum(unit.shares.values()) * space.before_bytes, space.step_seconds(unit))


def _same_code(group: Sequence[_Listed]) -> list[tuple[tuple[str, ...], _Listed]]:
    """Group modules with the same functions by equal code; return the names of each group, and its first module."""
    groups: dict[Hashable, list[_Listed]] = {}
    for one in group:
        groups.setdefault(one[1].measured.totals, []).append(one)
    return [(tuple(module.name for module, _, _ in ones), ones[0]) for ones in groups.values()]


def _counted(search: OptimizerSearch, done: Compilation) -> Compilation:
    """Count a compilation of the search."""
    search.count(done.user_seconds)
    return done


def _restore(search: OptimizerSearch, start: frozenset[LeftOut], report: Report) -> None:
    """Restore the passes that an earlier session or plugin left out, in each module where that still pays.

    Where all together do not, or a function would execute too many instructions, the parts that pay are.
    """
    space = search.space

    def known(unit: PassModule) -> frozenset[LeftOut]:
        kept = load_left_out(progress_path(space.folder, unit.module.name))
        return frozenset(one for one in (start if kept is None else kept) if one[0] in unit.allowed)

    def compile_with(module: Module, left_out: frozenset[LeftOut]) -> Compilation:
        return _counted(search, space.compile(module, left_out))

    def attempt(unit: PassModule) -> tuple[frozenset[LeftOut], list[Compilation]]:
        left_out = known(unit)
        if not left_out:
            return left_out, []
        build = compile_unit(compile_with, unit, left_out)
        return left_out, [build, *compile_variants(compile_with, unit, left_out)]

    results = parallel(attempt, space.units, workers=space.compiler, report=report, label="go on")
    for unit, (left_out, builds) in zip(space.units, results, strict=True):
        # Without a table to begin with there are no builds.
        if not builds:
            continue
        build, *variants = builds
        if _pays(space, unit, build, variants):
            unit.current = unit.confirmed = PassBuild(done=build, left_out=left_out)
            unit.climb.pass_from = build
            space.put(unit, build, variants)
        elif build.ok:
            step = PassStep(
                base=unit.current,
                explored=PassBuild(done=build, left_out=left_out),
                made=left_out,
                compilations=1,
                user_seconds=build.user_seconds,
            )
            space.accept(unit, step)


def _pays(space: OptimizerSpace, unit: PassModule, build: Compilation, variants: Sequence[Compilation]) -> bool:
    """Whether a module and its variants are smaller in these builds, and no function executes too many instructions."""
    executed = (unit.executed, *(one.executed for one in unit.variants))
    if any(
        is_refused(its, before, unit, space.slowdown) for its, before in zip((build, *variants), executed, strict=True)
    ):
        return False
    before = bytes_of(unit, space.account, unit.current.done, [one.build for one in unit.variants])
    return bytes_of(unit, space.account, build, variants) < before


def _try_policy(search: OptimizerSearch, policy: Path, report: Report) -> None:
    """Try what a policy of passes leaves out as the first step of each module without one, and keep what pays."""
    space = search.space

    def compile_with(module: Module, left_out: frozenset[LeftOut]) -> Compilation:
        return _counted(search, space.compile(module, left_out))

    def attempt(unit: PassModule) -> PassStep:
        done = _counted(search, space.compile(unit.module, frozenset(), policy=policy))
        plain, left = unit.current.done.changes, done.changes
        if not done.ok or plain is None or left is None:
            return PassStep()
        moves = {
            (key, pass_number(name), EACH_TIME)
            for key in unit.allowed & plain.changed.keys() & left.changed.keys()
            for name in {one for one, _ in plain.changed[key]} - {one for one, _ in left.changed[key]} - EXCLUDED.keys()
        }
        if not moves:
            return PassStep()
        return explore(compile_with, unit, unit.current, frozenset(moves))

    units = [unit for unit in space.units if not unit.current.left_out]
    steps = parallel(
        attempt,
        units,
        workers=space.compiler,
        report=report,
        label="try the policy of passes",
        cost=lambda unit: unit.module.bitcode_bytes,
    )
    for unit, step in zip(units, steps, strict=True):
        if step.compilations:
            space.accept(unit, step)

"""The beginning of a search over inlining decisions: every module compiled, and whole builds by policies and rules."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.live import LivenessCompiler, mark_live
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import ALWAYS, HEURISTIC, NEVER, Compiler, CompileRequest
from mlgokit.errors import CorpusError, PolicyError
from mlgokit.files import atomic_write, digest_file, writing
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tables.decisions import DecisionTable, make_entry, table_bytes
from mlgokit.tune.search import Search, progress_path
from mlgokit.tune.spaces.inlining.space import EFFECTS_NAME, InliningSpace, SearchConfig
from mlgokit.tune.spaces.inlining.state import ModuleState, load_effects, load_progress
from mlgokit.tune.spaces.inlining.step import compile_decided, merge, request_of

InliningSearch = Search[InliningSpace]
_BEGUN = "begun"
"""The file that says with which modules a search began; by name, their digests."""


def open_inlining(
    modules: Sequence[Module],
    *,
    compiler: Compiler,
    config: SearchConfig,
    objective: Objective = Objective.LINK_AWARE,
    folder: Path,
    report: Report,
    keep: Mapping[str, Path] | None = None,
) -> InliningSearch:
    """Compile every module plainly and as far as an earlier search came.

    Args:
        modules: in link order.
        compiler: compiles.
        config: settings.
        objective: what is counted.
        folder: where progress is kept.
        report: told after every module.
        keep: by module, where its plain object is to be left.

    Raises:
        CorpusError: no module compiles.
    """
    failures: dict[str, str] = {}
    composed: dict[str, Compilation] = {}
    spent = [0.0]
    changed = _changed(modules, folder)

    def begin(module: Module) -> ModuleState | None:
        plain = compiler.compile(module, CompileRequest(keep_object=None if keep is None else keep[module.name]))
        if not plain.ok:
            failures[module.name] = f"{plain.status.value}: {plain.reason}"
            return None
        progress = load_progress(progress_path(folder, module.name))
        known = None if progress is None else progress.decisions
        # Without decisions a module cannot be searched.
        undecided = Compilation(status=CompileStatus.OK, sizes=plain.sizes)
        state = ModuleState(module=module, plain=plain.measured, build=undecided)
        build = compile_decided(compiler, module, known, state.names)
        if build.ok:
            state.build = build
        if progress is not None and module.name not in changed:
            state.tried = Counter(progress.tried)
        spent[0] += plain.user_seconds + build.user_seconds
        if progress is not None and progress.composed:
            # A kill came before this was compiled.
            promised = compile_decided(compiler, module, progress.composed, state.names)
            spent[0] += promised.user_seconds
            if promised.ok:
                composed[module.name] = promised
        return state

    states = parallel(
        begin,
        modules,
        workers=compiler,
        report=report,
        label="compile every module plainly",
        cost=lambda module: module.bitcode_bytes,
    )
    ready = {state.module.name: state for state in states if state is not None}
    if isinstance(compiler, LivenessCompiler):
        _mark_baseline(compiler, ready, composed)
    if not ready:
        first = next(iter(failures.items()), ("", "no module"))
        raise CorpusError(
            f"tune: expected at least one module that compiles, found none ({first[0]}: {first[1]}); "
            "run `mlgokit corpus info` on the corpus"
        )
    order = list(ready)
    plain = account_of(order, {name: one.plain for name, one in ready.items()}, objective=objective)
    account = account_of(
        order,
        {name: one.build.measured for name, one in ready.items()},
        objective=objective,
        existence=config.existence,
    )
    space = InliningSpace(
        folder=folder,
        compiler=compiler,
        config=config,
        modules=ready,
        failures=failures,
        account=account,
        plain_bytes=plain.image,
        effects=load_effects(folder / EFFECTS_NAME),
        changed=frozenset(changed & ready.keys()),
    )
    for name, real in composed.items():
        space.adopt_if_better(ready[name], real)
    space.expect_executed()
    search = Search(folder=folder, space=space, seed=config.seed)
    search.count(spent[0], compilations=2 * len(ready) + len(composed))
    search.recall()
    search.mark()
    return search


def _mark_baseline(
    compiler: LivenessCompiler, states: Mapping[str, ModuleState], composed: dict[str, Compilation]
) -> None:
    """Find the GC roots of the modules, and mark the live functions in what was measured so far."""
    roots = compiler.roots = compiler.find_roots({name: state.plain for name, state in states.items()})
    for name, state in states.items():
        state.plain = mark_live(state.plain, roots[name]) if name in roots else state.plain
        state.build = compiler.mark_compilation(name, state.build)
    composed.update({name: compiler.mark_compilation(name, build) for name, build in composed.items()})


def try_on_all(
    search: InliningSearch, request: CompileRequest, *, units: Sequence[ModuleState], report: Report, label: str
) -> None:
    """Compile modules by one request, and adopt what is smaller and has decisions to search from.

    Where only parts of a module are smaller, these are compiled together with the best parts of what was known.
    """
    space = search.space

    def attempt(state: ModuleState) -> None:
        build = space.compiler.compile(state.module, request)
        search.count(build.user_seconds)
        if build.ok and len(build.decisions):
            with space.account.lock:
                merged = merge(state.build, build, space.account, state.module.name)
            state.others.append(make_entry((), build.decisions.sites, build.decisions.inlined).keys)
            space.adopt_if_better(state, build)
            if merged.is_new:
                both = compile_decided(space.compiler, state.module, merged.decisions, state.names)
                search.count(both.user_seconds)
                if both.ok and len(both.decisions):
                    space.adopt_if_better(state, both)
        space.save(state)

    parallel(
        attempt,
        units,
        workers=space.compiler,
        report=report,
        label=label,
        cost=lambda unit: unit.module.bitcode_bytes,
    )
    search.mark()


def try_whole(
    search: InliningSearch,
    *,
    policies: Mapping[str, Path],
    earlier: DecisionTable | None,
    by_rule: bool = True,
    report: Report,
) -> None:
    """Build by a rule, the earlier decisions and the policies, all that the search is not beyond.

    Of a search that goes on these are the modules that changed. They are searched before all others.

    Args:
        search: the search, just opened.
        policies: policies by problem.
        earlier: decisions of an earlier plugin.
        by_rule: whether to build by a rule as well, which gives less than a policy.
        report: told after every module.
    """
    space, begun = search.space, search.folder / _BEGUN
    units = list(space.units)

    def try_policy(policy: str) -> None:
        label = f"try {policy if policy.startswith(':') else Path(policy).name}"
        try_on_all(search, request_of(policy=policy), units=units, report=report, label=label)

    # A search that was killed before its first step has not tried all of them.
    if begun.exists():
        units = [unit for unit in units if unit.module.name in space.changed]
        for unit in space.units if units else ():
            if unit.module.name not in space.changed:
                unit.climb.rate = 0.0
        if units:
            # They began with decisions that may not pay any more.
            try_policy(HEURISTIC)
    if units:
        if by_rule:
            try_policy(ALWAYS if space.objective is Objective.EXECUTED else NEVER)
        if earlier is not None:
            request = request_of(table_bytes(earlier.entries))
            try_on_all(search, request, units=units, report=report, label="try the earlier decisions")
        for policy in policies.values():
            try_policy(str(policy))
        digests = {unit.module.name: _digest(unit.module) for unit in space.units}
        atomic_write(begun, json.dumps(digests))


def _changed(modules: Sequence[Module], folder: Path) -> set[str]:
    """The modules that are other ones than when the search began with them; none if it did not."""
    try:
        known = cast("dict[str, Any]", json.loads((folder / _BEGUN).read_bytes()))
        return {one.name for one in modules if known.get(one.name) != _digest(one)}
    except (OSError, ValueError, AttributeError):
        # Files of earlier versions are empty.
        return set()


def _digest(module: Module) -> str:
    """Of what is compiled, and how."""
    return digest_value([module.bitcode_sha256 or digest_file(module.bitcode), module.command_line])


def known_policy(path: Path) -> Policy | None:
    """What an earlier session fitted; a damaged file goes, as what it was fitted to is there to fit another."""
    try:
        return load_policy(path, problem=INLINE_SIZE.name) if path.exists() else None
    except PolicyError:
        with writing(path):
            path.unlink()
        return None

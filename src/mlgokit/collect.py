"""Compiles modules under advisors, for traces, baselines and explorations, and makes measured effects of the results.

Every finished compilation is kept in a store, keyed by all that decides its outcome, so an interrupted run that is
started again repeats nothing. Compilers run in child processes, a thread for each.
"""

import dataclasses
import functools
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, attribute
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.compiler.compile import HEURISTIC, CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.objects.function_id import function_id
from mlgokit.compiler.objects.measure import Objective, function_scores, link_weights
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.problems import INLINE_SIZE
from mlgokit.store import ModuleRun, recall, remember

NOT_FEATURES = (
    "caller_id", "callee_id", "site", "decided_by_table", "inlining_default", "inlining_decision", "log_probability",
)  # fmt: skip
"""Columns of the plugin's training log that describe the decision, not the call site."""

Ints = npt.NDArray[np.int64]
_LOG_HALF = math.log(0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """All that compilations of one corpus share.

    Attributes:
        toolchain: whose clang.
        plugin: the built plugin.
        store: folder of finished compilations.
        workers: compilers that run at once.
        timeout_seconds: deadline of one compilation.
        identity: digest of what here changes an outcome under the plugin; filled by :func:`open_workshop`.
        compiler: the same without the plugin, for compilations that do not load it.
    """

    toolchain: Toolchain
    plugin: Path
    store: Path
    workers: int
    timeout_seconds: float
    identity: str
    compiler: str


def open_workshop(
    toolchain: Toolchain, plugin: Path, store: Path, *, workers: int, timeout_seconds: float = 60.0
) -> Workshop:
    """Settings for compilations whose results are kept in ``store``."""
    compiler = [toolchain.version_text or toolchain.version, toolchain.target]
    return Workshop(
        toolchain=toolchain,
        plugin=plugin,
        store=store,
        workers=workers,
        timeout_seconds=timeout_seconds,
        identity=_digest([*compiler, digest_file(plugin)]),
        compiler=_digest(compiler),
    )


def _digest(facts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def run_module(
    workshop: Workshop,
    module: Module,
    exploration: Exploration,
    policy: str,
    *,
    keep: str,
    keep_log: Path | None = None,
    problem: str = INLINE_SIZE.name,
    regalloc: bool = False,
    decisions: bytes = b"",
    turned: Ints | None = None,
    need_sites: bool = False,
) -> ModuleRun:
    """Compile ``module`` under ``policy``, or recall what the store knows of that.

    Args:
        workshop: shared settings.
        module: what to compile.
        exploration: how decisions depart from the policy.
        policy: a policy file or a rule such as ``:default``.
        keep: whose feature values to keep: ``"none"``, ``"flips"`` or ``"all"`` decisions; or ``"log"``, the whole log.
        keep_log: where to put the training log.
        problem: whose decisions the policy makes; the heuristic makes all others.
        regalloc: whether the costs of register allocation are wanted.
        decisions: a decision table, which the plugin asks before the policy.
        turned: its keys, with the decision in bit 0, that count as flips; the others repeat another compilation.
        need_sites: a compilation without exploration that the store has without its sites is made again.
    """
    digest = policy if policy.startswith(":") else digest_file(Path(policy))
    facts: list[object] = [
        workshop.identity, _content(module), module.command_line, digest,
        exploration.seed, exploration.temperature, exploration.flip_probability, keep,
    ]  # fmt: skip
    # What the inliner's compilations were keyed by before there were other problems.
    facts += [problem, regalloc] if problem != INLINE_SIZE.name or regalloc else []
    facts += [hashlib.sha256(decisions).hexdigest()] if decisions else []
    facts += [] if turned is None else [hashlib.sha256(turned.tobytes()).hexdigest()]
    use = PluginUse(
        plugin=workshop.plugin,
        policies={problem: policy},
        logs=(problem,),
        seed=exploration.seed,
        temperature=exploration.temperature,
        flip_probability=exploration.flip_probability,
    )
    make = functools.partial(
        compile_module,
        workshop.toolchain,
        module.command_line,
        module.bitcode,
        keep_logs=None if keep_log is None else {problem: keep_log},
        timeout_seconds=workshop.timeout_seconds,
        thinlto_index=module.thinlto_index,
        **({"regalloc": True} if regalloc else {}),
    )

    def compiled_with_decisions() -> CompileResult:
        with tempfile.TemporaryDirectory(prefix="mlgokit-") as place:
            table = Path(place) / "decisions"
            table.write_bytes(decisions)
            return make(use=dataclasses.replace(use, decisions=table))

    def make_run() -> tuple[ModuleRun, bool]:
        result = compiled_with_decisions() if decisions else make(use=use)
        return _reduce(result, keep, problem, explored=explored, turned=turned)

    explored = bool(exploration.temperature or exploration.flip_probability or decisions)
    baseline = policy == HEURISTIC and not explored
    return _remembered(workshop, module, facts, make_run, keep_log, baseline=baseline, need_sites=need_sites)


def run_baseline(workshop: Workshop, module: Module, *, regalloc: bool = False) -> ModuleRun:
    """Compile ``module`` without the plugin, as recorded, or recall what the store knows of that.

    Args:
        workshop: shared settings.
        module: what to compile.
        regalloc: whether the costs of register allocation are wanted.
    """
    facts = ["baseline", workshop.compiler, _content(module), module.command_line, regalloc]

    def make() -> tuple[ModuleRun, bool]:
        result = compile_module(
            workshop.toolchain,
            module.command_line,
            module.bitcode,
            regalloc=regalloc,
            timeout_seconds=workshop.timeout_seconds,
            thinlto_index=module.thinlto_index,
        )
        return _reduce(result, "none", INLINE_SIZE.name)

    return _remembered(workshop, module, facts, make, None, baseline=True)


def _content(module: Module) -> str:
    content = module.bitcode_sha256 or digest_file(module.bitcode)
    return content if module.thinlto_index is None else content + digest_file(module.thinlto_index)


def _remembered(
    workshop: Workshop,
    module: Module,
    facts: Sequence[object],
    make: Callable[[], tuple[ModuleRun, bool]],
    keep_log: Path | None,
    *,
    baseline: bool,
    need_sites: bool = False,
) -> ModuleRun:
    """What the store has under ``facts``, else what ``make`` gives, with whether a kill from outside ended it.

    A baseline that failed is made again each time: everything is measured against it, so it is never given up.
    """
    key = _digest(facts)
    path = workshop.store / key[:2] / f"{key}.npz"
    known = recall(path)
    if known is not None and not (baseline and not known.ok):
        log_is_lost = known.decision_count > 0 and keep_log is not None and not keep_log.exists()
        lacks_sites = need_sites and known.ok and known.sites is None and known.decision_count > 0
        if not log_is_lost and not lacks_sites:
            return known
    run, killed = make()
    # A missed deadline or a kill may have been the machine's fault, and bitcode that is not what the key says may be
    # mended: the next run shall try again.
    intact = module.bitcode_sha256 is None or module.bitcode_sha256 == digest_file(module.bitcode)
    passing = run.status is CompileStatus.TIMED_OUT or killed or (baseline and not run.ok)
    if not passing and intact:
        remember(path, run)
    return run


def _reduce(
    result: CompileResult, keep: str, problem: str, *, explored: bool = False, turned: Ints | None = None
) -> tuple[ModuleRun, bool]:
    """What learning needs of a compilation, and whether a kill from outside ended it."""
    log = result.logs.get(problem)
    columns: Mapping[str, Any] = {} if log is None or problem != INLINE_SIZE.name else log.columns
    count = len(columns["inlining_decision"]) if columns else 0

    def column(name: str) -> Any:
        return columns[name][:, 0] if columns else np.zeros(0, np.int64)

    flipped = np.asarray(column("log_probability") < _LOG_HALF)
    if turned is not None and columns:
        keys = (column("site").astype(np.int64) & ~1) | (column("inlining_decision") != 0)
        flipped = np.asarray((column("decided_by_table") != 0) & np.isin(keys, turned))
    nothing = np.zeros(0, np.int64)
    rows = {"none": nothing, "log": nothing, "flips": np.flatnonzero(flipped), "all": np.arange(count)}[keep]
    names = tuple(name for name in columns if name not in NOT_FEATURES)
    values = np.stack([columns[name][rows, 0] for name in names], axis=1) if names else np.zeros((0, 0), np.int64)
    run = ModuleRun(
        status=result.status,
        reason=result.reason,
        user_seconds=result.user_seconds,
        sizes=result.sizes,
        caller=np.array(column("caller_id")),
        callee=np.array(column("callee_id")),
        inlined=np.asarray(column("inlining_decision") != 0),
        flipped=flipped,
        heuristic=np.asarray(column("inlining_default") != 0),
        # No exploration is explored around, and keys do not compress.
        sites=None if explored or "site" not in columns else column("site").astype(np.int64),
        names=names,
        rows=rows.astype(np.int64),
        values=values.astype(np.int64),
        regalloc=result.regalloc,
        decisions=None if log is None or columns else log.observation_count,
        log=log if keep == "log" else None,
    )
    return run, result.killed


def project_weights(modules: Sequence[Module], runs: Sequence[ModuleRun]) -> dict[str, dict[str, int]]:
    """For each project, how many of its modules define each COMDAT signature under the heuristic."""
    return {
        project: link_weights(
            run.sizes
            for module, run in zip(modules, runs, strict=True)
            if module.project == project and run.sizes is not None
        )
        for project in sorted({module.project for module in modules})
    }


def compiled(run: ModuleRun, weights: Mapping[str, int], objective: Objective) -> ScoredBuild:
    """The decisions and function scores of ``run``, ready for credit.

    Raises:
        UsageError: the run has no object.
    """
    if run.sizes is None:
        raise UsageError(f"compiled: expected a run with an object, found one where {run.status.value}; leave it out")
    names, scores, _ = function_scores(run.sizes, weights, objective=objective)
    return ScoredBuild(
        caller=run.caller,
        callee=run.callee,
        inlined=run.inlined,
        flipped=run.flipped,
        functions=np.array([function_id(name) for name in names], np.int64),
        scores=scores,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleEffects:
    """What the explorations of one module taught.

    Attributes:
        measured: flips and changes by component, or ``None``.
        changed_bytes: sum of the absolute changes that have an owner.
        unattributed_bytes: sum of the absolute changes that no flip explains.
    """

    measured: MeasuredEffects | None
    changed_bytes: float
    unattributed_bytes: float


def module_effects(
    module: Module,
    base: ModuleRun,
    explorations: Iterable[ModuleRun],
    *,
    weights: Mapping[str, int],
    objective: Objective = Objective.LINK_AWARE,
    excluded: Sequence[str] = (),
) -> ModuleEffects:
    """Components of flips and their changes, of all explorations of one module."""
    parts: list[tuple[Any, ...]] = []
    away: list[npt.NDArray[np.bool_]] = []
    names: tuple[str, ...] = ()
    first, changed, missed = 0, 0.0, 0.0
    before = compiled(base, weights, objective) if base.ok else None
    for run in explorations:
        if before is None or not run.ok or not len(run.rows):
            continue
        credit = attribute(before, compiled(run, weights, objective))
        names = run.names
        order = np.argsort(credit.component, kind="stable")
        sign = np.where(run.inlined[credit.flips], 1, -1)
        parts.append((run.values[order], sign[order], credit.component[order] + first, credit.change))
        if run.heuristic is not None:
            flips = credit.flips[order]
            away.append(run.inlined[flips] != run.heuristic[flips])
        first += len(credit.change)
        changed += float(np.abs(credit.change).sum())
        missed += credit.unattributed
    if not parts:
        return ModuleEffects(measured=None, changed_bytes=changed, unattributed_bytes=missed)
    kept = [index for index, name in enumerate(names) if name not in excluded]
    values, sign, component, change = (np.concatenate(column) for column in zip(*parts, strict=True))
    measured = MeasuredEffects(
        names=tuple(names[index] for index in kept),
        values=values[:, kept],
        sign=sign.astype(np.float32),
        component=component,
        change=change.astype(np.float32),
        project=np.zeros(len(change), np.int64),
        projects=(module.project,),
        away=np.concatenate(away) if len(away) == len(parts) else None,
    )
    return ModuleEffects(measured=measured, changed_bytes=changed, unattributed_bytes=missed)

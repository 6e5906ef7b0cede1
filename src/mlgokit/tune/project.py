"""A project while it is tuned: its modules, the account of their best builds, and what is kept on disk."""

import dataclasses
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.compiler.compile import CompileResult, CompileStatus
from mlgokit.compiler.objects.account import ProjectAccount, account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.errors import CorpusError
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.progress import Report
from mlgokit.tables.decisions import entry_of
from mlgokit.tune.merge import merge
from mlgokit.tune.restart import ArmStatistics, RestartKind
from mlgokit.tune.search import Bench, ModuleState
from mlgokit.tune.state import (
    Build,
    Progress,
    append_effects,
    build_of,
    load_effects,
    load_progress,
    nothing_decided,
    save_progress,
)

EFFECTS_NAME = "effects"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How the search goes."""

    objective: Objective = Objective.LINK_AWARE
    """Which bytes count; COMDAT signatures count once in the whole project."""
    existence: float = 0.0
    """Credit for no longer defining a signature that other modules still define, as a share of its bytes over k."""
    most: int = 256
    """Decisions turned round in one compilation, in independent parts of the call graph."""
    tries: int = 1
    """How often a decision is tried before it is left alone, until something near it changes."""
    noise: float = 8.0
    """Random part of the order in which decisions are tried, in bytes."""
    restarts: int = 200
    """How often in a row a module is begun anew in vain, when no single move pays any more, before it is left alone."""
    refits: tuple[float, ...] = (0.08, 0.25, 0.5)
    """Shares of the budget after which a policy is fitted to what was measured so far, to say what to try first."""
    fit: EffectConfig = field(default_factory=lambda: EffectConfig(members=3, epochs=12))
    """That regression."""
    seed: int = 1
    """Of everything random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The search at one moment.

    Attributes:
        user_seconds: processor time of all compilations so far.
        wall_seconds: elapsed time.
        compilations: how many there were.
        bytes: the exact account of the project.
    """

    user_seconds: float
    wall_seconds: float
    compilations: int
    bytes: float


@dataclass(slots=True, kw_only=True)
class Search:
    """A project in the search.

    Attributes:
        folder: where progress is kept.
        bench: how to compile.
        config: settings.
        modules: those that compile.
        failures: those that do not, with the reason.
        account: of the best builds.
        plain_bytes: the exact account of the plain builds.
        curve: of bytes over effort.
        tallies: what the kinds of restart gave lately.
        ended: why the search stopped; empty before it has.
        user_seconds: of all compilations, those of earlier sessions included.
        compilations: likewise.
    """

    folder: Path
    bench: Bench
    config: SearchConfig
    modules: dict[str, ModuleState]
    failures: dict[str, str]
    account: ProjectAccount
    plain_bytes: float
    curve: list[CurvePoint] = field(default_factory=list[CurvePoint])
    tallies: dict[RestartKind, ArmStatistics] = field(default_factory=dict[RestartKind, ArmStatistics])
    ended: str = ""
    user_seconds: float = 0.0
    compilations: int = 0
    begin: float = field(default_factory=time.monotonic)
    effects: list[MeasuredEffects] = field(default_factory=list[MeasuredEffects])
    policy: Policy | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, user_seconds: float, compilations: int = 1) -> None:
        """Add to what was spent; the caller holds the lock."""
        self.user_seconds += user_seconds
        self.compilations += compilations

    def now(self) -> CurvePoint:
        """Where the search stands."""
        return CurvePoint(
            user_seconds=self.user_seconds,
            wall_seconds=time.monotonic() - self.begin,
            compilations=self.compilations,
            bytes=self.account.image,
        )

    def mark(self) -> CurvePoint:
        """Add a point to the curve, and keep it."""
        self.curve.append(self.now())
        return self.curve[-1]


def open_search(
    modules: Sequence[Module],
    *,
    bench: Bench,
    config: SearchConfig,
    folder: Path,
    workers: int,
    report: Report,
    keep: Mapping[str, Path] | None = None,
) -> Search:
    """Compile every module plainly and as far as an earlier search came.

    Args:
        modules: in link order.
        bench: how to compile.
        config: settings.
        folder: where progress is kept.
        workers: compilers that run at once.
        report: told after every module.
        keep: by module, where its plain object is to be left.

    Raises:
        CorpusError: no module compiles.
    """
    failures: dict[str, str] = {}
    composed: dict[str, Build] = {}
    spent = [0.0]

    def begin(module: Module) -> ModuleState | None:
        plain = bench.compile_plain(module, keep_object=None if keep is None else keep[module.name])
        if plain.status is not CompileStatus.OK or plain.sizes is None:
            failures[module.name] = f"{plain.status.value}: {plain.reason}"
            return None
        progress = load_progress(progress_path(folder, module.name))
        known = None if progress is None else progress.decisions
        searched = ModuleState(module=module, plain=plain.sizes, build=nothing_decided(plain.sizes))
        result = bench.compile(module, decisions=known, names=searched.names)
        build = build_of(result)
        if build is not None:
            searched.build = build
        if progress is not None:
            searched.tried = Counter(progress.tried)
        spent[0] += plain.user_seconds + result.user_seconds
        if progress is not None and progress.composed:
            # A kill came before this was compiled.
            promised = bench.compile(module, decisions=progress.composed, names=searched.names)
            spent[0] += promised.user_seconds
            if (real := build_of(promised)) is not None:
                composed[module.name] = real
        return searched

    found = parallel(begin, modules, workers=workers, report=report, label="compile every module plainly")
    ready = {searched.module.name: searched for searched in found if searched is not None}
    if not ready:
        first = next(iter(failures.items()), ("", "no module"))
        raise CorpusError(
            f"tune: expected at least one module that compiles, found none ({first[0]}: {first[1]}); "
            "run `mlgokit corpus info` on the corpus"
        )
    order = list(ready)
    plain = account_of(order, {name: one.plain for name, one in ready.items()}, objective=config.objective)
    account = account_of(
        order,
        {name: one.build.sizes for name, one in ready.items()},
        objective=config.objective,
        existence=config.existence,
    )
    search = Search(
        folder=folder,
        bench=bench,
        config=config,
        modules=ready,
        failures=failures,
        account=account,
        plain_bytes=plain.image,
        user_seconds=spent[0],
        compilations=2 * len(ready) + len(composed),
    )
    for name, real in composed.items():
        adopt_if_better(search, ready[name], real)
    _recall_totals(search)
    search.effects = load_effects(folder / EFFECTS_NAME)
    search.mark()
    return search


def try_policy(search: Search, policy: str, *, workers: int, report: Report) -> None:
    """Compile every module under a policy or rule, and adopt what is smaller."""

    def compile_one(searched: ModuleState) -> CompileResult:
        return search.bench.compile(searched.module, policy=policy)

    try_on_all(search, compile_one, workers=workers, report=report, label=f"try {policy}")


def try_on_all(
    search: Search, compile_one: Callable[[ModuleState], CompileResult], *, workers: int, report: Report, label: str
) -> None:
    """Compile every module in some way, and adopt what is smaller and has decisions to search from.

    Where only parts of a module are smaller, these are compiled together with the best parts of what was known.
    """

    def attempt(searched: ModuleState) -> None:
        result = compile_one(searched)
        build = build_of(result)
        merged = None
        with search.lock:
            search.count(result.user_seconds)
            if build is not None and len(build.site):
                merged = merge(searched.build, build, search.account, searched.module.name)
                searched.others.append(entry_of((), build.site, build.inlined).keys)
                adopt_if_better(search, searched, build)
        if merged is not None and merged.is_new:
            result = search.bench.compile(searched.module, decisions=merged.decisions, names=searched.names)
            both = build_of(result)
            with search.lock:
                search.count(result.user_seconds)
                if both is not None and len(both.site):
                    adopt_if_better(search, searched, both)
        save(search, searched)

    parallel(attempt, list(search.modules.values()), workers=workers, report=report, label=label)
    search.mark()


def adopt_if_better(search: Search, searched: ModuleState, build: Build) -> bool:
    """Make ``build`` the module's best one if the project gets smaller; the caller holds the search's lock."""
    name = searched.module.name
    if search.account.module_bytes(name, build.sizes) >= search.account.module_bytes(name, searched.build.sizes):
        return False
    searched.build, searched.composed = build, None
    search.account.put(name, build.sizes)
    return True


def save(search: Search, searched: ModuleState) -> None:
    """Keep what is known of a module."""
    path = progress_path(search.folder, searched.module.name)
    composed = {} if searched.composed is None else searched.composed.decisions
    save_progress(path, Progress(decisions=searched.build.decisions, tried=searched.tried, composed=composed))


def progress_path(folder: Path, name: str) -> Path:
    """The file with a module's progress."""
    return folder / "modules" / f"{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.npz"


def save_totals(search: Search) -> None:
    """Keep the curve, and with it what was spent."""
    curve = [dataclasses.asdict(point) for point in search.curve]
    atomic_write(search.folder / "curve.json", json.dumps(curve))


def save_step(search: Search, searched: ModuleState, effects: MeasuredEffects | None) -> None:
    """Keep all that a finished step gave: the module's progress, what was spent, and what was measured."""
    save(search, searched)
    atomic_write(search.folder / "spent.json", json.dumps(dataclasses.asdict(search.now())))
    if effects is not None:
        append_effects(search.folder / EFFECTS_NAME, effects)


def _recall_totals(search: Search) -> None:
    curve, spent = _points(search.folder / "curve.json"), _points(search.folder / "spent.json")
    search.curve = curve
    if reached := max((*curve, *spent), key=lambda point: point.compilations, default=None):
        search.user_seconds += reached.user_seconds
        search.compilations += reached.compilations
        search.begin -= reached.wall_seconds


def _points(path: Path) -> list[CurvePoint]:
    """The points in a file, one or several; none if it is not there or damaged."""
    try:
        found: Any = json.loads(path.read_bytes())
        points = cast("list[dict[str, Any]]", found if isinstance(found, list) else [found])
        return [CurvePoint(**point) for point in points]
    except (OSError, ValueError, TypeError):
        return []

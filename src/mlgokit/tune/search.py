"""One step of the search on one module: many independent flips in one compilation, kept by component."""

import dataclasses
import functools
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Compiled, attribute
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.search import independent_moves, judge, moves_of
from mlgokit.collect import function_id
from mlgokit.compiler.account import ProjectAccount
from mlgokit.compiler.compile import HEURISTIC, CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.known import KnownFunctions, may_drop
from mlgokit.compiler.measure import ObjectSizes
from mlgokit.compiler.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.module import Module
from mlgokit.deploy.decisions import entry_of, strong_names, table_bytes
from mlgokit.problems import INLINE_SIZE
from mlgokit.tune.state import Build, Keys, build_of

Floats = npt.NDArray[np.float64]
Rank = Callable[[Build], Floats]
"""For each decision [T] the bytes that turning it round is expected to save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What compilations of a tuning have in common.

    Attributes:
        toolchain: whose clang.
        plugin: the generic plugin.
        timeout_seconds: deadline of one compilation.
        residents: compilers that stay, each for a module that is searched; ``None`` starts one for each compilation.
        known: by module, functions that are not generated again; ``None`` generates all.
    """

    toolchain: Toolchain
    plugin: Path
    timeout_seconds: float
    residents: Residents | None = field(default_factory=Residents)
    known: dict[str, KnownFunctions] | None = field(default_factory=dict[str, KnownFunctions])

    def compile(
        self,
        module: Module,
        *,
        decisions: Mapping[int, bool] | None = None,
        names: Keys | None = None,
        policy: str = HEURISTIC,
        keep_object: Path | None = None,
    ) -> CompileResult:
        """Compile a module under the plugin: by ``decisions`` where they know the call site, else by ``policy``."""
        with tempfile.TemporaryDirectory(prefix="mlgokit-tune-") as scratch:
            table = None
            if decisions is not None:
                table = Path(scratch) / "decisions"
                sites, inlined = np.array(list(decisions), np.uint64), np.array(list(decisions.values()), bool)
                table.write_bytes(table_bytes([entry_of(() if names is None else names, sites, inlined)]))
            use = PluginUse(
                plugin=self.plugin,
                policies={INLINE_SIZE.name: policy},
                logs=(INLINE_SIZE.name,),
                decisions=table,
                log_default=False,
            )
            whole = functools.partial(
                compile_module,
                self.toolchain,
                module.command_line,
                module.bitcode,
                use=use,
                keep_object=keep_object,
                timeout_seconds=self.timeout_seconds,
                thinlto_index=module.thinlto_index,
                residents=self.residents,
            )
            known = None
            if self.known is not None and keep_object is None and may_drop(module.command_line):
                known = self.known.setdefault(module.name, KnownFunctions())
            if known is None or known.refused:
                return whole()
            part = whole(known=known)
            if part.status is CompileStatus.TIMED_OUT or (part.status is CompileStatus.OK and not known.refused):
                return part
            known.refused = known.refused or part.reason
            again = whole()
            return dataclasses.replace(again, user_seconds=part.user_seconds + again.user_seconds)

    def compile_plain(self, module: Module, *, keep_object: Path | None = None) -> CompileResult:
        """Compile a module without the plugin."""
        return compile_module(
            self.toolchain,
            module.command_line,
            module.bitcode,
            keep_object=keep_object,
            timeout_seconds=self.timeout_seconds,
            thinlto_index=module.thinlto_index,
        )

    def rest(self) -> None:
        """End the compilers that stay."""
        if self.residents is not None:
            self.residents.close()


@dataclass(slots=True, kw_only=True, eq=False)
class Searched:
    """A module in the search.

    Attributes:
        module: what is compiled.
        plain: its object without the plugin.
        build: the best build under the plugin.
        names: ids by which the plugin finds the module's decisions.
        tried: how often a move was made in vain.
        rate: bytes saved per second of processor time lately; infinite before the first step.
        exhausted: every decision was tried since the last gain.
    """

    module: Module
    plain: ObjectSizes
    build: Build
    names: Keys = field(init=False)
    tried: dict[int, int] = field(default_factory=dict[int, int])
    rate: float = float("inf")
    exhausted: bool = False

    def __post_init__(self) -> None:
        self.names = strong_names(self.plain)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """What one step did.

    Attributes:
        build: a better build, or ``None``.
        failed: keys of the moves that were made in vain.
        compilations: how many were made.
        user_seconds: their processor time.
        flips: decisions turned round.
        kept: of those, the ones that made their component smaller.
        effects: what the flips taught.
    """

    build: Build | None = None
    failed: frozenset[int] = frozenset()
    compilations: int = 0
    user_seconds: float = 0.0
    flips: int = 0
    kept: int = 0
    effects: MeasuredEffects | None = None


@functools.lru_cache(maxsize=4096)
def _ids(names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    return np.array([function_id(name) for name in names], np.int64)


def compiled(build: Build, account: ProjectAccount, name: str, flipped: Keys | None = None) -> tuple[Compiled, float]:
    """A build, ready for credit, and the bytes that the module answers for."""
    functions, scores, rest = account.functions(name, build.sizes)
    turned = np.zeros(len(build.site), bool) if flipped is None else np.isin(build.site, flipped)
    ready = Compiled(
        caller=build.caller,
        callee=build.callee,
        inlined=build.inlined,
        flipped=turned,
        functions=_ids(functions),
        scores=scores,
    )
    return ready, float(scores.sum()) + rest


def step(
    bench: Bench,
    searched: Searched,
    account: ProjectAccount,
    *,
    lock: threading.Lock,
    rank: Rank,
    noise: float,
    most: int,
    tries: int,
    rng: np.random.Generator,
) -> Step:
    """Turn many independent decisions of a module round in one compilation, and keep those that paid.

    Args:
        bench: how to compile.
        searched: the module; not changed here.
        account: the project's, read under ``lock``, for other modules change while this one is compiled.
        lock: of the account.
        rank: what to try first.
        noise: scale of the random part of the order, in bytes.
        most: moves made at once.
        tries: how often a move may fail before it is left alone.
        rng: of the order.
    """
    build, name = searched.build, searched.module.name
    with lock:
        base, _ = compiled(build, account, name)
    moves = moves_of(base)
    sites = build.site.tolist()
    names = [move_key([sites[position] for position in move]) for move in moves]
    expected = rank(build)
    worth = np.array([float(expected[list(move)].sum()) for move in moves])
    worth += noise * rng.gumbel(size=len(moves))
    ranked: list[int] = np.argsort(-worth).tolist()
    order = [index for index in ranked if searched.tried.get(names[index], 0) < tries]
    made = independent_moves(base, moves, order, most=most)
    if not made:
        return Step()
    every = {sites[position]: names[index] for index in made for position in moves[index]}
    decisions = build.decisions
    turned = decisions | {key: not decisions[key] for key in every}
    result = bench.compile(searched.module, decisions=turned, names=searched.names)
    seconds, explored = result.user_seconds, build_of(result)
    vain = Step(failed=frozenset(every.values()), compilations=1, user_seconds=seconds, flips=len(every))
    if explored is None:
        return vain
    with lock:
        base, before = compiled(build, account, name)
        after, total = compiled(explored, account, name, np.array(list(every), np.uint64))
    credit = attribute(base, after)
    if not len(credit.flips):
        return vain
    verdict = judge(credit)
    kept = frozenset(explored.site[credit.flips[verdict.kept]].tolist())
    effects = _effects(explored, credit.flips, credit.component, credit.change)
    better, compilations = None, 1
    if kept and len(kept) < len(every):
        chosen = decisions | {key: not decisions[key] for key in kept}
        again = bench.compile(searched.module, decisions=chosen, names=searched.names)
        compilations, seconds = 2, seconds + again.user_seconds
        better = build_of(again)
        with lock:
            before = compiled(build, account, name)[1]
            total = compiled(better, account, name)[1] if better is not None else float("inf")
    elif kept:
        better = explored
    if better is None or total >= before:
        better, kept = None, frozenset[int]()
    return Step(
        build=better,
        failed=frozenset(move for key, move in every.items() if key not in kept),
        compilations=compilations,
        user_seconds=seconds,
        flips=len(every),
        kept=len(kept),
        effects=effects,
    )


def move_key(sites: list[int]) -> int:
    """A number for the decisions of a move, the same in every build that asks for them."""
    key = len(sites) - 1
    for site in sites:
        key ^= site
    return key


def _effects(
    build: Build, flips: npt.NDArray[np.int64], component: npt.NDArray[np.int64], change: Floats
) -> MeasuredEffects:
    order = np.argsort(component, kind="stable")
    return MeasuredEffects(
        names=build.names,
        values=build.values[flips[order]],
        sign=np.where(build.inlined[flips[order]], 1, -1).astype(np.float32),
        component=component[order],
        change=change.astype(np.float32),
        project=np.zeros(len(change), np.int64),
        projects=("tuned",),
    )

"""How many compilations of a search a core does in a second, against plain compilations, lever by lever."""

import dataclasses
import resource
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.collect import Report
from mlgokit.compiler.account import account_of
from mlgokit.compiler.compile import HEURISTIC, NEVER, CompileResult, CompileStatus
from mlgokit.compiler.measure import Objective, ObjectSizes
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.resident import Residents
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.module import Module, load_corpus
from mlgokit.errors import CorpusError
from mlgokit.tune.search import Bench, Searched, step
from mlgokit.tune.state import Keys, build_of, nothing_decided

BAR = 1.5
PLAIN = "plain clang"
ARMS = ("plugin", "plugin, residents", "plugin, known functions", "plugin, both")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSpeed:
    """Repeat the compilations of real searches in several ways, and time them."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = ("re2", "leveldb", "yaml-cpp", "fasttext", "hunspell", "zstd")
    """Projects that modules are drawn from."""
    modules: int = 6
    """How many are drawn."""
    least_bytes: int = 20000
    """Bitcode of a module that is worth searching."""
    steps: int = 20
    """Steps of the search on each; a step has one or two compilations."""
    plain: int = 3
    """Plain compilations of each module; they are all alike, so their mean stands for the others."""
    seed: int = 1
    """Of the draw and of the search."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 120.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/tuning_speed.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One compilation of a search."""

    policy: str = HEURISTIC
    decisions: Mapping[int, bool] | None = None
    names: Keys | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Recorder:
    """A bench that also writes down what it is asked."""

    bench: Bench
    asked: list[Asked] = field(default_factory=list[Asked])

    def compile(self, module: Module, **settings: Any) -> CompileResult:
        """As the bench does."""
        self.asked.append(Asked(**settings))
        return self.bench.compile(module, **settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What compilations took: processor time of all children and of this process, and what they said themselves."""

    compilations: int
    children: float
    python: float
    said: float
    hits: int = 0
    misses: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningSpeed, measure, arguments)


def measure(config: TuningSpeed, report: Report) -> Result:
    """Search, then repeat what the search compiled.

    Raises:
        CorpusError: no module can be searched.
    """
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    wanted = [
        module
        for module in corpus.modules
        if module.project in config.projects and module.bitcode.stat().st_size >= config.least_bytes
    ]
    rng = np.random.default_rng(config.seed)
    drawn = draw_modules(wanted, config.modules, rng)
    costs: list[tuple[Module, dict[str, Cost]]] = []
    different = compared = 0
    for index, module in enumerate(drawn):
        report(index, len(drawn), module.name)
        asked = searched(config, toolchain, module, rng)
        if len(asked) <= 2:
            continue
        of_module: dict[str, Cost] = {PLAIN: plain_cost(config, toolchain, module)}
        accounts: dict[str, list[object]] = {}
        # Every other module in reverse, so that a drift favours none.
        for arm in ARMS if index % 2 == 0 else ARMS[::-1]:
            of_module[arm], accounts[arm] = repeat(config, toolchain, module, arm, asked)
        costs.append((module, of_module))
        whole = accounts[ARMS[0]]
        for arm in ARMS[1:]:
            compared += len(whole)
            different += sum(one != other for one, other in zip(whole, accounts[arm], strict=True))
    report(len(drawn), len(drawn), "done")
    if not costs:
        raise CorpusError(f"{config.corpus}: expected modules with decisions to search, found none; draw more")
    versions = tool_versions(toolchain)
    return summarise(costs, compared, different, config, versions=versions, inputs=corpus_inputs(corpus, []))


def searched(config: TuningSpeed, toolchain: Toolchain, module: Module, rng: np.random.Generator) -> list[Asked]:
    """What a search compiles in some steps on one module."""
    recorder = Recorder(bench=_bench(config, toolchain, ARMS[-1]))
    plain = recorder.bench.compile_plain(module)
    build = build_of(recorder.compile(module))
    never = build_of(recorder.compile(module, policy=NEVER))
    if plain.sizes is None or build is None or never is None:
        return []
    one = Searched(module=module, plain=plain.sizes, build=nothing_decided(plain.sizes))
    account = account_of([module.name], {module.name: build.sizes}, objective=Objective.LINK_AWARE)
    weights = [account.module_bytes(module.name, found.sizes) for found in (build, never)]
    one.build = build if weights[0] <= weights[1] else never
    account.put(module.name, one.build.sizes)
    for _ in range(config.steps):
        done = step(
            cast("Bench", recorder),
            one,
            account,
            lock=threading.Lock(),
            rank=lambda build: np.zeros(len(build.site)),
            noise=8.0,
            most=64,
            tries=1,
            rng=rng,
        )
        if not done.compilations:
            break
        for move in done.failed:
            one.tried[move] = one.tried.get(move, 0) + 1
        if done.build is not None:
            one.build = done.build
            account.put(module.name, done.build.sizes)
    recorder.bench.rest()
    return recorder.asked


def plain_cost(config: TuningSpeed, toolchain: Toolchain, module: Module) -> Cost:
    """What plain compilations of a module take."""
    bench = _bench(config, toolchain, ARMS[0])
    before = _spent()
    said = sum(bench.compile_plain(module).user_seconds for _ in range(config.plain))
    after = _spent()
    return Cost(compilations=config.plain, children=after[0] - before[0], python=after[1] - before[1], said=said)


def repeat(
    config: TuningSpeed, toolchain: Toolchain, module: Module, arm: str, asked: Sequence[Asked]
) -> tuple[Cost, list[object]]:
    """What the compilations of a search take in one way, start and end of resident compilers included."""
    bench = _bench(config, toolchain, arm)
    before = _spent()
    results = [bench.compile(module, decisions=one.decisions, names=one.names, policy=one.policy) for one in asked]
    bench.rest()
    after = _spent()
    known = next(iter(bench.known.values()), None) if bench.known is not None else None
    cost = Cost(
        compilations=len(asked),
        children=after[0] - before[0],
        python=after[1] - before[1],
        said=sum(result.user_seconds for result in results),
        hits=known.hits if known is not None else 0,
        misses=known.misses if known is not None else 0,
    )
    accounts = [
        _account(result.sizes) if result.status is CompileStatus.OK and result.sizes is not None else result.status
        for result in results
    ]
    return cost, accounts


def _bench(config: TuningSpeed, toolchain: Toolchain, arm: str) -> Bench:
    plain = Bench(
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        timeout_seconds=config.timeout_seconds,
        residents=None,
        known=None,
    )
    if arm in (ARMS[1], ARMS[3]):
        plain = dataclasses.replace(plain, residents=Residents())
    return dataclasses.replace(plain, known={}) if arm in ARMS[2:] else plain


def _spent() -> tuple[float, float]:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime, time.process_time()


def _account(sizes: ObjectSizes) -> object:
    """All that is known of an object, whatever the order of its functions."""
    signatures = (*sizes.signatures, "")
    owned = [signatures[index] for index in sizes.function_signature.tolist()]
    functions = zip(
        sizes.function_names, sizes.function_bytes.tolist(), sizes.function_except_table.tolist(), owned, strict=True
    )
    groups = zip(sizes.signatures, sizes.signature_rest.tolist(), sizes.signature_data.tolist(), strict=True)
    return sizes.totals, sorted(functions), sorted(groups), sizes.rest.tolist()


def summarise(
    costs: Sequence[tuple[Module, Mapping[str, Cost]]],
    compared: int,
    different: int,
    config: TuningSpeed,
    *,
    versions: dict[str, str],
    inputs: dict[str, str],
) -> Result:
    """The tables, and whether the bar was reached."""
    counts = np.array([of_module[ARMS[0]].compilations for _, of_module in costs])
    each = {
        arm: np.array(
            [(of_module[arm].children + of_module[arm].python) / of_module[arm].compilations for _, of_module in costs]
        )
        for arm in (PLAIN, *ARMS)
    }
    total = {arm: float(each[arm] @ counts) for arm in each}
    rows: list[tuple[Cell, ...]] = []
    for arm in (PLAIN, *ARMS):
        known = [of_module[arm] for _, of_module in costs]
        functions = sum(one.hits + one.misses for one in known)
        rows.append(
            (
                arm, float(counts.sum() / total[arm]), total[PLAIN] / total[arm], total[ARMS[0]] / total[arm],
                float(np.exp(np.mean(np.log(each[PLAIN] / each[arm])))),
                sum(one.hits for one in known) / functions if functions else None,
                sum(one.python for one in known) / sum(one.children + one.python for one in known),
                sum(one.said for one in known) / sum(one.children for one in known),
            )
        )  # fmt: skip
    modules = [
        (
            module.name, int(count), *(float(each[arm][index]) for arm in (PLAIN, *ARMS)),
            float(each[PLAIN][index] / each[ARMS[-1]][index]),
        )
        for index, ((module, _), count) in enumerate(zip(costs, counts, strict=True))
    ]  # fmt: skip
    ratio = total[PLAIN] / total[ARMS[-1]]
    return Result(
        benchmark="tuning_speed",
        question=(
            "How many compilations of a search does a core do in a second, against plain compilations of the same "
            "modules? A search goes some steps on each module; then all that it compiled is compiled again in each way."
        ),
        answer=(
            f"{ratio:.2f} times as many as plain clang, {total[ARMS[0]] / total[ARMS[-1]]:.2f} times as many as with "
            f"the plugin alone, over {int(counts.sum())} compilations of {len(costs)} modules; {different} of "
            f"{compared} accounts differ from that of the whole object"
        ),
        bar=f"at least {BAR} times as many as plain clang, and no account differs",
        passed=ratio >= BAR and not different,
        seed=config.seed,
        versions=versions,
        inputs=inputs,
        tables=(
            Table(
                title="Ways to compile",
                columns=(
                    "way", "compilations per second and core", "against plain", "against the plugin alone",
                    "geometric mean over modules, against plain", "functions not generated", "Python's share",
                    "user time said / processor time",
                ),
                rows=tuple(rows),
                note=(
                    "Processor time is user and system time of all children, resident compilers from start to end "
                    "included, and of this process, which measures objects and reads logs. One compilation at a time."
                ),
            ),
            Table(
                title="Modules, seconds for one compilation",
                columns=("module", "compilations", PLAIN, *ARMS, "plain / both"),
                rows=tuple(modules),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

"""How many results of a search a core gets in a second, against plain compilations, lever by lever."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table
from timing import spent
from tuning_asked import Asked, Cost, cost_since, searched

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError
from mlgokit.module import Module

BAR = 1.5
PLAIN = "plain clang"
ARMS = ("plugin", "plugin, residents", "plugin, known functions", "plugin, both")
SEARCH = "the search: both, and builds composed"
FILLING = 4
"""Bytes by which an unwind table may be filled up, which belong to its last function, whichever that is."""


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
    """Steps of the search on each; a step explores, and composes a build or finds nothing; some confirm."""
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
class Composed:
    """A composed build beside the same one compiled.

    Attributes:
        decisions: all are alike.
        sizes: those of all functions are alike.
        code: the same but for the unwind table.
        error: of the whole object, predicted less real, in bytes.
    """

    decisions: bool
    sizes: bool
    code: bool
    error: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningSpeed, measure, arguments)


def measure(config: TuningSpeed, setup: Setup) -> Result:
    """Search, then repeat what the search compiled.

    Raises:
        CorpusError: no module can be searched.
    """
    corpus = setup.corpus(config.corpus)
    toolchain = setup.toolchain(config.llvm)
    wanted = [
        module
        for module in corpus.modules
        if module.project in config.projects and module.bitcode.stat().st_size >= config.least_bytes
    ]
    rng = np.random.default_rng(config.seed)
    drawn = draw_modules(wanted, config.modules, rng)
    costs: list[tuple[Module, dict[str, Cost]]] = []
    composed: list[Composed] = []
    different = compared = 0
    for index, module in enumerate(drawn):
        setup.report(index, len(drawn), module.name)
        asked, cost = searched(_compiler(config, toolchain, ARMS[-1]), module, steps=config.steps, rng=rng)
        if len(asked) <= 2:
            continue
        of_module: dict[str, Cost] = {PLAIN: plain_cost(config, toolchain, module), SEARCH: cost}
        accounts: dict[str, list[Compilation]] = {}
        # Every other module in reverse, so that a drift favours none.
        for arm in ARMS if index % 2 == 0 else ARMS[::-1]:
            of_module[arm], accounts[arm] = repeat(config, toolchain, module, arm, asked)
        costs.append((module, of_module))
        whole = accounts[ARMS[0]]
        for arm in ARMS[1:]:
            compared += len(whole)
            pairs = zip(whole, accounts[arm], strict=True)
            different += sum(_account(one) != _account(other) for one, other in pairs)
        composed += [
            _compared(one.composed, real)
            for one, real in zip(asked, whole, strict=True)
            if one.composed is not None and real.ok
        ]
    setup.report(len(drawn), len(drawn), "done")
    if not costs:
        raise CorpusError(f"{config.corpus}: expected modules with decisions to search, found none; draw more")
    return summarise(costs, composed, compared, different, config)


def plain_cost(config: TuningSpeed, toolchain: Toolchain, module: Module) -> Cost:
    """What plain compilations of a module take."""
    compiler = _compiler(config, toolchain, ARMS[0])
    before = spent()
    said = sum(compiler.compile(module).user_seconds for _ in range(config.plain))
    return cost_since(before, compiler, results=config.plain, compilations=config.plain, said=said)


def repeat(
    config: TuningSpeed, toolchain: Toolchain, module: Module, arm: str, asked: Sequence[Asked]
) -> tuple[Cost, list[Compilation]]:
    """What it takes to compile all that a search wanted in one way, start and end of resident compilers included."""
    compiler = _compiler(config, toolchain, arm)
    before = spent()
    results = [compiler.compile(module, one.request) for one in asked]
    compiler.close()
    said = sum(result.user_seconds for result in results)
    cost = cost_since(before, compiler, results=len(asked), compilations=len(asked), said=said)
    return cost, results


def _compiler(config: TuningSpeed, toolchain: Toolchain, arm: str) -> ClangCompiler:
    plain = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=config.timeout_seconds)
    if arm in (ARMS[1], ARMS[3]):
        plain = dataclasses.replace(plain, residents=Residents())
    return dataclasses.replace(plain, known={}) if arm in ARMS[2:] else plain


def _account(found: Compilation) -> object:
    """All that is known of an object, whatever the order of its functions."""
    if not found.ok:
        return found.status
    sizes = found.measured
    signatures = (*sizes.signatures, "")
    owned = [signatures[index] for index in sizes.function_signature.tolist()]
    functions = zip(
        sizes.function_names, sizes.function_bytes.tolist(), sizes.function_except_table.tolist(), owned, strict=True
    )
    groups = zip(sizes.signatures, sizes.signature_rest.tolist(), sizes.signature_data.tolist(), strict=True)
    return sizes.totals, sorted(functions), sorted(groups), sizes.rest.tolist()


def _compared(composed: Compilation, real: Compilation) -> Composed:
    def functions(sizes: ObjectSizes, columns: int) -> dict[str, list[int]]:
        return dict(zip(sizes.function_names, sizes.function_bytes[:, :columns].tolist(), strict=True))

    return Composed(
        decisions=composed.decisions.by_site == real.decisions.by_site,
        sizes=functions(composed.measured, 3) == functions(real.measured, 3),
        code=functions(composed.measured, 2) == functions(real.measured, 2),
        error=composed.measured.llvm_size_text - real.measured.llvm_size_text,
    )


def summarise(
    costs: Sequence[tuple[Module, Mapping[str, Cost]]],
    composed: Sequence[Composed],
    compared: int,
    different: int,
    config: TuningSpeed,
) -> Result:
    """The tables, and whether the bar was reached."""
    ways = (PLAIN, *ARMS, SEARCH)
    counts = np.array([of_module[SEARCH].results for _, of_module in costs])
    each = {way: np.array([of_module[way].seconds for _, of_module in costs]) for way in ways}
    total = {way: float(each[way] @ counts) for way in ways}
    rows: list[tuple[Cell, ...]] = []
    for way in ways:
        known = [of_module[way] for _, of_module in costs]
        functions = sum(one.hits + one.misses for one in known)
        rows.append(
            (
                way, sum(one.compilations for one in known), float(counts.sum() / total[way]),
                total[PLAIN] / total[way], total[ARMS[0]] / total[way],
                float(np.exp(np.mean(np.log(each[PLAIN] / each[way])))),
                sum(one.hits for one in known) / functions if functions else None,
                sum(one.python for one in known) / sum(one.children + one.python for one in known),
                sum(one.said for one in known) / sum(one.children for one in known),
            )
        )  # fmt: skip
    modules = [
        (
            module.name, int(count), of_module[SEARCH].compilations, *(float(each[way][index]) for way in ways),
            float(each[PLAIN][index] / each[SEARCH][index]),
        )
        for index, ((module, of_module), count) in enumerate(zip(costs, counts, strict=True))
    ]  # fmt: skip
    ratio = total[PLAIN] / total[SEARCH]
    made = sum(of_module[SEARCH].compilations for _, of_module in costs)
    exact = [one.decisions and one.sizes for one in composed]
    nearly = [one.decisions and one.code and abs(one.error) <= FILLING for one in composed]
    errors = np.array([one.error for one in composed])
    return Result(
        benchmark="tuning_speed",
        question=(
            "How many results of a search does a core get in a second, against plain compilations of the same "
            "modules? A search goes some steps on each module; then all builds that it wanted are compiled in each way."
        ),
        answer=(
            f"{ratio:.2f} times as many effective compilations as plain clang: {int(counts.sum())} builds were wanted "
            f"on {len(costs)} modules, of which the search compiled or composed all in {made} compilations; "
            f"compiling each is {total[PLAIN] / total[ARMS[-1]]:.2f} times as fast as plain clang; "
            f"{sum(nearly)} of {len(composed)} composed builds are what the compiler makes, "
            f"but for {FILLING} bytes of filling; {different} of {compared} accounts of compiled ones differ from that "
            "of the whole object"
        ),
        bar=f"at least {BAR} times as many effective compilations as plain clang, and no compiled account differs",
        passed=ratio >= BAR and not different,
        seed=config.seed,
        tables=(
            Table(
                title="Ways to get the builds that a search wants",
                columns=(
                    "way", "compilations", "builds per second and core", "against plain", "against the plugin alone",
                    "geometric mean over modules, against plain", "functions not generated", "Python's share",
                    "user time said / processor time",
                ),
                rows=tuple(rows),
                note=(
                    "What is counted is builds that the search wanted to know, each set of decisions once: "
                    "those that it explored, and those with the flips alone that paid, from which it goes on. "
                    "All ways but the last compile every one of them (plain clang the module without decisions, some "
                    "times, which takes as long each time). The last is the search itself, with all that Python does "
                    "in it: it compiles what it explores, composes the others of what it knows, and compiles some of "
                    "those again to confirm them, which costs time and counts nothing. How exact they are is below. "
                    "Processor time is user and system time of all children, resident compilers from start to end "
                    "included, and of this process, which measures objects and reads logs. One compilation at a time."
                ),
            ),
            Table(
                title="Composed builds beside the same ones compiled",
                columns=("what", "value"),
                rows=(
                    ("composed builds", len(composed)),
                    ("all decisions and the sizes of all functions equal", float(np.mean(exact))),
                    (f"the same, but for up to {FILLING} bytes of filling in the unwind table", float(np.mean(nearly))),
                    ("all decisions equal", float(np.mean([one.decisions for one in composed]))),
                    *(
                        (f"error of the object's size in bytes, quantile {share}", float(np.quantile(errors, share)))
                        for share in (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
                    ),
                    ("mean absolute error in bytes", float(np.mean(np.abs(errors)))),
                ),
                note=(
                    "Predicted less real: negative where the search hoped for more. Each is composed of the one "
                    "before; errors add up until an exploration shows them, or a confirmation does."
                ),
            ),
            Table(
                title="Modules, seconds for one build",
                columns=("module", "builds", "compilations of the search", *ways, "plain / search"),
                rows=tuple(modules),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

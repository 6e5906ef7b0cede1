"""What each lever of training and tuning is worth: compilations for a second of processor time, beside plain clang."""

import dataclasses
import hashlib
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table
from timing import spent
from tuning_asked import Recorder
from tuning_speed import ARMS, PLAIN, SEARCH, Cost, TuningSpeed, plain_cost, repeat, searched

from cluster import TEMPERATURE, plain
from mlgokit.commands.options import ReuseOptions
from mlgokit.compiler.caching import open_caching
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.recheck import SHARE, Recheck
from mlgokit.compiler.request import Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError
from mlgokit.learning.loop import learn
from mlgokit.learning.settings import Learning
from mlgokit.module import Module
from mlgokit.policy.pretrained import policy_file
from mlgokit.problems import INLINE_SIZE

LEAST_OFF, LEAST_TRAINING, LEAST_TUNING = 0.93, 1.3, 1.6
DRAWS = "sampling: a policy that draws a little, its log; every lever off"
TRAINING = {
    "training: every lever off": ReuseOptions(residents="off", known_functions="off"),
    "training: residents": ReuseOptions(residents="on", known_functions="off"),
    "training: known functions": ReuseOptions(residents="off", known_functions="on"),
    "training: known decisions": ReuseOptions(residents="off", known_functions="off", known_decisions="on"),
    "training: these three": ReuseOptions(known_decisions="on"),
}
STORED, ALL = "training: remembered compilations", "training: all four"
RECALLED = "training again, from its store"
LEVERS = {
    STORED: "--store, --shared-store",
    ALL: "all of these",
    "training: residents": "--residents",
    "training: known functions": "--known-functions",
    "training: known decisions": "--known-decisions",
    "training: these three": "all three",
    RECALLED: "--store, --shared-store",
    "plugin, residents": "--residents",
    "plugin, known functions": "--known-functions",
    "plugin, both": "both",
    SEARCH: "both; composing has none",
}
"""The switch of each, as commands have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """Repeat the compilations of a real training, and of real searches, with each lever alone and with all."""

    corpus: Path = Path("quickstart/corpus")
    """Where the modules are."""
    modules: int = 16
    """Modules that are trained on."""
    turns: int = 3
    """Turns of the training."""
    plain: int = 3
    """Plain compilations of each module; they are all alike, so their mean stands for the others."""
    tuned: int = 4
    """Modules that are searched."""
    steps: int = 20
    """Steps of the search on each."""
    least_bytes: int = 20000
    """Bitcode of a module that is drawn; most of a smaller one's time is the start of clang."""
    seed: int = 1
    """Of the draws, of the training and of the searches."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/levers.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Notes:
    """What a compiler was asked, with policies that stay.

    Attributes:
        folder: where policies are kept.
        asked: by module, what was asked, in order.
        repeated: compilations that decided as an earlier one of their module.
        made: compilations that decided something.
    """

    folder: Path
    asked: dict[str, list[tuple[Module, CompileRequest]]] = field(
        default_factory=dict[str, list[tuple[Module, CompileRequest]]]
    )
    repeated: int = 0
    made: int = 0
    _seen: set[bytes] = field(default_factory=set[bytes])

    def note(self, module: Module, request: CompileRequest, done: Compilation) -> None:
        """Write down one compilation."""
        if request.use is not None:
            policies = {problem: self._kept(policy) for problem, policy in request.use.policies.items()}
            kept = dataclasses.replace(request, use=dataclasses.replace(request.use, policies=policies))
            self.asked.setdefault(module.name, []).append((module, kept))
        if done.ok and done.decision_count:
            known = done.decisions
            key = hashlib.sha256(repr((module.name, known.names)).encode())
            for column in (known.caller, known.callee, known.inlined):
                key.update(np.ascontiguousarray(column).tobytes())
            self.made += 1
            self.repeated += key.digest() in self._seen
            self._seen.add(key.digest())

    def _kept(self, policy: str) -> str:
        if policy.startswith(":"):
            return policy
        path = self.folder / f"{hashlib.sha256(Path(policy).read_bytes()).hexdigest()}.policy"
        if not path.exists():
            shutil.copyfile(policy, path)
        return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A way to compile: how many compilations it made, and the processor time of one, summed over modules."""

    way: str
    compilations: int
    seconds: float
    plain: float

    @property
    def ratio(self) -> float:
        """Compilations a second, beside those of plain clang on the same modules."""
        return self.plain / self.seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Levers, measure, arguments)


def measure(config: Levers, setup: Setup) -> Result:
    """Train and search once, then repeat what was asked in all ways.

    Raises:
        CorpusError: no module can be searched.
    """
    toolchain = setup.toolchain(config.llvm)
    here = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain))
    corpus = setup.corpus(config.corpus)
    rng = np.random.default_rng(config.seed)
    large = [one for one in corpus.modules if one.bitcode_bytes >= config.least_bytes]
    modules = draw_modules(large, config.modules, rng)
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        folder = Path(scratch)
        notes = Notes(folder=folder)
        settings = Learning(iterations=config.turns, seed=config.seed, setting=("fit.epochs=10", "fit.members=3"))
        recorder = Recorder(compiler=here, note=notes.note)
        learn(recorder, modules, INLINE_SIZE, "effect-regression", settings, folder=folder / "train")
        rows, remembered = of_training(config, setup, here, notes, folder)
    rows += of_tuning(config, setup, toolchain, draw_modules(large, config.tuned, rng), rng)
    return summarise(config, rows, repeated=notes.repeated, made=notes.made, remembered=remembered)


def of_training(config: Levers, setup: Setup, here: ClangCompiler, notes: Notes, folder: Path) -> tuple[list[Row], int]:
    """All ways on what a training asked, and how many of these compilations a store has made before.

    It goes module by module, every other one in reverse, so that a drift favours none.
    """
    use = PluginUse(policies={INLINE_SIZE.name: str(policy_file("builtin:size"))}, logs=(INLINE_SIZE.name,), seed=1)
    drawing = CompileRequest(use=dataclasses.replace(use, temperature=TEMPERATURE))
    compilers: dict[str, Compiler] = {
        way: reuse.applied(here, recheck=Recheck(share=SHARE, seed=config.seed)) for way, reuse in TRAINING.items()
    }
    recheck = Recheck(share=SHARE, seed=config.seed)
    reusing = ReuseOptions(known_decisions="on").applied(here, recheck=recheck)
    compilers |= {
        way: open_caching(compiler, folder / way, recheck=recheck)
        for way, compiler in ((STORED, here), (ALL, reusing), (RECALLED, here))
    }
    costs: dict[str, list[float]] = {way: [] for way in (PLAIN, DRAWS, *compilers)}
    before_all = open_caching(here, folder / RECALLED)
    counts: list[int] = []
    for index, asked in enumerate(notes.asked.values()):
        setup.report(index, len(notes.asked), asked[0][0].name)
        module = asked[0][0]
        for one, request in asked:
            before_all.compile(one, request)

        def drawn(module: Module = module) -> int:
            for _ in range(config.plain):
                here.compile(module, drawing)
            return config.plain

        def plainly(module: Module = module) -> int:
            plain(here, [module] * config.plain, workers=1)
            return config.plain

        works: dict[str, Callable[[], int]] = {PLAIN: plainly, DRAWS: drawn}
        for way, compiler in compilers.items():
            works[way] = lambda compiler=compiler, asked=asked: repeated(compiler, asked)
        for way in list(works) if index % 2 == 0 else list(works)[::-1]:
            before = spent()
            done = works[way]()
            after = spent()
            costs[way].append((math.fsum(after) - math.fsum(before)) / done)
        counts.append(len(asked))
    for compiler in compilers.values():
        compiler.close()
    return rows_of(costs, counts), sum(counts) - sum(1 for _ in (folder / RECALLED).rglob("*.npz"))


def repeated(compiler: Compiler, asked: Sequence[tuple[Module, CompileRequest]]) -> int:
    """Compile what was asked, turn by turn: in a large corpus no compiler stays for a module's next turn."""
    policies = None
    for module, request in asked:
        now = None if request.use is None else dict(request.use.policies)
        if now != policies:
            compiler.close()
            policies = now
        compiler.compile(module, request)
    compiler.close()
    return len(asked)


def of_tuning(
    config: Levers, setup: Setup, toolchain: Toolchain, modules: Sequence[Module], rng: np.random.Generator
) -> list[Row]:
    """All ways on what a search wants to know.

    Raises:
        CorpusError: no module can be searched.
    """
    like = TuningSpeed(corpus=config.corpus, steps=config.steps, plain=config.plain, llvm=config.llvm)
    here = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=like.timeout_seconds)
    costs: dict[str, list[float]] = {way: [] for way in (PLAIN, *ARMS, SEARCH)}
    counts: list[int] = []
    for index, module in enumerate(modules):
        setup.report(index, len(modules), module.name)
        both = dataclasses.replace(here, residents=Residents(), known={})
        asked, cost = searched(both, module, steps=config.steps, rng=rng)
        if len(asked) <= 2:
            continue
        of_module: dict[str, Cost] = {PLAIN: plain_cost(like, toolchain, module), SEARCH: cost}
        for arm in ARMS if index % 2 == 0 else ARMS[::-1]:
            of_module[arm], _ = repeat(like, toolchain, module, arm, asked)
        for way, cost in of_module.items():
            costs[way].append(cost.seconds)
        counts.append(len(asked))
    if not counts:
        raise CorpusError(f"{config.corpus}: expected modules with decisions to search, found none; draw more")
    return rows_of(costs, counts)


def rows_of(costs: Mapping[str, Sequence[float]], counts: Sequence[int]) -> list[Row]:
    """Seconds of one compilation, by way and module, summed over as many of each module as were asked for.

    Example:
        >>> rows = rows_of({"plain clang": [1.0, 2.0], "other": [0.5, 2.0]}, [2, 1])
        >>> [round(row.ratio, 3) for row in rows]
        [1.0, 1.333]
    """
    total = {
        way: math.fsum(cost * count for cost, count in zip(each, counts, strict=True)) for way, each in costs.items()
    }
    return [Row(way=way, compilations=sum(counts), seconds=total[way], plain=total[PLAIN]) for way in costs]


def summarise(config: Levers, rows: Sequence[Row], *, repeated: int, made: int, remembered: int) -> Result:
    """The table and the bars."""
    ratio = {row.way: row.ratio for row in rows}
    off, training, tuning = ratio[DRAWS], ratio[ALL], ratio[SEARCH]
    cells: list[tuple[Cell, ...]] = [
        (row.way, LEVERS.get(row.way, ""), row.compilations, row.compilations / row.seconds, round(row.ratio, 3))
        for row in rows
    ]
    return Result(
        benchmark="levers",
        question="What is each lever of training and tuning worth, in compilations for a second of processor time?",
        answer=f"beside plain clang {off:.3f} with every lever off (bar {LEAST_OFF}), {training:.2f} in training "
        f"(bar {LEAST_TRAINING}) and {tuning:.2f} in tuning (bar {LEAST_TUNING}) with them on; "
        f"{repeated} of {made} compilations of the training decided as an earlier one of their module; a store knows "
        f"{remembered} of these before",
        bar=f"at least {LEAST_OFF}, {LEAST_TRAINING} and {LEAST_TUNING}",
        passed=off >= LEAST_OFF and training >= LEAST_TRAINING and tuning >= LEAST_TUNING,
        seed=config.seed,
        tables=(
            Table(
                title="Ways to compile",
                note="Processor time is that of all children and of this process, which measures objects and reads "
                "logs, one compilation at a time; it is less sensitive to what else runs than elapsed time. The first "
                "rows are what a training asked, module by module; compilers stay within a turn only, as in a corpus "
                "of more modules than can stay. The last ones, from the second plain clang on, are builds that "
                "searches wanted to know; the search itself composes a part of them. A hundredth of what was reused is "
                "compiled once more and compared in training.",
                columns=("way", "switch", "compilations", "a second", "beside plain clang"),
                rows=tuple(cells),
            ),
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())

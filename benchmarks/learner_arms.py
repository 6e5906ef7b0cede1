"""What the benchmark ``learners`` measures: rules, thresholds, a coin, searches, and every learner for every seed."""

import dataclasses
import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from arms import Arm, file_name

from mlgokit.advisors import Advice, Observation
from mlgokit.algorithms.registry import LEARNERS
from mlgokit.compiler.caching import CachingCompiler, open_caching
from mlgokit.compiler.channel.interactive import channel_use, drive_channels
from mlgokit.compiler.compile import ClangCompiler, command
from mlgokit.compiler.objects.measure import link_weights, measure_object, size_score
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.evaluation.compare import compare_projects
from mlgokit.evaluation.sides import Side
from mlgokit.learning.baselines import compile_defaults
from mlgokit.learning.loop import learn
from mlgokit.learning.settings import Learning
from mlgokit.learning.training import Learned
from mlgokit.module import Module
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing

RULES = {"echo": HEURISTIC, "never": ":never", "always": ":always"}
CLONED = " after cloning"
"""Of a name: the policy of one turn of behavioural cloning is started from, as the reference implementation does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learners:
    """Train every learner at the same budget, and build the held-out projects with what it learned."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus; its held-out projects judge."""
    folder: Path = Path("build/learners")
    """Where finished arms are; one folder for one budget and corpus."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """One arm of each learner for each."""
    compilations: int = 3000
    """Budget of each arm; searches spend it on the held-out modules themselves."""
    minutes: float = math.inf
    """Budget of each learner in core-minutes, a turn that was begun being finished; give it --compilations 1000000 to
    count alone. Rules learn nothing and searches count compilations, so both are left out then."""
    algorithms: tuple[str, ...] = ()
    """Only these, as ppo or ppo:reference; all with all presets if none is named."""
    thresholds: tuple[int, ...] = (0, 15, 50, 225)
    """Values of -inline-threshold to build with."""
    modules: int = 0
    """Training modules drawn from all; 0 for all."""
    largest: int = 0
    """Draw from modules with at most so many bytes of bitcode; 0 for all."""
    setting: tuple[str, ...] = ()
    """Changed settings of every learner that has them, for trials, as modules=4."""
    slice: int = 0
    """Make at most so many arms in this call; 0 for all, -1 for none but the table."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/learners.json")
    """Where the result goes; the Markdown and the picture go beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all arms share. There is one worker, so that wall time is core time."""

    config: Learners
    toolchain: Toolchain
    plugin: Path
    training: list[Module]
    held_out: list[Module]
    report: Report


def is_timed(config: Learners) -> bool:
    """Whether the budget is time."""
    return math.isfinite(config.minutes)


def every_arm(bench: Bench) -> list[Arm]:
    """Each gives by project the sizes before and after, linked (or 0) and link-aware.

    Rules first, then learners and searches seed by seed, so that a first slice has one of each.
    """
    config, arms = bench.config, list[Arm]()
    if not is_timed(config):
        arms += [Arm(name=name, seed=0, run=lambda rule=rule: judged(bench, rule)) for name, rule in RULES.items()]
        arms += [
            Arm(name=f"threshold {value}", seed=0, run=lambda value=value: with_threshold(bench, value))
            for value in config.thresholds
        ]
    names = list(config.algorithms) or [
        algorithm if preset == "default" else f"{algorithm}:{preset}"
        for algorithm, entry in LEARNERS.items()
        for preset in entry.preset_names
    ]
    if not config.algorithms:
        names += [f"{name}{CLONED}" for name in ("ppo:reference", "ppo", "es")]
    for seed in config.seeds:
        arms += [
            Arm(name=name, seed=seed, run=lambda name=name, seed=seed: learned(bench, name, seed)) for name in names
        ]
        if is_timed(config):
            continue
        arms.append(Arm(name="random", seed=seed, run=lambda seed=seed: at_random(bench, seed)))
        arms.append(Arm(name="random search", seed=seed, run=lambda seed=seed: searched(bench, seed, greedy=False)))
        arms.append(Arm(name="greedy flips", seed=seed, run=lambda seed=seed: searched(bench, seed, greedy=True)))
    return arms


def learned(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    """Train, and build with the policy.

    What the heuristic does with the training modules is compiled once for all arms, for no budget counts it, unless the
    budget is time.
    """
    config = bench.config
    algorithm, _, preset = name.removesuffix(CLONED).partition(":")
    folder = config.folder / "runs" / f"{file_name(name)}-{seed}"
    if not is_timed(config) and not (folder / "store").exists():
        shutil.copytree(defaults(bench), folder / "store", copy_function=os.link)
    deadline = time.monotonic() + 60 * config.minutes
    start, cloning = None, 0
    if name.endswith(CLONED):
        clone = train_one(
            bench, "behavioural-cloning", folder / "clone", Learning(iterations=1), seed=seed, deadline=deadline
        )
        start, cloning = folder / "clone" / "final.policy", clone.counters.compilations
    left = max(1, config.compilations - cloning)
    learning = Learning(preset=preset or "default", compilations=left, start=start)
    done = train_one(bench, algorithm, folder, learning, seed=seed, deadline=deadline)
    shutil.rmtree(folder / "store")
    counters = done.counters
    spent = {"compilations": cloning + counters.compilations, "turns": counters.turn, "failed": counters.failed}
    return spent | judged(bench, str(folder / "final.policy"))


def train_one(bench: Bench, algorithm: str, folder: Path, learning: Learning, *, seed: int, deadline: float) -> Learned:
    """One run of a learner, whose policy is left in ``folder``; nothing is kept apart for validation."""
    config = bench.config
    names = {field.name for field in dataclasses.fields(LEARNERS[algorithm].presets["default"])}
    setting = tuple(change for change in config.setting if change.partition("=")[0].partition(".")[0] in names)
    learning = dataclasses.replace(learning, seed=seed, evaluate_every=0, validation_share=0.0, setting=setting)
    done = learn(
        compiler_with(bench, (folder.parent if folder.name == "clone" else folder) / "store"),
        bench.training,
        INLINE_SIZE,
        algorithm,
        learning,
        folder=folder,
        deadline=deadline,
        report=bench.report,
    )
    save_policy(done.policy, folder / "final.policy")
    return done


def defaults(bench: Bench) -> Path:
    """The store with the training modules under the heuristic."""
    store = bench.config.folder / "defaults"
    compile_defaults(compiler_with(bench, store), bench.training, INLINE_SIZE, objective=Learning().objective)
    return store


def compiler_with(bench: Bench, store: Path) -> CachingCompiler:
    """One worker."""
    seconds = bench.config.timeout_seconds
    clang = ClangCompiler(toolchain=bench.toolchain, plugin=bench.plugin, workers=1, timeout_seconds=seconds)
    return open_caching(clang, store)


def judged(bench: Bench, policy: str, *, temperature: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """The held-out projects under a policy or rule."""
    use = PluginUse(plugin=bench.plugin, policies={INLINE_SIZE.name: policy}, temperature=temperature, seed=seed)
    return {"projects": built(bench, bench.held_out, use)}


def built(bench: Bench, modules: Sequence[Module], use: PluginUse) -> dict[str, dict[str, Any]]:
    """By project: language, image and link-aware score; before, as the first call built it, and after."""
    found = compare_projects(
        list(modules),
        compiler=ClangCompiler(
            toolchain=bench.toolchain, plugin=bench.plugin, timeout_seconds=bench.config.timeout_seconds
        ),
        after=Side(use=use),
        report=bench.report,
        before_objects=bench.config.folder / "plain",
    )
    return {
        one.project: {
            "language": one.language,
            "image": [one.before.image, one.after.image],
            "link_aware": [one.before.link_aware, one.after.link_aware],
        }
        for one in found.projects
    }


def with_threshold(bench: Bench, value: int) -> dict[str, Any]:
    """The held-out projects under LLVM's heuristic with another threshold."""
    echo = PluginUse(plugin=bench.plugin, policies={INLINE_SIZE.name: HEURISTIC})
    if len(list((bench.config.folder / "plain").glob("*.o"))) < len(bench.held_out):
        built(bench, bench.held_out, echo)
    words = ("-mllvm", f"-inline-threshold={value}")
    modules = [dataclasses.replace(one, command_line=(*one.command_line, *words)) for one in bench.held_out]
    return {"projects": built(bench, modules, echo)}


def at_random(bench: Bench, seed: int) -> dict[str, Any]:
    """Each call inlined or not by the toss of a coin: a policy that prefers nothing, at a temperature."""
    nothing = np.zeros(1, np.float32)
    policy = Policy(
        problem=INLINE_SIZE.name,
        features=("callee_users",),
        normaliser=SignedLog(mean=nothing, scale=nothing, clip=1.0),
        layers=(Layer(np.zeros((1, 1, 2), np.float32), np.zeros((1, 2), np.float32)),),
        output=OutputKind.LOGITS,
    )
    path = bench.config.folder / "coin.policy"
    save_policy(policy, path)
    return judged(bench, str(path), temperature=1.0, seed=seed)


@dataclass(frozen=True, slots=True)
class Flips:
    """The heuristic's decisions, but flipped at some places in the order of questions."""

    places: frozenset[int]

    def advise(self, observation: Observation) -> Advice:
        """1 to inline, 0 to call."""
        default = int(observation.values[INLINE_SIZE.default_decision].ravel()[0])
        return default ^ (observation.index in self.places)


def searched(bench: Bench, seed: int, *, greedy: bool) -> dict[str, Any]:
    """Search on the held-out modules themselves, with the budget shared out among them; nothing is linked.

    Random search compiles under the heuristic with some decisions flipped, and keeps the smallest. Greedy flips
    turn one more decision round, and keep it where the module gets smaller.
    """
    each = max(1, bench.config.compilations // len(bench.held_out))
    rngs = np.random.default_rng(seed).spawn(len(bench.held_out))

    compiler = ClangCompiler(toolchain=bench.toolchain, timeout_seconds=bench.config.timeout_seconds)
    runs = parallel(compiler.compile, bench.held_out, workers=1, report=say_nothing, label="plain")
    pairs = [(module, run.sizes) for module, run in zip(bench.held_out, runs, strict=True)]
    weights = {
        project: link_weights(sizes for module, sizes in pairs if module.project == project and sizes is not None)
        for project in sorted({module.project for module in bench.held_out})
    }
    projects: dict[str, dict[str, Any]] = {}
    for number, (module, sizes) in enumerate(pairs):
        bench.report(number, len(pairs), "greedy flips" if greedy else "random search")
        if sizes is None:
            continue
        before = size_score(sizes, weights[module.project])
        known = weights[module.project]
        after = best_of_search(bench, module, known, plain=before, compilations=each, rng=rngs[number], greedy=greedy)
        entry = projects.setdefault(
            module.project, {"language": module.language, "image": [0, 0], "link_aware": [0.0, 0.0]}
        )
        entry["link_aware"] = [entry["link_aware"][0] + before, entry["link_aware"][1] + after]
    return {"compilations": each * len(pairs), "projects": projects}


def best_of_search(
    bench: Bench,
    module: Module,
    weights: dict[str, int],
    *,
    plain: float,
    compilations: int,
    rng: np.random.Generator,
    greedy: bool,
) -> float:
    """The smallest score that was found."""
    kept: frozenset[int] = frozenset()
    best, count = plain, 0
    for number in range(compilations):
        if number and not count:
            break
        flips = kept
        if number and greedy:
            flips = kept ^ {int(rng.integers(count))}
        elif number:
            flips = frozenset(np.flatnonzero(rng.random(count) < max(0.06, 3 / count)).tolist())
        score, count = flipped_score(bench, module, weights, flips)
        if score < best:
            best, kept = score, flips
    return best


def flipped_score(bench: Bench, module: Module, weights: dict[str, int], flips: frozenset[int]) -> tuple[float, int]:
    """The score with these flips, infinite after a failure, and how many questions there were."""
    folder = bench.config.folder / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "module.o"
    output.unlink(missing_ok=True)
    argv = command(bench.toolchain, module, output, None)
    use = channel_use(INLINE_SIZE, major=bench.toolchain.major, advisor=Flips(flips), include_default=True)
    seconds = bench.config.timeout_seconds
    done = drive_channels(argv, channels={"inline": use}, timeout_seconds=seconds, answer_timeout_seconds=seconds)
    count = 0 if done.log is None else done.log.observation_count
    if done.returncode or not output.exists():
        return math.inf, count
    return size_score(measure_object(output), weights), count

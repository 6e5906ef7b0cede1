"""All learners and honest baselines on one corpus at one budget, in slices that a later call goes on with.

Each arm (a learner with a preset and a seed, or a baseline) leaves its own result in ``--folder``; a call makes the
missing ones, at most ``--slice`` of them, and writes the table of all that are there.
"""

import dataclasses
import json
import math
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.advisors import Advice, Observation
from mlgokit.algorithms.table import LEARNERS
from mlgokit.collect import Report, Workshop, open_workshop, parallel, say_nothing
from mlgokit.compiler.compile import HEURISTIC, CompileResult, PluginUse, command, compile_module
from mlgokit.compiler.interactive import channel_use, drive_channels
from mlgokit.compiler.measure import link_weights, measure_object, size_score
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.module import Module, load_corpus
from mlgokit.dataset.normaliser import SignedLog
from mlgokit.errors import CorpusError, UsageError
from mlgokit.evaluation.compare import compare_projects
from mlgokit.evaluation.statistics import bootstrap_interval, geometric_mean_change
from mlgokit.learning.loop import Learned, learn
from mlgokit.learning.settings import Learning
from mlgokit.manifest import atomic_write, digest_file, digest_value
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.stages import training_modules

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
    """Budget of each arm in core-minutes; give it --compilations 1000000 to count alone."""
    algorithms: tuple[str, ...] = ()
    """Only these, as ppo or ppo:reference; all with all presets if none is named."""
    thresholds: tuple[int, ...] = (0, 15, 50, 225)
    """Values of -inline-threshold to build with."""
    modules: int = 0
    """Training modules drawn from all; 0 for all."""
    setting: tuple[str, ...] = ()
    """Changed settings of every learner that has them, for trials, as modules=4."""
    slice: int = 0
    """Make at most so many arms in this call; 0 for all."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One thing to measure: ``run`` gives by project the sizes before and after, linked (or 0) and link-aware."""

    name: str
    seed: int
    run: Callable[[], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_benchmark(Learners, measure, arguments)


def measure(config: Learners, report: Report) -> Result:
    """Make the missing arms, and put all that are there side by side."""
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    versions = tool_versions(toolchain)
    held_out = [module for module in corpus.modules if module.held_out]
    if not held_out:
        raise CorpusError(
            f"{config.corpus}: expected held-out projects to judge, found none; run `mlgokit corpus split`"
        )
    bench = Bench(
        config=config,
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        training=draw_modules(training_modules(corpus.modules), config.modules, np.random.default_rng(1)),
        held_out=held_out,
        report=report,
    )
    what = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "plugin": digest_file(bench.plugin)}
    what |= {name: getattr(config, name) for name in ("compilations", "minutes", "modules", "setting")}
    made = 0
    found: list[dict[str, Any]] = []
    arms = every_arm(bench)
    for arm in arms:
        path = config.folder / f"{re.sub(r'[^a-z0-9]+', '-', arm.name)}-{arm.seed}.json"
        known = json.loads(path.read_bytes()) if path.exists() else None
        if known is not None and known["of"] != digest_value({**what, "minutes": str(config.minutes)}):
            raise UsageError(
                f"{path}: expected an arm of this budget and corpus, found another's; name another --folder"
            )
        if known is None and (not config.slice or made < config.slice):
            report(made, len(arms), "arms")
            before = core_seconds()
            facts = arm.run()
            known = {"of": digest_value({**what, "minutes": str(config.minutes)}), "arm": arm.name, "seed": arm.seed}
            known |= {"core_minutes": (core_seconds() - before) / 60, **facts}
            atomic_write(path, json.dumps(known, indent=1))
            made += 1
        if known is not None:
            found.append(known)
    return summed_up(config, found, missing=len(arms) - len(found), versions=versions, inputs=corpus_inputs(corpus))


def core_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def every_arm(bench: Bench) -> list[Arm]:
    """Baselines first, then the learners, seed by seed, so that a first slice has one of each."""
    config = bench.config
    arms = [Arm(name=name, seed=0, run=lambda rule=rule: judged(bench, rule)) for name, rule in RULES.items()]
    arms += [
        Arm(name=f"threshold {value}", seed=0, run=lambda value=value: with_threshold(bench, value))
        for value in config.thresholds
    ]
    names = list(config.algorithms) or [
        algorithm if preset == "default" else f"{algorithm}:{preset}"
        for algorithm, entry in LEARNERS.items()
        for preset in entry.presets
    ]
    if not config.algorithms:
        names += [f"{name}{CLONED}" for name in ("ppo:reference", "ppo", "es")]
    for seed in config.seeds:
        arms.append(Arm(name="random", seed=seed, run=lambda seed=seed: at_random(bench, seed)))
        arms.append(Arm(name="random search", seed=seed, run=lambda seed=seed: searched(bench, seed, greedy=False)))
        arms.append(Arm(name="greedy flips", seed=seed, run=lambda seed=seed: searched(bench, seed, greedy=True)))
        arms += [
            Arm(name=name, seed=seed, run=lambda name=name, seed=seed: learned(bench, name, seed)) for name in names
        ]
    return arms


def learned(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    """Train, and build with the policy. Every arm compiles for itself: a shared store would make later ones cheaper."""
    config = bench.config
    algorithm, _, preset = name.removesuffix(CLONED).partition(":")
    folder = config.folder / "runs" / f"{re.sub(r'[^a-z0-9]+', '-', name)}-{seed}"
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
        workshop(bench, folder.with_name("store") if folder.name == "clone" else folder / "store"),
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


def workshop(bench: Bench, store: Path) -> Workshop:
    """One worker."""
    return open_workshop(bench.toolchain, bench.plugin, store, workers=1, timeout_seconds=bench.config.timeout_seconds)


def judged(bench: Bench, policy: str, *, temperature: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """The held-out projects under a policy or rule."""
    use = PluginUse(plugin=bench.plugin, policies={INLINE_SIZE.name: policy}, temperature=temperature, seed=seed)
    return {"projects": built(bench, bench.held_out, use)}


def built(bench: Bench, modules: Sequence[Module], use: PluginUse) -> dict[str, dict[str, Any]]:
    """By project: language, image and link-aware score, before and after."""
    found = compare_projects(
        list(modules),
        toolchain=bench.toolchain,
        use=use,
        workers=1,
        rng=np.random.default_rng(1),
        report=bench.report,
        timeout_seconds=bench.config.timeout_seconds,
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
    words = ("-mllvm", f"-inline-threshold={value}")
    modules = [dataclasses.replace(one, command_line=(*one.command_line, *words)) for one in bench.held_out]
    echo = PluginUse(plugin=bench.plugin, policies={INLINE_SIZE.name: HEURISTIC})
    before, after = built(bench, bench.held_out, echo), built(bench, modules, echo)
    shared = [name for name in before if name in after]
    for name in shared:
        for size in ("image", "link_aware"):
            before[name][size] = [before[name][size][0], after[name][size][0]]
    return {"projects": {name: before[name] for name in shared}}


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
    """The heuristic's decisions, but turned round at some places in the order of questions."""

    places: frozenset[int]

    def advise(self, observation: Observation) -> Advice:
        """1 to inline, 0 to call."""
        default = int(observation.values[INLINE_SIZE.default_decision].ravel()[0])
        return default ^ (observation.index in self.places)


def searched(bench: Bench, seed: int, *, greedy: bool) -> dict[str, Any]:
    """Search on the held-out modules themselves, with the budget shared out among them; nothing is linked.

    Random search compiles under the heuristic with some decisions turned round, and keeps the smallest. Greedy flips
    turn one more decision round, and keep it where the module gets smaller.
    """
    each = max(1, bench.config.compilations // len(bench.held_out))
    rngs = np.random.default_rng(seed).spawn(len(bench.held_out))

    def plain(module: Module) -> CompileResult:
        return compile_module(
            bench.toolchain, module.command_line, module.bitcode, timeout_seconds=bench.config.timeout_seconds
        )

    runs = parallel(plain, bench.held_out, workers=1, report=say_nothing, label="plain")
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
    argv = command(bench.toolchain, module.command_line, module.bitcode, output, None)
    use = channel_use(INLINE_SIZE, major=bench.toolchain.major, advisor=Flips(flips), include_default=True)
    seconds = bench.config.timeout_seconds
    done = drive_channels(argv, channels={"inline": use}, timeout_seconds=seconds, answer_timeout_seconds=seconds)
    count = 0 if done.log is None else done.log.observation_count
    if done.returncode or not output.exists():
        return math.inf, count
    return size_score(measure_object(output), weights), count


def summed_up(
    config: Learners, found: Sequence[dict[str, Any]], *, missing: int, versions: dict[str, str], inputs: dict[str, str]
) -> Result:
    """The table, and the picture beside it."""
    rows: list[tuple[Cell, ...]] = []
    changes: dict[str, tuple[float, float, float]] = {}
    for name in dict.fromkeys(one["arm"] for one in found):
        arms = [one for one in found if one["arm"] == name]
        size = "image" if any(sum(p["image"]) for one in arms for p in one["projects"].values()) else "link_aware"
        ours = [change_of(arms, kind, size) for kind in ("c++", "c")]
        aware = change_of(arms, "c++", "link_aware")
        if ours[0] is not None:
            changes[name] = ours[0]
        cells: list[Cell] = [name, len(arms)]
        for one in (ours[0] if size == "image" else None, aware, ours[1]):
            cells += [None, None] if one is None else [percent(one[0]), f"{percent(one[1])} to {percent(one[2])}"]
        cells += [seed_spread(arms, size), worst(arms, size)]
        cells += [mean_of(arms, "compilations"), mean_of(arms, "core_minutes")]
        rows.append(tuple(cells))
    atomic_write(config.json.with_suffix(".svg"), picture(changes))
    best = min(changes, key=lambda name: changes[name][0], default="")
    budget = f"{config.compilations} compilations" + (
        "" if math.isinf(config.minutes) else f" or {config.minutes:g} core-minutes"
    )
    return Result(
        benchmark="learners",
        question=f"Which learner makes held-out C++ projects smallest at a budget of {budget}?",
        answer=f"{best}: {percent(changes[best][0])} on C++ ({missing} arms missing)" if best else "nothing was built",
        seed=config.seeds[0],
        versions=versions,
        inputs=inputs,
        tables=(
            Table(
                title="Arms",
                columns=(
                    "arm", "seeds", "linked C++ image", "95 % interval", "link-aware C++ objects", "95 % interval",
                    "C", "95 % interval", "spread over seeds", "largest growth of a project", "compilations",
                    "core-minutes",
                ),
                rows=tuple(rows),
                note="Change against plain -Oz in the geometric mean over held-out projects, mean over seeds; the "
                "intervals are for other projects. Random search and greedy flips search on the held-out modules "
                "themselves and are not linked; theirs are sums of link-aware scores.",
            ),
        ),
    )  # fmt: skip


def pairs_of(arm: dict[str, Any], language: str, size: str) -> dict[str, tuple[float, float]]:
    """By project, the sizes before and after; those that were not linked are left out."""
    return {
        project: (float(sizes[size][0]), float(sizes[size][1]))
        for project, sizes in arm["projects"].items()
        if sizes["language"] == language and min(sizes[size]) > 0
    }


def change_of(arms: Sequence[dict[str, Any]], language: str, size: str) -> tuple[float, float, float] | None:
    """Change of the geometric mean over projects and seeds, and its interval over projects."""
    found = [pairs_of(arm, language, size) for arm in arms]
    shared = sorted(set.intersection(*map(set, found))) if found else []
    if not shared:
        return None
    before = [found[0][name][0] for name in shared]
    ratios = [float(np.exp(np.mean([np.log(one[name][1] / one[name][0]) for one in found]))) for name in shared]
    after = [size * ratio for size, ratio in zip(before, ratios, strict=True)]
    change = geometric_mean_change(before, after)
    if len(shared) < 2 or max(ratios) - min(ratios) < 1e-12:
        return change, change, change
    low, high = bootstrap_interval(before, after, rng=np.random.default_rng(1))
    return change, low, high


def seed_spread(arms: Sequence[dict[str, Any]], size: str) -> str | None:
    """Least and largest change among the seeds."""
    found = [change_of([arm], "c++", size) for arm in arms]
    values = [one[0] for one in found if one is not None]
    return f"{percent(min(values))} to {percent(max(values))}" if len(values) > 1 else None


def worst(arms: Sequence[dict[str, Any]], size: str) -> str | None:
    """Largest growth of any project under any seed."""
    pairs = [pair for arm in arms for kind in ("c++", "c") for pair in pairs_of(arm, kind, size).values()]
    return percent(max(after / before - 1 for before, after in pairs)) if pairs else None


def mean_of(arms: Sequence[dict[str, Any]], name: str) -> float | None:
    """Mean of a fact that not all arms have."""
    values = [float(arm[name]) for arm in arms if name in arm]
    return sum(values) / len(values) if values else None


def percent(change: float) -> str:
    """A change for people.

    Example:
        >>> percent(-0.0414)
        '-4.14 %'
    """
    return f"{100 * change:+.2f} %"


def picture(changes: dict[str, tuple[float, float, float]]) -> str:
    """Changes with their intervals as an SVG, the best on top."""
    names = sorted(changes, key=lambda name: changes[name][0])
    ends = [value for change in changes.values() for value in change] or [0.0]
    low, high = max(-0.3, min(0.0, *ends)), min(0.3, max(0.0, *ends))
    span = max(high - low, 1e-6)

    def place(value: float) -> float:
        return 190 + 420 * (min(max(value, low), high) - low) / span

    rows = [
        f'<text x="180" y="{34 + 22 * row}" text-anchor="end">{name}</text>'
        f'<line x1="{place(changes[name][1]):.1f}" x2="{place(changes[name][2]):.1f}" y1="{30 + 22 * row}" '
        f'y2="{30 + 22 * row}" stroke="#888"/>'
        f'<circle cx="{place(changes[name][0]):.1f}" cy="{30 + 22 * row}" r="4" fill="#2b6cb0"/>'
        f'<text x="620" y="{34 + 22 * row}">{percent(changes[name][0])}</text>'
        for row, name in enumerate(names)
    ]
    height = 40 + 22 * len(names)
    zero = f'<line x1="{place(0):.1f}" x2="{place(0):.1f}" y1="16" y2="{height - 10}" stroke="#c53030"/>'
    shape = f'width="700" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {shape} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {shape} fill="white"/>', zero, *rows, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.exit(main())

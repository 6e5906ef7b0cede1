"""Does a learner from elsewhere learn on the environment, and how does it compare with ours at equal compilations?"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, clean_environment, draw_modules, kept_row, run_benchmark, run_mlgokit
from results import Result, Table, percent

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import size_score
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import ALWAYS, HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.identity import digest_modules
from mlgokit.errors import ToolError
from mlgokit.files import atomic_write, digest_file
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

AGENT = Path("examples/foreign_learner.py")
FOREIGN = "PPO of stable-baselines3"
OURS = {
    "PPO": ("--algorithm", "ppo"),
    "PPO, the reference's settings": ("--algorithm", "ppo", "--preset", "reference"),
    "effect regression": ("--algorithm", "effect-regression"),
}
"""Arms of `mlgokit train`."""
_SECONDS = 4 * 3600.0
_COMPILE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLearner:
    """Train stable-baselines3's PPO and ours, and compile held-out modules after equal numbers of compilations."""

    corpus: Path
    """Folder of a corpus with held-out modules."""
    python: Path
    """A Python with stable-baselines3 and gymnasium."""
    path: str = ""
    """PYTHONPATH of that Python, by which it finds mlgokit."""
    checkpoints: tuple[int, ...] = (64, 128, 256)
    """Compilations after which policies are tested."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Random seeds of the training."""
    modules: int = 12
    """Held-out modules to compile, drawn at random among those with decisions; 0 for all."""
    folder: Path = Path("build/foreign_learner")
    """Folder of the trainings; a run goes on where the last one stopped."""
    workers: int = 2
    """Compilers at once of our trainings; the environment has one."""
    llvm: int | None = None
    """LLVM major."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ForeignLearner, measure, arguments)


def measure(config: ForeignLearner, setup: Setup) -> Result:
    """Train each arm by each seed.

    Raises:
        ToolError: an agent or a training fails.
    """
    toolchain, corpus = setup.toolchain(config.llvm), setup.corpus(config.corpus)
    setup.inputs[AGENT.name] = digest_file(AGENT)
    setup.tools["stable-baselines3"] = _version(config)
    held_out = [module for module in corpus.modules if module.held_out]
    plain = _text_bytes(held_out, toolchain, {INLINE_SIZE.name: HEURISTIC})
    always = _text_bytes(held_out, toolchain, {INLINE_SIZE.name: ALWAYS})
    # A module without a decision says nothing.
    deciding = [module for module in held_out if plain[module.name] != always[module.name]]
    tested = draw_modules(deciding, config.modules, np.random.default_rng(1))
    claim = {"modules": digest_modules(tested), "checkpoints": config.checkpoints, "corpus": setup.inputs["corpus"]}
    rows: list[dict[str, Any]] = []
    arms = [FOREIGN, *OURS]
    for number, (seed, arm) in enumerate((seed, arm) for seed in config.seeds for arm in arms):
        setup.report(number, len(config.seeds) * len(arms), f"train {arm}, seed {seed}")
        place = config.folder.resolve() / f"{arms.index(arm)}-{seed}"

        def train(arm: str = arm, seed: int = seed, place: Path = place) -> dict[str, Any]:
            if arm == FOREIGN:
                return {"rewards": _foreign_rewards(config, tested, toolchain, seed=seed, place=place)}
            return {"rewards": _our_rewards(config, arm, tested, plain, toolchain, seed=seed, place=place)}

        row = kept_row(place.with_suffix(".json"), train, of=claim)
        rows.append({"arm": arm, "seed": seed, "rewards": {int(key): one for key, one in row["rewards"].items()}})
    return result_of(rows, checkpoints=config.checkpoints, modules=len(tested))


def _version(config: ForeignLearner) -> str:
    words = [str(config.python), "-c", "import stable_baselines3 as s, torch as t; print(s.__version__, t.__version__)"]
    done = process.run(words, timeout_seconds=120)
    if done.returncode:
        raise ToolError(f"{config.python}: expected stable-baselines3 in it, found: {done.stderr[-300:]}; install it")
    found, torch = done.stdout.decode().split()
    return f"{found}, torch {torch}"


def _foreign_rewards(
    config: ForeignLearner, tested: Sequence[Module], toolchain: Toolchain, *, seed: int, place: Path
) -> dict[int, float]:
    """By compilations, the mean reward of the tested modules under the agent's decisions; 0: before any training."""
    names = place.with_suffix(".names")
    atomic_write(names, "\n".join(module.name for module in tested))
    words = [str(config.python), str(AGENT), str(config.corpus), "--held-out", str(names), "--seed", str(seed)]
    words += ["--llvm", str(toolchain.major), "--checkpoints", *map(str, config.checkpoints)]
    # One decision at a time has nothing for a second thread.
    environment = clean_environment() | {"OMP_NUM_THREADS": "1"} | ({"PYTHONPATH": config.path} if config.path else {})
    done = process.run(words, timeout_seconds=_SECONDS, env=environment)
    if done.returncode:
        raise ToolError(f"{AGENT}: expected it to train, found: {done.stderr[-600:]}")
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    return {line["compilations"]: line["reward"] for line in lines}


def _our_rewards(
    config: ForeignLearner,
    arm: str,
    tested: Sequence[Module],
    plain: Mapping[str, float],
    toolchain: Toolchain,
    *,
    seed: int,
    place: Path,
) -> dict[int, float]:
    """By compilations, the mean reward of the tested modules under policies of `mlgokit train`."""
    rewards: dict[int, float] = {}
    for budget in config.checkpoints:
        output = place / str(budget)
        words = ["train", "--corpus", str(config.corpus), "--output", str(output), "--store", str(place / "store")]
        words += ["--llvm", str(toolchain.major), "--workers", str(config.workers), "--seed", str(seed)]
        words += [*OURS[arm], "--objective", "OBJECT_TEXT", "--compilations", str(budget)]
        run_mlgokit(words, timeout_seconds=_SECONDS)
        texts = _text_bytes(tested, toolchain, {INLINE_SIZE.name: str(output / "final.policy")})
        rewards[budget] = float(np.mean([1 - texts[one.name] / max(plain[one.name], 1) for one in tested]))
    return rewards


def _text_bytes(modules: Sequence[Module], toolchain: Toolchain, policies: Mapping[str, str]) -> dict[str, float]:
    """Text of the objects of modules, by name, as the environment scores it."""
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=_COMPILE_SECONDS)
    texts: dict[str, float] = {}
    for module in modules:
        done = compiler.compile(module, CompileRequest(use=PluginUse(policies=policies)))
        if done.sizes is None:
            raise ToolError(f"{module.name}: expected it to compile by {dict(policies)}, found: {done.reason}")
        texts[module.name] = size_score(done.sizes, {})
    return texts


def result_of(rows: Sequence[Mapping[str, Any]], *, checkpoints: Sequence[int], modules: int) -> Result:
    """The curves of all arms; passed if the agent's reward rises by each seed."""
    points = (0, *checkpoints)

    def text_of(values: Sequence[float]) -> str:
        if not values:
            return ""
        spread = f" ({percent(min(values))} to {percent(max(values))})" if len(values) > 1 else ""
        return f"{percent(float(np.mean(values)))}{spread}"

    table: list[tuple[str, ...]] = []
    for arm in (FOREIGN, *OURS):
        curves = [row["rewards"] for row in rows if row["arm"] == arm]
        table.append((arm, *(text_of([curve[point] for curve in curves if point in curve]) for point in points)))
    foreign = [row["rewards"] for row in rows if row["arm"] == FOREIGN]
    last = points[-1]
    passed = all(curve[last] > curve[0] for curve in foreign)
    change = float(np.mean([curve[last] - curve[0] for curve in foreign]))
    return Result(
        benchmark="foreign_learner",
        question="Does stable-baselines3's PPO learn on the inlining environment, and what do our learners reach with "
        "as many compilations?",
        answer=f"after {last} compilations its reward on held-out modules rose by {100 * change:.2f} points, in "
        f"{sum(curve[last] > curve[0] for curve in foreign)} of {len(foreign)} trainings",
        bar="its reward on held-out modules rises in each training",
        passed=passed,
        seed=1,
        tables=(
            Table(
                title="Rewards",
                columns=("learner", *(f"after {point} compilations" for point in points)),
                rows=tuple(table),
                note=f"The share of their text that {modules} held-out modules lose against LLVM's own decisions, mean "
                "over modules and seeds, in parentheses the least and the most of a seed; modules whose text inlining "
                "cannot change were left out before. Below zero they are larger. All learners see the same corpus and "
                "the text of single objects. The agent has the default network and settings of its library but for "
                "1,024 decisions a batch and no discount; its features and rewards are normalised.",
            ),
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())

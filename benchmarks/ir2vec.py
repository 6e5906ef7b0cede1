"""What do IR2Vec's embeddings of caller and callee tell about a call, beside the features that a policy has?

Calls of the training projects are inlined or not against LLVM's heuristic, a few in each compilation, and the change in
bytes of each component of these flips is measured, as in training. Effect regression is fitted to them with and without
embeddings; each flip is then judged by the members that were not fitted on its project.
"""

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt
from harness import Setup, draw_modules, run_benchmark
from results import Result, Table, percent

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.credit import attribute
from mlgokit.algorithms.effect_fit import fit_effects
from mlgokit.algorithms.effects import MeasuredEffects, join_effects, measured_effects, project_weights, score_functions
from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.traces.function_id import function_id

Floats = npt.NDArray[np.float64]
Effects = tuple[MeasuredEffects, npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Effects of the flips of a compilation, and the ids [N] of their callers and callees."""
_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ir2vec:
    """Fit effect regression of inlining with and without IR2Vec's embeddings, judged on projects not fitted on."""

    corpus: Path
    """Corpus whose training modules are compiled."""
    vocabulary: Path
    """Vocabulary of IR2Vec, as llvm/lib/Analysis/models/seedEmbeddingVocab75D.json of LLVM's sources."""
    modules: int = 400
    """Modules drawn from the corpus; 0 for all."""
    explorations: int = 3
    """Compilations of a module with flipped decisions."""
    flip_probability: float = 0.1
    """Probability of flipping a decision."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of the fits: of the projects that each member is fitted on, and of the initial weights."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int = 22
    """LLVM major to use; IR2Vec is in LLVM from 21 on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Ir2vec, measure, arguments)


def measure(config: Ir2vec, setup: Setup) -> Result:
    """Compile what is missing, fit all variants, and compare them.

    Raises:
        ToolError: llvm-ir2vec is missing, or refuses the vocabulary.
    """
    toolchain = setup.toolchain(config.llvm)
    training = [one for one in setup.corpus(config.corpus).modules if not one.held_out]
    modules = draw_modules(training, config.modules, np.random.default_rng(1))
    effects, embedded = collect(config, modules, toolchain=toolchain, setup=setup)
    own = [index for index, name in enumerate(effects.names) if name in INLINE_SIZE.feature_names]
    values = effects.values.astype(np.float64)
    variants = {
        "LLVM's": values[:, own],
        "LLVM's, IR2Vec": np.concatenate([values[:, own], embedded], axis=1),
        "all of the plugin": values,
        "all of the plugin, IR2Vec": np.concatenate([values, embedded], axis=1),
    }
    rows = []
    for index, (seed, (name, inputs)) in enumerate(itertools.product(config.seeds, variants.items())):
        setup.report(index, len(config.seeds) * len(variants), f"fit {name}, seed {seed}")
        rows.append((name, seed, *judged(effects, inputs, seed=seed)))
    saved = {name: fmean(row[3] for row in rows if row[0] == name) for name in variants}
    of_plugin, of_llvm = (
        f"{saved[name]:.1%} without and {saved[f'{name}, IR2Vec']:.1%} with embeddings"
        for name in ("all of the plugin", "LLVM's")
    )
    return Result(
        benchmark="ir2vec",
        question="What do IR2Vec's embeddings of caller and callee tell about a call, beside the features of a policy?",
        answer=f"of the bytes that single calls can save, on projects not fitted on, a policy of the plugin's features "
        f"saves {of_plugin}, one of LLVM's {of_llvm}",
        seed=config.seeds[0],
        tables=(
            Table(
                title="Fits",
                columns=("features", "seed", "correlation", "saved of what can be saved"),
                rows=tuple((name, seed, found, percent(share)) for name, seed, found, share in rows),
                note=f"{len(effects.change):,} components with {len(effects.sign):,} flips in {len(modules)} modules "
                f"of {len(effects.projects)} projects, -Oz. Embeddings are symbolic, of the functions before the "
                "optimizer; LLVM's advisor embeds a caller anew after each call that is inlined. Bytes are those of "
                "components of one flip that the members not fitted on the project expect to become smaller by more "
                "than the doubt of the ensemble.",
            ),
        ),
    )


def collect(
    config: Ir2vec, modules: Sequence[Module], *, toolchain: Toolchain, setup: Setup
) -> tuple[MeasuredEffects, Floats]:
    """Compile all modules; return the effects of N flips, and the embeddings [N, 2D] of their callers and callees."""
    compiler = ClangCompiler(
        toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers, timeout_seconds=_SECONDS
    )

    def compile_module(module: Module, seed: int = 0) -> Compilation:
        use = PluginUse(
            policies={INLINE_SIZE.name: HEURISTIC},
            logs=(INLINE_SIZE.name,),
            seed=seed,
            flip_probability=config.flip_probability if seed else 0.0,
        )
        return compiler.compile(module, CompileRequest(use=use))

    plain = parallel(compile_module, modules, workers=config.workers, report=setup.report, label="compile by LLVM")
    pairs = [(module, done) for module, done in zip(modules, plain, strict=True) if done.ok and len(done.decisions)]
    weights = project_weights([one for one, _ in pairs], [done for _, done in pairs])

    def explore(pair: tuple[Module, Compilation]) -> tuple[list[Effects], dict[int, Floats]]:
        module, base = pair
        before = score_functions(base, weights[module.project], Objective.LINK_AWARE)
        found: list[Effects] = []
        for seed in range(1, config.explorations + 1):
            done = compile_module(module, seed)
            if not done.ok:
                continue
            credit = attribute(before, score_functions(done, weights[module.project], Objective.LINK_AWARE))
            flips = credit.flips[np.argsort(credit.component, kind="stable")]
            effects = measured_effects(done, credit, project=module.project)
            found.append((effects, done.decisions.caller[flips], done.decisions.callee[flips]))
        return found, embed(config, module, toolchain)

    explored = parallel(explore, pairs, workers=config.workers, report=setup.report, label="explore and embed")
    parts, vectors = list[MeasuredEffects](), list[Floats]()
    for found, known in explored:
        width = len(next(iter(known.values()), np.zeros(0)))
        for effects, *ends in found:
            if len(effects.change):
                parts.append(effects)
                rows = [np.array([known.get(one, np.zeros(width)) for one in ids.tolist()]) for ids in ends]
                vectors.append(np.concatenate(rows, axis=1))
    return join_effects(parts), np.concatenate(vectors)


def embed(config: Ir2vec, module: Module, toolchain: Toolchain) -> dict[int, Floats]:
    """Embed all functions of a module; returns vectors [D] by the id of the function.

    Raises:
        ToolError: llvm-ir2vec is missing, or fails.
    """
    tool = toolchain.clang.resolve().parent / "llvm-ir2vec"
    words = [str(tool), "embeddings", "--mode=llvm", "--level=func", f"--ir2vec-vocab-path={config.vocabulary}"]
    done = process.run([*words, str(module.bitcode)], timeout_seconds=_SECONDS)
    if done.returncode:
        raise ToolError(f"{tool}: expected it to embed {module.name}, found: {done.stderr[-200:]}; install llvm-22")
    vectors: dict[int, Floats] = {}
    name = ""
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("Function: "):
            name = line.removeprefix("Function: ").strip()
        elif line.strip().startswith("["):
            vectors[function_id(name)] = np.array(line.strip(" []\n").split(), np.float64)
    return vectors


def judged(effects: MeasuredEffects, inputs: Floats, *, seed: int) -> tuple[float, float]:
    """Fit an ensemble to the inputs [N, W] of the flips.

    Returns:
        The correlation of predicted and measured changes on projects that members were not fitted on; and the bytes
        saved by the single flips that these members want, as a share of those saved by all flips that save.
    """
    names = tuple(f"input {index}" for index in range(inputs.shape[1]))
    settings = EffectConfig(gate_feature="")
    varied = dataclasses.replace(effects, names=names, values=inputs, departs=None)
    policy, report = fit_effects(varied, settings, problem=INLINE_SIZE.name, rng=np.random.default_rng(seed))
    answers = np.concatenate([policy.answers(part) for part in np.array_split(inputs, 1 + len(inputs) // 4096)], axis=1)
    unseen = ~report.fitted_on[:, effects.project[effects.component]]
    count = np.maximum(unseen.sum(axis=0), 1)
    mean = (answers * unseen).sum(axis=0) / count
    deviation = np.sqrt(np.maximum((answers**2 * unseen).sum(axis=0) / count - mean**2, 0))
    alone = np.bincount(effects.component)[effects.component] == 1
    wanted = alone & (-effects.sign * mean > settings.gate_margin + settings.doubt * deviation)
    saved = -effects.change[effects.component].astype(np.float64)
    return report.correlation, float(saved[wanted].sum() / np.maximum(saved[alone], 0).sum())


if __name__ == "__main__":
    sys.exit(main())

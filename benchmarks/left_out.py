"""What would the reference's methods cost or give that are not here: IR2Vec, recurrent networks, RND, trust regions?"""

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from harness import Setup, draw_modules, run_benchmark
from results import Result, Table
from tflite_agreement import observed

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.problems import INLINE_SIZE

Floats = npt.NDArray[np.float32]

DIMENSIONS = 75
_OPCODES = (
    "Ret Br Switch IndirectBr Invoke Resume Unreachable CleanupRet CatchRet CatchSwitch CallBr FNeg Add FAdd Sub FSub "
    "Mul FMul UDiv SDiv FDiv URem SRem FRem Shl LShr AShr And Or Xor Alloca Load Store GetElementPtr Fence "
    "AtomicCmpXchg AtomicRMW Trunc ZExt SExt FPToUI FPToSI UIToFP SIToFP FPTrunc FPExt PtrToInt PtrToAddr IntToPtr "
    "BitCast AddrSpaceCast CleanupPad CatchPad ICmp FCmp PHI Call Select UserOp1 UserOp2 VAArg ExtractElement "
    "InsertElement ShuffleVector ExtractValue InsertValue LandingPad Freeze"
)
_TYPES = "FloatTy VoidTy LabelTy MetadataTy UnknownTy TokenTy IntegerTy FunctionTy PointerTy StructTy ArrayTy VectorTy"
_ARGUMENTS = "Function Pointer Constant Variable"
_FLOATS = "false oeq ogt oge olt ole one ord uno ueq ugt uge ult ule une true"
_INTEGERS = "eq ne ugt uge ult ule sgt sge slt sle"
VOCABULARY = {
    "Opcodes": _OPCODES.split(),
    "Types": _TYPES.split(),
    "Arguments": [
        *_ARGUMENTS.split(),
        *(f"FCMP_{name}" for name in _FLOATS.split()),
        *(f"ICMP_{name}" for name in _INTEGERS.split()),
    ],
}
"""What a vocabulary of IR2Vec has numbers for."""
WEIGHTS = 5342
"""Of the reference's inlining network."""
ES_WEIGHTS = 17154
"""Of the network of its evolution strategies."""
ROUNDS = 7
_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Measure what four methods of the reference would cost here, or would tell a learner."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus whose modules are read for IR2Vec."""
    trace: Path = Path("quickstart/trace")
    """Logs of inlining under LLVM's heuristic."""
    always: Path = Path("trace-always")
    """Logs of the same modules under :always."""
    modules: int = 30
    """Modules drawn for IR2Vec."""
    observations: int = 40_000
    """Most observations of each policy for RND."""
    seed: int = 1
    """Of all draws."""
    llvm: int = 22
    """LLVM major to use; IR2Vec is in LLVM from 21 on."""
    json: Path = Path("docs/results/left_out.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(LeftOut, measure, arguments)


def measure(config: LeftOut, setup: Setup) -> Result:
    """All four.

    Raises:
        ToolError: opt is missing, or has no IR2Vec.
    """
    rng = np.random.default_rng(config.seed)
    toolchain = setup.toolchain(config.llvm)
    modules = draw_modules(setup.corpus(config.corpus).modules, config.modules, rng)
    embedded = ir2vec(toolchain, modules, setup)
    decisions = recurrent(rng)
    steps = trust_region(rng)
    novelty = bonus(config, rng, setup)
    plain, symbolic, flow = (sum(float(row[column]) for row in embedded) for column in (1, 2, 3))
    return Result(
        benchmark="left_out",
        question="What would IR2Vec, recurrent networks, random network distillation and trust regions cost or give?",
        answer=f"reading a module and embedding it by IR2Vec takes {symbolic / plain:.0%} of its -Oz pipeline, "
        f"flow-aware {flow / plain:.0%}; a recurrent decision {decisions[1][2] / decisions[0][2]:.1f} times as long as "
        f"one of the network in numpy; a dense Hessian {steps[1][2]:.0f} times as long as Adam's step; the bonus of "
        f"inlining all is {novelty[2][2]:.2f} of LLVM's",
        seed=config.seed,
        tables=(
            Table(
                title="IR2Vec",
                columns=("modules", "-Oz pipeline (s)", "symbolic (s)", "flow-aware (s)"),
                rows=((len(embedded), plain, symbolic, flow),),
                note="User time, least of 2: opt's default<Oz> less reading the module, and llvm-ir2vec for all "
                "functions, which reads the module, too, and prints their vectors. The vocabulary has "
                f"{DIMENSIONS} drawn dimensions, as many as LLVM's; Debian's packages have none. It is once for each "
                "function, before the inliner; LLVM's advisor embeds a caller anew after each call that is inlined.",
            ),
            Table(
                title="Recurrent networks",
                columns=("network", "weights", "microseconds for a decision", "milliseconds for a step of training"),
                rows=tuple(decisions),
                note="The reference's: features three times, dense 20 and 10, LSTM of 10, dense 2; beside it 40, 40 "
                "and 20. A decision is by numpy, one at a time, least of several; a step of training is 512 windows of "
                "16 decisions by JAX, forward and backward.",
            ),
            Table(
                title="Trust region",
                columns=("step", "weights", "milliseconds", "megabytes of state"),
                rows=tuple(steps),
                note="The reference's optimizer estimates a dense matrix of second derivatives from 100 antithetic "
                "pairs by default, and solves a problem with it; here the estimate and ten products with a vector. "
                f"Its evolution strategies have {ES_WEIGHTS} weights, with which the matrix alone is "
                f"{ES_WEIGHTS**2 * 4 / 1e9:.1f} GB.",
            ),
            Table(
                title="Random network distillation",
                columns=("observations", "count", "mean bonus, of that of other modules under the heuristic"),
                rows=tuple(novelty),
                note="A predictor (dense 32 and 128, Adam 1e-4) learned a drawn target on half of the modules under "
                "LLVM's heuristic. A bonus that tells new decisions from known ones is larger where all calls "
                "are inlined than where LLVM decides, in the same modules.",
            ),
        ),
    )


def ir2vec(toolchain: Toolchain, modules: Sequence[Module], setup: Setup) -> list[tuple[str, float, float, float]]:
    """Of each module, user seconds of the pipeline and of embedding all functions in two ways."""
    if toolchain.opt is None:
        raise ToolError(f"opt: expected it beside {toolchain.clang}, found none; install llvm-{toolchain.major}")
    rng = np.random.default_rng(0)
    vocab = {
        part: {name: rng.normal(size=DIMENSIONS).round(6).tolist() for name in names}
        for part, names in VOCABULARY.items()
    }
    rows: list[tuple[str, float, float, float]] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-ir2vec-") as scratch:
        path = Path(scratch) / "vocab.json"
        path.write_text(json.dumps(vocab))
        for index, module in enumerate(modules):
            setup.report(index, len(modules), "embed")

            opt, embed = toolchain.opt, toolchain.opt.with_name("llvm-ir2vec")
            reading = _user_seconds([opt, "-passes=verify", "-disable-output", module.bitcode])
            plain = _user_seconds([opt, "-passes=default<Oz>", "-disable-output", module.bitcode]) - reading
            kinds = [
                _user_seconds(
                    [embed, "embeddings", "--mode=llvm", "--level=func", f"--ir2vec-vocab-path={path}",
                     f"--ir2vec-kind={kind}", module.bitcode, "-o", "/dev/null"]
                )
                for kind in ("symbolic", "flow-aware")
            ]  # fmt: skip
            rows.append((module.name, plain, kinds[0], kinds[1]))
    return rows


def _user_seconds(words: Sequence[str | Path]) -> float:
    runs = [process.run(words, timeout_seconds=_SECONDS) for _ in range(2)]
    if any(run.returncode for run in runs):
        raise ToolError(f"{words[0]}: expected it to succeed, found: {runs[0].stderr[-200:]}; install llvm-22")
    return min(run.user_seconds for run in runs)


def _least(work: Callable[[], Any], count: int) -> float:
    taken: list[float] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        taken.append((time.perf_counter() - begin) / count)
    return min(taken)


def _dense(rng: np.random.Generator, *sizes: int) -> list[tuple[Floats, Floats]]:
    return [
        ((rng.normal(size=(a, b)) / np.sqrt(a)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(sizes)
    ]


def recurrent(rng: np.random.Generator) -> list[tuple[str, int, float, float]]:
    """A network and a recurrent one of the reference's sizes: weights, a decision, and a step of training."""
    features = 35
    feed = _dense(rng, 2 * features, 40, 40, 20, 2)
    first, last = _dense(rng, 3 * features, 20, 10), _dense(rng, 10, 2)
    gates, again = _dense(rng, 10, 40), _dense(rng, 10, 40)
    parameters: Any = {"first": first, "gates": [*gates, *again], "last": last}

    def forward(x: Any, layers: Any, where: Any) -> Any:
        for index, (weight, bias) in enumerate(layers):
            x = x @ weight + bias
            x = where.maximum(x, 0) if index < len(layers) - 1 else x
        return x

    def cell(x: Any, state: Any, weights: Any, where: Any) -> Any:
        hidden, memory = state
        both = x @ weights[0][0] + hidden @ weights[1][0] + weights[0][1]
        first_, second, third, fourth = where.split(both, 4, axis=-1)

        def squeeze(value: Any) -> Any:
            return 1 / (1 + where.exp(-value))

        memory = squeeze(second) * memory + squeeze(first_) * where.tanh(third)
        return squeeze(fourth) * where.tanh(memory), memory

    one = rng.normal(size=2 * features).astype(np.float32)
    wide = rng.normal(size=3 * features).astype(np.float32)
    state = (np.zeros(10, np.float32), np.zeros(10, np.float32))
    plain = _least(lambda: forward(one, feed, np), 2000)
    stepped = _least(
        lambda: forward(cell(np.maximum(forward(wide, first, np), 0), state, [*gates, *again], np)[0], last, np), 2000
    )
    rows = rng.normal(size=(512, 16, 3 * features)).astype(np.float32)

    @jax.jit
    def by_network(layers: Any) -> Any:
        return jax.grad(lambda p: forward(rows[..., : 2 * features], p, jnp).mean())(layers)

    @jax.jit
    def by_cell(weights: Any) -> Any:
        def loss(p: Any) -> Any:
            inputs = jnp.maximum(forward(rows, p["first"], jnp), 0)

            def step(state: Any, x: Any) -> Any:
                state = cell(x, state, p["gates"], jnp)
                return state, forward(state[0], p["last"], jnp)

            start = (jnp.zeros((512, 10)), jnp.zeros((512, 10)))
            return jax.lax.scan(step, start, inputs.swapaxes(0, 1))[1].mean()

        return jax.grad(loss)(weights)

    trained = [
        _least(lambda work=work, given=given: jax.block_until_ready(work(given)), 3)
        for work, given in ((by_network, feed), (by_cell, parameters))
    ]
    counts = [
        sum(weight.size + bias.size for weight, bias in layers) for layers in (feed, [*first, *gates, *again, *last])
    ]
    return [
        ("40, 40, 20", counts[0], plain * 1e6, trained[0] * 1e3),
        ("20, 10, LSTM 10", counts[1], stepped * 1e6, trained[1] * 1e3),
    ]


def trust_region(rng: np.random.Generator) -> list[tuple[str, int, float, float]]:
    """One step by Adam, and the matrix that a trust region needs, for the reference's inlining network."""
    noise = rng.normal(size=(100, WEIGHTS)).astype(np.float32)
    values = rng.normal(size=100).astype(np.float32)
    state = np.zeros((2, WEIGHTS), np.float32)

    def adam() -> Floats:
        gradient = values @ noise / 100
        state[0] = 0.9 * state[0] + 0.1 * gradient
        state[1] = 0.999 * state[1] + 0.001 * gradient**2
        return state[0] / (np.sqrt(state[1]) + 1e-7)

    def second() -> Floats:
        matrix = (noise * values[:, None]).T @ noise / 100
        matrix[np.diag_indices(WEIGHTS)] -= values.mean()
        direction = noise[0]
        for _ in range(10):
            direction = matrix @ direction
            direction /= np.linalg.norm(direction)
        return direction

    return [
        ("Adam", WEIGHTS, _least(adam, 20) * 1e3, state.nbytes / 1e6),
        ("dense second derivatives", WEIGHTS, _least(second, 1) * 1e3, WEIGHTS**2 * 4 / 1e6),
    ]


def bonus(config: LeftOut, rng: np.random.Generator, setup: Setup) -> list[tuple[str, int, float]]:
    """What a predictor misses of a drawn target on observations that it learned from, and on others."""
    names = INLINE_SIZE.feature_names
    tables: dict[str, npt.NDArray[np.float64]] = {}
    for name, folder in (("heuristic", config.trace), ("always", config.always)):
        columns = observed(
            INLINE_SIZE, (folder,), config.observations, np.random.default_rng(config.seed), setup.report
        )
        tables[name] = np.stack([columns[feature].ravel() for feature in names], axis=1).astype(np.float64)
    # Observations come module by module, in the order of the names: halves are of different modules.
    known, other = np.array_split(tables["heuristic"], 2)
    drawn = tables["always"][len(tables["always"]) // 2 :]
    normaliser = fit_signed_log(known)
    target, predictor = (_dense(rng, normaliser.width, 32, 128) for _ in range(2))

    def encoded(layers: Any, x: Any) -> Any:
        return jnp.maximum(x @ layers[0][0] + layers[0][1], 0) @ layers[1][0] + layers[1][1]

    def missed(layers: Any, x: Any) -> Any:
        return ((encoded(layers, x) - encoded(target, x)) ** 2).sum(axis=1)

    optimiser = optax.adam(1e-4)

    @jax.jit
    def step(layers: Any, state: Any, x: Any) -> Any:
        gradient = jax.grad(lambda p: missed(p, x).mean())(layers)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(layers, updates), state

    inputs = {name: np.asarray(normaliser.apply(rows), np.float32) for name, rows in
              (("known", known), ("other", other), ("drawn", drawn))}  # fmt: skip
    state = optimiser.init(predictor)
    for _ in range(20):
        order = rng.permutation(len(inputs["known"]))
        for begin in range(0, len(order) - 255, 256):
            predictor, state = step(predictor, state, inputs["known"][order[begin : begin + 256]])
    means = {name: float(missed(predictor, rows).mean()) for name, rows in inputs.items()}
    return [
        ("LLVM's, learned from", len(known), means["known"] / means["other"]),
        ("LLVM's, other modules", len(other), 1.0),
        ("all inlined, those other modules", len(drawn), means["drawn"] / means["other"]),
    ]


if __name__ == "__main__":
    sys.exit(main())

"""Policies and TFLite models decide alike: both ways, on recorded observations, against TFLite's own interpreter.

Needs the packages ai-edge-litert, tflite and flatbuffers. Observations are those of traces; networks are drawn, with
normalisers and vocabularies fitted to the observations, so that decisions go both ways.
"""

import importlib
import itertools
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import made_models as models
import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.commands.vocab import trace_logs
from mlgokit.errors import ToolError
from mlgokit.export.tflite import MODEL, export_tflite
from mlgokit.policy.exploration import Exploration, choose_column, priority_of
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.policy.tflite.file import graph_bytes, read_graph
from mlgokit.policy.tflite.read_policy import read_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.progress import Report

BAR = 1e-6
HIDDEN = (48, 48)
_CHUNK = 2000
_LOGITS_EVERY = 4
Columns = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class TfliteAgreement:
    """Compare policies with the models that they become, and models with the policies that they become."""

    inlining: tuple[Path, ...] = (Path("quickstart/trace"),)
    """Folders with logs of inlining."""
    eviction: tuple[Path, ...] = (Path("trace-eviction"),)
    """Folders with logs of eviction (`mlgokit trace --problem regalloc-eviction`)."""
    priority: tuple[Path, ...] = (Path("trace-priority"),)
    """Folders with logs of priorities (`mlgokit trace --problem regalloc-priority`)."""
    observations: int = 100_000
    """Most observations of each problem."""
    seed: int = 1
    """Of the draw of observations and networks."""
    json: Path = Path("docs/results/tflite.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TfliteAgreement, measure, arguments)


def measure(config: TfliteAgreement, setup: Setup) -> Result:
    """Read observations, make policies and models, and compare what they answer."""
    interpreter = _interpreter(setup)
    rng = np.random.default_rng(config.seed)
    rows: list[tuple[Cell, ...]] = []
    folders = {INLINE_SIZE: config.inlining, REGALLOC_EVICTION: config.eviction, REGALLOC_PRIORITY: config.priority}
    for problem, chosen in folders.items():
        columns = observed(problem, chosen, config.observations, rng, setup.report)
        for name, make in cases(problem).items():
            with tempfile.TemporaryDirectory(prefix="mlgokit-tflite-") as scratch:
                policy, greedy, logits = make(columns, rng, Path(scratch))
            # A priority is its own logit.
            numbers = greedy if problem is REGALLOC_PRIORITY else logits
            models_of = Models(
                greedy=interpreter(greedy, False),
                logits=interpreter(numbers, False) if numbers else None,
                plain=interpreter(numbers, True) if numbers else None,
            )
            answer = compared(policy, models_of, columns, setup.report)
            rows.append((problem.name, name, policy.members, len(greedy), *answer))
    table = Table(
        title="Answers of policies and models",
        columns=(
            "problem",
            "policy",
            "members",
            "bytes of the model",
            "observations",
            "decisions that differ",
            "of these, questions with NaN",
            "largest difference of logits",
            "between TFLite's own kernels",
            "largest logit",
        ),
        rows=tuple(rows),
        note="Logits are preferences, or those of legal columns, of every fourth observation; of priorities, the "
        "priority itself. TFLite's own kernels are its fast and its plain ones, which add in other orders: what lies "
        "between these two is rounding to floats. A model takes NaN for more than all boundaries, and so does a "
        "policy that was made of it; a model that was made of a policy takes it for what the policy does.",
    )
    decided = [row for row in rows if row[0] != REGALLOC_PRIORITY.name]
    worst, kernels = (max(float(row[place] or 0) for row in decided) for place in (7, 8))
    differing, total = (sum(int(row[place] or 0) for row in decided) for place in (5, 4))
    priorities = max(float(row[7] or 0) / float(row[9] or 1) for row in rows if row not in decided)
    bar = f"{BAR:g}"
    return Result(
        benchmark="tflite_agreement",
        question="Do policies and TFLite models decide alike, exported and imported, on recorded observations?",
        answer=f"{differing} of {total:,} decisions differ that are not priorities; "
        f"logits differ by at most {worst:.2g}, TFLite's own kernels by {kernels:.2g}, "
        f"and priorities by {priorities:.2g} of the largest",
        bar=f"no such decision differs, logits differ by at most {bar}, and priorities by {bar} of the largest",
        passed=differing == 0 and max(worst, priorities) <= BAR,
        seed=config.seed,
        tables=(table,),
    )


def _interpreter(setup: Setup) -> Callable[[bytes, bool], "Model"]:
    """What runs a model, by TFLite's fast kernels or by its plain ones."""
    try:
        module = importlib.import_module("ai_edge_litert.interpreter")
        version = importlib.import_module("importlib.metadata").version("ai-edge-litert")
    except ImportError as error:
        raise ToolError(
            "ai-edge-litert: expected the package, found none; install it with `pip install ai-edge-litert`"
        ) from error
    setup.tools["ai-edge-litert"] = version
    kinds = module.OpResolverType
    return lambda data, plain: Model(
        module.Interpreter(model_content=data, experimental_op_resolver_type=kinds.BUILTIN_REF if plain else kinds.AUTO)
    )


class Model:
    """A model in TFLite's interpreter."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        interpreter.allocate_tensors()
        details = {detail["name"]: detail for detail in interpreter.get_input_details()}
        self._inputs = {name.removeprefix("action_").removesuffix(":0"): detail for name, detail in details.items()}
        self._outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}

    def answer(self, columns: Columns, row: int, output: str) -> np.ndarray:
        """One output for one observation."""
        for name, detail in self._inputs.items():
            if name in columns:
                value = columns[name][row].reshape(detail["shape"])
                self._interpreter.set_tensor(detail["index"], value.astype(detail["dtype"], copy=False))
        self._interpreter.invoke()
        return self._interpreter.get_tensor(self._outputs[output])


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models of one policy: one that decides, and if there are, one with logits by fast and by plain kernels."""

    greedy: Model
    logits: Model | None
    plain: Model | None


def observed(
    problem: Problem, folders: Sequence[Path], count: int, rng: np.random.Generator, report: Report
) -> Columns:
    """The features of up to ``count`` observations of a problem, drawn from logs; [T, elements] each."""
    names = [*problem.feature_names, problem.default_decision]
    logs = itertools.chain.from_iterable(
        trace_logs(folder, report=report, label=f"read {problem.name}") for folder in folders
    )
    parts: list[Columns] = [
        {name: log.columns[name].reshape(log.observation_count, -1) for name in names}
        for log in logs
        if log.observation_count
    ]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in names}
    total = len(whole[problem.feature_names[0]])
    chosen = np.sort(rng.permutation(total)[:count])
    return {name: values[chosen] for name, values in whole.items()}


Case = Callable[[Columns, np.random.Generator, Path], tuple[Policy, bytes, bytes]]
"""A policy, its greedy model, and the one with logits if there is one."""


def cases(problem: Problem) -> dict[str, Case]:
    """What is compared of a problem, by what it is called."""

    def exported(output: OutputKind, *, quantile: bool = False, members: int = 6, **settings: Any) -> Case:
        def make(columns: Columns, rng: np.random.Generator, scratch: Path) -> tuple[Policy, bytes, bytes]:
            policy = drawn_policy(problem, columns, rng, output=output, quantile=quantile, members=members, **settings)
            save_policy(policy, scratch / "policy")
            export_tflite(scratch / "policy", scratch / "greedy", heuristic="input")
            greedy = (scratch / "greedy" / MODEL).read_bytes()
            if problem is REGALLOC_PRIORITY:
                return policy, greedy, b""
            export_tflite(scratch / "policy", scratch / "collect", collect=True, heuristic="input")
            return policy, greedy, (scratch / "collect" / MODEL).read_bytes()

        return make

    effects, columns, priority = OutputKind.EFFECT_BYTES, OutputKind.COLUMN_LOGIT, OutputKind.PRIORITY
    if problem is INLINE_SIZE:
        return {
            "exported, effects, signed logarithm": exported(effects, bytes_per_unit=5.0),
            "exported, effects with doubt": exported(effects, doubt=0.5),
            "exported, logits, quantiles": exported(OutputKind.LOGITS, quantile=True, members=1),
            "imported, the reference's network": imported_inliner,
        }
    if problem is REGALLOC_EVICTION:
        return {
            "exported, signed logarithm": exported(columns, caution=0.25),
            "imported, the reference's network": imported_evictor,
        }
    return {"exported, signed logarithm": exported(priority)}


def table_of(features: Sequence[str], columns: Columns, rows: slice) -> np.ndarray:
    """[T, C, F] raw values, a feature of one element in every column."""
    width = max(columns[name].shape[1] for name in features)
    parts = [np.broadcast_to(columns[name][rows], (len(columns[name][rows]), width)) for name in features]
    return np.stack(parts, axis=-1).astype(np.float64)


def drawn_policy(
    problem: Problem,
    columns: Columns,
    rng: np.random.Generator,
    *,
    output: OutputKind,
    quantile: bool,
    members: int,
    **settings: Any,
) -> Policy:
    """A policy of all features with drawn weights, whose answers are around 0."""
    some = table_of(problem.feature_names, columns, slice(0, 4000)).reshape(-1, len(problem.features))
    normaliser = fit_quantile(some) if quantile else fit_signed_log(some)
    widths = (normaliser.width, *HIDDEN, output.width)
    layers = tuple(
        Layer(
            (rng.normal(size=(members, before, after)) / np.sqrt(before)).astype(np.float32),
            (rng.normal(size=(members, after)) / 4).astype(np.float32),
        )
        for before, after in itertools.pairwise(widths)
    )
    return Policy(
        problem=problem.name,
        features=problem.feature_names,
        normaliser=normaliser,
        layers=layers,
        output=output,
        mask=problem.mask or "",
        **settings,
    )


def fitted_vocab(features: Sequence[str], columns: Columns, lines: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Quantiles of each feature's finite values: 999, or as many as said, without the two ends."""
    found: dict[str, np.ndarray] = {}
    for name in features:
        values = columns[name].ravel().astype(np.float64)
        found[name] = np.quantile(values[np.isfinite(values)], np.linspace(0, 1, lines.get(name, 999) + 2)[1:-1])
    return found


def imported_inliner(columns: Columns, rng: np.random.Generator, _: Path) -> tuple[Policy, bytes, bytes]:
    """The reference's network for inlining, and what it becomes here."""
    vocab = fitted_vocab(models.INLINE_FEATURES, columns, {"callsite_cost": 9999, "cost_estimate": 9999})
    weights = models.drawn_weights(rng, 70, 40, 40, 20, 2)
    greedy, draws = (graph_bytes(models.inline_model(vocab, weights, draws=draws)) for draws in (False, True))
    return read_policy(read_graph(greedy, "model"), "model").policy, greedy, draws


def imported_evictor(columns: Columns, rng: np.random.Generator, _: Path) -> tuple[Policy, bytes, bytes]:
    """The reference's network for eviction, and what it becomes here."""
    vocab = fitted_vocab((*models.RANKED, "use_def_density", "progress"), columns, {})
    embeddings = {name: rng.normal(size=(7, 4)) for name in models.STAGES}
    weights = models.drawn_weights(rng, models.COLUMN_WIDTH, 80, 40, 1)
    greedy = graph_bytes(models.eviction_model(vocab, embeddings, weights))
    return read_policy(read_graph(greedy, "model"), "model").policy, greedy, b""


def compared(policy: Policy, models_of: Models, columns: Columns, report: Report) -> tuple[Cell, ...]:
    """Observations, differing decisions, and differences of logits: of policy and model, of kernels; the largest."""
    problem = PROBLEMS[policy.problem]
    total = len(columns[problem.feature_names[0]])
    differing, without_number, apart, kernels, largest = 0, 0, 0.0, 0.0, 0.0
    for start in range(0, total, _CHUNK):
        report(start, total, f"compare {problem.name}")
        rows = slice(start, min(start + _CHUNK, total))
        expected = answers_of(problem, policy, columns, rows)
        for row, own in zip(range(rows.start, rows.stop), expected, strict=True):
            decision = models_of.greedy.answer(columns, row, f"{models.OUTPUT}:0").ravel()[0]
            legal = columns[problem.mask][row] != 0 if problem.mask else np.ones(len(own), np.bool_)
            if problem is INLINE_SIZE:
                taken = int(own[0] > 0)
            elif problem is REGALLOC_EVICTION:
                taken = choose_column(own.tolist(), columns["mask"][row].tolist(), Exploration(), 0.5, 0.5)[0]
            else:
                taken = priority_of(float(own[0]))
            if taken != decision:
                differing += 1
                without_number += any(bool(np.isnan(values[row]).any()) for values in columns.values())
            if models_of.logits is None or models_of.plain is None or row % _LOGITS_EVERY:
                continue
            answer = np.array([taken]) if problem is REGALLOC_PRIORITY else own
            found, plain = (logits_of(problem, model, columns, row) for model in (models_of.logits, models_of.plain))
            apart = max(apart, _most(found - answer, legal))
            kernels = max(kernels, _most(found - plain, legal))
            largest = max(largest, _most(answer, legal))
    measured = (apart, kernels, largest) if models_of.logits else (None, None, None)
    return total, differing, without_number, *measured


def logits_of(problem: Problem, model: Model, columns: Columns, row: int) -> np.ndarray:
    """What a model answers in numbers: a preference, logits or a priority."""
    found = model.answer(columns, row, f"{models.OUTPUT}:0").ravel().astype(np.float64)
    return np.array([found[1] - found[0]]) if problem is INLINE_SIZE else found


def _most(values: np.ndarray, legal: np.ndarray) -> float:
    return float(np.abs(values)[legal].max(initial=0))


def answers_of(problem: Problem, policy: Policy, columns: Columns, rows: slice) -> np.ndarray:
    """[T, C] preferences, logits or unit numbers."""
    table = table_of(policy.features, columns, rows)
    if problem is INLINE_SIZE:
        return policy.preferences(table[:, 0], columns[problem.default_decision][rows].ravel() != 0)[:, None]
    if problem is REGALLOC_EVICTION:
        return policy.column_logits(table)
    return policy.units(table[:, 0])[:, None]


if __name__ == "__main__":
    sys.exit(main())

"""Do models for LLVM's release mode decide as the plugin and numpy do on what a compiler asked, and how fast?"""

import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from embedded_model import ask_model, build_driver
from harness import Setup, draw_modules, run_benchmark
from policy_speed import build_driver as build_plugin_driver, shape_of, time_policy
from results import Cell, Result, Table

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.errors import CorpusError
from mlgokit.export.release import export_release
from mlgokit.learning.decision_batch import feature_rows
from mlgokit.module import Module
from mlgokit.policy.exploration import priority_of
from mlgokit.policy.network import HEURISTIC_PREFERENCE, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report
from mlgokit.traces import ContextSpan, Log

REFERENCE_MICROSECONDS = 37.9
"""Of google/ml-compiler-opt's inlining model, compiled ahead of time, on another machine."""
MEMBERS = 5
HIDDEN = (40, 40, 20)
OUTPUTS = {
    INLINE_SIZE.name: OutputKind.EFFECT_BYTES,
    REGALLOC_EVICTION.name: OutputKind.COLUMN_LOGIT,
    REGALLOC_PRIORITY.name: OutputKind.PRIORITY,
}
_FITTED_MODULES = 8
_CHUNK = 1000
_ALONE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseMode:
    """Ask models of `mlgokit export llvm` what the plugin was asked, through LLVM's own ReleaseModeModelRunner."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    beside: tuple[Path, ...] = ()
    """More corpora, of other levels, whose modules are asked about evictions alone."""
    modules: int = 0
    """Modules drawn from all projects, whose observations are used; 0 for all."""
    observations: int = 100_000
    """Observations of each problem after which no module is compiled for it."""
    minutes: float = 60
    """Time after which no module of the corpus is compiled, and as much again for those beside it."""
    repetitions: int = 5
    """Passes over all observations that are timed."""
    seed: int = 1
    """Of the draw of modules and of the networks."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/release_mode.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ReleaseMode, measure, arguments)


def measure(config: ReleaseMode, setup: Setup) -> Result:
    """Draw policies, record what the plugin is asked and decides by them, export them, and ask the models the same."""
    rng = np.random.default_rng(config.seed)
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    plugin = build_plugin(toolchain)
    modules = draw_modules(corpus.modules, config.modules, rng)
    drawn = [modules[int(index)] for index in rng.permutation(len(modules))]
    beside = [
        module
        for number, folder in enumerate(config.beside)
        for module in setup.corpus(folder, f"corpus beside it {number + 1}").modules
    ]
    clang = ClangCompiler(toolchain=toolchain, plugin=plugin)
    rows: list[tuple[Cell, ...]] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-release-") as scratch:
        folder = Path(scratch)
        rules = dict.fromkeys(OUTPUTS, HEURISTIC)
        seen = recorded(clang, drawn[:_FITTED_MODULES], rules, config, setup.report)
        policies = {name: draw_policy(name, log, rng) for name, log in seen.items()}
        for name, policy in policies.items():
            save_policy(policy, folder / f"{name}.policy")
        files = {name: str(folder / f"{name}.policy") for name in policies}
        logs = recorded(clang, drawn, files, config, setup.report)
        if beside:
            name = REGALLOC_EVICTION.name
            more = recorded(clang, beside, {name: files[name]}, config, setup.report)
            logs[name] = joined([logs[name], more[name]], config.observations)
        inlined = np.empty(0, np.int64)
        for index, (name, log) in enumerate(logs.items()):
            setup.report(index, len(logs), "ask")
            problem, policy = PROBLEMS[name], policies[name]
            made = export_release(toolchain, [Path(files[name])], folder)
            driver = build_driver(toolchain, Path(made.header), problem, folder / name)
            answers = ask_model(driver, problem, log, folder, repetitions=config.repetitions)
            decided = log.columns[problem.decision][:, 0]
            by_numpy, alone = decide(policy, log)
            inside = None
            if problem is INLINE_SIZE:
                inlined = answers.decisions
                values = feature_rows(problem, log, policy.features)
                timed = build_plugin_driver(toolchain, plugin.parent, folder)
                inside = time_policy(timed, policy, values, config.repetitions, folder).least
            least = min(answers.nanoseconds) / 1000
            rows.append((
                name, len(decided), policy.members, shape_of(policy), int((answers.decisions != decided).sum()),
                int((answers.decisions != by_numpy).sum()), alone, inside, least, made.size_bytes / 1000,
            ))  # fmt: skip
        setup.report(len(logs), len(logs), "ask")
    asked = logs[INLINE_SIZE.name].columns
    wanted = asked["inlining_default"][:, 0] != 0
    left = policies[INLINE_SIZE.name].preferences(
        feature_rows(INLINE_SIZE, logs[INLINE_SIZE.name], INLINE_SIZE.feature_names), wanted
    )
    is_left = np.abs(left) == HEURISTIC_PREFERENCE
    heuristic = Table(
        title="LLVM's heuristic",
        columns=(
            "calls", "inlined by it", "left to it by the policy", "of these, decided otherwise by the model",
            "calls with a cost estimate on the other side of 5",
        ),
        rows=((
            len(wanted), int(wanted.sum()), int(is_left.sum()), int((is_left & ((inlined != 0) != wanted)).sum()),
            int(((asked["cost_estimate"][:, 0] < 5) != wanted).sum()),
        ),),
        note="Where a policy leaves a call to LLVM, a model inlines what costs less than 5. LLVM's estimate, a "
        "feature, is too low for calls whose inlining makes others direct; the model takes that back.",
    )  # fmt: skip
    different = sum(int(row[4] or 0) + int(row[5] or 0) for row in rows)
    table = Table(
        title="Decisions",
        columns=(
            "problem", "observations", "members", "network", "other than the plugin's", "other than numpy's",
            "numpy (microseconds)", "plugin (microseconds)", "model (microseconds)", "object (kB)",
        ),
        rows=tuple(rows),
        note=(
            "Observations are what the plugin was asked in compilations with -Oz, about evictions also in those of the "
            "corpora beside, if there are, with the decisions that it took there by a policy for each problem, of "
            "drawn weights. The model is asked through LLVM's "
            f"ReleaseModeModelRunner, tensors copied in. Times are of one decision: numpy's mean of {_ALONE} single "
            f"decisions; the others' least of {config.repetitions} passes, each the mean over all observations. The "
            "plugin's own time is measured for inlining alone, its evaluation without the tensors. An eviction looks "
            f"at up to 33 columns. The reference's inlining model takes {REFERENCE_MICROSECONDS} microseconds on "
            "another machine."
        ),
    )  # fmt: skip
    return Result(
        benchmark="release_mode",
        question="Do models for LLVM's release mode decide as the plugin and numpy do, and how fast?",
        answer=f"{different} of {sum(int(row[1] or 0) for row in rows)} decisions differ; "
        + ", ".join(f"{row[0]} {row[8]:.2f} microseconds" for row in rows),
        bar="no decision differs",
        passed=different == 0,
        seed=config.seed,
        tables=(table, heuristic),
    )


def recorded(
    clang: ClangCompiler, modules: Sequence[Module], policies: dict[str, str], config: ReleaseMode, report: Report
) -> dict[str, Log]:
    """By problem, all that the plugin was asked in ``modules``, one after the other, with its decisions.

    Raises:
        CorpusError: a problem was not asked about.
    """
    parts: dict[str, list[Log]] = {name: [] for name in policies}
    deadline = time.monotonic() + 60 * config.minutes
    for index, module in enumerate(modules):
        report(index, len(modules), "record")
        open_ = [name for name in parts if sum(log.observation_count for log in parts[name]) < config.observations]
        if not open_ or (index and time.monotonic() > deadline):
            break
        done = clang.compile(
            module, CompileRequest(use=PluginUse(plugin=clang.plugin, policies=policies, logs=tuple(open_)), keep="log")
        )
        for name, log in done.logs.items():
            if log is not None and log.observation_count:
                parts[name].append(log)
    missing = [name for name, logs in parts.items() if not logs]
    if missing:
        raise CorpusError(
            f"observations: expected decisions for {missing[0]} in {len(modules)} modules, found none; use more modules"
        )
    return {name: joined(logs, config.observations) for name, logs in parts.items()}


def joined(logs: Sequence[Log], most: int) -> Log:
    """One log of all observations of ``logs``, at most so many."""
    columns = {name: np.concatenate([log.columns[name] for log in logs])[:most] for name in logs[0].columns}
    count = len(next(iter(columns.values())))
    return Log(header=logs[0].header, contexts=(ContextSpan(name="", start=0, stop=count),), columns=columns)


def draw_policy(name: str, log: Log, rng: np.random.Generator) -> Policy:
    """A policy of drawn weights over all features, whose answers to ``log`` lie on both sides of 0."""
    problem = PROBLEMS[name]
    values = feature_rows(problem, log, problem.feature_names).reshape(-1, len(problem.feature_names))
    normaliser = fit_signed_log(values)
    layers = [
        Layer(
            (rng.normal(size=(MEMBERS, inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32),
            (rng.normal(size=(MEMBERS, outputs)) * 0.1).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise((normaliser.width, *HIDDEN, 1))
    ]
    chooses = OUTPUTS[name] is OutputKind.COLUMN_LOGIT
    policy = Policy(
        problem=name, features=problem.feature_names, normaliser=normaliser, layers=tuple(layers),
        output=OUTPUTS[name], caution=0.4 if chooses else 0.0, mask=problem.mask or "",
    )  # fmt: skip
    if problem is not INLINE_SIZE:
        return policy
    middle = np.float32(np.median(policy.answers(values).mean(axis=0)))
    last = Layer(layers[-1].weight, layers[-1].bias - middle)
    return Policy(
        problem=name, features=policy.features, normaliser=normaliser, layers=(*layers[:-1], last),
        output=OUTPUTS[name], doubt=1.0,
    )  # fmt: skip


def decide(policy: Policy, log: Log) -> tuple[npt.NDArray[Any], float]:
    """What numpy decides, and its microseconds for a decision by itself."""
    rows = feature_rows(PROBLEMS[policy.problem], log, policy.features)
    # What else a decision needs: the columns that may be chosen, or what LLVM's heuristic wants.
    beside = log.columns.get({INLINE_SIZE.name: "inlining_default"}.get(policy.problem, policy.mask))
    known = np.zeros(len(rows), bool) if beside is None else beside.reshape(len(rows), -1) != 0
    known = known if policy.mask else known.reshape(-1)
    chunks = [slice(begin, begin + _CHUNK) for begin in range(0, len(rows), _CHUNK)]
    decided = np.concatenate([_decided(policy, rows[chunk], known[chunk]) for chunk in chunks])
    alone = min(_ALONE, len(rows))
    begin = time.perf_counter()
    for index in range(alone):
        one = slice(index, index + 1)
        _decided(policy, rows[one], known[one])
    return decided, (time.perf_counter() - begin) / alone * 1e6


def _decided(policy: Policy, rows: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    if policy.output is OutputKind.COLUMN_LOGIT:
        return np.where(known, policy.column_logits(rows), -np.inf).argmax(axis=1)
    if policy.output is OutputKind.PRIORITY:
        return np.array([priority_of(unit) for unit in policy.units(rows).tolist()], np.float32)
    return policy.preferences(rows, known) > 0


if __name__ == "__main__":
    sys.exit(main())

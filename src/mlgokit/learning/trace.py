"""Traces: the training log of every module under the heuristic or a policy, and its score next to the heuristic's.

The files are those of google/ml-compiler-opt's ``generate_default_trace``; docs/formats.md, "A trace folder", describes
them.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.regalloc_cost import align_scores, relative_changes
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.errors import InputError, TraceError, UsageError
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE, Problem
from mlgokit.progress import Report, say_nothing
from mlgokit.traces import read_log
from mlgokit.traces.tfrecord import open_record_writer
from mlgokit.traces.training_set import WHOLE_MODULE, to_sequences

FORMAT_VERSION = 1
PERFORMANCE = "performance.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which modules to compile, and which of their keys (functions, or whole modules) to write.

    Attributes:
        modules: regular expression that must match the beginning of a module's name.
        keys: regular expression that must match the beginning of a key: the name of a function, or for a problem whose
            context is the module that of the module.
        listed: set of keys to write; empty for all.
        share: share of the matching modules to draw at random.
        seed: random seed of the draw.
    """

    modules: re.Pattern[str]
    keys: re.Pattern[str]
    listed: frozenset[str]
    share: float
    seed: int

    def draw(self, modules: Sequence[Module]) -> list[Module]:
        """Draw a share of the modules whose names match, in their order.

        Raises:
            UsageError: no module is selected.
        """
        matching = [module for module in modules if self.modules.match(module.name)]
        count = int(len(matching) * self.share)
        if not count:
            raise UsageError(
                f"trace: expected at least one module, found none: {len(matching)} of {len(modules)} modules match "
                f"{self.modules.pattern!r}, and a share of {self.share:g} of these is less than one; give another "
                "filter or a larger share"
            )
        if count == len(matching):
            return matching
        chosen = np.random.default_rng(self.seed).choice(len(matching), count, replace=False)
        return [matching[index] for index in sorted(chosen.tolist())]

    def selects(self, key: str) -> bool:
        """Whether to write the scores and records of ``key``, the name of a function or module."""
        return self.keys.match(key) is not None and (not self.listed or key in self.listed)


def select(*, modules: str, keys: str, keys_file: Path | None, share: float, seed: int) -> Selection:
    """Parse a user's selection of modules to compile and of keys to write; empty expressions match everything.

    Raises:
        InputError: the file of keys cannot be read.
        UsageError: an expression is invalid, or the share is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise UsageError(f"sampling rate: expected a share above 0 and at most 1, found {share}; correct it")
    listed: frozenset[str] = frozenset()
    if keys_file is not None:
        try:
            listed = frozenset(filter(None, map(str.strip, keys_file.read_text().splitlines())))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{keys_file}: expected a key on each line, found: {error}; correct the path") from error
        if not listed:
            raise InputError(f"{keys_file}: expected a key on each line, found none; add one, or leave --keys-file out")
    return Selection(
        modules=_expression(modules, "module"), keys=_expression(keys, "key"), listed=listed, share=share, seed=seed
    )


def _expression(text: str, what: str) -> re.Pattern[str]:
    """Compile a user's regular expression; ``what`` names the filter in the error."""
    try:
        return re.compile(text)
    except re.error as error:
        message = f"{what} filter {text!r}: expected a regular expression, found: {error}; correct it"
        raise UsageError(message) from error


@dataclass(slots=True, kw_only=True)
class ModuleTrace:
    """The trace of a module.

    Attributes:
        module: the module.
        run: compilation under the traced policy.
        status: status of that compilation, or of the baseline's.
        reason: why there is no trace; empty for success.
        scores: for each key, the score under the heuristic and under the policy; empty after a failure.
        masked_defaults: number of observations whose mask excludes the heuristic's decision.
    """

    module: Module
    run: Compilation
    status: CompileStatus
    reason: str
    scores: dict[str, tuple[float, float]]
    masked_defaults: int = 0


def trace_modules(
    compiler: Compiler,
    modules: Sequence[Module],
    problem: Problem,
    *,
    policy: str,
    folder: Path,
    report: Report = say_nothing,
    regalloc: bool = True,
) -> list[ModuleTrace]:
    """Compile every module under ``policy``, and also under the heuristic if that is another; write logs to ``folder``.

    With ``regalloc``, functions are scored by the cost of their register allocation for problems of the allocator.
    Without it, for a compiler that cannot report this cost, modules are scored by size.
    """
    regalloc = regalloc and problem.by_regalloc_cost
    use = PluginUse(policies={problem.name: policy}, logs=(problem.name,), any_level=problem is INLINE_SIZE)
    request = CompileRequest(use=use, keep="none", regalloc=regalloc)
    plain = CompileRequest(keep="none", regalloc=regalloc)

    def trace_module(module: Module) -> ModuleTrace:
        """Compile a module under the policy, and then under the heuristic; compare their scores."""
        log = folder / f"{module.name}.log"
        run = compiler.compile(module, replace(request, keep_logs={problem.name: log}))
        base = run if policy == HEURISTIC or not run.ok else compiler.compile(module, plain)
        if not run.ok or not base.ok:
            status, reason = (run.status, run.reason) if not run.ok else (base.status, f"baseline: {base.reason}")
            return ModuleTrace(module=module, run=run, status=status, reason=reason, scores={})
        scores = _function_scores(base, run) if regalloc else _module_scores(base, run)
        masked = count_masked_defaults(log, problem) if problem.mask is not None and run.decision_count else 0
        return ModuleTrace(module=module, run=run, status=run.status, reason="", scores=scores, masked_defaults=masked)

    return parallel(trace_module, modules, workers=compiler, report=report, label="trace")


def count_masked_defaults(path: Path, problem: Problem) -> int:
    """Count the observations of a log in which the heuristic's choice is masked out; 0 if the log cannot be read.

    LLVM 22 masks out live ranges that have been evicted many times, so that a policy cannot loop for ever; the
    heuristic has no such guard. A policy that imitates the heuristic cannot do so in these observations.
    """
    try:
        log = read_log(path)
    except TraceError:
        return 0
    if not log.observation_count or problem.mask is None or problem.default_decision not in log.columns:
        return 0
    mask = log.columns[problem.mask].reshape(log.observation_count, -1)
    defaults = log.columns[problem.default_decision].reshape(-1)
    return int(np.count_nonzero(mask[np.arange(len(defaults)), defaults] == 0))


def _module_scores(base: Compilation, run: Compilation) -> dict[str, tuple[float, float]]:
    """Return the text sizes of both objects, as llvm-size reports them, under the key of the whole module."""
    if base.sizes is None or run.sizes is None:
        return {}
    return {WHOLE_MODULE: (base.sizes.llvm_size_text, run.sizes.llvm_size_text)}


def _function_scores(base: Compilation, run: Compilation) -> dict[str, tuple[float, float]]:
    """Return the costs of register allocation of each function for which either compilation has one."""
    if base.regalloc is None or run.regalloc is None:
        return {}
    names, before, after = align_scores(base.regalloc, run.regalloc)
    return dict(zip(names, zip(before.tolist(), after.tolist(), strict=True), strict=True))


def write_performance(path: Path, traces: Sequence[ModuleTrace], selection: Selection) -> int:
    """Write ``performance.csv``, lines ``module,key,default,policy`` of scores without a header; return their number.

    Raises:
        StorageError: the disk is full or not writable.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    count = 0
    for trace in traces:
        for key, (default, policy) in trace.scores.items():
            if selection.selects(_filter_key(key, trace.module)):
                lines.writerow([trace.module.name, key, default, policy])
                count += 1
    atomic_write(path, text.getvalue().encode("utf-8", "backslashreplace"))
    return count


def _filter_key(key: str, module: Module) -> str:
    """Return the name by which a key is selected: that of the module for a whole module."""
    return module.name if key == WHOLE_MODULE else key


def write_training_set(
    path: Path, traces: Sequence[ModuleTrace], problem: Problem, *, folder: Path, selection: Selection
) -> int:
    """Write the observations of all modules to one TFRecord file; return their number.

    The trace of a module whose log cannot be read any more becomes a failure.

    Raises:
        StorageError: the disk is full or not writable.
    """
    observations = 0
    with open_record_writer(path) as append:
        for trace in traces:
            if trace.reason or not trace.run.decision_count:
                continue
            try:
                for record, count in _records(trace, problem, folder, selection):
                    append(record)
                    observations += count
            except TraceError as error:
                trace.status, trace.reason = CompileStatus.BAD_TRACE, str(error)
    return observations


def _records(trace: ModuleTrace, problem: Problem, folder: Path, selection: Selection) -> Iterator[tuple[bytes, int]]:
    """Yield the records of a module, each with its number of observations."""
    log = read_log(folder / f"{trace.module.name}.log")
    counts: Counter[str] = Counter()
    for span in log.contexts:
        counts[span.name or WHOLE_MODULE] += span.stop - span.start
    wanted = [*problem.feature_names, problem.default_decision, problem.decision]
    names = [name for name in wanted if name in log.columns]
    keys = [key for key, count in counts.items() if count and selection.selects(_filter_key(key, trace.module))]
    # A function without costs in either object is in neither record: it scores 0.
    scores = np.array([trace.scores.get(key, (0.0, 0.0)) for key in keys]).reshape(-1, 2)
    rewards = dict(zip(keys, relative_changes(scores[:, 0], scores[:, 1]).tolist(), strict=True))
    records = to_sequences(log, names, module=trace.module.name, rewards=rewards)
    yield from zip(records, (counts[key] for key in keys), strict=True)


def write_summary(path: Path, traces: Sequence[ModuleTrace], problem: Problem) -> None:
    """Write ``traces.json``, the outcome of each module.

    Raises:
        StorageError: the disk is full or not writable.
    """
    rows: list[dict[str, Any]] = [
        {
            "module": trace.module.name,
            "project": trace.module.project,
            "status": trace.status.name.lower(),
            "reason": trace.reason,
            "decisions": trace.run.decision_count,
            "inlined": int(trace.run.decisions.inlined.sum()),
            "masked_defaults": trace.masked_defaults,
            "object_text_bytes": trace.run.sizes.llvm_size_text if trace.run.sizes is not None else None,
            "user_seconds": trace.run.user_seconds,
        }
        for trace in traces
    ]
    summary = {"format_version": FORMAT_VERSION, "problem": problem.name, "modules": rows}
    atomic_write(path, json.dumps(summary, indent=1))


def outcome(traces: Sequence[ModuleTrace]) -> dict[str, Any]:
    """Summarize: numbers of modules and decisions, and the failures with their reasons."""
    failed = [
        {"module": trace.module.name, "status": trace.status.name.lower(), "reason": trace.reason}
        for trace in traces
        if trace.status is not CompileStatus.OK
    ]
    return {
        "modules": len(traces),
        "succeeded": len(traces) - len(failed),
        "failures": dict(Counter(row["status"] for row in failed)),
        "failed": failed,
        "decisions": sum(trace.run.decision_count for trace in traces),
        "masked_defaults": sum(trace.masked_defaults for trace in traces),
        "user_seconds": sum(trace.run.user_seconds for trace in traces),
    }

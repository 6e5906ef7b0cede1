"""The command that writes a vocabulary: quantiles of each feature, from traces or training sets."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.errors import InputError, UsageError
from mlgokit.learning.decision_batch import ABOUT_DECISIONS
from mlgokit.locks import locked, reading
from mlgokit.policy.vocab import DEFAULT_BUCKETS, Columns, fit_vocab, write_vocab
from mlgokit.progress import Report, say_nothing
from mlgokit.traces import Log, iter_log
from mlgokit.traces.training_set import iter_training_set

OBSERVATIONS_PER_BATCH = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocab:
    """Write the quantiles of each feature as .buckets files, which google/ml-compiler-opt reads as well."""

    traces: Path | None = None
    """Folder that `mlgokit trace` made, or any folder with training logs (*.log) below it."""
    tfrecord: Path | None = None
    """TFRecord file of SequenceExamples, in place of --traces."""
    output: Path = Path("vocab")
    """Folder for the files <feature>.buckets."""
    sampling_fraction: float = 1.0
    """Share of the observations to read, drawn at random."""
    num_buckets: int = DEFAULT_BUCKETS
    """Number of buckets of each feature, which are quantiles of its values; its file has one on each line."""
    seed: int = 1
    """Random seed by which the observations are drawn."""


def run(config: Vocab, *, report: Report = say_nothing) -> dict[str, Any]:
    """Read all observations, in as many passes as bounded memory needs, and write the files.

    Raises:
        BusyError: another process writes into the output folder, or traces.
        InputError: there is no log, or one is damaged.
        UsageError: not exactly one source is named, the share is outside 0 to 1, or there are no observations.
    """
    if (config.traces is None) == (config.tfrecord is None):
        raise UsageError("vocab: expected either --traces or --tfrecord, found both or neither; name one")
    if not 0 < config.sampling_fraction <= 1:
        raise UsageError(
            f"--sampling-fraction: expected a share above 0 and at most 1, found {config.sampling_fraction:g}; "
            "correct it"
        )
    passes = 0

    def chunks() -> Iterator[Columns]:
        nonlocal passes
        passes += 1
        # Every pass over the data must draw the same observations.
        rng = np.random.default_rng(config.seed)
        for log in trace_logs(config.traces, config.tfrecord, report=report, label=f"vocab: pass {passes}"):
            count = log.observation_count
            keep = slice(None) if config.sampling_fraction == 1 else rng.random(count) < config.sampling_fraction
            yield {name: column[keep] for name, column in log.columns.items() if name not in ABOUT_DECISIONS}

    traces = contextlib.nullcontext() if config.traces is None else reading(config.traces)
    with locked(config.output), traces:
        found = fit_vocab(chunks, buckets=config.num_buckets)
        write_vocab(found, config.output)
    return {"folder": str(config.output), "features": list(found), "buckets": config.num_buckets, "passes": passes}


def trace_logs(
    traces: Path | None, tfrecord: Path | None = None, *, report: Report = say_nothing, label: str = "read"
) -> Iterator[Log]:
    """Read the logs below a folder, or those in a training set, batch by batch.

    Raises:
        InputError: there is no log, or one is damaged.
    """
    if tfrecord is not None:
        yield from iter_training_set(tfrecord, observations_per_batch=OBSERVATIONS_PER_BATCH)
        return
    paths = [] if traces is None else sorted(traces.rglob("*.log"))
    if not paths:
        raise InputError(f"traces {traces}: expected training logs (*.log), found none; run `mlgokit trace` first")
    for number, path in enumerate(paths):
        report(number, len(paths), label)
        yield from iter_log(path, observations_per_batch=OBSERVATIONS_PER_BATCH)
    report(len(paths), len(paths), label)

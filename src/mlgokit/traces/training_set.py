"""Converts training sets of google/ml-compiler-opt, which are TFRecord files of SequenceExamples, to logs and back.

docs/formats.md, "TFRecord", has the bytes. One record is one context: a module for inlining, a function for register
allocation. Each tensor of a log is a feature list under its own name, the score is the list ``reward``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import TraceError, UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces.log import ContextSpan, Log
from mlgokit.traces.record import Header
from mlgokit.traces.sequence_example import SequenceExample, decode_sequence, encode_sequence
from mlgokit.traces.tfrecord import Record, iter_records

REWARD = "reward"
"""Name of the feature list with the score of every step."""
WHOLE_MODULE = "default"
"""google/ml-compiler-opt's key of the record of a whole module."""
OBSERVATIONS_PER_BATCH = 2**16
"""Default number of observations up to which records are joined to one log."""

_TYPES = {"f": "float", "i": "int64_t"}


def to_sequences(log: Log, names: Sequence[str], *, module: str = "", rewards: Mapping[str, float]) -> Iterator[bytes]:
    """Encode each context of a log that has observations as a record; several spans of a context are joined.

    Args:
        log: the log.
        names: names of the features to write, with the decision; their tensors are flattened.
        module: name of the module, written as a label that google/ml-compiler-opt ignores.
        rewards: reward of each context (:data:`WHOLE_MODULE` for one without a name), given to all of its steps; other
            contexts are left out.

    Raises:
        UsageError: the log lacks one of the features.
    """
    missing = [name for name in names if name not in log.columns]
    if missing:
        raise UsageError(
            f"log of {module or 'a module'}: expected features {', '.join(missing)}, found {', '.join(log.columns)}; "
            "leave them out or trace with a compiler that has them"
        )
    rows: dict[str, list[NDArray[np.int64]]] = {}
    for span in log.contexts:
        rows.setdefault(span.name, []).append(np.arange(span.start, span.stop))
    for name, parts in rows.items():
        chosen = np.concatenate(parts)
        key = name or WHOLE_MODULE
        if not len(chosen) or key not in rewards:
            continue
        reward = np.full((len(chosen), 1), rewards[key], np.float32)
        columns: dict[str, NDArray[Any]] = {column: log.columns[column][chosen] for column in names}
        yield encode_sequence(columns | {REWARD: reward}, labels={"module": module, "key": key})


def iter_training_set(path: Path, *, observations_per_batch: int = OBSERVATIONS_PER_BATCH) -> Iterator[Log]:
    """Read a training set as logs, a batch at a time; all features are ``float`` or ``int64_t`` of one dimension.

    Args:
        path: path of a TFRecord file. Its first record says which features all must have; others are ignored.
        observations_per_batch: number of observations up to which records are joined to one log.

    Yields:
        Logs with a span for each record. Its name is ``module:key``, or the record's number if it has no labels.

    Raises:
        TraceError: the file is damaged, a record lacks a feature or has it in another type or shape, or some records
            have a reward and others none.
    """
    batch: list[tuple[str, list[NDArray[Any]], int]] = []
    waiting = 0
    header: Header | None = None
    for number, record in enumerate(iter_records(path)):
        example = decode_sequence(record.data, path=path, offset=record.offset)
        if header is None:
            header = _header_of(example)
            if header is None:
                continue
        if header.score is None and REWARD in example.columns:
            _fail(path, record, f"no {REWARD!r}, as in the first record", "one")
        specs = _specs(header)
        columns = [_column(example, spec, path, record) for spec in specs]
        counts = {len(column) for column in columns}
        if len(counts) > 1:
            lengths = ", ".join(f"{spec.name}: {len(column)}" for spec, column in zip(specs, columns, strict=True))
            _fail(path, record, "as many steps of every feature", lengths)
        labels = example.labels
        name = f"{labels['module']}:{labels['key']}" if {"module", "key"} <= labels.keys() else str(number)
        batch.append((name, columns, counts.pop()))
        waiting += batch[-1][2]
        if waiting >= observations_per_batch:
            yield _log(header, batch)
            batch, waiting = [], 0
    if batch and header is not None:
        yield _log(header, batch)


def _specs(header: Header) -> list[TensorSpec]:
    """List the tensors of the features, and of the score if there is one."""
    return [*header.features, *([header.score] if header.score else [])]


def _header_of(example: SequenceExample) -> Header | None:
    """Make the header that describes a record; ``None`` if the record has no features."""
    specs = {
        name: TensorSpec(name=name, type=_TYPES[column.dtype.kind], shape=(column.shape[1],))
        for name, column in sorted(example.columns.items())
    }
    score = specs.pop(REWARD, None)
    return Header(features=tuple(specs.values()), score=score) if specs else None


def _column(example: SequenceExample, spec: TensorSpec, path: Path, record: Record) -> NDArray[Any]:
    """Look up the feature list of ``spec``."""
    values = example.columns.get(spec.name)
    if values is None:
        _fail(path, record, f"a feature {spec.name!r}", ", ".join(sorted(example.columns)) or "none")
    if values.dtype != spec.dtype or values.shape[1:] != spec.shape:
        expected = f"{spec.type} of {spec.shape[0]} values a step as {spec.name!r}"
        _fail(path, record, expected, f"{_TYPES[values.dtype.kind]} of {values.shape[1]}")
    return values


def _log(header: Header, batch: Sequence[tuple[str, list[NDArray[Any]], int]]) -> Log:
    """Join records (name, columns, number of steps) to a log with a span for each."""
    specs = _specs(header)
    columns = [np.concatenate(parts) for parts in zip(*(columns for _, columns, _ in batch), strict=True)]
    stops = np.cumsum([0, *(count for _, _, count in batch)]).tolist()
    spans = tuple(
        ContextSpan(name=name, start=start, stop=stop)
        for (name, _, _), start, stop in zip(batch, stops[:-1], stops[1:], strict=True)
    )
    by_name = {spec.name: column for spec, column in zip(specs, columns, strict=True)}
    scores = by_name.pop(header.score.name) if header.score else None
    return Log(header=header, contexts=spans, columns=by_name, scores=scores)


def _fail(path: Path, record: Record, expected: str, found: str) -> NoReturn:
    """Raise the TraceError for a record that does not fit the first."""
    advice = "write all records from traces of one problem"
    message = f"training set {path}: record at byte {record.offset}: expected {expected}, found {found}; {advice}"
    raise TraceError(message, path=path, offset=record.offset)

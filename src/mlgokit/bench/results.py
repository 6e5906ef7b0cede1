"""Reads and compares results of other tools: lit's JSON of the llvm-test-suite, and Google Benchmark's JSON.

lit (``llvm-lit -o FILE``) has ``tests``, each with a ``name``, a ``code`` such as PASS, and ``metrics``: ``exec_time``,
``compile_time``, ``size``, and whatever counters the suite was configured for. Google Benchmark
(``--benchmark_format=json``, ``--benchmark_out=FILE``) has ``benchmarks``, each with ``real_time``, ``cpu_time`` and
``iterations``, and any counters of its own, such as those of ``--benchmark_perf_counters``.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mlgokit.bench.record import SIDES, Failure, Measured, SideName, Verdict
from mlgokit.bench.running import ERROR, verdict_of
from mlgokit.errors import InputError
from mlgokit.statistics import mean_interval

MOST_BYTES = 256 << 20
"""Maximum size of a file of results."""
_TO_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_BOOKKEEPING = frozenset(
    ("family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations")
)
"""Fields of Google Benchmark that are not measurements."""
_UNITS = {"exec_time": "s", "compile_time": "s", "link_time": "s", "real_time": "ns", "cpu_time": "ns"}
_GOOD_CODES = frozenset(("PASS", "FLAKYPASS", "XFAIL"))
_LEFT_OUT_CODES = frozenset(("UNSUPPORTED", "SKIPPED", "EXCLUDED"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results in one file.

    Attributes:
        numbers: all values, by the name of the benchmark or test and the name of the measure.
        failed: reason for each benchmark or test that failed.
        iterations: number of iterations in each repetition of a benchmark, by its name; empty for lit.
    """

    numbers: Mapping[tuple[str, str], Sequence[float]]
    failed: Mapping[str, str]
    iterations: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])


def read_results(path: Path) -> Results:
    """Read a file of either format, which is recognized by its keys.

    Raises:
        InputError: the file has neither format.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: expected at most {MOST_BYTES >> 20} MiB of results, found more; split them")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: expected results in JSON, found: {error.strerror or error}; check the path"
        ) from error
    return results_of(data, where=str(path))


def results_of(data: bytes, *, where: str) -> Results:
    """Parse the content of a results file of either format; ``where`` names it in error messages.

    Raises:
        InputError: the content has neither format.
    """
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: expected results in JSON, found: {error}; run what wrote them again") from error
    top = _object(value)
    if isinstance(benchmarks := top.get("benchmarks"), list):
        return _google_benchmark(cast("list[object]", benchmarks), where)
    if isinstance(tests := top.get("tests"), list):
        return _lit(cast("list[object]", tests), where)
    raise InputError(
        f"{where}: expected the JSON of lit (tests) or of Google Benchmark (benchmarks), found "
        f"{', '.join(sorted(top)[:5]) or 'neither'}; give a file that one of them wrote"
    )


def _object(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _iter_named(items: Iterable[object], where: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the entries of a list with their names."""
    for number, item in enumerate(items, 1):
        entry = _object(item)
        name = entry.get("run_name", entry.get("name"))
        if not isinstance(name, str):
            raise InputError(
                f"{where}: entry {number}: expected the name of a test or benchmark, found {name!r:.60}; write the "
                "file again"
            )
        yield name, entry


def _number(value: object) -> float | None:
    """Return a finite JSON number, or ``None`` for any other value."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _google_benchmark(items: Sequence[object], where: str) -> Results:
    """Parse the entries of ``benchmarks``; times are converted to nanoseconds."""
    numbers: dict[tuple[str, str], list[float]] = {}
    iterations: dict[str, list[int]] = {}
    failed: dict[str, str] = {}
    for name, entry in _iter_named(items, where):
        if entry.get("run_type") == "aggregate":
            continue
        if entry.get("error_occurred") is True:
            failed[name] = str(entry.get("error_message") or "an error")[:200]
            continue
        scale = _TO_NANOSECONDS.get(str(entry.get("time_unit", "ns")))
        if scale is None:
            raise InputError(
                f"{where}: {name}: expected a time_unit of {', '.join(_TO_NANOSECONDS)}, found "
                f"{entry['time_unit']!r:.40}; write the file again"
            )
        if isinstance(count := entry.get("iterations"), int):
            iterations.setdefault(name, []).append(count)
        for measure, value in entry.items():
            if measure in _BOOKKEEPING or (found := _number(value)) is None:
                continue
            in_unit = found * scale if measure in {"real_time", "cpu_time"} else found
            numbers.setdefault((name, measure), []).append(in_unit)
    return Results(numbers=numbers, failed=failed, iterations=iterations)


def _lit(items: Sequence[object], where: str) -> Results:
    """Parse the entries of ``tests``."""
    numbers: dict[tuple[str, str], list[float]] = {}
    failed: dict[str, str] = {}
    for name, entry in _iter_named(items, where):
        code = str(entry.get("code"))
        if code in _LEFT_OUT_CODES:
            continue
        if code not in _GOOD_CODES:
            failed[name] = code[:60]
            continue
        for measure, value in _object(entry.get("metrics")).items():
            if (found := _number(value)) is not None:
                numbers.setdefault((name, measure), []).append(found)
    return Results(numbers=numbers, failed=failed)


def compare_results(
    before: Sequence[Results], after: Sequence[Results]
) -> tuple[tuple[Measured, ...], tuple[Failure, ...]]:
    """Compare the results of two builds.

    Values of one benchmark are paired in their order, so files and repetitions of both builds should have been written
    alternately. Without repetitions there is no interval, and the verdict is ``undecided``.

    Args:
        before: results of the baseline's runs, at least one.
        after: results of the candidate's runs.

    Returns:
        Comparisons of all measures that both builds have; and failures: benchmarks that failed, or that only one has.
    """
    sides: dict[SideName, Sequence[Results]] = {"before": before, "after": after}
    failures = tuple(
        Failure(side=side, step="results", reason=f"{name}: {reason}")
        for side, files in sides.items()
        for name, reason in sorted({name: reason for one in files for name, reason in one.failed.items()}.items())
    )
    failed = {name for files in sides.values() for one in files for name in one.failed}
    values = {side: _join(files) for side, files in sides.items()}
    names: dict[SideName, set[str]] = {side: {name for name, _ in found} for side, found in values.items()}
    failures += tuple(
        Failure(side=side, step="results", reason=f"{name}: only the other build has it")
        for side, other in zip(SIDES, SIDES[::-1], strict=True)
        for name in sorted(names[other] - names[side] - failed)
    )
    keys = [key for key in values["before"] if key in values["after"] and key[0] not in failed]
    return tuple(_compare_values(key, values["before"][key], values["after"][key]) for key in keys), failures


def _join(files: Sequence[Results]) -> dict[tuple[str, str], list[float]]:
    """Concatenate the values of several files, by benchmark and measure."""
    joined: dict[tuple[str, str], list[float]] = {}
    for one in files:
        for key, found in one.numbers.items():
            joined.setdefault(key, []).extend(found)
    return joined


def _compare_values(key: tuple[str, str], before: Sequence[float], after: Sequence[float]) -> Measured:
    """Compare the values of one benchmark and measure."""
    name, measure = key
    pairs = list(zip(before, after, strict=False))
    low = high = None
    verdict: Verdict = "undecided"
    if len(pairs) > 1 and all(first > 0 and second > 0 for first, second in pairs):
        ends = mean_interval([math.log(second / first) for first, second in pairs], level=1 - ERROR)
        low, high = math.expm1(ends[0]), math.expm1(ends[1])
        verdict = verdict_of(low, high)
    return Measured(
        name=name,
        measure=measure,
        unit=_UNITS.get(measure, ""),
        before=sum(before) / len(before),
        after=sum(after) / len(after),
        low=low,
        high=high,
        runs=len(pairs),
        verdict=verdict,
    )

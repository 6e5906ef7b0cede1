"""Damaged and hostile inputs against everything that reads a corpus or what one is made of.

Each reader has a line in :data:`READERS`. A case is a seed of that reader, changed by a few random mutations; it may be
accepted or refused with one of our errors. Anything else is a finding: another exception, a hang, a file that is
written outside of the case's folder (an audit hook watches every one), or a process that is started.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_readers import READERS, Reader
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.errors import MlgokitError, UsageError
from mlgokit.progress import Report

SLOWEST_SECONDS = 20.0
MEMORY_BYTES = 4 << 30

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = (
    "", ".", "..", "/", "../../up", "/etc/passwd", "/mlgokit-fuzz-escape.o", "a\\..\\b", "\0", "a\nb", "\ud800",
    "x" * 5000, "a/" * 300, "@response", "-o", "-fthinlto-index=/dev/zero", "-fthinlto-index=/proc/self/mem", "é",
    "$(id)",
)  # fmt: skip
VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 1e308, 10**30, [], {}, [[[]]], {"modules": []}, *TEXTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzCorpus:
    """Mutate manifests, compilation databases, action graphs, parameters and objects, and read what comes of it."""

    cases: int = 100_000
    """All cases, shared out among the readers."""
    readers: tuple[str, ...] = ()
    """Names of readers; all if none is named."""
    seed: int = 1
    """Of all mutations; a case is known by seed, reader and number."""
    minutes: float = 30.0
    """No case is begun after so long."""
    json: Path = Path("docs/results/fuzz_corpus.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the cases of one reader."""

    cases: int = 0
    accepted: int = 0
    slowest_seconds: float = 0.0
    findings: list[str] = field(default_factory=list[str])


class HangError(BaseException):
    """A case took too long; no reader may catch it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzCorpus, measure, arguments)


def mutate(reader: Reader, rng: np.random.Generator) -> bytes:
    """A seed of the reader with one to four mutations."""
    data = reader.seeds[int(rng.integers(len(reader.seeds)))]
    for _ in range(int(rng.integers(1, 5))):
        data = _exchange_value(data, rng) if reader.is_text and rng.random() < 0.6 else _mutate_bytes(data, rng)
    return data


def _exchange_value(data: bytes, rng: np.random.Generator) -> bytes:
    """Put another value at a random place of a JSON text; text that is broken already loses or gains bytes instead."""
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        return _mutate_bytes(data, rng)
    places: list[tuple[Any, Any]] = []
    open_: list[Any] = [value]
    while open_:
        container = open_.pop()
        inside: Any = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in list(inside) if isinstance(container, (dict, list)) else []:
            places.append((container, key))
            if isinstance(item, (dict, list)):
                open_.append(item)
    if not places:
        return _mutate_bytes(data, rng)
    container, key = places[int(rng.integers(len(places)))]
    how = int(rng.integers(4))
    replacement = VALUES[int(rng.integers(len(VALUES)))]
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container, dict):
        container[TEXTS[int(rng.integers(len(TEXTS)))]] = container.pop(key)
    elif how == 2 and isinstance(container, list):
        container += container[:50]
    else:
        container[key] = replacement
    return json.dumps(value, ensure_ascii=bool(rng.integers(2))).encode("utf-8", "surrogatepass")


def _mutate_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    at, end = sorted(rng.integers(len(data) + 1, size=2).tolist())
    return MUTATIONS[int(rng.integers(len(MUTATIONS)))](data, at, end, rng)


def _number(data: bytes, at: int, rng: np.random.Generator) -> bytes:
    width = (1, 2, 4, 8)[int(rng.integers(4))]
    number = NUMBERS[int(rng.integers(len(NUMBERS)))] & ((1 << 8 * width) - 1)
    return data[:at] + number.to_bytes(width, "big" if rng.integers(2) else "little") + data[at + width :]


def _repeated(data: bytes, at: int, end: int, rng: np.random.Generator) -> bytes:
    return data[:at] + data[at : min(end, at + 200)] * int(rng.integers(2, 50)) + data[end:]


def _text(data: bytes, at: int, end: int, rng: np.random.Generator) -> bytes:
    return data[:at] + TEXTS[int(rng.integers(len(TEXTS)))].encode("utf-8", "surrogatepass") + data[end:]


def _flipped(data: bytes, at: int, rng: np.random.Generator) -> bytes:
    return data[:at] + bytes(byte ^ (1 << int(rng.integers(8))) for byte in data[at : at + 1]) + data[at + 1 :]


MUTATIONS: tuple[Callable[[bytes, int, int, np.random.Generator], bytes], ...] = (
    lambda data, at, _, __: data[:at],
    lambda data, at, end, _: data[:at] + data[end:],
    lambda data, at, end, _: data[:end] + data[at:],
    lambda data, at, _, rng: data[:at] + rng.bytes(int(rng.integers(1, 16))) + data[at:],
    lambda data, at, _, rng: _number(data, at, rng),
    lambda data, at, _, rng: _flipped(data, at, rng),
    _text,
    _repeated,
)
"""Of bytes, between two positions in order."""


_allowed: list[str] = []
_forbidden: list[str] = []
_hooked: list[bool] = []
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Which arguments of an audit event are paths that change, and which are descriptors of the folders that they are
# relative to, if any; see https://docs.python.org/3/library/audit_events.html.
_CHANGES = {
    "os.mkdir": ((0, 2),), "os.rename": ((0, 2), (1, 3)), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, 0),), "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),), "os.utime": ((0, 3),),
}  # fmt: skip
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _allowed:
        return
    if event in _STARTS:
        _forbidden.append(f"{event} {arguments!r:.200}")
    paths: Sequence[tuple[Any, int]] = ()
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
        paths = ((arguments[0], -1),)
    elif event in _CHANGES:
        paths = [(arguments[path], arguments[base] if base else -1) for path, base in _CHANGES[event]]
    for path, base in paths:
        if isinstance(path, (str, bytes, os.PathLike)):
            parent = Path.cwd() if base == -1 else Path(f"/proc/self/fd/{base}").readlink()
            whole = os.path.normpath(os.path.join(parent, os.fsdecode(path)))  # noqa: PTH118  (a link is a change too)
            if not whole.startswith(_allowed[0]):
                _forbidden.append(f"{event} of {whole}")


@contextlib.contextmanager
def watched(folder: Path) -> Generator[list[str]]:
    """Note what the block changes outside of ``folder``, and what it starts. Hooks stay, so that there is one."""
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked.append(True)
    _forbidden.clear()
    _allowed.append(str(folder))
    try:
        yield _forbidden
    finally:
        _allowed.clear()


@contextlib.contextmanager
def deadline(seconds: float | None) -> Generator[None]:
    """Raise :class:`HangError` in the block when the time is over; only in the main thread."""
    if seconds is None:
        yield
        return

    def over(*_: object) -> None:
        raise HangError

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run_case(reader: Reader, data: bytes, folder: Path, *, seconds: float | None) -> tuple[bool, str]:
    """Read one input in a fresh folder; whether it was accepted, and the finding, if it is one."""
    source, output = folder / "source", folder / "output"
    for path in (source, output):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    accepted, finding = False, ""
    with watched(folder) as forbidden:
        try:
            with deadline(seconds):
                reader.read(data, source, output)
            accepted = True
        except MlgokitError:
            pass
        except HangError:
            finding = f"no end within {seconds:g} s"
        except BaseException as error:
            finding = f"{type(error).__name__}: {error!s:.200}"
            if isinstance(error, KeyboardInterrupt):
                raise
        if forbidden:
            finding = f"{forbidden[0]}; {finding}"
    left = sorted(path.name for path in folder.iterdir())
    if left != ["output", "source"]:
        finding = f"files outside of the output: {left}; {finding}"
    return accepted, finding


def run_reader(
    name: str,
    count: int,
    folder: Path,
    *,
    seed: int,
    seconds: float | None = SLOWEST_SECONDS,
    until: float = float("inf"),
    report: Report | None = None,
) -> Tally:
    """Run cases 0 to ``count`` - 1 of a reader; ``folder`` must be empty and is all that may change."""
    tally = Tally()
    number = list(READERS).index(name)
    for case in range(count):
        begin = time.monotonic()
        if begin > until:
            break
        data = mutate(READERS[name], np.random.default_rng([seed, number, case]))
        accepted, finding = run_case(READERS[name], data, folder, seconds=seconds)
        tally.cases += 1
        tally.accepted += accepted
        tally.slowest_seconds = max(tally.slowest_seconds, time.monotonic() - begin)
        if finding:
            tally.findings.append(f"case {case} of {name}: {finding}")
        if report is not None and case % 100 == 0:
            report(case, count, name)
    if report is not None:
        report(count, count, name)
    return tally


def measure(config: FuzzCorpus, setup: Setup) -> Result:
    """Run all cases of all readers.

    Raises:
        UsageError: there is no such reader, or no case.
    """
    names = config.readers or tuple(READERS)
    unknown = sorted(set(names) - set(READERS))
    if unknown or config.cases < len(names):
        raise UsageError(
            f"fuzzing: expected readers among {', '.join(READERS)} and a case for each, found "
            f"{', '.join(unknown) or config.cases}; correct it"
        )
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    until = time.monotonic() + 60 * config.minutes
    count = -(-config.cases // len(names))
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="mlgokit-fuzz-") as scratch:
        for name in names:
            tallies[name] = run_reader(name, count, Path(scratch), seed=config.seed, until=until, report=setup.report)
    findings = [(finding,) for tally in tallies.values() for finding in tally.findings]
    total = sum(tally.cases for tally in tallies.values())
    rows: list[tuple[Cell, ...]] = [
        (name, tally.cases, tally.accepted, tally.cases - tally.accepted, len(tally.findings), tally.slowest_seconds)
        for name, tally in tallies.items()
    ]
    tables = [
        Table(
            title="Cases",
            columns=("reader", "cases", "accepted", "refused", "findings", "slowest (s)"),
            rows=tuple(rows),
            note=(
                "Accepted: read to the end, what is wrong with single entries being recorded. A finding is an "
                f"exception that is none of ours, {SLOWEST_SECONDS:g} seconds without an end, more than "
                f"{MEMORY_BYTES >> 30} GiB of memory, a change outside of the case's folder, or a started process."
            ),
        )
    ]
    if findings:
        tables.append(Table(title="Findings", columns=("finding",), rows=tuple(findings[:200])))
    return Result(
        benchmark="fuzz_corpus",
        question="Does any mutated input make a reader crash, hang, write elsewhere or start something?",
        answer=f"{len(findings)} findings in {total} cases",
        bar=f"no finding in {config.cases} cases",
        passed=not findings and total >= config.cases,
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())

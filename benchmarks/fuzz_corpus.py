"""Damaged and hostile inputs against everything in Python that reads a file which others may have made.

Each reader has a line in :data:`READERS`. A case is a seed of that reader, changed by a few random mutations; it may be
accepted or refused with one of our errors. Anything else is a finding: another exception, a hang, a file that is
written outside of the case's folder (an audit hook watches every one), or a process that is started.
"""

import contextlib
import dataclasses
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_formats import FORMATS
from fuzz_readers import READERS as CORPUS_READERS, Reader
from harness import Ledger, Setup, open_ledger, run_benchmark
from results import Cell, Result, Table

from mlgokit.errors import MlgokitError, UsageError
from mlgokit.progress import Report

READERS: dict[str, Reader] = {**CORPUS_READERS, **FORMATS}
SLICE = 2000
"""Cases that are noted together."""
SLOWEST_SECONDS = 20.0
MEMORY_BYTES = 4 << 30

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = (
    "", ".", "..", "/", "../../up", "/etc/passwd", "/mlgokit-fuzz-escape.o", "a\\..\\b", "\0", "a\nb", "\ud800",
    "x" * 5000, "a/" * 300, "@response", "-o", "-fthinlto-index=/dev/zero", "-fthinlto-index=/proc/self/mem", "é",
    "$(id)",
)  # fmt: skip
NUMBER = 10**30
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, float("nan"), float("inf"), 1 << 63, -(1 << 63), 1 << 64, NUMBER, [], {}, [[[]]],
    {"modules": []}, *TEXTS,
)  # fmt: skip
RAW = (
    b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"-" + b"9" * 400, b"1e999", b"NaN", b"-Infinity", b"\\ud800",
    b'"\\udfff"', b"\xff\xfe", b"\xc0\x80", b'"a":1,"a":2,', b"\x00" * 64, b"\r", b"\x1b]0;x\x07", b"\xe2\x80\xa8",
    b"%s%n", b"{}", b"''", b"1_000", b"0x10", b"\xef\xbb\xbf", b"...\n---\n", b"&a [*a, *a]",
    b"!!python/object/apply:os.system []",
)  # fmt: skip
"""Bytes that parsers stumble over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzCorpus:
    """Mutate manifests, databases, objects, policies, tables, logs and what runs leave, and read what comes of it."""

    cases: int = 100_000
    """Cases of each reader."""
    readers: tuple[str, ...] = ()
    """Names of readers; all if none is named."""
    seed: int = 1
    """Of all mutations; a case is known by seed, reader and number."""
    minutes: float = 240.0
    """No slice is begun after so long; the same command goes on."""
    folder: Path = Path("build/fuzz_corpus")
    """Where finished slices are noted."""


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
    if reader.inside is not None and rng.random() < 0.5:
        inner, close = reader.inside(data)
        for _ in range(int(rng.integers(1, 4))):
            inner = _mutate_bytes(inner, rng)
        return close(inner)
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
    text = json.dumps(value, ensure_ascii=bool(rng.integers(2)))
    return text.replace(str(NUMBER), "9" * 5000).encode("utf-8", "surrogatepass")


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
    lambda data, at, _, rng: data[:at] + RAW[int(rng.integers(len(RAW)))] + data[at:],
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
        if path.is_dir() and not any(path.iterdir()):
            continue
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
    name: str, count: int, folder: Path, *, seed: int, begin: int = 0, seconds: float | None = SLOWEST_SECONDS
) -> Tally:
    """Run ``count`` cases of a reader from number ``begin`` on; ``folder`` must be empty and is all that may change."""
    tally = Tally()
    # Not by its place among the readers, so that a new one changes no other's cases.
    key = zlib.crc32(name.encode())
    for case in range(begin, begin + count):
        start = time.monotonic()
        data = mutate(READERS[name], np.random.default_rng([seed, key, case]))
        accepted, finding = run_case(READERS[name], data, folder, seconds=seconds)
        tally.cases += 1
        tally.accepted += accepted
        tally.slowest_seconds = max(tally.slowest_seconds, time.monotonic() - start)
        if finding:
            tally.findings.append(f"case {case} of {name}: {finding}".encode("utf-8", "replace").decode())
    return tally


def run_slices(name: str, config: FuzzCorpus, ledger: Ledger, *, until: float, report: Report) -> Tally:
    """All slices of a reader that are finished, after those that time allows."""
    whole = Tally()
    with tempfile.TemporaryDirectory(prefix="mlgokit-fuzz-") as scratch:
        for begin in range(0, config.cases, SLICE):
            key = f"{name} {begin}"
            if key not in ledger.known:
                if time.monotonic() > until:
                    break
                count = min(SLICE, config.cases - begin)
                done = run_reader(name, count, Path(scratch), seed=config.seed, begin=begin)
                ledger.add(key, dataclasses.asdict(done))
            row = Tally(**ledger.known[key])
            whole.cases, whole.accepted = whole.cases + row.cases, whole.accepted + row.accepted
            whole.slowest_seconds = max(whole.slowest_seconds, row.slowest_seconds)
            whole.findings += row.findings
            report(whole.cases, config.cases, name)
    return whole


def measure(config: FuzzCorpus, setup: Setup) -> Result:
    """Run all cases of all readers.

    Raises:
        UsageError: there is no such reader, or no case.
    """
    names = config.readers or tuple(READERS)
    unknown = sorted(set(names) - set(READERS))
    if unknown or config.cases < 1:
        raise UsageError(
            f"fuzzing: expected readers among {', '.join(READERS)} and a case for each, found "
            f"{', '.join(unknown) or config.cases}; correct it"
        )
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    until = time.monotonic() + 60 * config.minutes
    ledger = open_ledger(config.folder / f"seed-{config.seed}.jsonl", {"seed": config.seed, "slice": SLICE})
    tallies = {name: run_slices(name, config, ledger, until=until, report=setup.report) for name in names}
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
        answer=f"{len(findings)} findings in {total} cases of {len(names)} readers",
        bar=f"no finding in {config.cases} cases of each",
        passed=not findings and all(tally.cases >= config.cases for tally in tallies.values()),
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())

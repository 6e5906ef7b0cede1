"""Runs targets of the Makefile, two at a time: some in the foreground, the others beside them.

Usage::

    python scripts/checks.py tests --beside lint types docs

Each list runs in its order. What the foreground prints is seen as it comes; what the others print goes to
``build/checks/TARGET.txt``, and is shown if they fail. Every target runs, whatever failed before it. The last lines
say what each took and which failed, and the exit status is 1 if any did.
"""

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "checks"
SECONDS = 2 * 3600
"""Deadline of a target; each test has a shorter one."""
LATE = 124
"""Exit code of a target that was ended at its deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a target ended.

    Attributes:
        target: its name in the Makefile.
        exit_code: of make, or ``LATE``.
        seconds: by the clock.
    """

    target: str
    exit_code: int
    seconds: float


def main() -> int:
    """Run all targets, and say which failed."""
    parser = argparse.ArgumentParser(description="Runs targets of the Makefile, two at a time.")
    parser.add_argument("targets", nargs="+", help="run in the foreground")
    parser.add_argument("--beside", nargs="+", default=(), help="run beside them, and shown only if they fail")
    words = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    interrupted = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(run_beside, words.beside, interrupted)
        try:
            results = [run_target(target) for target in words.targets]
            results += beside.result()
        except KeyboardInterrupt:
            # The terminal has told the children too, which are in this process group.
            interrupted.set()
            raise
    sys.stdout.write("".join(f"{line}\n" for line in summary(results)))
    return int(any(result.exit_code for result in results))


def run_beside(targets: Sequence[str], interrupted: threading.Event) -> list[Result]:
    """Run the targets one after the other, and show what those print that fail."""
    results: list[Result] = []
    for target in targets:
        if interrupted.is_set():
            break
        path = LOGS / f"{target}.txt"
        with path.open("wb") as log:
            results.append(run_target(target, output=log))
        if results[-1].exit_code:
            sys.stdout.write(f"\n== {target} failed\n{path.read_text(errors='replace')}")
            sys.stdout.flush()
    return results


def run_target(target: str, *, output: IO[bytes] | None = None) -> Result:
    """Run ``make TARGET``; variables such as ARGS come from the make that runs this script, by its environment."""
    begin = time.monotonic()
    words = ["make", "--no-print-directory", target]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as child:
        try:
            exit_code = child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            exit_code = LATE
    return Result(target=target, exit_code=exit_code, seconds=time.monotonic() - begin)


def summary(results: Sequence[Result]) -> list[str]:
    """A line for each target, and one that names those that failed."""
    lines = [
        f"{result.target:12} {result.seconds:5.0f} s  {'failed' if result.exit_code else 'passed'}"
        for result in results
    ]
    failed = [result.target for result in results if result.exit_code]
    return [*lines, f"failed: {', '.join(failed)}" if failed else f"all {len(results)} passed"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

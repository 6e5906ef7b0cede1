"""How soon help and errors are there, beside a Python that does nothing."""

import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from harness import Setup, run_benchmark
from results import Result, Table

NOTHING = "python -c pass"
BAR = 0.3
"""Seconds; the ratio to a Python that does nothing is what can be compared between machines."""
CALLS = {
    NOTHING: ("-c", "pass"),
    **{
        " ".join(("mlgokit", *words)).rstrip(): ("-m", "mlgokit", *words)
        for words in (
            ("--help",),
            ("--version",),
            ("tun",),
            ("corpus", "--help"),
            ("tune", "--help"),
            ("tune", "--bugdet", "5m"),
            ("tune", "--help-all"),
        )
    },
}
NOT_JUDGED = "mlgokit tune --help-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Measure the processor time of help, of the version and of typos, each in turns with `python -c pass`."""

    repetitions: int = 21
    """Runs of each call."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(StartUp, measure, arguments)


def measure(config: StartUp, setup: Setup) -> Result:
    """Run all calls in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in CALLS}
    for turn in range(config.repetitions):
        for name, words in CALLS.items():
            seconds[name].append(_processor_seconds(words))
        setup.report(turn + 1, config.repetitions, "start-up")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {name: median / medians[NOTHING] for name, median in medians.items()}
    judged = {name: ratio for name, ratio in ratios.items() if name not in (NOTHING, NOT_JUDGED)}
    worst = max(judged, key=lambda name: judged[name])
    return Result(
        benchmark="start_up",
        question="How soon are help and the answers to typos there, beside a Python that does nothing?",
        answer=f"After at most {1e3 * medians[worst]:.0f} ms, for `{worst}`: {judged[worst]:.1f} times `{NOTHING}`.",
        bar=f"{BAR:g} s",
        passed=medians[worst] <= BAR,
        seed=0,
        tables=(
            Table(
                title="Processor time of a call",
                columns=("call", "ms, median", f"times `{NOTHING}`"),
                rows=tuple((f"`{name}`", 1e3 * medians[name], ratios[name]) for name in CALLS),
                note="In user and system mode together, of the process and its children; the calls are run in turns. "
                f"`{NOT_JUDGED}` builds the parser of the command, and is not judged.",
            ),
        ),
    )


def _processor_seconds(words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, timeout=120, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())

"""Does mlgokit do what the tests of MLGO's own projects assert?

``peers.toml`` has a row for each behaviour. Where it says that mlgokit does the same, it names tests of this
repository, which are run; where mlgokit does something else, it says why.
"""

import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, run_benchmark
from results import Result, Table

from mlgokit.compiler import process
from mlgokit.errors import InputError, ToolError

ROWS = Path(__file__).with_name("peers.toml")
STATES = ("same", "different", "not_applicable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Compare with the tests of mlgo-utils, google/ml-compiler-opt and LLVM."""

    minutes: float = 60.0
    """Deadline of the tests in minutes."""
    match: str = ""
    """Text that a file's name must have; empty for all files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A behaviour.

    Attributes:
        suite: whose test asserts it.
        file: the test.
        does: the behaviour.
        state: one of ``STATES``.
        why: the reason where it is not the same.
        tests: tests of ours that show that it is.
    """

    suite: str
    file: str
    does: str
    state: str
    why: str = ""
    tests: tuple[str, ...] = ()


def read_rows(path: Path = ROWS) -> tuple[Row, ...]:
    """Read the behaviours.

    Raises:
        InputError: a row says nothing, or more than one thing.
    """
    rows: list[Row] = []
    for file in tomllib.loads(path.read_text(encoding="utf-8"))["file"]:
        for values in file["rows"]:
            states = [state for state in STATES if values.get(state)]
            if len(states) != 1 or {*values} - {"does", *STATES} or not values.get("does"):
                raise InputError(
                    f"{path.name}: {file['file']}: expected `does` and one of {', '.join(STATES)}, found {values}; "
                    "complete the row"
                )
            said: Any = values[states[0]]
            is_same = states[0] == "same"
            rows.append(
                Row(
                    suite=file["suite"],
                    file=file["file"],
                    does=values["does"],
                    state=states[0],
                    why="" if is_same else said,
                    tests=tuple(said) if is_same else (),
                )
            )
    return tuple(rows)


def run_tests(names: Sequence[str], *, seconds: float) -> Mapping[str, Counter[str]]:
    """Run tests of this repository; how each ended, in numbers of its cases by ``passed``, ``skipped`` and ``failed``.

    Raises:
        ToolError: pytest did not end in time, or could not begin.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-m",
            "not slow and not network",
            f"--junit-xml={report}",
        ]
        done = process.run([*words, *names], timeout_seconds=seconds)
        if done.timed_out or not report.is_file():
            raise ToolError(f"pytest: expected a report of {len(names)} tests, found none: {done.stderr[-300:]}")
        # pytest wrote it just now.
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        kinds = {child.tag for child in case}
        end = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        for key in (case.get("classname", ""), f"{case.get('classname')}::{case.get('name', '').partition('[')[0]}"):
            ends[key][end] += 1
    return {name: ends[_key(name)] for name in names}


def _key(name: str) -> str:
    """How pytest's report names a test, a file of tests, or the example of a docstring."""
    path, _, test = name.partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    return f"{module}::{test}" if test else module


def measure(config: Peers, setup: Setup) -> Result:
    """Run the tests that the rows name, and say of each row what they show."""
    rows = [row for row in read_rows() if config.match in row.file]
    names = list(dict.fromkeys(name for row in rows for name in row.tests))
    setup.report(0, len(names), "tests")
    ends = run_tests(names, seconds=60 * config.minutes)
    setup.report(len(names), len(names), "tests")
    shown: list[tuple[str, str, str, str]] = []
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        state = row.state.replace("_", " ")
        if row.state == "same" and not all(ends[name]["passed"] and not ends[name]["failed"] for name in row.tests):
            state = "not shown"
        counts[row.suite][state] += 1
        shown.append((row.file, row.does, state, row.why))
    total = sum(counts.values(), Counter[str]())
    cases = sum(sum(ends[name].values()) for name in names)
    return Result(
        benchmark="peers",
        question="Does mlgokit do what the tests of LLVM's mlgo-utils, of google/ml-compiler-opt and of LLVM assert?",
        answer=f"{total['same']} of {len(rows)} behaviours are the same, by {cases} cases of {len(names)} tests; "
        f"{total['different']} are different, each for a reason, {total['not applicable']} do not apply, and "
        f"{total['not shown']} are not shown",
        bar="each is the same, shown by a test that passes, or has its reason",
        passed=not total["not shown"],
        seed=0,
        tables=(
            Table(
                title="Suites",
                columns=("suite", "files", "same", "different", "not applicable", "not shown"),
                rows=tuple(
                    (
                        suite,
                        len({row.file for row in rows if row.suite == suite}),
                        *(found[state] for state in ("same", "different", "not applicable", "not shown")),
                    )
                    for suite, found in counts.items()
                ),
                note="Behaviours are counted by row. Inputs and words of the tests are ours; nothing is fetched.",
            ),
            *(
                Table(
                    title=suite,
                    columns=("file", "behaviour", "here", "why"),
                    rows=tuple(line for line, row in zip(shown, rows, strict=True) if row.suite == suite),
                )
                for suite in counts
            ),
        ),
    )


def main() -> int:
    """Entry point."""
    return run_benchmark(Peers, measure)


if __name__ == "__main__":
    raise SystemExit(main())

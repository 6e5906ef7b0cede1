"""Command lines of ``clang -cc1`` whose words were dropped, doubled, emptied and moved, cut by mlgokit and by clang.

A line that the gate lets through (:class:`mlgokit.compiler.options.cc1.Cc1Line`) is what is started. Here clang's own
parser cuts each of these into options. A finding is a line of which clang makes another option than the gate judged, or
in which a word of somebody else's takes one of ours.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gate_cases
import numpy as np
from harness import Setup, run_benchmark
from results import Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, ToolError, UsageError

OWN = ("-fpass-plugin=/p.so", "-x", "ir", "/m.bc", "-emit-obj", "-o", "/m.o")


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzCuts:
    """Cut mutated command lines that the gate lets through by clang's own parser, too."""

    majors: tuple[int, ...] = (19, 22)
    """LLVM majors."""
    cases: int = 100_000
    """Command lines of each major."""
    seed: int = 1
    """Of all draws."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzCuts, measure, arguments)


def judged(rng: np.random.Generator, count: int) -> Iterator[Cc1Line]:
    """Of so many lines those that the gate lets through."""
    for _ in range(count):
        words = [word for word in gate_cases.line(rng, cc1=True) if "\0" not in word and "\n" not in word]
        try:
            yield Cc1Line("clang", options=("-cc1", *words), own=OWN)
        except InputError:
            continue


def cut_by_clang(lines: Sequence[Cc1Line], toolchain: Toolchain) -> list[list[str]]:
    """Where clang's parser sees each option begin, after ``-cc1``.

    Raises:
        ToolError: its library is not there.
    """
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "cut"
        library = toolchain.library_dir or Path()
        shared = min(library.glob(f"libclang-cpp.so.{toolchain.major}*"), default=None)
        if shared is None or toolchain.include_dir is None:
            raise ToolError(f"fuzz_cuts: expected libclang-cpp and headers of LLVM {toolchain.major}, found none")
        source = Path(__file__).with_suffix(".cpp")
        words = ["-std=c++17", "-O1", f"-I{toolchain.include_dir}", source, shared, f"-L{library}"]
        words += [f"-lLLVM-{toolchain.major}", f"-Wl,-rpath,{library}", "-o", program]
        built = process.run([toolchain.clangxx, *words], timeout_seconds=300)
        if built.returncode != 0:
            raise ToolError(f"fuzz_cuts: expected {source.name} to compile, found: {built.stderr}")
        data = b"".join(
            b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in line[2:]) + b"\n" for line in lines
        )
        answers = process.run([program], timeout_seconds=600, stdin=data).stdout.decode().splitlines()
    return [answer.split() for answer in answers]


def difference(line: Cc1Line, cuts: Sequence[str]) -> str:
    """What clang cuts otherwise; empty if nothing, or if it refuses the line."""
    if any(cut.startswith(("?", "!")) for cut in cuts):
        return ""
    begin, wanted = 0, list[int]()
    for option in parse_options(line[2:]):
        # LLVM's option and its value are two of clang's.
        wanted += [begin] if len(option.words) < 4 else [begin, begin + 2]
        begin += len(option.words)
    return "" if [int(cut) for cut in cuts] == wanted else f"{' '.join(line)}: clang cuts at {' '.join(cuts)}"


def measure(config: FuzzCuts, setup: Setup) -> Result:
    """Draw, judge and cut.

    Raises:
        ToolError: a major's library is not there.
        UsageError: there is no case.
    """
    if config.cases < 1:
        raise UsageError(f"cases: expected at least 1, found {config.cases}; give more")
    rows: list[tuple[int, int, int, int, int]] = []
    findings: list[str] = []
    for major in config.majors:
        toolchain = setup.toolchain(major, suffix=f" {major}")
        lines = list(judged(np.random.default_rng([config.seed, major]), config.cases))
        cuts = cut_by_clang(lines, toolchain)
        found = [text for line, cut in zip(lines, cuts, strict=True) if (text := difference(line, cut))]
        refused = sum(any(word.startswith(("?", "!")) for word in cut) for cut in cuts)
        rows.append((major, config.cases, len(lines), refused, len(found)))
        findings += found
        setup.report(len(rows), len(config.majors), "majors")
    tables = [
        Table(
            title="Lines",
            columns=("LLVM", "drawn", "let through by the gate", "of these not known to this clang", "cut otherwise"),
            rows=tuple(rows),
            note="Where it does not know an option, clang ends with an error; our table has those of both majors.",
        )
    ]
    if findings:
        tables.append(Table(title="Findings", columns=("finding",), rows=tuple((text,) for text in findings[:200])))
    return Result(
        benchmark="fuzz_cuts",
        question="Does clang cut a command line that the gate let through as the gate did?",
        answer=f"{len(findings)} of {sum(row[2] for row in rows)} lines that were let through are cut otherwise",
        bar=f"none of {config.cases} for each major",
        passed=not findings,
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())

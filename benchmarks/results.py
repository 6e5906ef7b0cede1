"""What the benchmarks share: drawing modules, timing facts of the machine, and writing a result in its two forms.

A result is one JSON file for machines and, beside it, a Markdown file with the same tables for people.
"""

import dataclasses
import datetime as dt
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tyro

from mlgokit.commands.progress_bar import shown_progress
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import package_version
from mlgokit.module import Module
from mlgokit.progress import Report

FORMAT_VERSION = 1
INTERRUPTED = 130

Config = TypeVar("Config")
Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a result.

    Attributes:
        title: its heading.
        columns: names of the columns, with units.
        rows: one cell per column; floats are shown with four significant digits, in JSON whole.
        note: what a reader must know to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a benchmark found.

    Attributes:
        benchmark: its name.
        question: what it asks, one sentence.
        answer: what it found, one sentence.
        bar: what had to be reached, or empty.
        passed: whether it was, or ``None`` without a bar.
        seed: of everything random.
        versions: of the tools that take part.
        inputs: name to digest.
        tables: the numbers.
    """

    benchmark: str
    question: str
    answer: str
    bar: str = ""
    passed: bool | None = None
    seed: int
    versions: dict[str, str]
    inputs: dict[str, str]
    tables: tuple[Table, ...]


def run_benchmark(
    config: type[Config], measure: Callable[[Config, Report], Result], arguments: Sequence[str] | None = None
) -> int:
    """Parse the arguments of a benchmark, measure, write both forms, and say the answer.

    Args:
        config: a dataclass with a field ``json``, the path of the result.
        measure: the benchmark.
        arguments: of the command line; the process's own by default.

    Returns:
        The exit code: 0, 1 if the bar was missed, or that of the error.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parsed: Any = tyro.cli(
        config,
        description=(config.__doc__ or "").strip(),
        args=words,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    try:
        with shown_progress() as report:
            result = measure(parsed, report)
        command = shown_command(result.benchmark, words, cwd=Path.cwd())
        write_result(result, parsed.json, command=command)
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted; nothing was written, start it again", file=sys.stderr)
        return INTERRUPTED
    except MlgokitError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return error.exit_code
    print(result.answer)
    print(f"{parsed.json}\n{parsed.json.with_suffix('.md')}")
    return 1 if result.passed is False else 0


def shown_command(benchmark: str, words: Sequence[str], *, cwd: Path) -> str:
    """The command line for a reader on another machine: paths outside of ``cwd`` by their last part only.

    Example:
        >>> shown_command("echo", ["--corpus", "/data/corpus", "--json", "/here/out.json"], cwd=Path("/here"))
        'python benchmarks/echo.py --corpus .../corpus --json out.json'
    """
    shown: list[str] = []
    for word in words:
        option, separator, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
        path = Path(value)
        if path.is_absolute():
            value = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else f".../{path.name}"
        shown.append(f"{option}{separator}{shlex.quote(value)}")
    return " ".join(["python", f"benchmarks/{benchmark}.py", *shown])


def write_result(result: Result, path: Path, *, command: str) -> None:
    """Write ``result`` to ``path`` as JSON, and beside it as Markdown.

    Raises:
        UsageError: ``path`` does not end with ``.json``.
        StorageError: the disk is full or not writable.
    """
    if path.suffix != ".json":
        raise UsageError(f"{path}: expected a path that ends with .json, found {path.suffix!r}; give another --json")
    values = {"format_version": FORMAT_VERSION, "command": command, "written": today(), **dataclasses.asdict(result)}
    atomic_write(path, json.dumps(values, indent=1, allow_nan=False) + "\n")
    atomic_write(path.with_suffix(".md"), markdown(result, command=command, written=values["written"]))


def markdown(result: Result, *, command: str, written: str) -> str:
    """The result for people."""
    lines = [f"# {result.benchmark.replace('_', ' ')}", "", result.question, "", f"**{result.answer}**", ""]
    if result.bar:
        verdict = "reached" if result.passed else "missed"
        lines += [f"Bar: {result.bar}: {verdict}.", ""]
    for table in result.tables:
        numeric = [all(not isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
        lines += [f"## {table.title}", ""]
        if table.note:
            lines += [table.note, ""]
        lines += [_row(table.columns), _row(["---:" if right else "---" for right in numeric])]
        lines += [_row([shown(cell) for cell in row]) for row in table.rows]
        lines += [""]
    lines += ["## How it was made", "", "```sh", command, "```", ""]
    lines += [f"- seed: {result.seed}", f"- written: {written}"]
    lines += [f"- {name}: {value}" for name, value in result.versions.items()]
    lines += [f"- {name}: sha256 {value}" for name, value in result.inputs.items()]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(cell: Cell) -> str:
    """One cell as text.

    Example:
        >>> [shown(cell) for cell in (1.23456, 0.0, 12345.6, 12345, None, "text")]
        ['1.235', '0', '12346', '12345', '', 'text']
    """
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return str(cell)


def today() -> str:
    """The date in UTC, as 2025-01-31."""
    return dt.datetime.now(dt.UTC).date().isoformat()


def tool_versions(toolchain: Toolchain) -> dict[str, str]:
    """What a result has to name so that another machine's can be compared with it."""
    machine = machine_versions()
    return {"mlgokit": machine.pop("mlgokit"), **toolchain.describe(), **machine}


def machine_versions() -> dict[str, str]:
    """The same for a result that no compiler takes part in."""
    load = os.getloadavg()[0]
    return {
        "mlgokit": package_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": f"{_processor()}, {os.cpu_count()} usable",
        "load when it began": f"{load:.2f}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def corpus_inputs(corpus: Corpus, policies: Sequence[Path] = ()) -> dict[str, str]:
    """Digests of the corpus's description and of policies."""
    digests = {"corpus": digest_file(corpus.folder / "corpus_description.json")}
    return digests | {f"policy {path.name}": digest_file(path) for path in policies}


def draw_modules(modules: Sequence[Module], count: int, rng: np.random.Generator) -> list[Module]:
    """``count`` modules drawn without replacement, in the order of the corpus; all of them if ``count`` is 0.

    Raises:
        UsageError: ``count`` is negative.
    """
    if count < 0:
        raise UsageError(f"modules: expected a number of modules, or 0 for all, found {count}; correct it")
    if not count or count >= len(modules):
        return list(modules)
    return [modules[index] for index in sorted(rng.choice(len(modules), count, replace=False).tolist())]


def percent(change: float) -> str:
    """A change for people.

    Example:
        >>> percent(-0.0414)
        '-4.14 %'
    """
    return f"{100 * change:+.2f} %"


def quartiles(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile.

    Example:
        >>> quartiles(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
        (2.0, 3.0, 4.0)
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return low, middle, high

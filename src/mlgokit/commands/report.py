"""The command that makes a page of a result again, from its JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from mlgokit.bench.page import bench_page
from mlgokit.bench.record import FORMAT as BENCH, Bench
from mlgokit.compiler.demangle import find_demangler, readable_names
from mlgokit.errors import InputError
from mlgokit.evaluation.decode import read_json
from mlgokit.evaluation.evaluation_page import evaluation_page, symbols_of
from mlgokit.evaluation.page import write_page
from mlgokit.evaluation.records import FORMAT as EVALUATION, Evaluation
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeReport:
    """Make the report of a result, a page that needs no network and the same as Markdown, of a file from elsewhere."""

    result: Annotated[Path, tyro.conf.Positional]
    """JSON file that `mlgokit evaluate --output` or `mlgokit bench` wrote."""
    output: Path | None = None
    """HTML file to write, with Markdown beside it; beside the result if not given."""


def run(config: MakeReport, *, report: Report = say_nothing) -> dict[str, Any]:
    """Write both files; gives their paths.

    Raises:
        InputError: the file is no such result.
        StorageError: the disk is full or the place is not writable.
    """
    report(0, 1, "read")
    value: object = read_json(config.result, expected="the JSON of a result", remedy="make it again")
    found = _format_of(value)
    if found == EVALUATION:
        evaluation = Evaluation.from_json(value)
        page = evaluation_page(evaluation, readable_names(symbols_of(evaluation), find_demangler()))
    elif found == BENCH:
        page = bench_page(Bench.from_json(value, str(config.result)))
    else:
        raise InputError(
            f"{config.result}: expected format {EVALUATION!r} or {BENCH!r}, found {found!r:.60}; give the JSON that "
            "`mlgokit evaluate --output` or `mlgokit bench` wrote"
        )
    written = write_page(page, config.output or config.result)
    return {"html": str(written), "markdown": str(written.with_suffix(".md"))}


def _format_of(value: object) -> object:
    return cast("dict[str, object]", value).get("format") if isinstance(value, dict) else None

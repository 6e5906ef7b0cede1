"""The command that renders a page from a JSON result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from mlgokit.bench.page import bench_page
from mlgokit.bench.record import FORMAT as BENCH, Bench
from mlgokit.commands.importance import Importance, importance_of
from mlgokit.compiler.llvm_tools import find_demangler, readable_names
from mlgokit.decode import read_json
from mlgokit.errors import InputError, UsageError
from mlgokit.evaluation.page import evaluation_page, symbols_of
from mlgokit.evaluation.records import FORMAT as EVALUATION, Evaluation
from mlgokit.evaluation.run import FORMAT as RUN, RunReport, run_page
from mlgokit.flags.page import advice_page
from mlgokit.flags.record import FORMAT as ADVICE, FlagAdvice
from mlgokit.learning.page import training_page
from mlgokit.learning.record import FORMAT as TRAINING, TrainingRecord
from mlgokit.pages.html import write_page
from mlgokit.pages.model import Page, Part
from mlgokit.policy.importance import importance_parts
from mlgokit.policy.store import load_policy
from mlgokit.progress import Report, say_nothing
from mlgokit.sizes.compare import FORMAT as SIZE_DIFFERENCE, SizeDifference
from mlgokit.sizes.page import difference_page, size_page
from mlgokit.sizes.record import FORMAT as SIZES, Sizes
from mlgokit.tune.page import tuned_page
from mlgokit.tune.result import FORMAT as TUNING, Tuned

_FORMATS = (EVALUATION, BENCH, TRAINING, TUNING, ADVICE, RUN, SIZES, SIZE_DIFFERENCE)

_PAGES: dict[object, Callable[[object, str], Page]] = {
    BENCH: lambda value, where: bench_page(Bench.from_json(value, where)),
    TUNING: lambda value, where: tuned_page(Tuned.from_json(value), Path(where).parent),
    ADVICE: lambda value, _: advice_page(FlagAdvice.from_json(value)),
    SIZES: lambda value, where: size_page(Sizes.from_json(value, where)),
    SIZE_DIFFERENCE: lambda value, where: difference_page(SizeDifference.from_json(value, where)),
}
"""Pages of results that nothing else is asked for, by format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeReport:
    """Write the HTML and Markdown report of a JSON result."""

    result: Annotated[Path, tyro.conf.Positional]
    """JSON file that `mlgokit evaluate --output`, `mlgokit size --output` or `mlgokit bench` wrote, `metrics.json` of
    `mlgokit train`, `tuned.json` of `mlgokit tune`, `advice.json` of `mlgokit advise`, or `results.json` of
    `mlgokit quickstart`."""
    output: Path | None = None
    """HTML file to write, with Markdown beside it; beside the result if not given."""
    traces: Path | None = None
    """Folder that `mlgokit trace` made; the report on a policy then shows how important each feature is for its
    decisions."""


def run(config: MakeReport, *, report: Report = say_nothing) -> dict[str, Any]:
    """Write both files; gives their paths.

    Raises:
        InputError: the file is no such result, or its policy or a trace cannot be read.
        StorageError: the disk is full or the place is not writable.
        UsageError: traces are named for a result without a policy.
    """
    report(0, 1, "read")
    value: object = read_json(config.result, expected="the JSON of a result", remedy="make it again")
    try:
        written = write_page(_page_of(config, value, report), config.output or config.result)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{config.result}: expected a result as mlgokit wrote it, found a damaged one ({error!r:.200}); make it "
            "again"
        ) from error
    return {"html": str(written), "markdown": str(written.with_suffix(".md"))}


def _page_of(config: MakeReport, value: object, report: Report) -> Page:
    found = _format_of(value)
    if found == EVALUATION:
        evaluation = Evaluation.from_json(value)
        extra = _importance(config, list(evaluation.after.policies.values()), report)
        return evaluation_page(evaluation, readable_names(symbols_of(evaluation), find_demangler()), extra)
    if found == TRAINING:
        trained = TrainingRecord.from_json(value)
        return training_page(trained, _importance(config, [trained.policy], report))
    if found == RUN:
        whole = RunReport.from_json(value)
        return run_page(whole, _importance(config, [whole.policy_file], report))
    _importance(config, [], report)
    if found in _PAGES:
        return _PAGES[found](value, str(config.result))
    raise InputError(
        f"{config.result}: expected format {', '.join(map(repr, _FORMATS))}, found {found!r:.60}; give the JSON that "
        "`mlgokit evaluate --output`, `size --output`, `bench`, `train`, `tune`, `advise` or `quickstart` wrote"
    )


def _importance(config: MakeReport, policies: Sequence[str], report: Report) -> Sequence[Part]:
    """The feature importance of the first policy file, if traces are given."""
    if config.traces is None:
        return ()
    files = [path for path in policies if not path.startswith(":")]
    if not files:
        raise UsageError(
            f"--traces: expected an evaluation of a policy file, found {config.result} without one; leave --traces out"
        )
    # A path of another folder, as results that were moved have it.
    parts = Path(files[0]).parts
    places = [Path(files[0]), *(config.result.parent.joinpath(*parts[first:]) for first in range(1, len(parts)))]
    path = next((place for place in places if place.is_file()), places[0])
    policy = load_policy(path)
    return importance_parts(
        importance_of(policy, Importance(policy=path, traces=config.traces), report=report), policy.output
    )


def _format_of(value: object) -> object:
    return cast("dict[str, object]", value).get("format") if isinstance(value, dict) else None

"""The command line: arguments to a configuration, one call, the result printed. No logic."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Annotated, Any, cast

import tyro
from rich.console import Console

from mlgokit import stages
from mlgokit.collect import Report
from mlgokit.corpus.table import print_corpus, print_split
from mlgokit.doctor import diagnose, print_diagnosis
from mlgokit.errors import MlgokitError, StorageError
from mlgokit.evaluation.table import print_evaluation
from mlgokit.progress import shown_progress
from mlgokit.quickstart import Quickstart, quickstart
from mlgokit.tune.allocation.kept import KeptAllocations
from mlgokit.tune.allocation.table import print_allocated, print_kept_allocations
from mlgokit.tune.table import print_kept, print_tuned

INTERRUPTED = 130
NOBODY_READS = 141
"""What a shell reports for a program that its reader left, as in ``mlgokit corpus info | head -1``."""
LONG = 12
"""Values with more entries than this are only counted, not printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Find every clang and say, tested, what works with it and what to install."""


@dataclass(frozen=True, slots=True)
class CorpusCommand:
    """Make and look at corpora."""

    command: (
        Annotated[stages.Sources, tyro.conf.subcommand("fetch")]
        | Annotated[stages.Extract, tyro.conf.subcommand("extract")]
        | Annotated[stages.Import, tyro.conf.subcommand("import")]
        | Annotated[stages.Combine, tyro.conf.subcommand("combine")]
        | Annotated[stages.Record, tyro.conf.subcommand("record")]
        | Annotated[stages.Override, tyro.conf.subcommand("override")]
        | Annotated[stages.Verify, tyro.conf.subcommand("verify")]
        | Annotated[stages.Info, tyro.conf.subcommand("info")]
        | Annotated[stages.Split, tyro.conf.subcommand("split")]
    )


@dataclass(frozen=True, slots=True)
class ExportCommand:
    """Turn a policy into what a compiler can load."""

    # tyro makes subcommands of unions only, so that a single one needs a second, hidden arm.
    command: Annotated[stages.Export, tyro.conf.subcommand("plugin")] | Annotated[None, tyro.conf.Suppress]


StageCommand = (
    stages.Sources
    | stages.Extract
    | stages.Import
    | stages.Combine
    | stages.Record
    | stages.Override
    | stages.Verify
    | stages.Info
    | stages.Split
    | stages.Trace
    | stages.Vocab
    | stages.Train
    | stages.Importance
    | stages.Evaluate
    | stages.Tune
    | stages.Check
    | stages.Export
)
Command = (
    Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[CorpusCommand, tyro.conf.subcommand("corpus")]
    | Annotated[stages.Trace, tyro.conf.subcommand("trace")]
    | Annotated[stages.Tune, tyro.conf.subcommand("tune")]
    | Annotated[stages.Check, tyro.conf.subcommand("check")]
    | Annotated[stages.Vocab, tyro.conf.subcommand("vocab")]
    | Annotated[stages.Train, tyro.conf.subcommand("train")]
    | Annotated[stages.Importance, tyro.conf.subcommand("importance")]
    | Annotated[stages.Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[ExportCommand, tyro.conf.subcommand("export")]
    | Annotated[Quickstart, tyro.conf.subcommand("quickstart")]
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Machine-learned optimization policies for the clang that you have."""

    command: Command
    json: bool = False
    """Print the result as JSON on standard output."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``mlgokit``; ends the process with an exit code that means something (see ``errors.py``)."""
    parsed = tyro.cli(
        Arguments,
        prog="mlgokit",
        description=Arguments.__doc__,
        args=arguments,
        config=(
            tyro.conf.CascadeSubcommandArgs,
            tyro.conf.OmitSubcommandPrefixes,
            tyro.conf.FlagCreatePairsOff,
        ),
    )
    sys.exit(run(parsed))


def run(arguments: Arguments) -> int:
    """Carry one command out; the sentence of an error goes to standard error."""
    errors = Console(file=sys.stderr, soft_wrap=True, emoji=False)
    try:
        code = _carry_out(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        errors.print("mlgokit: interrupted; what was finished is kept, run the same command again to go on")
        return INTERRUPTED
    except MlgokitError as error:
        errors.print(f"mlgokit: {error}", style="red", markup=False, highlight=False)
        return error.exit_code
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except OSError as error:
        errors.print(
            f"mlgokit: expected to be able to use {error.filename or 'the disk'}, found: {error.strerror or error}; "
            "free some space or check permissions, then run the same command again",
            style="red",
            markup=False,
            highlight=False,
        )
        return StorageError.exit_code
    return code


def _carry_out(arguments: Arguments) -> int:
    command = arguments.command
    if isinstance(command, (CorpusCommand, ExportCommand)):
        command = cast("StageCommand", command.command)
    if isinstance(command, Doctor):
        diagnosis = diagnose()
        _show(arguments, diagnosis.to_json(), lambda out: print_diagnosis(diagnosis, out))
        return diagnosis.exit_code
    with shown_progress() as report:
        if isinstance(command, Quickstart):
            return quickstart(command, as_json=arguments.json, report=report)
        result, draw = _result(command, report)
    _show(arguments, result, draw)
    failed = (isinstance(command, stages.Verify) and not result["verified"]) or (
        isinstance(command, stages.Check) and result["share"] < command.least_kept
    )
    return MlgokitError.exit_code if failed else 0


def _result(command: StageCommand, report: Report) -> tuple[dict[str, Any], Callable[[Console], None]]:
    """What a stage returned, as JSON values, and how to draw it."""
    match command:
        case stages.Tune() | stages.Check():
            return _tuned(command, report)
        case stages.Evaluate():
            evaluation = stages.evaluate(command, report=report)
            return evaluation.to_json(), lambda out: print_evaluation(evaluation, out)
        case stages.Extract():
            stages.extract(command, report=report)
            counting = stages.Info(corpus=command.corpus, llvm=command.llvm, workers=command.workers)
            counted = stages.info(counting, report=report)
            return counted.to_json(), lambda out: print_corpus(counted, out)
        case stages.Info():
            info = stages.info(command, report=report)
            return info.to_json(), lambda out: print_corpus(info, out)
        case stages.Split():
            split = stages.split(command, report=report)
            return split.to_json(), lambda out: print_split(split, out)
        case _:
            result = _values(command, report)
            return result, lambda out: _print_values(result, out)


def _tuned(command: stages.Tune | stages.Check, report: Report) -> tuple[dict[str, Any], Callable[[Console], None]]:
    """As :func:`_result`, of the stages of tuned plugins."""
    if isinstance(command, stages.Tune):
        if command.objective == "spill-cost":
            allocated = stages.tune_allocations(command, report=report)
            return allocated.to_json(), lambda out: print_allocated(allocated, out)
        tuned = stages.tune(command, report=report)
        return tuned.to_json(), lambda out: print_tuned(tuned, out)
    kept = stages.check(command, report=report)
    if isinstance(kept, KeptAllocations):
        return kept.to_json(), lambda out: print_kept_allocations(kept, out)
    return kept.to_json(), lambda out: print_kept(kept, out)


def _values(
    command: stages.Sources
    | stages.Import
    | stages.Combine
    | stages.Record
    | stages.Override
    | stages.Verify
    | stages.Trace
    | stages.Vocab
    | stages.Train
    | stages.Importance
    | stages.Export,
    report: Report,
) -> dict[str, Any]:
    """The result of a stage that has no table of its own."""
    match command:
        case stages.Sources():
            result = stages.fetch(command, report=report)
        case stages.Import():
            result = stages.import_build(command, report=report)
        case stages.Combine():
            result = stages.combine(command)
        case stages.Record():
            result = stages.record(command, report=report)
        case stages.Override():
            result = stages.override(command).to_json()
        case stages.Verify():
            result = stages.verify(command, report=report).to_json()
        case _:
            result = _learning_values(command, report)
    return result


def _learning_values(
    command: stages.Trace | stages.Vocab | stages.Train | stages.Importance | stages.Export, report: Report
) -> dict[str, Any]:
    """As :func:`_values`, of the stages that take a corpus or what came of one."""
    match command:
        case stages.Trace():
            result = stages.trace(command, report=report)
        case stages.Vocab():
            result = stages.vocab(command, report=report)
        case stages.Train():
            result = stages.train(command, report=report).to_json()
        case stages.Importance():
            result = stages.explain(command, report=report)
        case stages.Export():
            result = dataclasses.asdict(stages.export(command))
    return result


def _show(arguments: Arguments, value: object, draw: Callable[[Console], None]) -> None:
    if arguments.json:
        json.dump(value, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        draw(Console(emoji=False))


def _print_values(values: dict[str, Any], out: Console) -> None:
    """Short values as lines, long lists by their length; ``--json`` has everything."""
    for name, value in values.items():
        if isinstance(value, (list, tuple, dict)) and len(cast("Sized", value)) > LONG:
            out.print(f"{name}: {len(cast('Sized', value))} (use --json to see them)", markup=False, highlight=False)
        else:
            out.print(f"{name}: {value}", markup=False, highlight=False)

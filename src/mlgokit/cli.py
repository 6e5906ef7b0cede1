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

from mlgokit import commands
from mlgokit.commands.doctor import diagnose, print_diagnosis
from mlgokit.commands.progress_bar import shown_progress
from mlgokit.commands.quickstart import Quickstart, quickstart
from mlgokit.corpus.render import print_corpus, print_split
from mlgokit.errors import MlgokitError, StorageError
from mlgokit.evaluation.render import print_evaluation
from mlgokit.progress import Report
from mlgokit.tune.allocation.check import AllocationCheckResult
from mlgokit.tune.allocation.render import print_allocated, print_allocation_check
from mlgokit.tune.render import print_check, print_tuned

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
        Annotated[commands.Sources, tyro.conf.subcommand("fetch")]
        | Annotated[commands.Extract, tyro.conf.subcommand("extract")]
        | Annotated[commands.Import, tyro.conf.subcommand("import")]
        | Annotated[commands.Combine, tyro.conf.subcommand("combine")]
        | Annotated[commands.Record, tyro.conf.subcommand("record")]
        | Annotated[commands.Override, tyro.conf.subcommand("override")]
        | Annotated[commands.Verify, tyro.conf.subcommand("verify")]
        | Annotated[commands.Info, tyro.conf.subcommand("info")]
        | Annotated[commands.Split, tyro.conf.subcommand("split")]
    )


@dataclass(frozen=True, slots=True)
class ExportCommand:
    """Turn a policy into what a compiler can load."""

    # tyro makes subcommands of unions only, so that a single one needs a second, hidden arm.
    command: Annotated[commands.Export, tyro.conf.subcommand("plugin")] | Annotated[None, tyro.conf.Suppress]


StageCommand = (
    commands.Sources
    | commands.Extract
    | commands.Import
    | commands.Combine
    | commands.Record
    | commands.Override
    | commands.Verify
    | commands.Info
    | commands.Split
    | commands.Trace
    | commands.Vocab
    | commands.Train
    | commands.Importance
    | commands.Evaluate
    | commands.Tune
    | commands.Check
    | commands.Export
)
Command = (
    Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[CorpusCommand, tyro.conf.subcommand("corpus")]
    | Annotated[commands.Trace, tyro.conf.subcommand("trace")]
    | Annotated[commands.Tune, tyro.conf.subcommand("tune")]
    | Annotated[commands.Check, tyro.conf.subcommand("check")]
    | Annotated[commands.Vocab, tyro.conf.subcommand("vocab")]
    | Annotated[commands.Train, tyro.conf.subcommand("train")]
    | Annotated[commands.Importance, tyro.conf.subcommand("importance")]
    | Annotated[commands.Evaluate, tyro.conf.subcommand("evaluate")]
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
    failed = (isinstance(command, commands.Verify) and not result["verified"]) or (
        isinstance(command, commands.Check) and result["share"] < command.least_kept
    )
    return MlgokitError.exit_code if failed else 0


def _result(command: StageCommand, report: Report) -> tuple[dict[str, Any], Callable[[Console], None]]:
    """What a stage returned, as JSON values, and how to draw it."""
    match command:
        case commands.Tune() | commands.Check():
            return _tuned(command, report)
        case commands.Evaluate():
            evaluation = commands.evaluate(command, report=report)
            return evaluation.to_json(), lambda out: print_evaluation(evaluation, out)
        case commands.Extract():
            commands.extract(command, report=report)
            counting = commands.Info(corpus=command.corpus, llvm=command.llvm, workers=command.workers)
            counted = commands.info(counting, report=report)
            return counted.to_json(), lambda out: print_corpus(counted, out)
        case commands.Info():
            info = commands.info(command, report=report)
            return info.to_json(), lambda out: print_corpus(info, out)
        case commands.Split():
            split = commands.split(command, report=report)
            return split.to_json(), lambda out: print_split(split, out)
        case _:
            result = _values(command, report)
            return result, lambda out: _print_values(result, out)


def _tuned(command: commands.Tune | commands.Check, report: Report) -> tuple[dict[str, Any], Callable[[Console], None]]:
    """As :func:`_result`, of the stages of tuned plugins."""
    if isinstance(command, commands.Tune):
        if command.objective == "spill-cost":
            allocated = commands.tune_allocations(command, report=report)
            return allocated.to_json(), lambda out: print_allocated(allocated, out)
        tuned = commands.tune(command, report=report)
        return tuned.to_json(), lambda out: print_tuned(tuned, out)
    kept = commands.check(command, report=report)
    if isinstance(kept, AllocationCheckResult):
        return kept.to_json(), lambda out: print_allocation_check(kept, out)
    return kept.to_json(), lambda out: print_check(kept, out)


def _values(
    command: commands.Sources
    | commands.Import
    | commands.Combine
    | commands.Record
    | commands.Override
    | commands.Verify
    | commands.Trace
    | commands.Vocab
    | commands.Train
    | commands.Importance
    | commands.Export,
    report: Report,
) -> dict[str, Any]:
    """The result of a stage that has no table of its own."""
    match command:
        case commands.Sources():
            result = commands.fetch(command, report=report)
        case commands.Import():
            result = commands.import_build(command, report=report)
        case commands.Combine():
            result = commands.combine(command)
        case commands.Record():
            result = commands.record(command, report=report)
        case commands.Override():
            result = commands.override(command).to_json()
        case commands.Verify():
            result = commands.verify(command, report=report).to_json()
        case _:
            result = _learning_values(command, report)
    return result


def _learning_values(
    command: commands.Trace | commands.Vocab | commands.Train | commands.Importance | commands.Export, report: Report
) -> dict[str, Any]:
    """As :func:`_values`, of the stages that take a corpus or what came of one."""
    match command:
        case commands.Trace():
            result = commands.trace(command, report=report)
        case commands.Vocab():
            result = commands.vocab(command, report=report)
        case commands.Train():
            result = commands.train(command, report=report).to_json()
        case commands.Importance():
            result = commands.explain(command, report=report)
        case commands.Export():
            result = dataclasses.asdict(commands.export(command))
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

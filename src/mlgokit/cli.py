"""The command line: a table of the commands; arguments to a configuration, one call, the result printed."""

import dataclasses
import errno
import json
import os
import sys
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Annotated, Any, Union, cast

import tyro
from rich.console import Console

from mlgokit.builds.outside import outside_of
from mlgokit.commands import (
    bench,
    build,
    check,
    doctor,
    evaluate,
    explain,
    export,
    export_llvm,
    export_replay,
    export_tflite,
    export_tosa,
    import_policy,
    importance,
    quickstart,
    report,
    size,
    trace,
    train,
    tune,
    vocab,
    worker,
)
from mlgokit.commands.corpus import combine, extract, fetch, import_build, info, override, record, split, verify
from mlgokit.commands.progress_bar import show_progress
from mlgokit.commands.scratch import scratch_folder
from mlgokit.compiler.plugin_name import check_plugin_output
from mlgokit.disk import folder_bytes, free_bytes
from mlgokit.errors import InputError, MlgokitError, StorageError, UsageError
from mlgokit.files import check_writable
from mlgokit.learning.settings import find_replaced_option
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import open_console

INTERRUPTED = 130
NOBODY_READS = 141
"""What a shell reports for a program that its reader left, as in ``mlgokit corpus info | head -1``."""
_NO_THREAD = "can't start new thread"
_FEWER = "have fewer compilers run at once with --workers"
_SHORTAGES = {
    errno.ENOMEM: ("more memory", f"end other programs or {_FEWER}"),
    errno.EAGAIN: ("another process or thread", f"raise `ulimit -u` or {_FEWER}"),
    errno.EMFILE: ("another open file", "raise `ulimit -n`"),
    errno.ENFILE: ("another open file", "end other programs"),
}
"""What a process asks the system for and does not get, and what to do, by the system's number."""
LONG = 12
"""Values with more entries than this are only counted, not printed."""
_AGAIN = "run the same command again"


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        configuration: its options, a dataclass whose docstrings are the help.
        run: takes the configuration and ``report``; returns JSON values, or what has them as ``to_json``.
        render: prints what ``run`` returned; without it, its JSON values are printed.
        exit_code: of a configuration and what ``run`` returned; without it, 0.
        folder: the option that names the folder which grows with a run; without it, there is none to speak of.
        plugin: the option that names the plugin that it writes.
        files: options that name other files that it writes.
        folders: options that name further folders that it writes into.
    """

    configuration: type
    run: Callable[..., Any]
    render: Callable[[Any, Console], None] | None = None
    exit_code: Callable[[Any, Any], int] | None = None
    folder: str = ""
    plugin: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


COMMANDS = {
    "doctor": Command(doctor.Doctor, doctor.run, doctor.render, doctor.exit_code),
    "corpus fetch": Command(fetch.Fetch, fetch.run, folders=("folder",)),
    "corpus extract": Command(extract.Extract, extract.run, info.render, folder="corpus"),
    "corpus import": Command(import_build.Import, import_build.run, folder="corpus"),
    "corpus combine": Command(combine.Combine, combine.run, folders=("corpus",)),
    "corpus record": Command(record.Record, record.run, files=("output",), folders=("corpus",)),
    "corpus override": Command(override.Override, override.run, folders=("corpus",)),
    "corpus verify": Command(verify.Verify, verify.run, exit_code=verify.exit_code),
    "corpus info": Command(info.Info, info.run, info.render),
    "corpus split": Command(split.Split, split.run, split.render, folders=("corpus",)),
    "trace": Command(trace.Trace, trace.run, folder="output", files=("tfrecord",), folders=("store",)),
    "tune": Command(tune.Tune, tune.run, tune.render, folder="folder", plugin="output"),
    "build": Command(build.Build, build.run, build.render, build.exit_code),
    "check": Command(check.Check, check.run, check.render, check.exit_code),
    "vocab": Command(vocab.Vocab, vocab.run, folders=("output",)),
    "train": Command(train.Train, train.run, folder="output", folders=("store",)),
    "importance": Command(importance.Importance, importance.run, files=("output",)),
    "evaluate": Command(evaluate.Evaluate, evaluate.run, evaluate.render, evaluate.exit_code, files=("output",)),
    "explain": Command(explain.Explain, explain.run, explain.render, explain.exit_code),
    "bench": Command(bench.Bench, bench.run, bench.render, bench.exit_code, files=("output",), folders=("folder",)),
    "size": Command(size.Size, size.run, size.render, files=("output",)),
    "report": Command(report.MakeReport, report.run, files=("output",)),
    "import-policy": Command(import_policy.ImportPolicy, import_policy.run, files=("output",)),
    "export plugin": Command(export.Export, export.run, export.render, plugin="output"),
    "export replay": Command(
        export_replay.ExportReplay,
        export_replay.run,
        export_replay.render,
        export_replay.exit_code,
        folders=("output",),
    ),
    "export tflite": Command(export_tflite.ExportTflite, export_tflite.run, folders=("output",)),
    "export tosa": Command(export_tosa.ExportTosa, export_tosa.run, folders=("output",)),
    "export llvm": Command(export_llvm.ExportLlvm, export_llvm.run, folders=("output",)),
    "worker": Command(worker.Worker, worker.run),
    "quickstart": Command(
        quickstart.Quickstart, quickstart.run, quickstart.render, quickstart.exit_code, folders=("folder",)
    ),
}
GROUPS = {
    "corpus": "Make and look at corpora.",
    "export": "Turn policies and tuned decisions into what a compiler can load.",
}
DESCRIPTION = "Machine-learned optimization policies for the clang that you have."


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``mlgokit``; ends the process with an exit code that means something (see ``errors.py``)."""
    old = find_replaced_option(sys.argv[1:] if arguments is None else arguments)
    if old is not None:
        open_console(sys.stderr, soft_wrap=True).print(f"mlgokit: {old}", style="red", highlight=False)
        sys.exit(UsageError.exit_code)
    try:
        parsed = _parse(arguments)
    except BrokenPipeError:
        sys.exit(_silence_output())
    sys.exit(run(parsed.command, as_json=parsed.json))


def run_command(configuration: Any, *, report: Report = say_nothing) -> Any:
    """Carry one command out, as ``run_command(Train(corpus=Path("corpus")))`` does what ``mlgokit train`` does.

    Args:
        configuration: the command's, such as :class:`~mlgokit.Train` or :class:`~mlgokit.Tune`.
        report: told how far the work is, with the number of steps done, of all steps, and what is done.

    Returns:
        What the command found; ``--json`` prints it as JSON.

    Raises:
        MlgokitError: the command cannot be carried out; the message says what to do.
    """
    command = _command_of(configuration)
    _check_outputs(command, configuration)
    return command.run(configuration, report=report)


def _check_outputs(command: Command, configuration: Any) -> None:
    """Refuse what could not be written after the work."""
    for name in filter(None, (command.folder, *command.folders)):
        if (folder := getattr(configuration, name)) is not None:
            check_writable(folder, is_folder=True)
    for name in command.files:
        if (file := getattr(configuration, name)) is not None:
            check_writable(file)
    if command.plugin:
        check_plugin_output(getattr(configuration, command.plugin))


def run(configuration: Any, *, as_json: bool = False) -> int:
    """Carry the command of a configuration out; the sentence of an error goes to standard error."""
    errors = open_console(sys.stderr, soft_wrap=True)
    try:
        with scratch_folder():
            code = _carry_out(configuration, as_json=as_json)
        sys.stdout.flush()
    except KeyboardInterrupt:
        text = _with_remedy(configuration, "finished work is kept; run the same command again to resume")
        errors.print(f"mlgokit: interrupted; {text}")
        return INTERRUPTED
    except MlgokitError as error:
        return _fail(errors, _with_remedy(configuration, str(error)), error.exit_code)
    except BrokenPipeError:
        return _silence_output()
    except RecursionError:
        sentence = "expected input of fewer levels, found one that is nested too deeply; give it in another form"
        return _fail(errors, sentence, InputError.exit_code)
    except (OSError, MemoryError, RuntimeError) as error:
        sentence = _shortage(error)
        if not sentence:
            raise
        return _fail(errors, _with_remedy(configuration, sentence), StorageError.exit_code)
    return code


def _fail(errors: Console, sentence: str, code: int) -> int:
    errors.print(f"mlgokit: {sentence}", style="red", markup=False, highlight=False)
    return code


def _shortage(error: OSError | MemoryError | RuntimeError) -> str:
    """The sentence about what this machine or its disk did not give; empty if that is not what happened."""
    again = f"then {_AGAIN}"
    if isinstance(error, OSError):
        number = error.errno
    else:
        number = errno.ENOMEM if isinstance(error, MemoryError) else errno.EAGAIN
        if number == errno.EAGAIN and str(error) != _NO_THREAD:
            return ""
    if number in _SHORTAGES:
        what, remedy = _SHORTAGES[number]
        return f"expected to have {what}, found none left; {remedy}, {again}"
    named, reason = getattr(error, "filename", None), getattr(error, "strerror", None)
    return (
        f"expected to be able to use {named or 'the disk'}, found: {reason or error}; "
        f"free some space or check permissions, {again}"
    )


def _with_remedy(configuration: Any, sentence: str) -> str:
    """The sentence with ``--continue`` in its remedy, for commands that resume only with it."""
    return sentence if getattr(configuration, "go_on", True) else sentence.replace(_AGAIN, f"{_AGAIN} with --continue")


def _parse(arguments: Sequence[str] | None) -> Any:
    """A configuration as ``command``, and ``json``; help and errors are printed, and end the process."""
    try:
        return tyro.cli(
            _arguments(),
            prog="mlgokit",
            description=DESCRIPTION,
            args=arguments,
            config=(
                tyro.conf.CascadeSubcommandArgs,
                tyro.conf.OmitSubcommandPrefixes,
                tyro.conf.FlagCreatePairsOff,
            ),
        )
    finally:
        sys.stdout.flush()


def _silence_output() -> int:
    # Python would complain once more when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NOBODY_READS


def _arguments() -> Any:
    """A dataclass for tyro: one of the configurations as ``command``, and ``json``."""
    top: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        group, _, leaf = name.rpartition(" ")
        arm = Annotated[command.configuration, tyro.conf.subcommand(leaf)]
        top[group or leaf] = (*top.get(group, ()), arm) if group else arm
    for group, text in GROUPS.items():
        # tyro makes subcommands of unions only, so that a single one needs a second, hidden arm.
        arms = Union[(*top[group], Annotated[None, tyro.conf.Suppress])]
        top[group] = Annotated[arms, tyro.conf.subcommand(group, description=text)]
    as_json = Annotated[bool, tyro.conf.arg(help="Print the result as JSON on standard output.")]
    any_command = Union[tuple(top.values())]  # noqa: UP007  (made while the program runs)
    parts = [("command", any_command), ("json", as_json, dataclasses.field(default=False))]
    return dataclasses.make_dataclass("Arguments", parts)


def _command_of(configuration: Any) -> Command:
    return next(command for command in COMMANDS.values() if command.configuration is type(configuration))


def _carry_out(configuration: Any, *, as_json: bool) -> int:
    command = _command_of(configuration)
    with show_progress() as report:
        result = run_command(configuration, report=report)
    _tell_disk(command, configuration)
    if not as_json and command.render is not None:
        command.render(result, open_console())
    else:
        values = cast("dict[str, Any]", result if isinstance(result, dict) else result.to_json())
        if as_json:
            json.dump(values, sys.stdout, indent=1)
            sys.stdout.write("\n")
        else:
            _print_values(values, open_console())
    return 0 if command.exit_code is None else command.exit_code(configuration, result)


def _tell_disk(command: Command, configuration: Any) -> None:
    """Say on standard error what the run's folder takes now, and what is left."""
    folder = getattr(configuration, command.folder) if command.folder else None
    if folder is not None and folder.is_dir():
        taken, free = folder_bytes(folder) / 2**20, free_bytes(folder) / 2**30
        errors = Console(file=sys.stderr, soft_wrap=True, emoji=False)
        errors.print(f"{folder}: {taken:,.1f} MiB on disk, {free:,.1f} GiB free", markup=False, highlight=False)
        outside = outside_of(folder)
        if outside.is_dir():
            copies = folder_bytes(outside) / 2**20
            errors.print(
                f"{outside}: {copies:,.1f} MiB of copies and builds of this run; a later run removes them when "
                f"{folder} is gone",
                markup=False,
                highlight=False,
            )


def _print_values(values: dict[str, Any], out: Console) -> None:
    """Short values as lines, long lists by their length; ``--json`` has everything."""
    for name, value in values.items():
        if isinstance(value, (list, tuple, dict)) and len(cast("Sized", value)) > LONG:
            out.print(f"{name}: {len(cast('Sized', value))} (use --json to see them)", markup=False, highlight=False)
        else:
            out.print(f"{name}: {value}", markup=False, highlight=False)

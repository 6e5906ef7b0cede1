"""The command line: which command is meant, one call, the result printed.

Help, the version and typos are answered before anything is imported that a command needs.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mlgokit.commands.help import answer_at_once, shown, split_call, unexpected_word, wrong_words
from mlgokit.commands.table import COMMANDS, Command, find_command, json_values
from mlgokit.errors import InputError, MlgokitError, StorageError, UsageError
from mlgokit.progress import Report, say_nothing

if TYPE_CHECKING:
    from rich.console import Console

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
_AGAIN = "run the same command again"
_QUICK = ("size",)
"""Commands that often take less time than tyro takes to be imported."""
_OLD_PREFIXES = ("--effects.", "--cloning.", "--training.")
"""What options of older versions begin with."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``mlgokit``; ends the process with an exit code that means something (see ``errors.py``)."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            # As Ctrl-C does: what runs for us, such as a build, ends with us, and temporary files go.
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        configuration, as_json = _parse(words)
    except BrokenPipeError:
        sys.exit(_silence_output())
    sys.exit(run(configuration, as_json=as_json))


def run_command(configuration: Any, *, report: Report = say_nothing) -> Any:
    """Run one command: ``run_command(Train(corpus=Path("corpus")))`` does what ``mlgokit train`` does.

    Args:
        configuration: the command's, such as :class:`~mlgokit.Train` or :class:`~mlgokit.Tune`.
        report: told how far the work is, with the number of steps done, of all steps, and what is done.

    Returns:
        What the command found; ``--json`` prints it as JSON.

    Raises:
        MlgokitError: the command cannot be carried out; the message says what to do.
    """
    command = find_command(configuration)
    _check_outputs(command, configuration)
    return command.run(configuration, report=report)


def _check_outputs(command: Command, configuration: Any) -> None:
    """Check before the work that a command's files, folders and plugin can be written after it."""
    from mlgokit.files import check_writable

    for name in filter(None, (command.folder, *command.folders)):
        if (folder := getattr(configuration, name)) is not None:
            check_writable(folder, is_folder=True)
    for name in command.files:
        if (file := getattr(configuration, name)) is not None:
            check_writable(file)
    if command.plugin:
        from mlgokit.compiler.plugin_name import check_plugin_output

        check_plugin_output(getattr(configuration, command.plugin))


def run(configuration: Any, *, as_json: bool = False) -> int:
    """Run the command of a configuration, with errors on standard error; return the exit code."""
    from mlgokit.commands.scratch import scratch_folder
    from mlgokit.terminal import open_console

    errors = open_console(sys.stderr, soft_wrap=True)
    try:
        with scratch_folder():
            code = _run_and_print(configuration, as_json=as_json)
        sys.stdout.flush()
    except KeyboardInterrupt:
        from mlgokit.compiler.process import kill_children

        kill_children()
        command = find_command(configuration)
        keeps = bool(command.folder) or "folder" in command.folders
        sentence = f"interrupted; finished work is kept; {_AGAIN} to resume" if keeps else "interrupted"
        errors.print(f"mlgokit: {_add_continue(configuration, sentence)}")
        return INTERRUPTED
    except MlgokitError as error:
        return _fail(errors, _add_continue(configuration, str(error)), error.exit_code)
    except BrokenPipeError:
        return _silence_output()
    except RecursionError:
        sentence = "expected input of fewer levels, found one that is nested too deeply; give it in another form"
        return _fail(errors, sentence, InputError.exit_code)
    except (OSError, MemoryError, RuntimeError) as error:
        sentence = _shortage(error)
        if not sentence:
            raise
        return _fail(errors, _add_continue(configuration, sentence), StorageError.exit_code)
    return code


def _fail(errors: "Console", sentence: str, code: int) -> int:
    errors.print(f"mlgokit: {sentence}", style="red", markup=False, highlight=False)
    return code


def _shortage(error: OSError | MemoryError | RuntimeError) -> str:
    """Describe what the machine ran out of, such as memory or disk space; empty if the error has another cause."""
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


def _add_continue(configuration: Any, sentence: str) -> str:
    """Put ``--continue`` into the remedy of an error, for commands that resume only with it."""
    return sentence if getattr(configuration, "go_on", True) else sentence.replace(_AGAIN, f"{_AGAIN} with --continue")


def _parse(words: Sequence[str]) -> tuple[Any, bool]:
    """Parse a call to its configuration, and whether JSON is asked for; help and errors end the process."""
    if any(word.startswith(_OLD_PREFIXES) for word in words):
        from mlgokit.learning.settings import find_replaced_option

        if old := find_replaced_option(words):
            _end(f"mlgokit: {old}", UsageError.exit_code)
    call = split_call(words)
    if words and words[0].startswith("--tyro-"):
        return _ask_tyro(words, COMMANDS)
    if (answer := answer_at_once(call)) is not None:
        _end(*answer)
    if call.wants("--help-all"):
        return _ask_tyro([*call.named, "--help"], [call.name])
    rest = _add_project_settings(call.name, call.rest) if COMMANDS[call.name].run_folders else call.rest
    if (wrong := wrong_words(call.name, rest)) is not None:
        _end(wrong, UsageError.exit_code)
    if call.name in _QUICK:
        from mlgokit.commands.plain import read_plain

        # numpy starts threads for products of matrices, of which these commands have none.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if (plain := read_plain(COMMANDS[call.name], (*call.flags, *call.rest))) is not None:
            return plain
    return _ask_tyro([*call.flags, *call.named, *rest], [call.name])


def _add_project_settings(name: str, words: Sequence[str]) -> Sequence[str]:
    """Add the words of the project's settings to those of a call, and say what was added."""
    from mlgokit.commands.settings import add_settings, find_settings, say_settings

    try:
        settings = find_settings(Path.cwd())
        if settings is None:
            return words
        words, added = add_settings(name, words, settings)
    except MlgokitError as error:
        _end(f"mlgokit: {error}", error.exit_code)
    if added:
        sys.stderr.write(f"{shown(say_settings(settings, added))}\n")
    return words


def _ask_tyro(words: Sequence[str], names: Iterable[str]) -> tuple[Any, bool]:
    """Let tyro parse the words of one of the named commands to its configuration, and whether JSON is asked for."""
    from mlgokit.commands.parser import parse

    try:
        parsed, left = parse(words, names)
    finally:
        sys.stdout.flush()
    if left:
        _end(unexpected_word(" ".join(names), left[0]), UsageError.exit_code)
    return parsed.command, parsed.json


def _end(text: str, code: int) -> NoReturn:
    """Print an answer, an error to standard error, and end the process."""
    print(text, file=sys.stderr if code else sys.stdout, flush=True)
    sys.exit(code)


def _silence_output() -> int:
    """Discard all further output, as nobody reads it any more, and return the exit code for that."""
    # Python would complain once more when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NOBODY_READS


def _run_and_print(configuration: Any, *, as_json: bool) -> int:
    """Run the command of a configuration, show its result, and return the exit code."""
    from mlgokit.commands.progress_bar import show_progress
    from mlgokit.terminal import open_console, print_values

    command = find_command(configuration)
    with show_progress() as report:
        result = run_command(configuration, report=report)
    _tell_disk(command, configuration)
    if not as_json and command.render is not None:
        command.render(result, open_console())
    else:
        values = json_values(result)
        if as_json:
            import json

            json.dump(values, sys.stdout, indent=1)
            sys.stdout.write("\n")
        else:
            print_values(values, open_console())
    return 0 if command.exit_code is None else command.exit_code(configuration, result)


def _tell_disk(command: Command, configuration: Any) -> None:
    """Say on standard error what the run's folder takes now, and what is left."""
    folder = getattr(configuration, command.folder) if command.folder else None
    if folder is not None and folder.is_dir():
        from mlgokit.builds.outside import outside_path
        from mlgokit.disk import folder_bytes, free_bytes
        from mlgokit.terminal import open_console

        taken, free = folder_bytes(folder) / 2**20, free_bytes(folder) / 2**30
        errors = open_console(sys.stderr, soft_wrap=True)
        errors.print(f"{folder}: {taken:,.1f} MiB on disk, {free:,.1f} GiB free", markup=False, highlight=False)
        outside = outside_path(folder)
        if outside.is_dir():
            copies = folder_bytes(outside) / 2**20
            errors.print(
                f"{outside}: {copies:,.1f} MiB of copies and builds of this run; a later run removes them when "
                f"{folder} is gone",
                markup=False,
                highlight=False,
            )

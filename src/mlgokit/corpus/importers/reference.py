"""Reference objects made by a build's own commands, to verify an import; it shares no code with the import.

A command's own options go to the driver in their own order, and what it answers compiles the source to an object in one
go. Precompiled headers are made and used, by the build's own commands.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.front_end import Level, front_end_environment
from mlgokit.corpus.importers.build_command import FrontEndCall, front_end_call
from mlgokit.corpus.importers.build_sources import (
    BuildSource,
    CommandFilter,
    SourceReading,
    read_sources,
    source_request,
)
from mlgokit.corpus.importers.compile_commands import CompileCommand
from mlgokit.corpus.options.dry_run import BuildOptions, driver_path, dry_runs
from mlgokit.corpus.profiles import profile_of, replace_profiles
from mlgokit.errors import InputError
from mlgokit.module import Module


def build_reference(
    database: Path,
    *,
    toolchain: Toolchain,
    project: str | None = None,
    level: Level | None = None,
    wanted: CommandFilter | None = None,
    timeout_seconds: float,
) -> Callable[[Module, Path], Path | str]:
    """Return a function that compiles a module's reference object by the build's command with our clang.

    For a command with options that the corpus leaves out, the function returns the reason instead.

    Raises:
        CorpusError: the database is malformed.
        UsageError: a filter or the project's name is not usable.
    """
    request = source_request(database, project=project, level=level, wanted=wanted or CommandFilter())
    commands = {
        source.name: source.command
        for source in read_sources(request, SourceReading())
        if isinstance(source, BuildSource)
    }

    run = functools.partial(_run, toolchain=toolchain, timeout_seconds=timeout_seconds)
    read = functools.partial(front_end_call, level=level, headers=request.headers, as_text=False)

    def build(module: Module, folder: Path) -> Path | str:
        command = commands.get(module.name)
        if command is None:
            return "expected the build's command for it, found none; give the database that the corpus was made from"
        output = folder / "build.o"
        made: tuple[str, ...] = ()
        try:
            call = read(command)
            if missing := [option for option in call.dropped if not option.startswith("-flto")]:
                return f"the build's command has {', '.join(missing)}, which the corpus is made without"
            for index, maker in enumerate(call.headers):
                header = folder / f"{index}.pch"
                run(read(maker), maker, ("-emit-pch", "-o", str(header), *made))
                # A header that is made with another one names that itself.
                made = ("-include-pch", str(header))
            run(call, command, ("-emit-obj", "-o", str(output), *made))
        except (InputError, ValueError) as error:
            return str(error)
        return output

    return build


def _run(
    call: FrontEndCall,
    command: CompileCommand,
    action: Sequence[str],
    *,
    toolchain: Toolchain,
    timeout_seconds: float,
) -> None:
    """Run the front-end line of a call with the words of another action, such as ``-emit-obj``; raise if it fails."""
    language = call.source_language.removesuffix("-header")
    options = BuildOptions(
        directory=command.directory,
        driver=call.driver,
        paths=(),
        essential=call.units,
        language=call.language,
        named=("-x", language),
    )
    dry = dry_runs(toolchain, [options], workers=1)[options]
    if dry.reason is not None:
        raise ValueError(dry.reason)

    argv = Cc1Line(
        driver_path(toolchain, call.driver),
        options=replace_profiles(dry.front_end, lambda option: profile_of(option, command.directory)),
        own=("-main-file-name", command.file.name, *action),
        source=("-x", language, call.input[-1]),
    )
    done = process.run(argv, timeout_seconds=timeout_seconds, cwd=command.directory, env=front_end_environment())
    if done.returncode != 0:
        raise ValueError("the build's command did not finish in time" if done.timed_out else first_error(done.stderr))

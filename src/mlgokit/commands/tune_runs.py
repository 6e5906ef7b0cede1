"""The runs of a tuning for executed instructions: the profile of the build, and what its programs execute plainly."""

import dataclasses
import functools
from pathlib import Path

from mlgokit.bench.build import clean_environment
from mlgokit.bench.callgrind import Callgrind, find_callgrind, read_costs
from mlgokit.bench.counts import Execution
from mlgokit.builds.profiled import command_in, has_profile, make_profile, profile_options
from mlgokit.builds.recorded import RecordedBuild, record_plain
from mlgokit.commands.options import option_words
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.run_costs import FunctionCosts
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write, digest_file, writing
from mlgokit.progress import Report
from mlgokit.tune.runs import Runs


def record_for_runs(config: Tune, *, toolchain: Toolchain, report: Report) -> tuple[RecordedBuild, Runs]:
    """Record a build with a profile, of the runs if its commands have none, and count what it executes.

    Raises:
        CorpusError: the build failed.
        ToolError: callgrind or llvm-profdata is missing.
        UsageError: a run fails.
    """
    callgrind = dataclasses.replace(find_callgrind(), simulates=False)
    profile = config.output.absolute().with_suffix(".profdata")
    record = functools.partial(
        record_plain, config.built, config.folder, go_on=config.go_on, toolchain=toolchain, report=report
    )
    if config.go_on and _was_made(config, profile):
        recorded = record(added=profile_options(profile))
    else:
        recorded = record()
        if not has_profile(recorded):
            words = [option_words(command, "--run") for command in config.run]
            make_profile(recorded, words, profile, run_seconds=config.run_seconds, report=report)
            atomic_write(_mark(config), digest_file(profile))
            recorded = record(added=profile_options(profile), go_on=False)
    scratch = config.folder.resolve() / "runs"
    with writing(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    count = functools.partial(
        count_command, callgrind=callgrind, tree=recorded.tree, scratch=scratch, seconds=config.run_seconds
    )
    plain = dict[str, FunctionCosts]()
    commands = (*config.run, *config.held_out)
    for index, command in enumerate(commands):
        report(index, len(commands), "count what the plain build executes")
        plain[command] = count(command)
    runs = Runs(
        plain=plain,
        held_out=frozenset(config.held_out),
        count=count,
        counter=callgrind.name,
        growth=config.growth,
    )
    return recorded, runs


def count_command(command: str, *, callgrind: Callgrind, tree: Path, scratch: Path, seconds: float) -> FunctionCosts:
    """What the programs of a build execute in a command, with the libraries that they load.

    Raises:
        ToolError: callgrind cannot be started.
        UsageError: the command fails, or runs no program of the build.
    """
    execution = Execution(
        argv=command_in(option_words(command, "--run or --held-out"), tree),
        folder=tree,
        environment=clean_environment(),
        own=tree,
        timeout_seconds=seconds,
    )
    counted = callgrind.count(execution, scratch)
    if counted.reason:
        raise UsageError(
            f"--run or --held-out: expected `{command}` to run a program of the build, found: {counted.reason}; "
            "correct it, and try it by hand in a built folder"
        )
    return read_costs(sorted(scratch.glob("profile.*")), tree)


def _mark(config: Tune) -> Path:
    """The file that says which profile a build of the folder is compiled with."""
    return config.folder / "profile"


def _was_made(config: Tune, profile: Path) -> bool:
    return profile.exists() and _mark(config).exists() and _mark(config).read_text() == digest_file(profile)

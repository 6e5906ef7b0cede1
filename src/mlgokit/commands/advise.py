"""The command that says which flags would make a build smaller, before anything is learned."""

import dataclasses
import json
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mlgokit.advice.advise import AdviceOptions, advise_build
from mlgokit.advice.page import advice_page
from mlgokit.advice.record import Advice
from mlgokit.builds.recorded import record_plain
from mlgokit.commands.options import NO_BUILD, Texts, WholeBuild
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.locks import locked
from mlgokit.manifest import check_manifest, package_version, write_manifest
from mlgokit.pages.html import write_page
from mlgokit.pages.terminal import print_page
from mlgokit.progress import Report, say_nothing

RESULT = "advice.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise:
    """Report which flags of clang and lld make a build smaller, alone and together: advise --build 'make -j2'."""

    built: WholeBuild = NO_BUILD
    """Build that is to be smaller; it runs in copies of its folder, once for each flag."""
    folder: Path = Path("advice")
    """Folder for the trials and the result; the same command goes on with what is there."""
    seconds: float = 600.0
    """Time for trials in seconds, beside the plain build and a clean build with what is advised."""
    without: Texts = ()
    """Name of a flag that is not tried, such as lto."""
    llvm: int | None = None
    """LLVM major version to use; the newest supported one if not given."""


def run(config: Advise, *, report: Report = say_nothing) -> Advice:
    """Try the flags on copies of the build, and leave ``advice.json`` with its report in the folder.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: the plain build fails.
        ReuseError: the folder has another build's trials.
        UsageError: the call contradicts itself, or the build compiles or links nothing.
    """
    if not config.built.build:
        raise UsageError("advise: expected --build with the command of a build, found none; add it")
    if config.built.clean:
        raise UsageError("--clean: advise builds in copies of the folder alone, which are always clean; leave it out")
    if config.seconds < 0:
        raise UsageError(f"--seconds: expected a time of 0 or more, found {config.seconds:g}; correct it")
    config.built.check_programs()
    began = time.monotonic()
    with locked(config.folder):
        toolchain = find_toolchain(config.llvm)
        _claim(config, toolchain)
        recorded = record_plain(config.built, config.folder, go_on=True, toolchain=toolchain, report=report)
        options = AdviceOptions(folder=config.folder, seconds=config.seconds, without=config.without)
        advice = advise_build(recorded, options, report=report)
        result = config.folder / RESULT
        advice = dataclasses.replace(
            advice,
            wall_seconds=time.monotonic() - began,
            command=shlex.join(["mlgokit", *sys.argv[1:]]),
            mlgokit_version=package_version(),
            toolchain=toolchain.describe(),
            report=str(result.with_suffix(".html")),
        )
        atomic_write(result, json.dumps(advice.to_json(), indent=1))
        write_page(advice_page(advice), result)
    return advice


def _claim(config: Advise, toolchain: Toolchain) -> None:
    """Sign the folder, or check that it has trials of this build.

    Raises:
        ReuseError: it has something else.
    """
    built, versions = config.built, toolchain.describe()
    claim = {
        "build": built.build,
        "test": built.test,
        "program": built.program,
        "build_folder": built.build_folder.resolve(),
    }
    if not check_manifest(config.folder, kind="advice", config=claim, toolchain=versions, inputs={}):
        write_manifest(config.folder, kind="advice", config=claim, toolchain=versions, inputs={})


def render(result: Advice, console: Console) -> None:
    """Print what each flag gives, what they give together, and what to add to the build."""
    print_page(advice_page(result), console)

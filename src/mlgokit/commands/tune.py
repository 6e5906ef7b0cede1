"""The command that tunes one project: search, verification, and one plugin to add to the build."""

import contextlib
import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mlgokit.builds.cargo import CargoBuild, CargoRequest, open_cargo
from mlgokit.builds.compilers import check_sandbox, clang_for, spread, toolchain_of_build
from mlgokit.builds.compression import DEFAULT, Compressor, find_compressor, find_stripper
from mlgokit.builds.corpus import CorpusBuild, Database
from mlgokit.builds.lto import GIVES_UP, LtoBuild
from mlgokit.builds.opening import open_build
from mlgokit.builds.recorded import RecordedBuild, record_plain
from mlgokit.builds.request import BuildRequest
from mlgokit.commands.tune_options import Call, Tune, check_call, replay_folder
from mlgokit.commands.tune_runs import record_for_runs
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import baseline_of, baseline_text
from mlgokit.errors import ReuseError, UsageError
from mlgokit.files import atomic_write
from mlgokit.locks import locked, locked_output
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.decisions import DecisionTable, read_table
from mlgokit.tables.overrides import ALLOCATIONS, OverrideTable, read_overrides
from mlgokit.tune.page import tuned_page
from mlgokit.tune.replay_export import ReplayRequest, find_reader
from mlgokit.tune.result import Tuned
from mlgokit.tune.session import LEAST_STEPS, SEARCH, NotRecovered, Session, TuneSettings, tune

_STEPS_STAY = "compile-steps-stay"
"""The file that says that the compile steps of a link are left as the build has them."""
OpenSession = Callable[[NotRecovered | None], Session]
"""Opens a session, the first one or one after a search that was given up."""


def run(config: Tune, *, report: Report = say_nothing) -> Tuned:
    """Tune a project, and leave the plugin, and ``tuned.json`` in the folder.

    Raises:
        BusyError: another process works in the folder, makes the same output, or changes the corpus.
        UsageError: the call contradicts itself.
        ReuseError: the folder has another search, or one that is not to be gone on with.
        CorpusError: there is nothing to tune.
    """
    call = check_call(config)
    with locked(config.folder), locked_output(config.output), contextlib.ExitStack() as stack:
        opens = _open_cargo(call, report=report) if call.cargo else _open_sources(call, stack=stack, report=report)
        result = tune(opens(None))
        while isinstance(result, NotRecovered):
            result = tune(opens(result))
        return result


page = tuned_page


# --- Cargo ----------------------------------------------------------------------------------------------------------


def _open_cargo(call: Call, *, report: Report) -> OpenSession:
    config, began = call.options, time.monotonic()
    request = CargoRequest(
        words=call.cargo,
        folder=config.link_folder or Path(),
        scratch=config.folder,
        compiler=config.compiler,
        reuse=config.reuse,
        link_seconds=config.judge.timeout_seconds,
        tests=tuple(tuple(command) for command in config.built.words("test")),
        test_seconds=60 * config.built.test_minutes,
    )
    build: CargoBuild = open_cargo(request, report=report)
    replay = None
    if config.artifact == "replay":
        replay = ReplayRequest(
            plugin=config.output, output=replay_folder(config), cargo=request, compiler=config.compiler
        )
    settings = _settings(call, build.compiler.toolchain, None)
    session = Session(
        settings=dataclasses.replace(settings, replay=replay, began=began),
        build=build,
        compiler=build.compiler,
        baseline=f"{build.compiler.rustc.version}, {config.cargo}",
        claim=_claim(config, build.inputs, build.versions),
        left_out=build.left_out,
        report=report,
    )
    return lambda _: session


# --- What clang compiles ---------------------------------------------------------------------------------------------


def _open_sources(call: Call, *, stack: contextlib.ExitStack, report: Report) -> OpenSession:
    """A corpus, a database, a link or a recorded build; the stack holds the corpus.

    A link whose compile steps leave inlining to it is tried first; where that is not recovered, the link of compile
    steps as the build has them.
    """
    config = call.options
    if config.replay_clang is not None:
        # It is used after the search, but a mistake in it is told before.
        find_reader(config.replay_clang)
    toolchain = toolchain_of_build(config.compiler, database=config.compile_commands, commands=config.built.build)
    check_sandbox(config.compiler, toolchain)
    compressor = _find_compressor(config, toolchain)
    settings = _settings(call, toolchain, compressor if config.built.build else None)
    recorded = runs = None
    if config.objective == "instructions":
        recorded, runs = record_for_runs(config, toolchain=toolchain, report=report)
    elif config.built.build:
        recorded = record_plain(config.built, config.folder, go_on=config.go_on, toolchain=toolchain, report=report)
    request = _request(call, recorded, compressor)
    steps_stay = config.folder / _STEPS_STAY
    if not settings.search_folder.exists():
        steps_stay.unlink(missing_ok=True)
    request = dataclasses.replace(request, may_defer=request.may_defer and not steps_stay.exists())

    def open_session(earlier: NotRecovered | None) -> Session:
        if earlier is None:
            session = _open_session(config, request, settings, toolchain, stack=stack, report=report)
            return dataclasses.replace(session, runs=runs)
        note = (
            "the compile steps are unchanged: with all inlining deferred to the link, the image was still "
            f"{earlier.larger:.1%} larger after {GIVES_UP:.0%} of the search, so the search was restarted without "
            "deferring"
        )
        report(0, 1, note)
        shutil.rmtree(settings.search_folder)
        atomic_write(steps_stay, "")
        linked = dataclasses.replace(request, may_defer=False)
        left = dataclasses.replace(settings, seconds=earlier.seconds_left)
        session = _open_session(config, linked, left, toolchain, stack=stack, report=report)
        return dataclasses.replace(session, notes=(*session.notes, note))

    return open_session


def _request(call: Call, recorded: RecordedBuild | None, compressor: Compressor | None) -> BuildRequest:
    config = call.options
    database = None
    if recorded is not None:
        database = Database(path=recorded.site.database, project=recorded.project)
    elif config.compile_commands is not None:
        database = Database(path=config.compile_commands, level=config.level, choice=config.database)
    # A link reads the whole build, and LLVM replays nothing in it.
    steps_only = {"--sandbox on": config.compiler.sandbox == "on", "--artifact replay": config.artifact == "replay"}
    return BuildRequest(
        scratch=config.folder,
        objective=config.objective,
        timeout_seconds=config.judge.timeout_seconds,
        error=config.judge.error,
        corpus=config.corpus,
        database=database,
        project=config.project,
        recorded=recorded,
        configured=config.links,
        programs=config.built.program,
        link=config.link_command,
        link_folder=config.link_folder,
        measuring=call.measuring,
        compressor=compressor if config.objective == "compressed" else None,
        keep_hot=config.keep_hot,
        steps_only=next((option for option, is_given in steps_only.items() if is_given), ""),
        may_defer=not config.link_only and not config.keep_hot,
        go_on=config.go_on,
        compiler=config.compiler,
    )


def _open_session(
    config: Tune,
    request: BuildRequest,
    settings: TuneSettings,
    toolchain: Toolchain,
    *,
    stack: contextlib.ExitStack,
    report: Report,
) -> Session:
    request, build = open_build(request, toolchain, stack=stack, report=report)
    replay = None
    if config.artifact == "replay":
        replay = ReplayRequest(
            plugin=config.output,
            output=replay_folder(config),
            database=None if request.database is None else request.database.path,
            clang=config.replay_clang,
            level=config.level,
            compiler=config.compiler,
        )
    clang = clang_for(
        config.compiler,
        toolchain,
        build_plugin(toolchain),
        corpus=build.folder if isinstance(build, CorpusBuild) else None,
        folder=config.folder,
        report=report,
    )
    baseline = baseline_of(toolchain.version, build.modules)
    if isinstance(build, LtoBuild):
        baseline = baseline_text(toolchain.version, build.levels)
        deadline = config.compiler.deadline(config.judge.timeout_seconds)
        clang = dataclasses.replace(clang, timeout_seconds=deadline)
    clang = config.reuse.apply_to(
        dataclasses.replace(clang, keep_hot=config.keep_hot), recheck=config.compiler.recheck()
    )
    recorded = request.recorded
    stood_in = "" if recorded is None else recorded.in_place_of
    searched = dataclasses.replace(config, objective=request.objective, link_command=request.link)
    return Session(
        settings=dataclasses.replace(settings, objective=request.objective, replay=replay),
        build=build,
        compiler=spread(config.cluster, clang, report=report),
        baseline=f"{baseline}{stood_in}",
        claim=_claim(searched, build.inputs, toolchain.describe()),
        left_out=dict(build.left_out) | dict(recorded.left_out if recorded is not None else {}),
        notes=build.notes,
        recorded=recorded,
        report=report,
    )


def _settings(call: Call, toolchain: Toolchain, compressor: Compressor | None) -> TuneSettings:
    config = call.options
    both = {REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name}
    by_run = config.objective == "instructions"
    return TuneSettings(
        folder=config.folder,
        output=config.output,
        seconds=call.seconds,
        objective=config.objective,
        problems=frozenset(both if config.problem == "both" else {config.problem}),
        policies=call.policies,
        start=config.start,
        earlier=_earlier_table(config, toolchain),
        allocation_share=config.allocation_share,
        pass_share=config.share_for_passes,
        least_pass_share=config.least_for_passes,
        least_steps=LEAST_STEPS if call.cargo else 0,
        slowdown=math.inf if by_run else config.slowdown,
        adds_shipped_policies=config.shipped_policies == "on" and not config.keep_hot and not by_run,
        falls_back_to_policy=config.fallback == "policy",
        judge=config.judge,
        search=config.search,
        compressor=compressor,
    )


def _earlier_table(config: Tune, toolchain: Toolchain) -> DecisionTable | OverrideTable | None:
    """The table of an earlier plugin.

    Raises:
        UsageError: it was tuned with another LLVM.
    """
    if config.start is None:
        return None
    costs = config.objective == "spill-cost"
    earlier = read_overrides(ALLOCATIONS, config.start) if costs else read_table(config.start)
    if earlier.summary is not None and earlier.summary.llvm != toolchain.major:
        raise UsageError(
            f"{config.start}: expected a plugin tuned with LLVM {toolchain.major}, found one for "
            f"{earlier.summary.llvm}, whose keys of functions differ; give --llvm {earlier.summary.llvm}, or leave "
            "--start out"
        )
    return earlier


def _find_compressor(config: Tune, toolchain: Toolchain) -> Compressor | None:
    """The compressor that is asked for; without one what strips the programs of a build, if that is installed."""
    command = config.compressor or (DEFAULT if config.objective == "compressed" else None)
    if command is not None:
        return find_compressor(command, toolchain)
    return find_stripper(toolchain) if config.built.build else None


def _claim(config: Tune, inputs: Mapping[str, str], versions: dict[str, str]) -> Callable[[], None]:
    """Return a function that marks the folder as this search's; refuses one that was begun, unless it is continued."""
    place = config.folder / SEARCH
    commands = {"link_command": config.link_command, "command": config.command}
    settings = {"objective": config.objective, "project": config.project}
    settings |= {} if config.cargo is None else {"cargo": config.cargo}
    settings |= {"problem": config.problem} if config.objective == "spill-cost" else {}
    settings |= {"keep_hot": str(config.keep_hot)} if config.keep_hot else {}
    settings |= {name: value for name, value in commands.items() if value is not None}
    # A search that goes on may do so on changed code.
    compared = None if config.go_on else dict(inputs)
    began = check_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=compared)
    if began and not config.go_on:
        raise ReuseError(
            f"{place}: expected a new folder, found a search of the same project; "
            "add --continue to go on with it, or name another --folder"
        )

    def claim() -> None:
        if not began or config.go_on:
            write_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=dict(inputs))

    return claim

"""The command that tunes one project: search, verification, and one plugin to add to the build."""

import contextlib
import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mlgokit.builds.build import Build
from mlgokit.builds.cargo import CargoBuild, CargoRequest, open_cargo
from mlgokit.builds.compilers import check_sandbox, open_sandbox_for, spread, toolchain_of_build
from mlgokit.builds.compression import DEFAULT, Compressor, find_compressor, find_stripper
from mlgokit.builds.corpus import (
    CorpusBuild,
    Database,
    ModuleSelection,
    import_database,
    modules_for_size,
    modules_of_project,
    note_hot_functions,
)
from mlgokit.builds.link import OUTPUT, LinkPlan, link_words, plan_link
from mlgokit.builds.lto import (
    GIVES_UP,
    LinkRequest,
    LtoBuild,
    describe_ignored_lto,
    is_mostly_lto,
    link_note,
    open_link,
    searchable_link,
)
from mlgokit.builds.measurement import Measure, link_failures, measuring_words
from mlgokit.builds.programs import LinkedPrograms, read_configured_programs
from mlgokit.builds.recorded import RecordedBuild, record_plain
from mlgokit.commands.options import check_module_source
from mlgokit.commands.tune_options import (
    ANY_LEVEL,
    Tune,
    check_build,
    check_cargo,
    check_keep_hot,
    check_links,
    check_objective,
    check_runs,
    check_shares,
    earlier_table,
    for_replay,
    policies_of,
    policy_to_start_from,
    refuse_link,
    replay_folder,
    seconds_of,
)
from mlgokit.commands.tune_runs import record_for_runs
from mlgokit.compiler.compile import COMPILE_SECONDS, ClangCompiler
from mlgokit.compiler.memory import HostMemory, MemoryGate
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import baseline_of
from mlgokit.corpus.importers.database import lto_kinds, module_outputs
from mlgokit.errors import ReuseError, UsageError
from mlgokit.files import atomic_write
from mlgokit.locks import locked, locked_output, reading
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.pages.terminal import print_page
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report, say_nothing
from mlgokit.tune.page import tuned_page
from mlgokit.tune.replay_export import ReplayRequest
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
    seconds_of(config.budget)
    config = for_replay(dataclasses.replace(config, policy=policy_to_start_from(config)))
    check_objective(config)
    check_runs(config)
    check_links(config)
    check_shares(config)
    check_keep_hot(config)
    check_build(config)
    words = () if config.cargo is None else check_cargo(config)
    if not config.built.build and not words:
        check_module_source(
            "tune",
            compile_commands=config.compile_commands,
            corpus=config.corpus,
            database=config.database,
            others="--build (a build command), --cargo, ",
        )
    with locked(config.folder), locked_output(config.output), contextlib.ExitStack() as stack:
        open_session = (
            _open_cargo(config, words, report=report) if words else _open_sources(config, stack=stack, report=report)
        )
        result = tune(open_session(None))
        while isinstance(result, NotRecovered):
            result = tune(open_session(result))
        return result


def render(result: Tuned, console: Console) -> None:
    """Print what became smaller or cheaper, and what to do with the plugin."""
    print_page(tuned_page(result), console)


# --- Cargo ----------------------------------------------------------------------------------------------------------


def _open_cargo(config: Tune, words: tuple[str, ...], *, report: Report) -> OpenSession:
    policies, began = policies_of(config), time.monotonic()
    request = CargoRequest(
        words=words,
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
    settings = _settings(config, policies, build.compiler.toolchain)
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


def _open_sources(config: Tune, *, stack: contextlib.ExitStack, report: Report) -> OpenSession:
    """A corpus, a database, a link or a recorded build; the stack holds the corpus.

    A link whose compile steps leave inlining to it is tried first; where that is not recovered, the link of compile
    steps as the build has them.
    """
    policies = policies_of(config)
    toolchain = toolchain_of_build(config.compiler, database=config.compile_commands, commands=config.built.build)
    check_sandbox(config.compiler, toolchain)
    settings = _settings(config, policies, toolchain)
    recorded = runs = None
    if config.objective == "instructions":
        recorded, runs = record_for_runs(config, toolchain=toolchain, report=report)
        config = _with_recorded(config, recorded)
    elif config.built.build:
        recorded = record_plain(config.built, config.folder, go_on=config.go_on, toolchain=toolchain, report=report)
        config = _with_recorded(config, recorded)
    steps_stay = config.folder / _STEPS_STAY
    if not settings.search_folder.exists():
        steps_stay.unlink(missing_ok=True)
    config = dataclasses.replace(config, link_only=config.link_only or steps_stay.exists())

    def open_session(earlier: NotRecovered | None) -> Session:
        if earlier is None:
            session = _open_session(config, settings, toolchain, recorded, stack=stack, report=report)
            return dataclasses.replace(session, runs=runs)
        note = (
            "the compile steps are unchanged: with all inlining deferred to the link, the image was still "
            f"{earlier.larger:.1%} larger after {GIVES_UP:.0%} of the search, so the search was restarted without "
            "deferring"
        )
        report(0, 1, note)
        shutil.rmtree(settings.search_folder)
        atomic_write(steps_stay, "")
        linked = dataclasses.replace(config, link_only=True)
        left = dataclasses.replace(settings, seconds=earlier.seconds_left)
        session = _open_session(linked, left, toolchain, recorded, stack=stack, report=report)
        return dataclasses.replace(session, notes=(*session.notes, note))

    return open_session


def _open_session(
    config: Tune,
    settings: TuneSettings,
    toolchain: Toolchain,
    recorded: RecordedBuild | None,
    *,
    stack: contextlib.ExitStack,
    report: Report,
) -> Session:
    config, build = open_build(config, recorded, toolchain, stack=stack, report=report)
    is_link = isinstance(build, LtoBuild)
    if is_link:
        refuse_link(config)
    replay = None
    if config.artifact == "replay":
        replay = ReplayRequest(
            plugin=config.output,
            output=replay_folder(config),
            database=config.compile_commands,
            clang=config.replay_clang,
            level=config.level,
            compiler=config.compiler,
        )
    clang = ClangCompiler(
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        workers=config.compiler.workers,
        timeout_seconds=config.compiler.deadline(config.judge.timeout_seconds if is_link else COMPILE_SECONDS),
        limits=config.compiler.limits(),
        sandbox=open_sandbox_for(config.compiler, toolchain, corpus=build.folder, report=report)
        if isinstance(build, CorpusBuild)
        else None,
        room=config.compiler.room(config.folder),
        keep_hot=config.keep_hot,
        memory=MemoryGate(host=HostMemory()),
    )
    compiler: Compiler = spread(
        config.cluster, config.reuse.apply_to(clang, recheck=config.compiler.recheck()), report=report
    )
    stood_in = "" if recorded is None else recorded.in_place_of
    return Session(
        settings=dataclasses.replace(settings, objective=config.objective, replay=replay),
        build=build,
        compiler=compiler,
        baseline=f"{baseline_of(toolchain.version, build.modules)}{stood_in}",
        claim=_claim(config, build.inputs, toolchain.describe()),
        left_out=dict(build.left_out) | dict(recorded.left_out if recorded is not None else {}),
        notes=build.notes,
        recorded=recorded,
        report=report,
    )


def _with_recorded(config: Tune, recorded: RecordedBuild) -> Tune:
    """The call as it would be with the files of the recorded build."""
    config = dataclasses.replace(config, compile_commands=recorded.database)
    needs_link = config.command is not None and OUTPUT in config.command
    # The link of a program with -flto is searched itself.
    needs_link |= config.objective == "linked" and any(lto_kinds(recorded.database)[kind] for kind in ("full", "thin"))
    if config.link_command is not None or not needs_link:
        return config
    link = recorded.link()
    return dataclasses.replace(config, link_command=link.command, link_folder=link.folder)


def open_build(
    config: Tune,
    recorded: RecordedBuild | None,
    toolchain: Toolchain,
    *,
    stack: contextlib.ExitStack,
    report: Report,
) -> tuple[Tune, Build]:
    """What is tuned, and the call with the link that is searched, and say what is left out."""
    project = None if recorded is None else recorded.project
    database = None
    if config.compile_commands is not None:
        database = Database(path=config.compile_commands, project=project, level=config.level, choice=config.database)
    by_link, reason = (config, "") if recorded is None else _by_its_link(config, recorded, toolchain)
    build = None
    if by_link.link_command is not None and database is not None:
        request = _link_request(by_link, by_link.link_command, database)
        try:
            build = open_link(request, toolchain, stack=stack, report=report)
        except UsageError as error:
            # The user did not ask for the link to be searched, so it need not be possible.
            if by_link is config:
                raise
            reason = str(error)
    if build is not None and database is not None:
        notes = (*(() if by_link is config else (link_note(database.path),)), *build.notes)
        chosen = ModuleSelection(modules=build.modules, left_out=build.left_out, notes=notes)
        chosen = note_hot_functions(chosen, config.keep_hot)
        chosen.tell(report)
        return by_link, dataclasses.replace(build, notes=chosen.notes)
    return config, _open_corpus(config, database, reason, recorded, toolchain, stack=stack, report=report)


def _open_corpus(
    config: Tune,
    database: Database | None,
    reason: str,
    recorded: RecordedBuild | None,
    toolchain: Toolchain,
    *,
    stack: contextlib.ExitStack,
    report: Report,
) -> CorpusBuild:
    """The modules of a corpus or a database; ``reason`` is why the link is not searched, if it might have been."""
    folder = config.corpus or config.folder / "corpus"
    linked = _linked_programs(config, database, recorded) if config.link_command is None else None
    configured = None if config.links is None else linked
    outputs = None if configured is None else configured.built(toolchain, only_linked=bool(config.built.program))
    if database is not None:
        import_database(
            database,
            folder,
            toolchain=toolchain,
            compiler=config.compiler,
            go_on=config.go_on,
            outputs=outputs,
            report=report,
        )
    stack.enter_context(reading(folder))
    chosen = (modules_of_project if config.objective in ANY_LEVEL else modules_for_size)(folder, config.project)
    lto = describe_ignored_lto(config.compile_commands, is_recorded=recorded is not None, reason=reason)
    notes = tuple(note for note in chosen.notes if note.partition(" ")[0] not in lto)
    if configured is not None and outputs is not None and (count := len(configured.outputs) - len(outputs)):
        where = "programs that are compared" if config.built.program else f"build in {config.links}"
        notes += (f"{count:,} of {len(configured.outputs):,} sources of the database are not in the {where}",)
    chosen = ModuleSelection(modules=chosen.modules, left_out=lto | chosen.left_out, notes=notes)
    chosen = note_hot_functions(chosen, config.keep_hot)
    chosen.tell(report)
    measure, notes = _measure(config, database, chosen.modules, linked, toolchain)
    for note in notes:
        report(1, 1, note)
    by_name = {module.name: module for module in chosen.modules}
    return CorpusBuild(
        folder=folder,
        modules=chosen.modules if measure is None else [by_name[name] for name in measure.modules],
        left_out=chosen.left_out,
        notes=(*chosen.notes, *notes),
        measure=measure,
    )


def _by_its_link(config: Tune, recorded: RecordedBuild, toolchain: Toolchain) -> tuple[Tune, str]:
    """A call that tunes a recorded build for the bytes of its image: of a build with ``-flto`` its link makes that.

    Returns:
        The call with the link that is searched; as it was, and why, if most sources have ``-flto`` and no one link is
        to be searched.
    """
    if config.objective != "image" or not is_mostly_lto(recorded.database):
        return config, ""
    for option, is_given in {
        "--sandbox on": config.compiler.sandbox == "on",
        "--artifact replay": config.artifact == "replay",
    }.items():
        if is_given:
            return config, f"{option} is for compile steps; leave it out to have the link searched"
    link = searchable_link(recorded, toolchain, timeout_seconds=config.judge.timeout_seconds)
    if isinstance(link, str):
        return config, link
    return dataclasses.replace(config, objective="linked", link_command=link.command, link_folder=link.folder), ""


def _link_request(config: Tune, command: str, database: Database) -> LinkRequest:
    return LinkRequest(
        command=command,
        database=database,
        folder=config.link_folder,
        scratch=config.folder,
        project=config.project,
        measuring=() if config.command is None else measuring_words(config.command),
        timeout_seconds=config.judge.timeout_seconds,
        error=config.judge.error,
        compiler=config.compiler,
        may_defer=not config.link_only and not config.keep_hot,
        go_on=config.go_on,
    )


def _settings(config: Tune, policies: Mapping[str, Path], toolchain: Toolchain) -> TuneSettings:
    both = {REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name}
    by_cargo, by_run = config.cargo is not None, config.objective == "instructions"
    return TuneSettings(
        folder=config.folder,
        output=config.output,
        seconds=seconds_of(config.budget),
        objective=config.objective,
        problems=frozenset(both if config.problem == "both" else {config.problem}),
        policies=policies,
        start=config.start,
        earlier=earlier_table(config, toolchain),
        allocation_share=config.allocation_share,
        pass_share=config.share_for_passes,
        least_pass_share=config.least_for_passes,
        least_steps=LEAST_STEPS if by_cargo else 0,
        slowdown=math.inf if by_run else config.slowdown,
        adds_shipped_policies=config.shipped_policies == "on" and not config.keep_hot and not by_run,
        falls_back_to_policy=config.fallback == "policy",
        judge=config.judge,
        search=config.search,
        compressor=_find_compressor(config, toolchain) if config.built.build else None,
    )


def _measure(
    config: Tune,
    database: Database | None,
    modules: Sequence[Module],
    linked: LinkedPrograms | None,
    toolchain: Toolchain,
) -> tuple[Measure | None, tuple[str, ...]]:
    """What judges, if it is more than the account; and notes on programs of the build that it cannot link."""
    names = [module.name for module in modules]
    by_programs = {"image", "text", "linked", "compressed"}
    compressor = None if config.objective != "compressed" else _find_compressor(config, toolchain)
    if linked is not None and config.objective in by_programs:
        plans, failures = linked.plans(names, toolchain)
        measure = Measure(
            plans=plans,
            command=(),
            modules=tuple(names),
            timeout_seconds=config.judge.timeout_seconds,
            workers=config.compiler.workers,
            compressor=compressor,
            expected={program: linked.plain_bytes(program) for program in plans},
        )
        if config.objective in {"linked", "compressed"}:
            inside = measure.linked_modules()
            measure = dataclasses.replace(measure, modules=tuple(name for name in names if name in inside))
        return measure if plans else None, tuple(link_failures(failures))
    if config.objective not in {"linked", "compressed", "command"}:
        return None, ()
    plans = dict[str, LinkPlan]()
    if config.link_command is not None:
        folder = config.link_folder or (Path() if database is None else database.folder)
        plans["image"] = plan_link(
            link_words(config.link_command),
            folder=folder.resolve(),
            outputs={}
            if database is None
            else module_outputs(database.path, project=database.project, level=database.level),
            modules=names,
            toolchain=toolchain,
        )
    measure = Measure(
        plans=plans,
        command=() if config.command is None else measuring_words(config.command),
        modules=plans["image"].modules if plans else tuple(names),
        timeout_seconds=config.judge.timeout_seconds,
        error=config.judge.error,
        compressor=compressor,
    )
    return measure, ()


def _linked_programs(config: Tune, database: Database | None, recorded: RecordedBuild | None) -> LinkedPrograms | None:
    """The programs of a recorded or a configured build, with their links."""
    if recorded is not None:
        return recorded.linked_programs()
    if config.links is None or database is None:
        return None
    return read_configured_programs(
        config.links,
        patterns=config.built.program,
        outputs=module_outputs(database.path, project=database.project, level=database.level),
    )


def _find_compressor(config: Tune, toolchain: Toolchain) -> Compressor | None:
    """The compressor that is asked for; without one what strips programs, if that is installed."""
    command = config.compressor or (DEFAULT if config.objective == "compressed" else None)
    return find_stripper(toolchain) if command is None else find_compressor(command, toolchain)


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

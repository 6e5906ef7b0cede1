"""The command that tunes one project: search, verification, and one plugin to add to the build."""

import contextlib
import dataclasses
import shutil

from rich.console import Console

from mlgokit.commands.chosen import check_given
from mlgokit.commands.options import check_sandbox, open_sandbox_for, spread
from mlgokit.commands.tune_builds import check_build, record_plain, with_recorded
from mlgokit.commands.tune_cargo import check_cargo, open_cargo, versions_of
from mlgokit.commands.tune_checks import (
    check_claim,
    check_keep_hot,
    check_objective,
    check_shares,
    earlier_table,
    policies_of,
    policy_to_start_from,
    seconds_of,
)
from mlgokit.commands.tune_defer import GIVES_UP
from mlgokit.commands.tune_material import find_material
from mlgokit.commands.tune_options import Tune
from mlgokit.commands.tune_replay import for_replay, refuse_link
from mlgokit.commands.tune_session import SEARCH, NotMadeGoodError, Session, tune_bytes, tune_costs
from mlgokit.compiler.compile import COMPILE_SECONDS, ClangCompiler
from mlgokit.compiler.memory import HostMemory, MemoryGate
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.files import atomic_write, remove_leftovers
from mlgokit.locks import locked, locked_output
from mlgokit.pages.terminal import print_page
from mlgokit.progress import Report, say_nothing
from mlgokit.tune.measurement import Measure
from mlgokit.tune.page import tuned_page
from mlgokit.tune.publish import complete_publishing
from mlgokit.tune.result import Tuned


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
    check_shares(config)
    check_keep_hot(config)
    check_build(config)
    cargo = None if config.cargo is None else check_cargo(config)
    if not config.built.build and cargo is None:
        check_given(
            "tune",
            compile_commands=config.compile_commands,
            corpus=config.corpus,
            database=config.database,
            others="--build (a build command), --cargo, ",
        )
    with locked(config.folder), locked_output(config.output), contextlib.ExitStack() as stack:
        return _tune(config, stack, report) if cargo is None else _tune_programs(config, cargo, report)


def _tune_programs(config: Tune, words: tuple[str, ...], report: Report) -> Tuned:
    """Tune what cargo builds, in a folder that is ours."""
    policies = policies_of(config)
    found = open_cargo(config, words, report=report)
    earlier = earlier_table(config, found.compiler.toolchain)
    session = Session(
        config=config,
        compiler=found.compiler,
        modules=found.modules,
        policies=policies,
        earlier=earlier,
        claim=check_claim(config, config.folder / SEARCH, found.inputs, versions_of(found)),
        left_out=found.left_out,
        cargo=found,
        report=report,
    )
    return _tune_session(session, None)


def _tune(config: Tune, stack: contextlib.ExitStack, report: Report) -> Tuned:
    """Tune in a folder that is ours; the stack holds the corpus."""
    policies = policies_of(config)
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
    check_sandbox(config.compiler, toolchain)
    earlier = earlier_table(config, toolchain)
    recorded = record_plain(config, toolchain, report=report) if config.built.build else None
    if recorded is not None:
        config = with_recorded(config, recorded)
    steps_stay = config.folder / "compile-steps-stay"
    if not (config.folder / SEARCH).exists():
        steps_stay.unlink(missing_ok=True)
    elif steps_stay.exists():
        config = dataclasses.replace(config, link_only=True)

    def attempt(config: Tune, notes: tuple[str, ...] = ()) -> Tuned:
        found = find_material(config, toolchain, stack, report, recorded=recorded)
        config = found.config
        if found.linking:
            refuse_link(config)
        session = Session(
            config=config,
            compiler=spread(
                config.cluster,
                config.reuse.applied(
                    ClangCompiler(
                        toolchain=toolchain,
                        plugin=build_plugin(toolchain),
                        workers=config.compiler.workers,
                        timeout_seconds=config.compiler.deadline(
                            config.judge.timeout_seconds if found.linking else COMPILE_SECONDS
                        ),
                        limits=config.compiler.limits(),
                        sandbox=found.corpus
                        and open_sandbox_for(config.compiler, toolchain, corpus=found.corpus, report=report),
                        room=config.compiler.room(config.folder),
                        keep_hot=config.keep_hot,
                        memory=MemoryGate(host=HostMemory()),
                    ),
                    recheck=config.compiler.recheck(),
                ),
                report=report,
            ),
            modules=found.modules,
            policies=policies,
            earlier=earlier,
            claim=check_claim(config, config.folder / SEARCH, found.inputs, toolchain.describe()),
            left_out=found.left_out | dict(recorded.left_out if recorded is not None else {}),
            notes=(*found.notes, *notes),
            recorded=recorded,
            linking=found.linking,
            report=report,
        )
        return _tune_session(session, found.measure)

    try:
        return attempt(config)
    except NotMadeGoodError as error:
        note = (
            "the compile steps stay as the build has them: where they left all inlining to the link, the image still "
            f"was {error.larger:.1%} larger after {GIVES_UP:.0%} of the search, which began again without that"
        )
        report(0, 1, note)
        shutil.rmtree(config.folder / SEARCH)
        atomic_write(steps_stay, "")
        return attempt(dataclasses.replace(config, link_only=True, budget=f"{error.left:.1f}s"), (note,))


def _tune_session(session: Session, measure: Measure | None) -> Tuned:
    """Tune what was found, after the folder is as the last session should have left it."""
    config = session.config
    complete_publishing(session.folder, config.output, config.folder)
    remove_leftovers(config.folder)
    remove_leftovers(config.output.absolute().parent, below=False)
    try:
        return tune_costs(session) if config.objective == "spill-cost" else tune_bytes(session, measure)
    finally:
        session.compiler.close()


def render(result: Tuned, console: Console) -> None:
    """Print what became smaller or cheaper, and what to do with the plugin."""
    print_page(tuned_page(result), console, report=result.report)

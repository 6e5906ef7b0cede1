"""Opens what a search works on: the modules of a corpus, a database, a recorded build or a link, and what judges them.

A build with ``-flto`` that was recorded is searched by its link where lld makes that, else by its compile steps.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from mlgokit.builds.build import Build
from mlgokit.builds.corpus import (
    CorpusBuild,
    ModuleSelection,
    import_database,
    modules_for_size,
    modules_of_project,
    note_hot_functions,
)
from mlgokit.builds.images import weigh_image
from mlgokit.builds.link import OUTPUT, LinkPlan, link_words, plan_link
from mlgokit.builds.lto import describe_ignored_lto, link_note, open_link, searchable_link
from mlgokit.builds.measurement import Measure, link_failures
from mlgokit.builds.programs import LinkedPrograms, read_configured_programs
from mlgokit.builds.request import ANY_LEVEL, BuildRequest
from mlgokit.compiler.request import Lto
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.database import lto_kinds
from mlgokit.errors import UsageError
from mlgokit.locks import reading
from mlgokit.progress import Report

_BY_PROGRAMS = frozenset({"image", "text", "linked", "compressed"})
"""Objectives that the programs of a build judge."""
_BY_IMAGE = frozenset({"linked", "compressed"})
"""Those for which nothing counts that no program links."""


def open_build(
    request: BuildRequest, toolchain: Toolchain, *, stack: contextlib.ExitStack, report: Report
) -> tuple[BuildRequest, Build]:
    """Open the build that is searched, and say what is left out; ``stack`` holds the lock on the corpus.

    Returns:
        The request, for the bytes of the link if that of a recorded build is searched; and the build.

    Raises:
        CorpusError: there is nothing to search.
        ToolError: a program cannot be started.
        UsageError: the link fails or cannot be searched, or a program does not exist.
    """
    kinds = lto_kinds(None if request.database is None else request.database.path)
    request = _with_needed_link(request, kinds)
    by_link, reason = _by_its_link(request, kinds, toolchain)
    build = None
    try:
        build = open_link(by_link, kinds, toolchain, stack=stack, report=report)
    except UsageError as error:
        # The user did not ask for the link to be searched, so it need not be possible.
        if by_link is request:
            raise
        reason = str(error)
    if build is None:
        lto = describe_ignored_lto(kinds, is_recorded=request.recorded is not None, reason=reason)
        return request, _open_corpus(request, toolchain, lto, stack=stack, report=report)
    notes = build.notes if by_link is request else (link_note(kinds), *build.notes)
    chosen = ModuleSelection(modules=build.modules, left_out=build.left_out, notes=notes)
    chosen = note_hot_functions(chosen, request.keep_hot)
    chosen.tell(report)
    return by_link, dataclasses.replace(build, notes=chosen.notes)


def _with_needed_link(request: BuildRequest, kinds: Mapping[Lto, int]) -> BuildRequest:
    """The request with the one link of its recorded build, if the objective needs that and the user named none."""
    # The link of a program with -flto is searched itself.
    is_needed = request.objective == "linked" and kinds["full"] + kinds["thin"] > 0
    is_needed |= any(OUTPUT in word for word in request.measuring)
    if request.recorded is None or request.link is not None or not is_needed:
        return request
    link = request.recorded.link()
    return dataclasses.replace(request, link=link.command, link_folder=link.folder)


def _by_its_link(request: BuildRequest, kinds: Mapping[Lto, int], toolchain: Toolchain) -> tuple[BuildRequest, str]:
    """A request for the image that the link of a recorded build with ``-flto`` makes.

    Returns:
        The request with the link that is searched; as it was, and why, if most sources have ``-flto`` and no one link
        is to be searched.
    """
    is_mostly_lto = kinds["full"] + kinds["thin"] > kinds[""]
    if request.recorded is None or request.objective != "image" or not is_mostly_lto:
        return request, ""
    if request.steps_only:
        return request, f"{request.steps_only} is for compile steps; leave it out to have the link searched"
    link = searchable_link(request.recorded, toolchain, timeout_seconds=request.timeout_seconds)
    if isinstance(link, str):
        return request, link
    return dataclasses.replace(request, objective="linked", link=link.command, link_folder=link.folder), ""


# --- Compile steps ----------------------------------------------------------------------------------------------------


def _open_corpus(
    request: BuildRequest, toolchain: Toolchain, lto: dict[str, str], *, stack: contextlib.ExitStack, report: Report
) -> CorpusBuild:
    """The modules of a corpus or a database; ``lto`` says what compile steps alone mean for a build with ``-flto``."""
    folder, database = request.corpus or request.scratch / "corpus", request.database
    linked = _linked_programs(request)
    configured = None if request.configured is None else linked
    outputs = None if configured is None else configured.built(toolchain, only_linked=bool(request.programs))
    if database is not None:
        import_database(
            database,
            folder,
            toolchain=toolchain,
            compiler=request.compiler,
            go_on=request.go_on,
            outputs=outputs,
            report=report,
        )
    stack.enter_context(reading(folder))
    chosen = (modules_of_project if request.objective in ANY_LEVEL else modules_for_size)(folder, request.project)
    notes = tuple(note for note in chosen.notes if note.partition(" ")[0] not in lto)
    if configured is not None and outputs is not None:
        notes += _note_unlinked_sources(request, configured, outputs)
    chosen = ModuleSelection(modules=chosen.modules, left_out=lto | chosen.left_out, notes=notes)
    chosen = note_hot_functions(chosen, request.keep_hot)
    chosen.tell(report)
    measure, notes = _measure(request, [module.name for module in chosen.modules], linked, toolchain)
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


def _note_unlinked_sources(request: BuildRequest, linked: LinkedPrograms, outputs: Collection[Path]) -> tuple[str, ...]:
    count, of = len(linked.outputs) - len(outputs), len(linked.outputs)
    where = "programs that are compared" if request.programs else f"build in {request.configured}"
    return (f"{count:,} of {of:,} sources of the database are not in the {where}",) if count else ()


def _linked_programs(request: BuildRequest) -> LinkedPrograms | None:
    """The programs of a recorded or a configured build, with their links, if no one link was named."""
    if request.link is not None:
        return None
    if request.recorded is not None:
        return request.recorded.linked_programs()
    if request.configured is None or request.database is None:
        return None
    return read_configured_programs(
        request.configured,
        patterns=request.programs,
        outputs=request.database.outputs(),
    )


def _measure(
    request: BuildRequest, names: Sequence[str], linked: LinkedPrograms | None, toolchain: Toolchain
) -> tuple[Measure | None, tuple[str, ...]]:
    """What judges, if it is more than the account; and notes on programs of the build that it cannot link."""
    if linked is not None and request.objective in _BY_PROGRAMS:
        return _measure_programs(request, names, linked, toolchain)
    if request.objective not in {*_BY_IMAGE, "command"}:
        return None, ()
    plans, database = dict[str, LinkPlan](), request.database
    if request.link is not None:
        folder = request.link_folder or (Path() if database is None else database.folder)
        plans["image"] = plan_link(
            link_words(request.link),
            folder=folder.resolve(),
            outputs={} if database is None else database.outputs(),
            modules=names,
            toolchain=toolchain,
        )
    measure = Measure(
        plans=plans,
        command=request.measuring,
        modules=plans["image"].modules if plans else tuple(names),
        timeout_seconds=request.timeout_seconds,
        error=request.error,
        compressor=request.compressor,
    )
    return measure, ()


def _measure_programs(
    request: BuildRequest, names: Sequence[str], linked: LinkedPrograms, toolchain: Toolchain
) -> tuple[Measure | None, tuple[str, ...]]:
    plans, failures = linked.plans(names, toolchain)
    measure = Measure(
        plans=plans,
        command=(),
        modules=tuple(names),
        timeout_seconds=request.timeout_seconds,
        workers=request.compiler.workers,
        compressor=request.compressor,
        expected={program: weigh_image(linked.images[program]).row.image for program in plans},
    )
    if request.objective in _BY_IMAGE:
        inside = measure.linked_modules()
        measure = dataclasses.replace(measure, modules=tuple(name for name in names if name in inside))
    return measure if plans else None, tuple(link_failures(failures))

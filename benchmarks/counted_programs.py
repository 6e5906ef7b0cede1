"""Workloads of `mlgokit bench`, built with several flags, and what each build executes, function by function."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from block_traces import Block, read_blocks
from merged_profile import merged_profile

from mlgokit.bench.build import Place, Shop, build_sides
from mlgokit.bench.callgrind import Callgrind, read_addresses, read_functions
from mlgokit.bench.counts import Counts
from mlgokit.bench.inputs import write_input
from mlgokit.bench.record import SIDES, SideName
from mlgokit.bench.running import Stage, count_standing, run_once
from mlgokit.bench.side import SideFlags
from mlgokit.bench.workloads import PROGRAM, Workload
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.errors import CorpusError

RUN_SECONDS = 60.0
"""Deadline of a program that nobody counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a build of a program executed.

    Attributes:
        counts: by symbol.
        blocks: by symbol and number.
        addresses: how often each instruction was executed; of the first build alone.
    """

    counts: Mapping[str, Counts]
    blocks: Mapping[str, Mapping[int, Block]]
    addresses: Mapping[int, int]


def open_shop(workloads: Sequence[Workload], folder: Path, *, toolchain: Toolchain, workers: int) -> Shop:
    """What builds of workloads have in common, once their sources are fetched and unpacked.

    Raises:
        CorpusError: an archive cannot be fetched, or is another.
        StorageError: the disk is full or not writable.
    """
    sources = (folder / "sources").absolute()
    for workload in workloads:
        for project in workload.projects:
            archive = fetch_archive(project.archive, cache_folder=default_cache_folder())
            prepare_sources(project, archive_path=archive, sources_folder=sources)
    return Shop(
        toolchain=toolchain, sides={}, sources=sources, workers=workers, compile_seconds=600, build_seconds=3600
    )


def count_builds(
    workload: Workload, sides: Sequence[SideFlags], shop: Shop, folder: Path, callgrind: Callgrind
) -> list[Run]:
    """What a workload executes as each side builds it; two are built at once.

    Raises:
        CorpusError: it does not build, or does not run.
    """
    found: list[Run] = []
    for first in range(0, len(sides), 2):
        stage = _built(workload, (sides[first], sides[min(first + 1, len(sides) - 1)]), shop, folder)
        for side in SIDES[: len(sides) - first]:
            found.append(_counted(stage, side, dataclasses.replace(callgrind, by_address=not found)))
    return found


def profile_of(workload: Workload, words: Sequence[str], shop: Shop, folder: Path) -> Path:
    """The profile that a run of a workload leaves, as clang's ``-fprofile-use`` takes it.

    Raises:
        CorpusError: it does not build, or does not run.
        ToolError: it left no profile.
    """
    raw = folder.absolute() / f"{workload.name}.raw"
    shutil.rmtree(raw, ignore_errors=True)
    flags = SideFlags(words=(*words, f"-fprofile-generate={raw}"))
    ran = run_once(_built(workload, (flags, flags), shop, folder), SIDES[0])
    if ran.reason:
        raise CorpusError(f"{workload.name}: expected its work to be done, found: {ran.reason}")
    return merged_profile(raw, raw.with_suffix(".profdata"), shop.toolchain, name=workload.name)


def _built(workload: Workload, flags: tuple[SideFlags, SideFlags], shop: Shop, folder: Path) -> Stage:
    place = Place(folder=(folder / workload.name).absolute())
    place.clear()
    these = dataclasses.replace(shop, sides=dict(zip(SIDES, flags, strict=True)))
    for side, built in build_sides(workload, place, these, report=lambda *_: None):
        if built.failure:
            raise CorpusError(f"{workload.name}, {side}: expected it to build, found: {built.failure.reason}")
    for wanted in workload.inputs:
        write_input(wanted, place.inputs)
    return Stage(workload=workload, place=place, toolchain=shop.toolchain, run_seconds=RUN_SECONDS)


def _counted(stage: Stage, side: SideName, callgrind: Callgrind) -> Run:
    with stage.place.standing(side):
        counted, scratch = count_standing(stage, callgrind)
        if counted.reason:
            raise CorpusError(f"{stage.workload.name}, {side}: expected counts, found: {counted.reason}")
        (profile,) = scratch.glob("profile.*")
        program = stage.place.build / PROGRAM
        return Run(
            counts=read_functions(profile, stage.place.build),
            blocks=read_blocks(program, stage.toolchain),
            addresses=read_addresses(profile, program) if callgrind.by_address else {},
        )

"""How much a search of one big module gains from a second worker, and how small it makes the module in an hour.

Each project is one module. Every window of the measurement of speed and every mark of the curve is a file of its own,
so a run that is interrupted goes on, and ``--slice N`` does a part of the work.
"""

import dataclasses
import functools
import itertools
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, kept_row, run_benchmark
from results import Result
from timing import spent
from tuning_builds import build_project, import_project, prepare, source_folder
from tuning_command import tune_for
from tuning_one_module_tables import WORKERS, summarise
from tuning_projects import PROJECTS, TunedProject

from mlgokit.commands.corpus.record import DATABASE_NAME
from mlgokit.commands.options import CompilerOptions
from mlgokit.commands.tune_options import ALLOCATION_SHARE, PASS_SHARE, Tune
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import ToolError, UsageError
from mlgokit.module import Module
from mlgokit.tune.loop import run_search
from mlgokit.tune.spaces.inlining.opening import open_inlining
from mlgokit.tune.spaces.inlining.space import InliningSpace, SearchConfig
from mlgokit.tune.spaces.inlining.state import ModuleState, StepResult

LEVELS = ("-Oz", "-Os", "-O2")
TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOneModule:
    """Search projects of one module with one worker and with two, for a while, and then for long."""

    projects: tuple[str, ...] = ("sqlite",)
    """Which projects, each of one module."""
    seconds: float = 60.0
    """Elapsed time of each window in which compilations are counted."""
    rounds: int = 2
    """Windows of each number of workers; they take turns."""
    minutes: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0, 60.0)
    """Core-minutes at which the curve has a point; a search goes on from one to the next."""
    pass_share: float = PASS_SHARE
    """Share of each part of the search for passes."""
    allocation_share: float = ALLOCATION_SHARE
    """Share of each part for registers."""
    os_minutes: float = 10.0
    """Core-minutes of a search over inlining alone at -Os, whose result stands beside what was published."""
    slice: int = 0
    """How many missing windows or points to make in this call; 0 for all, -1 for none but the tables."""
    folder: Path = Path("build/tuning-one-module")
    """Where projects and searches are kept."""
    seed: int = 1
    """Of the searches."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/tuning_one_module.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningOneModule, measure, arguments)


def measure(config: TuningOneModule, setup: Setup) -> Result:
    """Make what is missing, as far as the slice goes, and the tables of all that is there.

    Raises:
        UsageError: a project is not known, or has other than one module.
    """
    check_names("projects", config.projects, PROJECTS)
    toolchain = setup.toolchain(config.llvm)
    windows: dict[tuple[str, int, int], dict[str, Any]] = {}
    points: dict[tuple[str, float], dict[str, Any]] = {}
    levels: dict[str, dict[str, Any]] = {}
    at_os: dict[str, dict[str, Any]] = {}
    made = [0]

    def row_of(path: Path, shown: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        if not path.exists():
            if config.slice < 0 or (config.slice and made[0] >= config.slice):
                return None
            made[0] += 1
            setup.report(made[0], made[0], shown)
        return kept_row(path, make)

    for name in config.projects:
        place = config.folder / name
        plain = prepare(PROJECTS[name], config.folder, toolchain=toolchain, workers=2, report=setup.report)
        (module,) = _modules(place, name)
        setup.inputs[f"{name}, {PROJECTS[name].archive.file}"] = PROJECTS[name].archive.sha256
        for number, workers in itertools.product(range(config.rounds), WORKERS):
            window = functools.partial(_window, config, module, toolchain, workers, place)
            row = row_of(place / f"window-{workers}-{number}.json", f"{name}, {workers} workers", window)
            if row is not None:
                windows[name, workers, number] = row
        for minutes in sorted(config.minutes):
            point = functools.partial(_point, config, name, minutes, plain, setup=setup, toolchain=toolchain)
            row = row_of(place / f"point-{minutes:g}.json", f"{name}, {minutes:g} core-minutes", point)
            if row is not None:
                points[name, minutes] = row
        levels[name] = kept_row(place / "levels.json", functools.partial(_levels, PROJECTS[name], place))
        search = functools.partial(_inlining_at_os, config, PROJECTS[name], setup=setup, toolchain=toolchain)
        row = row_of(place / f"os-{config.os_minutes:g}.json", f"{name}, inlining at -Os", search)
        at_os |= {} if row is None else {name: row}
    return summarise(
        config.projects,
        config.minutes,
        windows=windows,
        points=points,
        levels=levels,
        at_os=at_os,
        seed=config.seed,
    )


def _levels(project: TunedProject, place: Path) -> dict[str, Any]:
    """Bytes of the module's object, .text alone and all that counts, at each level, as its build compiles it else."""
    commands = json.loads((place / "plain" / DATABASE_NAME).read_bytes())
    (one,) = [
        command for command in commands if re.search(project.include, str(Path(command["directory"], command["file"])))
    ]
    found: dict[str, Any] = {}
    for level in LEVELS:
        output = place.resolve() / f"level{level}.o"
        words = [level if word == "-Oz" else word for word in one["arguments"]]
        words[words.index("-o") + 1] = str(output)
        done = process.run(words, timeout_seconds=TIMEOUT_SECONDS, cwd=Path(one["directory"]))
        if done.returncode:
            raise ToolError(f"{project.name}: expected it to compile with {level}, found an error; look at its build")
        totals = measure_object(output).totals
        found[level] = {"text": totals.text, "image": totals.text + totals.rodata + totals.eh_frame}
    return found


def _modules(place: Path, name: str) -> Sequence[Module]:
    modules = load_corpus(place / "corpus").modules
    if len(modules) != 1:
        raise UsageError(f"{name}: expected a project of one module, found {len(modules)}; leave it out")
    return modules


@dataclass(slots=True, kw_only=True)
class Counted:
    """What a search wanted to know, and did.

    Attributes:
        effective: builds that it wanted to know and now does: those that explored, and those that were composed of
            them and that it goes on from; a build that only confirms a composed one counts nothing.
        moves: that were tried.
        saved: bytes that the steps' components saved.
    """

    effective: int = 0
    moves: int = 0
    saved: float = 0.0


def _window(config: TuningOneModule, module: Module, toolchain: Toolchain, workers: int, place: Path) -> dict[str, Any]:
    """A new search of one module for a while."""
    compiler = ClangCompiler(
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        workers=workers,
        residents=Residents(),
        known={},
        timeout_seconds=TIMEOUT_SECONDS,
    )
    folder = place / "window"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    search = open_inlining(
        [module],
        compiler=compiler,
        config=SearchConfig(seed=config.seed),
        folder=folder,
        report=lambda *_: None,
    )
    counted = Counted()
    search.space = _counting(search.space, counted)
    opened, user, begin = search.compilations, spent(), time.monotonic()
    run_search(search, seconds=config.seconds, workers=workers, report=lambda *_: None)
    elapsed, children = time.monotonic() - begin, spent()[0] - user[0]
    return {
        "workers": workers,
        "elapsed": elapsed,
        "processor_seconds": children + spent()[1] - user[1],
        "python_seconds": spent()[1] - user[1],
        "compilations": search.compilations - opened,
        "effective": counted.effective,
        "moves": counted.moves,
        "saved": counted.saved,
        "change": search.space.score.change,
    }


def _counting(space: InliningSpace, counted: Counted) -> InliningSpace:
    """The space, which also counts what it accepts."""

    class Counting(InliningSpace):
        __slots__ = ()

        def accept(self, unit: ModuleState, step: StepResult) -> None:
            before = unit.composed
            super().accept(unit, step)
            if not step.confirms:
                counted.effective += step.compilations + (unit.composed is not None and unit.composed is not before)
                counted.moves += len(step.made)
                counted.saved += step.saved

    fields = {one.name: getattr(space, one.name) for one in dataclasses.fields(InliningSpace) if one.init}
    return Counting(**fields)


def _point(
    config: TuningOneModule,
    name: str,
    minutes: float,
    plain: Mapping[str, Any],
    *,
    toolchain: Toolchain,
    setup: Setup,
) -> dict[str, Any]:
    """Search on to so many core-minutes, and link and test what was found."""
    place = (config.folder / name).resolve()
    search = place / "search"
    asked = Tune(
        corpus=place / "corpus",
        pass_share=config.pass_share,
        allocation_share=config.allocation_share,
        folder=search,
        output=search / "tuned.so",
        compiler=CompilerOptions(llvm=toolchain.major, workers=max(WORKERS), timeout_seconds=TIMEOUT_SECONDS),
        search=SearchConfig(seed=config.seed),
    )
    result = tune_for(asked, seconds=60 * minutes, report=setup.report)
    built = build_project(
        PROJECTS[name],
        place / "tuned",
        source=source_folder(PROJECTS[name], config.folder),
        toolchain=toolchain,
        plugin_flag=result.flag,
        workers=max(WORKERS),
    )
    before, after = plain["image"], dataclasses.asdict(built.image)
    parts = {"passes": result.passes, "registers": result.allocated}
    return {
        "core_seconds": result.user_seconds,
        "compilations": result.compilations,
        "linked": after["image"] / before["image"] - 1,
        "text": after["text"] / before["text"] - 1,
        "plain_image": before["image"],
        "objects": result.tuned_bytes / result.plain_bytes - 1,
        "parts": {part: None if found is None else dataclasses.asdict(found) for part, found in parts.items()},
        "tests": built.tests,
        "ended": result.ended,
    }


def _inlining_at_os(
    config: TuningOneModule, project: TunedProject, *, toolchain: Toolchain, setup: Setup
) -> dict[str, Any]:
    """What inlining alone saves at -Os, against LLVM's own inlining at -Os."""
    place = (config.folder / project.name).resolve()
    search, corpus = place / "search-Os", place / "corpus-Os"
    if not corpus.exists():
        import_project(
            project, place / "plain", corpus, toolchain=toolchain, workers=1, report=setup.report, level="Os"
        )
    asked = Tune(
        corpus=corpus,
        pass_share=0,
        allocation_share=0,
        folder=search,
        output=search / "tuned.so",
        compiler=CompilerOptions(llvm=toolchain.major, workers=max(WORKERS), timeout_seconds=TIMEOUT_SECONDS),
        search=SearchConfig(seed=config.seed),
    )
    result = tune_for(asked, seconds=60 * config.os_minutes, report=setup.report)
    before, after = result.plain_link, result.tuned_link
    if before is None or after is None or not (before.image and after.image):
        raise ToolError(f"{project.name}: expected the objects at -Os to link, found that they do not; see {search}")
    return {
        "core_seconds": result.user_seconds,
        "compilations": result.compilations,
        "before": {"image": before.image, "text": before.text},
        "after": {"image": after.image, "text": after.text},
    }


if __name__ == "__main__":
    sys.exit(main())

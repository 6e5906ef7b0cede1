"""How much smaller `mlgokit tune` makes real projects, built by their own build systems.

A search has a folder of its own and goes on where it stopped; each budget that it has reached is a file. So a call with
larger ``--points`` continues from the smaller ones, and ``--slice N`` does a part of the work.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, linker_of, run_benchmark, run_mlgokit
from results import Result
from timing import spent
from tuning_builds import (
    DATABASE_NAME,
    LINKING,
    PLAIN,
    build_project,
    folded_images,
    image_of,
    prepare,
    rebuild,
    source_folder,
)
from tuning_projects import ALL_PROJECTS, PROJECTS, TunedProject
from tuning_tables import Finished, summarise

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import MlgokitError, ToolError, UsageError
from mlgokit.files import atomic_write

LEAST_SECONDS = 5.0
"""Of processor time, for which a search is begun once more; less is lost in opening it."""
ENOUGH = 0.98
"""A search that spent less than this share of its budget had nothing left to try."""
NOTHING_LEFT = "nothing left to try"
"""How a search ends that tried everything, as `mlgokit tune` reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to tune.

    Attributes:
        options: of `mlgokit tune`, beside those of all arms.
        lto: the flag of link-time optimization, if the programs are built with it and their links are searched.
    """

    options: tuple[str, ...] = ()
    lto: str = ""


ARMS = {
    "mlgokit tune": Arm(),
    "inlining alone": Arm(options=("--allocation-share", "0", "--pass-share", "0")),
    "inlining and registers": Arm(options=("--pass-share", "0")),
    "inlining and passes": Arm(options=("--allocation-share", "0")),
    "lto": Arm(lto="-flto"),
    "thinlto": Arm(lto="-flto=thin"),
}
"""The command with its defaults, with kinds of decisions left to LLVM, and for builds with link-time optimization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Tune real projects, each with the same processor time; build them with the result, and run their tests."""

    projects: tuple[str, ...] = tuple(PROJECTS)
    """Which projects; no policy of the package was trained on them. There are also those of ``UNSEEN_PROJECTS``."""
    arms: tuple[str, ...] = ("mlgokit tune",)
    """Which searches; there are also ``inlining alone``, ``inlining and registers``, ``inlining and passes``, ``lto``
    and ``thinlto``. The last two need projects built by CMake or Meson."""
    points: tuple[float, ...] = (5.0, 15.0)
    """Core-minutes at which each search is stopped and verified, and from which it goes on."""
    folder: Path = Path("build/tuning")
    """Where projects and searches are kept."""
    slice: int = 0
    """How many missing pairs of project and arm to make in this call; 0 for all, -1 for none but the tables."""
    prepare: bool = False
    """Build the projects and run their tests, make no search."""
    workers: int = 2
    """Compilers that run at once."""
    seed: int = 1
    """Of the searches."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Tuning, measure, arguments)


def measure(config: Tuning, setup: Setup) -> Result:
    """Make what is missing, as far as the slice goes, and the tables of all that is there.

    A project that cannot be fetched, built or tested is named in the table, and the others go on.

    Raises:
        UsageError: an arm or a project is not known, or there is no budget.
    """
    check_names("arms", config.arms, ARMS)
    check_names("projects", config.projects, ALL_PROJECTS)
    if not config.points or min(config.points) <= 0:
        raise UsageError(f"points: expected core-minutes above zero, found {config.points}; name at least one")
    toolchain = setup.toolchain(config.llvm)
    points = sorted(config.points)
    failed: dict[str, str] = {}
    made = 0
    for arm in config.arms:
        for project in (ALL_PROJECTS[name] for name in config.projects):
            missing = [point for point in points if not _path(config, arm, project, point).exists()]
            if project.name in failed or not (missing or config.prepare):
                continue
            if not config.prepare and config.slice and made >= config.slice:
                continue
            made += 1
            try:
                before = _plain(config, ARMS[arm], project, toolchain, setup)
                for point in () if config.prepare else missing:
                    _reach(config, arm, project, point, before=before, toolchain=toolchain, setup=setup)
            except MlgokitError as error:
                failed[project.name] = str(error)
    wanted = [(arm, ALL_PROJECTS[name], point) for arm in config.arms for name in config.projects for point in points]
    found = [
        Finished(project=project, arm=arm, minutes=point, value=json.loads(path.read_bytes()))
        for arm, project, point in wanted
        if (path := _path(config, arm, project, point)).exists()
    ]
    archives = [(name, ALL_PROJECTS[name].archive) for name in config.projects]
    setup.inputs.update({f"{name}, {archive.file}": archive.sha256 for name, archive in archives})
    return summarise(found, wanted=wanted, failed=failed, enough=ENOUGH, seed=config.seed)


def _folder(config: Tuning, arm: str, project: TunedProject) -> Path:
    return config.folder / arm.replace(" ", "-") / project.name


def _path(config: Tuning, arm: str, project: TunedProject, minutes: float) -> Path:
    return _folder(config, arm, project) / f"finished-{minutes:g}.json"


def _plain(config: Tuning, arm: Arm, project: TunedProject, toolchain: Toolchain, setup: Setup) -> Mapping[str, Any]:
    """The project's build without a plugin, tested and weighed."""
    return prepare(
        project,
        config.folder / "projects",
        toolchain=toolchain,
        workers=config.workers,
        report=setup.report,
        lto=arm.lto,
        linking=_linking(arm, toolchain),
    )


def _linking(arm: Arm, toolchain: Toolchain) -> tuple[str, ...]:
    if not arm.lto:
        return LINKING
    return (*LINKING, "-Wl,--icf=all", f"--ld-path={linker_of(toolchain, 'tuning')}", arm.lto)


def _reach(
    config: Tuning,
    name: str,
    project: TunedProject,
    minutes: float,
    *,
    before: Mapping[str, Any],
    toolchain: Toolchain,
    setup: Setup,
) -> None:
    """Go on with one search until it has spent its budget, build the project with the result, and write it down."""
    arm, folder, builds = ARMS[name], _folder(config, name, project), config.folder / "projects"
    setup.report(0, 1, f"{project.name}, {name}, {minutes:g} core-minutes")
    begin = sum(spent())
    tuned = tune_for(_call(config, arm, project, folder, toolchain), folder / "tune", minutes, workers=config.workers)
    earlier = [json.loads(path.read_bytes())["all_seconds"] for path in folder.glob("finished-*.json")]
    all_seconds = max(earlier, default=0.0) + sum(spent()) - begin
    value: dict[str, Any] = {"tuned": tuned, "all_seconds": all_seconds, "before": before}
    options = {"toolchain": toolchain, "flag": tuned["flag"], "workers": config.workers}
    try:
        if arm.lto:
            value["after"] = _rebuild_linked(arm, project, builds, **options)
        else:
            names = [module["name"] for module in tuned["modules"]]
            value["after"] = rebuild(project, builds, names=names, **options)
            value["folded"] = folded_images(project, builds, **options)
    except MlgokitError as error:
        value["after"] = {"failure": str(error)}
    atomic_write(_path(config, name, project, minutes), json.dumps(value))


def _call(config: Tuning, arm: Arm, project: TunedProject, folder: Path, toolchain: Toolchain) -> list[str]:
    """The words of `mlgokit tune`, but for the budget."""
    place = config.folder / "projects" / project.name
    words = [
        "tune", *arm.options, "--folder", str(folder / "tune"), "--output", str(folder / "tuned.so"),
        "--llvm", str(toolchain.major), "--workers", str(config.workers), "--search.seed", str(config.seed),
    ]  # fmt: skip
    if not arm.lto:
        return [*words, "--corpus", str(place / "corpus")]
    build = (place / PLAIN[arm.lto]).resolve()
    link, where = link_of(image_of(project, build), build)
    words += ["--compile-commands", str(build / DATABASE_NAME), "--objective", "linked"]
    return [*words, "--link-command", link, "--link-folder", str(where)]


def tune_for(words: Sequence[str], folder: Path, minutes: float, *, workers: int) -> dict[str, Any]:
    """Tune, and go on with it until the compilers took so many core-minutes in user mode, or nothing more comes of it.

    A call's budget is wall time, of which a busy machine gives it a part; so it is called again for the rest. No call
    gets more wall time than its compilers may use: a busy machine that calms down would spend too much.

    Args:
        words: the call, but for its budget and whether it goes on.
        folder: of the search; what earlier calls in it spent counts.
        minutes: the budget.
        workers: compilers that run at once.
    """
    result = folder / "tuned.json"
    known = json.loads(result.read_bytes())["user_seconds"] if result.exists() else 0.0
    while True:
        left = 60 * minutes - known
        budget = f"{left / workers:.0f}s" if left >= LEAST_SECONDS else "0s"
        more = ["--continue"] if folder.exists() else []
        run_mlgokit([*words, "--budget", budget, *more], timeout_seconds=3600 + 10 * 60 * minutes)
        tuned = json.loads(result.read_bytes())
        gained, known = tuned["user_seconds"] - known, tuned["user_seconds"]
        if known >= ENOUGH * 60 * minutes or tuned["ended"] == NOTHING_LEFT or gained < 1:
            return tuned


def _rebuild_linked(
    arm: Arm, project: TunedProject, folder: Path, *, toolchain: Toolchain, flag: str, workers: int
) -> dict[str, Any]:
    """The build with link-time optimization and what tuning made: the compile steps and the link each have a part."""
    compiling, linking = [arm.lto, "-Wno-unused-command-line-argument"], list(_linking(arm, toolchain))
    # In one list of flags, where the build system has no other, either step passes over what is not for it.
    for word in shlex.split(flag):
        (compiling if word.startswith("-fpass-plugin=") else linking).append(word)
    return build_project(
        project,
        folder / project.name / f"tuned-{PLAIN[arm.lto]}",
        source=source_folder(project, folder),
        toolchain=toolchain,
        plugin_flag=shlex.join(compiling),
        workers=workers,
        linking=linking,
    ).to_json()


def link_of(image: Path, build: Path) -> tuple[str, Path]:
    """The link command of an image and its folder, as Ninja or CMake's makefiles have it.

    Raises:
        ToolError: neither says it.
    """
    finders: tuple[Callable[[Path, Path], tuple[str, Path] | None], ...] = (_ninja_link, _makefile_link)
    for find in finders:
        if (found := find(image, build)) is not None:
            return found
    raise ToolError(
        f"{image}: expected Ninja or link.txt to say how it is linked, found neither; leave the project out"
    )


def _ninja_link(image: Path, build: Path) -> tuple[str, Path] | None:
    if not (build / "build.ninja").is_file():
        return None
    argv = ["ninja", "-t", "commands", str(image.relative_to(build))]
    done = process.run(argv, timeout_seconds=60, cwd=build)
    lines = done.stdout.decode().splitlines()
    return (lines[-1], build) if done.returncode == 0 and lines else None


def _makefile_link(image: Path, build: Path) -> tuple[str, Path] | None:
    for path in sorted(build.rglob("link.txt")):
        # An archive has two lines, and a program one.
        text = path.read_text().strip()
        words = shlex.split(text)
        folder = path.parent.parent.parent
        outputs = [folder / words[index + 1] for index, word in enumerate(words[:-1]) if word == "-o"]
        if any(output.resolve() == image.resolve() for output in outputs):
            return text, folder
    return None


if __name__ == "__main__":
    raise SystemExit(main())

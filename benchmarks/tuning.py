"""How much smaller tuning makes real projects, built by their own build systems, against other searches.

Each project and arm is a folder with a search that goes on where it stopped, and one file for each budget that it has
reached. So a call with larger ``--points`` continues from the smaller ones, and ``--slice N`` does a part of the work.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, run_benchmark
from results import Result
from timing import spent
from tuning_arms import ABLATION, ARMS, Arm, functions_alone, proved
from tuning_builds import folded_images, prepare, rebuild
from tuning_command import ENOUGH, tune_for
from tuning_projects import ALL_PROJECTS, PROJECTS, TunedProject
from tuning_tables import Finished, summarise

from mlgokit.commands.chosen import modules_for_size
from mlgokit.commands.options import CompilerOptions
from mlgokit.commands.tune_options import ALLOCATION_SHARE, Tune
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import NEVER
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.inlining.opening import InliningSearch, open_inlining, try_policy
from mlgokit.tune.spaces.inlining.space import POLICY_NAME, SearchConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Tune real projects, each arm with the same processor time; build them with the result, and run their tests."""

    projects: tuple[str, ...] = tuple(PROJECTS)
    """Which projects; none of them was used in training the policy. There are also those of ``UNSEEN_PROJECTS``."""
    arms: tuple[str, ...] = tuple(name for name in ARMS if name not in ABLATION)
    """Which searches; there are also ``inlining alone``, ``registers alone``, ``passes alone``, ``inlining and
    registers`` and ``inlining and passes``."""
    points: tuple[float, ...] = (5.0, 15.0, 30.0, 60.0)
    """Core-minutes at which each search is stopped, proved, and gone on with."""
    policy: Path | None = Path("quickstart/train/final.policy")
    """The policy that one of the arms starts from; without the file, that arm is left out."""
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
    json: Path = Path("docs/results/tuning.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Tuning, measure, arguments)


def measure(config: Tuning, setup: Setup) -> Result:
    """Make what is missing, as far as the slice goes, and the tables of all that is there.

    A project that cannot be fetched, built or tested is named in the table, and the others go on.

    Raises:
        UsageError: an arm or a project is not known, or there is no budget.
        ReuseError: the folder has searches of something else.
    """
    check_names("arms", config.arms, ARMS)
    check_names("projects", config.projects, ALL_PROJECTS)
    if not config.points or min(config.points) <= 0:
        raise UsageError(f"points: expected core-minutes above zero, found {config.points}; name at least one")
    toolchain = setup.toolchain(config.llvm)
    policy = config.policy if config.policy is not None and config.policy.is_file() else None
    arms = {name: ARMS[name] for name in config.arms if policy is not None or not ARMS[name].policy}
    builds = config.folder / "projects"
    failed: dict[str, str] = {}

    def prepared(project: TunedProject) -> bool:
        if project.name not in failed:
            try:
                prepare(project, builds, toolchain=toolchain, workers=config.workers, report=setup.report)
            except MlgokitError as error:
                failed[project.name] = str(error)
        return project.name not in failed

    made = 0
    for name, arm in arms.items():
        for project in (ALL_PROJECTS[each] for each in config.projects):
            if config.prepare:
                prepared(project)
                continue
            missing = [point for point in sorted(config.points) if not _path(config, name, project, point).exists()]
            if not missing or (config.slice and made >= config.slice) or not prepared(project):
                continue
            made += 1
            start = policy if arm.policy else None
            _tuned(config, toolchain, name, project, missing, policy=start, report=setup.report)
    found = [
        Finished(project=ALL_PROJECTS[each], arm=name, minutes=point, value=json.loads(path.read_bytes()))
        for name in arms
        for each in config.projects
        for point in sorted(config.points)
        if (path := _path(config, name, ALL_PROJECTS[each], point)).exists()
    ]
    archives = [(each, ALL_PROJECTS[each].archive) for each in config.projects]
    setup.inputs.update({f"{name}, {archive.file}": archive.sha256 for name, archive in archives})
    if policy is not None:
        setup.inputs["policy"] = digest_file(policy)
    wanted = [(name, ALL_PROJECTS[each], point) for name in arms for each in config.projects for point in config.points]
    return summarise(found, wanted=wanted, failed=failed, enough=ENOUGH, seed=config.seed)


def _folder(config: Tuning, arm: str, project: TunedProject) -> Path:
    return config.folder / arm.replace(" ", "-") / project.name


def _path(config: Tuning, arm: str, project: TunedProject, minutes: float) -> Path:
    return _folder(config, arm, project) / f"finished-{minutes:g}.json"


def _tuned(
    config: Tuning,
    toolchain: Toolchain,
    name: str,
    project: TunedProject,
    points: Sequence[float],
    *,
    policy: Path | None,
    report: Report,
) -> None:
    """Go on with one search through the budgets that it has not reached; each leaves its file."""
    arm, folder = ARMS[name], _folder(config, name, project)
    builds = config.folder / "projects"
    begin = sum(spent()) - _spent_before(config, name, project, min(points))
    go_on = (
        _called(config, toolchain, arm, project, folder, report=report)
        if arm.command
        else _searched(config, toolchain, arm, project, folder, policy=policy, report=report)
    )
    for minutes in points:
        tuned = go_on(minutes)
        all_seconds = sum(spent()) - begin
        before = json.loads((builds / project.name / "prepared.json").read_bytes())
        after: dict[str, Any] | None = None
        if arm.rebuilt:
            report(0, 1, f"build {project.name} with the result")
            try:
                after = rebuild(
                    project,
                    builds,
                    toolchain=toolchain,
                    flag=tuned.flag,
                    names=[module.name for module in tuned.modules],
                    workers=config.workers,
                )
            except MlgokitError as error:
                after = {"failure": str(error)}
        value = {"tuned": tuned.to_json(), "all_seconds": all_seconds, "before": before, "after": after}
        if arm.command and after is not None and "failure" not in after:
            flag = tuned.flag
            value["folded"] = folded_images(project, builds, toolchain=toolchain, flag=flag, workers=config.workers)
        atomic_write(_path(config, name, project, minutes), json.dumps(value))
        begin = sum(spent()) - all_seconds


def _called(
    config: Tuning, toolchain: Toolchain, arm: Arm, project: TunedProject, folder: Path, *, report: Report
) -> Callable[[float], Tuned]:
    """`mlgokit tune`, called until it has taken so many core-minutes."""
    asked = _asked(config, toolchain, arm, project, folder)
    return lambda minutes: tune_for(asked, seconds=60 * minutes, report=report)


def _asked(config: Tuning, toolchain: Toolchain, arm: Arm, project: TunedProject, folder: Path) -> Tune:
    return Tune(
        corpus=config.folder / "projects" / project.name / "corpus",
        folder=folder / "tune",
        output=folder / "tuned.so",
        compiler=CompilerOptions(llvm=toolchain.major, workers=config.workers),
        search=SearchConfig(seed=config.seed),
        allocation_share=arm.shares[0],
        pass_share=arm.shares[1],
    )


def _searched(
    config: Tuning,
    toolchain: Toolchain,
    arm: Arm,
    project: TunedProject,
    folder: Path,
    *,
    policy: Path | None,
    report: Report,
) -> Callable[[float], Tuned]:
    """A search of our own, gone on with until it has taken so many core-minutes, and proved."""
    search = _opened(config, toolchain, arm, project, folder, policy=policy, report=report)

    def go_on(minutes: float) -> Tuned:
        if arm.functions:
            asked = _asked(config, toolchain, arm, project, folder)
            return functions_alone(search, asked, seconds=60 * minutes / config.workers, report=report)
        share = ALLOCATION_SHARE if arm.allocation else 0.0
        left = 60 * minutes * (1 - share) - search.user_seconds
        if left > 0:
            arm.run(search, seconds=left, workers=config.workers, report=report, clock=lambda: search.user_seconds)
        room = 60 * minutes - search.user_seconds if arm.allocation else 0.0
        return proved(search, folder / "tuned.so", seconds=room, report=report)

    return go_on


def _spent_before(config: Tuning, arm: str, project: TunedProject, minutes: float) -> float:
    """Processor seconds of a search and its proofs up to the largest budget below this; NaN if that is not known.

    It is not known of a search that was stopped before its first budget: its processes are gone.
    """
    folder = _folder(config, arm, project)
    reached = [(float(path.stem.removeprefix("finished-")), path) for path in folder.glob("finished-*.json")]
    earlier = max((one for one in reached if one[0] < minutes), default=None)
    if earlier is None:
        return math.nan if folder.exists() else 0.0
    return json.loads(earlier[1].read_bytes()).get("all_seconds", math.nan)


def _opened(
    config: Tuning,
    toolchain: Toolchain,
    arm: Arm,
    project: TunedProject,
    folder: Path,
    *,
    policy: Path | None,
    report: Report,
) -> InliningSearch:
    corpus = config.folder / "projects" / project.name / "corpus"
    place = folder / "search"
    claim: dict[str, Any] = {
        "kind": "tuning",
        "config": {"project": project.name, "seed": config.seed},
        "toolchain": toolchain.describe(),
        "inputs": {"corpus": digest_file(corpus / "corpus_description.json")}
        | ({"policy": digest_file(policy)} if policy is not None else {}),
    }
    if not check_manifest(place, **claim):
        write_manifest(place, **claim)
    fresh = not (place / "curve.json").exists()
    compiler = ClangCompiler(
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        workers=config.workers,
        timeout_seconds=120,
        residents=Residents(),
        known={},
    )
    search = open_inlining(
        modules_for_size(corpus, None).modules,
        compiler=compiler,
        config=dataclasses.replace(arm.config, seed=config.seed),
        folder=place,
        report=report,
    )
    if fresh and arm.never:
        try_policy(search, NEVER, report=report)
    if fresh and policy is not None:
        try_policy(search, str(policy), report=report)
    own = place / POLICY_NAME
    if arm.never and (start := own if own.exists() else policy):
        search.space.policy = load_policy(start, problem=INLINE_SIZE.name)
    return search


if __name__ == "__main__":
    raise SystemExit(main())

"""Compiles projects both ways, links both, and sets modules, functions and images side by side."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlgokit.builds.images import LINKED, BuiltImage, LinkBuild, LinkTask, WeighedImage, static_link
from mlgokit.builds.variant import PLAIN_VARIANT, Variant, leaves_alone, modules_of_variant
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import link_aware_score, link_weights, measure_object
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, Lto
from mlgokit.corpus.corpus import ModuleFailure as NoModule
from mlgokit.errors import ToolError
from mlgokit.evaluation.records import (
    COST,
    MEASURES,
    BuiltModule,
    Change,
    Evaluation,
    ModuleComparison,
    ModuleFailure,
    ProjectComparison,
    Sizes,
)
from mlgokit.evaluation.rows import compare_costs, compare_image, compare_module, link_costs
from mlgokit.evaluation.verdict import change_of
from mlgokit.module import Module
from mlgokit.policy.targets import architectures_of
from mlgokit.progress import Report, say_nothing
from mlgokit.statistics import bootstrap_interval, geometric_mean_change

BUILDS = ("before", "after")
NOT_READ = "not read: LTO"
"""Why there are no costs of register allocation: the link generates the code, and left no record of it."""
ImagePair = tuple[str, WeighedImage, WeighedImage]
"""An image by its name, before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How intervals over projects are made.

    Attributes:
        seed: of the resamples.
        level: probability that an interval is made for.
    """

    seed: int = 1
    level: float = 0.95


def compare_projects(
    modules: Sequence[Module],
    *,
    compiler: Compiler,
    after: Variant,
    before: Variant = PLAIN_VARIANT,
    intervals: Intervals | None = None,
    costs: bool = False,
    links: Mapping[str, LinkBuild] | None = None,
    lto: Mapping[str, Lto] | None = None,
    left_out: Sequence[NoModule] = (),
    report: Report = say_nothing,
    before_objects: Path | None = None,
) -> Evaluation:
    """Build every project of ``modules`` both ways and compare; a module that fails in either is left out of the sums.

    Args:
        modules: what to build, whole projects.
        compiler: also whose lld.
        after: the side that is judged.
        before: the side that it is compared with.
        intervals: over projects.
        costs: whether costs of register allocation are read.
        links: by image, what links it of the objects of a project; an image without a name has the project's. By
            default that one is all that is live from what the project offers to its users.
        lto: by module, the link-time optimization that its object is for; then ``links`` must do it.
        left_out: what of the projects is no module, which is a row all the same.
        report: progress.
        before_objects: folder that keeps the objects of the first side for the next call; it must be of these modules,
            this side and this toolchain. Times of objects that were kept are 0.

    Raises:
        ToolError: the toolchain has no linker.
        UsageError: an option of a side is none.
    """
    toolchain = compiler.toolchain
    if links is None:
        if toolchain.lld is None:
            raise ToolError(
                f"evaluation: expected ld.lld of LLVM {toolchain.major} to link the projects, found none; install it: "
                f"apt-get install lld-{toolchain.major}"
            )
        links = {"": static_link(toolchain.lld)}
    intervals = intervals or Intervals()
    sides: dict[str, Variant] = {"before": before, "after": after}
    of_side = {build: modules_of_variant(modules, side) for build, side in sides.items()}
    with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
        folder = Path(scratch)
        kept = before_objects or folder
        kept.mkdir(parents=True, exist_ok=True)
        folders: dict[str, Path] = {"before": kept, "after": folder}
        tasks = [(index, build) for index in range(len(modules)) for build in BUILDS]

        def build_one(task: tuple[int, str]) -> Compilation:
            index, build = task
            target = folders[build] / f"{index}.{build}.o"
            if target.exists():
                return Compilation(status=CompileStatus.OK, sizes=measure_object(target))
            asked = sides[build].use if sides[build].compiles_with_plugin else None
            kind: Lto = "" if lto is None else lto.get(modules[index].name, "")
            request = CompileRequest(use=asked, keep="none", keep_object=target, regalloc=costs and not kind, lto=kind)
            return compiler.compile(of_side[build][index], request)

        done = parallel(build_one, tasks, workers=compiler, report=report, label="evaluate")
        pairs = list(zip(done[::2], done[1::2], strict=True))
        projects: list[ProjectComparison] = []
        for name in dict.fromkeys(module.project for module in modules):
            chosen = [index for index, module in enumerate(modules) if module.project == name]
            pair = _Project(
                name=name,
                language=modules[chosen[0]].language,
                modules={modules[index].name: pairs[index] for index in chosen},
                objects={
                    build: {modules[index].name: folders[build] / f"{index}.{build}.o" for index in chosen}
                    for build in BUILDS
                },
                scratch=folder,
                plugins=(before.compiles_with_plugin, after.compiles_with_plugin),
            )
            missing = tuple(_no_module(one) for one in left_out if one.project == name)
            found = _compare_project(pair, links, costs=costs)
            projects.append(dataclasses.replace(found, module_rows=found.module_rows + missing))
    found = summarised(projects, before=before, after=after, intervals=intervals, compilations=len(tasks))
    architectures = architectures_of(modules)
    told = (sentence for side in (before, after) for sentence in leaves_alone(side, architectures))
    return dataclasses.replace(found, left_alone=tuple(dict.fromkeys(told)))


def summarised(
    projects: Sequence[ProjectComparison], *, before: Variant, after: Variant, intervals: Intervals, compilations: int
) -> Evaluation:
    """The projects with their summary."""
    rng = np.random.default_rng(intervals.seed)
    return Evaluation(
        policy=after.record.label,
        projects=tuple(projects),
        summary=summarise(projects, rng=rng, level=intervals.level),
        compilations=compilations,
        overall=changes_of(projects, rng=rng, level=intervals.level),
        before=before.record,
        after=after.record,
        level=intervals.level,
        seed=intervals.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Project:
    """What was compiled of a project.

    Attributes:
        name: its name.
        language: of its sources.
        modules: by name, before and after.
        objects: by build, the object of each module.
        scratch: for images.
        plugins: whether the compilers had the plugin, before and after.
    """

    name: str
    language: str
    modules: Mapping[str, tuple[Compilation, Compilation]]
    objects: Mapping[str, Mapping[str, Path]]
    scratch: Path
    plugins: tuple[bool, bool]


def _no_module(one: NoModule) -> ModuleComparison:
    side = BuiltModule(status="left_out", reason=one.reason)
    return ModuleComparison(module=one.name, before=side, after=side)


def _compare_project(one: _Project, links: Mapping[str, LinkBuild], *, costs: bool) -> ProjectComparison:
    failures = tuple(
        ModuleFailure(module=name, build=build, reason=f"{done.status.value}: {done.reason}")
        for name, pair in one.modules.items()
        for build, done in zip(BUILDS, pair, strict=True)
        if done.status is not CompileStatus.OK
    )
    failed = {failure.module for failure in failures}
    names = [name for name in one.modules if name not in failed]
    weights = link_weights([found for name in names if (found := one.modules[name][0].sizes) is not None])
    images: list[ImagePair] = []
    baseline = [one.objects["before"][name] for name in names]
    for number, (image, link) in enumerate(links.items() if names else ()):
        before, after = (
            link(
                LinkTask(
                    project=one.name,
                    build=build,
                    objects={name: one.objects[build][name] for name in names},
                    baseline=baseline,
                    output=one.scratch / f"{build}.{number}.image",
                )
            )
            for build in BUILDS
        )
        images.append((image or one.name, before, after))
    return project_comparison(
        one.name, one.language, one.modules, images, failures=failures, costs=costs,
        weights=weights, plugins=one.plugins, link_failure="" if names else "no module compiled in both builds",
    )  # fmt: skip


def project_comparison(
    name: str,
    language: str,
    modules: Mapping[str, tuple[Compilation | None, Compilation | None]],
    images: Sequence[ImagePair],
    *,
    failures: Sequence[ModuleFailure],
    costs: bool,
    weights: Mapping[str, int],
    plugins: tuple[bool, bool],
    link_failure: str = "",
) -> ProjectComparison:
    """A project's sums and rows.

    Args:
        name: the project's.
        language: of its sources.
        modules: by name, the compilations before and after; ``None`` where a build made no such object.
        images: what was linked: its name, before and after.
        costs: whether costs of register allocation were asked for.
        failures: modules that do not count in the sums.
        weights: of COMDAT signatures in the build before.
        plugins: whether the compilers had the plugin.
        link_failure: why nothing was linked, if that is known already.
    """
    failed = {failure.module for failure in failures}
    pairs = [
        (first, second)
        for module, (first, second) in modules.items()
        if module not in failed and first is not None and second is not None
    ]
    compared = [compare_image(*image) for image in images]
    for image in compared:
        for build, row in zip(BUILDS, (image.before, image.after), strict=True):
            if row.status != LINKED:
                link_failure = link_failure or f"{build}: {row.status}: {row.reason}"
    of_links = [pair for _, before, after in images for pair in link_costs(before, after)]
    # The code of a module that is left to the link is made there.
    is_left = any(one.sizes is None for pair in pairs for one in pair)
    grown = sum(_object_text(after) > _object_text(before) for before, after in pairs)
    return ProjectComparison(
        project=name,
        language=language,
        modules=len(pairs),
        before=_sizes([pair[0] for pair in pairs], [image.before for image in compared], weights),
        after=_sizes([pair[1] for pair in pairs], [image.after for image in compared], weights),
        larger_modules=grown,
        user_seconds_before=sum(before.user_seconds for before, _ in pairs),
        user_seconds_after=sum(after.user_seconds for _, after in pairs),
        link_failure=link_failure,
        failures=tuple(failures),
        module_rows=tuple(compare_module(module, pair, weights, plugins) for module, pair in modules.items()),
        images=tuple(compared),
        costs=compare_costs(
            [*((before.regalloc, after.regalloc) for before, after in pairs), *of_links],
            unread=NOT_READ if costs and is_left and not of_links else "",
        ),
    )


def _object_text(done: Compilation) -> int:
    return done.sizes.llvm_size_text if done.sizes is not None else 0


def _sizes(compilations: Sequence[Compilation], images: Sequence[BuiltImage], weights: Mapping[str, int]) -> Sizes:
    measured = [done.sizes for done in compilations if done.sizes is not None]
    return Sizes(
        objects=sum(sizes.llvm_size_text for sizes in measured),
        link_aware=sum(link_aware_score(sizes, weights) for sizes in measured),
        text=sum(image.text for image in images),
        rodata=sum(image.rodata for image in images),
        eh_frame=sum(image.eh_frame for image in images),
        image=sum(image.image for image in images),
    )


def summarise(
    projects: Sequence[ProjectComparison], *, rng: np.random.Generator, level: float = 0.95
) -> dict[str, dict[str, Change]]:
    """Change by language and measure, over the projects that could be linked."""
    languages = sorted({project.language for project in projects})
    found = {
        language: changes_of([one for one in projects if one.language == language], rng=rng, level=level)
        for language in languages
    }
    return {language: changes for language, changes in found.items() if changes}


def changes_of(
    projects: Sequence[ProjectComparison], *, rng: np.random.Generator, level: float = 0.95
) -> dict[str, Change]:
    """Change by measure, each over the projects that were measured by it."""
    found: dict[str, Change] = {}
    for measure in (*MEASURES, COST):
        changes = [change for one in projects if (change := change_of(one, measure)) is not None]
        if not changes:
            continue
        before, after = np.ones(len(changes)), 1 + np.array(changes)
        mean = geometric_mean_change(before, after)
        low, high = bootstrap_interval(before, after, rng=rng, level=level) if len(changes) > 1 else (mean, mean)
        found[measure] = Change(mean=mean, low=low, high=high, projects=len(changes))
    return found

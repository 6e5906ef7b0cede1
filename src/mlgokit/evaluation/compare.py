"""What two variants made of projects, set side by side: modules, functions, images, and their sums."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.builds.images import LINKED, BuiltImage
from mlgokit.builds.pair import BUILDS, BuildPair, ProjectPair, find_modules_in_both
from mlgokit.builds.variant import Variant
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import link_aware_score, link_weights
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
from mlgokit.statistics import bootstrap_interval, geometric_mean_change

NOT_READ = "not read: LTO"
"""Why there are no costs of register allocation: the link generates the code, and left no record of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How intervals over projects are made.

    Attributes:
        seed: of the resamples.
        level: probability that an interval is made for.
    """

    seed: int = 1
    level: float = 0.95


def compare_builds(pair: BuildPair, *, intervals: Intervals | None = None) -> Evaluation:
    """Set side by side what both variants made; a module that fails in either is left out of the sums.

    Args:
        pair: what was made.
        intervals: over projects.
    """
    variants = pair.variants
    found = make_evaluation(
        [compare_project(one, plugins=variants.compile_with_plugin, costs=variants.costs) for one in pair.projects],
        before=variants.before,
        after=variants.after,
        intervals=intervals or Intervals(),
        compilations=pair.compilations,
    )
    return dataclasses.replace(found, baseline=pair.baseline, left_alone=pair.left_alone)


def make_evaluation(
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


def compare_project(pair: ProjectPair, *, plugins: tuple[bool, bool], costs: bool) -> ProjectComparison:
    """A project's sums and rows.

    Args:
        pair: what both builds made of it.
        plugins: whether the compilers had the plugin, before and after.
        costs: whether costs of register allocation were asked for.
    """
    failures = tuple(
        ModuleFailure(module=name, build=build, reason=_reason(done))
        for name, modules in pair.modules.items()
        for build, done in zip(BUILDS, modules, strict=True)
        if done is None or done.status is not CompileStatus.OK
    )
    compiled = [
        (first, second)
        for first, second in map(pair.modules.__getitem__, find_modules_in_both(pair.modules))
        if first is not None and second is not None
    ]
    weights = link_weights(before.sizes for before, _ in compiled if before.sizes is not None)
    images = [compare_image(*image) for image in pair.images]
    link_failure = pair.failure
    for image in images:
        for build, row in zip(BUILDS, (image.before, image.after), strict=True):
            if row.status != LINKED:
                link_failure = link_failure or f"{build}: {row.status}: {row.reason}"
    of_links = [costs_of_link for _, before, after in pair.images for costs_of_link in link_costs(before, after)]
    # The code of a module that is left to the link is made there.
    is_left = any(one.sizes is None for both in compiled for one in both)
    return ProjectComparison(
        project=pair.project,
        language=pair.language,
        modules=len(compiled),
        before=_sizes([before for before, _ in compiled], [image.before for image in images], weights),
        after=_sizes([after for _, after in compiled], [image.after for image in images], weights),
        larger_modules=sum(_object_text(after) > _object_text(before) for before, after in compiled),
        user_seconds_before=sum(before.user_seconds for before, _ in compiled),
        user_seconds_after=sum(after.user_seconds for _, after in compiled),
        link_failure=link_failure,
        failures=failures,
        module_rows=(
            *(compare_module(name, modules, weights, plugins) for name, modules in pair.modules.items()),
            *(
                _not_compared(name, "passed_by", f"{compiler} made it and bypassed the wrappers")
                for name, compiler in pair.passed_by.items()
            ),
            *(_not_compared(one.name, "left_out", one.reason) for one in pair.left_out),
        ),
        images=tuple(images),
        costs=compare_costs(
            [*((before.regalloc, after.regalloc) for before, after in compiled), *of_links],
            unread=NOT_READ if costs and is_left and not of_links else "",
        ),
    )


def _reason(done: Compilation | None) -> str:
    return "absent: this build made no such object" if done is None else f"{done.status.value}: {done.reason}"


def _not_compared(name: str, status: str, reason: str) -> ModuleComparison:
    """The row of what no variant has a part in."""
    side = BuiltModule(status=status, reason=reason)
    return ModuleComparison(module=name, before=side, after=side)


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

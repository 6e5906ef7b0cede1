"""Compiles projects plainly and under a policy, links both, and sets the sizes side by side."""

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import link_aware_score, link_weights, measure_object
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, PluginUse
from mlgokit.errors import ToolError
from mlgokit.evaluation.statistics import bootstrap_interval, geometric_mean_change
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing

LINK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of one build of one project; ``text``, ``rodata`` and ``eh_frame`` are of the linked image.

    Attributes:
        objects: sum over the objects of what llvm-size calls text.
        link_aware: sum over the objects of the link-aware score.
        text: machine code of the linked, garbage-collected image.
        rodata: its read-only data, exception tables included.
        eh_frame: its unwind tables.
        image: text + rodata + eh_frame.
    """

    objects: int
    link_aware: float
    text: int
    rodata: int
    eh_frame: int
    image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFailure:
    """A module that one of the two builds could not compile, and why; it is left out of both."""

    module: str
    build: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectComparison:
    """One project, plain ``-Oz`` before and the policy after.

    Attributes:
        project: its name.
        language: ``c`` or ``c++``.
        modules: number of modules in both builds.
        before: sizes of the plain build.
        after: sizes under the policy.
        larger_modules: modules whose object grew.
        user_seconds_before: processor time of the plain compilations.
        user_seconds_after: processor time of the compilations under the policy.
        link_failure: why the images could not be linked, else empty; their sizes are 0 then.
        failures: modules left out.
    """

    project: str
    language: str
    modules: int
    before: Sizes
    after: Sizes
    larger_modules: int
    user_seconds_before: float
    user_seconds_after: float
    link_failure: str = ""
    failures: tuple[ModuleFailure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Geometric mean of size ratios less 1 (negative is smaller), with its 95 % interval over projects."""

    mean: float
    low: float
    high: float
    projects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All projects, and the summary by language and measure.

    Attributes:
        policy: what was evaluated.
        projects: one comparison each.
        summary: language -> measure (``objects``, ``link_aware``, ``text``, ``image``) -> change.
        compilations: compilations spent.
    """

    policy: str
    projects: tuple[ProjectComparison, ...]
    summary: dict[str, dict[str, Change]]
    compilations: int

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain JSON values."""
        return dataclasses.asdict(self)


MEASURES = ("objects", "link_aware", "text", "image")


def compare_projects(
    modules: Sequence[Module],
    *,
    compiler: Compiler,
    use: PluginUse,
    rng: np.random.Generator,
    report: Report = say_nothing,
    plain_objects: Path | None = None,
) -> Evaluation:
    """Build every project of ``modules`` twice and compare; a module that fails in either build is left out of both.

    Args:
        modules: what to build, whole projects.
        compiler: also whose lld.
        use: the plugin and the policy.
        rng: of the bootstrap intervals.
        report: progress.
        plain_objects: folder that keeps the objects of the plain build for the next call; it must be of these modules
            and this toolchain. Times of a plain build that was kept are 0.

    Raises:
        ToolError: the toolchain has no linker.
    """
    toolchain = compiler.toolchain
    if toolchain.lld is None:
        raise ToolError(
            f"evaluation: expected ld.lld of LLVM {toolchain.major} to link the projects, found none; install it: "
            f"apt-get install lld-{toolchain.major}"
        )
    with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
        folder = Path(scratch)
        kept = folder if plain_objects is None else plain_objects
        kept.mkdir(parents=True, exist_ok=True)
        tasks = [(index, build) for index in range(len(modules)) for build in ("before", "after")]

        def build_one(task: tuple[int, str]) -> Compilation:
            index, build = task
            module = modules[index]
            target = (folder if build == "after" else kept) / f"{index}.{build}.o"
            if target.exists():
                return Compilation(status=CompileStatus.OK, sizes=measure_object(target))
            asked = use if build == "after" else None
            return compiler.compile(module, CompileRequest(use=asked, keep="none", keep_object=target))

        results = dict(
            zip(
                tasks,
                parallel(build_one, tasks, workers=compiler.workers, report=report, label="evaluate"),
                strict=True,
            )
        )
        names = list(dict.fromkeys(module.project for module in modules))
        projects = tuple(
            _compare_project(
                name,
                {index: module for index, module in enumerate(modules) if module.project == name},
                results,
                {"before": kept, "after": folder},
                toolchain.lld,
            )
            for name in names
        )
    return Evaluation(
        policy=use.policies.get(INLINE_SIZE.name) or str(use.plugin or compiler.plugin),
        projects=projects,
        summary=summarise(projects, rng=rng),
        compilations=len(tasks),
    )


def _compare_project(
    name: str,
    modules: dict[int, Module],
    results: dict[tuple[int, str], Compilation],
    folders: dict[str, Path],
    lld: Path,
) -> ProjectComparison:
    failures = tuple(
        ModuleFailure(module=module.name, build=build, reason=f"{result.status.value}: {result.reason}")
        for index, module in modules.items()
        for build in ("before", "after")
        if (result := results[index, build]).status is not CompileStatus.OK
    )
    failed = {failure.module for failure in failures}
    indices = [index for index, module in modules.items() if module.name not in failed]
    roots = link_roots([folders["before"] / f"{index}.before.o" for index in indices])
    weights = link_weights([found for index in indices if (found := results[index, "before"].sizes) is not None])
    sizes = dict.fromkeys(("before", "after"), Sizes(objects=0, link_aware=0.0, text=0, rodata=0, eh_frame=0, image=0))
    link_failure = "" if indices else "no module compiled in both builds"
    for build in sizes if indices else ():
        image = link_image(
            [folders[build] / f"{index}.{build}.o" for index in indices],
            folders["after"] / f"{build}.image",
            roots=roots,
            lld=lld,
            timeout_seconds=LINK_SECONDS,
        )
        if image.status is not LinkStatus.LINKED:
            first = next(iter(image.stderr.strip().splitlines()), "no message")
            link_failure = f"{build}: {image.status.value}: {first}"
        sizes[build] = _sizes([results[index, build] for index in indices], image, weights)
    grown = sum(_object_text(results[index, "after"]) > _object_text(results[index, "before"]) for index in indices)
    return ProjectComparison(
        project=name,
        language=next(iter(modules.values())).language,
        modules=len(indices),
        before=sizes["before"],
        after=sizes["after"],
        larger_modules=grown,
        user_seconds_before=sum(results[index, "before"].user_seconds for index in indices),
        user_seconds_after=sum(results[index, "after"].user_seconds for index in indices),
        link_failure=link_failure,
        failures=failures,
    )


def _object_text(result: Compilation) -> int:
    return result.sizes.llvm_size_text if result.sizes is not None else 0


def _sizes(results: Sequence[Compilation], image: LinkedImage, weights: dict[str, int]) -> Sizes:
    measured = [result.sizes for result in results if result.sizes is not None]
    return Sizes(
        objects=sum(sizes.llvm_size_text for sizes in measured),
        link_aware=sum(link_aware_score(sizes, weights) for sizes in measured),
        text=image.text,
        rodata=image.rodata,
        eh_frame=image.eh_frame,
        image=image.image,
    )


def summarise(projects: Sequence[ProjectComparison], *, rng: np.random.Generator) -> dict[str, dict[str, Change]]:
    """Change by language and measure, over the projects that could be linked."""
    summary: dict[str, dict[str, Change]] = {}
    for language in sorted({project.language for project in projects}):
        chosen = [
            project
            for project in projects
            if project.language == language and not project.link_failure and project.modules
        ]
        if not chosen:
            continue
        summary[language] = {}
        for measure in MEASURES:
            before = np.array([getattr(project.before, measure) for project in chosen], np.float64)
            after = np.array([getattr(project.after, measure) for project in chosen], np.float64)
            mean = geometric_mean_change(before, after)
            low, high = bootstrap_interval(before, after, rng=rng) if len(chosen) > 1 else (mean, mean)
            summary[language][measure] = Change(mean=mean, low=low, high=high, projects=len(chosen))
    return summary

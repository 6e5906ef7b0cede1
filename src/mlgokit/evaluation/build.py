"""A real build made by two variants, and what they compiled and linked set side by side."""

import dataclasses
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mlgokit.builds.images import no_image
from mlgokit.builds.variant import Variant
from mlgokit.builds.wrapped import TREE, BuildPlan, MadeBuild, make_variant_of
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import link_weights
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import WrappedCall
from mlgokit.corpus.build_notes import baseline_text, level_of
from mlgokit.corpus.importers.recorded import describe_replaced_compilers
from mlgokit.errors import UsageError
from mlgokit.evaluation.compare import BUILDS, Intervals, project_comparison, summarised
from mlgokit.evaluation.records import BuiltModule, Evaluation, ModuleComparison, ModuleFailure
from mlgokit.progress import Report, say_nothing

Inspect = Callable[[Evaluation, Sequence[WrappedCall], Path], Evaluation]
"""Adds to an evaluation what the compilations of the judged build say, while its tree is there."""


def compare_build(
    plan: BuildPlan,
    *,
    toolchain: Toolchain,
    plugin: Path | None,
    before: Variant,
    after: Variant,
    intervals: Intervals | None = None,
    costs: bool = False,
    inspect: Inspect | None = None,
    report: Report = say_nothing,
) -> Evaluation:
    """Build both ways and compare what was compiled and linked; what failed or is missing is a row.

    Args:
        plan: the build.
        toolchain: whose clang takes the place of the build's compilers.
        plugin: the generic one, for a side that names none.
        before: the side that is compared with.
        after: the side that is judged.
        intervals: over projects; a build is a single one.
        costs: whether costs of register allocation are read.
        inspect: adds to the evaluation before the second tree goes.
        report: progress.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
        UsageError: the build calls no compiler that is wrapped, or an image pattern fits nothing.
    """
    made: list[MadeBuild] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-build-") as scratch:
        # Resolved, as where the temporary folder is a link a build would meet two names of it.
        place = Path(scratch).resolve() / "build"
        for number, (build, side) in enumerate(zip(BUILDS, (before, after), strict=True)):
            report(number, len(BUILDS), f"build {build}: {side.record.label}")
            if made:
                shutil.rmtree(place)
            made.append(make_variant_of(plan, side, place, toolchain=toolchain, plugin=plugin, costs=costs))
        for one in made:
            _expect_calls(one)
        report(len(BUILDS), len(BUILDS), "build")
        first, second = made
        found = _compared(
            plan,
            first,
            second,
            before=before,
            after=after,
            intervals=intervals,
            costs=costs,
            version=toolchain.version,
        )
        return found if inspect is None else inspect(found, second.compiled, place / TREE)


def _compared(
    plan: BuildPlan,
    first: MadeBuild,
    second: MadeBuild,
    *,
    before: Variant,
    after: Variant,
    intervals: Intervals | None,
    costs: bool,
    version: str,
) -> Evaluation:
    """Both builds as one evaluation.

    Raises:
        UsageError: an image pattern fits nothing.
    """
    if plan.images and not (first.images or second.images) and not (first.reason or second.reason):
        raise UsageError(
            f"--images: expected patterns of files that the build makes, found none for {', '.join(plan.images)}; "
            "give paths below the folder of the build"
        )
    modules = {name: (first.modules.get(name), second.modules.get(name)) for name in (first.modules | second.modules)}
    failures = [
        ModuleFailure(module=name, build=build, reason=_reason(done))
        for name, pair in modules.items()
        for build, done in zip(BUILDS, pair, strict=True)
        if done is None or done.status is not CompileStatus.OK
    ]
    failed = {failure.module for failure in failures}
    weights = link_weights(
        done.sizes for name, done in first.modules.items() if name not in failed and done.sizes is not None
    )
    images = [
        (name, first.images.get(name, no_image()), second.images.get(name, no_image()))
        for name in (first.images | second.images)
    ]
    made = zip(BUILDS, (first, second), strict=True)
    ended = next((f"{build}: {one.reason}" for build, one in made if one.reason), "")
    project = project_comparison(
        plan.folder.resolve().name,
        first.languages.most_common(1)[0][0] if first.languages else "unknown",
        modules,
        images,
        failures=failures,
        costs=costs,
        weights=weights,
        plugins=(before.compiles_with_plugin, after.compiles_with_plugin),
        link_failure=ended,
    )
    passed = first.passed | second.passed
    project = dataclasses.replace(
        project,
        module_rows=(
            *project.module_rows,
            *(_passed_by(name, passed[name]) for name in sorted(passed)),
            *(_gone(name) for name in sorted((first.gone | second.gone) - modules.keys())),
        ),
    )
    found = summarised(
        [project],
        before=before,
        after=after,
        intervals=intervals or Intervals(),
        compilations=first.calls + second.calls,
    )
    levels = Counter(level_of(call.words) for call in first.compiled)
    baseline = f"{baseline_text(version, levels)}{describe_replaced_compilers(first.compiled)}"
    return dataclasses.replace(found, baseline=baseline)


def _expect_calls(made: MadeBuild) -> None:
    """Refuse a build in which no wrapper stood in the place of a compiler: nothing would differ."""
    if made.passed and not made.modules:
        name, compiler = next(iter(made.passed.items()))
        raise UsageError(
            f"--build: no wrapped compiler was called, but {len(made.passed)} objects were made, such as {name} "
            f"by {compiler}; start compilers by name (clang, cc, c++) or by CC and CXX, and do not clear the "
            "environment"
        )
    if not made.calls:
        raise UsageError(
            "--build: expected calls of clang, cc, c++ or the like by way of PATH, CC or CXX, found none"
            f"{f' ({made.reason})' if made.reason else ''}; configure in the same --build, and clean first "
            "what is up to date; for a configured build give --compile-commands and --link-command"
        )


def _passed_by(name: str, compiler: str) -> ModuleComparison:
    """The row of an object that is built alike on both sides, as no wrapper had a hand in it."""
    side = BuiltModule(status="passed_by", reason=f"{compiler} made it and bypassed the wrappers")
    return ModuleComparison(module=name, before=side, after=side)


def _gone(name: str) -> ModuleComparison:
    """The row of an object that the build removes, as one that it puts into a static library."""
    side = BuiltModule(status="left_out", reason="the build has removed the object, so that it cannot be measured")
    return ModuleComparison(module=name, before=side, after=side)


def _reason(done: Compilation | None) -> str:
    return "absent: this build made no such object" if done is None else f"{done.status.value}: {done.reason}"

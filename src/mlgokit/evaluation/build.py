"""A real build made both ways: in copies of its folder, by its own commands, with its compilers wrapped.

Both copies lie at the same place, one after the other, so that no path differs between the two.
"""

import dataclasses
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.images import WeighedImage, no_image, weigh_image
from mlgokit.builds.variant import Variant, cache_key, plugin_link_option
from mlgokit.compiler.build_tree import BITCODE, copy_sources, is_image, objects_below, objects_passed_by
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import link_weights, measure_object
from mlgokit.compiler.project_calls import project_calls, shown_path
from mlgokit.compiler.regalloc_cost import RegallocCosts, read_regalloc_costs
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import REPEATABLE, AddedOptions, WrappedBuild, WrappedCall, run_wrapped
from mlgokit.corpus.build_notes import baseline_text, level_of
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.recorded import in_place_of
from mlgokit.errors import InputError, UsageError
from mlgokit.evaluation.compare import BUILDS, Intervals, project_comparison, summarised
from mlgokit.evaluation.records import BuiltModule, Evaluation, ModuleComparison, ModuleFailure
from mlgokit.progress import Report, say_nothing

_TREE = "tree"
"""The copy of the build's folder, beside the wrappers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build.

    Attributes:
        commands: words of each, run one after the other in the copy.
        folder: what is copied.
        images: patterns of paths below the folder of images to compare; by default all that the build links.
        timeout_seconds: deadline of one whole build.
    """

    commands: tuple[tuple[str, ...], ...]
    folder: Path
    images: tuple[str, ...] = ()
    timeout_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What one build made.

    Attributes:
        reason: why the build failed, else empty.
        modules: by path of the object below the folder.
        images: by path.
        languages: of the sources, counted.
        calls: how many compilations and links there were.
        passed: by path of the object below the folder, the compiler that made it without a wrapper seeing it.
        compiled: the calls that compiled.
        gone: objects that are not there at the end, by path below the folder.
    """

    reason: str
    modules: dict[str, Compilation]
    images: dict[str, WeighedImage]
    languages: Counter[str]
    calls: int
    passed: dict[str, str]
    compiled: tuple[WrappedCall, ...]
    gone: frozenset[str]


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
    made: list[_Made] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-build-") as scratch:
        # Resolved, as where the temporary folder is a link a build would meet two names of it.
        place = Path(scratch).resolve() / "build"
        for number, (build, side) in enumerate(zip(BUILDS, (before, after), strict=True)):
            report(number, len(BUILDS), f"build {build}: {side.record.label}")
            if made:
                shutil.rmtree(place)
            made.append(_make(plan, side, place, toolchain=toolchain, plugin=plugin, costs=costs))
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
        return found if inspect is None else inspect(found, second.compiled, place / _TREE)


def _compared(
    plan: BuildPlan,
    first: _Made,
    second: _Made,
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
    baseline = f"{baseline_text(version, levels)}{in_place_of(first.compiled)}"
    return dataclasses.replace(found, baseline=baseline)


def _expect_calls(made: _Made) -> None:
    """Refuse a build in which no wrapper stood in the place of a compiler: nothing would differ."""
    if made.passed and not made.modules:
        name, compiler = next(iter(made.passed.items()))
        raise UsageError(
            f"--build: expected compilers that a wrapper can stand in for, found {len(made.passed)} new objects, such "
            f"as {name} by {compiler}, and no call of a wrapper; start compilers by their names (clang, cc, c++) or by "
            "CC and CXX, and leave the environment of the build as it is"
        )
    if not made.calls:
        raise UsageError(
            "--build: expected calls of clang, cc, c++ or the like by way of PATH, CC or CXX, found none"
            f"{f' ({made.reason})' if made.reason else ''}; configure in the same --build, and clean first "
            "what is up to date; for a configured build give --compile-commands and --link-command"
        )


def _passed_by(name: str, compiler: str) -> ModuleComparison:
    """The row of an object that is built alike on both sides, as no wrapper had a hand in it."""
    side = BuiltModule(status="passed_by", reason=f"{compiler} made it, started past the wrappers of compilers")
    return ModuleComparison(module=name, before=side, after=side)


def _gone(name: str) -> ModuleComparison:
    """The row of an object that the build removes, as one that it puts into a static library."""
    side = BuiltModule(status="left_out", reason="the build has removed the object, so that it cannot be measured")
    return ModuleComparison(module=name, before=side, after=side)


def _make(
    plan: BuildPlan, side: Variant, folder: Path, *, toolchain: Toolchain, plugin: Path | None, costs: bool
) -> _Made:
    """Build one side in ``folder``, which is not there yet."""
    tree = folder / _TREE
    copy_sources(plan.folder, tree)
    loaded = (side.use.plugin or plugin) if side.use is not None else None
    compile_options, link_options = list(side.options), list(side.link_options)
    if loaded is not None and side.compiles_with_plugin:
        compile_options.append(f"-fpass-plugin={loaded.absolute()}")
    cache = ""
    if loaded is not None and side.links_with_plugin:
        link_options.append(plugin_link_option(loaded))
        cache = cache_key(loaded, side.record.digests | side.record.policies)
    before = objects_below(tree)
    build = run_wrapped(
        plan.commands,
        tree=tree,
        folder=folder / "wrappers",
        toolchain=toolchain,
        added=AddedOptions(compile=tuple(compile_options), link=tuple(link_options), record=costs, cache=cache),
        environment=REPEATABLE | (side.use.environment(folder) if side.use is not None else {}),
        timeout_seconds=plan.timeout_seconds,
    )
    passed = {
        one.path.relative_to(tree).as_posix(): one.compiler
        for one in objects_passed_by(tree, build, before=before)
        if one.is_new
    }
    return dataclasses.replace(_read(plan, side, build, tree), passed=passed)


def _read(plan: BuildPlan, side: Variant, build: WrappedBuild, tree: Path) -> _Made:
    """Rows of all objects and images that are there, and of what failed, before the tree goes."""
    modules: dict[str, Compilation] = {}
    languages: Counter[str] = Counter()
    gone: set[str] = set()
    links: dict[Path, WrappedCall] = {}
    calls = project_calls(build, tree).calls
    for call in calls:
        if call.kind == "compile":
            languages.update("c" if path.suffix in {".c", ".i"} else "c++" for path in call.inputs)
            for path in call.outputs:
                if path.is_relative_to(tree) and (call.code or path.exists()) and path.suffix != ".s":
                    modules[path.relative_to(tree).as_posix()] = _compilation(call, path)
                elif not path.exists() and path.name != "-":
                    gone.add(shown_path(path, tree))
        else:
            links.update(dict.fromkeys(call.outputs, call))
    lto = next((found for call in build.calls if call.kind == "compile" and (found := lto_of(call.words))), "")
    images: dict[str, WeighedImage] = {}
    for path in _image_paths(plan, links, tree):
        call = links.get(path)
        words = call.words if call is not None else ()
        plugin = call is not None and side.links_with_plugin
        kind = (lto_of(words) or lto) if "-fno-lto" not in words else ""
        name = path.relative_to(tree).as_posix()
        if call is not None and call.code:
            images[name] = no_image(status="failed", reason=call.reason, plugin=plugin, lto=kind)
        else:
            seconds = call.user_seconds if call is not None else 0.0
            record = call.record if call is not None else None
            images[name] = weigh_image(path, plugin=plugin, lto=kind, user_seconds=seconds, record=record)
    failed = next((call.reason for call in build.calls if call.code and all(path.exists() for path in call.inputs)), "")
    reason = f"{build.reason}: {failed}" if build.reason and failed and failed not in build.reason else build.reason
    return _Made(
        reason=reason,
        modules=modules,
        images=images,
        languages=languages,
        calls=len(build.calls),
        passed={},
        compiled=tuple(call for call in calls if call.kind == "compile"),
        gone=frozenset(gone),
    )


def _image_paths(plan: BuildPlan, links: dict[Path, WrappedCall], tree: Path) -> list[Path]:
    """The images that were asked for, or all programs and shared libraries that the build linked."""
    if plan.images:
        return sorted({path for pattern in plan.images for path in tree.glob(pattern) if path.is_file()})
    return [
        path
        for path, call in links.items()
        if path.is_relative_to(tree) and (call.code or (path.is_file() and is_image(path)))
    ]


def _compilation(call: WrappedCall, path: Path) -> Compilation:
    if call.code:
        status = CompileStatus.CRASHED if call.code < 0 or call.code > 128 else CompileStatus.FAILED
        return Compilation(status=status, reason=call.reason, user_seconds=call.user_seconds)
    done = Compilation(status=CompileStatus.OK, user_seconds=call.user_seconds, wall_seconds=call.wall_seconds)
    with path.open("rb") as file:
        if file.read(4) in BITCODE:
            return done
    try:
        costs: RegallocCosts | None = None
        if call.record is not None and call.record.exists():
            costs = read_regalloc_costs(call.record)
        return dataclasses.replace(done, sizes=measure_object(path), regalloc=costs)
    except InputError as error:
        return Compilation(status=CompileStatus.BAD_OBJECT, reason=str(error), user_seconds=call.user_seconds)


def _reason(done: Compilation | None) -> str:
    return "absent: this build made no such object" if done is None else f"{done.status.value}: {done.reason}"

"""A build that is made in a copy of its folder, by its own commands, with its compilers wrapped.

Copies of all variants lie at the same place, one after the other, so that no path differs between them.
"""

import contextlib
import dataclasses
import functools
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.compilers import CompilerOptions, clang_for, toolchain_of_build
from mlgokit.builds.corpus import Database, import_database, modules_of_project
from mlgokit.builds.images import WeighedImage, no_image, weigh_image
from mlgokit.builds.pair import BUILDS, BuildPair, PairBitcode, ProjectPair, VariantPair
from mlgokit.builds.site import check_programs
from mlgokit.builds.variant import Variant, cache_key, plugin_link_option
from mlgokit.compiler.build_tree import BITCODE, copy_sources, find_unseen_objects, is_image, objects_below
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.project_calls import project_calls, shown_path
from mlgokit.compiler.regalloc_cost import RegallocCosts, read_regalloc_costs
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import REPEATABLE, AddedOptions, WrappedBuild, WrappedCall, run_wrapped
from mlgokit.corpus.build_notes import baseline_text, level_of
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.database import module_outputs
from mlgokit.corpus.importers.recorded import describe_replaced_compilers, write_database
from mlgokit.errors import InputError, MlgokitError, UsageError
from mlgokit.module import architecture_of
from mlgokit.progress import Report

TREE = "tree"
"""The copy of the build's folder, beside the wrappers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBuild:
    """The result of one build; objects and images by their paths relative to its folder.

    Attributes:
        reason: why the build failed; empty if it did not.
        languages: number of sources by language.
        calls: number of compilations and links.
        passed: compiler that made an object without a wrapper seeing it, by path of the object.
        compiled: the calls that compiled.
        gone: paths of objects that the build removed again.
    """

    reason: str
    modules: dict[str, Compilation]
    images: dict[str, WeighedImage]
    languages: Counter[str]
    calls: int
    passed: dict[str, str]
    compiled: tuple[WrappedCall, ...]
    gone: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedProject:
    """A build that two variants make, one after the other; a :class:`~mlgokit.builds.pair.PairSource`.

    Attributes:
        commands: words of each command; they run one after the other in a copy of the folder.
        images: glob patterns, relative to the folder, of the images to compare; by default all that the build links.
        timeout_seconds: deadline of one whole build.
        compiler: options for the clang that replaces the build's compilers.
    """

    commands: tuple[tuple[str, ...], ...]
    folder: Path
    images: tuple[str, ...] = ()
    timeout_seconds: float = 3600.0
    compiler: CompilerOptions

    @contextlib.contextmanager
    def make(self, variants: VariantPair, *, report: Report) -> Generator[BuildPair]:
        """Make both variants in copies of the folder; failures become rows. The second copy stays until the end."""
        if not self.folder.is_dir():
            raise UsageError(f"--folder {self.folder}: expected a folder with sources to build, found none; correct it")
        check_programs(self.commands, option="build")
        folder = self.folder.resolve()
        project = dataclasses.replace(self, images=_relative_patterns(self.images, folder))
        commands = [shlex.join(words) for words in self.commands]
        toolchain = toolchain_of_build(
            self.compiler, database=None, commands=commands, need_plugin=variants.needs_plugin
        )
        plugin = variants.plugin_for(toolchain)
        made: list[MadeBuild] = []
        with tempfile.TemporaryDirectory(prefix="mlgokit-build-") as scratch:
            # Resolved, as where the temporary folder is a link a build would meet two names of it.
            place = Path(scratch).resolve() / "build"
            for number, (build, side) in enumerate(variants.both.items()):
                report(number, len(BUILDS), f"build {build}: {side.record.label}")
                if made:
                    shutil.rmtree(place)
                made.append(
                    _make_variant(project, side, place, toolchain=toolchain, plugin=plugin, costs=variants.costs)
                )
            for one in made:
                _check_calls(one)
            report(len(BUILDS), len(BUILDS), "build")
            first, second = made
            if project.images and not (first.images or second.images) and not (first.reason or second.reason):
                raise UsageError(
                    "--images: expected patterns of files that the build makes, found none for "
                    f"{', '.join(project.images)}; give paths below the folder of the build"
                )
            baseline = baseline_text(toolchain.version, Counter(level_of(call.words) for call in first.compiled))
            yield BuildPair(
                variants=variants,
                toolchain=toolchain,
                projects=[_pair_project(folder.name, first, second)],
                compilations=first.calls + second.calls,
                left_alone=variants.left_alone(
                    Counter(architecture_of(call.target or toolchain.target) for call in first.compiled),
                    has_links=any(lto_of(call.words) for call in first.compiled),
                ),
                baseline=f"{baseline}{describe_replaced_compilers(first.compiled)}",
                bitcode=functools.partial(
                    _make_bitcode,
                    second.compiled,
                    place / TREE,
                    Path(scratch) / "corpus",
                    toolchain=toolchain,
                    plugin=plugin,
                    compiler=self.compiler,
                ),
            )


def _relative_patterns(patterns: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Make the patterns of images relative to the resolved folder of the build, before that is built in copies."""
    found = tuple(text.removeprefix(f"{folder.as_posix()}/") for text in patterns)
    for text in found:
        try:
            next(folder.glob(text), None)
        except (ValueError, NotImplementedError) as error:
            raise UsageError(
                f"--images {text}: expected a pattern of paths below {folder}, such as 'build/tool*', found: {error}; "
                "correct it"
            ) from error
    return found


def _make_bitcode(
    calls: Sequence[WrappedCall],
    tree: Path,
    folder: Path,
    objects: Collection[str],
    report: Report,
    *,
    toolchain: Toolchain,
    plugin: Path | None,
    compiler: CompilerOptions,
) -> PairBitcode | str:
    """Make bitcode in ``folder`` of the sources of some objects; or return why that is impossible.

    ``calls`` are those of the build after, whose copy is ``tree``.
    """
    wanted = [
        call
        for call in calls
        if not set(objects).isdisjoint(path.as_posix().removeprefix(f"{tree}/") for path in call.outputs)
    ]
    # Modules are named relative to the folder of the database.
    database = tree / "mlgokit_commands.json"
    if not write_database(wanted, database).entries:
        return "no object of the build holds a function that differs"
    try:
        corpus = import_database(Database(path=database), folder, toolchain=toolchain, compiler=compiler, report=report)
        chosen = modules_of_project(corpus, None)
    except MlgokitError as error:
        return f"no module could be made of what differs: {error}"
    outputs = module_outputs(database)
    modules = [
        dataclasses.replace(module, name=outputs[module.name].relative_to(tree).as_posix())
        for module in chosen.modules
        if module.name in outputs
    ]
    clang = clang_for(compiler, toolchain, plugin, corpus=corpus, report=report)
    return PairBitcode(modules=modules, compiler=clang)


def _pair_project(name: str, first: MadeBuild, second: MadeBuild) -> ProjectPair:
    modules = {name: (first.modules.get(name), second.modules.get(name)) for name in (first.modules | second.modules)}
    passed = first.passed | second.passed
    ended = zip(BUILDS, (first, second), strict=True)
    return ProjectPair(
        project=name,
        language=first.languages.most_common(1)[0][0] if first.languages else "unknown",
        modules=modules,
        images=[
            (image, first.images.get(image, no_image()), second.images.get(image, no_image()))
            for image in (first.images | second.images)
        ],
        failure=next((f"{build}: {one.reason}" for build, one in ended if one.reason), ""),
        passed_by={path: passed[path] for path in sorted(passed)},
        left_out=[
            ModuleFailure(
                name=path, project=name, reason="the build has removed the object, so that it cannot be measured"
            )
            for path in sorted((first.gone | second.gone) - modules.keys())
        ],
    )


def _check_calls(made: MadeBuild) -> None:
    """Refuse a build in which no wrapper was called, so that both variants would be the same."""
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


def _make_variant(
    project: WrappedProject, variant: Variant, folder: Path, *, toolchain: Toolchain, plugin: Path | None, costs: bool
) -> MadeBuild:
    """Make one variant of a build as :data:`TREE` in a new folder, by its own commands, with its compilers wrapped."""
    tree = folder / TREE
    copy_sources(project.folder, tree)
    loaded = (variant.use.plugin or plugin) if variant.use is not None else None
    compile_options, link_options = list(variant.record.options), list(variant.record.link_options)
    if loaded is not None and variant.compiles_with_plugin:
        compile_options.append(f"-fpass-plugin={loaded.absolute()}")
    cache = ""
    if loaded is not None and variant.links_with_plugin:
        link_options.append(plugin_link_option(loaded))
        cache = cache_key(loaded, variant.record.digests | variant.record.policies)
    before = objects_below(tree)
    build = run_wrapped(
        project.commands,
        tree=tree,
        folder=folder / "wrappers",
        toolchain=toolchain,
        added=AddedOptions(compile=tuple(compile_options), link=tuple(link_options), record=costs, cache=cache),
        environment=REPEATABLE | (variant.use.environment(folder) if variant.use is not None else {}),
        timeout_seconds=project.timeout_seconds,
    )
    unseen = find_unseen_objects(tree, build, before=before)
    passed = {one.path.relative_to(tree).as_posix(): one.compiler for one in unseen if one.is_new}
    return _read_build(project, variant, build, tree, passed)


def _read_build(
    project: WrappedProject, variant: Variant, build: WrappedBuild, tree: Path, passed: dict[str, str]
) -> MadeBuild:
    """Measure all objects and images of a build that ended, before its tree is removed; failures are included."""
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
    for path in _image_paths(project.images, links, tree):
        call = links.get(path)
        words = call.words if call is not None else ()
        plugin = call is not None and variant.links_with_plugin
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
    return MadeBuild(
        reason=reason,
        modules=modules,
        images=images,
        languages=languages,
        calls=len(build.calls),
        passed=passed,
        compiled=tuple(call for call in calls if call.kind == "compile"),
        gone=frozenset(gone),
    )


def _image_paths(patterns: Sequence[str], links: dict[Path, WrappedCall], tree: Path) -> list[Path]:
    """List the images that were asked for, or all programs and shared libraries that the build linked."""
    if patterns:
        return sorted({path for pattern in patterns for path in tree.glob(pattern) if path.is_file()})
    return [
        path
        for path, call in links.items()
        if path.is_relative_to(tree) and (call.code or (path.is_file() and is_image(path)))
    ]


def _compilation(call: WrappedCall, path: Path) -> Compilation:
    """Make the record of a recorded call from its object; bitcode is not measured."""
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

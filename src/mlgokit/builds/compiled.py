"""Projects of bitcode modules, from a corpus or a compilation database, compiled and linked by two variants."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.compilers import (
    ClusterChoice,
    CompilerOptions,
    clang_for,
    spread,
    toolchain_of_build,
)
from mlgokit.builds.corpus import Database, import_database, modules_of_project
from mlgokit.builds.images import LinkBuild, LinkTask, static_link
from mlgokit.builds.link import image_names, link_words, plan_link, user_link
from mlgokit.builds.pair import (
    BUILDS,
    BuildPair,
    CompilationPair,
    ImagePair,
    PairBitcode,
    ProjectPair,
    VariantPair,
    find_modules_in_both,
)
from mlgokit.builds.variant import modules_of_variant
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, Lto
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.build_notes import baseline_of, warn_about_levels
from mlgokit.corpus.corpus import ModuleFailure, load_corpus
from mlgokit.corpus.importers.database import lto_by_module
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.locks import reading
from mlgokit.module import Module
from mlgokit.policy.targets import architectures_of
from mlgokit.progress import Report, say_nothing

LINK_SECONDS = 600.0


def compile_projects(
    modules: Sequence[Module],
    variants: VariantPair,
    *,
    compiler: Compiler,
    links: Mapping[str, LinkBuild] | None = None,
    lto: Mapping[str, Lto] | None = None,
    left_out: Sequence[ModuleFailure] = (),
    before_objects: Path | None = None,
    report: Report = say_nothing,
) -> BuildPair:
    """Compile and link every project of ``modules`` both ways; a module that fails in either is linked in neither.

    Args:
        modules: modules of whole projects.
        variants: the two variants to build.
        compiler: compiler of the modules, whose toolchain also links.
        links: function that links each image of a project, by the image's name; an empty name stands for the project's.
            By default one static image of all that the project's interface reaches.
        lto: kind of link-time optimization that the object of a module is for, by module; then ``links`` must do it.
        left_out: sources of the projects that gave no module.
        before_objects: folder that keeps the objects of the baseline for the next call; it must be of these modules,
            this variant and this toolchain. Times of objects that were kept are 0.
        report: called after every compilation.

    Raises:
        ToolError: the toolchain has no linker.
        UsageError: a word among a variant's options is no option.
    """
    toolchain = compiler.toolchain
    if links is None:
        if toolchain.lld is None:
            raise ToolError(
                f"evaluation: expected ld.lld of LLVM {toolchain.major} to link the projects, found none; install it: "
                f"apt-get install lld-{toolchain.major}"
            )
        links = {"": static_link(toolchain.lld)}
    with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
        folder = Path(scratch)
        kept = before_objects or folder
        kept.mkdir(parents=True, exist_ok=True)
        objects = {
            build: [place / f"{index}.{build}.o" for index in range(len(modules))]
            for build, place in (("before", kept), ("after", folder))
        }
        done = _compile(modules, variants, objects, compiler=compiler, lto=lto or {}, report=report)
        projects: list[ProjectPair] = []
        for name in dict.fromkeys(module.project for module in modules):
            chosen = [index for index, module in enumerate(modules) if module.project == name]
            compiled: dict[str, CompilationPair] = {modules[index].name: done[index] for index in chosen}
            built = {build: {modules[index].name: paths[index] for index in chosen} for build, paths in objects.items()}
            linked = find_modules_in_both(compiled)
            projects.append(
                ProjectPair(
                    project=name,
                    language=modules[chosen[0]].language,
                    modules=compiled,
                    images=_link(name, links, linked, built, folder) if linked else [],
                    failure="" if linked else "no module compiled in both builds",
                    left_out=[one for one in left_out if one.project == name],
                )
            )
    return BuildPair(
        variants=variants,
        toolchain=toolchain,
        projects=projects,
        compilations=len(BUILDS) * len(modules),
        baseline=baseline_of(toolchain.version, modules),
        left_alone=variants.left_alone(
            architectures_of(modules), has_links=any(module.link_folder is not None for module in modules)
        ),
    )


def _compile(
    modules: Sequence[Module],
    variants: VariantPair,
    objects: Mapping[str, Sequence[Path]],
    *,
    compiler: Compiler,
    lto: Mapping[str, Lto],
    report: Report,
) -> list[tuple[Compilation, Compilation]]:
    """Compile each module before and after; ``objects`` has the paths of the objects by build."""
    of_build = {build: modules_of_variant(modules, side) for build, side in variants.both.items()}

    def compile_one(task: tuple[int, str]) -> Compilation:
        index, build = task
        side, target = variants.both[build], objects[build][index]
        if target.exists():
            return Compilation(status=CompileStatus.OK, sizes=measure_object(target))
        use = side.use if side.compiles_with_plugin else None
        kind = lto.get(modules[index].name, "")
        request = CompileRequest(
            use=use, keep="none", keep_object=target, regalloc=variants.costs and not kind, lto=kind
        )
        return compiler.compile(of_build[build][index], request)

    tasks = [(index, build) for index in range(len(modules)) for build in BUILDS]
    done = parallel(compile_one, tasks, workers=compiler, report=report, label="evaluate")
    return list(zip(done[::2], done[1::2], strict=True))


def _link(
    project: str,
    links: Mapping[str, LinkBuild],
    names: Sequence[str],
    objects: Mapping[str, Mapping[str, Path]],
    folder: Path,
) -> list[ImagePair]:
    """Link the images of a project before and after, from the ``objects`` by build; ``folder`` is for the images."""
    images: list[ImagePair] = []
    baseline = [objects["before"][name] for name in names]
    for number, (image, link) in enumerate(links.items()):
        before, after = (
            link(
                LinkTask(
                    build=build,
                    objects={name: objects[build][name] for name in names},
                    baseline=baseline,
                    output=folder / f"{build}.{number}.image",
                )
            )
            for build in BUILDS
        )
        images.append((image or project, before, after))
    return images


def _compile_with_bitcode(
    modules: Sequence[Module],
    variants: VariantPair,
    *,
    clang: ClangCompiler,
    cluster: ClusterChoice,
    links: Mapping[str, LinkBuild] | None = None,
    lto: Mapping[str, Lto] | None = None,
    left_out: Sequence[ModuleFailure],
    report: Report,
) -> BuildPair:
    """Compile and link both ways, on the cluster or here; the pair has the bitcode of modules without LTO."""
    with contextlib.closing(spread(cluster, clang, report=report)) as workers:
        pair = compile_projects(
            modules, variants, compiler=workers, links=links, lto=lto, left_out=left_out, report=report
        )
    compiled = [module for module in modules if not (lto or {}).get(module.name)]

    def give_bitcode(_objects: Collection[str], _report: Report) -> PairBitcode:
        return PairBitcode(modules=compiled, compiler=clang)

    return dataclasses.replace(pair, bitcode=give_bitcode)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusProjects:
    """Projects of a corpus, all that are held out of training if none is named.

    It is a :class:`~mlgokit.builds.pair.PairSource`; ``edits`` are the user's, of all command lines.
    """

    folder: Path
    projects: Sequence[str]
    edits: CommandLineEdits
    compiler: CompilerOptions
    cluster: ClusterChoice

    @contextlib.contextmanager
    def make(self, variants: VariantPair, *, report: Report) -> Generator[BuildPair]:
        """Compile and link the projects both ways."""
        with reading(self.folder):
            modules, left_out = self._modules()
            if any(side.use is not None and side.use.any_level for side in variants.both.values()):
                warn_about_levels(modules, report)
            files = (*self.edits.files, *variants.files)
            toolchain = find_toolchain(self.compiler.llvm, need_plugin=True)
            plugin = variants.plugin_for(toolchain)
            clang = clang_for(self.compiler, toolchain, plugin, corpus=self.folder, files=files, report=report)
            yield _compile_with_bitcode(
                modules, variants, clang=clang, cluster=self.cluster, left_out=left_out, report=report
            )

    def _modules(self) -> tuple[list[Module], list[ModuleFailure]]:
        """Select the modules of the named or held-out projects; also list the sources that gave no module there."""
        corpus = load_corpus(self.folder, self.edits)
        known = {module.project for module in corpus.modules}
        unknown = sorted(set(self.projects) - known)
        if unknown:
            raise UsageError(
                f"projects: expected names from the corpus {self.folder}, found {', '.join(unknown)}; it has "
                f"{', '.join(sorted(known))}"
            )
        modules = [
            module
            for module in corpus.modules
            if (module.project in self.projects if self.projects else module.held_out)
        ]
        if not modules:
            raise CorpusError(
                f"{self.folder}: expected at least one held-out project to evaluate on, found none; "
                "name projects with --projects"
            )
        chosen = {module.project for module in modules}
        return modules, [one for one in (*corpus.failures, *corpus.missing) if one.project in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseProject:
    """The sources of a compilation database, and their links; a :class:`~mlgokit.builds.pair.PairSource`.

    ``links`` are the link commands of the build, and the folders where they run; without any all objects are linked as
    those of a corpus.
    """

    database: Database
    links: Sequence[tuple[str, Path]]
    compiler: CompilerOptions
    cluster: ClusterChoice

    @contextlib.contextmanager
    def make(self, variants: VariantPair, *, report: Report) -> Generator[BuildPair]:
        """Import the sources, compile them both ways, and link."""
        files = variants.files
        commands = [link_words(text) for text, _ in self.links]
        toolchain = toolchain_of_build(
            self.compiler, database=self.database.path, commands=(), need_plugin=variants.needs_plugin
        )
        plugin = variants.plugin_for(toolchain)
        with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
            corpus = import_database(
                self.database,
                Path(scratch) / "corpus",
                toolchain=toolchain,
                compiler=self.compiler,
                for_link=bool(self.links),
                report=report,
            )
            chosen = modules_of_project(corpus, None)
            chosen.tell(report)
            modules = list(chosen.modules)
            project = modules[0].project
            lto: Mapping[str, Lto] = {}
            links: dict[str, LinkBuild] | None = None
            if self.links:
                outputs, known = self.database.outputs(), [module.name for module in modules]
                plans = [
                    plan_link(words, folder=folder, outputs=outputs, modules=known, toolchain=toolchain)
                    for words, (_, folder) in zip(commands, self.links, strict=True)
                ]
                by_name = {module.name: module for module in modules}
                modules = [by_name[name] for name in dict.fromkeys(name for plan in plans for name in plan.modules)]
                if rest := len(by_name) - len(modules):
                    report(1, 1, f"{rest:,} of {len(by_name):,} sources of the database are in none of the links")
                # Without its link, an object of bitcode could not be compared at all.
                lto = lto_by_module(self.database.path, level=self.database.level)
                names = image_names([text for text, _ in self.links]) if len(plans) > 1 else [""]
                links = {
                    name: user_link(
                        plan, variants.both, plugin, lto=lto, costs=variants.costs, timeout_seconds=LINK_SECONDS
                    )
                    for name, plan in zip(names, plans, strict=True)
                }
            clang = clang_for(self.compiler, toolchain, plugin, corpus=corpus, files=files, report=report)
            yield _compile_with_bitcode(
                modules,
                variants,
                clang=clang,
                cluster=self.cluster,
                links=links,
                lto=lto,
                left_out=[
                    ModuleFailure(name=name, project=project, reason=why) for name, why in chosen.left_out.items()
                ],
                report=report,
            )

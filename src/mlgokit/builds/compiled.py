"""Projects of bitcode modules, from a corpus or a compilation database, compiled and linked by two variants."""

import contextlib
import tempfile
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.compilers import ClusterChoice, CompilerOptions, clang_for, open_compiler, spread
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
    built_by_both,
)
from mlgokit.builds.variant import leaves_alone, modules_of_variant
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, Lto
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.build_notes import baseline_of, tell_levels
from mlgokit.corpus.corpus import ModuleFailure, load_measurable
from mlgokit.corpus.importers.database import lto_by_module, module_outputs
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.locks import reading
from mlgokit.module import Module
from mlgokit.policy.targets import architectures_of
from mlgokit.progress import Report, say_nothing

LINK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledProjects:
    """Whole projects that two variants compile and link; a :class:`~mlgokit.builds.pair.PairSource`.

    Attributes:
        variants: that compile.
        modules: what is compiled.
        compiler: of all workers, also whose lld.
        links: by image, what links it of the objects of a project; an image without a name has the project's. By
            default that one is all that is live from what the project offers to its users.
        lto: by module, the link-time optimization that its object is for; then ``links`` must do it.
        left_out: what of the projects is no module.
        before_objects: folder that keeps the objects of the build before for the next call; it must be of these
            modules, this variant and this toolchain. Times of objects that were kept are 0.
        clang: on this machine, for call trees.
    """

    variants: VariantPair
    modules: Sequence[Module]
    compiler: Compiler
    links: Mapping[str, LinkBuild] | None = None
    lto: Mapping[str, Lto] = field(default_factory=dict[str, Lto])
    left_out: Sequence[ModuleFailure] = ()
    before_objects: Path | None = None
    clang: ClangCompiler | None = None

    @property
    def toolchain(self) -> Toolchain:
        """Whose clang compiles."""
        return self.compiler.toolchain

    def make(self, *, report: Report = say_nothing) -> BuildPair:
        """Compile and link every project both ways; a module that fails in either is linked in neither.

        Raises:
            ToolError: the toolchain has no linker.
            UsageError: an option of a variant is none.
        """
        toolchain = self.toolchain
        links = self.links
        if links is None:
            if toolchain.lld is None:
                raise ToolError(
                    f"evaluation: expected ld.lld of LLVM {toolchain.major} to link the projects, found none; install "
                    f"it: apt-get install lld-{toolchain.major}"
                )
            links = {"": static_link(toolchain.lld)}
        with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
            folder = Path(scratch)
            kept = self.before_objects or folder
            kept.mkdir(parents=True, exist_ok=True)
            objects = {
                build: [place / f"{index}.{build}.o" for index in range(len(self.modules))]
                for build, place in (("before", kept), ("after", folder))
            }
            done = self._compile(objects, report)
            projects: list[ProjectPair] = []
            for name in dict.fromkeys(module.project for module in self.modules):
                chosen = [index for index, module in enumerate(self.modules) if module.project == name]
                compiled: dict[str, CompilationPair] = {self.modules[index].name: done[index] for index in chosen}
                built = {
                    build: {self.modules[index].name: paths[index] for index in chosen}
                    for build, paths in objects.items()
                }
                linked = built_by_both(compiled)
                projects.append(
                    ProjectPair(
                        project=name,
                        language=self.modules[chosen[0]].language,
                        modules=compiled,
                        images=_link(name, links, linked, built, folder) if linked else [],
                        failure="" if linked else "no module compiled in both builds",
                        left_out=[one for one in self.left_out if one.project == name],
                    )
                )
        architectures = architectures_of(self.modules)
        told = (text for side in self.variants.both.values() for text in leaves_alone(side, architectures))
        return BuildPair(
            variants=self.variants,
            projects=projects,
            compilations=len(BUILDS) * len(self.modules),
            baseline=baseline_of(toolchain.version, self.modules),
            left_alone=tuple(dict.fromkeys(told)),
        )

    def _compile(self, objects: Mapping[str, Sequence[Path]], report: Report) -> list[tuple[Compilation, Compilation]]:
        """Each module before and after, in ``objects``."""
        sides = self.variants.both
        modules = {build: modules_of_variant(self.modules, side) for build, side in sides.items()}

        def compile_one(task: tuple[int, str]) -> Compilation:
            index, build = task
            target = objects[build][index]
            if target.exists():
                return Compilation(status=CompileStatus.OK, sizes=measure_object(target))
            use = sides[build].use if sides[build].compiles_with_plugin else None
            lto = self.lto.get(self.modules[index].name, "")
            request = CompileRequest(
                use=use, keep="none", keep_object=target, regalloc=self.variants.costs and not lto, lto=lto
            )
            return self.compiler.compile(modules[build][index], request)

        tasks = [(index, build) for index in range(len(self.modules)) for build in BUILDS]
        done = parallel(compile_one, tasks, workers=self.compiler, report=report, label="evaluate")
        return list(zip(done[::2], done[1::2], strict=True))

    def bitcode(self, pair: BuildPair, objects: Collection[str], *, report: Report) -> PairBitcode | str:  # noqa: ARG002  (of the protocol)
        """All modules but those that only a link compiles."""
        if self.clang is None:
            return "no compiler is on this machine"
        return PairBitcode(
            modules=[module for module in self.modules if not self.lto.get(module.name)], compiler=self.clang
        )


def _link(
    project: str,
    links: Mapping[str, LinkBuild],
    names: Sequence[str],
    objects: Mapping[str, Mapping[str, Path]],
    folder: Path,
) -> list[ImagePair]:
    """The images of these modules' objects, which are given by build; ``folder`` is for the images."""
    images: list[ImagePair] = []
    baseline = [objects["before"][name] for name in names]
    for number, (image, link) in enumerate(links.items()):
        before, after = (
            link(
                LinkTask(
                    project=project,
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


@contextlib.contextmanager
def open_corpus(
    folder: Path,
    variants: VariantPair,
    *,
    projects: Sequence[str],
    edits: CommandLineEdits,
    compiler: CompilerOptions,
    cluster: ClusterChoice,
    report: Report,
) -> Generator[CompiledProjects]:
    """Projects of a corpus, which is read-locked meanwhile.

    Args:
        folder: of the corpus.
        variants: that compile.
        projects: their names; those that are held out of training if there are none.
        edits: of all command lines.
        compiler: which clang compiles.
        cluster: that compiles in place of this machine.
        report: receives notes about the sandbox and the modules.

    Raises:
        BusyError: another process changes the corpus.
        CorpusError: there is nothing to build.
        ToolError: there is no such clang, or no sandbox although one was asked for.
        UsageError: a project is not in the corpus, or the cluster cannot be reached so.
    """
    with reading(folder):
        modules, left_out = _modules_of_projects(folder, projects, edits)
        if variants.decides_at_any_level:
            tell_levels(modules, report)
        clang = open_compiler(compiler, corpus=folder, files=(*edits.files, *variants.files), report=report)
        with contextlib.closing(spread(cluster, clang, report=report)) as all_workers:
            yield CompiledProjects(
                variants=variants, modules=modules, compiler=all_workers, left_out=left_out, clang=clang
            )


def _modules_of_projects(
    folder: Path, projects: Sequence[str], edits: CommandLineEdits
) -> tuple[list[Module], list[ModuleFailure]]:
    """The modules of the projects that were named, or of those that are held out, and what of them is no module."""
    corpus = load_measurable(folder, edits)
    known = {module.project for module in corpus.modules}
    unknown = sorted(set(projects) - known)
    if unknown:
        raise UsageError(
            f"projects: expected names from the corpus {folder}, found {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known))}"
        )
    modules = [module for module in corpus.modules if (module.project in projects if projects else module.held_out)]
    if not modules:
        raise CorpusError(
            f"{folder}: expected at least one held-out project to evaluate on, found none; "
            "name projects with --projects"
        )
    chosen = {module.project for module in modules}
    return modules, [one for one in (*corpus.failures, *corpus.missing) if one.project in chosen]


@contextlib.contextmanager
def open_database(
    database: Database,
    variants: VariantPair,
    *,
    links: Sequence[tuple[str, Path]],
    compiler: CompilerOptions,
    cluster: ClusterChoice,
    report: Report,
) -> Generator[CompiledProjects]:
    """The sources of a compilation database, and the build's own links of their objects.

    Args:
        database: whose commands compile.
        variants: that compile.
        links: each link command, and the folder where it runs; if there are none, a static link of all objects.
        compiler: which clang compiles.
        cluster: that compiles in place of this machine.
        report: receives notes about the sandbox and the sources.

    Raises:
        CorpusError: there is nothing to compile.
        ToolError: a compiler is missing.
        UsageError: a link command does not fit the database, or the cluster cannot be reached so.
    """
    files = variants.files
    commands = [link_words(text) for text, _ in links]
    toolchain = find_toolchain(compiler.llvm, need_plugin=variants.needs_plugin)
    plugin = build_plugin(toolchain) if variants.needs_plugin else None
    with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
        corpus = import_database(
            database,
            Path(scratch) / "corpus",
            toolchain=toolchain,
            compiler=compiler,
            for_link=bool(links),
            report=report,
        )
        chosen = modules_of_project(corpus, None)
        chosen.tell(report)
        modules = list(chosen.modules)
        project = modules[0].project
        lto: Mapping[str, Lto] = {}
        by_image: dict[str, LinkBuild] | None = None
        if links:
            outputs = module_outputs(database.path, level=database.level)
            plans = [
                plan_link(
                    words,
                    folder=folder,
                    outputs=outputs,
                    modules=[module.name for module in modules],
                    toolchain=toolchain,
                )
                for words, (_, folder) in zip(commands, links, strict=True)
            ]
            by_name = {module.name: module for module in modules}
            modules = [by_name[name] for name in dict.fromkeys(name for plan in plans for name in plan.modules)]
            # Without its link, an object of bitcode could not be compared at all.
            lto = lto_by_module(database.path, level=database.level)
            names = image_names([text for text, _ in links]) if len(plans) > 1 else [""]
            by_image = {
                name: user_link(
                    plan, variants.both, plugin, lto=lto, costs=variants.costs, timeout_seconds=LINK_SECONDS
                )
                for name, plan in zip(names, plans, strict=True)
            }
        clang = clang_for(compiler, toolchain, plugin, corpus=corpus, files=files, report=report)
        with contextlib.closing(spread(cluster, clang, report=report)) as all_workers:
            yield CompiledProjects(
                variants=variants,
                modules=modules,
                compiler=all_workers,
                links=by_image,
                lto=lto,
                left_out=[
                    ModuleFailure(name=name, project=project, reason=why) for name, why in chosen.left_out.items()
                ],
                clang=clang,
            )

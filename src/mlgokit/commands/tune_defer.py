"""Compile steps that leave inlining to the link: with -flto both decide, and what is inlined early stays so.

The link can only search calls that are left to it. So the compile steps inline nothing, where that alone leaves the
image about as large, and the link decides about every call. The plugin does that in the compile steps, so it is added
there as well.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.link import Linked, LinkPlan, link, placed_words, plan_link
from mlgokit.commands.chosen import given_corpus, modules_for_size
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import NEVER, CompileRequest, Lto, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.database import lto_by_module, module_outputs, option_counts
from mlgokit.errors import ToolError, UsageError
from mlgokit.files import writing
from mlgokit.locks import reading
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

MOST_LARGER = 0.01
"""Part by which the image may be larger before the search if the compile steps inline nothing; more is hard to make
good."""
GIVES_UP = 1 / 3
"""Part of the search in which that has to be made good."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompileSteps:
    """The compile steps before a link that is tuned.

    Attributes:
        compiler: makes their objects, which are bitcode.
        modules: those that are compiled for size and for link-time optimization.
        plan: the user's link, with the places of their objects.
        lto: the kind of it.
        report: told what is done.
    """

    compiler: ClangCompiler
    modules: tuple[Module, ...]
    plan: LinkPlan
    lto: Lto
    report: Report

    def compile(self, folder: Path, use: PluginUse) -> dict[str, Path]:
        """Compile all of them into a folder, for the link.

        Raises:
            ToolError: one does not compile.
        """
        # In a library an object is known by its name.
        paths = {one.name: folder / str(index) / Path(one.name).name for index, one in enumerate(self.modules)}

        def work(module: Module) -> str:
            path = paths[module.name]
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            done = self.compiler.compile(module, CompileRequest(use=use, lto=self.lto, keep_object=path))
            return "" if done.status is CompileStatus.OK else f"{module.name}: {done.reason}"

        label = "compile steps of the link"
        failed = parallel(work, self.modules, workers=self.compiler, report=self.report, label=label)
        if reason := next((one for one in failed if one), ""):
            raise ToolError(f"tune: expected the compile steps before the link to succeed, found {reason}; see --llvm")
        return paths

    def link(
        self, objects: Mapping[str, Path], scratch: Path, *, timeout_seconds: float, added: Sequence[str] = ()
    ) -> Linked:
        """The user's link with these objects in the places of the build's."""
        return link(self.plan, objects, scratch, timeout_seconds=timeout_seconds, added=added)

    def words(self, objects: Mapping[str, Path], scratch: Path, *, timeout_seconds: float) -> tuple[str, ...]:
        """The words of that link, with ``{output}``.

        Raises:
            ToolError: a library cannot be made.
        """
        found = placed_words(self.plan, objects, scratch, timeout_seconds=timeout_seconds)
        if isinstance(found, str):
            raise ToolError(f"tune: expected the libraries of the link to be made again, found: {found}; see --llvm")
        return tuple(found)


def open_steps(
    config: Tune, asked: LinkPlan, toolchain: Toolchain, *, lto: Lto, stack: contextlib.ExitStack, report: Report
) -> CompileSteps | None:
    """The compile steps of a link; none if the link has no object of them, or they are not to be changed.

    Args:
        config: the call.
        asked: the link as it was asked for.
        toolchain: whose clang.
        lto: the link-time optimization of those that may be changed.
        stack: holds the corpus.
        report: told what is done.
    """
    if config.link_only or config.keep_hot or config.compile_commands is None:
        return None
    if changing := option_counts(config.compile_commands, project=config.build_project).changing:
        said = f"the compile steps stay as the build has them: it has {next(iter(changing))}, which modules are without"
        report(1, 1, said)
        return None
    corpus = given_corpus(
        compile_commands=config.compile_commands,
        corpus=None,
        folder=config.folder / "corpus",
        level=None,
        llvm=toolchain.major,
        workers=config.compiler.workers,
        sandbox=config.compiler.sandbox,
        report=report,
        project=config.build_project,
        for_link=True,
        database=config.database,
    )
    stack.enter_context(reading(corpus))
    kinds = lto_by_module(config.compile_commands, project=config.build_project)
    outputs = module_outputs(config.compile_commands, project=config.build_project)
    modules = {
        module.name: module
        for module in modules_for_size(corpus, None).modules
        if kinds.get(module.name) == lto and module.name in outputs
    }
    try:
        plan = plan_link(asked.words, folder=asked.folder, outputs=outputs, modules=tuple(modules), toolchain=toolchain)
    except UsageError:
        # The link is of other objects than those that the database knows.
        return None
    return CompileSteps(
        compiler=ClangCompiler(
            toolchain=toolchain,
            plugin=build_plugin(toolchain),
            workers=config.compiler.workers,
            limits=config.compiler.limits(),
            room=config.compiler.room(config.folder),
        ),
        modules=tuple(modules[name] for name in plan.modules),
        plan=plan,
        lto=lto,
        report=report,
    )


def deferred(steps: CompileSteps, folder: Path) -> dict[str, Path]:
    """The objects of compile steps that inline nothing."""
    return steps.compile(folder, PluginUse(policies={INLINE_SIZE.name: NEVER}))

"""A build made by two variants, as comparisons read it, whatever the build came from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlgokit.builds.images import WeighedImage
from mlgokit.builds.variant import PLAIN_VARIANT, Variant, describe_inactive_policies
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.plugin_build import build_plugin, check_made_for
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.module import Module
from mlgokit.progress import Report

BUILDS = ("before", "after")
CompilationPair = tuple[Compilation | None, Compilation | None]
"""The compilations of a module, before and after; ``None`` where a build made no such object."""
ImagePair = tuple[str, WeighedImage, WeighedImage]
"""An image by its name, before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantPair:
    """The two variants of a comparison: the candidate after, which is judged, and the baseline before.

    ``costs`` says whether costs of register allocation are read.
    """

    after: Variant
    before: Variant = PLAIN_VARIANT
    costs: bool = False

    @property
    def both(self) -> dict[str, Variant]:
        """The variants by build, ``before`` and ``after``."""
        return {"before": self.before, "after": self.after}

    @property
    def needs_plugin(self) -> bool:
        """Whether a variant has policies, and thus needs our plugin, as it names none of its own."""
        return any(side.use is not None and side.use.plugin is None for side in self.both.values())

    def plugin_for(self, toolchain: Toolchain) -> Path | None:
        """Build our plugin if a variant needs it, and refuse a plugin of the user that ``toolchain`` would not load.

        Raises:
            InputError: a plugin was made for other compilers.
            ToolError: our plugin cannot be built.
        """
        for side in self.both.values():
            if side.use is not None and side.use.plugin is not None:
                check_made_for(side.use.plugin, toolchain)
        return build_plugin(toolchain) if self.needs_plugin else None

    def left_alone(self, architectures: Mapping[str, int], *, has_links: bool) -> tuple[str, ...]:
        """Say which policies leave code to LLVM because it is for another processor, or no link compiles it.

        Args:
            architectures: number of modules by architecture.
            has_links: whether a link compiles some of them, with -flto.

        Raises:
            InputError: a plugin cannot be read.
            PolicyError: a file is no usable policy.
        """
        notes = (
            text
            for side in self.both.values()
            for text in describe_inactive_policies(side, architectures, has_links=has_links)
        )
        return tuple(dict.fromkeys(notes))

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the options of both variants name."""
        return CommandLineEdits(add=parse_options((*self.before.record.options, *self.after.record.options))).files


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPair:
    """A project made by both variants: its compilations by module, and its linked images.

    Attributes:
        failure: why nothing was linked, if that is not the failure of one image.
        passed_by: compiler that made an object without our wrapper, and so without the plugin, by object.
        left_out: parts of the project that cannot be compared, with the reasons.
    """

    project: str
    language: str
    modules: Mapping[str, CompilationPair]
    images: Sequence[ImagePair]
    failure: str = ""
    passed_by: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: Sequence[ModuleFailure] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBitcode:
    """Modules of a build with their bitcode, named as in its comparison, and a compiler on this machine for them."""

    modules: Sequence[Module]
    compiler: ClangCompiler


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPair:
    """A build made by both variants.

    Attributes:
        compilations: number of compilations and links in both builds together.
        baseline: description of the compiler and options of the baseline.
        left_alone: sentences about policies that do not act, being for another processor or for links alone.
        bitcode: function that makes bitcode of at least the given objects, or returns why there is none.
    """

    variants: VariantPair
    toolchain: Toolchain
    projects: Sequence[ProjectPair]
    compilations: int
    baseline: str
    left_alone: tuple[str, ...] = ()
    bitcode: Callable[[Collection[str], Report], PairBitcode | str] = lambda _, __: "its bitcode was not kept"


class PairSource(Protocol):
    """A project that two variants can make: of a corpus, of a compilation database, or a build by its own commands.

    :mod:`mlgokit.builds.compiled` and :mod:`mlgokit.builds.wrapped` implement it.
    """

    def make(self, variants: VariantPair, *, report: Report) -> AbstractContextManager[BuildPair]:
        """Make both variants; their files can be read until the context ends.

        One call makes both, since the link of a library keeps the symbols that the baseline defines, and modules of
        both are compiled side by side.

        Raises:
            BusyError: another process changes the corpus.
            CorpusError: there is nothing to compile.
            StorageError: the disk is full or not writable.
            ToolError: a compiler, linker or command is missing, or cannot be started.
            UsageError: there is nothing to compare, or what was asked for does not fit the project.
        """
        ...


def find_modules_in_both(modules: Mapping[str, CompilationPair]) -> list[str]:
    """List the modules that compiled in both builds, by name."""
    return [
        name
        for name, pair in modules.items()
        if all(one is not None and one.status is CompileStatus.OK for one in pair)
    ]

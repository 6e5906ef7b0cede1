"""The command that makes a corpus of what a linker compiles."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mlgokit.builds.compilers import clang_for
from mlgokit.commands.corpus.import_build import counts
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.linked import link_corpus
from mlgokit.corpus.origin import is_made_here
from mlgokit.errors import ToolError, UsageError
from mlgokit.locks import locked
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Link each project of a corpus with link-time optimization, and make a corpus of what the linker compiles."""

    modules: Annotated[Path, tyro.conf.Positional]
    """Folder of the corpus whose projects are linked."""
    corpus: Path = Path("linked")
    """Folder for the new corpus."""
    lto: Literal["full", "thin"] = "full"
    """Kind of link-time optimization: full gives one merged module for each link, thin one module for each object."""
    shares: tuple[float, ...] = (0.25, 0.5)
    """Shares of the external functions that are kept, a link for each; all others are internal, as in a program that
    uses a part of a library."""
    compiler: Compiling = COMPILER
    """The clang of the compile steps; its lld links."""


def run(config: Link, *, report: Report = say_nothing) -> dict[str, Any]:
    """Link the projects of a corpus.

    Raises:
        BusyError: another process uses one of the corpora.
        CorpusError: no project could be linked.
        ToolError: there is no lld beside clang.
        UsageError: a share is not above 0 and at most 1, or the corpus is from elsewhere.
    """
    if wrong := [share for share in config.shares if not 0 < share <= 1]:
        raise UsageError(
            f"--shares: expected numbers above 0 and at most 1, found {wrong[0]}; give shares such as 0.25"
        )
    if config.compiler.sandbox == "on" or (config.compiler.sandbox == "auto" and not is_made_here(config.modules)):
        raise UsageError(
            f"{config.modules}: expected a corpus that was made here, as a linker does not run in a sandbox; make it "
            "here, or give --sandbox off if you trust its bitcode"
        )
    with locked(config.corpus):
        toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
        if toolchain.lld is None:
            raise ToolError("corpus link: expected ld.lld beside clang, found none; install it")
        corpus = load_corpus(config.modules)
        plugin = build_plugin(toolchain)
        return counts(
            link_corpus(
                corpus,
                corpus_folder=config.corpus,
                lto=config.lto,
                shares=config.shares,
                compiler=clang_for(config.compiler, toolchain, plugin, corpus=corpus.folder, report=report),
                linker=toolchain.lld,
                report=report,
            )
        )

"""The command that links single functions into larger modules."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.builds.compilers import clang_for
from mlgokit.commands.corpus.import_build import counts
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.functions import UNIT_OPTIONS, group_functions
from mlgokit.locks import locked
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFunctions:
    """Link the modules of a corpus of functions into fewer ones, each of equal options."""

    functions: Annotated[Path, tyro.conf.Positional]
    """Folder of the corpus that corpus functions made."""
    corpus: Path = Path("groups")
    """Folder for the new corpus."""
    groups: int = 256
    """Number of modules to make; projects and options of their own need further ones."""
    compiler: Compiling = COMPILER
    """The clang whose llvm-link links."""


def run(config: GroupFunctions, *, report: Report = say_nothing) -> dict[str, Any]:
    """Group functions.

    Raises:
        BusyError: another process uses one of the corpora.
        CorpusError: no group was linked.
        ToolError: there is no llvm-link beside clang.
        UsageError: the number of groups is below 1.
    """
    with locked(config.corpus):
        toolchain = find_toolchain(config.compiler.llvm)
        corpus = load_corpus(config.functions, UNIT_OPTIONS)
        compiler = clang_for(config.compiler, toolchain, corpus=corpus.folder, folder=config.corpus, report=report)
        return counts(
            group_functions(corpus, corpus_folder=config.corpus, compiler=compiler, groups=config.groups, report=report)
        )

"""The command that makes a corpus of single functions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.builds.compilers import clang_for
from mlgokit.commands.corpus.import_build import counts
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.functions import extract_functions
from mlgokit.errors import InputError
from mlgokit.locks import locked
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """Make a corpus in which each function of another one is a module of its own."""

    modules: Annotated[Path, tyro.conf.Positional]
    """Folder of the corpus that has the functions."""
    corpus: Path = Path("functions")
    """Folder for the new corpus; module 0 has the function in the first line of its functions.txt, and so on."""
    list: Path | None = None
    """File with the symbols of the functions to extract, one in a line; by default all."""
    compiler: Compiling = COMPILER
    """The clang whose llvm-extract and opt extract."""


def run(config: Functions, *, report: Report = say_nothing) -> dict[str, Any]:
    """Extract functions.

    Raises:
        BusyError: another process uses one of the corpora.
        CorpusError: no function was extracted.
        InputError: the list cannot be read.
        ToolError: there is no llvm-extract or opt beside clang.
    """
    names = None
    if config.list is not None:
        try:
            lines = config.list.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise InputError(
                f"{config.list}: expected names of functions, one in a line, found: {error}; give another file"
            ) from error
        names = [name for line in lines if (name := line.strip())]
    with locked(config.corpus):
        toolchain = find_toolchain(config.compiler.llvm, need_plugin=True)
        corpus, plugin = load_corpus(config.modules), build_plugin(toolchain)
        compiler = clang_for(
            config.compiler, toolchain, plugin, corpus=corpus.folder, folder=config.corpus, report=report
        )
        return counts(
            extract_functions(corpus, corpus_folder=config.corpus, compiler=compiler, names=names, report=report)
        )

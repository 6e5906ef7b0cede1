"""The workspace of a run that compiles a corpus into a folder: locks, the corpus, and a compiler with a store."""

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from mlgokit.builds.compilers import ClusterChoice, CompilerOptions, ReuseOptions, clang_for, open_tools, spread
from mlgokit.compiler.caching import CachingCompiler, older_results, open_caching
from mlgokit.compiler.development import DevelopmentCompiler
from mlgokit.compiler.shared_store import open_shared
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.identity import digest_modules
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.files import digest_file
from mlgokit.locks import locked, reading
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.progress import Report


@contextlib.contextmanager
def open_workspace(
    folder: Path,
    *,
    corpus: Path,
    compiler: CompilerOptions,
    edits: CommandLineEdits,
    store: Path | None,
    shared_store: str = "",
    cluster: ClusterChoice,
    reuse: ReuseOptions | None = None,
    report: Report,
) -> Generator[tuple[Corpus, CachingCompiler]]:
    """Lock the folder and the corpus, and open both: the corpus with edited options, and a compiler of its modules.

    Finished compilations are kept in ``store``, by default in the folder for the results, and in ``shared_store``, a
    folder or URL, if one is given. Without ``reuse`` no work is reused between the compilations of a module.

    Raises:
        BusyError: another process works in the folder, or changes the corpus.
        ToolError: there is no such clang, or no sandbox although one was asked for.
        UsageError: the options contradict themselves.
    """
    recheck = compiler.recheck()
    with locked(folder), reading(corpus):
        loaded = load_corpus(corpus, edits)
        clang = clang_for(
            compiler, *open_tools(compiler), corpus=corpus, folder=folder, files=edits.files, report=report
        )
        if reuse is not None:
            clang = reuse.apply_to(clang, recheck=recheck)
        workers = spread(cluster, clang, report=report)
        store = store or folder / "store"
        caching = open_caching(
            workers,
            store,
            recheck=recheck,
            shared=open_shared(shared_store) if shared_store else None,
        )
        with contextlib.closing(caching):
            if older := older_results(store):
                report(0, older, f"{store} has results of other versions, which are not used and can be deleted")
            yield loaded, caching


def claim_folder(
    folder: Path,
    *,
    kind: str,
    config: dict[str, Any],
    edits: CommandLineEdits,
    compiler: CachingCompiler | DevelopmentCompiler,
    corpus: Corpus,
    modules: Sequence[Module],
) -> None:
    """Write the folder's manifest, or check that the folder was made by the same run.

    Raises:
        ReuseError: something else made the folder, such as other code under the names of ``modules``.
    """
    versions = compiler.toolchain.describe()
    inputs = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "workshop": compiler.identity}
    inputs["modules"] = digest_modules(modules)
    # Left out if empty, so that manifests of versions without such edits still fit.
    settings = {**config, "option_changes": edits.words} if edits.words else config
    if not check_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs):
        write_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs)

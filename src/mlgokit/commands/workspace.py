"""The folder that a command compiles into, and the store of what it compiles."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlgokit.commands.options import NO_CLUSTER, ClusterChoice, CompilerOptions, spread
from mlgokit.compiler.caching import CachingCompiler, older_results, open_caching
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.development import DevelopmentCompiler
from mlgokit.compiler.shared_store import open_shared
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.identity import digest_modules
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.files import digest_file
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.progress import Report


def open_workshop(
    clang: ClangCompiler,
    options: CompilerOptions,
    store: Path,
    *,
    cluster: ClusterChoice = NO_CLUSTER,
    shared: str = "",
    report: Report,
) -> CachingCompiler:
    """A clang with a store, and the cluster that is asked for behind it.

    Raises:
        UsageError: the options contradict themselves.
    """
    compiler = open_caching(
        spread(cluster, clang, report=report),
        store,
        recheck=options.recheck(),
        shared=open_shared(shared) if shared else None,
    )
    if older := older_results(store):
        report(0, older, f"results of other versions in {store}, which are not read and may be deleted")
    return compiler


def claim_folder(
    folder: Path,
    *,
    kind: str,
    config: dict[str, Any],
    edits: CommandLineEdits,
    workshop: CachingCompiler | DevelopmentCompiler,
    corpus: Corpus,
    modules: Sequence[Module],
) -> None:
    """Sign the folder, or refuse one that something else made, such as other code under the names of ``modules``."""
    versions = workshop.toolchain.describe()
    inputs = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "workshop": workshop.identity}
    inputs["modules"] = digest_modules(modules)
    # Without changes the configuration is what it was before there could be any.
    settings = {**config, "option_changes": edits.words} if edits.words else config
    if not check_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs):
        write_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs)

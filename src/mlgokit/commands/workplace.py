"""The manifest of the folder that a command compiles into."""

from pathlib import Path
from typing import Any

from mlgokit.compiler.caching import CachingCompiler
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.files import digest_file
from mlgokit.manifest import check_manifest, write_manifest


def claim_folder(
    folder: Path,
    *,
    kind: str,
    config: dict[str, Any],
    edits: CommandLineEdits,
    workshop: CachingCompiler,
    corpus: Corpus,
) -> None:
    """Sign the folder, or refuse one that something else made."""
    versions = workshop.toolchain.describe()
    inputs = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "workshop": workshop.identity}
    # Without changes the configuration is what it was before there could be any.
    settings = {**config, "option_changes": edits.words} if edits.words else config
    if not check_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs):
        write_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs)

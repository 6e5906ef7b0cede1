"""What the commands open that compile into a folder of their own: the tools, and the folder's manifest."""

from pathlib import Path
from typing import Any

from mlgokit.collect import Workshop, open_workshop
from mlgokit.commands.options import CompilerOptions, open_tools
from mlgokit.compiler.caching import CachingCompiler
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.files import digest_file
from mlgokit.manifest import check_manifest, write_manifest


def open_workplace(options: CompilerOptions, store: Path) -> Workshop:
    """A compiler with our plugin, and the store of what it did."""
    toolchain, plugin = open_tools(options)
    return open_workshop(toolchain, plugin, store, workers=options.workers, timeout_seconds=options.deadline())


def claim_folder(
    folder: Path,
    *,
    kind: str,
    config: dict[str, Any],
    edits: CommandLineEdits,
    workshop: CachingCompiler | Workshop,
    corpus: Corpus,
) -> None:
    """Sign the folder, or refuse one that something else made."""
    versions = workshop.toolchain.describe()
    inputs = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "workshop": workshop.identity}
    # Without changes the configuration is what it was before there could be any.
    settings = {**config, "option_changes": edits.words} if edits.words else config
    if not check_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs):
        write_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs)

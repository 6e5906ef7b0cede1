"""What the commands open that compile into a folder of their own: the tools, and the folder's manifest."""

from pathlib import Path
from typing import Any

from mlgokit.collect import Workshop, open_workshop
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.files import digest_file
from mlgokit.manifest import check_manifest, write_manifest


def workshop_of(store: Path, *, llvm: int | None, workers: int, timeout_seconds: float) -> Workshop:
    """A compiler with our plugin, and the store of what it did."""
    toolchain = find_toolchain(llvm, need_plugin=True)
    return open_workshop(toolchain, build_plugin(toolchain), store, workers=workers, timeout_seconds=timeout_seconds)


def claim_folder(
    folder: Path, *, kind: str, config: dict[str, Any], edits: CommandLineEdits, workshop: Workshop, corpus: Corpus
) -> None:
    """Sign the folder, or refuse one that something else made."""
    versions = workshop.toolchain.describe()
    inputs = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "workshop": workshop.identity}
    # Without changes the configuration is what it was before there could be any.
    settings = {**config, "option_changes": edits.words} if edits.words else config
    if not check_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs):
        write_manifest(folder, kind=kind, config=settings, toolchain=versions, inputs=inputs)

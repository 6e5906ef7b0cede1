"""The command that joins corpora."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.commands.corpus.import_build import counts
from mlgokit.corpus.combine import combine_corpora
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """Join the corpora in the folders of a folder."""

    root: Annotated[Path, tyro.conf.Positional]
    """Folder whose subfolders are the corpora to join."""
    corpus: Path | None = None
    """Folder for the joined corpus; by default corpus_description.json of the whole is written into ROOT, and no file
    is moved."""


def run(config: Combine, *, report: Report = say_nothing) -> dict[str, Any]:  # noqa: ARG001  (all commands take one)
    """Join corpora."""
    return counts(combine_corpora(config.root, corpus_folder=config.corpus))

"""Options that several commands have."""

import os
from dataclasses import dataclass
from typing import Annotated

import tyro

from mlgokit.corpus.options.edits import CommandLineEdits, command_line_edits

WORKERS = os.cpu_count() or 1
"""Compilers that run at once unless a command is told otherwise."""
Texts = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChanges:
    """Changes of the command lines of a corpus."""

    add_options: Texts = ()
    """Added at the end, as in --add-options=-O2 or --add-options='-mllvm -inline-threshold=5'."""
    delete_options: Texts = ()
    """Taken away, as in --delete-options=-split-dwarf-file."""
    replace_options: Texts = ()
    """Given another value, as in --replace-options=-fprofile-instrument-use-path=/data/a.profdata."""

    def edits(self) -> CommandLineEdits:
        """What they mean.

        Raises:
            UsageError: one is no option, or two contradict each other.
        """
        return command_line_edits(self.add_options, self.delete_options, self.replace_options)


NO_CHANGES = OptionChanges()
Changes = Annotated[OptionChanges, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""

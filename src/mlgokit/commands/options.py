"""Options that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mlgokit.builds.compilers import ClusterChoice, CompilerOptions, DatabaseOptions, ReuseOptions
from mlgokit.corpus.importers.compile_commands import split_command
from mlgokit.corpus.options.edits import CommandLineEdits, command_line_edits
from mlgokit.errors import UsageError
from mlgokit.problems import PROBLEMS

if TYPE_CHECKING:
    ProblemName = str
else:
    ProblemName = tyro.extras.literal_type_from_choices(PROBLEMS)
"""The name of a problem, as a user types it."""


Compiling = Annotated[CompilerOptions, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""
COMPILER = CompilerOptions()


Reusing = Annotated[ReuseOptions, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""
REUSE = ReuseOptions()
LEAN_REUSE = ReuseOptions(residents="off", known_functions="off", known_decisions="on")
"""Without compilers that wait, which take memory."""


Clustering = Annotated[ClusterChoice, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""
NO_CLUSTER = ClusterChoice()


Texts = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
Paths = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChanges:
    """Changes of the command lines of a corpus."""

    add_options: Texts = ()
    """Option to add at the end, as in --add-options=-O2 or --add-options='-mllvm -inline-threshold=5'."""
    delete_options: Texts = ()
    """Option to delete, as in --delete-options=-split-dwarf-file."""
    replace_options: Texts = ()
    """Option to give another value, as in --replace-options=-fprofile-instrument-use-path=/data/a.profdata."""

    def edits(self) -> CommandLineEdits:
        """What they mean.

        Raises:
            UsageError: one is no option, or two contradict each other.
        """
        return command_line_edits(self.add_options, self.delete_options, self.replace_options)


Databases = Annotated[DatabaseOptions, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""
ANY_CLANG = DatabaseOptions()


NO_CHANGES = OptionChanges()
Changes = Annotated[OptionChanges, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""


def option_words(text: str, option: str) -> tuple[str, ...]:
    """The words of an option that holds several, as a shell would split them.

    Raises:
        UsageError: a quotation is not closed.
    """
    try:
        return tuple(split_command(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}; close the quotation") from error

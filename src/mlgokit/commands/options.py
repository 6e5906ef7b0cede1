"""Options that several commands have."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mlgokit.builds.compilers import ClusterChoice, CompilerOptions, ReuseOptions
from mlgokit.builds.corpus import DatabaseOptions
from mlgokit.builds.site import BuildCommands
from mlgokit.compiler.build_tree import UnseenObject
from mlgokit.corpus.importers.compile_commands import split_command
from mlgokit.corpus.options.edits import CommandLineEdits, command_line_edits
from mlgokit.errors import UsageError
from mlgokit.problems import PROBLEMS
from mlgokit.terminal import counted

if TYPE_CHECKING:
    from mlgokit.corpus.front_end import Level

    ProblemName = str
else:
    ProblemName = tyro.extras.literal_type_from_choices(PROBLEMS)
"""The name of a problem, as a user types it."""


# As fields of a command's configuration, with their defaults: the options of the command line have no prefix.
Compiling = Annotated[CompilerOptions, tyro.conf.OmitArgPrefixes]
COMPILER = CompilerOptions()
Reusing = Annotated[ReuseOptions, tyro.conf.OmitArgPrefixes]
REUSE = ReuseOptions()
LEAN_REUSE = ReuseOptions(residents="off", known_functions="off", known_decisions="on")
"""Without resident compilers, which take memory."""
Clustering = Annotated[ClusterChoice, tyro.conf.OmitArgPrefixes]
NO_CLUSTER = ClusterChoice()
WholeBuild = Annotated[BuildCommands, tyro.conf.OmitArgPrefixes, tyro.conf.UseAppendAction]
NO_BUILD = BuildCommands()
Databases = Annotated[DatabaseOptions, tyro.conf.OmitArgPrefixes]
Texts = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
Paths = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChanges:
    """Changes of the command lines of a corpus."""

    add_options: Texts = ()
    """Option to append to the command line of every module, as in --add-options=-O2 or
    --add-options='-mllvm -inline-threshold=5'."""
    delete_options: Texts = ()
    """Option to delete from the command line of every module, as in --delete-options=-split-dwarf-file."""
    replace_options: Texts = ()
    """Option whose value is replaced in the command line of every module, as in
    --replace-options=-fprofile-instrument-use-path=/data/a.profdata."""

    def edits(self) -> CommandLineEdits:
        """Parse the changes.

        Raises:
            UsageError: a text is not an option, or two changes contradict each other.
        """
        return command_line_edits(self.add_options, self.delete_options, self.replace_options)


NO_CHANGES = OptionChanges()
Changes = Annotated[OptionChanges, tyro.conf.OmitArgPrefixes]
"""As the types at the top of this file."""


def check_build_command(command: str, words: Sequence[str], *, example: str) -> None:
    """Refuse a call of ``command`` without a build after ``--``, or whose program is not there.

    Raises:
        UsageError: such a call; it is told the ``example``.
    """
    if not words:
        raise UsageError(f"{command}: expected a build after --, found nothing; give one, as in `{example}`")
    if shutil.which(words[0]) is None:
        raise UsageError(f"{command}: expected a program in {shlex.join(words)}, found no {words[0]}; check the name")


def describe_unseen(objects: Sequence[UnseenObject]) -> str:
    """Objects whose compilation went past the wrappers, in words; empty if there are none."""
    if not objects:
        return ""
    one = objects[0]
    return f"{counted(len(objects), 'new object')}, such as {one.path} by {one.compiler}, which bypassed the wrappers"


def option_words(text: str, option: str) -> tuple[str, ...]:
    """Split the text of an option into words, as a shell would.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return tuple(split_command(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}; close the quotation") from error


def check_module_source(
    command: str,
    *,
    compile_commands: Path | None,
    corpus: Path | None,
    database: DatabaseOptions,
    level: "Level | None",
) -> None:
    """Require exactly one source of modules, and a database for the options that filter one.

    Raises:
        UsageError: there is no source, or more than one, or a filter or level without a database.
    """
    if (compile_commands is None) == (corpus is None):
        found = "none of them" if corpus is None else "both --compile-commands and --corpus"
        raise UsageError(
            f"{command}: expected one of --build (a build command), --cargo, --compile-commands or --corpus, found "
            f"{found}; name one"
        )
    given = {**database.given, "--level": level is not None}
    option = next((option for option, is_given in given.items() if is_given), None)
    if option is not None and compile_commands is None:
        raise UsageError(f"{option}: needs --compile-commands; add that, or remove {option}")


def reject_with_cargo(given: Mapping[str, bool]) -> None:
    """Refuse options that do not apply to a cargo build; ``given`` maps each to whether it is set.

    Raises:
        UsageError: one is set.
    """
    for option, is_given in given.items():
        if is_given:
            raise UsageError(
                f"{option}: cannot be combined with --cargo, which compiles with rustc instead; give "
                "only one of the two"
            )


def check_rust_path(option: str, path: Path) -> None:
    """Refuse a path from which rustc cannot load a plugin.

    Raises:
        UsageError: it has spaces.
    """
    whole = str(path.resolve())
    if len(whole.split()) > 1:
        raise UsageError(
            f"{option}: expected a path without spaces for a cargo build, as rustc splits the list of its plugins at "
            f"them, found {whole!r}; name another"
        )

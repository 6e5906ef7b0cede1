"""The user's own build: its commands, where they run with wrapped compilers, and what each step of it printed."""

import contextlib
import dataclasses
import re
import shlex
import shutil
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mlgokit.basic import Basic
from mlgokit.builds.link import command_words
from mlgokit.compiler import process
from mlgokit.compiler.build_tree import copy_sources
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import REPEATABLE, AddedOptions, WrappedBuild, run_wrapped
from mlgokit.errors import UsageError
from mlgokit.files import writing

PLAIN, TUNED = "plain", "tuned"
GONE = (0, 0)
"""State of a source that does not exist, in place of its size and time of change."""

_ERROR = re.compile(r"(?<![-\w])errors?\b", re.IGNORECASE)
"""Not the option that makes errors of warnings, which a command has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCommands:
    """The commands of the user's own build, in the place of a compilation database."""

    build: Annotated[tuple[str, ...], Basic.INPUT] = ()
    """Command of the build; several run one after the other."""
    test: Annotated[tuple[str, ...], Basic.INPUT] = ()
    """With --build or --cargo: test command, run on the plain build and on the tuned one. With --cargo the built
    programs are first in PATH, and both runs must print the same."""
    program: Annotated[tuple[Path, ...], Basic.INPUT] = ()
    """With --build or --links: program or library to compare, by path, name or pattern such as 'bin/*'; by default all
    that the build links. A ! before it excludes what it names, as in '!tests/*'."""
    clean: tuple[str, ...] = ()
    """With --build: command that cleans the build. With it, builds run in the folder itself; without it, in copies of
    the folder."""
    build_folder: Path = Path()
    """With --build: folder of the project, in which (or in copies of which) the commands run."""
    build_minutes: float = 60.0
    """With --build: deadline of each whole build in minutes."""
    test_minutes: float = 60.0
    """With --build or --cargo: deadline of each run of the tests in minutes."""

    def words(self, option: str) -> list[list[str]]:
        """Split the commands of an option, such as ``build``, into words.

        Raises:
            UsageError: a text is not a single command.
        """
        return [command_words(text, option=f"--{option}", known=()) for text in getattr(self, option)]

    def check_programs(self) -> None:
        """Refuse commands whose programs do not exist.

        Raises:
            UsageError: a program does not exist, or a text is not a single command.
        """
        for option in ("build", "clean", "test"):
            check_programs(self.words(option), option=option)


def check_programs(commands: Iterable[Sequence[str]], *, option: str) -> None:
    """Refuse commands whose program is in no folder of ``PATH``; a path is not checked, since the build may make it.

    Raises:
        UsageError: a program is not found.
    """
    for words in commands:
        if "/" not in words[0] and shutil.which(words[0]) is None:
            raise UsageError(
                f"--{option}: expected a program in {shlex.join(words)}, found no {words[0]}; check the name"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSite:
    """The folders and commands for the builds of a tuning, and the LLVM installation whose clang compiles.

    ``place`` is for the builds' logs and programs; ``tree``, the user's folder or a copy of it, is where they run.
    """

    commands: BuildCommands
    place: Path
    tree: Path
    toolchain: Toolchain

    @property
    def database(self) -> Path:
        """The compilation database of the plain build: in its copy of the user's folder, from which modules are named.

        For a build in the user's own folder, as with ``--clean``, it is in :attr:`place`.
        """
        return (self.place if self.commands.clean else self.tree) / "mlgokit_commands.json"

    @property
    def wrapping(self) -> Path:
        """The folder for what the wrappers write during a step."""
        return self.place / "wrapping"

    @property
    def kept_sources(self) -> Path:
        """The folder for the texts of sources that the plain build removes."""
        return self.place / "sources"

    def log(self, side: str, what: str) -> Path:
        """Make the path of the log of an option's commands (``what``) in the plain or the tuned build (``side``)."""
        return self.place / f"{side}-{what}.log"

    def kept(self, side: str, program: str) -> Path:
        """Make the path of the copy of a program from the plain or the tuned build (``side``)."""
        return self.place / "programs" / side / program


def run_step(
    site: BuildSite, what: str, side: str, added: AddedOptions, *, keeps_sources: bool = False
) -> WrappedBuild:
    """Run the commands of one option (``what``) in the plain or tuned build (``side``); their output goes to a log.

    With ``keeps_sources`` the wrappers' folder is kept, which has the texts of sources.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
    """
    log = site.log(side, what)
    with writing(log):
        shutil.rmtree(site.wrapping, ignore_errors=True)
        with log.open("wb") as output:
            done = run_wrapped(
                site.commands.words(what),
                tree=site.tree,
                folder=site.wrapping,
                toolchain=site.toolchain,
                added=added,
                environment=REPEATABLE,
                timeout_seconds=60 * (site.commands.test_minutes if what == "test" else site.commands.build_minutes),
                output=output,
                keeps_sources=keeps_sources,
            )
        if not keeps_sources:
            shutil.rmtree(site.wrapping, ignore_errors=True)
    if not done.reason:
        return done
    with log.open("rb") as output:
        lines = process.read_tail(output).splitlines()
    # Build systems write errors in their own ways, and more lines after them.
    said = next((line.strip() for line in lines if _ERROR.search(line)), lines[-1].strip() if lines else "")
    return dataclasses.replace(done, reason=f"{done.reason}: {said}" if said else done.reason)


@contextlib.contextmanager
def fresh_tree(site: BuildSite) -> Generator[None]:
    """Within the block, an unbuilt copy of the sources takes the plain tree's place, which is restored afterwards."""
    if site.commands.clean:
        yield
        return
    copies = copies_of(site.tree)
    with writing(copies):
        site.tree.rename(copies / f"aside-{site.tree.name}")
    try:
        copy_sources(copies / "source", site.tree)
        yield
    finally:
        put_back(copies)


def put_back(copies: Path) -> None:
    """Restore the plain tree that :func:`fresh_tree` moved aside, also after a killed run."""
    with writing(copies):
        for aside in copies.glob("aside-*"):
            tree = copies / "tree" / aside.name.removeprefix("aside-")
            shutil.rmtree(tree, ignore_errors=True)
            aside.rename(tree)


def keep(path: Path, target: Path) -> None:
    """Copy a built program to ``target``."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def state_of(path: Path) -> tuple[int, int]:
    """Read size and time of change, in ns, of a source; :data:`GONE` if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return GONE
    return status.st_size, status.st_mtime_ns


def copies_of(tree: Path) -> Path:
    """Find the folder of all copies of the user's folder, one of which is ``tree``."""
    return tree.parents[1]

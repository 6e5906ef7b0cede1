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
"""Size and time of change of a source that is not there."""

_ERROR = re.compile(r"(?<![-\w])errors?\b", re.IGNORECASE)
"""Not the option that makes errors of warnings, which a command has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCommands:
    """The commands of the user's own build, in the place of a compilation database."""

    build: Annotated[tuple[str, ...], Basic.INPUT] = ()
    """Command of the build, in place of --compile-commands; several run one after the other."""
    test: Annotated[tuple[str, ...], Basic.INPUT] = ()
    """With --build or --cargo: test command, run on the plain build and on the tuned one. With --cargo the built
    programs are first in PATH, and both runs must print the same."""
    program: Annotated[tuple[Path, ...], Basic.INPUT] = ()
    """With --build: program or library to compare, by its path or name; by default all that the build links."""
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
        """The words of each command of an option, such as ``build``.

        Raises:
            UsageError: one is not a single command.
        """
        return [command_words(text, option=f"--{option}", known=()) for text in getattr(self, option)]

    def check_programs(self) -> None:
        """Refuse commands whose programs are not there.

        Raises:
            UsageError: one is not, or is not a single command.
        """
        for option in ("build", "clean", "test"):
            check_programs(self.words(option), option=option)


def check_programs(commands: Iterable[Sequence[str]], *, option: str) -> None:
    """Refuse commands whose program is in no folder of ``PATH``; a path may be of a program that the build makes.

    Raises:
        UsageError: such a command.
    """
    for words in commands:
        if "/" not in words[0] and shutil.which(words[0]) is None:
            raise UsageError(
                f"--{option}: expected a program in {shlex.join(words)}, found no {words[0]}; check the name"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSite:
    """A place for the builds of a tuning.

    Attributes:
        commands: of the build.
        place: folder for what the builds print, and for the programs.
        tree: where the build runs: the user's folder, or a copy of it outside.
        toolchain: whose clang compiles.
    """

    commands: BuildCommands
    place: Path
    tree: Path
    toolchain: Toolchain

    @property
    def database(self) -> Path:
        """The compilation database of the plain build; not within what is tuned, as names count from its folder."""
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
        """The file with what the commands of an option printed."""
        return self.place / f"{side}-{what}.log"

    def kept(self, side: str, program: str) -> Path:
        """The copy of a program."""
        return self.place / "programs" / side / program


def run_step(
    site: BuildSite, what: str, side: str, added: AddedOptions, *, keeps_sources: bool = False
) -> WrappedBuild:
    """Run the commands of one option; what they print goes to a log.

    With ``keeps_sources`` the folder of the wrappers stays, which has the texts of sources.

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
    # Build systems write it in their own ways, and more behind it.
    said = next((line.strip() for line in lines if _ERROR.search(line)), lines[-1].strip() if lines else "")
    return dataclasses.replace(done, reason=f"{done.reason}: {said}" if said else done.reason)


@contextlib.contextmanager
def fresh_tree(site: BuildSite) -> Generator[None]:
    """A tree at the place of the plain one that was not built yet; the plain one, which links need, comes back."""
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
    """The plain tree at its place again, also after a kill."""
    with writing(copies):
        for aside in copies.glob("aside-*"):
            tree = copies / "tree" / aside.name.removeprefix("aside-")
            shutil.rmtree(tree, ignore_errors=True)
            aside.rename(tree)


def keep(path: Path, target: Path) -> None:
    """Copy a program that was built."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def state_of(path: Path) -> tuple[int, int]:
    """Size and time of change of a source; :data:`GONE` if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return GONE
    return status.st_size, status.st_mtime_ns


def copies_of(tree: Path) -> Path:
    """The folder of the copies that a tree is one of."""
    return tree.parents[1]

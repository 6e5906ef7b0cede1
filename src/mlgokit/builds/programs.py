"""The programs that a build links: which of them count, and their links, recorded or read from a configured build."""

import contextlib
import fnmatch
import itertools
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.link import LinkPlan, known_objects, link_words, note_shared_libraries, read_link
from mlgokit.compiler import process
from mlgokit.compiler.build_tree import is_image
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.compile_commands import split_command
from mlgokit.corpus.importers.recorded import RecordedLink
from mlgokit.errors import InputError, ToolError, UsageError

_EXCLUDED = "!"
"""First character of a pattern of programs that are left out."""
_MOST_NAMED = 5
_NINJA_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPrograms:
    """Programs and shared libraries of a build: their links, and the files that the plain build linked.

    ``outputs`` has the object that the build makes of each module.
    """

    links: Mapping[str, RecordedLink]
    images: Mapping[str, Path]
    outputs: Mapping[str, Path]

    def plans(self, modules: Sequence[str], toolchain: Toolchain) -> tuple[dict[str, LinkPlan], dict[str, str]]:
        """Return the links of the programs that contain some module, and why other links cannot be repeated.

        Raises:
            ToolError: a library must be made, and there is no program for it.
        """
        plans, failures = dict[str, LinkPlan](), dict[str, str]()
        known = known_objects(self.outputs, modules)
        for name, link in self.links.items():
            try:
                plan = read_link(link_words(link.command), folder=link.folder, known=known, toolchain=toolchain)
            except (InputError, UsageError) as error:
                failures[name] = str(error)
                continue
            gone = next((word for word in plan.words if word.startswith("@")), "")
            if plan.modules:
                plans[name] = plan
            elif gone:
                failures[name] = (
                    f"its response file {gone[1:]} is gone, as Ninja deletes these; link it again by `ninja -d keeprsp`"
                )
        return note_shared_libraries(plans, {name: link.output for name, link in self.links.items()}), failures

    def built(self, toolchain: Toolchain, *, only_linked: bool) -> frozenset[Path]:
        """Return the objects of modules that the build has made: a database may list sources that nobody has built.

        With ``only_linked`` objects that are in none of the programs are left out, if all links can be read.
        """
        names = {name for name, path in self.outputs.items() if path.exists()}
        if only_linked:
            plans, failures = self.plans(tuple(self.outputs), toolchain)
            names &= names if failures else {name for plan in plans.values() for name in plan.modules}
        return frozenset(self.outputs[name] for name in names)


def choose_programs(patterns: Sequence[Path], linked: Mapping[str, Path], *, folder: Path, tree: Path) -> list[str]:
    """Return the names of the programs that the user wants compared.

    Args:
        patterns: paths, names and patterns of programs; a leading ``!`` leaves programs out. All programs if empty.
        linked: what the build links, by its name, which is a path below ``tree``.
        folder: folder of the project.
        tree: folder in which the build runs, ``folder`` or a copy of it.

    Raises:
        UsageError: the build links nothing that a pattern names.
    """

    def named(wanted: Path) -> list[str]:
        text = wanted.as_posix().removeprefix(_EXCLUDED).removeprefix(f"{folder.resolve().as_posix()}/")
        names = (
            [name for name in linked if fnmatch.fnmatchcase(name, text)]
            or [name for name, path in linked.items() if _is_same(tree / text, path)]
            or [name for name in linked if fnmatch.fnmatchcase(Path(name).name, text)]
            or [name for name in linked if Path(name).name == Path(text).name]
            or [name for name, path in linked.items() if _is_same(path.with_name(Path(text).name), path)]
        )
        if not names:
            others = ", ".join(sorted(linked)[:_MOST_NAMED]) or "nothing"
            raise UsageError(
                f"--program {wanted}: expected a program that the build links, found that it links {others}; "
                "correct the path, or leave --program out"
            )
        return names

    excluded = [one for one in patterns if one.as_posix().startswith(_EXCLUDED)]
    chosen = [name for one in patterns if one not in excluded for name in named(one)]
    left_out = {name for one in excluded for name in named(one)}
    return [name for name in chosen or linked if name not in left_out]


def _is_same(path: Path, linked: Path) -> bool:
    """Whether a path is another name of a linked file, as cargo makes them, and libraries with versions."""
    try:
        return path.samefile(linked)
    except OSError:
        return False


def read_configured_programs(folder: Path, *, patterns: Sequence[Path], outputs: Mapping[str, Path]) -> LinkedPrograms:
    """Read the programs of a build that CMake or Meson configured, with their links; none is run.

    Names are relative to the build's ``folder``; for ``patterns`` see :func:`choose_programs`.

    Raises:
        ToolError: as of :func:`read_configured_links`.
        UsageError: likewise, or the build links nothing of that name.
    """
    tree = folder.resolve()
    links = read_configured_links(tree)
    linked = {os.path.relpath(path, tree): path for path in links}
    programs = choose_programs(patterns, linked, folder=tree, tree=tree)
    return LinkedPrograms(
        links={name: links[linked[name]] for name in programs},
        images={name: linked[name] for name in programs},
        outputs=outputs,
    )


def read_configured_links(folder: Path) -> dict[Path, RecordedLink]:
    """Read the links of a build that CMake or Meson configured, from the files that they wrote; no link is run.

    ``ninja -t commands`` prints the links of Ninja, and CMake's Makefiles have theirs in files ``link.txt``. Links
    whose program does not exist are left out, and what else a command does before or after the link.

    Raises:
        ToolError: ninja is not installed, or cannot read its file.
        UsageError: the folder has no such build, or the build linked nothing.
    """
    folder = folder.resolve()
    if (folder / "build.ninja").is_file():
        lines = [(folder, line) for line in _ninja_commands(folder)]
    else:
        texts = sorted(folder.rglob("CMakeFiles/*.dir/link.txt"))
        lines = [(path.parents[2], line) for path in texts for line in path.read_text(errors="replace").splitlines()]
        if not texts:
            raise UsageError(
                f"--links {folder}: expected a folder with build.ninja, or one that CMake made Makefiles in, found "
                "neither; name the folder of the configured build, or give --build"
            )
    links: dict[Path, RecordedLink] = {}
    for place, words in itertools.chain.from_iterable(_single_commands(*line) for line in lines):
        named = next((after for word, after in itertools.pairwise(words) if word == "-o"), None)
        if named is None or "-c" in words:
            continue
        command = shlex.join(words)
        with contextlib.suppress(UsageError):
            link_words(command)
            if is_image(place / named):
                links[place / named] = RecordedLink(command=command, folder=place, output=place / named)
    if not links:
        raise UsageError(
            f"--links {folder}: expected programs that the build linked, found none of {len(lines)} commands; "
            "build it first"
        )
    return links


def _single_commands(folder: Path, line: str) -> Iterator[tuple[Path, list[str]]]:
    """Split a line at ``&&``, by which Ninja has what CMake does before and after a link, into commands and folders."""
    try:
        words = split_command(line)
    except ValueError:
        return
    for is_between, group in itertools.groupby(words, "&&".__eq__):
        command = list(group)
        if command[0] == "cd" and len(command) > 1:
            folder /= command[1]
        elif not is_between:
            yield folder, command


def _ninja_commands(folder: Path) -> list[str]:
    ninja = shutil.which("ninja")
    if ninja is None:
        raise ToolError(f"--links {folder}: expected ninja to be installed, found none in PATH; install it")
    words = [ninja, "-C", str(folder), "-t", "commands"]
    done = process.run(words, timeout_seconds=_NINJA_SECONDS, limits=USERS_LIMITS)
    if done.timed_out or done.returncode:
        found = f"no end after {_NINJA_SECONDS:.0f} s" if done.timed_out else done.stderr.strip()[-200:]
        raise ToolError(
            f"--links {folder}: expected ninja -t commands to print commands, found: {found}; build it first"
        )
    return done.stdout.decode(errors="replace").splitlines()

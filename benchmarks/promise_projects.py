"""The projects of the benchmark of promises: where their sources are, and how a user builds them."""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuning_builds import filled

from mlgokit.corpus.sources.projects import Archive
from mlgokit.decode import decode
from mlgokit.errors import InputError

MANIFEST = Path(__file__).with_name("promise.toml")
BOARDS = Path(__file__).with_name("boards")
"""Start of the paths of our own files: firmwares and how they are linked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedProject:
    """One project, built by commands of its own build system, in a copy of its sources.

    In the commands ``{cc}`` and ``{cxx}`` stand for clang, ``{llvm}`` for the folder of its tools, ``{jobs}`` for the
    number of compilers at once, ``{meson}`` for Meson, ``{plugin}`` for the flags that `tune` says to add to
    compilations, and ``{link}`` for those of links; these two are empty while the build is recorded.

    Attributes:
        name: of the project.
        language: of its programs.
        system: what it is built with, for readers.
        target: the processor.
        about: what else is special about the build, for readers.
        archive: where the sources come from; ``None`` if they are installed.
        root: the project's folder in the archive; or that of sources which a package of the system has installed.
        like: name of a project above in the list, whose fields hold where none are given here.
        marks: placeholders in ``build`` beside those above, and the text for each.
        files: files of ours beside the project's, such as a linker script: by path, the place of each from ``boards``.
        build: commands that configure and build; those of cargo are given by ``--cargo``, one alone.
        programs: what the project ships, by path or name; all that it links if there are none. Of cargo, by name, the
            path in its folder.
        run: commands that print what the programs do; the same with the plugin as without.
        meson: version of Meson that is installed for the build; none for the one in the path.
        needs: programs and files without which the project cannot be built here.
    """

    name: str
    language: str
    system: str
    target: str = "x86_64"
    about: str = ""
    archive: Archive | None = None
    root: str
    like: str = ""
    marks: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    build: tuple[str, ...]
    programs: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    meson: str = ""
    needs: tuple[str, ...] = ()

    @property
    def is_cargo(self) -> bool:
        """Whether it is Rust, which has a search of its own."""
        return self.system == "cargo"


def promised_projects() -> dict[str, PromisedProject]:
    """All projects by name.

    Raises:
        InputError: the list is wrong.
    """
    given: dict[str, dict[str, Any]] = {}
    projects: dict[str, PromisedProject] = {}
    for one in tomllib.loads(MANIFEST.read_text())["project"]:
        name = one["name"]
        if (like := one.get("like")) and like not in given:
            raise InputError(f"{MANIFEST.name}, {name}: like: expected a project above, found {like}; correct the list")
        given[name] = given.get(like, {}) | one
        project = decode(PromisedProject, given[name], f"{MANIFEST.name}, {name}")
        projects[name] = dataclasses.replace(project, build=tuple(filled(project.build, project.marks)))
    return projects

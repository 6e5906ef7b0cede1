"""Workloads, the programs by which two builds are compared: reads and checks their list, ``workloads.toml``.

A workload is linked of projects and a small driver, or built by commands of the user's own.
"""

import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from mlgokit.bench.inputs import INPUT_KINDS, Input, InputKind
from mlgokit.corpus.sources.projects import Project, load_projects, read_projects
from mlgokit.corpus.sources.toml_table import TomlTable, load_table, stays_inside
from mlgokit.errors import CorpusError, UsageError

Format = Literal["command", "google-benchmark", "lit"]
FORMATS: tuple[str, ...] = get_args(Format)
PROGRAM = "program"
"""Name of the program of a workload of projects, in its build folder."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")
_DRIVER_SUFFIXES = (".c", ".cpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A program, how it is built, and with what inputs it runs.

    Words of ``build`` and ``run`` may have marks: ``{build}`` is the build folder, ``{source}`` the folder of the own
    sources, ``{inputs}`` that of the inputs, ``{drivers}`` that of the drivers, ``{results}`` the file to which results
    are written, ``{cc}`` and ``{cxx}`` are the compilers, and ``{flags}`` the flags that a side adds to them.

    Attributes:
        name: unique name.
        kind: kind of program, for readers.
        projects: projects that are linked together with the driver, in this order.
        driver: file with ``main`` in the folder of the drivers; empty if a project has it.
        drivers: folder of the driver.
        libraries: words at the end of the link.
        source: folder of the user's sources, with ``build``.
        build: commands of the user's own build, which run in the build folder.
        run: program and arguments.
        format: what a run prints or writes: its own output, or results in JSON.
        inputs: input files that are generated.
        outputs: globs of output files below the working directory, which are compared beside what the program prints.
        exit_code: exit code of a successful run.
    """

    name: str
    kind: str = ""
    projects: tuple[Project, ...] = ()
    driver: str = ""
    drivers: Path = Path()
    libraries: tuple[str, ...] = ()
    source: Path | None = None
    build: tuple[tuple[str, ...], ...] = ()
    run: tuple[str, ...]
    format: Format = "command"
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    exit_code: int = 0


def packaged_workloads() -> Path:
    """Return the path of the list that comes with this package."""
    return Path(str(importlib.resources.files("mlgokit.bench") / "workloads.toml"))


def load_workloads(path: Path | None = None) -> tuple[Workload, ...]:
    """Read a list of workloads, in the order of the file.

    Args:
        path: path of a TOML file; the list that comes with this package if left out.

    Raises:
        CorpusError: the list is malformed; the error names the workload, the key and what was expected.
    """
    file = path or packaged_workloads()
    top = load_table(file, what="a list of workloads")
    top.check_keys({"project", "workload"})
    projects = {project.name: project for project in (*load_projects(), *read_projects(top))}
    workloads: dict[str, Workload] = {}
    for table in top.tables("workload"):
        workload = _workload(table, file.parent, projects)
        if workload.name in workloads:
            raise CorpusError(
                f"{file}: expected different names of workloads, found {workload.name!r} twice; rename one"
            )
        workloads[workload.name] = workload
    if not workloads:
        raise CorpusError(f"{file}: expected at least one [[workload]], found none; add one")
    return tuple(workloads.values())


def choose_workloads(path: Path | None, names: Sequence[str]) -> tuple[Workload, ...]:
    """Read a list of workloads, and select the named ones; all if no name is given.

    Raises:
        CorpusError: the list is malformed.
        UsageError: a name is not in the list.
    """
    workloads = load_workloads(path)
    known = [workload.name for workload in workloads]
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(
            f"workloads: expected names of listed workloads, found {', '.join(unknown)}; name some of "
            f"{', '.join(known)}"
        )
    return tuple(workload for workload in workloads if not names or workload.name in names)


def _workload(numbered: TomlTable, folder: Path, projects: Mapping[str, Project]) -> Workload:
    """Check one [[workload]] of a list in ``folder``."""
    name = numbered.text(
        "name", "a name of lower-case letters, digits and ._+-", fits=lambda text: _NAME.fullmatch(text) is not None
    )
    table = TomlTable(value=numbered.value, where=f"workload {name!r}")
    table.check_keys({*Workload.__dataclass_fields__, "input"} - {"drivers", "inputs"})
    names = table.texts("projects", "names of projects")
    if unknown := [one for one in names if one not in projects]:
        raise table.entry_error("projects", f"projects of this list or of mlgokit's own, not {unknown[0]!r}")
    build = table.word_lists("build", "a list of commands, each a list of words")
    if bool(names) == bool(build):
        raise table.entry_error("build", "commands, or projects, and not both")
    driver = table.text(
        "driver",
        "a .c or .cpp file beside the list, in drivers/",
        default="",
        fits=lambda text: not text or (text.endswith(_DRIVER_SUFFIXES) and stays_inside(text)),
    )
    source = table.text("source", "a folder", default="")
    written = table.text("format", f"one of {', '.join(FORMATS)}", default="command", fits=lambda text: text in FORMATS)
    run = table.texts("run", "words")
    if not run and build:
        raise table.entry_error("run", "the program and its arguments")
    return Workload(
        name=name,
        kind=table.text("kind", "a word for the kind of program", default=""),
        projects=tuple(projects[one] for one in names),
        driver=driver,
        drivers=(folder / "drivers").absolute(),
        libraries=table.texts("libraries", "words of a link"),
        source=(folder / source).absolute() if source else None,
        build=build,
        run=run if build else (f"{{build}}/{PROGRAM}", *run),
        format=cast("Format", written),
        inputs=tuple(_input(item) for item in table.tables("input")),
        outputs=table.texts("outputs", "globs below the folder that it runs in", fits=stays_inside),
        exit_code=table.number("exit_code", "an exit code", default=0),
    )


def _input(table: TomlTable) -> Input:
    """Check one [[workload.input]]."""
    table.check_keys(set(Input.__dataclass_fields__))
    kind = table.text("kind", f"one of {', '.join(INPUT_KINDS)}", fits=lambda text: text in INPUT_KINDS)
    return Input(
        name=table.text("name", "the name of a file", fits=lambda text: bool(text) and "/" not in text),
        kind=cast("InputKind", kind),
        size=table.number("size", "a number of bytes", default=0, least=1),
        seed=table.number("seed", "a number", default=1),
    )

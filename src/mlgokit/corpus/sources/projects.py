"""The list of real projects for corpora, ``projects.toml``: read and checked.

Everything that decides a module's bitcode stands in the list; the archives' own build systems never run.
"""

import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from mlgokit.corpus.sources.toml_table import TomlTable, load_table, stays_inside
from mlgokit.errors import CorpusError, UsageError

Language = Literal["c++", "c"]
Registry = Literal["pypi", "debian"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STANDARD = re.compile(r"(c|gnu)(\+\+)?[0-9][0-9a-z]")
_OURS = re.compile(r"-?|-(o|c|S|E|x|###|-.*|O.*|g.*|M[A-Z]*|emit-.*|flto.*|fembed-bitcode.*|save-temps.*)")
"""Options that extraction itself decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A published archive of source code, of a version of a package in a registry.

    ``file`` is its name (``pypi``), or its path below a mirror's top (``debian``, ``pool/main/...``); ``sha256`` has 64
    hexadecimal digits.
    """

    registry: Registry
    package: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFile:
    """A file that the project's own build would generate; ``path`` is relative to the project's root."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """One run of a linked program, which checks that its behaviour is unchanged.

    ``files`` are globs, relative to the project's root, of what the run reads.
    """

    arguments: tuple[str, ...] = ()
    stdin: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that all modules of a project are linked to, with libraries, and its test runs."""

    name: str
    libraries: tuple[str, ...] = ()
    runs: tuple[ProgramRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One project: an archive and how its sources are compiled.

    Attributes:
        name: first component of the names of its modules.
        standard: value of ``-std=``.
        held_out: whether it is kept out of training, to evaluate on.
        root: the project's folder within the archive; the paths below are relative to it.
        include: folders for ``-I``.
        defines: values of ``-D``.
        options: further options of the compiler.
        sources: globs of the sources; each file is one module.
        exclude: globs of files that ``sources`` matches, but that are not compiled.
        generated: files to write beside the archive's.
        license: SPDX expression.
        program: program that the modules are linked to, if they form one.
    """

    name: str
    language: Language
    standard: str
    held_out: bool = False
    archive: Archive
    root: str
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    sources: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    generated: tuple[GeneratedFile, ...] = ()
    license: str
    program: Program | None = None


def load_projects(path: Path | None = None) -> tuple[Project, ...]:
    """Read the list of projects in a TOML file, in its order; by default that which comes with this package.

    Raises:
        CorpusError: the list is malformed; the message names the project, the key and what was expected.
    """
    resource = importlib.resources.files("mlgokit.corpus.sources") / "projects.toml" if path is None else path
    top = load_table(resource, what="a list of projects")
    top.check_keys({"project"})
    projects = read_projects(top)
    if not projects:
        raise CorpusError(f"{resource}: expected at least one [[project]], found none; add one")
    return projects


def read_projects(top: TomlTable) -> tuple[Project, ...]:
    """Read the projects of a TOML file that may have other tables as well.

    Raises:
        CorpusError: as :func:`load_projects`.
    """
    projects: dict[str, Project] = {}
    for table in top.tables("project"):
        project = _project(table)
        if project.name in projects:
            raise CorpusError(
                f"{top.where}: expected different names of projects, found {project.name!r} twice; rename one"
            )
        projects[project.name] = project
    return tuple(projects.values())


def _project(numbered: TomlTable) -> Project:
    """Read a ``[[project]]``; the table's name for errors is its number, until the project's name is known."""
    name = numbered.text("name", "a name of lower-case letters, digits and ._+-", fits=_NAME.fullmatch)
    table = TomlTable(value=numbered.value, where=f"project {name!r}")
    table.check_keys(set(Project.__dataclass_fields__))
    root = table.text("root", "a folder inside the archive", fits=stays_inside)
    language = table.text("language", "'c++' or 'c'", fits=lambda text: text in {"c++", "c"})
    sources = table.texts("sources", "globs below the root", fits=stays_inside)
    if not sources:
        raise table.entry_error("sources", "at least one glob")
    return Project(
        name=name,
        language=cast("Language", language),
        standard=table.text("standard", "a language standard like 'c++17' or 'gnu11'", fits=_STANDARD.fullmatch),
        held_out=table.flag("held_out"),
        archive=_archive(table.table("archive")),
        root=root,
        include=table.texts(
            "include", "folders inside the archive", fits=lambda folder: stays_inside(folder, below=root)
        ),
        defines=table.texts(
            "defines", "macros like 'NAME' or 'NAME=value'", fits=lambda text: text[:1] not in {"", "-"}
        ),
        options=table.texts(
            "options",
            "compiler options that choose no input, output, optimization level or debug information",
            fits=lambda text: _OURS.fullmatch(text) is None,
        ),
        sources=sources,
        exclude=table.texts("exclude", "globs below the root", fits=stays_inside),
        generated=tuple(_read_generated(item) for item in table.tables("generated")),
        license=table.text("license", "an SPDX expression", fits=bool),
        program=_program(table.table("program")) if "program" in table.value else None,
    )


def _archive(table: TomlTable) -> Archive:
    table.check_keys(set(Archive.__dataclass_fields__))
    registry = table.text("registry", "'pypi' or 'debian'", fits=lambda text: text in {"pypi", "debian"})
    if registry == "pypi":
        file = table.text("file", "the name of a file", fits=lambda text: text[:1] not in {"", "."} and "/" not in text)
    else:
        file = table.text(
            "file", "a path below pool/", fits=lambda text: text.startswith("pool/") and stays_inside(text)
        )
    return Archive(
        registry=cast("Registry", registry),
        package=table.text("package", "the name of a package", fits=bool),
        version=table.text("version", "a version", fits=bool),
        file=file,
        sha256=table.text("sha256", "64 lower-case hexadecimal digits", fits=_SHA256.fullmatch),
    )


def _read_generated(table: TomlTable) -> GeneratedFile:
    table.check_keys({"path", "text"})
    path = table.text("path", "a file below the root", fits=lambda text: bool(text) and stays_inside(text))
    return GeneratedFile(path=path, text=table.text("text", "text"))


def _program(table: TomlTable) -> Program:
    table.check_keys({"name", "libraries", "runs"})
    return Program(
        name=table.text("name", "the name of a program", fits=re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*").fullmatch),
        libraries=table.texts("libraries", "libraries"),
        runs=tuple(_run(item) for item in table.tables("runs")),
    )


def _run(table: TomlTable) -> ProgramRun:
    table.check_keys({"arguments", "stdin", "files"})
    return ProgramRun(
        arguments=table.texts("arguments", "words"),
        stdin=table.text("stdin", "text", default=""),
        files=table.texts("files", "globs below the root", fits=stays_inside),
    )


def choose_projects(manifest: Path | None, names: Sequence[str]) -> tuple[Project, ...]:
    """Select projects of a list by name, or all of them without names.

    Raises:
        UsageError: a name is not in the list.
    """
    projects = load_projects(manifest)
    unknown = sorted(set(names) - {project.name for project in projects})
    if unknown:
        raise UsageError(
            f"projects: expected names of listed projects, found {', '.join(unknown)}; name some of "
            f"{', '.join(project.name for project in projects)}"
        )
    return tuple(project for project in projects if not names or project.name in names)

"""Corpora of single functions: each function of a corpus as a module of its own, and such modules linked into groups.

Whatever a function refers to is declared in its module, and defined nowhere, so that objects can be measured and not
linked. A local function becomes hidden. Two modules of one group cannot define the same name, so each name is extracted
once, from the last module that defines it.
"""

import math
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.describe import ModuleDescription, describe_module
from mlgokit.compiler.outcome import check_room, first_error
from mlgokit.compiler.pool import map_in_order
from mlgokit.compiler.program_version import program_version
from mlgokit.compiler.sandbox import sandbox_command, writable_folder
from mlgokit.compiler.toolchain import apt_command
from mlgokit.corpus.corpus import Corpus, ModuleFailure
from mlgokit.corpus.options.edits import command_line_edits
from mlgokit.corpus.writer import (
    CorpusWriter,
    Imported,
    corpus_writer,
    description_fields,
    write_module,
    write_outcomes,
)
from mlgokit.errors import ToolError, UsageError
from mlgokit.files import atomic_write
from mlgokit.locks import locked, reading
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

NAMES_FILE = "functions.txt"
"""File beside the modules: the names of their functions, a line each, from module 0 on."""
UNIT_OPTIONS = command_line_edits(
    delete=(
        "-fthinlto-index", "-main-file-name", "-split-dwarf-file", "-split-dwarf-output", "-fcoverage-compilation-dir",
    )
)  # fmt: skip
"""Options that differ from one module to the next, and that change nothing without debug information."""
_BODILESS = "available_externally"


def extract_functions(
    corpus: Corpus,
    *,
    corpus_folder: Path,
    compiler: ClangCompiler,
    names: Sequence[str] | None = None,
    report: Report = say_nothing,
) -> Imported:
    """Make a corpus with a module for each function; a module is named by the function's line in ``functions.txt``.

    ``names`` are symbols of the functions, or ``None`` for all. The plugin of the compiler says which functions a
    module defines, and LLVM's tools beside its clang extract them.

    Raises:
        BusyError: another process uses one of the corpora.
        CorpusError: no function was extracted.
        StorageError: the disk is full or not writable.
        ToolError: there is no ``llvm-extract`` or ``opt`` beside clang.
    """
    extract, opt = _find_tool(compiler, "llvm-extract"), _find_tool(compiler, "opt")

    def make(function: tuple[int, str]) -> Module | ModuleFailure:
        place, name = function
        module = owners.get(name)
        if module is None:
            reason = "expected a function that a module of the corpus defines, found none; correct its name"
            return ModuleFailure(name=name, project="", reason=reason)
        with writable_folder(compiler.sandbox) as folder:
            whole, stripped = folder / "function.bc", folder / "stripped.bc"
            reason = _run(compiler, [extract, f"--func={name}", "-o", whole, module.bitcode], folder, [module])
            reason = reason or _run(compiler, [opt, "-strip-debug", "-o", stripped, whole], folder)
            if reason:
                return ModuleFailure(name=name, project=module.project, reason=f"{module.name}: {reason}")
            return write_module(str(place), module, stripped, corpus_folder)

    with reading(corpus.folder), locked(corpus_folder):
        with corpus_writer(corpus_folder, description_fields(), remedy="name functions of these modules") as writer:
            owners = _find_owners(corpus, compiler, writer)
            wanted = list(owners) if names is None else names
            functions = enumerate(wanted)
            atomic_write(corpus_folder / NAMES_FILE, "".join(f"{name}\n" for name in wanted))
            write_outcomes(
                writer, make, functions, workers=compiler.workers, report=report, total=len(wanted), room=compiler.room
            )
        return writer.summarize()


def group_functions(
    corpus: Corpus,
    *,
    corpus_folder: Path,
    compiler: ClangCompiler,
    groups: int,
    report: Report = say_nothing,
) -> Imported:
    """Link the modules of a corpus of functions into groups of equal options, large and small functions in each.

    Modules of different projects, and held-out and other ones, are not grouped together, so that there are more than
    ``groups`` if options or projects differ. The corpus was loaded with :data:`UNIT_OPTIONS`.

    Raises:
        BusyError: another process uses one of the corpora.
        CorpusError: no group was linked.
        StorageError: the disk is full or not writable.
        ToolError: there is no ``llvm-link`` beside clang.
        UsageError: ``groups`` is below 1.
    """
    if groups < 1:
        raise UsageError(f"--groups: expected at least 1, found {groups}; give a positive number")
    link = _find_tool(compiler, "llvm-link")

    def make(group: tuple[int, Sequence[Module]]) -> Module | ModuleFailure:
        name, modules = str(group[0]), group[1]
        first = modules[0]
        with writable_folder(compiler.sandbox) as folder:
            whole, words = folder / "group.bc", folder / "modules"
            words.write_text("\n".join(shlex.quote(str(module.bitcode)) for module in modules))
            if reason := _run(compiler, [link, "-o", whole, f"@{words}"], folder, modules):
                return ModuleFailure(name=name, project=first.project, reason=reason)
            return write_module(name, first, whole, corpus_folder)

    parts = partition_modules(corpus.modules, math.ceil(len(corpus.modules) / groups))
    work = enumerate(parts)
    with reading(corpus.folder), locked(corpus_folder):
        with corpus_writer(corpus_folder, description_fields(), remedy="extract the functions again") as writer:
            write_outcomes(
                writer, make, work, workers=compiler.workers, report=report, total=len(parts), room=compiler.room
            )
        return writer.summarize()


def partition_modules(modules: Sequence[Module], most: int) -> list[tuple[Module, ...]]:
    """Divide modules into groups of at most ``most``, with equal options in each; the sizes are spread evenly."""
    alike: dict[object, list[Module]] = {}
    for module in modules:
        kind = module.command_line, module.allowed_options, module.project, module.held_out
        alike.setdefault(kind, []).append(module)
    parts: list[tuple[Module, ...]] = []
    for members in alike.values():
        members.sort(key=lambda module: -module.bitcode_bytes)
        count = math.ceil(len(members) / most)
        parts += [tuple(members[start::count]) for start in range(count)]
    return parts


def _find_owners(corpus: Corpus, compiler: ClangCompiler, writer: CorpusWriter) -> dict[str, Module]:
    """Find the last module that defines each function, and add the modules that cannot be read as failures."""
    if compiler.plugin is None:
        raise UsageError("corpus functions: expected a compiler with a plugin, found none; build it, or name one")
    plugin = compiler.plugin

    def read(module: Module) -> ModuleDescription:
        line = module.command_line
        return describe_module(compiler.toolchain, plugin, module.bitcode, command_line=line, sandbox=compiler.sandbox)

    owners: dict[str, Module] = {}
    for module, found in zip(corpus.modules, map_in_order(read, corpus.modules, workers=compiler.workers), strict=True):
        if found.reason:
            writer.add(ModuleFailure(name=module.name, project=module.project, reason=found.reason))
        for name, linkage in zip(found.names, found.linkages, strict=True):
            if linkage != _BODILESS:
                owners[name] = module
    return owners


def _run(compiler: ClangCompiler, words: Sequence[str | Path], folder: Path, readable: Sequence[Module] = ()) -> str:
    """Run a program that writes into ``folder``, in the sandbox if there is one; return why it failed, or nothing."""
    files = [module.bitcode for module in readable]
    environment, inside = sandbox_command(compiler.sandbox, words, os.environ, writable=folder, readable=files)
    done = process.run(words, timeout_seconds=compiler.timeout_seconds, env=environment, inside=inside)
    if done.timed_out:
        return f"it did not end within {compiler.timeout_seconds:g} s"
    if done.returncode != 0:
        check_room(folder, done.stderr)
        return done.exceeded or first_error(done.stderr)
    return ""


def _find_tool(compiler: ClangCompiler, name: str) -> Path:
    """Find a program of the clang's major: others cannot read its bitcode, or write what it cannot read."""
    major = compiler.toolchain.major
    tool = compiler.toolchain.find_tool(name)
    if tool is None or program_version(tool).major != major:
        remedy = apt_command(f"llvm-{major}")
        raise ToolError(f"expected {name} of LLVM {major} beside clang, found {tool or 'none'}; run `{remedy}`")
    return tool

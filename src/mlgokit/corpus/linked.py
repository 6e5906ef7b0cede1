"""Corpora of what a linker compiles: the modules of each project, merged or with what ThinLTO imports into them.

A policy for link-time optimization is trained on such modules. The compile steps inline only what must be inlined, so
that the link decides about all other calls. A library has no ``main``: a share of its external functions is kept, drawn
by a hash of their names, as a program uses a part of a library. Everything else is internal, and dropped if unused.
Clang compiles these modules by its own pipeline, with the plugin, which it does not load where it is given the index of
a ThinLTO link. So the modules have none.
"""

import hashlib
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.lto import LinkerCall, external_functions, import_bitcode, merge_bitcode
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import NEVER, CompileRequest, Lto, PluginUse
from mlgokit.corpus.corpus import Corpus, ModuleFailure
from mlgokit.corpus.importers.bitcode_files import IMPORTED_SUFFIX
from mlgokit.corpus.split import group_by_project
from mlgokit.corpus.writer import CorpusWriter, Imported, corpus_writer, description_fields, write_module
from mlgokit.locks import locked, reading
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing

LINK_SECONDS = 600.0
"""Deadline of a link."""
_LINK = ("-pie", "--gc-sections", "--icf=all", "--unresolved-symbols=ignore-all", "--noinhibit-exec")
"""A program of which only a part is there; hidden functions may be missing too."""
_NOTHING_INLINED = PluginUse(policies={INLINE_SIZE.name: NEVER})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A module's compile step: its object, and the functions that it defines for others."""

    module: Module
    path: Path
    functions: tuple[str, ...]


def link_corpus(
    corpus: Corpus,
    *,
    corpus_folder: Path,
    lto: Lto,
    shares: Sequence[float],
    compiler: ClangCompiler,
    linker: Path,
    report: Report = say_nothing,
) -> Imported:
    """Link each project of a corpus once for each share, and make a corpus of the modules that the linker compiles.

    ``full`` link-time optimization gives one module for each link, ``thin`` one for each object. Of the external
    functions, the shares are kept; equal ones keep different functions. The compiler has a plugin, and ``linker`` is
    the lld of its LLVM.

    Raises:
        BusyError: another process uses one of the corpora.
        CorpusError: no project could be linked.
        StorageError: the disk is full or not writable.
        ToolError: a program cannot be started.
    """
    projects = group_by_project(sorted(corpus.modules, key=lambda module: module.project)).values()
    with reading(corpus.folder), locked(corpus_folder):
        with corpus_writer(
            corpus_folder, description_fields(), remedy="choose projects with functions for others"
        ) as writer:
            for done, project in enumerate(projects, 1):
                with tempfile.TemporaryDirectory(prefix="mlgokit-link-") as scratch:
                    place = Path(scratch)
                    _add_project(writer, project, shares, lto=lto, compiler=compiler, linker=linker, folder=place)
                report(done, len(projects), "link projects")
        return writer.summarize()


def keeps_function(name: str, share: float, draw: int) -> bool:
    """Whether a draw, counted from 1, keeps a function; the answer depends on nothing else.

    Example:
        >>> sum(keeps_function(f"f{number}", 0.25, 1) for number in range(1000))
        256
    """
    digest = hashlib.sha256(f"{draw}:{name}".encode("utf-8", "surrogateescape")).digest()
    return name == "main" or int.from_bytes(digest[:4], "big") < share * 2**32


def _add_project(
    writer: CorpusWriter,
    modules: Sequence[Module],
    shares: Sequence[float],
    *,
    lto: Lto,
    compiler: ClangCompiler,
    linker: Path,
    folder: Path,
) -> None:
    steps: list[_Step] = []
    owners: dict[str, str] = {}
    for made in _compile(modules, lto, compiler, folder):
        if isinstance(made, ModuleFailure):
            writer.add(made)
        elif twice := next((one for one in made.functions if one in owners), None):
            # Such as of a second program.
            reason = f"expected functions that no other module defines, found {twice} of {owners[twice]} too"
            writer.add(ModuleFailure(name=made.module.name, project=made.module.project, reason=reason))
        else:
            owners.update(dict.fromkeys(made.functions, made.module.name))
            steps.append(made)
    for draw, share in enumerate(shares, 1):
        kept = [name for step in steps for name in step.functions if keeps_function(name, share, draw)]
        name = f"{modules[0].project}/link-{draw}"
        if not kept:
            count = sum(len(step.functions) for step in steps)
            reason = f"expected functions that are kept, found none among {count}; raise the share of {share}"
            writer.add(ModuleFailure(name=name, project=modules[0].project, reason=reason))
            continue
        # A large project has more functions than a command line takes.
        words = [*(f"--undefined={one}" for one in kept), *(str(step.path) for step in steps)]
        response = folder / f"{draw}.words"
        response.write_bytes("\n".join(map(shlex.quote, words)).encode("utf-8", "surrogateescape"))
        call = LinkerCall(words=(str(linker), *_LINK, f"@{response}"), folder=folder)
        for outcome in _link(call, name, steps, lto=lto, scratch=folder / str(draw), corpus_folder=writer.folder):
            writer.add(outcome)


def _compile(modules: Sequence[Module], lto: Lto, compiler: ClangCompiler, folder: Path) -> list[_Step | ModuleFailure]:
    """Run the compile steps of a project's link, which inline only what must be inlined."""

    def compile_step(place: int) -> _Step | ModuleFailure:
        module, path = modules[place], folder / f"{place}.o"
        done = compiler.compile(module, CompileRequest(use=_NOTHING_INLINED, lto=lto, keep_object=path))
        if done.status is not CompileStatus.OK:
            return ModuleFailure(name=module.name, project=module.project, reason=done.reason)
        functions = external_functions(path, compiler.toolchain, timeout_seconds=compiler.timeout_seconds)
        return _Step(module=module, path=path, functions=functions)

    return parallel(compile_step, range(len(modules)), workers=compiler.workers, report=say_nothing, label="compile")


def _link(
    call: LinkerCall, name: str, steps: Sequence[_Step], *, lto: Lto, scratch: Path, corpus_folder: Path
) -> Iterator[Module | ModuleFailure]:
    first = steps[0].module
    if lto == "thin":
        reason = import_bitcode(call, scratch, timeout_seconds=LINK_SECONDS)
        parts = [
            (
                f"{name}/{step.module.name.removeprefix(f'{first.project}/')}",
                step.module,
                step.path.with_name(f"{step.path.name}{IMPORTED_SUFFIX}"),
            )
            for step in steps
        ]
    else:
        merged = merge_bitcode(call, scratch, timeout_seconds=LINK_SECONDS)
        reason, parts = merged.reason, [(name, first, merged.bitcode or scratch)]
    if reason:
        yield ModuleFailure(name=name, project=first.project, reason=reason)
        return
    for part, module, bitcode in parts:
        yield write_module(part, module, bitcode, corpus_folder)

"""Corpora of bitcode files: the intermediate files of a local ThinLTO link by lld, and folders of bitcode."""

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.files import copy_bytes, copy_index, explain_write_errors, open_untrusted
from mlgokit.corpus.importers.object_lists import ObjectFile, check_workers, files_below
from mlgokit.corpus.importers.objects import mark_name_conflicts
from mlgokit.corpus.layout import UNSPECIFIED, bitcode_path, language_of, thinlto_index_path
from mlgokit.corpus.writer import Imported, corpus_writer, description_fields, write_outcomes
from mlgokit.disk import Room
from mlgokit.errors import InputError
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

IMPORTED_SUFFIX = ".3.import.bc"
"""Suffix of a module after ThinLTO imports and before optimization, as lld writes it for ``--save-temps=import``."""
INDEX_SUFFIX = ".thinlto.bc"
"""Suffix of the module's part of the index, as lld writes it for ``--thinlto-emit-index-files``."""
BITCODE_SUFFIX = ".bc"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Import:
    """The settings shared by all files of one import."""

    corpus_folder: Path
    project: str
    command_line: tuple[str, ...]
    has_thinlto: bool


def import_local_thinlto(
    folder: Path,
    *,
    corpus_folder: Path,
    project: str,
    override: Sequence[str] = (),
    workers: int = 1,
    room: Room | None = None,
    report: Report = say_nothing,
) -> Imported:
    """Make a corpus of a ThinLTO link with ``-Wl,--save-temps=import`` and ``-Wl,--thinlto-emit-index-files``.

    Args:
        folder: folder of the build; ``lib/a.o.3.import.bc`` and ``lib/a.o.thinlto.bc`` become module ``lib/a.o``.
        corpus_folder: where the corpus goes.
        project: name of the modules' project.
        override: options of ``clang -cc1`` for all modules; without them, the description has a placeholder.
        workers: number of threads.
        room: disk space that the corpus may take; the default limit if not given.
        report: called after every module.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: there is no such folder, or nothing in it.
        StorageError: the disk is full or not writable.
        UsageError: ``workers`` is below 1.
    """
    return _import_files(
        _files(folder, IMPORTED_SUFFIX, corpus_folder),
        _Import(corpus_folder=corpus_folder, project=project, command_line=tuple(override), has_thinlto=True),
        description_fields(has_thinlto=True, override=list(override) or [UNSPECIFIED]),
        remedy="link with -Wl,--save-temps=import and -Wl,--thinlto-emit-index-files, and give that build's folder",
        workers=workers,
        room=room,
        report=report,
    )


def import_bitcode(
    folder: Path,
    *,
    corpus_folder: Path,
    project: str,
    options: Sequence[str],
    workers: int = 1,
    room: Room | None = None,
    report: Report = say_nothing,
) -> Imported:
    """Make a corpus of all ``.bc`` files below a folder, compiled with the same options.

    Args:
        folder: folder with the bitcode; ``lib/a.bc`` becomes module ``lib/a``.
        corpus_folder: where the corpus goes; if it is inside of ``folder``, its own files are left out.
        project: name of the modules' project.
        options: options of ``clang -cc1``, the same for every module.
        workers: number of threads.
        room: disk space that the corpus may take; the default limit if not given.
        report: called after every module.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: there is no such folder, or nothing in it.
        StorageError: the disk is full or not writable.
        UsageError: ``workers`` is below 1.
    """
    return _import_files(
        _files(folder, BITCODE_SUFFIX, corpus_folder),
        _Import(corpus_folder=corpus_folder, project=project, command_line=tuple(options), has_thinlto=False),
        description_fields(override=options),
        remedy="give a folder with bitcode, as clang -c -emit-llvm makes it",
        workers=workers,
        room=room,
        report=report,
    )


def _files(folder: Path, suffix: str, corpus_folder: Path) -> Generator[ObjectFile]:
    """List the files with a suffix below a folder, without those of the corpus that is made."""
    own = corpus_folder.absolute()
    skip = own.relative_to(folder.absolute()).as_posix() if own.is_relative_to(folder.absolute()) else None
    for name in files_below(folder, (suffix,)):
        if skip is None or not (skip == "." or name.startswith(f"{skip}/")):
            yield ObjectFile(name=name.removesuffix(suffix), path=folder / name, base=folder)


def _import_files(
    files: Iterable[ObjectFile],
    shared: _Import,
    fields: dict[str, Any],
    *,
    remedy: str,
    workers: int,
    room: Room | None,
    report: Report,
) -> Imported:
    """Write a corpus of bitcode files; of several with one name, the first."""
    check_workers(workers)
    work: Callable[[ObjectFile], Module | ModuleFailure] = functools.partial(_import, shared)
    folder = shared.corpus_folder
    with locked(folder), corpus_writer(folder, fields, remedy=remedy) as writer:
        unique = mark_name_conflicts(files, has_thinlto=shared.has_thinlto)
        write_outcomes(writer, work, unique, workers=workers, room=room, report=report)
    return writer.summarize()


def _import(shared: _Import, item: ObjectFile) -> Module | ModuleFailure:
    """Copy a bitcode file into the corpus as a module, or return why not."""
    reason = item.trouble
    if not reason:
        try:
            return _copy(shared, item)
        except InputError as error:
            reason = str(error)
    return ModuleFailure(name=item.name, project=shared.project, reason=reason)


def _copy(shared: _Import, item: ObjectFile) -> Module:
    """Copy a bitcode file, and its ThinLTO index if the corpus has indices."""
    path = bitcode_path(shared.corpus_folder, item.name)
    index = thinlto_index_path(shared.corpus_folder, item.name) if shared.has_thinlto else None
    with open_untrusted(item.path, "expected bitcode, found no such file; import again") as descriptor:
        size = item.path.stat().st_size
        if not size:
            raise InputError(f"expected bitcode in {item.path.name}, found an empty file")
        if index is not None:
            beside = item.base / f"{item.name}{INDEX_SUFFIX}"
            missing = f"expected the index {beside.name} beside it, found none; link with --thinlto-emit-index-files"
            with (
                open_untrusted(beside, missing) as index_descriptor,
                explain_write_errors(item.name, shared.corpus_folder),
            ):
                copy_index(index_descriptor, index)
        with explain_write_errors(item.name, shared.corpus_folder):
            digest = copy_bytes(descriptor, 0, size, path)
    return Module(
        name=item.name,
        project=shared.project,
        language=language_of(item.name, shared.command_line),
        bitcode=path,
        command_line=shared.command_line,
        bitcode_bytes=size,
        bitcode_sha256=digest,
        thinlto_index=index,
    )

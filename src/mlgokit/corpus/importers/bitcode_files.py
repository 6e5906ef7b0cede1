"""Corpora of bitcode files: the intermediate files of a local ThinLTO link by lld, and folders of bitcode."""

import functools
import os
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from mlgokit.corpus.files import copy_bytes, copy_index, explain_write_errors, open_untrusted
from mlgokit.corpus.importers.object_lists import ObjectFile, objects_in_folder
from mlgokit.corpus.importers.objects import import_files
from mlgokit.corpus.layout import UNSPECIFIED, bitcode_path, language_of, thinlto_index_path
from mlgokit.corpus.writer import Imported, description_fields
from mlgokit.disk import Room
from mlgokit.errors import InputError
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

IMPORTED_SUFFIX = ".3.import.bc"
"""Suffix of a module after ThinLTO imports and before optimization, as lld writes it for ``--save-temps=import``."""
INDEX_SUFFIX = ".thinlto.bc"
"""Suffix of the module's part of the index, as lld writes it for ``--thinlto-emit-index-files``."""
BITCODE_SUFFIX = ".bc"


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

    ``lib/a.o.3.import.bc`` and ``lib/a.o.thinlto.bc`` in the folder of the build become module ``lib/a.o``. Without the
    options of ``clang -cc1`` for all modules in ``override``, the description has a placeholder. The corpus may take
    the disk space of ``room``, or up to a default limit.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: there is no such folder, or nothing in it.
        StorageError: the disk is full or not writable.
        UsageError: ``workers`` is below 1.
    """
    copy = functools.partial(
        _copy, corpus_folder=corpus_folder, project=project, command_line=tuple(override), has_thinlto=True
    )
    return import_files(
        _files(folder, IMPORTED_SUFFIX, corpus_folder),
        copy,
        corpus_folder,
        description_fields(has_thinlto=True, override=list(override) or [UNSPECIFIED]),
        project=project,
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
    """Make a corpus of all ``.bc`` files below a folder; ``lib/a.bc`` becomes module ``lib/a``.

    All are compiled with the same ``options`` of ``clang -cc1``. A corpus inside of ``folder`` is not imported itself.
    Other arguments and the errors are those of :func:`import_local_thinlto`.
    """
    return import_files(
        _files(folder, BITCODE_SUFFIX, corpus_folder),
        functools.partial(_copy, corpus_folder=corpus_folder, project=project, command_line=tuple(options)),
        corpus_folder,
        description_fields(override=options),
        project=project,
        remedy="give a folder with bitcode, as clang -c -emit-llvm makes it",
        workers=workers,
        room=room,
        report=report,
    )


def _files(folder: Path, suffix: str, corpus_folder: Path) -> Generator[ObjectFile]:
    """List the files with a suffix below a folder, without those of the corpus that is made."""
    for file in objects_in_folder(folder, suffixes=(suffix,), without=corpus_folder):
        yield replace(file, name=file.name.removesuffix(suffix))


def _copy(
    item: ObjectFile, *, corpus_folder: Path, project: str, command_line: tuple[str, ...], has_thinlto: bool = False
) -> Module:
    path = bitcode_path(corpus_folder, item.name)
    index = thinlto_index_path(corpus_folder, item.name) if has_thinlto else None
    with open_untrusted(item.path, "expected bitcode, found no such file; import again") as descriptor:
        size = os.fstat(descriptor).st_size
        if not size:
            raise InputError(f"expected bitcode in {item.path.name}, found an empty file")
        if index is not None:
            beside = item.base / f"{item.name}{INDEX_SUFFIX}"
            missing = f"expected the index {beside.name} beside it, found none; link with --thinlto-emit-index-files"
            with (
                open_untrusted(beside, missing) as index_descriptor,
                explain_write_errors(item.name, corpus_folder),
            ):
                copy_index(index_descriptor, index)
        with explain_write_errors(item.name, corpus_folder):
            digest = copy_bytes(descriptor, 0, size, path)
    return Module(
        name=item.name,
        project=project,
        language=language_of(item.name, command_line),
        bitcode=path,
        command_line=command_line,
        bitcode_bytes=size,
        bitcode_sha256=digest,
        thinlto_index=index,
    )

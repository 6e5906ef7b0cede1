"""Import of object files with embedded bitcode as a corpus.

``clang -Xclang -fembed-bitcode=all`` puts into an object the bitcode that its optimizer got and the ``-cc1`` options;
``-mllvm -lto-embed-bitcode=post-merge-pre-opt`` does so in a distributed ThinLTO build, whose options name the module's
part of the index. What is wrong with one object is a failure in the corpus, and never stops the others.
"""

import functools
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.compiler import process
from mlgokit.compiler.compile import THINLTO_INDEX
from mlgokit.compiler.outcome import first_error
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.files import copy_bytes, copy_index, explain_write_errors, open_untrusted, read_bytes
from mlgokit.corpus.importers.object_lists import ObjectFile, compile_filter
from mlgokit.corpus.importers.sections import SECTION_NAMES, Piece, find_sections, kind_of
from mlgokit.corpus.layout import bitcode_path, decode_command_line, language_of, thinlto_index_path
from mlgokit.corpus.writer import Imported, corpus_writer, description_fields, write_outcomes
from mlgokit.disk import Room
from mlgokit.errors import InputError
from mlgokit.files import whole_file
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

LARGEST_COMMAND_LINE = 16 << 20
"""Limit in bytes on the options of a module."""
OBJCOPY_SECONDS = 60.0

_NO_OBJECT = "expected an object file, found no such file; build it first"
_EMBED_REMEDY = "compile with -Xclang -fembed-bitcode=all"
_JOINED_REMEDY = "import the objects that were linked into it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Import:
    """The settings shared by all objects of one import."""

    corpus_folder: Path
    project: str
    pattern: re.Pattern[str] | None
    distributed_thinlto: bool
    cmd_section: str | None
    bitcode_section: str | None
    llvm_objcopy: Path | None


def import_objects(
    objects: Iterable[ObjectFile],
    *,
    corpus_folder: Path,
    project: str,
    cmd_filter: str | None = None,
    distributed_thinlto: bool = False,
    cmd_section: str | None = None,
    bitcode_section: str | None = None,
    llvm_objcopy: Path | None = None,
    workers: int = 1,
    room: Room | None = None,
    report: Report = say_nothing,
) -> Imported:
    """Make a corpus of the bitcode and options in object files, with little memory for any number of them.

    A module is left out if the regular expression ``cmd_filter`` is found in none of its options. Sections with options
    and bitcode have other names than the format's own if these are given, ``segment,section`` for Mach-O; the program
    ``llvm_objcopy`` gets them out of formats that are not read here, and needs both names. With
    ``distributed_thinlto`` the index that each module's ``-fthinlto-index=`` names is copied too, which is relative to
    the ``base`` of its :class:`ObjectFile`. The corpus may take the disk space of ``room``, or up to a default limit.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: no object gives a module, or a list of objects cannot be read.
        StorageError: the disk is full or not writable.
        ToolError: llvm-objcopy cannot be started.
        UsageError: ``cmd_filter`` is no regular expression, or the arguments contradict each other.
    """
    shared = _Import(
        corpus_folder=corpus_folder,
        project=project,
        pattern=compile_filter("command filter", cmd_filter),
        distributed_thinlto=distributed_thinlto,
        cmd_section=cmd_section,
        bitcode_section=bitcode_section,
        llvm_objcopy=llvm_objcopy,
    )
    fields = description_fields(has_thinlto=distributed_thinlto)
    remedy = (
        _EMBED_REMEDY
        if cmd_filter is None
        else f"give another command filter than {cmd_filter!r:.200}, or {_EMBED_REMEDY}"
    )
    write = functools.partial(_import, shared)
    return import_files(
        objects, write, corpus_folder, fields, project=project, remedy=remedy, workers=workers, room=room, report=report
    )


def import_files(
    files: Iterable[ObjectFile],
    write: Callable[[ObjectFile], Module],
    corpus_folder: Path,
    fields: Mapping[str, Any],
    *,
    project: str,
    remedy: str,
    workers: int,
    room: Room | None,
    report: Report,
) -> Imported:
    """Make a corpus with the module that ``write`` writes for each file; of several with one name, for the first.

    An :class:`InputError` of ``write`` says why there is none. For other arguments see :func:`import_objects`.
    """

    def make(item: ObjectFile) -> Module | ModuleFailure:
        reason = item.trouble
        if not reason:
            try:
                return write(item)
            except InputError as error:
                reason = str(error)
        return ModuleFailure(name=item.name, project=project, reason=reason)

    with locked(corpus_folder), corpus_writer(corpus_folder, fields, remedy=remedy) as writer:
        unique = mark_name_conflicts(files, has_thinlto=fields["has_thinlto"])
        write_outcomes(writer, make, unique, workers=workers, room=room, report=report)
    return writer.summarize()


def mark_name_conflicts(objects: Iterable[ObjectFile], *, has_thinlto: bool = False) -> Generator[ObjectFile]:
    """Yield all objects; one with a bad name, or whose files would replace those of an earlier one, gets a ``trouble``.

    Names are stored as 64-bit hashes, which take about 70 bytes of memory for each object.
    """
    seen: set[int] = set()
    for item in objects:
        # The index of module "a" stands where the bitcode of a module "a.thinlto" would.
        keys = {hash(name) for name in ((item.name, f"{item.name}.thinlto") if has_thinlto else (item.name,))}
        trouble = item.trouble or _why_bad_name(item.name)
        if not trouble and keys & seen:
            trouble = "expected a name of its own, found an earlier object of that name; give the base folder of all"
        if not trouble:
            seen |= keys
        yield ObjectFile(name=item.name, path=item.path, base=item.base, trouble=trouble)


def _why_bad_name(name: str) -> str:
    if not name or any(part in {"", ".", ".."} for part in name.split("/")) or "\\" in name or "\0" in name:
        return f"expected a path without backslashes inside the build, found {name!r:.200}; rename the object"
    if name.startswith(("-", "@")):
        return f"expected a path that no compiler takes for an option, found {name!r:.200}; rename the object"
    return ""


def _import(shared: _Import, item: ObjectFile) -> Module:
    with open_untrusted(item.path, _NO_OBJECT) as descriptor:
        sections = find_sections(
            descriptor, item.path.name, cmd_section=shared.cmd_section, bitcode_section=shared.bitcode_section
        )
        if sections is None:
            if shared.llvm_objcopy is None:
                kind = kind_of(os.pread(descriptor, 4, 0))
                raise InputError(f"expected an object file (ELF, Mach-O or COFF), found {kind}")
            return _import_through_objcopy(shared, item)
        names = SECTION_NAMES[sections.format]
        cmd = _single_piece(sections.command_lines, shared.cmd_section or names[0])
        bitcode = _single_piece(sections.bitcodes, shared.bitcode_section or names[1])
        options = _read_options(descriptor, cmd)
        return _write_module(shared, item, options=options, descriptor=descriptor, bitcode=bitcode)


def _single_piece(pieces: tuple[Piece, ...], name: str) -> Piece:
    if not pieces:
        raise InputError(
            f"expected a section {name}, found none (objects of assembly have none); for C and C++ {_EMBED_REMEDY}"
        )
    first, *others = pieces
    if others:
        raise InputError(f"expected one section {name}, found {len(pieces)}, as after ld -r; {_JOINED_REMEDY}")
    return first


def _read_options(descriptor: int, piece: Piece) -> bytes:
    if piece.size > LARGEST_COMMAND_LINE:
        raise InputError(
            f"expected at most {LARGEST_COMMAND_LINE} bytes in the section with the options, found {piece.size}; name "
            "the right section with --command-section"
        )
    return read_bytes(descriptor, piece.offset, piece.size)


def _write_module(shared: _Import, item: ObjectFile, *, options: bytes, descriptor: int, bitcode: Piece) -> Module:
    words = options.decode("utf-8", "surrogateescape").split("\0")
    if shared.pattern is not None and not any(shared.pattern.search(word) for word in words):
        raise InputError(f"left out, as no option matches the command filter {shared.pattern.pattern!r}")
    if (count := words.count("-cc1")) > 1:
        raise InputError(
            f"expected the options of one module, found those of {count}, as after ld -r; {_JOINED_REMEDY}"
        )
    if not bitcode.size:
        raise InputError(f"expected bitcode, found an empty section, as of -fembed-bitcode=marker; {_EMBED_REMEDY}")
    path = bitcode_path(shared.corpus_folder, item.name)
    with explain_write_errors(item.name, shared.corpus_folder):
        if shared.distributed_thinlto:
            _copy_index(words, item.base, thinlto_index_path(shared.corpus_folder, item.name))
        digest = copy_bytes(descriptor, bitcode.offset, bitcode.size, path)
        with whole_file(shared.corpus_folder / f"{item.name}.cmd") as file:
            file.write(options)
    command_line = decode_command_line(options)
    return Module(
        name=item.name,
        project=shared.project,
        language=language_of(item.name, command_line),
        bitcode=path,
        command_line=command_line,
        bitcode_bytes=bitcode.size,
        bitcode_sha256=digest,
        thinlto_index=thinlto_index_path(shared.corpus_folder, item.name) if shared.distributed_thinlto else None,
    )


def _copy_index(words: list[str], base: Path, path: Path) -> None:
    """Copy the index that the options name; ``/dev/null`` and an empty file both mean a module without imports.

    Only bitcode is copied, since the options come from the object, which may be from elsewhere.
    """
    named = [word.removeprefix(THINLTO_INDEX) for word in words if word.startswith(THINLTO_INDEX)]
    if not named:
        raise InputError(f"expected an option {THINLTO_INDEX}, found none; import this object without --distributed")
    if named[-1] == os.devnull:
        with whole_file(path):
            return
    missing = f"expected the ThinLTO index {named[-1]!r:.200} in the build, found no such file; link again"
    with open_untrusted(base / named[-1], missing) as descriptor:
        copy_index(descriptor, path)


def _import_through_objcopy(shared: _Import, item: ObjectFile) -> Module:
    """Let llvm-objcopy write the sections to files, for formats that only it knows."""
    if shared.cmd_section is None or shared.bitcode_section is None:
        raise InputError(
            "expected the names of both sections for llvm-objcopy, found one or none; give --bitcode-section and "
            "--command-section"
        )
    with tempfile.TemporaryDirectory(prefix="mlgokit-objcopy-") as scratch:
        cmd, bitcode = Path(scratch, "cmd"), Path(scratch, "bc")
        argv = [
            str(shared.llvm_objcopy),
            f"--dump-section={shared.cmd_section}={cmd}",
            f"--dump-section={shared.bitcode_section}={bitcode}",
            str(item.path.absolute()),
            os.devnull,
        ]
        done = process.run(argv, timeout_seconds=OBJCOPY_SECONDS)
        if done.returncode != 0:
            raise InputError(f"expected llvm-objcopy to write both sections, found: {first_error(done.stderr)}")
        with (
            open_untrusted(cmd, "no command line") as cmd_descriptor,
            open_untrusted(bitcode, "no bitcode") as bitcode_descriptor,
        ):
            options = _read_options(cmd_descriptor, Piece(offset=0, size=os.fstat(cmd_descriptor).st_size))
            whole = Piece(offset=0, size=os.fstat(bitcode_descriptor).st_size)
            return _write_module(shared, item, options=options, descriptor=bitcode_descriptor, bitcode=whole)

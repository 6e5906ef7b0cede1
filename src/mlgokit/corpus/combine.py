"""Joining of corpora: module names get the name of the corpus's folder as a prefix; everything else must agree."""

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

from mlgokit.compiler.options.safety import MOST_PROFILE_BYTES, check_file
from mlgokit.corpus.corpus import MOST_BITCODE_BYTES, ModuleFailure, read_description, read_sidecar
from mlgokit.corpus.files import explain_write_errors
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME, check_name
from mlgokit.corpus.profiles import PROFILES, profile_files
from mlgokit.corpus.writer import CorpusWriter, Imported, corpus_writer
from mlgokit.errors import CorpusError, InputError
from mlgokit.files import writing
from mlgokit.locks import locked, reading

_FILES = {".bc": "bitcode", ".cmd": "a command line", ".thinlto.bc": "a ThinLTO index"}


def combine_corpora(root: Path, *, corpus_folder: Path | None = None) -> Imported:
    """Join the corpora in the folders of ``root``; other folders and files there are left alone.

    Args:
        root: the folder with the corpora.
        corpus_folder: where the joined corpus goes, its files as links to the same data where the disk can do that;
            by default the description is put into ``root`` and no file is moved, as LLVM's script does.

    Raises:
        BusyError: another process uses the joined corpus, or changes one of the others.
        CorpusError: there is no corpus, or two differ in more than their modules.
        StorageError: the disk is full or not writable.
    """
    target = corpus_folder or root
    parts = [part for part in _corpora(root) if part.resolve() != target.resolve()]
    if not parts:
        raise CorpusError(f"{root}: expected folders with {DESCRIPTION_NAME}, found none; give the folder above them")
    fields = _shared_fields(parts)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(target))
        for part in parts:
            stack.enter_context(reading(part))
        writer = stack.enter_context(corpus_writer(target, fields, remedy="extract the corpora again"))
        for part in parts:
            _add_corpus(writer, part, link=target.resolve() != root.resolve())
    return writer.summarize()


def _corpora(root: Path) -> list[Path]:
    if not root.is_dir():
        kind = "a file" if root.exists() else "nothing"
        raise CorpusError(f"{root}: expected a folder with corpora, found {kind}; give another")
    return sorted(path.parent for path in root.glob(f"*/{DESCRIPTION_NAME}"))


def _shared_fields(parts: list[Path]) -> dict[str, Any]:
    common, _ = read_description(parts[0])
    for part in parts[1:]:
        fields, _ = read_description(part)
        for key in {**common, **fields}:
            here, first = fields.get(key), common.get(key)
            if here != first or type(here) is not type(first):
                raise CorpusError(
                    f"{part / DESCRIPTION_NAME}: {key}: expected {first!r:.200} as in {parts[0].name}, found "
                    f"{here!r:.200}; combine only corpora of one kind"
                )
    return common


def _add_corpus(writer: CorpusWriter, part: Path, *, link: bool) -> None:
    """Add the modules of one corpus under prefixed names; with ``link`` their files too, else these stay in place."""
    _, names = read_description(part)
    # Profiles are named by their content, in one folder of the joined corpus, where relative paths of options start.
    for profile in profile_files(part):
        reason = check_file(profile, "a profile", folder=part, most_bytes=MOST_PROFILE_BYTES)
        if reason is None:
            with writing(writer.folder):
                _link_file(profile, writer.folder / PROFILES / profile.name)
        else:
            writer.add(ModuleFailure(name=f"{part.name}/{PROFILES}/{profile.name}", project=part.name, reason=reason))
    for name in dict.fromkeys(names):
        check_name(name, part)
        joined = f"{part.name}/{name}"
        check_name(joined, part.parent)
        try:
            if link:
                _link(part, writer.folder / part.name, name)
        except InputError as error:
            writer.add(ModuleFailure(name=joined, project=part.name, reason=str(error)))
        else:
            writer.add_name(joined)
    _add_sidecar(writer, part, names, link=link)


def _add_sidecar(writer: CorpusWriter, part: Path, names: list[str], *, link: bool) -> None:
    """Add the sidecar of one corpus; a corpus without one, whose files are linked, is one project."""
    if (part / SIDECAR_NAME).exists():
        known, failures = read_sidecar(part, f"delete {SIDECAR_NAME} to combine without it")
        for name, facts in known.items():
            writer.add_facts(f"{part.name}/{name}", facts)
        for failure in failures:
            writer.add(dataclasses.replace(failure, name=f"{part.name}/{failure.name}"))
    elif link:
        for name in dict.fromkeys(names):
            writer.add_facts(f"{part.name}/{name}", {"project": part.name})


def _link(part: Path, folder: Path, name: str) -> None:
    with explain_write_errors(name, folder):
        for suffix, what in _FILES.items():
            source, target = part / f"{name}{suffix}", folder / f"{name}{suffix}"
            if not source.is_symlink() and not source.exists() and suffix != ".bc":
                continue
            reason = check_file(source, what, folder=part, most_bytes=MOST_BITCODE_BYTES)
            if reason is not None:
                raise InputError(reason)
            _link_file(source, target)


def _link_file(source: Path, target: Path) -> None:
    """Hard-link a file, not a link to it, or copy it to another disk; replaces ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)

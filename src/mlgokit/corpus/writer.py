"""Streaming writers for corpora of any size: files, descriptions and sidecars are written as modules arrive."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from mlgokit.compiler.pool import map_in_order
from mlgokit.corpus.corpus import ModuleFailure, module_facts
from mlgokit.corpus.files import copy_bytes, explain_write_errors
from mlgokit.corpus.json_stream import iter_members
from mlgokit.corpus.layout import (
    DESCRIPTION_NAME,
    SIDECAR_NAME,
    SIDECAR_VERSION,
    bitcode_path,
    encode_command_line,
)
from mlgokit.corpus.split_assignment import NOTHING_ASSIGNED, SplitAssignments, earlier_assignments
from mlgokit.disk import Room
from mlgokit.errors import CorpusError, StorageError
from mlgokit.files import move_into_place, remove_leftovers, temporary_beside, writing
from mlgokit.module import Module
from mlgokit.progress import Report

Item = TypeVar("Item")
EXAMPLES = 20
_PARTS = ("names", "facts", "failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import, with the numbers of modules and failures, and the first failures as examples."""

    folder: Path
    modules: int
    failures: int
    examples: tuple[ModuleFailure, ...] = ()


@dataclass(slots=True, kw_only=True)
class CorpusWriter:
    """Receives modules and failures one by one; made by :func:`corpus_writer`.

    Attributes:
        names: file that becomes the description.
        facts: file that becomes the sidecar.
        failed: file with the failures, for the end of the sidecar.
        assignments: the split of the corpus that was there before.
        known: hashes of the names with facts; ``None`` if facts are not kept when the writing fails.
        described: number of modules with facts so far.
    """

    folder: Path
    names: IO[str]
    facts: IO[str]
    failed: IO[str]
    assignments: SplitAssignments = NOTHING_ASSIGNED
    known: set[int] | None = None
    modules: int = 0
    described: int = 0
    failures: int = 0
    examples: list[ModuleFailure] = field(default_factory=list[ModuleFailure])

    def add(self, outcome: Module | ModuleFailure) -> None:
        """Add a module, whose files have been written, or a failure."""
        if isinstance(outcome, Module):
            self.add_name(outcome.name)
            facts = module_facts(outcome)
            before = self.assignments.by_name.get(outcome.name)
            self.add_facts(outcome.name, facts if before is None else {**facts, "held_out": before.held_out})
            return
        with writing(self.folder):
            self.failed.write(f"{',' if self.failures else ''}\n  {json.dumps(asdict(outcome))}")
        self.failures += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(outcome)

    def add_name(self, name: str) -> None:
        """Add a module to the description only."""
        with writing(self.folder):
            self.names.write(f"{',' if self.modules else ''}\n    {json.dumps(name)}")
        self.modules += 1

    def add_facts(self, name: str, facts: Mapping[str, Any]) -> None:
        """Add facts about a module to the sidecar; an earlier assignment of the split is kept."""
        facts = self.assignments.add_to(name, facts)
        with writing(self.folder):
            self.facts.write(f"{',' if self.described else ''}\n  {json.dumps(name)}: {json.dumps(facts)}")
        self.described += 1
        if self.known is not None:
            self.known.add(hash(name))

    def summarize(self) -> Imported:
        """Return the numbers of modules and failures so far."""
        return Imported(folder=self.folder, modules=self.modules, failures=self.failures, examples=tuple(self.examples))


def description_fields(*, has_thinlto: bool = False, override: Sequence[str] | None = None) -> dict[str, Any]:
    """Make the fields of a description except for ``modules``, in LLVM's order.

    Example:
        >>> description_fields(has_thinlto=True, override=["-cc1"])
        {'global_command_override': ['-cc1'], 'has_thinlto': True}
    """
    start: dict[str, Any] = {} if override is None else {"global_command_override": list(override)}
    return {**start, "has_thinlto": has_thinlto}


@contextlib.contextmanager
def corpus_writer(
    folder: Path, fields: Mapping[str, Any], *, remedy: str, keep_facts: bool = False
) -> Generator[CorpusWriter]:
    """Open a writer; the corpus is complete when the block succeeds, until then an earlier description is kept.

    The split of a corpus that was there before is kept. If no module was added, the error says the ``remedy``. With
    ``keep_facts``, the facts of the modules that were added are written also if the block raises.

    Raises:
        CorpusError: no module was added.
        StorageError: the disk is full or not writable.
    """
    head = json.dumps({**fields, "modules": []}, indent=2).removesuffix("]\n}")
    scratch = temporary_beside(folder / DESCRIPTION_NAME)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        scratch.mkdir()
    try:
        with contextlib.ExitStack() as stack:
            with writing(folder):
                names, facts, failed = (stack.enter_context(_scratch_file(scratch / name, folder)) for name in _PARTS)
                names.write(head)
                facts.write(f'{{"format_version": {SIDECAR_VERSION},\n "modules": {{')
            assignments = earlier_assignments(folder)
            writer = CorpusWriter(folder=folder, names=names, facts=facts, failed=failed, assignments=assignments)
            writer.known = set() if keep_facts else None
            try:
                yield writer
            except BaseException:
                if keep_facts and writer.described:
                    _keep_facts(writer, scratch / "facts")
                raise
            if not writer.modules:
                first = f" ({writer.examples[0].name}: {writer.examples[0].reason})" if writer.examples else ""
                raise CorpusError(
                    f"{folder}: expected at least one module, found none among {writer.failures} entries{first}; "
                    "LLVM's tools would write a corpus without modules, which nothing can load, so none is written: "
                    f"{remedy}"
                )
            with writing(folder):
                names.write("\n  ]\n}\n")
                facts.write('},\n "failures": [')
                failed.seek(0)
                shutil.copyfileobj(failed, facts)
                facts.write("]}\n")
        with writing(folder):
            if writer.described or writer.failures:
                move_into_place(scratch / "facts", folder / SIDECAR_NAME, durable=True)
            else:
                (folder / SIDECAR_NAME).unlink(missing_ok=True)
            move_into_place(scratch / "names", folder / DESCRIPTION_NAME, durable=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _scratch_file(path: Path, folder: Path) -> Generator[IO[str]]:
    """Open a new file, and close it at the end, when the disk may be found full."""
    file = path.open("w+", encoding="utf-8")
    try:
        yield file
    finally:
        with writing(folder):
            file.close()


def _keep_facts(writer: CorpusWriter, partial: Path) -> None:
    """Write a sidecar of the facts so far, and of the earlier facts about other modules."""
    path = writer.folder / SIDECAR_NAME
    known = writer.known or set()
    with contextlib.suppress(StorageError, OSError):
        # A damaged sidecar gives what is before the damage.
        with contextlib.suppress(CorpusError):
            for name, facts in iter_members(path, "modules", remedy="import again"):
                if isinstance(facts, dict) and hash(name) not in known:
                    writer.add_facts(name, cast("dict[str, Any]", facts))
        writer.facts.write('},\n "failures": []}\n')
        writer.facts.flush()
        move_into_place(partial, path)


def write_module(name: str, module: Module, bitcode: Path, folder: Path) -> Module:
    """Copy bitcode that was made of a module into the corpus in ``folder``, with the options of that module.

    Raises:
        InputError: the name is not possible on this file system.
        StorageError: the disk is full or not writable.
    """
    path = bitcode_path(folder, name)
    with explain_write_errors(name, folder):
        with bitcode.open("rb") as source:
            digest = copy_bytes(source.fileno(), 0, bitcode.stat().st_size, path)
        path.with_suffix(".cmd").write_bytes(encode_command_line(module.command_line))
    return dataclasses.replace(
        module,
        name=name,
        source=None,
        bitcode=path,
        bitcode_bytes=path.stat().st_size,
        bitcode_sha256=digest,
        front_end_seconds=None,
        text_bytes=None,
    )


def write_outcomes(
    writer: CorpusWriter,
    work: Callable[[Item], Module | ModuleFailure],
    items: Iterable[Item],
    *,
    workers: int,
    report: Report,
    total: int = 0,
    room: Room | None = None,
    note: Callable[[Module], None] | None = None,
) -> None:
    """Make modules in threads, and add each to the corpus in the order of the items; ``total`` of them if known.

    ``work`` makes the module of an item, such as a source, with its files, or returns why there is none; ``note`` is
    called with each module that was added. The disk space that the corpus may take is checked after every module; by
    default there is a limit, too.
    """
    room = room or Room(folder=writer.folder)
    with contextlib.closing(map_in_order(work, items, workers=workers)) as outcomes:
        for done, outcome in enumerate(outcomes, 1):
            writer.add(outcome)
            if note is not None and isinstance(outcome, Module):
                note(outcome)
            room.check()
            report(done, max(done, total) if total else 0, outcome.name)

"""What is in a corpus: counts and sizes by project, what is damaged, what is there twice."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlgokit.corpus.module import Corpus, Module, ModuleFailure
from mlgokit.manifest import digest_file

_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""Raw bitcode, and bitcode in the wrapper that Apple's linker wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInfo:
    """One project's part of a corpus.

    Attributes:
        name: the project.
        languages: of its modules, sorted.
        held_out: whether its modules are kept out of training.
        modules: how many there are.
        bitcode_bytes: of all of them.
        front_end_seconds: of those for which it is known.
        failures: how many sources gave no module, or none that can be used.
    """

    name: str
    languages: tuple[str, ...]
    held_out: bool
    modules: int
    bitcode_bytes: int
    front_end_seconds: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusInfo:
    """A summary of a corpus.

    Attributes:
        folder: the corpus.
        modules: how many can be used.
        bitcode_bytes: of all of them.
        projects: in the order in which they first appear.
        failures: sources that gave no module.
        missing: modules that are named but not there.
        damaged: modules whose bitcode is not bitcode, or has changed since it was extracted.
        duplicates: groups of names of modules with the same bitcode.
    """

    folder: Path
    modules: int
    bitcode_bytes: int
    projects: tuple[ProjectInfo, ...]
    failures: tuple[ModuleFailure, ...]
    missing: tuple[ModuleFailure, ...]
    damaged: tuple[ModuleFailure, ...]
    duplicates: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON objects, lists and numbers."""
        return {**asdict(self), "folder": str(self.folder)}


def corpus_info(corpus: Corpus) -> CorpusInfo:
    """Look at every module of a corpus; reads all its bitcode."""
    damaged: list[ModuleFailure] = []
    names_of: defaultdict[str, list[str]] = defaultdict(list)
    for module in corpus.modules:
        digest, reason = _inspect(module)
        if reason is not None:
            damaged.append(ModuleFailure(name=module.name, project=module.project, reason=reason))
        if digest is not None:
            names_of[digest].append(module.name)
    failed = (*corpus.failures, *corpus.missing)
    names = dict.fromkeys([*(module.project for module in corpus.modules), *(failure.project for failure in failed)])
    return CorpusInfo(
        folder=corpus.folder,
        modules=len(corpus.modules),
        bitcode_bytes=sum(module.bitcode_bytes for module in corpus.modules),
        projects=tuple(
            _project_info(
                name,
                [module for module in corpus.modules if module.project == name],
                failures=sum(failure.project == name for failure in failed),
            )
            for name in names
        ),
        failures=corpus.failures,
        missing=corpus.missing,
        damaged=tuple(damaged),
        duplicates=tuple(tuple(group) for group in names_of.values() if len(group) > 1),
    )


def _inspect(module: Module) -> tuple[str | None, str | None]:
    """Digest of a module's bitcode, and what is wrong with it, if anything."""
    try:
        with module.bitcode.open("rb") as file:
            magic = file.read(4)
        digest = digest_file(module.bitcode)
    except OSError as error:
        return None, f"cannot be read: {error.strerror or error}"
    if magic not in _MAGICS:
        return digest, f"expected bitcode, which begins with 42 43 c0 de, found {magic.hex(' ')}"
    if module.bitcode_sha256 is not None and module.bitcode_sha256 != digest:
        return digest, f"expected SHA-256 {module.bitcode_sha256}, found {digest}"
    return digest, None


def _project_info(name: str, modules: Iterable[Module], *, failures: int) -> ProjectInfo:
    listed = list(modules)
    return ProjectInfo(
        name=name,
        languages=tuple(sorted({module.language for module in listed})),
        held_out=any(module.held_out for module in listed),
        modules=len(listed),
        bitcode_bytes=sum(module.bitcode_bytes for module in listed),
        front_end_seconds=sum(module.front_end_seconds or 0.0 for module in listed),
        failures=failures,
    )

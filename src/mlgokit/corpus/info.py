"""Summary of a corpus: counts and sizes by project, duplicates, the split, and what is damaged or was left out."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlgokit.compiler.build_tree import BITCODE
from mlgokit.corpus.corpus import Corpus, ModuleFailure
from mlgokit.corpus.identity import (
    Contents,
    Kinship,
    describe_corpus,
    drop_copies,
    duplicate_groups,
    kinships,
    leaks,
)
from mlgokit.corpus.options.override import parse_override
from mlgokit.corpus.split import group_by_project
from mlgokit.module import Module

_EXAMPLES = 3
_PARTICULARS = (
    (re.compile(r"'[^']*'|\"[^\"]*\""), "'...'"),
    (re.compile(r"^(?:<[^>]*>|[^\s:]+):\d+:(?:\d+:)? "), ""),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "..."),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
)
"""Parts that differ between equal reasons: quoted names, source positions, digests, numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInfo:
    """One project's part of a corpus; times, and sizes of code, are of modules for which they are known.

    Attributes:
        held_out: whether some of its modules are held out.
        copies: number of modules that training skips as copies of others.
        text_bytes: size of the code under plain ``-Oz``.
        functions: number of functions with a body, in modules that were described, as are the next three.
        call_sites: number of calls, without intrinsics.
        decidable_call_sites: number of these calls that an inliner can decide.
        instructions: number of instructions before any pass.
        failures: number of sources that gave no module, or none that can be used.
    """

    name: str
    languages: tuple[str, ...]
    held_out: bool
    modules: int
    held_out_modules: int
    copies: int
    bitcode_bytes: int
    text_bytes: int
    functions: int
    call_sites: int
    decidable_call_sites: int
    instructions: int
    front_end_seconds: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedReason:
    """A reason for which sources or modules were left out, with their number, and the first few with their own reasons.

    In the ``reason``, names, numbers and positions are replaced by dots and ``N``.
    """

    reason: str
    count: int
    examples: tuple[ModuleFailure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusInfo:
    """A summary of a corpus.

    Attributes:
        modules: number of modules that can be used.
        languages: number of modules by language.
        described: number of modules that the compiler described; the next four counts are of these, as in
            :class:`ProjectInfo`.
        has_thinlto: whether each module has its part of a ThinLTO index.
        has_override: whether one command line serves all modules.
        translated: the ``-cc1`` options that such a command line means, if it is a compiler driver's.
        projects: the projects, in the order in which they first appear.
        failures: sources that gave no module.
        missing: modules that the description names, but that cannot be used.
        damaged: modules whose bitcode is not bitcode, or has changed since it was extracted.
        undescribed: other modules that the compiler could not read, for example those of a newer one.
        skipped: failures, missing, damaged and undescribed modules by reason, the most frequent first.
        duplicates: groups of module names with the same bitcode.
        same_content: groups of module names that are the same but for names, paths and debug information.
        leaks: training modules with a held-out copy; training skips them.
        kinships: projects on both sides of the split that share many functions.
    """

    folder: Path
    modules: int
    bitcode_bytes: int
    languages: Mapping[str, int]
    described: int
    functions: int
    call_sites: int
    decidable_call_sites: int
    instructions: int
    has_thinlto: bool
    has_override: bool
    translated: tuple[str, ...]
    projects: tuple[ProjectInfo, ...]
    failures: tuple[ModuleFailure, ...]
    missing: tuple[ModuleFailure, ...]
    damaged: tuple[ModuleFailure, ...]
    undescribed: tuple[ModuleFailure, ...]
    skipped: tuple[SkippedReason, ...]
    duplicates: tuple[tuple[str, ...], ...]
    same_content: tuple[tuple[str, ...], ...]
    leaks: tuple[str, ...]
    kinships: tuple[Kinship, ...]

    def to_json(self) -> dict[str, Any]:
        """Convert the summary to plain JSON values."""
        return {**asdict(self), "folder": str(self.folder)}


def corpus_info(corpus: Corpus, contents: Contents | None = None) -> CorpusInfo:
    """Summarize all modules of a corpus.

    Without the ``contents`` from :func:`mlgokit.corpus.identity.describe_corpus`, all bitcode is digested here, and
    counts are known only of modules that were described before.
    """
    if contents is None:
        contents = describe_corpus(corpus.folder, corpus.modules, toolchain=None, plugin=None)
    damaged = tuple(
        ModuleFailure(name=module.name, project=module.project, reason=reason)
        for module in corpus.modules
        if (reason := _why_damaged(module, contents.digests.get(module.name))) is not None
    )
    broken = {failure.name for failure in damaged}
    undescribed = tuple(failure for failure in contents.failures if failure.name not in broken)
    failed = (*corpus.failures, *corpus.missing)
    grouped = group_by_project(corpus.modules)
    failures = Counter(failure.project for failure in failed)
    trained_on = {module.name for module in drop_copies(corpus.modules, contents)}
    projects = tuple(
        _project_info(name, grouped.get(name, []), contents, trained_on=trained_on, failures=failures[name])
        for name in dict.fromkeys([*grouped, *(failure.project for failure in failed)])
    )
    return CorpusInfo(
        folder=corpus.folder,
        modules=len(corpus.modules),
        bitcode_bytes=sum(module.bitcode_bytes for module in corpus.modules),
        languages=dict(Counter(module.language for module in corpus.modules).most_common()),
        described=sum(module.name in contents.by_name for module in corpus.modules),
        functions=sum(project.functions for project in projects),
        call_sites=sum(project.call_sites for project in projects),
        decidable_call_sites=sum(project.decidable_call_sites for project in projects),
        instructions=sum(project.instructions for project in projects),
        has_thinlto=corpus.has_thinlto,
        has_override=corpus.override is not None,
        translated=_translate(corpus.override or (), folder=corpus.folder),
        projects=projects,
        failures=corpus.failures,
        missing=corpus.missing,
        damaged=damaged,
        undescribed=undescribed,
        skipped=group_reasons((*failed, *damaged, *undescribed)),
        duplicates=duplicate_groups(corpus.modules, contents, exact=True),
        same_content=duplicate_groups(corpus.modules, contents, exact=False),
        leaks=leaks(corpus.modules, contents),
        kinships=kinships(corpus.modules, contents),
    )


def group_reasons(failures: Iterable[ModuleFailure]) -> tuple[SkippedReason, ...]:
    """Group failures by what their reasons have in common, the most frequent first.

    Example:
        >>> group_reasons([ModuleFailure(name="a", project="p", reason="a.c:1:2: fatal error: 'x.h' file not found")])[
        ...     0
        ... ].reason
        "fatal error: '...' file not found"
    """
    groups: defaultdict[str, list[ModuleFailure]] = defaultdict(list)
    for failure in failures:
        reason = failure.reason
        for pattern, replacement in _PARTICULARS:
            reason = pattern.sub(replacement, reason)
        groups[reason].append(failure)
    return tuple(
        SkippedReason(reason=reason, count=len(group), examples=tuple(group[:_EXAMPLES]))
        for reason, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    )


def _why_damaged(module: Module, digest: str | None) -> str | None:
    try:
        with module.bitcode.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if magic not in BITCODE:
        return f"expected bitcode, which begins with 42 43 c0 de, found {magic.hex(' ')}"
    if digest is not None and module.bitcode_sha256 not in {None, digest}:
        return f"expected SHA-256 {module.bitcode_sha256}, found {digest}"
    return None


def _translate(override: tuple[str, ...], *, folder: Path) -> tuple[str, ...]:
    """Parse a corpus's overriding command line to ``-cc1`` options; empty if these are the same words."""
    compiled = parse_override(override, where=str(folder)) if override else ()
    return () if compiled in {override, ("-cc1", *override)} else compiled


def _project_info(
    name: str, modules: Sequence[Module], contents: Contents, *, trained_on: set[str], failures: int
) -> ProjectInfo:
    known = [content for module in modules if (content := contents.by_name.get(module.name)) is not None]
    held_out = sum(module.held_out for module in modules)
    return ProjectInfo(
        name=name,
        languages=tuple(sorted({module.language for module in modules})),
        held_out=held_out > 0,
        modules=len(modules),
        held_out_modules=held_out,
        copies=len(modules) - held_out - sum(module.name in trained_on for module in modules),
        bitcode_bytes=sum(module.bitcode_bytes for module in modules),
        text_bytes=sum(module.text_bytes or 0 for module in modules),
        functions=sum(content.functions for content in known),
        call_sites=sum(content.call_sites for content in known),
        decidable_call_sites=sum(content.decidable_call_sites for content in known),
        instructions=sum(content.instructions for content in known),
        front_end_seconds=sum(module.front_end_seconds or 0.0 for module in modules),
        failures=failures,
    )

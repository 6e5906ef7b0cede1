"""Duplicate modules: the contents of a corpus, groups of copies, and copies on both sides of the split."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.describe import DESCRIBE_SECONDS, describe_module
from mlgokit.compiler.inputs import module_facts
from mlgokit.compiler.pool import map_in_order
from mlgokit.compiler.sandbox import Sandbox
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.content import ModuleContent, append_contents, content_of, read_contents
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.errors import CorpusError, StorageError
from mlgokit.files import digest_cached, digest_file
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

LEAST_SHARED = 0.2
"""Minimum share of a project's own functions in another project for which the pair is reported."""

_LEAST_FUNCTIONS = 5
"""Minimum number of common functions in the quarter that is compared; with fewer, the estimate is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """SHA-256 of the bitcode of a corpus's modules that could be read, and contents of those that were described.

    ``failures`` are modules that the compiler could not read, or that could not be read at all.
    """

    digests: Mapping[str, str]
    by_name: Mapping[str, ModuleContent]
    failures: tuple[ModuleFailure, ...] = ()

    def keys(self, module: Module) -> frozenset[str]:
        """List the keys by which copies are recognized: the digest of the bitcode, and the identity if it is known."""
        digest = self.digests.get(module.name, module.bitcode_sha256)
        content = self.by_name.get(module.name)
        return frozenset(key for key in (digest, content.identity if content else None) if key)

    def is_trivial(self, module: Module) -> bool:
        """Whether copies of the module do not matter; ``False`` if its content is not known."""
        content = self.by_name.get(module.name)
        return content is not None and content.trivial


NOTHING_KNOWN = Contents(digests={}, by_name={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinship:
    """A held-out and a training project, and the estimated share of the smaller one's functions that both have."""

    held_out: str
    training: str
    shared: float


def known_contents(folder: Path, modules: Sequence[Module]) -> Contents:
    """Read what an earlier :func:`describe_corpus` cached, by the digest of the present bitcode."""
    remembered = read_contents(folder)
    digests = {module.name: digest for module in modules if (digest := _digest_of(module))}
    return Contents(
        digests=digests,
        by_name={name: content for name, digest in digests.items() if (content := remembered.get(digest))},
    )


def digest_modules(modules: Sequence[Module]) -> str:
    """Digest all modules by content; modules with unreadable files are left out, as they will not compile."""
    facts: dict[str, object] = {}
    for module in modules:
        with contextlib.suppress(OSError):
            facts[module.name] = module_facts(module)
    return digest_value(facts)


def _digest_of(module: Module) -> str | None:
    """Digest a module's bitcode by SHA-256; if the file cannot be read, return the digest in the sidecar."""
    try:
        return digest_cached(module.bitcode)
    except OSError:
        return module.bitcode_sha256


def describe_corpus(
    folder: Path,
    modules: Sequence[Module],
    *,
    toolchain: Toolchain | None,
    plugin: Path | None,
    workers: int = 1,
    timeout_seconds: float = DESCRIBE_SECONDS,
    sandbox: Sandbox | None = None,
    report: Report = say_nothing,
) -> Contents:
    """Digest every module, and let the compiler describe those whose content is not cached in the corpus's folder.

    Without a toolchain, whose clang reads the modules with the ``plugin``, there are digests only. ``report`` is called
    after every module, once one was described.
    """
    remembered = read_contents(folder, major=None if toolchain is None else toolchain.major)
    # One thread describes a digest while others wait for it.
    locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
    writing, is_new = threading.Lock(), threading.Event()

    def describe(module: Module) -> tuple[str, ModuleContent | None, str]:
        """Return the digest of a module, its content unless it was not described, and why it could not be read."""
        try:
            digest = digest_file(module.bitcode)
        except OSError as error:
            return "", None, f"cannot be read: {error.strerror or error}"
        with locks[digest]:
            content = remembered.get(digest)
            if content is not None or toolchain is None or plugin is None:
                return digest, content, ""
            description = describe_module(
                toolchain,
                plugin,
                module.bitcode,
                command_line=module.command_line,
                allowed_options=module.allowed_options,
                timeout_seconds=timeout_seconds,
                sandbox=sandbox,
            )
            if description.reason:
                return digest, None, description.reason
            content = remembered[digest] = content_of(description, bitcode_sha256=digest)
            # At once, so that what was described before an interrupt is not described again; a corpus may be read-only.
            with writing, contextlib.suppress(StorageError):
                append_contents(folder, [content])
            is_new.set()
            return digest, content, ""

    digests: dict[str, str] = {}
    by_name: dict[str, ModuleContent] = {}
    failures: list[ModuleFailure] = []
    with contextlib.closing(map_in_order(describe, modules, workers=workers)) as results:
        for done, (module, (digest, content, reason)) in enumerate(zip(modules, results, strict=True), 1):
            if digest:
                digests[module.name] = digest
            if content is not None:
                by_name[module.name] = content
            if reason:
                failures.append(ModuleFailure(name=module.name, project=module.project, reason=reason))
            if is_new.is_set():
                report(done, len(modules), "describe")
    return Contents(digests=digests, by_name=by_name, failures=tuple(failures))


def duplicate_groups(modules: Iterable[Module], contents: Contents, *, exact: bool) -> tuple[tuple[str, ...], ...]:
    """Group module names by bitcode if ``exact``, else by identity without trivial modules."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        if exact:
            digest = contents.digests.get(module.name)
            if digest is not None:
                names[digest].append(module.name)
        elif (content := contents.by_name.get(module.name)) is not None and not content.trivial:
            names[content.identity].append(module.name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def drop_copies(modules: Sequence[Module], contents: Contents = NOTHING_KNOWN) -> list[Module]:
    """Drop held-out modules, and copies of held-out or earlier modules.

    A copy has the same bitcode or the same identity. Of two projects that share a module, the held-out one keeps it.
    """
    seen = {key for module in modules if module.held_out for key in contents.keys(module)}
    chosen: list[Module] = []
    for module in modules:
        keys = contents.keys(module)
        if not module.held_out and seen.isdisjoint(keys):
            chosen.append(module)
            seen |= keys
    return chosen


def training_modules(modules: Sequence[Module], contents: Contents = NOTHING_KNOWN) -> list[Module]:
    """Select the modules to train on, by :func:`drop_copies`; at least one.

    Raises:
        CorpusError: no module is left.
    """
    chosen = drop_copies(modules, contents)
    if not chosen:
        raise CorpusError(
            f"training: expected at least one of {len(modules)} modules not to be held out, found none; "
            "add training projects to the corpus"
        )
    return chosen


def leaks(modules: Sequence[Module], contents: Contents) -> tuple[str, ...]:
    """Find training modules with a held-out copy, except for trivial ones; training skips them."""
    seen = {key for module in modules if module.held_out for key in contents.keys(module)}
    return tuple(
        module.name
        for module in modules
        if not module.held_out and not contents.is_trivial(module) and not seen.isdisjoint(contents.keys(module))
    )


def kinships(modules: Sequence[Module], contents: Contents) -> tuple[Kinship, ...]:
    """Find pairs of a held-out and a training project that share many of their own functions, the closest first.

    Copies of whole modules do not count, since training skips them. A vendored library with small changes is a problem
    that only the user can solve.
    """
    sides: dict[bool, defaultdict[str, set[str]]] = {True: defaultdict(set), False: defaultdict(set)}
    trained_on = {module.name for module in drop_copies(modules, contents)}
    for module in modules:
        content = contents.by_name.get(module.name)
        if content is not None and (module.held_out or module.name in trained_on):
            sides[module.held_out][module.project].update(content.own_functions)
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for project, functions in sides[False].items():
        for function in functions:
            owners[function].append(project)
    pairs: list[Kinship] = []
    for project, functions in sides[True].items():
        common: defaultdict[str, int] = defaultdict(int)
        for function in functions:
            for other in owners.get(function, ()):
                common[other] += 1
        for other, count in common.items():
            shared = count / min(len(functions), len(sides[False][other]))
            if count >= _LEAST_FUNCTIONS and shared >= LEAST_SHARED and other != project:
                pairs.append(Kinship(held_out=project, training=other, shared=shared))
    return tuple(sorted(pairs, key=lambda kinship: (-kinship.shared, kinship.held_out, kinship.training)))

"""The split of a corpus into training and held-out modules: by project, without leaks, stable when the corpus grows.

Whether a project is held out depends on its name, the seed and the share alone: adding projects moves none. A corpus of
one project is split by module, by identity, so that copies stay together. An assignment by the user, by a list of
projects or by name, is left alone. The split does not care for copies of a module on both sides, since training skips
them (:func:`mlgokit.corpus.identity.drop_copies`).
"""

import enum
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mlgokit.corpus.corpus import Corpus, read_sidecar, write_sidecar
from mlgokit.corpus.identity import Contents, Kinship, drop_copies, kinships, leaks
from mlgokit.corpus.layout import default_project
from mlgokit.errors import UsageError
from mlgokit.locks import locked
from mlgokit.module import Module

LISTED = "listed"

_LEAST_HELD_OUT = 4
"""Expected number of held-out projects below which a note is given."""


class SplitBy(enum.Enum):
    """The unit of the split."""

    AUTO = "auto"
    PROJECT = "project"
    MODULE = "module"


class ProjectsBy(enum.Enum):
    """What counts as a project."""

    AUTO = "auto"
    BUILD = "build"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSplit:
    """The numbers of one project's modules after the split; training skips copies of held-out and of earlier ones.

    They were assigned ``by`` being ``listed`` by name, or by a hash of the ``project`` or ``module``.
    """

    name: str
    by: str
    training: int
    copies: int
    held_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """A split corpus, with its projects in the order in which they first appear.

    ``leaks`` are training modules with a held-out copy, which training skips, and ``kinships`` projects on both sides
    that share many functions. ``notes`` are sentences for the user.
    """

    folder: Path
    share: float
    seed: int
    projects: tuple[ProjectSplit, ...]
    leaks: tuple[str, ...]
    kinships: tuple[Kinship, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Convert the result to plain JSON values."""
        return {**asdict(self), "folder": str(self.folder)}


def position(key: str, *, seed: int) -> float:
    """Map a name to a number from 0 to 1; it is held out if the number is below the share."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def choose_held_out(
    keys: Iterable[str], *, share: float, seed: int, kept: Mapping[str, bool] | None = None
) -> frozenset[str]:
    """Choose the held-out keys by :func:`position`; for those in ``kept``, the earlier choice stays.

    If none of several would be held out, the one with the lowest position is, and if all would be, the one with the
    highest is not. This depends on the set of keys, so that earlier choices must be passed as ``kept``.

    Example:
        >>> sorted(choose_held_out(["a", "b", "c"], share=0.01, seed=1))
        ['a']
    """
    kept = kept or {}
    places = {key: position(key, seed=seed) for key in keys}
    chosen = {key for key, point in places.items() if kept.get(key, point < share)}
    undecided = {key: point for key, point in places.items() if key not in kept}
    if len(places) > 1 and undecided:
        if not chosen:
            chosen.add(min(undecided, key=undecided.__getitem__))
        elif len(chosen) == len(places):
            chosen.discard(max(undecided, key=undecided.__getitem__))
    return frozenset(chosen)


def split_corpus(
    corpus: Corpus,
    contents: Contents,
    *,
    share: float = 0.2,
    seed: int = 1,
    by: SplitBy = SplitBy.AUTO,
    projects_by: ProjectsBy = ProjectsBy.AUTO,
    held_out: Collection[str] = (),
    force: bool = False,
) -> tuple[SplitResult, Corpus]:
    """Split a corpus, and write ``held_out`` into its sidecar; return the result, and the corpus with the new flags.

    A share of the projects, or of the modules of a single project, is held out, by a hash of their names with the seed:
    ``by`` whole projects, or modules; ``AUTO`` takes modules only if there is one project. Projects that are named in
    ``held_out``, and no others, are held out whatever was assigned before; else assignments by name, or those that came
    with the corpus, are replaced only with ``force``.

    By ``projects_by``, ``BUILD`` makes all modules one project, ``FOLDER`` one of each first folder of their names, and
    earlier assignments by a hash count no more; ``AUTO`` takes the projects that the corpus has.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: the sidecar is malformed.
        StorageError: the disk is full or not writable.
        UsageError: a name is unknown, the share is outside 0 to 1, or an assignment by name would have to be replaced.
    """
    if not 0 < share < 1:
        raise UsageError(f"split: share: expected a number between 0 and 1, found {share:g}; give another --share")
    corpus = replace(corpus, modules=_regroup(corpus, projects_by))
    projects = list(dict.fromkeys(module.project for module in corpus.modules))
    unknown = sorted(set(held_out) - set(projects))
    if unknown:
        raise UsageError(
            f"split: expected names of projects in {corpus.folder}, found {', '.join(unknown)}; it has "
            f"{', '.join(sorted(projects))}"
        )
    with locked(corpus.folder, make=False):
        facts, failures = read_sidecar(corpus.folder)
        if not force and not held_out:
            _check_replaceable(corpus)
        notes: list[str] = []
        if held_out:
            assignments = {module.name: (module.project in held_out, LISTED) for module in corpus.modules}
        else:
            anew = force or projects_by is not ProjectsBy.AUTO
            assignments, notes = _assign_by_hash(corpus.modules, contents, share=share, seed=seed, by=by, force=anew)
        modules = tuple(
            replace(module, held_out=held_out, split=mark)
            for module in corpus.modules
            for held_out, mark in [assignments[module.name]]
        )
        for module in modules:
            fact = facts.setdefault(module.name, {"language": module.language})
            fact["project"] = module.project
            fact["held_out"], fact["split"] = assignments[module.name]
        write_sidecar(corpus.folder, facts, failures)
        result = SplitResult(
            folder=corpus.folder,
            share=share,
            seed=seed,
            projects=tuple(_count_projects(modules, contents)),
            leaks=leaks(modules, contents),
            kinships=kinships(modules, contents),
            notes=tuple(notes),
        )
        return result, replace(corpus, modules=modules)


def _count_projects(modules: Sequence[Module], contents: Contents) -> Iterator[ProjectSplit]:
    trained_on = {module.name for module in drop_copies(modules, contents)}
    for name, own in group_by_project(modules).items():
        training = sum(module.name in trained_on for module in own)
        out = sum(module.held_out for module in own)
        by = (own[0].split or "").partition(" ")[0]
        yield ProjectSplit(name=name, by=by, training=training, copies=len(own) - training - out, held_out=out)


def group_by_project(modules: Iterable[Module]) -> dict[str, list[Module]]:
    """Group modules by project, in the order in which projects first appear."""
    projects: dict[str, list[Module]] = {}
    for module in modules:
        projects.setdefault(module.project, []).append(module)
    return projects


def _regroup(corpus: Corpus, projects_by: ProjectsBy) -> tuple[Module, ...]:
    match projects_by:
        case ProjectsBy.AUTO:
            return corpus.modules
        case ProjectsBy.BUILD:
            project = default_project(corpus.folder)
            return tuple(replace(module, project=project) for module in corpus.modules)
        case ProjectsBy.FOLDER:
            return tuple(replace(module, project=module.name.split("/", maxsplit=1)[0]) for module in corpus.modules)


def _check_replaceable(corpus: Corpus) -> None:
    """Refuse to replace an assignment that was not made by a hash."""
    for module in corpus.modules:
        if module.split == LISTED or (module.split is None and module.held_out):
            who = "--held-out" if module.split == LISTED else "the list of projects"
            raise UsageError(
                f"{corpus.folder}: the corpus already has a split by name ({module.project} by {who}); keep it, "
                "or replace it with --force"
            )


def _assign_by_hash(
    modules: Sequence[Module],
    contents: Contents,
    *,
    share: float,
    seed: int,
    by: SplitBy,
    force: bool,
) -> tuple[dict[str, tuple[bool, str]], list[str]]:
    """Assign modules by a hash: whether each is held out with its mark for the sidecar, and notes for the user."""
    marks = {way: f"{way.value} seed={seed} share={share:g}" for way in (SplitBy.PROJECT, SplitBy.MODULE)}
    earlier: Sequence[Module] = () if force else modules
    by_project = [module for module in earlier if module.split == marks[SplitBy.PROJECT]]
    by_module = [module for module in earlier if module.split == marks[SplitBy.MODULE]]
    projects = list(dict.fromkeys(module.project for module in modules))
    # A project that was alone once keeps its split by module when others join it.
    inner = {module.project for module in by_module}
    if by is SplitBy.MODULE or (by is SplitBy.AUTO and len(projects) == 1 and not by_project):
        inner = set(projects)
    elif by is SplitBy.PROJECT:
        inner = set[str]()
    kept = {module.project: module.held_out for module in by_project}
    outer = [project for project in projects if project not in inner]
    chosen = choose_held_out(outer, share=share, seed=seed, kept=kept)
    groups = {module.name: _group(module, contents) for module in modules if module.project in inner}
    kept_groups = {groups[module.name]: module.held_out for module in by_module if module.name in groups}
    chosen_groups = choose_held_out(dict.fromkeys(groups.values()), share=share, seed=seed, kept=kept_groups)
    assignments = {
        module.name: (
            (groups[module.name] in chosen_groups, marks[SplitBy.MODULE])
            if module.name in groups
            else (module.project in chosen, marks[SplitBy.PROJECT])
        )
        for module in modules
    }
    notes: list[str] = []
    if not any(side for side, _ in assignments.values()):
        notes.append(
            "Nothing is held out: there are too few projects or modules to split, or all were assigned "
            "before; see --force."
        )
    if inner:
        notes.append(
            f"{', '.join(sorted(inner))}: split by module, so results show how a policy does on unseen modules of "
            "the same project, not on other projects."
        )
    if 1 < len(outer) < _LEAST_HELD_OUT / share:
        notes.append(
            f"Of {len(outer)} projects {len(chosen)} {'is' if len(chosen) == 1 else 'are'} held out: "
            "a hash meets the share only with many projects; name some with --held-out to choose."
        )
    return assignments, notes


def _group(module: Module, contents: Contents) -> str:
    """Make a key that copies of a module have in common: its identity, or the digest of a trivial or unknown module."""
    content = contents.by_name.get(module.name)
    if content is not None and not content.trivial:
        return content.identity
    return contents.digests.get(module.name) or module.bitcode_sha256 or module.name

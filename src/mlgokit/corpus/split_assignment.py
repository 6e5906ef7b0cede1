"""What was decided about the split of a corpus, so that making the corpus again does not lose it."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from mlgokit.corpus.json_stream import iter_members
from mlgokit.corpus.layout import SIDECAR_NAME
from mlgokit.errors import CorpusError

BY_MODULE = "module "
"""How the marks begin of decisions that say nothing about other modules of the project."""


class SplitAssignment(NamedTuple):
    """Which side a module is on, and who said so: see ``split`` in ``corpus_modules.json``."""

    held_out: bool
    split: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAssignments:
    """What a corpus's sidecar says of its modules.

    Attributes:
        by_name: of modules that are held out, or whose side was decided.
        by_project: of projects all of whose decided modules have the same decision, made about the project.
    """

    by_name: Mapping[str, SplitAssignment]
    by_project: Mapping[str, SplitAssignment]

    def of(self, name: str, project: object) -> SplitAssignment | None:
        """The split's decision about a module that is made again, or joins a project that was split."""
        assignment = self.by_name.get(name)
        if assignment is not None and assignment.split is not None:
            return assignment
        return self.by_project.get(project) if isinstance(project, str) else None

    def facts(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """A sidecar's entry with the decision in it, if there is one."""
        assignment = self.of(name, facts.get("project"))
        return dict(facts) if assignment is None else {**facts, **assignment._asdict()}


NOTHING_ASSIGNED = SplitAssignments(by_name={}, by_project={})


def assignments_in(modules: Iterable[tuple[str, Mapping[str, Any]]]) -> SplitAssignments:
    """The decisions among the entries of a sidecar.

    Example:
        >>> found = assignments_in([("p/a.o", {"project": "p", "held_out": True, "split": "listed"})])
        >>> found.of("p/b.o", "p"), found.of("q/a.o", "q")
        (SplitAssignment(held_out=True, split='listed'), None)
    """
    by_name: dict[str, SplitAssignment] = {}
    by_project: dict[str, SplitAssignment | None] = {}
    same: dict[SplitAssignment, SplitAssignment] = {}
    for name, facts in modules:
        mark, held_out, project = facts.get("split"), facts.get("held_out"), facts.get("project")
        if not isinstance(held_out, bool) or not isinstance(mark, str | None) or (mark is None and not held_out):
            continue
        decision = SplitAssignment(held_out=held_out, split=mark)
        decision = by_name[name] = same.setdefault(decision, decision)
        if mark is not None and isinstance(project, str):
            known = by_project.setdefault(project, None if mark.startswith(BY_MODULE) else decision)
            by_project[project] = decision if known == decision else None
    return SplitAssignments(by_name=by_name, by_project={name: value for name, value in by_project.items() if value})


def earlier_assignments(folder: Path) -> SplitAssignments:
    """The decisions in a corpus that is going to be replaced; none if it has no sidecar or a bad one."""
    path = folder / SIDECAR_NAME
    if path.exists():
        with contextlib.suppress(CorpusError):
            pieces = iter_members(path, "modules", remedy="import again")
            return assignments_in(
                (name, cast("dict[str, Any]", facts)) for name, facts in pieces if isinstance(facts, dict)
            )
    return NOTHING_ASSIGNED

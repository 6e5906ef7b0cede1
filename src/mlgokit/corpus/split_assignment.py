"""Assignments of modules to the sides of a corpus's split, so that making the corpus again does not lose them."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from mlgokit.corpus.json_stream import iter_members
from mlgokit.corpus.layout import SIDECAR_NAME
from mlgokit.errors import CorpusError

BY_MODULE = "module "
"""Beginning of the marks of assignments by module, which say nothing about other modules of the project."""


class SplitAssignment(NamedTuple):
    """Whether a module is held out, and how that was assigned: see ``split`` in ``corpus_modules.json``."""

    held_out: bool
    split: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAssignments:
    """The assignments in a corpus's sidecar.

    Attributes:
        by_name: assignment by module name, for modules that are held out or have a mark.
        by_project: assignment by project, for projects that were assigned as a whole, all modules alike.
    """

    by_name: Mapping[str, SplitAssignment]
    by_project: Mapping[str, SplitAssignment]

    def of(self, name: str, project: object) -> SplitAssignment | None:
        """Find the assignment of a module that is made again, or that is new in an assigned project, or ``None``."""
        assignment = self.by_name.get(name)
        if assignment is not None and assignment.split is not None:
            return assignment
        return self.by_project.get(project) if isinstance(project, str) else None

    def add_to(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Add a module's assignment, if it has one, to its entry of the sidecar."""
        assignment = self.of(name, facts.get("project"))
        return dict(facts) if assignment is None else {**facts, **assignment._asdict()}


NOTHING_ASSIGNED = SplitAssignments(by_name={}, by_project={})


def assignments_in(modules: Iterable[tuple[str, Mapping[str, Any]]]) -> SplitAssignments:
    """Collect the assignments from the entries of a sidecar.

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
        assigned = SplitAssignment(held_out=held_out, split=mark)
        # One value for all that are equal, to save memory.
        assigned = by_name[name] = same.setdefault(assigned, assigned)
        if mark is not None and isinstance(project, str):
            known = by_project.setdefault(project, None if mark.startswith(BY_MODULE) else assigned)
            by_project[project] = assigned if known == assigned else None
    return SplitAssignments(by_name=by_name, by_project={name: value for name, value in by_project.items() if value})


def earlier_assignments(folder: Path) -> SplitAssignments:
    """Read which modules of a corpus are held out, before it is replaced; none if it has no sound sidecar."""
    with contextlib.suppress(CorpusError):
        pieces = iter_members(folder / SIDECAR_NAME, "modules", remedy="import again")
        return assignments_in(
            (name, cast("dict[str, Any]", facts)) for name, facts in pieces if isinstance(facts, dict)
        )
    return NOTHING_ASSIGNED

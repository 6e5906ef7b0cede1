"""Search by composed builds: one compilation tries many independent moves; those that pay are kept without another.

A move changes some functions of a module: a decision of the inliner, or a pass that is left out. Moves that cannot
change the same function are made together, and credit assignment tells which components of them pay
(:mod:`mlgokit.algorithms.credit`). With the moves of some components only, a function is as in the explored build where
these components reach it, and as in the base where the others do. So the build with the kept moves is composed of both
(:func:`compose`), and the next step goes on from there; ``docs/scores.md`` says what that misses. After some steps, and
before a search pauses, the composed build is compiled. Only builds that were compiled are in the account.

Several steps of one module may be under way: each claims its moves (:class:`Climb`), and a step that ends is joined
with what the others found meanwhile, component by component.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, ScoredBuild, attribute, function_ids
from mlgokit.algorithms.search import functions_as_before, judge
from mlgokit.compiler.compilation import Compilation, InlineDecisions
from mlgokit.compiler.live import mark_live
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.objects.object_file import References, SectionTotals, is_outlined

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
MoveT = TypeVar("MoveT", bound=Hashable)
StepT = TypeVar("StepT")

_WORTH_A_PASS = 5e-4
"""A pass over all moves that saves less than this share of a module is the last one, unless a restart saves more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Climb(Generic[MoveT]):
    """The state of the search over one module's moves: which steps have claimed them, and the pass over all of them.

    Attributes:
        most_composed: number of steps with gains after which the composed build is compiled.
        composed_steps: number of steps with gains in the composed build; 0 if the current build was compiled.
        claimed: moves of the steps under way.
        is_confirming: whether a step under way compiles the composed build.
        ends_pass: whether a step under way ends the pass; no other step runs beside it.
        pass_from: the build with which the present pass over all moves began; ``None`` before the first.
        passes: number of passes that saved enough for another one.
        exhausted: whether every move was tried since the last gain.
        rate: bytes saved per second of processor time lately; infinite before the first step.
    """

    most_composed: int
    composed_steps: int = 0
    claimed: set[MoveT] = field(default_factory=set[MoveT])
    is_confirming: bool = False
    ends_pass: bool = False
    pass_from: Compilation | None = None
    passes: int = 0
    exhausted: bool = False
    rate: float = math.inf

    @property
    def is_due(self) -> bool:
        """Whether it is time to compile the composed build."""
        return self.composed_steps >= self.most_composed

    def next_step(
        self,
        choose: Callable[[], tuple[frozenset[MoveT], Callable[[], StepT]]],
        confirm: Callable[[], StepT],
    ) -> Callable[[], StepT] | None:
        """Claim the moves of the next step, and return its work; ``None`` if all moves that are left are claimed.

        Args:
            choose: chooses moves that are not claimed, none if nothing is left to try, and returns the work that tries
                them too.
            confirm: work that compiles the composed build, if there is one; without one it only ends the pass.
        """
        if self.is_due and not self.is_confirming:
            self.is_confirming = True
            return confirm
        moves, work = choose()
        if moves:
            self.claimed |= moves
            return work
        if self.claimed or self.is_confirming:
            return None
        self.ends_pass = True
        return confirm

    def release(self, moves: frozenset[MoveT], *, is_confirmation: bool) -> None:
        """Release the moves that an ended step had claimed."""
        self.claimed -= moves
        if is_confirmation:
            self.is_confirming = self.ends_pass = False

    def end_pass(self, build: Compilation, *, before: float, now: float) -> bool:
        """Begin another pass over the moves if the last one saved enough; return whether it did.

        Args:
            build: the best build of the module.
            before: bytes of the module when the pass began.
            now: bytes of the module now.
        """
        self.exhausted = now >= before - _WORTH_A_PASS * abs(before)
        if self.exhausted:
            return False
        self.pass_from = build
        self.passes += 1
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The change in bytes of each component of the flips in which a build differs from its base; N flips.

    Attributes:
        base: the scored base.
        explored: the scored build with the flips.
        credit: changes in bytes by component.
        kept: [N] whether the flip's component is smaller, so that the flip is kept.
        gain: bytes that the kept components save.
    """

    base: ScoredBuild
    explored: ScoredBuild
    credit: Credit
    kept: Bools
    gain: float

    @property
    def all_kept(self) -> bool:
        """Whether all flips are kept."""
        return bool(self.kept.all())

    @property
    def any_kept(self) -> bool:
        """Whether some flips are kept."""
        return bool(self.kept.any())

    def as_before(self, *, by_default: bool = False) -> Ints:
        """Ids of the functions to take from the base, so that only the kept flips are made.

        Args:
            by_default: whether to take functions that no flip reaches from the base too; else they are as explored.
        """
        functions = functions_as_before(self.credit, self.kept)
        if not by_default:
            return functions
        taken = self.credit.reached[np.isin(self.credit.reached_by, self.credit.component[self.kept])]
        every = (self.base.functions, self.explored.functions, self.base.caller, self.explored.caller)
        return np.union1d(functions, np.setdiff1d(np.concatenate(every), taken))


def compare(
    base: ScoredBuild,
    explored: ScoredBuild,
    *,
    ties_consequences: bool = False,
    forbidden: Ints | None = None,
) -> Comparison:
    """Compare a build with its base, component by component.

    Args:
        base: the build without the moves.
        explored: the build with the moves, which are its flips.
        ties_consequences: the argument of :func:`~mlgokit.algorithms.credit.attribute`.
        forbidden: ids of functions that must stay as in the base; no component that reaches one is kept.
    """
    credit = attribute(base, explored, ties_consequences=ties_consequences)
    if forbidden is not None and len(forbidden):
        change = credit.change.copy()
        change[credit.reached_by[np.isin(credit.reached, forbidden)]] = np.inf
        credit = dataclasses.replace(credit, change=change)
    verdict = judge(credit)
    return Comparison(base=base, explored=explored, credit=credit, kept=verdict.kept, gain=verdict.gain)


_FUNCTION_COLUMNS = ("function_text", "function_rodata", "function_except_table", "function_eh_frame")


def compose(base: Compilation, explored: Compilation, as_before: Ints) -> Compilation:
    """Compose a build from the functions of an explored one, and some functions of its base.

    Decisions go with their callers. Bytes that belong to no function, nor to the COMDAT group of one, are those of the
    base.

    Args:
        base: compilation of the module, with decisions.
        explored: compilation of the module with some of these decisions flipped.
        as_before: ids of the functions to take from the base.
    """
    first, second = base.decisions, explored.decisions
    old, new = np.isin(first.caller, as_before), ~np.isin(second.caller, as_before)
    places = np.flatnonzero(old), np.flatnonzero(new)
    values = np.concatenate([first.values_at(places[0]), second.values_at(places[1])])

    def both(column: str) -> Any:
        return np.concatenate([getattr(first, column)[old], getattr(second, column)[new]])

    return dataclasses.replace(
        explored,
        sizes=_compose_sizes(base.measured, explored.measured, as_before),
        decisions=InlineDecisions(
            caller=both("caller"),
            callee=both("callee"),
            inlined=both("inlined"),
            flipped=both("flipped"),
            site=both("sites"),
            names=first.names,
            rows=np.arange(len(values)),
            values=values,
        ),
    )


def _compose_sizes(base: ObjectSizes, explored: ObjectSizes, as_before: Ints) -> ObjectSizes:
    """The sizes of the composed object; outlined functions, which are of no other function alone, are the base's."""
    old = np.isin(function_ids(base.function_names), as_before) | _outlined(base)
    new = ~np.isin(function_ids(explored.function_names), as_before) & ~_outlined(explored)
    functions = {
        name: np.concatenate([getattr(base, name)[old], getattr(explored, name)[new]]) for name in _FUNCTION_COLUMNS
    }
    run_cost = None
    if base.run_cost is not None and explored.run_cost is not None:
        run_cost = np.concatenate([base.run_cost[old], explored.run_cost[new]])
    owners = [*_owners(base, old), *_owners(explored, new)]
    # A group of functions comes and goes with them; one of data, such as a vtable, is taken from the base.
    data = set(base.signatures) - set(_owners(base, np.ones(len(old), bool)))
    signatures = tuple(dict.fromkeys((*(owner for owner in owners if owner), *sorted(data))))
    index_of = {signature: index for index, signature in enumerate(signatures)} | {"": -1}
    defined = {
        signature: (sizes, index) for sizes in (explored, base) for index, signature in enumerate(sizes.signatures)
    }
    definitions = [defined[signature] for signature in signatures]
    rest = np.array([sizes.signature_rest[index] for sizes, index in definitions], np.int64).reshape(-1, 3)
    written = np.array([sizes.signature_data[index] for sizes, index in definitions], np.int64)
    sums = [int(functions[name].sum()) for name in ("function_text", "function_rodata", "function_eh_frame")]
    text, rodata, eh_frame = (np.array(sums) + rest.sum(axis=0) + base.rest).tolist()
    composed = ObjectSizes(
        totals=SectionTotals(
            text=text,
            rodata=rodata,
            eh_frame=eh_frame,
            data=base.totals.data,
            bss=base.totals.bss,
            except_table=int(functions["function_except_table"].sum()),
        ),
        function_names=(*_names_at(base.function_names, old), *_names_at(explored.function_names, new)),
        **functions,
        function_signature=np.array([index_of[owner] for owner in owners], np.int64),
        signatures=signatures,
        signature_rest=rest,
        signature_data=written,
        rest=base.rest,
        references=_compose_references(base.references, explored.references, old, new),
        run_cost=run_cost,
    )
    return composed if base.live is None else mark_live(composed)


def _compose_references(
    base: References | None, explored: References | None, old: npt.NDArray[np.bool_], new: npt.NDArray[np.bool_]
) -> References | None:
    """What refers to the functions of the composed object; data are those of the base."""
    if base is None or explored is None:
        return None
    named = (itertools.compress(base.by_function, old), itertools.compress(explored.by_function, new))
    return dataclasses.replace(base, by_function=tuple(itertools.chain(*named)))


def _outlined(sizes: ObjectSizes) -> npt.NDArray[np.bool_]:
    return np.array([is_outlined(name) for name in sizes.function_names], bool)


def _names_at(names: tuple[str, ...], which: npt.NDArray[np.bool_]) -> list[str]:
    """The names where ``which`` is true."""
    return [names[index] for index in np.flatnonzero(which).tolist()]


def _owners(sizes: ObjectSizes, which: npt.NDArray[np.bool_]) -> list[str]:
    """The signatures of some functions; empty outside of groups."""
    signatures = (*sizes.signatures, "")
    return [signatures[index] for index in sizes.function_signature[which].tolist()]

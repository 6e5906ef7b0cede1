"""Compiles a learner's proposals, and assigns credit: which decision caused which change in score."""

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, attribute
from mlgokit.algorithms.learner import Actor, Experience, Floats, ForcedDecisions, Ints, Proposal, Task
from mlgokit.algorithms.search import independent_flips
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.pool import count_of, parallel
from mlgokit.compiler.regalloc_cost import OFFSET
from mlgokit.compiler.request import HEURISTIC
from mlgokit.errors import UsageError
from mlgokit.learning.baselines import Baselines, compile_once, policy_file
from mlgokit.learning.decision_batch import DecisionBatch, batch_of_flips, batch_of_log, compute_greedy_decisions
from mlgokit.policy.exploration import Exploration
from mlgokit.problems import INLINE_SIZE, Problem
from mlgokit.progress import Report, say_nothing
from mlgokit.spec import AdviceKind
from mlgokit.tables.decisions import find_flipped_keys, site_table, strong_names

MODULES_FOR_ROWS = 16
"""With at least so many modules per worker, one worker makes all compilations of a module.

The compiler then stays resident, but some workers are idle at the end of an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The results of compiling a learner's proposals.

    Attributes:
        experiences: experiences of the successful compilations, in the order of the proposals.
        rewards: [number of experiences] reward of each, as by :meth:`Baselines.reward`.
        failures: number of failed compilations by reason.
        user_seconds: processor time of the compilers, cached compilations included.
    """

    experiences: tuple[Experience, ...]
    rewards: Floats
    failures: dict[str, int]
    user_seconds: float


@dataclass(frozen=True, slots=True)
class _Item:
    """One requested compilation.

    Attributes:
        proposal: position of the proposal in the request.
        position: position of the compilation in the proposal.
        index: position of the module in the baselines.
    """

    proposal: int
    position: int
    index: int


def check_proposal(problem: Problem, proposal: Proposal) -> None:
    """Check that the plugin can follow a proposal that forces or draws decisions at single call sites.

    Raises:
        UsageError: the problem does not take decisions for single call sites, the plugin would flip forced decisions,
            or a base is missing.
    """
    flips = proposal.flip_probability
    if (proposal.forced or proposal.independent > 0) and not problem.takes_sites:
        raise UsageError(
            f"training: expected proposals of decisions for single call sites for {INLINE_SIZE.name} only, found one "
            f"for {problem.name}; propose a temperature or flip probabilities"
        )
    if proposal.forced and flips.any():
        raise UsageError(
            "training: expected a proposal of forced decisions or of random flips, found both (flip probabilities up "
            f"to {flips.max():g}); set the flip probabilities to 0"
        )
    if proposal.independent and (proposal.base is None or proposal.forced):
        raise UsageError(
            "training: expected a proposal that explores by independent moves to have a base and no forced decisions, "
            f"found {'no base' if proposal.base is None else 'forced decisions'}; set the base, and force nothing"
        )


def compile_proposals(
    baselines: Baselines,
    task: Task,
    training_indices: Sequence[int],
    proposals: Sequence[Proposal],
    *,
    report: Report = say_nothing,
) -> Collected:
    """Compile a learner's proposals, each after the compilation that it is based on.

    Args:
        baselines: the modules, compiled under the heuristic.
        task: task of the learner.
        training_indices: position in the baselines of each module of the task.
        proposals: proposals to compile.
        report: receives the progress.

    Raises:
        UsageError: :func:`check_proposal` refuses a proposal.
    """
    for proposal in proposals:
        check_proposal(baselines.problem, proposal)
    items = [
        _Item(number, position, training_indices[int(module)])
        for number, proposal in enumerate(proposals)
        for position, module in enumerate(proposal.modules)
    ]
    bases = _Bases(baselines)
    drawn: set[_Item] = set()
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as place:
        files = [
            policy_file(proposal.actor, Path(place), number, baselines.modules)
            for number, proposal in enumerate(proposals)
        ]

        def compile_item(item: _Item) -> Compilation:
            """Compile a proposal on one of its modules; if it explores by independent moves, draw flips of the base."""
            proposal = proposals[item.proposal]
            base = bases.find(proposal, item)
            given = proposal.forced[item.position] if proposal.forced else None
            if proposal.independent and base is not None and _is_addressable(base):
                given = _draw_flips(proposal, item, base, bases)
                drawn.add(item)
            return compile_once(
                baselines.compiler,
                baselines.modules[item.index],
                baselines.problem,
                files[item.proposal],
                Exploration() if item in drawn else _exploration(task, proposal, item.position),
                detail=proposal.detail,
                decisions=b"" if given is None else site_table(baselines.defaults[item.index], given),
                flips=None if given is None or base is None else find_flipped_keys(base.decisions, given),
            )

        runs = _compile_all(compile_item, items, proposals, bases, report=report)
    worked = [item for item in items if item in runs and runs[item].ok and runs[item].decision_count]
    distinct = _drop_repeats(worked, runs, drawn)
    failures = Counter(run.reason or run.status.value for run in runs.values() if not run.ok)
    return Collected(
        experiences=tuple(
            _make_experience(task, runs[item], proposals[item.proposal], item, bases) for item in distinct
        ),
        rewards=np.array([baselines.reward(item.index, runs[item]) for item in distinct]),
        failures=dict(failures),
        user_seconds=sum(run.user_seconds for run in runs.values()),
    )


def _draw_flips(proposal: Proposal, item: _Item, base: Compilation, bases: "_Bases") -> ForcedDecisions:
    """Draw flips of decisions of ``base``, no two of which can change the same function."""
    sites, seed = base.decisions.sites.view(np.int64), int(proposal.seeds[item.position])
    return independent_flips(bases.score(proposal, item), sites, most=proposal.independent, seed=seed)


def _compile_all(
    compile_item: Callable[[_Item], Compilation],
    items: Sequence[_Item],
    proposals: Sequence[Proposal],
    bases: "_Bases",
    *,
    report: Report,
) -> dict[_Item, Compilation]:
    """Compile all items, except those whose base failed; compilations that are bases are added to ``bases``."""
    compiler = bases.baselines.compiler
    finished: list[_Item] = []
    waits = [_needs_base(proposals[item.proposal]) for item in items]

    def compile_row(row: Sequence[int]) -> dict[_Item, Compilation]:
        """Compile the items at these positions one after the other, except those whose base failed."""
        done: dict[_Item, Compilation] = {}
        for position in row:
            item = items[position]
            if not waits[position] or _can_be_made(proposals[item.proposal], item, bases):
                done[item] = compile_item(item)
                if done[item].ok and not waits[position]:
                    bases.runs[item.proposal, item.index] = done[item]
            finished.append(item)
        return done

    def report_current(_done: int, _total: int, text: str) -> None:
        """Report the number of items that are done, in place of that of rows."""
        report(len(finished), len(items), text)

    runs: dict[_Item, Compilation] = {}
    for rows in group_into_rows([item.index for item in items], waits, workers=count_of(compiler)):
        for done in parallel(compile_row, rows, workers=compiler, report=report_current, label="compile"):
            runs |= done
    return runs


def group_into_rows(modules: Sequence[int], waits: Sequence[bool], *, workers: int) -> list[list[list[int]]]:
    """Schedule compilations: groups run one after the other, and each row of a group runs on one worker.

    Compilations that need a base come after the others. If there are many more modules than workers, all compilations
    of a module form one row, so that its compiler can stay resident.

    Args:
        modules: module of each compilation.
        waits: whether each compilation must wait for that of its base.
        workers: number of rows that run at once.

    Returns:
        Groups of rows of positions in ``modules``.

    Example:
        >>> group_into_rows([7, 8, 7, 8], [False, False, True, True], workers=2)
        [[[0], [1]], [[2], [3]]]
    """
    order = sorted(range(len(modules)), key=lambda position: waits[position])
    rows: dict[int, list[int]] = {}
    for position in order:
        rows.setdefault(modules[position], []).append(position)
    if len(rows) >= MODULES_FOR_ROWS * workers:
        return [list(rows.values())]
    return [[[position] for position in order if waits[position] is later] for later in (False, True)]


def _can_be_made(proposal: Proposal, item: _Item, bases: "_Bases") -> bool:
    """Whether to compile an item after its base: forced decisions in any case, drawn flips if the base compiled."""
    return bool(proposal.forced) or bases.find(proposal, item) is not None


def _drop_repeats(items: Sequence[_Item], runs: Mapping[_Item, Compilation], drawn: AbstractSet[_Item]) -> list[_Item]:
    """Drop ``drawn`` items that flip the same decisions as an earlier one, as happens in modules with few decisions."""
    seen: dict[tuple[int, int], list[Compilation]] = {}
    kept: list[_Item] = []
    for item in items:
        run, alike = runs[item], seen.setdefault((item.proposal, item.index), [])
        if item in drawn:
            if any(
                np.array_equal(run.decisions.flipped, one.decisions.flipped)
                and np.array_equal(run.decisions.inlined, one.decisions.inlined)
                for one in alike
            ):
                continue
            alike.append(run)
        kept.append(item)
    return kept


def _needs_base(proposal: Proposal) -> bool:
    """Whether a base must be compiled first, whose decisions the forced or drawn ones flip."""
    return proposal.base is not None and bool(proposal.forced or proposal.independent)


def _is_addressable(base: Compilation) -> bool:
    """Whether a decision table can identify the module: it has decisions, and a strong function of its own."""
    return len(base.decisions) > 0 and len(strong_names(base.measured)) > 0


@dataclass(frozen=True, slots=True)
class _Bases:
    """Base compilations, by position of the proposal and position of the module in the baselines."""

    baselines: Baselines
    runs: dict[tuple[int, int], Compilation] = field(default_factory=dict[tuple[int, int], Compilation])
    _scored: dict[tuple[int, int], ScoredBuild] = field(default_factory=dict[tuple[int, int], ScoredBuild])

    def find(self, proposal: Proposal, item: _Item) -> Compilation | None:
        """Look up the base compilation of an item of ``proposal``; ``None`` if there is none or it failed."""
        return None if proposal.base is None else self.runs.get((proposal.base, item.index))

    def score(self, proposal: Proposal, item: _Item) -> ScoredBuild:
        """Score the functions of the base of an item, once."""
        key = proposal.base or 0, item.index
        if key not in self._scored:
            self._scored[key] = self.baselines.score_build(item.index, self.runs[key])
        return self._scored[key]


def _exploration(task: Task, proposal: Proposal, position: int) -> Exploration:
    """Make the exploration of one compilation of a proposal; real-valued advice is never flipped."""
    flip = 0.0 if task.kind is AdviceKind.REAL else float(proposal.flip_probability[position])
    if not flip and not proposal.temperature:
        # Without exploration the seed has no effect, and must not split entries of the store.
        return Exploration()
    return Exploration(seed=int(proposal.seeds[position]), temperature=proposal.temperature, flip_probability=flip)


def _make_experience(task: Task, run: Compilation, proposal: Proposal, item: _Item, bases: _Bases) -> Experience:
    """Make the experience of a compilation, with credit for its difference to the base, if it has one."""
    baselines = bases.baselines
    log = run.logs.get(baselines.problem.name)
    if log is None:
        found = batch_of_flips(run.decisions, task.features)
    else:
        found = batch_of_log(baselines.problem, log, task.features, heuristic=proposal.actor == HEURISTIC)
    default, base = baselines.defaults[item.index], bases.find(proposal, item)
    credit = _NO_CREDIT
    if baselines.problem.by_regalloc_cost:
        scores, defaults = _costs(run, found), _costs(default, found)
        if base is not None:
            credit = _function_credit(
                baselines.problem, task, found, proposal.actor, change=scores - _costs(base, found), defaults=defaults
            )
    else:
        scores, defaults = (np.array([baselines.score(item.index, one)]) for one in (run, default))
        if base is not None:
            before = bases.score(proposal, item)
            credit = _component_credit(before, baselines.score_build(item.index, run), run, found)
    return Experience(
        proposal=item.proposal,
        compilation=item.position,
        module=int(proposal.modules[item.position]),
        features=found.features,
        mask=found.mask,
        decisions=found.decisions,
        log_probability=found.log_probability,
        defaults=found.defaults,
        sites=found.sites,
        context=found.context,
        context_ids=found.context_ids,
        scores=scores,
        default_scores=defaults,
        component=credit.component,
        change=credit.change,
        unattributed=credit.unattributed,
        base_decisions=credit.base_decisions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credit:
    """The attributes of :class:`Experience` that credit assignment sets."""

    component: Ints | None = None
    change: Floats | None = None
    unattributed: float = 0.0
    base_decisions: npt.NDArray[Any] | None = None


_NO_CREDIT = _Credit()


def _costs(run: Compilation, found: DecisionBatch) -> Floats:
    """Look up the cost of register allocation of each context (function), [X]; 0 if the compilation has none."""
    return np.zeros(len(found.context_names)) if run.regalloc is None else run.regalloc.score_of(found.context_names)


def _component_credit(before: ScoredBuild, explored: ScoredBuild, run: Compilation, found: DecisionBatch) -> _Credit:
    """Assign the changes in bytes to components of the inliner's flips."""
    credit = attribute(before, explored)
    component = np.full(len(run.decisions), -1, np.int64)
    component[credit.flips] = credit.component
    # A batch that was not made of a log has only the decisions whose features were kept.
    component = component if run.logs else component[run.decisions.rows]
    return _Credit(
        component=component,
        change=credit.change,
        unattributed=credit.unattributed,
        base_decisions=np.where(component >= 0, 1 - found.decisions, found.decisions),
    )


def _function_credit(
    problem: Problem, task: Task, found: DecisionBatch, actor: Actor, *, change: Floats, defaults: Floats
) -> _Credit:
    """Assign changes of cost to the register allocator's decisions, with one component for each function.

    Functions are allocated one by one and do not change each other. Changes are relative to the function's cost under
    the heuristic, because costs of functions have no common unit (docs/scores.md).
    """
    followed = compute_greedy_decisions(problem, actor, task.features, found)
    departed = found.decisions != followed
    contexts, component = np.unique(found.context[departed], return_inverse=True)
    whole = np.full(len(found.decisions), -1, np.int64)
    whole[departed] = component
    relative = change / (defaults + OFFSET)
    return _Credit(component=whole, change=relative[contexts], base_decisions=followed)

"""Decisions of single call sites that a learner gives or has drawn, as the plugin's decision tables."""

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Compiled
from mlgokit.algorithms.learner import Forced, Proposal
from mlgokit.algorithms.search import independent_moves, moves_of
from mlgokit.deploy.decisions import entry_of, strong_names, table_bytes
from mlgokit.errors import UsageError
from mlgokit.learning.observed import Observed
from mlgokit.problems import INLINE_SIZE, Problem
from mlgokit.store import ModuleRun


def check_turned(problem: Problem, proposal: Proposal) -> None:
    """Make sure that the compiler can be given the decisions of single sites that a proposal has or wants drawn.

    Raises:
        UsageError: the plugin would not take them, or would turn them round.
    """
    flips = proposal.flip_probability
    given = bool(proposal.forced) or proposal.independent > 0
    if given and (problem is not INLINE_SIZE or flips.any()):
        raise UsageError(
            f"training: expected decisions of single sites only for {INLINE_SIZE.name} and without flips, found "
            f"them for {problem.name} with flip probabilities up to {flips.max():g}; leave one of them out"
        )
    if proposal.independent and (proposal.base is None or proposal.forced):
        raise UsageError(
            "training: expected independent decisions to be drawn from those of a base, found a proposal without a "
            "base or with decisions of its own; give it the one and not the other"
        )


def site_table(default: ModuleRun, forced: Forced) -> bytes:
    """The decision table of one compilation; the compiler knows the module by the functions of its object."""
    if not len(forced.sites) or default.sizes is None:
        return b""
    return table_bytes([entry_of(strong_names(default.sizes), forced.sites.view(np.uint64), forced.decisions != 0)])


def independent_turns(base: Compiled, sites: npt.NDArray[np.int64], *, most: int, seed: int) -> Forced:
    """All decisions of ``base``, some of them turned round by moves of which no two can change the same function.

    Args:
        base: a compilation; T decisions.
        sites: [T] its call sites.
        most: how many moves are made at most, of one decision or of all like ones about a callee.
        seed: of the order in which moves are considered.

    Example:
        >>> ids = np.array([1, 1, 2])
        >>> none = np.zeros(3, bool)
        >>> run = Compiled(caller=ids, callee=np.array([3, 4, 5]), inlined=none, flipped=none, functions=ids,
        ...                scores=np.zeros(3))
        >>> independent_turns(run, np.array([10, 12, 14]), most=9, seed=1).decisions.tolist()
        [1, 0, 1]
    """
    moves = moves_of(base)
    order = np.random.default_rng(seed).permutation(len(moves))
    decisions = base.inlined.astype(np.int64)
    for index in independent_moves(base, moves, order.tolist(), most=most):
        places = list(moves[index])
        decisions[places] = 1 - decisions[places]
    return Forced(sites=sites, decisions=decisions)


def sites_of(run: ModuleRun) -> npt.NDArray[np.int64]:
    """[T] the call sites of a compilation of the inliner's, which kept its log."""
    if run.log is None or not run.log.observation_count:
        return np.zeros(0, np.int64)
    return run.log.columns["site"].reshape(-1).astype(np.int64)


def turned_round(base: ModuleRun, found: Observed, forced: Forced) -> npt.NDArray[np.bool_]:
    """[N] whether a decision was given, and the base decided otherwise at the same site."""
    sites = sites_of(base)
    if not len(sites):
        return np.zeros(len(found.sites), bool)
    order = np.argsort(sites)
    place = order[np.minimum(np.searchsorted(sites, found.sites, sorter=order), len(sites) - 1)]
    other = (sites[place] == found.sites) & (base.inlined[place] != (found.decisions != 0))
    return np.isin(found.sites, forced.sites) & other

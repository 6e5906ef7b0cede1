"""Decisions of single call sites that a learner gives or has drawn: which are allowed, and which turned round."""

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.learner import ForcedDecisions, Proposal
from mlgokit.errors import UsageError
from mlgokit.learning.decision_batch import DecisionBatch
from mlgokit.problems import INLINE_SIZE, Problem
from mlgokit.store import ModuleRun
from mlgokit.tables.decisions import sites_of


def check_forced(problem: Problem, proposal: Proposal) -> None:
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


def flipped_by_table(base: ModuleRun, found: DecisionBatch, forced: ForcedDecisions) -> npt.NDArray[np.bool_]:
    """[N] whether a decision was given, and the base decided otherwise at the same site."""
    sites = sites_of(base)
    if not len(sites):
        return np.zeros(len(found.sites), bool)
    order = np.argsort(sites)
    place = order[np.minimum(np.searchsorted(sites, found.sites, sorter=order), len(sites) - 1)]
    other = (sites[place] == found.sites) & (base.inlined[place] != (found.decisions != 0))
    return np.isin(found.sites, forced.sites) & other

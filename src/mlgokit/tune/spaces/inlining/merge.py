"""Two builds of a module, component by component: what each of their decisions is worth there, and the best of both."""

from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.credit import Credit, ScoredBuild, attribute, scored_build
from mlgokit.algorithms.search import functions_as_before, judge
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.tune.spaces.inlining.compose import compose
from mlgokit.tune.spaces.inlining.state import Keys


def scored(
    build: Compilation, account: ProjectAccount, name: str, flipped: Keys | None = None
) -> tuple[ScoredBuild, float]:
    """A build, ready for credit, and the bytes that the module answers for; the caller holds the account's lock."""
    functions, scores, rest = account.functions(name, build.measured)
    which = np.zeros(len(build.decisions), bool) if flipped is None else np.isin(build.decisions.sites, flipped)
    return scored_build(build, functions, scores, flipped=which), float(scores.sum()) + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What two builds give together.

    Attributes:
        decisions: of both, by the key of the call site; where they differ, the ones that pay.
        differing: call sites of both that are decided differently.
        taken: of those, the ones that are as in the other build.
    """

    decisions: dict[int, bool]
    differing: int
    taken: int

    @property
    def is_new(self) -> bool:
        """Whether it is neither of the builds."""
        return 0 < self.taken < self.differing


def merge(best: Compilation, other: Compilation, account: ProjectAccount, name: str) -> Merged:
    """Take from another build of a module what is smaller there than in the best one.

    Call sites that only one of the builds has, follow from decisions that differ: they keep theirs, so that both kinds
    of component find what they had. The caller holds the lock of the account.
    """
    known, found = best.decisions.by_site, other.decisions
    differing, _, _, credit = _compared(best, other, account, name)
    places = credit.flips[judge(credit).kept] if len(credit.flips) else credit.flips
    taken = dict(zip(found.sites[places].tolist(), found.inlined[places].tolist(), strict=True))
    return Merged(decisions=found.by_site | known | taken, differing=len(differing), taken=len(taken))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What of a build is smaller than in another one.

    Attributes:
        build: composed of these parts, and of the other build; ``None`` if there are none.
        all_smaller: whether no component is larger.
    """

    build: Compilation | None
    all_smaller: bool


def smaller_parts(
    best: Compilation, other: Compilation, account: ProjectAccount, name: str, *, newer: bool = True
) -> Parts:
    """Compose of two builds of a module, component by component, what is smaller; the caller holds the account's lock.

    Args:
        best: what the rest is taken from.
        other: whose decisions are taken where they pay.
        account: the project's.
        name: of the module.
        newer: whether functions that no decision of theirs explains are as in the other build, which was compiled
            later; else as in the best one.
    """
    _, base, after, credit = _compared(best, other, account, name)
    if not len(credit.flips):
        return Parts(build=None, all_smaller=True)
    kept = judge(credit).kept
    if not kept.any():
        return Parts(build=None, all_smaller=False)
    as_before = functions_as_before(credit, kept)
    if not newer:
        taken = credit.reached[np.isin(credit.reached_by, credit.component[kept])]
        every = (base.functions, after.functions, base.caller, after.caller)
        as_before = np.union1d(as_before, np.setdiff1d(np.concatenate(every), taken))
    return Parts(build=compose(best, other, as_before), all_smaller=bool(kept.all()))


def _compared(
    best: Compilation, other: Compilation, account: ProjectAccount, name: str
) -> tuple[list[int], ScoredBuild, ScoredBuild, Credit]:
    """Call sites of both builds that are decided differently, both builds, and what these decisions are worth."""
    known = best.decisions.by_site
    differing = [key for key, inlined in other.decisions.by_site.items() if known.get(key, inlined) != inlined]
    base, _ = scored(best, account, name)
    after, _ = scored(other, account, name, np.array(differing, np.uint64))
    return differing, base, after, attribute(base, after, ties_consequences=True)

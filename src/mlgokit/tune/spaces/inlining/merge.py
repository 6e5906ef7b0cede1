"""The best of two builds of a module, component by component."""

from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.credit import attribute
from mlgokit.algorithms.search import judge
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.tune.spaces.inlining.step import scored


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
    differing = [key for key, inlined in found.by_site.items() if known.get(key, inlined) != inlined]
    base, _ = scored(best, account, name)
    after, _ = scored(other, account, name, np.array(differing, np.uint64))
    credit = attribute(base, after)
    places = credit.flips[judge(credit).kept] if len(credit.flips) else credit.flips
    taken = dict(zip(found.sites[places].tolist(), found.inlined[places].tolist(), strict=True))
    return Merged(decisions=found.by_site | known | taken, differing=len(differing), taken=len(taken))

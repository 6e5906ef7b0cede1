"""The exact size of a project: every COMDAT signature is counted once, as the linker keeps it.

A linker keeps the first copy of a signature in link order. So a module answers for the bytes of the signatures that it
is the first to define, less those of the copy that would be kept without it, and for no others. ``docs/scores.md``
compares this with the link-aware score, whose 1/k needs no other module's state.
"""

import bisect
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects.measure import Objective, ObjectSizes, columns_of

Floats = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class ProjectAccount:
    """The current objects of a project, by module in link order.

    Attributes:
        order: the modules, in link order.
        objective: decides which bytes count; signatures are never divided by k.
        existence: credit for a module that stops defining a signature while others still define it: this share of the
            signature's bytes, divided by the number of its definers. 0 makes the account the exact image; more rewards
            steps towards a signature that no module defines.
        sizes: the current object of each module.
        image: bytes of all current objects, each signature once.
        definers: for each signature, the indices in ``order`` of the modules that define it, ascending.
        lock: to be held where other threads may put objects; the account itself does not take it.
    """

    order: tuple[str, ...]
    objective: Objective
    existence: float = 0.0
    sizes: dict[str, ObjectSizes] = field(default_factory=dict[str, ObjectSizes])
    image: float = 0.0
    definers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _places: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._places = {module: index for index, module in enumerate(self.order)}

    def put(self, module: str, sizes: ObjectSizes) -> None:
        """Replace the object of a module."""
        position = self._places[module]
        before = self.sizes.get(module)
        self.image += self.module_bytes(module, sizes) - (self.module_bytes(module, before) if before else 0.0)
        for signature in before.signatures if before is not None else ():
            definers = self.definers[signature]
            del definers[bisect.bisect_left(definers, position)]
        for signature in sizes.signatures:
            bisect.insort(self.definers.setdefault(signature, []), position)
        self.sizes[module] = sizes

    def module_bytes(self, module: str, sizes: ObjectSizes) -> float:
        """By how much the image grows because of this module, if its object is ``sizes`` and all others stay the same.

        Differences between objects of one module are exact, but the sum over modules is not the size of the image.
        """
        _, scores, rest = self.functions(module, sizes, existence=0.0)
        return float(scores.sum()) + rest

    def functions(
        self, module: str, sizes: ObjectSizes, *, existence: float | None = None
    ) -> tuple[tuple[str, ...], Floats, float]:
        """The bytes of :meth:`module_bytes` by function: names [F], bytes [F], and the bytes of no function.

        If the linker keeps this module's copy of a signature in place of a later module's, the later module's functions
        are listed as well, with negative bytes.
        """
        columns = columns_of(self.objective)
        functions = sizes.scores_of_functions(self.objective)
        groups = sizes.signature_rest[:, :columns].sum(axis=1)
        rest = float(sizes.rest[:columns].sum())
        if self.objective is Objective.OBJECT_TEXT:
            return sizes.function_names, functions, rest + float(groups.sum())
        share = self.existence if existence is None else existence
        position = self._places[module]
        weight = np.ones(len(sizes.signatures) + 1)
        names, scores = list(sizes.function_names), [functions]
        for index, signature in enumerate(sizes.signatures):
            first, others = self._other_definers(signature, position)
            if others and first < position:
                weight[index] = share / (others + 1)
            elif others:
                later = self.sizes[self.order[first]]
                there = later.signatures.index(signature)
                inside = np.flatnonzero(later.function_signature == there)
                spared = 1.0 - share / (others + 1)
                names.extend(later.function_names[function] for function in inside.tolist())
                scores.append(-spared * later.scores_of_functions(self.objective)[inside])
                rest -= spared * float(later.signature_rest[there, :columns].sum())
        functions *= weight[sizes.function_signature]
        return tuple(names), np.concatenate(scores), rest + float(groups @ weight[:-1])

    def _other_definers(self, signature: str, position: int) -> tuple[int, int]:
        """The first module beside the one at ``position`` that defines a signature, and the number of such modules."""
        definers = self.definers.get(signature, [])
        own = bisect.bisect_left(definers, position)
        is_there = own < len(definers) and definers[own] == position
        first = int(is_there and own == 0)
        return definers[first] if first < len(definers) else -1, len(definers) - is_there


def account_of(
    order: Sequence[str], objects: Mapping[str, ObjectSizes], *, objective: Objective, existence: float = 0.0
) -> ProjectAccount:
    """Make the account of objects in link order."""
    account = ProjectAccount(order=tuple(order), objective=objective, existence=existence)
    for name in order:
        if name in objects:
            account.put(name, objects[name])
    return account

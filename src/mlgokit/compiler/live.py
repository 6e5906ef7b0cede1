"""Sizes without the functions that the user's link discards (``--gc-sections``).

A function with external linkage stays in its object when nothing calls it any more, and the linker discards it. So an
object does not show that inlining the last call saves the function, nor that the first call which is not inlined costs
it. Here a function counts if it is reachable from the GC roots of its module: functions that are live even if nothing
in their own module refers to them.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.request import PLAIN, Compiler, CompileRequest, InFront
from mlgokit.module import Module


def mark_live(sizes: ObjectSizes, roots: Collection[str] = ()) -> ObjectSizes:
    """Mark the functions of an object that are reachable from the GC roots; the bytes of others do not count.

    Args:
        sizes: sizes of the object, with references.
        roots: names of the GC roots, which are always live in what is returned.

    Example:
        >>> from mlgokit.compiler.objects.measure import Objective
        >>> from mlgokit.testing import toy_sizes
        >>> sizes = toy_sizes({"main": 9, "used": 5, "unused": 3}, references={"main": ["used"]})
        >>> mark_live(sizes, {"main"}).scores_of_functions(Objective.LINK_AWARE).tolist()
        [9.0, 5.0, 0.0]
    """
    if sizes.references is None:
        return sizes
    references = dataclasses.replace(sizes.references, always_live=sizes.references.always_live.union(roots))
    places = {name: index for index, name in enumerate(sizes.function_names)}
    # Of several local functions of one name the name does not say which one is meant, so all are live.
    number = Counter(sizes.function_names)
    live = np.array([number[name] > 1 for name in sizes.function_names], bool)
    live[[places[name] for name in references.always_live if name in places]] = True
    left: list[int] = np.flatnonzero(live).tolist()
    while left:
        for name in references.by_function[left.pop()]:
            place = places.get(name)
            if place is not None and not live[place]:
                live[place] = True
                left.append(place)
    return dataclasses.replace(sizes, references=references, live=live)


def dead_functions(sizes: ObjectSizes) -> tuple[str, ...]:
    """The functions that the link discards, as far as is known."""
    if sizes.live is None:
        return ()
    return tuple(name for name, live in zip(sizes.function_names, sizes.live.tolist(), strict=True) if not live)


def without_liveness(sizes: ObjectSizes) -> ObjectSizes:
    """The sizes in which every function of the object counts."""
    return dataclasses.replace(sizes, live=None)


@dataclass(slots=True, kw_only=True, eq=False)
class LivenessCompiler(InFront):
    """A compiler that marks the live functions in the sizes that it returns.

    Attributes:
        compiler: compiles.
        find_roots: finds the GC roots by module from the sizes of all objects of the baseline; nothing if the link
            discards no functions.
        roots: the GC roots by module; ``None`` until the baseline is compiled. All functions of a module that is not
            listed count.
    """

    compiler: Compiler
    find_roots: Callable[[Mapping[str, ObjectSizes]], Mapping[str, frozenset[str]]]
    roots: Mapping[str, frozenset[str]] | None = None

    @property
    def loaded(self) -> Loaded:
        """That of the compiler."""
        return self.compiler.loaded

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module."""
        wants_references = self.roots is None or module.name in self.roots
        done = self.compiler.compile(module, dataclasses.replace(request, references=wants_references))
        return self.mark_compilation(module.name, done)

    def mark_compilation(self, module: str, done: Compilation) -> Compilation:
        """Mark the live functions in the sizes of a module's compilation."""
        if done.sizes is None or self.roots is None or module not in self.roots:
            return done
        return dataclasses.replace(done, sizes=mark_live(done.sizes, self.roots[module]))

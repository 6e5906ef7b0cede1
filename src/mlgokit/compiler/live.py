"""Sizes without the functions that the user's link discards (``--gc-sections``).

A function with external linkage stays in its object when nothing calls it any more, and the linker discards it. So an
object does not show that inlining the last call saves the function, nor that the first call which is not inlined costs
it. Here a function counts as long as something that the link keeps refers to it.
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


def find_live(sizes: ObjectSizes, roots: Collection[str] = ()) -> ObjectSizes:
    """Find the functions of an object that a link keeps; the bytes of others do not count.

    Args:
        sizes: sizes of the object, with references.
        roots: functions that the link keeps whatever refers to them in this object.

    Example:
        >>> from mlgokit.compiler.objects.measure import Objective
        >>> from mlgokit.testing import toy_sizes
        >>> sizes = toy_sizes({"main": 9, "used": 5, "unused": 3}, references={"main": ["used"]})
        >>> find_live(sizes, {"main"}).scores_of_functions(Objective.LINK_AWARE).tolist()
        [9.0, 5.0, 0.0]
    """
    if sizes.references is None:
        return sizes
    references = dataclasses.replace(sizes.references, held=sizes.references.held.union(roots))
    places = {name: index for index, name in enumerate(sizes.function_names)}
    # Of several local functions of one name the name does not say which one is meant.
    number = Counter(sizes.function_names)
    live = np.array([number[name] > 1 for name in sizes.function_names], bool)
    live[[places[name] for name in references.held if name in places]] = True
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


def count_all(sizes: ObjectSizes) -> ObjectSizes:
    """The sizes with all functions of the object, as they are known without a link."""
    return dataclasses.replace(sizes, live=None)


@dataclass(slots=True, kw_only=True, eq=False)
class LiveCompiler(InFront):
    """A compiler whose sizes leave out what the link discards, once all modules were compiled plainly.

    Attributes:
        compiler: compiles.
        find_roots: finds by module, from the sizes of all plain objects, the functions that the link keeps whatever
            refers to them in this module; nothing if it discards no functions.
        roots: what it found; ``None`` before.
    """

    compiler: Compiler
    find_roots: Callable[[Mapping[str, ObjectSizes]], Mapping[str, frozenset[str]]]
    roots: Mapping[str, frozenset[str]] | None = None

    @property
    def loaded(self) -> Loaded:
        """As of the compiler."""
        return self.compiler.loaded

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module."""
        wanted = self.roots is None or module.name in self.roots
        done = self.compiler.compile(module, dataclasses.replace(request, references=wanted))
        return self.leave_out_dead(module.name, done)

    def leave_out_dead(self, module: str, done: Compilation) -> Compilation:
        """Leave out of the sizes of a module's compilation what the link discards."""
        if done.sizes is None or self.roots is None or module not in self.roots:
            return done
        return dataclasses.replace(done, sizes=find_live(done.sizes, self.roots[module]))

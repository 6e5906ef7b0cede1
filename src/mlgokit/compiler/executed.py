"""What functions execute in a profiled run, by LLVM's estimate, as a part of the sizes that a compiler returns.

A function's own instructions are those of one call, by the block frequencies of its code, times the entries that its
profile counted. LLVM keeps the entries up to date as it inlines, but only those of the copy in the same module. So a
function of a COMDAT group, which several modules have, counts where it is called: each call by its cost in the plain
build. What then is left to the function itself is how its cost changes, times the entries that the plain build has.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mlgokit.compiler.compilation import Compilation, PassChanges
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.objects.measure import Floats, ObjectSizes, project_image_estimate
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, PLAIN, Compiler, CompileRequest, InFront, PluginUse
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

INSTRUCTION_WORTH = 2.0
"""Percent by which the image may grow for one percent of the executed instructions."""
LEAST_BELIEVED = 0.6
"""Share of what a call executed below which code has rather lost the probabilities of the profile."""
_DEPTH = 16
"""Calls of functions in COMDAT groups by each other that are followed."""
_LISTING = PluginUse(policies={INLINE_SIZE.name: HEURISTIC}, list_changes=True)
"""Decides as LLVM does, and lists what the profile counted."""


def _executed(
    sizes: ObjectSizes, changes: PassChanges, cost: Mapping[str, float], entries: Mapping[str, float]
) -> Floats:
    """Instructions [F] that the functions of an object execute, without the entries of those in COMDAT groups."""
    grouped = _grouped(sizes)
    # The plain build has inlined all calls of some functions that are called here.
    every = _costs_of_calls({name: changes for name in grouped if name not in cost}, cost)

    def of_function(name: str) -> float:
        entered = changes.entries.get(name, 0.0)
        if not entered or (name in grouped and name not in cost):
            return 0.0
        one_call = changes.executed.get(name, 0.0) + _cost_inside(name, changes, every)
        return entered * one_call if name not in grouped else entries[name] * (one_call - cost[name])

    return np.array([of_function(name) for name in sizes.function_names], np.float64)


def _grouped(sizes: ObjectSizes) -> set[str]:
    """Functions of an object that are in COMDAT groups."""
    owned = zip(sizes.function_names, sizes.function_signature.tolist(), strict=True)
    return {name for name, group in owned if group >= 0}


def _cost_inside(name: str, changes: PassChanges, cost: Mapping[str, float]) -> float:
    """What one call of a function executes in the functions with a ``cost`` that it calls."""
    calls = changes.calls.get(name, {})
    return sum(count * cost.get(to, 0.0) for to, count in calls.items() if to != name) / changes.entries[name]


def _costs_of_calls(functions: Mapping[str, PassChanges], known: Mapping[str, float]) -> dict[str, float]:
    """Add to known costs those of one call of more functions, each with a module that has it."""
    entered = {name: changes for name, changes in functions.items() if changes.entries.get(name)}
    cost = dict(known)
    # A call costs what it calls as well; functions that call each other in circles would never end.
    for _ in range(_DEPTH if entered else 0):
        cost |= {
            name: changes.executed.get(name, 0.0) + _cost_inside(name, changes, cost)
            for name, changes in entered.items()
        }
    return cost


def _costs_of_groups(listed: Iterable[tuple[ObjectSizes, PassChanges]]) -> tuple[dict[str, float], dict[str, float]]:
    """Cost of one call, and entries, of the functions in COMDAT groups of the plain build."""
    first, entries = dict[str, PassChanges](), dict[str, float]()
    for sizes, changes in listed:
        for name in _grouped(sizes):
            if changes.entries.get(name):
                first.setdefault(name, changes)
                entries[name] = max(entries.get(name, 0.0), changes.entries[name])
    return _costs_of_calls(first, {}), entries


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExecutedCompiler(InFront):
    """A compiler whose sizes have what functions execute; it decides inlining at any optimization level.

    Attributes:
        compiler: compiles.
        price: bytes that an executed instruction is worth.
        cost: instructions of one call, by function of a COMDAT group, with those of its calls of such functions.
        entries: entries of these functions.
        plain: the plain compilations, with what they execute, by module.
    """

    compiler: Compiler
    price: float
    cost: Mapping[str, float]
    entries: Mapping[str, float]
    plain: Mapping[str, Compilation]

    @property
    def loaded(self) -> Loaded:
        """As of the compiler."""
        return self.compiler.loaded

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module; the sizes have what the functions execute, if the profile counted them."""
        use = request.use
        if use is not None:
            # Copies of the compiler would list what they execute as well.
            tries = use.trials is not None and bool(use.trials.series)
            use = dataclasses.replace(use, list_changes=not tries, any_level=use.plugin is None, any_growth=True)
        done = self.compiler.compile(module, dataclasses.replace(request, use=use))
        plain = self.plain.get(module.name)
        if plain is None or done.sizes is None:
            return done
        changes = plain.changes if use is None else done.changes
        if changes is None:
            return done
        run_cost = self._run_cost(done.sizes, changes, plain.measured)
        return dataclasses.replace(done, sizes=dataclasses.replace(done.sizes, run_cost=run_cost))

    def _run_cost(self, sizes: ObjectSizes, changes: PassChanges, plain: ObjectSizes) -> Floats:
        """What each function [F] of an object executes, in bytes, and the bytes by which it is larger than plainly.

        Functions that the profile never saw entered count nothing, so they stay as LLVM has them.
        """
        known = dict(zip(plain.function_names, plain.function_bytes.sum(axis=1).tolist(), strict=True))
        before = np.array([known.get(name, 0) for name in sizes.function_names], np.float64)
        entered = np.array([changes.entries.get(name, 0.0) > 0 for name in sizes.function_names], bool)
        growth = np.where(entered, np.maximum(sizes.function_bytes.sum(axis=1) - before, 0.0), 0.0)
        return self.price * _executed(sizes, changes, self.cost, self.entries) + growth


def count_executed(compiler: Compiler, modules: Iterable[Module], *, report: Report) -> ExecutedCompiler:
    """Compile all modules plainly, and return a compiler that prices what functions execute.

    Raises:
        CorpusError: no module is compiled with a profile that counted something.
    """
    units = list(modules)

    def list_plain(module: Module) -> Compilation:
        return compiler.compile(module, CompileRequest(use=_LISTING, keep="none", reuse=True))

    label = "list what the profile counted"
    done = parallel(list_plain, units, workers=compiler, report=report, label=label)
    known = {module.name: one for module, one in zip(units, done, strict=True) if one.ok and one.changes is not None}
    listed = [(one.measured, one.changes) for one in known.values() if one.changes is not None]
    cost, entries = _costs_of_groups(listed)
    total = sum(float(_executed(sizes, changes, cost, entries).sum()) for sizes, changes in listed)
    if not total:
        raise CorpusError(
            f"--objective instructions: expected modules compiled with a profile of a run, found none of {len(units)} "
            "in which it counted anything; give --run with a command that runs what is built, or build with "
            "-fprofile-use"
        )
    image = project_image_estimate(sizes for sizes, _ in listed)
    price = INSTRUCTION_WORTH * image / total
    return ExecutedCompiler(compiler=compiler, price=price, cost=cost, entries=entries, plain=known)

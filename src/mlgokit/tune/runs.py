"""The proof of a tuning for speed: the user's commands run plain and tuned, and the executed instructions counted."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlgokit.builds.images import LINKED
from mlgokit.builds.recorded import TunedProgram
from mlgokit.compiler.run_costs import FunctionCosts, changes_of_functions
from mlgokit.tune.result import CountedRun

CountRun = Callable[[str], FunctionCosts]
"""Runs a command in the folder of the build that is there now, and returns what its functions executed.

Raises a :class:`~mlgokit.errors.UsageError` if it fails.
"""
_LEAST_LOSS = 1e-5
"""Share of a run below which a function is not worth to be taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The commands that prove a tuning, counted on the plain build.

    Attributes:
        plain: what the functions of the plain build execute, by command.
        held_out: the commands that the profile was not made of.
        count: runs a command.
        counter: name of the tool that counts.
        growth: share by which the image of a program may grow.
    """

    plain: Mapping[str, FunctionCosts]
    held_out: frozenset[str]
    count: CountRun
    counter: str
    growth: float

    def count_tuned(self) -> dict[str, FunctionCosts]:
        """Count all commands on the tuned build, which is where the plain one was."""
        return {command: self.count(command) for command in self.plain}

    def compare(self, tuned: Mapping[str, FunctionCosts]) -> tuple[CountedRun, ...]:
        """The commands as counted on the plain build, and on a tuned one."""
        return tuple(
            CountedRun(
                command=command,
                held_out=command in self.held_out,
                plain=plain.instructions,
                tuned=tuned[command].instructions,
            )
            for command, plain in self.plain.items()
        )

    def objection(self, counted: Sequence[CountedRun], programs: Sequence[TunedProgram]) -> str:
        """Why a tuned build is not to be published: a run executes more, none less, or a program grew too much."""
        for one in counted:
            if one.tuned > one.plain:
                return f"`{one.command}` executed {one.tuned:,} instructions, {one.plain:,} without it"
        if all(one.tuned == one.plain for one in counted):
            return "no run executed fewer instructions with it"
        for program in programs:
            plain, tuned = program.plain, program.tuned
            if plain.status == tuned.status == LINKED and tuned.image > (1 + self.growth) * plain.image:
                return (
                    f"{program.program} has {tuned.image:,} bytes, {plain.image:,} without it, which is more than "
                    f"{self.growth:.1%} larger"
                )
        return ""

    def slower_functions(self, tuned: Mapping[str, FunctionCosts]) -> set[str]:
        """The functions to leave to LLVM, by what all runs executed.

        Those are functions that cost more over all profiled runs together; and of each run that executes more than
        plainly, as many functions that cost more in it as make it slower, those that gain the least elsewhere first.
        """
        changes = {
            command: {
                name: change / max(1, plain.instructions)
                for name, change in changes_of_functions(plain, tuned[command]).items()
            }
            for command, plain in self.plain.items()
        }
        profiled, every = defaultdict[str, float](float), defaultdict[str, float](float)
        for command, by_function in changes.items():
            for name, change in by_function.items():
                every[name] += change
                profiled[name] += 0.0 if command in self.held_out else change
        slower = {name for name, change in profiled.items() if change > _LEAST_LOSS}
        for by_function in changes.values():
            excess = sum(by_function.values())
            worse = [name for name, change in by_function.items() if change > 0]
            worse.sort(key=lambda name: (name not in slower, -every[name]))
            for name in worse:
                if excess <= 0:
                    break
                slower.add(name)
                excess -= by_function[name]
        return slower

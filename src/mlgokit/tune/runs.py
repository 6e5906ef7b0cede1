"""The proof of a tuning for speed: the user's commands run plain and tuned, and the executed instructions counted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlgokit.builds.images import LINKED
from mlgokit.builds.recorded import TunedProgram
from mlgokit.compiler.run_costs import FunctionCosts, changes_of_functions
from mlgokit.tune.result import CountedRun

CountRun = Callable[[str], FunctionCosts]
"""Runs a command in the build folder, with the plain or tuned build that is there now; returns what functions executed.

Raises a :class:`~mlgokit.errors.UsageError` if the command fails.
"""
_LEAST_LOSS = 1e-5
"""Sum over the profiled runs of the share of a run by which a function must execute more, to be left to LLVM again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The commands that prove a tuning, counted on the plain build.

    Attributes:
        plain: what the functions of the plain build execute, by command.
        held_out: commands that did not contribute to the profile.
        count: runs a command, and counts what it executes.
        counter: name of the tool that counts instructions.
        growth: share by which the image of a program may grow.
    """

    plain: Mapping[str, FunctionCosts]
    held_out: frozenset[str]
    count: CountRun
    counter: str
    growth: float

    def count_tuned(self) -> dict[str, FunctionCosts]:
        """Run and count all commands again, once the tuned build has replaced the plain one in the build folder."""
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
        """Why the tuned build is rejected; empty if it is accepted.

        It is rejected if some run executes more instructions, if no run executes fewer, or if a program grew by more
        than :attr:`growth`.
        """
        for one in counted:
            if one.tuned > one.plain:
                return f"`{one.command}` executed {one.tuned:,} instructions with the plugin, {one.plain:,} without it"
        if all(one.tuned == one.plain for one in counted):
            return "no run executed fewer instructions with the plugin"
        for program in programs:
            if self._excess_bytes(program) > 0:
                return (
                    f"{program.program} has {program.tuned.image:,} bytes with the plugin, {program.plain.image:,} "
                    f"without it, which is more than {self.growth:.1%} larger"
                )
        return ""

    def functions_to_take_back(
        self, tuned: Mapping[str, FunctionCosts], programs: Sequence[TunedProgram], grown: Mapping[str, int]
    ) -> set[str]:
        """The functions to leave to LLVM, by what all runs executed and by the bytes of the programs.

        Those are functions that cost more over all profiled runs together; of each run that executes more than plainly,
        as many functions that cost more in it as make it slower, those that gain the least elsewhere first; and of a
        program that grew too much, as many functions as make it so, those that gain the least for their bytes first.

        Args:
            tuned: what the functions of the tuned build execute, by command.
            programs: both builds of the programs.
            grown: bytes by which functions grew whose code changed.
        """
        changes = {
            command: {
                name: change / max(1, plain.instructions)
                for name, change in changes_of_functions(plain, tuned[command], grown).items()
            }
            for command, plain in self.plain.items()
        }

        def over_runs(name: str, *, only_profiled: bool) -> float:
            return sum(
                by_function.get(name, 0.0)
                for command, by_function in changes.items()
                if not (only_profiled and command in self.held_out)
            )

        taken = {name for name in grown if over_runs(name, only_profiled=True) > _LEAST_LOSS}
        for by_function in changes.values():
            worse = {name: by_function[name] for name in grown if by_function.get(name, 0.0) > 0}
            order = sorted(worse, key=lambda name: (name not in taken, -over_runs(name, only_profiled=False)))
            taken |= _until_covered(order, worse, sum(by_function.values()))
        larger = {name: size for name, size in grown.items() if size > 0}
        order = sorted(larger, key=lambda name: -over_runs(name, only_profiled=True) / larger[name])
        return taken | _until_covered(order, larger, max(map(self._excess_bytes, programs), default=0.0))

    def _excess_bytes(self, program: TunedProgram) -> float:
        """Bytes by which a program is larger than it may be; 0 or less if it is not."""
        plain, tuned = program.plain, program.tuned
        is_known = plain.status == tuned.status == LINKED
        return tuned.image - (1 + self.growth) * plain.image if is_known else 0.0


def _until_covered(order: Sequence[str], worth: Mapping[str, float], excess: float) -> set[str]:
    """The first of the functions in ``order`` that together are worth as much as the excess.

    Example:
        >>> sorted(_until_covered(["f", "g", "h"], {"f": 2.0, "g": 3.0, "h": 9.0}, 4.0))
        ['f', 'g']
    """
    covered = set[str]()
    for name in order:
        if excess <= 0:
            break
        covered.add(name)
        excess -= worth[name]
    return covered

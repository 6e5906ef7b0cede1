"""The proof of a tuning for speed: the user's commands run plain and tuned, and the executed instructions counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlgokit.builds.images import LINKED
from mlgokit.builds.recorded import TunedProgram
from mlgokit.tune.result import CountedRun

CountRun = Callable[[str], int]
"""Runs a command in the folder of the build that is there now, and returns the instructions that it executed.

Raises a :class:`~mlgokit.errors.UsageError` if it fails.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The commands that prove a tuning, counted on the plain build.

    Attributes:
        plain: executed instructions of the plain build, by command.
        held_out: the commands that the profile was not made of.
        count: runs a command.
        counter: name of the tool that counts.
        growth: share by which the image of a program may grow.
    """

    plain: dict[str, int]
    held_out: frozenset[str]
    count: CountRun
    counter: str
    growth: float

    def count_tuned(self) -> tuple[CountedRun, ...]:
        """Count all commands on the tuned build, which is where the plain one was."""
        return tuple(
            CountedRun(command=command, held_out=command in self.held_out, plain=plain, tuned=self.count(command))
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

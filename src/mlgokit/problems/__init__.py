"""What is decided: one declarative file per problem, and the table of all of them."""

from mlgokit.problems.inline_size import INLINE_SIZE
from mlgokit.problems.problem import Channel, Problem

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (INLINE_SIZE,)}
"""All problems by the name that a user types."""

__all__ = ["INLINE_SIZE", "PROBLEMS", "Channel", "Problem"]

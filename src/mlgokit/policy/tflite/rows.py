"""Expands step functions into the inputs that a policy's quantile normaliser can give its first layer.

A row of n boundaries gives the inputs r = rank / n and r * r, each rounded to a multiple of 1 / 8192 (docs/formats.md,
"The arithmetic"). So a function with few jumps is expanded exactly, with a row of one boundary for each jump. The
functions x and x * x of a vocabulary are r and r * r of its row, padded to a power of two. Any other function, and the
remainder of these, is the difference of two rows, in which a boundary is repeated in proportion to the function's rise,
or fall, there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.policy.network import LARGEST_INPUT
from mlgokit.policy.normaliser import LARGEST
from mlgokit.policy.tflite.steps import INFINITY, Doubles, Floats, Steps, drop_equal_steps, merge_knots, representatives

FEW_JUMPS = 16
"""Jumps up to which a function is expanded exactly."""
TOLERANCE = 1e-6
"""Largest remainder that is ignored, relative to the function's largest value."""
_ROUNDS = 3
"""Maximum pairs of rows for the remainder of a function, each smaller than the one before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """One input of a policy, and its factor in the sum of each of E functions.

    Attributes:
        row: position of the row of boundaries.
        power: 1 for the input r, 2 for r * r.
        factor: [E] factor in each function's sum.
    """

    row: int
    power: int
    factor: Doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expansion:
    """E functions of one feature as sums of the policy's inputs.

    Attributes:
        rows: rows of boundaries, each ascending.
        terms: terms of the sums.
        constant: [E] constant of each sum.
        error: largest difference between a function and its sum.
    """

    rows: tuple[Floats, ...]
    terms: tuple[Term, ...]
    constant: Doubles
    error: float


def expand(functions: Sequence[Steps], *, whole_numbers: bool) -> Expansion:
    """Expand all ``functions`` of one feature into sums over the same rows.

    Args:
        functions: step functions of the feature.
        whole_numbers: whether the feature's raw values are whole numbers, none of which is infinite.
    """
    knots = merge_knots([function.knots for function in functions])
    raw = representatives(knots)
    table = np.stack([function.at(raw) for function in functions], axis=1).astype(np.float64)
    merged = drop_equal_steps(Steps(knots=knots, values=table))
    knots, table = merged.knots, np.asarray(merged.values, np.float64).reshape(-1, len(functions))
    if len(knots) <= FEW_JUMPS:
        jumps = np.diff(table, axis=0)
        terms = tuple(Term(row=index, power=1, factor=jump) for index, jump in enumerate(jumps))
        return Expansion(
            rows=tuple(np.split(knots, len(knots))) if len(knots) else (), terms=terms, constant=table[0], error=0.0
        )
    if not whole_numbers and knots[-1] < INFINITY[0]:
        knots, table = np.concatenate([knots, INFINITY]), np.concatenate([table, table[-1:]])
    total = _Sum(table, knots)
    row = _pad_row(max((function.row for function in functions), key=len))
    if len(row):
        total.fit(row)
    if not whole_numbers:
        total.add_infinity()
    for index in range(len(functions)):
        total.add_differences(index)
    error = float(np.abs(total.left).max())
    return Expansion(rows=tuple(total.rows), terms=tuple(total.terms), constant=total.constant, error=error)


def _pad_row(row: Floats) -> Floats:
    """Pad a row to a power of two of boundaries, so that rank / n is a multiple of 1 / 8192, and exact.

    Only infinity reaches the padding, and infinity has a row of its own. Rows of more than 8192 boundaries have no such
    ranks, and are not padded.
    """
    if not len(row) or len(row) > LARGEST_INPUT:
        return row
    count = 1 << (len(row) - 1).bit_length()
    return np.pad(row, (0, count - len(row)), constant_values=np.float32(LARGEST))


class _Sum:
    """The sums of E functions so far, and the remainder of their table [m + 1, E] of values by step."""

    def __init__(self, table: Doubles, knots: Floats) -> None:
        self.rows: list[Floats] = []
        self.terms: list[Term] = []
        self.constant = np.zeros(table.shape[1])
        self.left = table
        self._knots = knots
        self._scale = np.maximum(np.abs(table).max(axis=0), 1e-30)

    def fit(self, row: Floats) -> None:
        """Add a row with the least-squares factors of r and r * r, and subtract them from the remainder."""
        raw = representatives(self._knots)
        ranks = np.searchsorted(row, raw, side="right") / len(row)
        inputs = np.stack([ranks, ranks * ranks], axis=1).astype(np.float32).astype(np.float64)
        columns = np.concatenate([np.ones((len(raw), 1)), np.rint(inputs * LARGEST_INPUT) / LARGEST_INPUT], axis=1)
        finite = raw < np.float32(LARGEST)
        factors = np.linalg.lstsq(columns[finite], self.left[finite], rcond=None)[0].astype(np.float64)
        # A function that needs no input gets a little of it by the rounding of the fit.
        factors[1:] = np.where(np.abs(factors[1:]) > TOLERANCE * self._scale, factors[1:], 0)
        used = [power for power in (1, 2) if factors[power].any()]
        self.terms += [Term(row=len(self.rows), power=power, factor=factors[power]) for power in used]
        self.rows.append(row)
        self.constant += factors[0]
        self.left = self.left - columns @ factors

    def add_infinity(self) -> None:
        """Add a row for the step from just below infinity to infinity, of all functions."""
        jump = self.left[-1] - self.left[-2]
        if jump.any():
            self.terms.append(Term(row=len(self.rows), power=1, factor=jump))
            self.rows.append(INFINITY)
            self.left[-1] -= jump

    def add_differences(self, row: int) -> None:
        """Add rows for the remainder of function ``row``: one for its rises and one for its falls, a few times."""
        for _ in range(_ROUNDS):
            self.constant[row] += self.left[0, row]
            self.left[:, row] -= self.left[0, row]
            if np.abs(self.left[:, row]).max() <= TOLERANCE * self._scale[row]:
                return
            changes = np.diff(self.left[:, row])
            for sign in (1.0, -1.0):
                heights: Doubles = np.concatenate([[0.0], np.cumsum(np.maximum(sign * changes, 0))])
                self._add_monotone(heights, sign, row)

    def _add_monotone(self, heights: Doubles, sign: float, row: int) -> None:
        """Add a row that rises as ``heights`` [m + 1] do, for function ``row``, with this sign."""
        if heights[-1] <= 0:
            return
        counts = np.rint(heights / heights[-1] * LARGEST_INPUT).astype(np.int64)
        factor = np.zeros(self.left.shape[1])
        factor[row] = sign * heights[-1]
        self.terms.append(Term(row=len(self.rows), power=1, factor=factor))
        self.rows.append(np.repeat(self._knots, np.diff(counts)))
        self.left[:, row] -= factor[row] * counts / LARGEST_INPUT

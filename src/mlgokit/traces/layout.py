"""Offsets in the observations of a training log whose lines are spelled as LLVM writes them."""

import functools
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlgokit.traces.record import Header, LineForm

SWEEP_LIMIT = 64
"""Maximum observations that a pattern matches at once."""
_FOUR_DIGITS = np.array([b"%04d" % number for number in range(10_000)], "S4").view("V4")
"""The four digits of each number below 10,000, as a table."""

Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes and patterns of a log's observations, whose lines are spelled as LLVM writes them.

    Attributes:
        features_bytes: bytes of the features of an observation.
        score_bytes: bytes of a score; ``None`` if the header declares none.
        observation_form: spelling of the observation line.
        outcome_form: spelling of the outcome line.
        fixed_bytes: bytes of an observation with its outcome, without the digits of its number.
        repeats: how often the number occurs in an observation with its outcome.
        observations: pattern of up to ``SWEEP_LIMIT`` observations, with any numbers.
        context: pattern of a context line (group 1 is the name) and up to ``SWEEP_LIMIT`` observations (group 2).
        counts: number of observations by their total length in bytes, for observations numbered from 0.
    """

    features_bytes: int
    score_bytes: int | None
    observation_form: LineForm
    outcome_form: LineForm
    fixed_bytes: int
    repeats: int
    observations: re.Pattern[bytes]
    context: re.Pattern[bytes]
    counts: dict[int, int]

    def starts(self, numbers: Offsets) -> Offsets:
        """Compute the offset in bytes of each numbered observation from observation 0."""
        digits = numbers.copy()
        power, largest = 10, int(numbers.max(initial=0))
        while power <= largest:
            digits += np.maximum(numbers - power, 0)
            power *= 10
        return self.fixed_bytes * numbers + self.repeats * digits

    def count(self, length: int, first: int) -> int:
        """Compute how many observations, numbered from ``first``, take ``length`` bytes; -1 if no number does."""
        if first == 0 and length in self.counts:
            return self.counts[length]
        number = first
        while length > 0:
            digits = len(str(number))
            stride = self.fixed_bytes + self.repeats * digits
            power: int = 10**digits
            taken = min(power - number, -(-length // stride))
            length -= taken * stride
            number += taken
        return number - first if length == 0 else -1


@functools.lru_cache(maxsize=64)
def layout_of(header: Header, observation_form: LineForm, outcome_form: LineForm) -> Layout:
    """Compute the layout of a log's observations."""
    score_bytes = None if header.score is None else header.score.size_bytes

    def expression(form: LineForm, size_bytes: int) -> bytes:
        return re.escape(form.prefix) + b"[0-9]++" + re.escape(form.suffix) + b"\\n.{%d}\\n" % size_bytes

    def fixed(form: LineForm, size_bytes: int) -> int:
        return len(form.prefix) + len(form.suffix) + 1 + size_bytes + 1

    single = expression(observation_form, header.features_bytes)
    fixed_bytes = fixed(observation_form, header.features_bytes)
    if score_bytes is not None:
        single += expression(outcome_form, score_bytes)
        fixed_bytes += fixed(outcome_form, score_bytes)
    several = b"(?:%b){0,%d}+" % (single, SWEEP_LIMIT)
    repeats = 1 if score_bytes is None else 2
    counts, length = {0: 0}, 0
    for number in range(SWEEP_LIMIT):
        length += fixed_bytes + repeats * len(str(number))
        counts[length] = number + 1
    return Layout(
        features_bytes=header.features_bytes,
        score_bytes=score_bytes,
        observation_form=observation_form,
        outcome_form=outcome_form,
        fixed_bytes=fixed_bytes,
        repeats=repeats,
        observations=re.compile(several, re.DOTALL),
        context=re.compile(rb'\{"context": ?"([^"\\\x00-\x1f]{0,65536}+)"\}\n(' + several + b")", re.DOTALL),
        counts=counts,
    )


def number_lines(form: LineForm, numbers: Offsets, digits: int) -> NDArray[np.uint8]:
    """Format one line for each number, [count, line length] bytes; all ``numbers`` have ``digits`` digits."""
    at = len(form.prefix)
    template = b"%b%b%b\n" % (form.prefix, b"0" * digits, form.suffix)
    lines = np.full(len(numbers), np.void(template)).view(np.uint8).reshape(-1, len(template))
    left, end = numbers, digits
    while end > 4:
        lines[:, at + end - 4 : at + end] = _four_digits(left % 10_000)
        left, end = left // 10_000, end - 4
    lines[:, at : at + end] = _four_digits(left)[:, 4 - end :]
    return lines


def _four_digits(numbers: Offsets) -> NDArray[np.uint8]:
    """Look up the four digits of numbers below 10,000."""
    return _FOUR_DIGITS[numbers].view(np.uint8).reshape(-1, 4)

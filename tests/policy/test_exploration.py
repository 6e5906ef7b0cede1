"""Exploration: the random numbers are those of the plugin, the probabilities are right."""

import math

import numpy as np
import pytest

from mlgokit.policy.exploration import Exploration, UniformStream, decide


def test_the_stream_is_splitmix64() -> None:
    # First outputs of SplitMix64 for seed 1234567, as published with the algorithm, as 53-bit fractions.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    stream = UniformStream(1234567)
    assert [stream.next() for _ in published] == [(number >> 11) * 2.0**-53 for number in published]


@pytest.mark.parametrize("preference", [-3.0, -0.2, 0.4, 2.0])
def test_decisions_come_as_often_as_their_probability_says(preference: float) -> None:
    exploration = Exploration(temperature=0.7, flip_probability=0.1)
    stream = UniformStream(5)
    decisions = [decide(preference, exploration, stream) for _ in range(4000)]
    chance = np.mean([decision for decision, _ in decisions])
    told = {decision: math.exp(logarithm) for decision, logarithm in decisions}
    assert told[True] == pytest.approx(chance, abs=0.03)
    assert sum(told.values()) == pytest.approx(1)


def test_greedy_follows_the_preference() -> None:
    stream = UniformStream(9)
    assert decide(1.0, Exploration(), stream) == (True, 0.0)
    assert decide(-1.0, Exploration(), stream) == (False, 0.0)
    assert decide(0.0, Exploration(), stream)[0] is False

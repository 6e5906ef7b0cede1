import numpy as np
import pytest

from mlgokit.advisors import Constant, Echo, Observation, Recording, ReplayContexts
from mlgokit.errors import UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces import Header

HEADER = Header(features=(TensorSpec(name="inlining_default", type="int64_t", shape=(1,)),))


def observation(default: int = 1, index: int = 0) -> Observation:
    values = {"inlining_default": np.array([default])}
    return Observation(header=HEADER, values=values, context="f", index=index)


def test_echo_gives_the_default():
    assert [Echo().advise(observation(default)) for default in (0, 1)] == [0, 1]
    assert type(Echo().advise(observation())) is int


def test_echo_says_which_feature_is_missing():
    with pytest.raises(UsageError, match="expected a feature 'x', found inlining_default; make the compiler send"):
        Echo("x").advise(observation())


def test_a_constant_advisor_gives_its_answer():
    assert Constant(0.5).advise(observation()) == 0.5


def test_recording_keeps_questions_and_answers():
    recording = Recording(ReplayContexts({"f": [1, 0]}))
    questions = [observation(index=index) for index in range(2)]
    assert [recording.advise(question) for question in questions] == [1, 0]
    assert recording.observations == questions
    assert recording.decisions == [1, 0]

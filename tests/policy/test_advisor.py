"""A policy as an advisor of every kind."""

import dataclasses
import math

import numpy as np
import pytest

from mlgokit.advisors import Advisor, Observation
from mlgokit.errors import PolicyError
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.exploration import Exploration, decide_binary, exploration_draws, factor_of, priority_of
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, REGALLOC_WEIGHT, Problem
from mlgokit.spec import TensorSpec
from mlgokit.traces import Header

COLUMNS = 6


def make(problem: Problem, output: OutputKind, names: tuple[str, ...]) -> Policy:
    rng = np.random.default_rng(6)
    count = len(names)
    return Policy(
        problem=problem.name,
        features=names,
        normaliser=SignedLog(mean=np.zeros(count, np.float32), scale=np.ones(count, np.float32), clip=4.0),
        layers=(
            Layer(rng.normal(size=(2, count, output.width)).astype(np.float32), np.zeros((2, output.width), "f4")),
        ),
        output=output,
        mask=problem.mask or "",
    )


def asked(problem: Problem, *, mask: list[int] | None = None, index: int = 0, leave_out: str = "") -> Observation:
    rng = np.random.default_rng(index)
    specs = [
        TensorSpec(name=feature.name, type=feature.type, shape=(1, COLUMNS) if feature.per_column else (1,))
        for feature in problem.features
        if feature.name != leave_out
    ]
    values = {spec.name: (rng.random(spec.shape) * 90).astype(spec.dtype) for spec in specs}
    if problem.mask in values:
        values[problem.mask] = np.array([mask or [1] * COLUMNS])
    return Observation(header=Header(features=tuple(specs)), values=values, context="f", index=index)


EVICTION = make(REGALLOC_EVICTION, OutputKind.COLUMN_LOGIT, ("progress", "nr_urgent", "max_stage"))
PRIORITY = make(REGALLOC_PRIORITY, OutputKind.PRIORITY, ("weight", "li_size"))
WEIGHT = make(REGALLOC_WEIGHT, OutputKind.LOG2_FACTOR, ("weight", "li_size"))
INLINING = make(INLINE_SIZE, OutputKind.LOGITS, ("callee_users", "cost_estimate"))


def test_a_gated_policy_asks_what_the_heuristic_would_decide() -> None:
    policy = make(INLINE_SIZE, OutputKind.EFFECT_BYTES, ("callee_users", "cost_estimate"))
    gate = Gate(feature="callee_users", margins=(math.inf, math.inf))
    question = asked(INLINE_SIZE)
    for unsure in (dataclasses.replace(policy, gate=gate), dataclasses.replace(policy, doubt=1e30)):
        with pytest.raises(PolicyError, match="expected the feature 'inlining_default', which its gate or doubt needs"):
            PolicyAdvisor(unsure).advise(question)
        for default in (0, 1):
            known = dataclasses.replace(question, values={**question.values, "inlining_default": np.array([default])})
            assert PolicyAdvisor(unsure).advise(known) == default


def test_eviction_takes_the_best_legal_column():
    question = asked(REGALLOC_EVICTION)
    rows = np.stack([np.broadcast_to(question.values[name].ravel(), COLUMNS) for name in EVICTION.features], axis=1)
    order = np.argsort(-EVICTION.column_logits(rows[None])[0])
    advisor: Advisor = PolicyAdvisor(EVICTION)
    assert advisor.advise(question) == order[0]
    mask = [int(column != order[0]) for column in range(COLUMNS)]
    assert advisor.advise(asked(REGALLOC_EVICTION, mask=mask)) == order[1]
    assert advisor.advise(asked(REGALLOC_EVICTION, mask=[0, 0, 1, 0, 0, 0])) == 2


def test_priority_is_that_of_the_unit_number():
    question = asked(REGALLOC_PRIORITY)
    unit = PRIORITY.units(np.array([[question.values["weight"][0], question.values["li_size"][0]]]))[0]
    assert PolicyAdvisor(PRIORITY).decide(question) == (priority_of(unit), 0.0)


def test_a_factor_is_the_unit_number_within_bounds():
    question = asked(REGALLOC_WEIGHT)
    unit = WEIGHT.units(np.array([[question.values["weight"][0], question.values["li_size"][0]]]))[0]
    assert PolicyAdvisor(WEIGHT).decide(question) == (factor_of(unit), 0.0)
    assert factor_of(unit) == pytest.approx(np.clip(unit, -8, 8))


def test_inlining_draws_what_one_stream_would():
    exploration = Exploration(seed=5, temperature=2.0, flip_probability=0.2)
    questions = [asked(INLINE_SIZE, index=index) for index in range(40)]
    questions = [
        Observation(header=question.header, values=question.values, context="", index=question.index)
        for question in questions
    ]
    rows = [np.array([[q.values[name][0] for name in INLINING.features]]) for q in questions]
    expected = [
        decide_binary(float(INLINING.preferences(row)[0]), exploration, *exploration_draws(5, index))
        for index, row in enumerate(rows)
    ]
    advisor = PolicyAdvisor(INLINING, exploration)
    assert [advisor.decide(question) for question in reversed(questions)] == expected[::-1]


@pytest.mark.parametrize("policy", [EVICTION, PRIORITY, WEIGHT])
def test_drawn_decisions_depend_on_the_observation_alone(policy: Policy):
    problem = PROBLEMS[policy.problem]
    questions = [asked(problem, index=index) for index in range(30)]
    advisor = PolicyAdvisor(policy, Exploration(seed=9, temperature=3.0))
    there, back = ([advisor.decide(question) for question in order] for order in (questions, questions[::-1]))
    assert there == back[::-1]
    assert there != [PolicyAdvisor(policy, Exploration(seed=8, temperature=3.0)).decide(q) for q in questions]
    assert all(math.isfinite(logarithm) for _, logarithm in there)


@pytest.mark.parametrize(
    ("policy", "problem", "left_out"),
    [
        (EVICTION, REGALLOC_EVICTION, "nr_urgent"),
        (EVICTION, REGALLOC_EVICTION, "mask"),
        (PRIORITY, REGALLOC_PRIORITY, "weight"),
        (INLINING, INLINE_SIZE, "callee_users"),
    ],
)
def test_the_feature_that_the_compiler_does_not_send_is_named(policy: Policy, problem: Problem, left_out: str):
    with pytest.raises(PolicyError, match=f"policy for {problem.name}: expected a feature '{left_out}' from the comp"):
        PolicyAdvisor(policy).advise(asked(problem, leave_out=left_out))

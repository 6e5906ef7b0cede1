"""The gate opens where departing from the heuristic saved bytes on projects never seen, and nowhere else."""

import dataclasses
import math

import numpy as np
import pytest

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.effect_fit import fit_effects
from mlgokit.algorithms.effects import MeasuredEffects, join_effects
from mlgokit.algorithms.gate import ERRORS, choose_gate
from mlgokit.policy.network import Gate

CLOSED = math.inf


def made(side: list[int], sign: list[int], change: list[int], departs: list[bool], **others: object) -> MeasuredEffects:
    effects = MeasuredEffects(
        names=("size", "side"),
        values=np.stack([np.full(len(side), 7), np.array(side)], axis=1),
        sign=np.array(sign, np.float32),
        component=np.arange(len(side)),
        change=np.array(change, np.float32),
        project=np.zeros(len(change), np.int64),
        projects=("only",),
        departs=np.array(departs),
    )
    return dataclasses.replace(effects, **others)


def test_what_a_departure_saved_counts_whichever_way_it_was_flipped() -> None:
    # Inlined against the heuristic: saved 9. Inlined back to it: cost 5, so refusing had saved that.
    effects = made([1, 1] * 3, [1, 1] * 3, [-9, 5] * 3, [True, False] * 3)
    gate, evidence = choose_gate(effects, np.array([-3.0, 2.0] * 3), feature="side", margin=0.0)
    assert gate == Gate(feature="side", margins=(CLOSED, 0.0))
    assert [(found.departures, found.saved_bytes) for found in evidence] == [(0, 0.0), (6, 42.0)]
    assert [found.margin for found in evidence] == [CLOSED, 0.0]


def test_departures_that_nobody_advised_do_not_count() -> None:
    effects = made([0] * 7, [1] + [-1] * 6, [50] + [-9, -8] * 3, [True] * 7)
    gate, evidence = choose_gate(effects, np.array([4.0] + [2.0, 1.0] * 3), feature="side", margin=0.0)
    assert gate is not None
    assert gate.margins == (0.0, CLOSED)
    assert evidence[0].departures == 6


def test_a_side_where_advised_departures_cost_is_closed() -> None:
    effects = made([0, 0, 1, 1] * 3, [1] * 12, [30, -29, -2, -3] * 3, [True] * 12)
    gate, _ = choose_gate(effects, np.full(12, -1.0), feature="side", margin=0.0)
    assert gate is not None
    assert gate.margins == (CLOSED, 0.0)


def test_an_effect_within_the_margin_is_no_departure_and_four_lucky_flips_open_nothing() -> None:
    effects = made([1] * 6, [1] * 6, [-9] * 5 + [30], [True] * 6)
    gate, evidence = choose_gate(effects, np.array([-5.0] * 5 + [-3.0]), feature="side", margin=3.5)
    assert gate is not None
    assert gate.margins == (CLOSED, 3.5)
    assert evidence[1].departures == 5
    gate, evidence = choose_gate(effects, np.array([-5.0] * 4 + [-1.0, -3.0]), feature="side", margin=3.5)
    assert gate is not None
    assert gate.margins == (CLOSED, CLOSED)
    assert evidence[1].saved_bytes == ERRORS * evidence[1].error_bytes == 36.0


def test_one_project_that_saves_opens_nothing() -> None:
    """Three projects, of which the last saves more than the others cost."""
    project = np.array([0, 0, 1, 1] + [2] * 6)
    change = [2, 3, 1, 4] + [-50, -40, -45] * 2
    effects = made([1] * 10, [1] * 10, change, [True] * 10, project=project, projects=("a", "b", "c"))
    gate, evidence = choose_gate(effects, np.full(10, -5.0), feature="side", margin=0.0)
    assert evidence[1].saved_bytes > ERRORS * evidence[1].error_bytes
    assert gate is not None
    assert gate.margins == (CLOSED, CLOSED)
    alone = dataclasses.replace(effects, project=np.zeros(10, np.int64), projects=("a",))
    gate, _ = choose_gate(alone, np.full(10, -5.0), feature="side", margin=0.0)
    assert gate is not None
    assert gate.margins == (CLOSED, 0.0)


def test_projects_of_one_side_are_asked_by_themselves() -> None:
    """Three projects like those in C++, and one like those in C, where the same departures cost a little."""
    project = np.repeat([0, 1, 2, 3], [10, 10, 10, 6])
    side = ([0] * 6 + [1] * 4) * 3 + [0] * 6
    change = ([-30, -31, -32] * 2 + [-50, -60] * 2) * 3 + [8, -9, 10, 7, 1, -1]
    effects = made(side, [1] * 36, change, [True] * 36, project=project, projects=("a", "b", "c", "d"))
    gate, evidence = choose_gate(effects, np.full(36, -5.0), feature="side", margin=0.0)
    assert evidence[0].saved_bytes > ERRORS * evidence[0].error_bytes
    assert evidence[0].alone_saved_bytes == -16.0
    assert [found.explored_margin for found in evidence] == [0.0, 0.0]
    assert gate is not None
    assert gate.margins == (CLOSED, 0.0)
    assert evidence[1].alone_error_bytes == 0.0
    # Of such projects without a departure nobody knows, either.
    nothing = np.where(project == 3, 5.0, -5.0)
    assert choose_gate(effects, nothing, feature="side", margin=0.0)[0] == gate
    paying = dataclasses.replace(effects, change=np.where(project == 3, -9, effects.change).astype(np.float32))
    gate, _ = choose_gate(paying, np.full(36, -5.0), feature="side", margin=0.0)
    assert gate is not None
    assert gate.margins == (0.0, 0.0)


def test_flips_that_share_a_component_are_no_evidence() -> None:
    effects = made([1, 1], [1, 1], [-9], [True, True], component=np.zeros(2, np.int64), project=np.zeros(1, np.int64))
    _, evidence = choose_gate(effects, np.full(2, -1.0), feature="side", margin=0.0)
    assert [found.departures for found in evidence] == [0, 0]


@pytest.mark.parametrize(("feature", "departs"), [("absent", True), ("", True), ("side", None)])
def test_without_knowledge_there_is_no_gate(feature: str, departs: bool | None) -> None:
    effects = made([1], [1], [-9], [True])
    effects = effects if departs else dataclasses.replace(effects, departs=None)
    assert choose_gate(effects, np.array([-1.0]), feature=feature, margin=0.0) == (None, ())


def test_a_kind_of_call_that_every_project_has_otherwise_is_left_to_the_heuristic() -> None:
    """Where side is 1 an inlined call saves its size everywhere; where it is 0 each project has a sign of its own."""
    rng = np.random.default_rng(1)
    parts: list[MeasuredEffects] = []
    for number, name in enumerate("abcdef"):
        count = 150
        side, size = rng.integers(0, 2, count), rng.integers(5, 60, count)
        sign = rng.choice([-1, 1], count)
        effect = np.where(side == 1, -size, size * (1 if number % 2 else -1))
        parts.append(
            made(
                side.tolist(), sign.tolist(), (sign * effect).tolist(), [True] * count,
                values=np.stack([size, side], axis=1), projects=(name,),
            )
        )  # fmt: skip
    config = EffectConfig(members=4, epochs=25, batch_flips=128, gate_feature="side")
    policy, report = fit_effects(join_effects(parts), config, problem="inline-size", rng=np.random.default_rng(2))
    assert policy.gate == Gate(feature="side", margins=(CLOSED, 2.0))
    assert report.gate[1].saved_bytes > 5000
    values = np.array([[30, 0], [30, 1]])
    for heuristic in (False, True):
        decided = policy.preferences(values, np.full(2, heuristic)) > 0
        assert decided.tolist() == [heuristic, True]

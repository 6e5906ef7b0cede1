import struct
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.reuse.trials import (
    IMAGE_BYTES,
    OVERRIDE,
    TRIAL,
    Overrides,
    Series,
    Stage,
    TrialRequest,
    executed_weights,
    read_trial_results,
)
from mlgokit.errors import InputError

ONE = np.array([(3, 1, 9)], OVERRIDE)


def answer(costs: list[float], *, executed: float = 0, code: float = 0, unwind: float = 0) -> bytes:
    records = ONE.tobytes() * 3
    return struct.pack("<9d6I", *costs, executed, code, unwind, 0, 5, 7, 6, 1, 1, 1) + records


def tried(name: str, answers: list[bytes]) -> bytes:
    parts = [struct.pack("<QIII", 77, 2, len(name), len(answers)), name.encode()]
    return b"".join((*parts, *(struct.pack("<dI", 0.5, len(one)) + one for one in answers)))


def test_the_bytes_of_a_request_are_as_documented():
    trials = np.array([(0.5, 0.25, 6, 1, 1)], TRIAL)
    toggled = np.zeros((1, 4), OVERRIDE)
    toggled[0, 0] = (8, 2, 0)
    series = Series(key=2, base=Overrides(evictions=ONE), score=1.5, trials=trials, free=7.0, toggled=toggled)
    data = TrialRequest(
        series=(series,), stages=Stage.PASSES, seconds=3.0, penalty=9.0, policies=(b"policy",)
    ).to_bytes()
    assert data[:8] == b"MLGOTP5\n"
    assert struct.unpack_from("<d10dII", data, 8) == (3.0, 1.0, 4.0, 1.0, 4.0, 0.2, *4 * [0.0], 9.0, 2, 1)
    assert struct.unpack_from("<QddIIII", data, 104) == (2, 1.5, 7.0, 1, 0, 0, 1)
    assert struct.unpack_from("<IHH", data, 144) == (3, 1, 9)
    assert struct.unpack_from("<ddQII", data, 152) == (0.5, 0.25, 6, 1, 1)
    assert struct.unpack_from("<IHH", data, 184) == (8, 2, 0)
    assert data[216:] == struct.pack("<II", 1, 6) + b"policy"


def test_results_are_read_in_their_order(tmp_path: Path):
    (tmp_path / "tried").write_bytes(tried("f", [answer([1, 2, 0, 0, 5]), b""]) + tried("g", []))
    first, second = read_trial_results(tmp_path / "tried")
    assert (first.key, first.name, second.name, second.outcomes) == (77, "f", "g", ())
    done, failed = first.outcomes
    assert done.score == 10.0
    assert (done.seconds, done.evictions, done.priorities, done.passes, len(done.overrides)) == (0.5, 5, 7, 6, 3)
    assert first.stage is Stage.PASSES
    assert done.overrides.priorities.tolist() == [(3, 1, 9)]
    assert (failed.score, len(failed.overrides)) == (np.inf, 0)


def test_bytes_count_code_and_unwind_tables_and_costs_only_decide_between_equals(tmp_path: Path):
    answers = [answer([9, 9, 9, 9, 9], code=40, unwind=2), answer([0] * 5, code=40, unwind=3), answer([0] * 5, code=45)]
    (tmp_path / "tried").write_bytes(tried("f", [*answers, answer([0] * 5, code=40, unwind=2)]))
    ((*others, cheaper),) = (one.outcomes for one in read_trial_results(tmp_path / "tried", weights=IMAGE_BYTES))
    assert [round(one.score, 3) for one in others] == [45.0, 47.5, 45.0]
    assert cheaper.score < others[0].score


def test_among_equal_bytes_what_is_executed_decides_where_passes_are_tried(tmp_path: Path):
    answers = [answer([9] * 5, executed=7, code=40), answer([0] * 5, executed=8, code=40), answer([0] * 5, code=41)]
    (tmp_path / "tried").write_bytes(tried("f", answers))
    ((faster, slower, larger),) = (
        one.outcomes for one in read_trial_results(tmp_path / "tried", weights=executed_weights(IMAGE_BYTES))
    )
    assert faster.score < slower.score < larger.score
    assert (faster.cost, slower.cost) == (pytest.approx(7e-9), pytest.approx(8e-9))


@pytest.mark.parametrize("cut", [1, 20, 40, 80])
def test_a_damaged_file_is_refused(tmp_path: Path, cut: int):
    data = tried("f", [answer([1, 2, 0, 0, 5])])
    (tmp_path / "tried").write_bytes(data[:-cut])
    with pytest.raises(InputError, match="the plugin is of another version of mlgokit"):
        read_trial_results(tmp_path / "tried")
    (tmp_path / "tried").write_bytes(tried("f", [answer([1, 2, 0, 0, np.nan])]))
    with pytest.raises(InputError, match="finite numbers"):
        read_trial_results(tmp_path / "tried")
    (tmp_path / "tried").write_bytes(tried("f", [])[:-1])
    with pytest.raises(InputError, match="expected the name of a function, found the end of the file"):
        read_trial_results(tmp_path / "tried")
    with pytest.raises(InputError, match="expected a readable file"):
        read_trial_results(tmp_path / "nowhere")

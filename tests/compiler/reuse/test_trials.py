import struct
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.reuse.trials import IMAGE_BYTES, OVERRIDE, TRIAL, Overrides, Series, read_tried, request_bytes
from mlgokit.errors import InputError

ONE = np.array([(3, 1, 9)], OVERRIDE)


def answer(costs: list[float], *, code: float = 0, unwind: float = 0) -> bytes:
    records = ONE.tobytes() * 2
    return struct.pack("<7d4I", *costs, code, unwind, 5, 7, 1, 1) + records


def tried(name: str, answers: list[bytes]) -> bytes:
    parts = [struct.pack("<QII", 77, len(name), len(answers)), name.encode()]
    return b"".join((*parts, *(struct.pack("<dI", 0.5, len(one)) + one for one in answers)))


def test_the_bytes_of_a_request_are_as_documented():
    trials = np.array([(0.5, 0.25, 6, 1, 0)], TRIAL)
    series = Series(key=2, base=Overrides(evictions=ONE), score=1.5, trials=trials, free=7.0)
    data = request_bytes([series], seconds=3.0, penalty=9.0)
    assert data[:8] == b"MLGOTP3\n"
    assert struct.unpack_from("<d8dI", data, 8) == (3.0, 1.0, 4.0, 1.0, 4.0, 0.2, 0.0, 0.0, 9.0, 1)
    assert struct.unpack_from("<QddIII", data, 84) == (2, 1.5, 7.0, 1, 0, 1)
    assert struct.unpack_from("<IHH", data, 120) == (3, 1, 9)
    assert struct.unpack_from("<ddQII", data, 128) == (0.5, 0.25, 6, 1, 0)
    assert len(data) == 160


def test_results_are_read_in_their_order(tmp_path: Path):
    (tmp_path / "tried").write_bytes(tried("f", [answer([1, 2, 0, 0, 5]), b""]) + tried("g", []))
    first, second = read_tried(tmp_path / "tried")
    assert (first.key, first.name, second.name, second.outcomes) == (77, "f", "g", ())
    done, failed = first.outcomes
    assert done.score == 10.0
    assert (done.seconds, done.evictions, done.priorities, len(done.overrides)) == (0.5, 5, 7, 2)
    assert done.overrides.priorities.tolist() == [(3, 1, 9)]
    assert (failed.score, len(failed.overrides)) == (np.inf, 0)


def test_bytes_count_code_and_unwind_tables_and_costs_only_decide_between_equals(tmp_path: Path):
    answers = [answer([9, 9, 9, 9, 9], code=40, unwind=2), answer([0] * 5, code=40, unwind=3), answer([0] * 5, code=45)]
    (tmp_path / "tried").write_bytes(tried("f", [*answers, answer([0] * 5, code=40, unwind=2)]))
    ((*others, cheaper),) = (one.outcomes for one in read_tried(tmp_path / "tried", weights=IMAGE_BYTES))
    assert [round(one.score, 3) for one in others] == [45.0, 47.5, 45.0]
    assert cheaper.score < others[0].score


@pytest.mark.parametrize("cut", [1, 20, 40, 80])
def test_a_damaged_file_is_refused(tmp_path: Path, cut: int):
    data = tried("f", [answer([1, 2, 0, 0, 5])])
    (tmp_path / "tried").write_bytes(data[:-cut])
    with pytest.raises(InputError, match="the plugin is of another version of mlgokit"):
        read_tried(tmp_path / "tried")
    (tmp_path / "tried").write_bytes(tried("f", [answer([1, 2, 0, 0, np.nan])]))
    with pytest.raises(InputError, match="finite numbers"):
        read_tried(tmp_path / "tried")
    (tmp_path / "tried").write_bytes(tried("f", [])[:-1])
    with pytest.raises(InputError, match="expected the name of a function, found the end of the file"):
        read_tried(tmp_path / "tried")
    with pytest.raises(InputError, match="expected a readable file"):
        read_tried(tmp_path / "nowhere")

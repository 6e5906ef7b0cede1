import struct
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.trials import DEPARTURE, TRIAL, Departures, Series, read_tried, request_bytes
from mlgokit.errors import InputError

ONE = np.array([(3, 1, 9)], DEPARTURE)


def answer(costs: list[float], *, evictions: int = 5, priorities: int = 7) -> bytes:
    records = ONE.tobytes() * 2
    return struct.pack("<5d4I", *costs, evictions, priorities, 1, 1) + records


def tried(name: str, answers: list[bytes]) -> bytes:
    parts = [struct.pack("<QII", 77, len(name), len(answers)), name.encode()]
    return b"".join((*parts, *(struct.pack("<dI", 0.5, len(one)) + one for one in answers)))


def test_the_bytes_of_a_request_are_as_documented():
    trials = np.array([(0.5, 0.25, 6, 1, 0)], TRIAL)
    series = Series(key=2, base=Departures(evictions=ONE), score=1.5, trials=trials)
    data = request_bytes([series], seconds=3.0)
    assert data[:8] == b"MLGOTP1\n"
    assert struct.unpack_from("<d5dI", data, 8) == (3.0, 1.0, 4.0, 1.0, 4.0, 0.2, 1)
    assert struct.unpack_from("<QdIII", data, 60) == (2, 1.5, 1, 0, 1)
    assert struct.unpack_from("<IHH", data, 88) == (3, 1, 9)
    assert struct.unpack_from("<ddQII", data, 96) == (0.5, 0.25, 6, 1, 0)
    assert len(data) == 128


def test_results_are_read_in_their_order(tmp_path: Path):
    (tmp_path / "tried").write_bytes(tried("f", [answer([1, 2, 0, 0, 5]), b""]) + tried("g", []))
    first, second = read_tried(tmp_path / "tried")
    assert (first.key, first.name, second.name, second.outcomes) == (77, "f", "g", ())
    done, failed = first.outcomes
    assert done.score == 10.0
    assert (done.seconds, done.evictions, done.priorities, len(done.departures)) == (0.5, 5, 7, 2)
    assert done.departures.priorities.tolist() == [(3, 1, 9)]
    assert (failed.score, len(failed.departures)) == (np.inf, 0)


@pytest.mark.parametrize("cut", [1, 20, 40, 80])
def test_a_damaged_file_is_refused(tmp_path: Path, cut: int):
    data = tried("f", [answer([1, 2, 0, 0, 5])])
    (tmp_path / "tried").write_bytes(data[:-cut])
    with pytest.raises(InputError, match="the plugin is of another version of mlgokit"):
        read_tried(tmp_path / "tried")
    (tmp_path / "tried").write_bytes(tried("f", [answer([1, 2, 0, 0, np.nan])]))
    with pytest.raises(InputError, match="finite costs"):
        read_tried(tmp_path / "tried")
    with pytest.raises(InputError, match="expected a readable file"):
        read_tried(tmp_path / "nowhere")

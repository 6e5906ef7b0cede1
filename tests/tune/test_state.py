from pathlib import Path

import numpy as np

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.tune.state import append_effects, load_effects


def effects() -> MeasuredEffects:
    return MeasuredEffects(
        names=("a", "b"),
        values=np.ones((3, 2), np.int64),
        sign=np.ones(3, np.float32),
        component=np.zeros(3, np.int64),
        change=np.array([-7], np.float32),
        project=np.zeros(1, np.int64),
        projects=("m",),
    )


def test_what_was_measured_is_read_as_it_was_written(tmp_path: Path):
    assert load_effects(tmp_path / "effects") == []
    append_effects(tmp_path / "effects", effects())
    append_effects(tmp_path / "effects", effects())
    for found in load_effects(tmp_path / "effects"):
        assert (found.names, found.projects) == (("a", "b"), ("m",))
        np.testing.assert_array_equal(found.values, effects().values)
        np.testing.assert_array_equal(found.change, effects().change)


def test_a_record_that_was_cut_short_costs_only_itself(tmp_path: Path):
    path = tmp_path / "effects"
    append_effects(path, effects())
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole + whole[:end])
        assert [part.projects for part in load_effects(path)] == [("m",)]
        assert path.read_bytes() == whole
        append_effects(path, effects())
        assert len(load_effects(path)) == 2

from pathlib import Path

import numpy as np

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.tune.spaces.inlining.state import Progress, append_effects, load_effects, load_progress, save_progress


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


def test_progress_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "progress.npz"
    assert load_progress(path) is None
    save_progress(path, Progress(decisions={2: True}, tried={4: 1}, composed={2: False, 6: True}))
    found = load_progress(path)
    assert found is not None
    assert (found.decisions, found.tried, found.composed) == ({2: True}, {4: 1}, {2: False, 6: True})


def test_progress_of_versions_that_composed_nothing_is_read(tmp_path: Path):
    path = tmp_path / "progress.npz"
    sites, flags = np.array([2], np.uint64), np.array([True])
    np.savez(path, site=sites, inlined=flags, tried_site=sites, tried_count=np.array([1]))
    found = load_progress(path)
    assert found is not None
    assert (found.decisions, found.composed) == ({2: True}, {})

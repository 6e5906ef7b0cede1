import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.errors import InputError
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


@pytest.mark.parametrize("damage", ["zeros", "other arrays", "wrong lengths", "no arrays", "flipped"])
def test_a_damaged_record_costs_only_itself(tmp_path: Path, damage: str):
    path = tmp_path / "effects"
    append_effects(path, effects())
    whole = path.read_bytes()
    file = io.BytesIO()
    match damage:
        case "zeros":
            bad = bytes(64)
        case "flipped":
            # Inside of a compressed array: zlib's own error.
            bad = whole[:120] + bytes(reversed(whole[120:140])) + whole[140:]
        case "no arrays":
            bad = (7).to_bytes(4, "little") + b"nothing"
        case "other arrays":
            np.savez(file, values=np.zeros(3))
            bad = len(file.getvalue()).to_bytes(4, "little") + file.getvalue()
        case _:
            append_effects(tmp_path / "bad", dataclasses.replace(effects(), sign=np.ones(9, np.float32)))
            bad = (tmp_path / "bad").read_bytes()
    path.write_bytes(whole + bad + whole)
    assert [part.projects for part in load_effects(path)] == [("m",), ("m",)]
    # Nothing that was there is thrown away.
    assert path.read_bytes() == whole + bad + whole


def test_mutated_files_are_read_as_others_or_refused_in_a_sentence(tmp_path: Path):
    path, rng = tmp_path / "file", np.random.default_rng(1)
    append_effects(path, effects())
    measured = path.read_bytes()
    save_progress(path, Progress(decisions={2: True, 8: False}, tried={4: 1}, composed={2: False, 6: True}))
    progress, said = path.read_bytes(), list[str]()
    for _ in range(300):
        path.write_bytes(mutated(measured, rng))
        load_effects(path)
        path.write_bytes(mutated(progress, rng))
        try:
            found = load_progress(path)
        except InputError as error:
            said.append(str(error))
        else:
            assert found is not None
            assert all(isinstance(value, bool) for value in (*found.decisions.values(), *found.composed.values()))
    assert len(said) > 200
    for sentence in said:
        assert sentence.startswith(f"{path}: expected what the search knows of a module, found a damaged file (")
        assert sentence.endswith("delete it: this module is then searched anew, and the others go on")


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(len(changed)))] if rng.random() < 0.3 else changed)


@pytest.mark.parametrize(
    "arrays",
    [
        {"site": np.zeros(3, np.uint64)},
        {"site": np.zeros(1, np.float64)},
        {"site": np.zeros((1, 1), np.uint64)},
        {"tried_count": np.array(["many"])},
        {"composed_inlined": np.zeros(1, bool)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any]):
    path = tmp_path / "progress.npz"
    save_progress(path, Progress(decisions={2: True}, tried={4: 1}))
    with np.load(path) as found:
        changed: dict[str, Any] = dict(found) | arrays
    np.savez(path, **changed)
    with pytest.raises(InputError, match=r"progress\.npz: expected what the search knows of a module, found a damaged"):
        load_progress(path)


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

"""Checkpoints that are not whole: a sentence that names the file, and never a traceback."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.learner import state_bytes
from mlgokit.errors import InputError
from mlgokit.learning.run_folder import (
    CHECKPOINT_NAME,
    ROWS_NAME,
    Checkpoint,
    Counters,
    load_checkpoint,
    rows_up_to,
    save_checkpoint,
    write_metrics,
)

STATE = {"weight": np.arange(12, dtype=np.float32).reshape(3, 4), "step": np.array(3)}
REMEDY = "delete it to restart the training: compilations in the store are reused"


def row(turn: int) -> dict[str, float]:
    names = ("compilations", "reward", "validation_gain", "user_seconds", "seconds", "time")
    return {"turn": turn, **dict.fromkeys(names, 1.0)}


def test_a_checkpoint_comes_back(tmp_path: Path):
    assert load_checkpoint(tmp_path, "es") is None
    counters = Counters(turn=2, compilations=9, user_seconds=1.5)
    save_checkpoint(tmp_path, "es", Checkpoint(state=STATE, counters=counters, modules=("a b", "ü")))
    found = load_checkpoint(tmp_path, "es")
    assert found is not None
    assert (found.counters, found.modules) == (counters, ("a b", "ü"))
    assert found.state.keys() == STATE.keys()
    np.testing.assert_array_equal(found.state["weight"], STATE["weight"])


@pytest.mark.parametrize(
    "numbers",
    [
        {"turn": np.array([1, 2])},
        {"turn": np.array(1.5)},
        {"turn": np.array(-1)},
        {"seconds": np.array(np.nan)},
        {"best_gain": np.array([], np.float64)},
        {"stale": np.array(True)},
    ],
)
def test_impossible_counters_are_refused(tmp_path: Path, numbers: dict[str, Any]):
    values = {name: np.array(value) for name, value in dataclasses.asdict(Counters()).items()} | numbers
    data = state_bytes({**STATE, **{f"loop/{name}": value for name, value in values.items()}}, learner="es")
    (tmp_path / CHECKPOINT_NAME).write_bytes(data)
    with pytest.raises(InputError) as caught:
        load_checkpoint(tmp_path, "es")
    assert str(caught.value).startswith(
        f"{tmp_path / CHECKPOINT_NAME}: expected the checkpoint of this training, found"
    )
    assert str(caught.value).endswith(REMEDY)


def test_a_checkpoint_cut_short_or_mutated_is_refused_or_read(tmp_path: Path):
    save_checkpoint(tmp_path, "es", Checkpoint(state=STATE, counters=Counters(turn=2), modules=("a",)))
    path, rng = tmp_path / CHECKPOINT_NAME, np.random.default_rng(1)
    whole, said = path.read_bytes(), list[str]()
    for number in range(300):
        changed = bytearray(whole)
        changed[int(rng.integers(len(whole)))] = int(rng.integers(256))
        path.write_bytes(bytes(changed) if number % 2 else whole[: int(rng.integers(len(whole)))])
        try:
            load_checkpoint(tmp_path, "es")
        except InputError as error:
            said.append(str(error))
    assert len(said) > 200
    assert all(f"{path}: expected" in one and one.endswith(REMEDY) for one in said)


@pytest.mark.parametrize("rows", [[1], [1, 3], [2, 1], []])
def test_rows_that_are_not_those_of_the_turns_are_refused(tmp_path: Path, rows: list[int]):
    write_metrics(tmp_path, [row(turn) for turn in (1, 2, 3)])
    assert [one["turn"] for one in rows_up_to(2, tmp_path)] == [1, 2]
    write_metrics(tmp_path, [row(turn) for turn in rows])
    with pytest.raises(InputError, match=rf"{ROWS_NAME}: expected a row of numbers for each of the 2 turns"):
        rows_up_to(2, tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[[]]", "3", '[{"turn": "x"}]', '[{"turn": true}]', "[" * 100_000])
def test_invalid_rows_are_refused(tmp_path: Path, text: str):
    (tmp_path / ROWS_NAME).write_text(text)
    with pytest.raises(InputError, match=rf"{ROWS_NAME}: expected"):
        rows_up_to(1, tmp_path)
    (tmp_path / ROWS_NAME).write_text(json.dumps([{"turn": 1}]))
    with pytest.raises(InputError, match="not all of them whole"):
        rows_up_to(1, tmp_path)

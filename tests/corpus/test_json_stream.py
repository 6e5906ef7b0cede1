import json
from pathlib import Path
from typing import Any

import pytest

from mlgokit.corpus import json_stream
from mlgokit.corpus.json_stream import iter_members
from mlgokit.errors import CorpusError


def read(tmp_path: Path, text: str, key: str = "a") -> list[tuple[str, Any]]:
    (tmp_path / "x.json").write_text(text)
    return list(iter_members(tmp_path / "x.json", key, remedy="write it again"))


@pytest.mark.parametrize(
    ("value", "pieces"),
    [
        (
            {"a": [1, {"b": [2, {"c": None}], "d": "x"}, []]},
            [("", 1), ("", {"b": [2, {"c": None}], "d": "x"}), ("", [])],
        ),
        ({"b": {"a": [1]}, "a": {"x": 1.5, "y": {"a": True}}}, [("x", 1.5), ("y", {"a": True})]),
        ({"a": 3, "b": [1]}, [("", 3)]),
        ({"a": [], "b": [[[1]]]}, []),
        ({}, []),
    ],
)
def test_pieces_are_what_json_says(tmp_path: Path, value: Any, pieces: list[tuple[str, Any]]):
    assert read(tmp_path, json.dumps(value)) == pieces


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON, found"),
        ("[1]", "expected a JSON object, found another value"),
        ('{"a": [', "expected JSON, found"),
        ('{"a": ' + "[" * 100_000, "expected members nested at most 32 levels deep, found more"),
        ('{"b": ' + "[" * 100_000, "expected members nested at most 32 levels deep, found more"),
        ('{"a": "\xff"', "expected JSON, found"),
        ('{"a": [' + "9" * 5000 + ", []]}", "expected numbers of less than 1000 digits, found a longer one"),
    ],
)
def test_bad_text_is_one_sentence(tmp_path: Path, text: str, message: str):
    with pytest.raises(CorpusError, match=f"x.json: {message}.*; write it again"):
        read(tmp_path, text)


def test_a_piece_beyond_bounds_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_stream, "PIECE_BYTES", 1 << 17)
    assert len(read(tmp_path, json.dumps({"a": ["x" * 1000] * 1000}))) == 1000
    with pytest.raises(
        CorpusError,
        match=r"expected members of at most 131072 bytes, found a longer one at byte \d+; write it again",
    ):
        read(tmp_path, json.dumps({"a": [["x" * 1000] * 1000]}))


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(
        CorpusError, match=r"nowhere: expected a file, found: No such file or directory; write it again"
    ):
        list(iter_members(tmp_path / "nowhere", "a", remedy="write it again"))

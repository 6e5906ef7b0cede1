import math
from pathlib import Path

import pytest

from mlgokit.errors import InputError
from mlgokit.learning.run_folder import read_metrics, write_metrics


def test_rows_come_back_and_the_table_has_all_columns(tmp_path: Path):
    write_metrics(tmp_path, [{"turn": 1, "gain": math.nan}, {"turn": 2, "loss": 0.5}])

    first, second = read_metrics(tmp_path)
    assert first["turn"] == 1
    assert math.isnan(first["gain"])
    assert second == {"turn": 2, "loss": 0.5}
    assert (tmp_path / "metrics.csv").read_text() == "turn,gain,loss\n1,,\n2,,0.5\n"


def test_missing_rows_are_an_error(tmp_path: Path):
    with pytest.raises(InputError, match=r"turns.json: expected the rows of the checkpoint beside it, found: .*"):
        read_metrics(tmp_path)

"""What a policy of evictions sees of a column."""

import numpy as np
import pytest

from mlgokit.policy.columns import base_names, column_values

MASK = np.array([[True, False, True], [False, False, False]])


def test_what_is_so_of_all_columns_leaves_out_those_that_may_not_be_chosen():
    given = {"a": np.array([[2.0, 99.0, -4.0], [1.0, 2.0, 3.0]])}
    found = column_values(("least:a", "mean:a", "most:a", "legal_columns"), given, MASK)
    assert found[0].tolist() == [[-4.0, -1.0, 2.0, 2.0]] * 3
    assert found[1].tolist() == [[0.0] * 4] * 3


def test_one_value_for_all_columns_is_that_of_each():
    found = column_values(("progress", "mean:progress", "is_itself"), {"progress": np.array([[0.5], [0.25]])}, MASK)
    assert found[0].tolist() == [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 1.0]]
    assert found[1, :, :2].tolist() == [[0.25, 0.0]] * 3


def test_the_heuristics_column_has_to_be_known():
    names = ("a", "default:a")
    assert base_names(names) == ["a"]
    given = {"a": np.arange(6.0).reshape(2, 3)}
    assert column_values(names, given, MASK, np.array([2, 1]))[:, 0, 1].tolist() == [2.0, 4.0]
    with pytest.raises(KeyError, match="default:a"):
        column_values(names, given, MASK)
    with pytest.raises(KeyError, match="b"):
        column_values(("most:b",), given, MASK)

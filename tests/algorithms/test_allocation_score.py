"""What a change of an allocation counts."""

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.algorithms.live_range_search import additive_scores, changes
from mlgokit.compiler.reuse.trials import MEASURES


def measured(count: int, **values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    found = np.zeros((count, len(MEASURES)))
    for name, value in values.items():
        found[:, MEASURES.index(name)] = value
    return found


def test_what_is_made_again_counts_though_the_record_leaves_it_out():
    before = measured(1, reloads=10.0, executed=100.0)
    # A reload less, and nothing more: 4 of 40. A reload less, and one instruction more in its place: 3.8.
    less = changes(before, measured(1, reloads=9.0, executed=99.0), "spill-cost")
    again = changes(before, measured(1, reloads=9.0, executed=100.0), "spill-cost")
    assert less[0] == pytest.approx(100 * np.log(36.3 / 40.3))
    assert again[0] == pytest.approx(100 * np.log(36.5 / 40.3))


def test_scores_in_parts_are_bounded_and_bytes_are_bytes():
    before = measured(2, executed=100.0, code=50.0, unwind=2.0)
    after = measured(2, executed=[100.5, 300.0], code=[45.0, 60.0], unwind=2.0)
    assert changes(before, after, "executed").round(6).tolist() == [5.0, 30.0]
    assert changes(before, after, "bytes").round(6).tolist() == [-5.0, 10.0]
    then, now = additive_scores(before, after, "bytes")
    assert (then.tolist(), now.tolist()) == ([55.0, 55.0], [50.0, 65.0])
    then, now = additive_scores(before, after, "executed")
    assert (then.tolist(), now.round(6).tolist()) == ([1000.0, 1000.0], [1005.0, 1030.0])


def test_instructions_that_spill_and_reload_count_twice():
    before = measured(1, executed=100.0, spills=6.0, folded_reloads=4.0)
    less = changes(before, measured(1, executed=100.0, spills=5.0, folded_reloads=4.0), "executed")
    more = changes(before, measured(1, executed=100.0, spills=6.0, folded_reloads=5.0), "executed")
    assert less[0] == pytest.approx(-1000 / 110)
    assert more[0] == pytest.approx(1000 / 110)

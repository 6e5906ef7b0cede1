"""Records of compilations: what is decoded of a log, and what a record refuses."""

import dataclasses

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus, Keep, add_logs, decode_decisions
from mlgokit.errors import InputError, UsageError
from mlgokit.testing import ToyCall, toy_log, toy_sizes
from mlgokit.traces.function_id import function_id

CALLS = tuple(
    ToyCall(caller=caller, callee=callee, site=2 * number + 4, features={"size": 100 + number}, default=number == 2)
    for number, (caller, callee) in enumerate(("fa", "ga", "gb"))
)
LOG = toy_log(CALLS, [True, False, True], log_probability=[-0.1, -3.0, 0.0], by_table=[False, True, True])


@pytest.mark.parametrize(("keep", "rows"), [("none", []), ("log", []), ("flips", [1]), ("all", [0, 1, 2])])
def test_a_log_is_decoded(keep: Keep, rows: list[int]):
    found = decode_decisions(LOG, keep=keep)

    assert found.caller.tolist() == [function_id(name) for name in "fgg"]
    assert found.callee.tolist() == [function_id(name) for name in "aab"]
    assert found.by_site == {4: True, 6: False, 8: True}
    assert found.flipped.tolist() == [False, True, False]
    assert found.by_table is not None
    assert found.by_table.tolist() == [False, True, True]
    assert found.heuristic is not None
    assert found.heuristic.tolist() == [False, False, True]
    assert (found.names, found.rows.tolist()) == (("size",), rows)
    assert found.values.tolist() == [[100 + row] for row in rows]
    assert found.values_at(found.rows).tolist() == found.values.tolist()


def test_flips_are_what_the_request_says_where_the_table_decided():
    assert decode_decisions(LOG, flips=np.array([5, 6, 9])).flipped.tolist() == [False, True, True]
    assert decode_decisions(LOG, flips=np.array([7, 8])).flipped.tolist() == [False, False, False]


def test_defaults_that_the_log_leaves_out_are_not_known():
    assert decode_decisions(LOG, defaults_known=False).heuristic is None


@pytest.mark.parametrize("name", ["caller_id", "callee_id", "inlining_decision"])
def test_the_log_of_somebody_else_is_refused(name: str):
    columns = {column: values for column, values in LOG.columns.items() if column != name}
    with pytest.raises(InputError, match=f"expected a column '{name}', found size"):
        decode_decisions(dataclasses.replace(LOG, columns=columns))


def test_logs_are_kept_only_whole():
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 3}))
    logs = {"inline-size": LOG, "regalloc-eviction": LOG}

    assert add_logs(done, logs).logs == {}
    assert add_logs(done, logs, keep="log").logs == logs
    assert add_logs(done, logs).decision_count == 6
    assert len(add_logs(done, {}).decisions) == 0


def test_a_failed_compilation_has_no_measurements():
    failed = Compilation(status=CompileStatus.CRASHED)
    with pytest.raises(
        UsageError, match="found one where the compiler was ended by a signal; leave this compilation out"
    ):
        assert failed.measured
    assert not failed.ok
    assert failed.decisions.by_site == {}
    stored = dataclasses.replace(decode_decisions(LOG), site=None)
    with pytest.raises(UsageError, match="expected the keys of their call sites"):
        assert stored.sites is not None

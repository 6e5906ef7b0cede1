from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mlgokit.compiler.objects.measure import Objective, ObjectSizes, SectionTotals
from mlgokit.module import Module
from mlgokit.tune.allocation import bytes as allocation_bytes
from mlgokit.tune.allocation.state import ModuleSearch
from mlgokit.tune.project import SearchConfig
from mlgokit.tune.proof import VerifiedBuild

MODULE = Module(name="a.o", project="a", language="c", bitcode=Path("a.bc"), bitcode_bytes=0, command_line=())
KEYS = {"f": 1, "g": 2, "h": 3}


class Searching:
    """What of a search the proof asks for."""

    config = SearchConfig(objective=Objective.LINK_AWARE)


def sizes(text: dict[str, int]) -> ObjectSizes:
    values, nothing = np.array(list(text.values()), np.int64), np.zeros(len(text), np.int64)
    totals = SectionTotals(text=int(values.sum()), rodata=0, eh_frame=0, data=0, bss=0, except_table=0)
    return ObjectSizes(
        totals=totals,
        function_names=tuple(text),
        function_text=values,
        function_rodata=nothing,
        function_except_table=nothing,
        function_eh_frame=nothing,
        function_signature=nothing - 1,
        signatures=(),
        signature_rest=np.zeros((0, 3), np.int64),
        signature_data=np.zeros(0, np.int64),
        rest=np.zeros(3, np.int64),
    )


@pytest.mark.parametrize(
    ("outlined", "after", "back"),
    [
        ({}, {"f": 90, "g": 100, "h": 100}, set()),
        ({}, {"f": 90, "g": 104, "h": 100}, {2}),
        # Nobody touched it: the allocation of another function has changed what is around it.
        ({}, {"f": 90, "g": 100, "h": 104}, {1, 2}),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 90, "g": 100, "h": 104}, set()),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 90, "g": 104, "h": 100}, set()),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 98, "g": 104, "h": 100}, {2}),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 99, "g": 99, "h": 104}, {1, 2}),
    ],
)
def test_what_does_not_pay_is_put_back(outlined: dict[str, int], after: dict[str, int], back: set[int]):
    module = ModuleSearch(module=MODULE, keys=KEYS, functions=[], compile_seconds=0.1)
    first, second = (
        VerifiedBuild(objects={}, sizes={"a.o": sizes(text | outlined)})
        for text in ({"f": 100, "g": 100, "h": 100}, after)
    )
    chosen = cast("Any", dict.fromkeys((1, 2)))
    assert allocation_bytes._wrong(module, first, second, chosen, cast("Any", Searching)) == back

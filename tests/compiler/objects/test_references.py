"""What refers to the functions of an object."""

from collections.abc import Callable

import numpy as np

from mlgokit.compiler.objects.object_file import TEXT, Functions, Parts, References, collect_references, no_frames

CODE = Functions(
    names=("f", "OUTLINED_FUNCTION_0", "g", "h"),
    section=np.array([0, 1, 2, 2]),
    begin=np.array([0, 0, 0, 8]),
    size=np.array([4, 4, 8, 8]),
)
PARTS = Parts(
    kind=np.array([TEXT] * 3),
    size=np.array([4, 4, 16]),
    group=np.array([-1] * 3),
    signatures=(),
    functions=CODE,
    frames=no_frames(),
    tables=(),
)


def collected(rows: list[tuple[int, int, int]], always_live: set[str], name_of: Callable[[int], str]) -> References:
    """By relocations: the function that holds one, its symbol, and the function of the symbol."""
    function, symbol, target = np.array(rows).T
    return collect_references(
        PARTS, np.zeros(len(rows), int), function, symbol, target, always_live=always_live, name_of=name_of
    )


def test_references_of_functions_and_of_data_are_told_apart():
    found = collected([(0, 9, 3), (0, 0, -1), (-1, 2, -1)], {"kept"}, ["printf", "", "main"].__getitem__)

    assert found.by_function == (("h", "printf"), (), (), ())
    # What shares a section stays or goes together.
    assert found.always_live == {"kept", "main", "OUTLINED_FUNCTION_0", "g", "h"}


def test_what_an_outlined_function_refers_to_is_referred_to_by_those_that_it_is_a_part_of():
    found = collected([(0, 5, 1), (1, 6, 2)], set(), str)

    assert found.by_function[0] == ("OUTLINED_FUNCTION_0", "g")
    assert found.by_function[1] == ()

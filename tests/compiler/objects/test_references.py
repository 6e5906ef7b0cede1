"""What refers to the functions of an object."""

import numpy as np

from mlgokit.compiler.objects.object_file import Functions, collect_references

CODE = Functions(
    names=("f", "OUTLINED_FUNCTION_0", "g", "h"),
    section=np.array([0, 1, 2, 2]),
    begin=np.array([0, 0, 0, 8]),
    size=np.array([4, 4, 8, 8]),
)


def test_references_of_functions_and_of_data_are_told_apart():
    found = collect_references(CODE, [(0, 3), (0, -1), (-1, -3)], {"kept"}, name_of=["printf", "", "main"].__getitem__)

    assert found.by_function == (("h", "printf"), (), (), ())
    # What shares a section stays or goes together.
    assert found.held == {"kept", "main", "OUTLINED_FUNCTION_0", "g", "h"}


def test_what_an_outlined_function_refers_to_is_referred_to_by_those_that_it_is_a_part_of():
    found = collect_references(CODE, [(0, 1), (1, 2)], set(), name_of=str)

    assert found.by_function[0] == ("OUTLINED_FUNCTION_0", "g")
    assert found.by_function[1] == ()

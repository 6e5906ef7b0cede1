import pytest

from mlgokit.testing import toy_sizes
from mlgokit.tune.spaces.functions.compare import larger_functions

KEYS = {"f": 1, "g": 2, "h": 3}


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
    first, second = (toy_sizes(text | outlined) for text in ({"f": 100, "g": 100, "h": 100}, after))
    assert larger_functions(KEYS, {1, 2}, first, second, text_only=False) == back

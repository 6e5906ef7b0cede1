import json

import pytest

from mlgokit.compiler.describe import read_description

MODULE = {"llvm": 22, "identity": "ab", "functions": 1, "declarations": 2, "global_bytes": 3, "language": "DW_LANG_C11"}
COLUMNS = {"columns": ["instructions", "call_sites"]}
FUNCTION = ["main", "external", "cd", 7, 1]


def text(*lines: object) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_columns_functions_and_module_are_read():
    found = read_description(text(COLUMNS, FUNCTION, MODULE), wall_seconds=0.5)
    assert (found.reason, found.identity, found.functions, found.declarations) == ("", "22:ab", 1, 2)
    assert (found.names, found.linkages, found.identities) == (("main",), ("external",), ("22:cd",))
    assert found.values.tolist() == [[7, 1]]
    assert (found.total("instructions"), found.total("no_such_column"), found.wall_seconds) == (7, 0, 0.5)


def test_a_module_without_functions_has_no_columns():
    found = read_description(text({**MODULE, "functions": 0}))
    assert (found.reason, found.columns, found.names, found.values.shape) == ("", (), (), (0, 0))
    assert found.column("instructions").shape == (0,)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((COLUMNS, MODULE), "expected 1 functions in the description, found 0"),
        ((COLUMNS, FUNCTION), "the description cannot be read: TypeError("),
        ((COLUMNS, FUNCTION[:-1], MODULE), "the description cannot be read: ValueError("),
        ((MODULE, FUNCTION, MODULE), "the description cannot be read: KeyError('columns')"),
        ((), "the description cannot be read: IndexError("),
        ((COLUMNS, [*FUNCTION[:-1], 1 << 64], MODULE), "the description cannot be read: OverflowError("),
    ],
)
def test_what_is_not_whole_is_a_reason(lines: tuple[object, ...], reason: str):
    found = read_description(text(*lines))
    assert found.reason.startswith(reason)
    assert not found.identity


def test_a_name_with_line_ends_of_its_own_is_one_name():
    """As LLVM writes them: only what JSON must have escaped is."""
    name = "a\u2028b\x85c"
    lines = (COLUMNS, [name, *FUNCTION[1:]], MODULE)
    assert read_description("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)).names == (name,)

"""The matrix of what works: each cell has a test that is there, or a reason."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from mlgokit.compiler.toolchain import SUPPORTED_MAJORS
from mlgokit.problems import PROBLEMS

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "support.md"
PROCESSORS = ("x86-64", "AArch64", "ARM", "RISC-V")
WORDS = {"AArch64": "aarch64", "ARM": r"thumb|\barm-", "RISC-V": "riscv"}
"""By which a test names a processor."""


def section() -> str:
    text = PAGE.read_text()
    start = text.index("## Results, by what is decided")
    return text[start : text.index("## Majors")]


def rows(columns: str) -> list[list[str]]:
    """The cells of the table whose header begins so."""
    lines = section().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(columns))
    found: list[list[str]] = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def named_tests() -> dict[str, tuple[Path, str]]:
    found = re.findall(r"^- [(](\d+)[)] `([\w/]+[.]py)`, `(test_\w+)`", section(), flags=re.MULTILINE)
    return {key: (TESTS / path, name) for key, path, name in found}


def reasons() -> set[str]:
    return set(re.findall(r"^- [(]([A-Z])[)] \S", section(), flags=re.MULTILINE))


def cells() -> list[str]:
    tables = ("| result | problem |", "| result | ELF |", "| library | 19 |", "| result | 14 |")
    whole = [row for table in tables for row in rows(table)]
    return [cell for row in whole for cell in row[1:] if not cell.startswith(("`", "all "))]


@cache
def functions(path: Path) -> dict[str, list[str]]:
    """The arguments of each test of a file."""
    tree = ast.parse(path.read_text())
    return {
        node.name: [one.arg for one in node.args.args]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_cell_has_a_test_or_a_reason():
    given = {key for cell in cells() for key in re.findall(r"[(](\w+)[)]", cell)}

    assert [cell for cell in cells() if not re.fullmatch(r"(no [(][A-Z][)])|(([\w, ]+ )?[(]\d+[)])", cell)] == []
    assert given == set(named_tests()) | reasons()


def test_every_test_that_is_named_is_there():
    missing = [(path.name, name) for path, name in named_tests().values() if name not in functions(path)]

    assert len(named_tests()) > 20
    assert missing == []


def test_a_test_that_is_not_there_would_be_found():
    path, _ = named_tests()["1"]

    assert "test_of_nothing" not in functions(path)


@pytest.mark.parametrize("processor", PROCESSORS[1:])
def test_a_test_for_another_processor_names_it(processor: str):
    column = 2 + PROCESSORS.index(processor)
    keys = {key for row in rows("| result | problem |") for key in re.findall(r"[(](\d+)[)]", row[column])}

    assert keys
    for key in keys:
        path, _ = named_tests()[key]
        assert re.search(WORDS[processor], path.read_text()), path.name


def test_all_problems_are_in_the_matrix():
    found = set(re.findall(r"`([a-z-]+)`", " ".join(row[1] for row in rows("| result | problem |"))))

    assert found == set(PROBLEMS)


def test_where_the_cell_says_all_majors_the_test_runs_with_all():
    claimed = ", ".join(map(str, SUPPORTED_MAJORS))
    # But for 21, whose compiler lacks what searches of registers and passes need.
    wanted = rf"(?:{claimed}|{claimed.replace('21, ', '')}) [(](\d+)[)]"
    keys = {found[1] for cell in cells() if (found := re.fullmatch(wanted, cell))}

    assert len(keys) > 10
    for key in keys:
        path, name = named_tests()[key]
        assert "SUPPORTED_MAJORS" in path.read_text() or "every_major" in marks(path, name), f"{path.name}: {name}"


def marks(path: Path, name: str) -> set[str]:
    """The marks of a test, as its decorators and its module give them."""
    tree = ast.parse(path.read_text())
    nodes: list[ast.AST] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            nodes += node.decorator_list
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            nodes.append(node.value)
    return {inner.attr for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}

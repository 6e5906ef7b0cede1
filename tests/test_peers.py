"""The comparison with the tests of MLGO's own projects, and values that those assert and no other test here."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlgokit.algorithms.rewards import relative_reward
from mlgokit.corpus.layout import decode_command_line
from mlgokit.errors import InputError

ROOT = Path(__file__).parent.parent


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, as running its file imports it."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("peers")


def test_every_row_names_tests_that_there_are_or_a_reason(peers: ModuleType):
    for row in peers.read_rows():
        assert row.why or row.tests, row
        assert len(row.why) > 20 or not row.why, row
        for name in row.tests:
            path, _, test = name.partition("::")
            function = test.rpartition(".")[2]
            assert f"def {function}" in (ROOT / path).read_text(encoding="utf-8"), name


def test_every_file_of_the_three_suites_has_rows(peers: ModuleType):
    files: dict[str, set[str]] = {}
    for row in peers.read_rows():
        files.setdefault(row.suite, set()).add(row.file)
    assert {suite: len(found) for suite, found in files.items()} == {"mlgo-utils": 6, "ml-compiler-opt": 36, "LLVM": 38}


def test_a_row_that_says_nothing_is_refused(peers: ModuleType, tmp_path: Path):
    for row in ('{ does = "x" }', '{ does = "x", same = ["t"], different = "y" }', '{ different = "why" }'):
        path = tmp_path / "rows.toml"
        path.write_text(f'[[file]]\nsuite = "s"\nfile = "f"\nrows = [{row}]\n')
        with pytest.raises(InputError, match=r"rows.toml: f: expected `does` and one of same, different, not_applic"):
            peers.read_rows(path)


def test_how_a_test_ended_is_read_from_its_report(peers: ModuleType):
    ends = peers.run_tests(["tests/test_peers.py::test_a_baseline_of_nothing_gives_a_finite_reward"], seconds=300)
    assert [dict(found) for found in ends.values()] == [{"passed": 1}]


def test_a_baseline_of_nothing_gives_a_finite_reward():
    rewards = relative_reward(np.array([0.0, 4.0, 8.0]), np.array([0.0, 0.0, 10.0]))
    assert np.isfinite(rewards).all()
    assert rewards[0] == 0
    assert rewards[2] == pytest.approx(0.1998002, abs=1e-7)


def test_braces_in_options_survive():
    words = ("-cc1", "-DX(a)=do {} while (0)", "-O2", "-DY={{b}}%s")
    assert decode_command_line("".join(f"{word}\0" for word in words).encode()) == words

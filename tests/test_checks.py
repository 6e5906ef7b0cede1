"""What ``make test`` says and returns: every target runs, and those that fail are named."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "checks.py"
MAKEFILE = """
tests types:
\t@echo "$@ of $(ARGS)"
lint:
\t@echo "a line is too long"; exit 1
"""


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a Makefile of three targets, one of which fails."""
    spec = importlib.util.spec_from_file_location("checks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=several\\ words")
    return module


def run(checks: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["checks.py", *words])
    return checks.main()


def test_all_that_passed_are_listed_with_their_seconds(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    assert run(checks, monkeypatch, "tests", "--beside", "types") == 0
    out = capfd.readouterr().out
    assert "tests of several words" in out
    assert "types of" not in out
    assert (tmp_path / "logs" / "types.txt").read_text() == "types of several words\n"
    assert [line.split()[::3] for line in out.splitlines()[-3:-1]] == [["tests", "passed"], ["types", "passed"]]
    assert out.splitlines()[-1] == "all 2 passed"


def test_a_target_that_fails_is_shown_and_named_and_the_others_run(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    assert run(checks, monkeypatch, "tests", "--beside", "lint", "types") == 1
    out = capfd.readouterr().out
    assert "== lint failed\na line is too long\n" in out
    assert out.splitlines()[-1] == "failed: lint"
    assert run(checks, monkeypatch, "lint", "tests") == 1
    assert capfd.readouterr().out.splitlines()[-1] == "failed: lint"

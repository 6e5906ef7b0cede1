import json
from pathlib import Path

import pytest

from mlgokit.compiler import record as recording
from mlgokit.compiler.record import record_build
from mlgokit.errors import ToolError, UsageError

BEAR = """#!/bin/sh
# Stands in for Bear: writes a database with the words of the build, and runs the build.
test "$1" = --output || exit 99
echo "[{\\"directory\\": \\"/\\", \\"file\\": \\"a.c\\", \\"command\\": \\"cc -c a.c\\"}]" > "$2"
test "$3" = -- || exit 98
shift 3
exec "$@"
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bear = tmp_path / "bear"
    bear.write_text(BEAR)
    bear.chmod(0o755)
    monkeypatch.setattr(recording, "BEAR", str(bear))
    return tmp_path / "compile_commands.json"


def test_a_build_runs_under_bear_and_is_written_down(database: Path, capfd: pytest.CaptureFixture[str]):
    build = record_build(["sh", "-c", "echo compiling; exit 3"], database=database, timeout_seconds=30)
    assert (build.database, build.returncode, build.timed_out) == (database, 3, False)
    assert json.loads(database.read_text())[0]["file"] == "a.c"
    assert capfd.readouterr() == ("", "compiling\n")


def test_a_build_that_does_not_end_is_killed_with_its_children(database: Path):
    build = record_build(["sh", "-c", "sleep 600 & wait"], database=database, timeout_seconds=0.3)
    assert build.timed_out
    assert build.returncode == -9


def test_without_bear_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording, "BEAR", "no-such-bear")
    with pytest.raises(
        ToolError,
        match=r"record: expected the program no-such-bear, found none; install it \(apt-get install bear\), or have "
        r"the build system write compile_commands\.json: `cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`, `ninja -t compdb`",
    ):
        record_build(["make"], database=tmp_path / "c.json", timeout_seconds=1)


def test_a_build_that_is_none_is_misuse(database: Path):
    with pytest.raises(UsageError, match="expected a build after --, found nothing; give one, as in `record -- make"):
        record_build([], database=database, timeout_seconds=1)
    with pytest.raises(
        UsageError, match="expected a program in no-such-make -j2, found no no-such-make; check the name"
    ):
        record_build(["no-such-make", "-j2"], database=database, timeout_seconds=1)

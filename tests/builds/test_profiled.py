"""The runs of a build with counters."""

from pathlib import Path

import pytest

from mlgokit.builds.profiled import run_command


def test_counts_go_where_the_build_sends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LLVM_PROFILE_FILE", "elsewhere.profraw")
    script = 'test -z "$LLVM_PROFILE_FILE" && test "$PWD" = "$1"'
    assert run_command(["sh", "-c", script, "sh", str(tmp_path)], tmp_path, seconds=20) == ""

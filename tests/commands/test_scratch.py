"""The folder for temporary files of a command, and what a killed one leaves."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlgokit.commands.scratch import scratch_folder

HELD = """
import sys, tempfile
from mlgokit.commands.scratch import scratch_folder
with scratch_folder():
    tempfile.mkdtemp()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are; nothing else is there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_temporary_files_are_in_one_folder_that_goes(base: Path):
    with scratch_folder() as folder:
        assert folder.parent == base
        inside = Path(tempfile.mkdtemp())
        assert inside.parent == folder
        assert folder.stat().st_mode & 0o077 == 0
    assert tempfile.gettempdir() == str(base)
    assert list(base.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_another_has_stays(base: Path):
    environment = os.environ | {"TMPDIR": str(base), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", HELD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        before = set(base.iterdir())
        assert len(before) == 2
        children[0].send_signal(signal.SIGKILL)
        children[0].wait(timeout=30)
        (base / "mlgokit-run-link").symlink_to(base)
        (base / "mlgokit-run-file").write_text("")
        with scratch_folder() as folder:
            left = set(base.iterdir())
        assert len(left & before) == 1
        assert left - before == {folder, base / "mlgokit-run-link", base / "mlgokit-run-file"}
    finally:
        for child in children:
            child.communicate(timeout=30)
    assert {path.name for path in base.iterdir()} == {"mlgokit-run-link", "mlgokit-run-file"}


def test_a_sandbox_that_waits_in_an_abandoned_folder_is_ended(base: Path):
    abandoned, other = base / "mlgokit-run-gone", base / "elsewhere"
    abandoned.mkdir()
    # Python under another name, as nothing else waits for as long as it is asked to and looks like bubblewrap.
    waiting = [
        subprocess.Popen(
            ["bwrap", "-c", "import time; time.sleep(60)", str(folder / "mlgokit-sandbox-1")], executable=sys.executable
        )
        for folder in (abandoned, other)
    ]
    reader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(abandoned / "log")])
    try:
        with scratch_folder():
            assert waiting[0].wait(timeout=30) == -signal.SIGKILL
            assert not abandoned.exists()
        assert waiting[1].poll() is None
        assert reader.poll() is None
    finally:
        for child in (*waiting, reader):
            child.kill()
            child.wait(timeout=30)

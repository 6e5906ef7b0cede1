"""Processes that end with their test."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator

import pytest


@pytest.fixture
def started() -> Generator[list[subprocess.Popen[bytes]]]:
    """What a test starts; each leads a group."""
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)

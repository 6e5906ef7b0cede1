"""The browser of these tests."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.bench.counts import RUN_LIMITS
from mlgokit.compiler import process

DEADLINE_SECONDS = 180.0


@pytest.fixture(scope="session")
def browser() -> Callable[..., str]:
    """Opens a page in Chromium, with its profile in a folder, and returns the DOM.

    Where CI=true promises a browser, its absence is a failure.
    """
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        message = "no chromium; run `apt-get install chromium`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)

    def dump(page: Path, folder: Path, *options: str) -> str:
        done = process.run(
            [
                found,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={folder / 'profile'}",
                "--virtual-time-budget=10000",
                "--hide-scrollbars",
                "--window-size=1400,1000",
                *options,
                "--dump-dom",
                page.as_uri(),
            ],
            timeout_seconds=DEADLINE_SECONDS,
            # Chromium reserves address space by the terabyte, and ends at once where it may not.
            limits=RUN_LIMITS,
        )
        assert not done.timed_out, done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    return dump

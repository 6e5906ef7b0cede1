"""Chromium without a window: a page of a file is opened, and its document or a picture of it comes back."""

import shutil
from pathlib import Path

from mlgokit.bench.counts import RUN_LIMITS
from mlgokit.compiler import process
from mlgokit.errors import ToolError

DEADLINE_SECONDS = 180.0
DARK = "--blink-settings=preferredColorScheme=0"
"""The switch for dark colours."""
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1400,1000",
)


def find_chromium() -> str | None:
    """The program, or nothing."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def opened(browser: str, page: Path, folder: Path, *switches: str) -> process.Completed:
    """Open a page that needs no network, with the browser's profile in ``folder``.

    Args:
        browser: of :func:`find_chromium`.
        page: a file.
        folder: where the profile goes.
        switches: more of them; later ones win. ``--dump-dom`` has the document printed.

    Raises:
        ToolError: the browser fails, or does not end.
    """
    done = process.run(
        [browser, *_SWITCHES, f"--user-data-dir={folder / 'profile'}", *switches, page.as_uri()],
        timeout_seconds=DEADLINE_SECONDS,
        # Chromium reserves address space by the terabyte, and ends at once where it may not.
        limits=RUN_LIMITS,
    )
    if done.timed_out or done.returncode:
        raise ToolError(f"{browser}: expected it to show {page.name}, found: {done.stderr}; try it by hand")
    return done


def document(browser: str, page: Path, folder: Path, *switches: str) -> str:
    """The document as it is once its scripts have run; see :func:`opened`.

    Raises:
        ToolError: the browser fails, or does not end.
    """
    return opened(browser, page, folder, *switches, "--dump-dom").stdout.decode()

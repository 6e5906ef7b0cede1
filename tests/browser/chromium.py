"""Chromium without a window: a page of a file is opened, and its document or a picture of it comes back."""

import base64
import hashlib
import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

_AROUND = """<!DOCTYPE html><title>probe</title><body><pre id="seen"></pre><script>
addEventListener("message", (event) => { document.getElementById("seen").textContent = JSON.stringify(event.data); });
</script><iframe src="page.html" style="border: 0; height: 900px; width: WIDTHpx"></iframe></body>"""


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


def look_into(
    browser: Callable[..., str], page: str, probe: str, folder: Path, *options: str, width: int
) -> dict[str, Any]:
    """What a script that is put into a page posts to the page around; the page is in a frame of this width.

    The page's policy lets the script run by its digest, as it does the page's own.
    """
    (folder / "page.html").write_text(add_probe(page, probe))
    (folder / "around.html").write_text(_AROUND.replace("WIDTH", str(width)))
    text = read_seen(browser(folder / "around.html", folder, *options))
    assert text, "the page did not finish"
    return json.loads(text)


def add_probe(page: str, probe: str) -> str:
    """A page with a script in its head that its policy allows."""
    digest = base64.b64encode(hashlib.sha256(probe.encode()).digest()).decode()
    allowed = page.replace("script-src 'sha256-", f"script-src 'sha256-{digest}' 'sha256-", 1)
    return allowed.replace("</title>", f"</title><script>{probe}</script>", 1)


def read_seen(dom: str) -> str:
    """What the page around has written down of what was posted to it."""
    seen = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    assert seen, dom
    return html.unescape(seen[1])

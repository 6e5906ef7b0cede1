"""The browser of these tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser import chromium


@pytest.fixture(scope="session")
def browser() -> Callable[..., str]:
    """Opens a page in Chromium, with its profile in a folder, and returns the document.

    Where CI=true promises a browser, its absence is a failure.
    """
    found = chromium.find_chromium()
    if found is None:
        message = "no chromium; run `apt-get install chromium`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)

    def shown(page: Path, folder: Path, *options: str) -> str:
        return chromium.document(found, page, folder, "--virtual-time-budget=10000", "--hide-scrollbars", *options)

    return shown

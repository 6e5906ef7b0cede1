"""Calls of the command line, as a shell makes them."""

import pytest

from mlgokit.cli import main


def ended(*words: object) -> int:
    """The exit code of a call."""
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    code = caught.value.code or 0
    assert isinstance(code, int)
    return code

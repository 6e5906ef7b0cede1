"""What a search may be asked to work on."""

import contextlib
import json
from pathlib import Path

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.corpus import Database
from mlgokit.builds.opening import open_build
from mlgokit.builds.request import BuildRequest
from mlgokit.errors import UsageError
from mlgokit.progress import say_nothing
from mlgokit.testing import FAKE_TOOLCHAIN


@pytest.mark.parametrize("option", ["--sandbox on", "--artifact replay"])
def test_an_option_for_compile_steps_is_refused_before_a_link_is_run(tmp_path: Path, option: str):
    database = tmp_path / "compile_commands.json"
    arguments = ["clang", "-Oz", "-flto", "-c", "a.c", "-o", "a.o"]
    database.write_text(json.dumps([{"directory": str(tmp_path), "file": "a.c", "arguments": arguments}]))
    request = BuildRequest(
        scratch=tmp_path / "tune",
        objective="linked",
        timeout_seconds=1.0,
        error=0.05,
        database=Database(path=database),
        link="clang -flto a.o -o a",
        steps_only=option,
        compiler=CompilerOptions(),
    )
    expected = f"^{option}: works for compile steps only, and this search is of a link with -flto; remove it, or choose"
    with contextlib.ExitStack() as stack, pytest.raises(UsageError, match=expected):
        open_build(request, FAKE_TOOLCHAIN, stack=stack, report=say_nothing)
    assert not (tmp_path / "tune").exists()

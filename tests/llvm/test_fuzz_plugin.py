"""The plugin's readers under sanitizers: what was found once, and a few inputs of ``benchmarks/fuzz_plugin.py``."""

import importlib
import os
import struct
from pathlib import Path

import numpy as np
import platformdirs
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.reuse.trials import TRIAL, Overrides, Series, TrialRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

pytestmark = pytest.mark.llvm

INPUTS = 3000
READERS = (
    "policy",
    "decision table",
    "allocation table",
    "pass table",
    "trials",
    "answer of a trial",
    "known functions",
    "environment",
)
ONE = Series(key=(1 << 64) - 1, base=Overrides(), score=1.0, trials=np.zeros(3, TRIAL))
SIZES = (0.0, 7e300, -1.0, float("nan"), float("inf"))
FOUND = {
    "an entry without names and keys": ("decision table", b"MLGODT2\n" + struct.pack("<5I", 1, 0, 0, 0, 0)),
    "a function without overrides": ("allocation table", b"MLGORT1\n" + struct.pack("<IQIII", 1, 7, 0, 0, 0)),
    "keys that a hash table has for itself": ("trials", TrialRequest(series=(ONE,) * 3, seconds=1.0).to_bytes()),
    **{f"trials of {size} seconds": ("trials", TrialRequest(seconds=size).to_bytes()) for size in SIZES},
    "a seed that a terminal obeys": ("environment", b"MLGOKIT_SEED=\x1b[31m"),
}


def test_the_readers_do_what_they_should_with_mutated_inputs(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In one test, with a program that is kept by its content, as the plugin is: it takes twenty seconds to build."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    fuzz = importlib.import_module("fuzz_plugin")
    try:
        built = fuzz.build(toolchain, platformdirs.user_cache_path("mlgokit") / "tests" / "fuzz_plugin")
    except ToolError as error:
        if os.environ.get("CI") == "true" or "libclang_rt" not in str(error):
            raise
        pytest.skip(str(error))
    # Inputs that reach new code are kept beside the program, and each run begins without any.
    program = tmp_path / "fuzz_plugin"
    program.symlink_to(built)
    assert tuple(fuzz.SEEDS) == READERS
    for what, (name, data) in FOUND.items():
        (tmp_path / "input").write_bytes(data)
        done = process.run(
            [program, tmp_path / "input"], timeout_seconds=60, env={**os.environ, "MLGOKIT_FUZZ_READER": name}
        )
        assert done.returncode == 0, f"{what}: {done.stderr}"
    for name in READERS:
        row = fuzz.run_slice(program, name, INPUTS, seed=7)
        assert row["finding"] == "", name
        assert row["runs"] == INPUTS
        assert row["new"] > 5

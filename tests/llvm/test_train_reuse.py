"""Training with compilers that stay, or end early, and functions that are known is training without, byte for byte."""

from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compilers import CompilerOptions, ReuseOptions
from mlgokit.commands import train
from mlgokit.compiler.toolchain import ADVISED_MAJOR, Toolchain
from mlgokit.learning.run_folder import read_metrics
from mlgokit.learning.settings import Learning

pytestmark = [pytest.mark.llvm, pytest.mark.timeout(600)]

QUICK = Learning(iterations=3, validation_share=0.2, setting=("fit.epochs=2", "fit.members=2", "most_decisions=0"))
TIMES = ("time", "seconds", "seconds_left", "user_seconds")
WAYS = {
    "nothing": ReuseOptions(residents="off", known_functions="off"),
    "residents": ReuseOptions(residents="on", known_functions="off"),
    "known functions": ReuseOptions(residents="off", known_functions="on"),
    "known decisions": ReuseOptions(residents="off", known_functions="off", known_decisions="on"),
    "all": ReuseOptions(known_decisions="on"),
}


@pytest.mark.parametrize("toolchain", [ADVISED_MAJOR], indirect=True)
@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(("all",), id="together"),
        pytest.param(("residents", "known functions", "known decisions"), id="alone", marks=pytest.mark.slow),
    ],
)
def test_a_policy_is_the_same_whatever_is_reused(
    toolchain: Toolchain, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: tuple[str, ...]
):
    """A training for each way: several seconds."""
    # The corpus is small, and all compilations of a module are made in a row only where there are many modules.
    monkeypatch.setattr("mlgokit.learning.experiences.MODULES_FOR_ROWS", 0)
    found = {}
    for name in ("nothing", *ways):
        config = train.Train(
            corpus=small_corpus,
            output=tmp_path / name,
            learning=QUICK,
            # All that is made so is compiled once more without, and compared.
            compiler=CompilerOptions(llvm=toolchain.major, workers=2, check_share=1.0),
            reuse=WAYS[name],
        )
        policy = train.run(config).policy.read_bytes()
        turns = [{key: row[key] for key in row if key not in TIMES} for row in read_metrics(tmp_path / name)]
        found[name] = policy, turns
    policy, turns = found.pop("nothing")
    for name, (other, others) in found.items():
        assert other == policy, name
        for one, same in zip(turns, others, strict=True):
            np.testing.assert_equal(same, one)

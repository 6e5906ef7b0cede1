"""The gymnasium environment over real compilers."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import UsageError
from mlgokit.learning.environment import CompilerEnvironment, open_environment
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION

pytestmark = pytest.mark.llvm

check_env = pytest.importorskip("gymnasium.utils.env_checker").check_env


@pytest.fixture
def modules(small_corpus: Path) -> list[Module]:
    return [module for module in load_corpus(small_corpus).modules if module.name != "bad"]


@pytest.mark.parametrize("problem", [name for name, problem in PROBLEMS.items() if problem.has_llvm_advisor])
def test_gymnasium_finds_nothing_wrong(toolchain: Toolchain, modules: list[Module], problem: str):
    environment = open_environment(toolchain, modules, PROBLEMS[problem])

    with warnings.catch_warnings():
        # It advises against unbounded observations and says that the environment is not registered.
        warnings.simplefilter("ignore", UserWarning)
        check_env(environment, skip_render_check=True)
    environment.close()

    assert set(environment.features) == set(PROBLEMS[problem].feature_names) - {PROBLEMS[problem].mask}


def compiled(environment: CompilerEnvironment, action: int | None) -> tuple[float, dict[str, Any], int]:
    """Last reward, last facts and number of steps, with one action or random legal ones throughout."""
    observation, info = environment.reset(seed=1, options={"module": 0})
    for steps in range(1, 100_000):
        assert environment.observation_space.contains(observation)
        drawn = environment.action_space.sample(info["mask"]) if "mask" in info else 0
        observation, reward, terminated, truncated, info = environment.step(
            np.int64(drawn if action is None else action)
        )
        assert not truncated
        if terminated:
            return float(reward), info, steps
        assert reward == 0
    pytest.fail("the compiler asks for ever")


def test_rewards_are_what_the_object_lost(toolchain: Toolchain, modules: list[Module]):
    environment = open_environment(toolchain, modules, INLINE_SIZE)

    never, facts, steps = compiled(environment, 0)
    always, _, _ = compiled(environment, 1)

    assert steps > 3
    assert never != always
    assert never == pytest.approx(1 - facts["score"].text_bytes / facts["default_score"].text_bytes)
    again, _, _ = compiled(environment, 0)
    assert again == never


def test_a_mask_says_which_columns_are_legal(toolchain: Toolchain, modules: list[Module]):
    environment = open_environment(toolchain, modules, REGALLOC_EVICTION)

    _, info = environment.reset(options={"module": 1})
    mask = info["mask"]
    forbidden = int(np.flatnonzero(mask == 0)[0])
    *_, info = environment.step(np.int64(forbidden))
    assert info["replaced"]
    environment.close()

    reward, facts, _ = compiled(environment, None)
    assert not facts["replaced"]
    assert reward < 1


def test_modules_that_ask_nothing_and_wrong_calls_are_said(toolchain: Toolchain, small_corpus: Path):
    modules = sorted(load_corpus(small_corpus).modules, key=lambda module: module.name != "bad")
    environment = open_environment(toolchain, modules, INLINE_SIZE)

    with pytest.raises(UsageError, match="inline-size: expected a module with something to decide, found none among 1"):
        environment.reset(options={"module": 0})
    with pytest.raises(UsageError, match="module: expected one of 0 to 4, found 9"):
        environment.reset(options={"module": 9})
    with pytest.raises(UsageError, match="step: expected a question of the compiler that waits for an answer"):
        environment.step(np.int64(0))

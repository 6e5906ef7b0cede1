"""Bring your own learner: the compiler as a gymnasium environment, here under the simplest learner there is.

``python examples/own_learner.py CORPUS [compilations]`` searches for the threshold on LLVM's cost estimate that makes
the modules of a corpus smallest. It needs the extra ``gym``: ``.venv/bin/pip install '.[gym]'`` in the checkout.
"""

import sys
from pathlib import Path

import numpy as np

from mlgokit import INLINE_SIZE, CompilerEnvironment, find_toolchain, load_corpus, open_environment


def compile_once(environment: CompilerEnvironment, threshold: float) -> float:
    """The reward, on a module that the environment draws, of inlining what LLVM estimates to cost ``threshold``."""
    place = environment.features.index("cost_estimate")
    observation, _ = environment.reset()
    while True:
        action = np.int64(observation[place] <= threshold)
        observation, reward, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            return float(reward)


def main() -> None:
    toolchain = find_toolchain()
    modules = load_corpus(Path(sys.argv[1])).modules
    compilations = int(sys.argv[2]) if sys.argv[2:] else 40
    rng = np.random.default_rng(1)
    environment = open_environment(toolchain, modules, INLINE_SIZE)
    environment.reset(seed=1)
    centre, spread = 0.0, 40.0
    for turn in range(max(1, compilations // 8)):
        thresholds = rng.normal(centre, spread, 8)
        rewards = [compile_once(environment, threshold) for threshold in thresholds]
        centre, spread = float(thresholds[np.argsort(rewards)[-3:]].mean()), 0.8 * spread
        print(f"turn {turn}: mean reward {np.mean(rewards):+.4f}, threshold {centre:.1f}")
    environment.close()


if __name__ == "__main__":
    main()

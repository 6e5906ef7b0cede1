"""A learner from elsewhere: the PPO of stable-baselines3 decides inlining.

``python examples/foreign_learner.py CORPUS`` trains on the modules of a corpus that are not held out, and prints a line
of JSON for each checkpoint: the compilations until then, and the mean reward of held-out modules, the share of their
text that is saved against LLVM's own decisions. It needs stable-baselines3 2.4 or newer, and the extra ``gym``.
"""

# pyright: reportMissingImports=false
import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from mlgokit import INLINE_SIZE, CompilerEnvironment, find_toolchain, load_corpus, open_environment, training_modules


class Checkpoints(BaseCallback):
    """Calls a function each time as many modules were compiled as a checkpoint says, and ends after the last."""

    def __init__(self, checkpoints: list[int], reached: Callable[[int], None]) -> None:
        super().__init__()
        self._left, self._reached, self._compilations = sorted(checkpoints), reached, 0

    def _on_step(self) -> bool:
        self._compilations += int(np.sum(self.locals["dones"]))
        while self._left and self._compilations >= self._left[0]:
            self._reached(self._left.pop(0))
        return bool(self._left)


def mean_reward(model: PPO, normalised: VecNormalize, environment: CompilerEnvironment, modules: int) -> float:
    """The mean reward of the first modules of an environment, with the decision that the policy prefers."""
    rewards: list[float] = []
    for module in range(modules):
        observation, _ = environment.reset(options={"module": module})
        while True:
            action, _ = model.predict(normalised.normalize_obs(observation), deterministic=True)
            observation, reward, terminated, truncated, _ = environment.step(np.int64(action))
            if terminated or truncated:
                rewards.append(reward)
                break
    return float(np.mean(rewards))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--held-out", type=Path, help="file with the names of the modules to test, a line each")
    parser.add_argument("--llvm", type=int)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    toolchain, corpus = find_toolchain(arguments.llvm), load_corpus(arguments.corpus)
    names = arguments.held_out.read_text().split("\n") if arguments.held_out else []
    held_out = [one for one in corpus.modules if one.name in names or (not names and one.held_out)]
    testing = open_environment(toolchain, held_out, INLINE_SIZE)

    environment = Monitor(open_environment(toolchain, training_modules(corpus.modules), INLINE_SIZE))
    # Features are counts from 0 to millions, and rewards are small.
    training = VecNormalize(DummyVecEnv([lambda: environment]), clip_obs=10.0, gamma=1.0)
    # An episode has some hundred decisions, of which the last is rewarded.
    model = PPO("MlpPolicy", training, n_steps=1024, batch_size=256, gamma=1.0, seed=arguments.seed, device="cpu")

    def test(compilations: int) -> None:
        reward = mean_reward(model, training, testing, len(held_out))
        print(json.dumps({"compilations": compilations, "reward": reward}), flush=True)

    test(0)
    model.learn(10**9, callback=Checkpoints(arguments.checkpoints, test))


if __name__ == "__main__":
    main()

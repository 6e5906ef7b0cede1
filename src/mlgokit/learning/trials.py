"""What learning from trials of single functions shares, whatever is decided: settings, draws, and what is kept."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.arrays import MOST_BYTES
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write, read_bounded
from mlgokit.learning.checkpoint import Counters
from mlgokit.learning.metrics import Row
from mlgokit.learning.settings import LIKE_PRESET, Learning, check_learning, settings_of
from mlgokit.learning.validation import Validation
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import save_policy
from mlgokit.problems import Problem

ALGORITHM = "effect-regression"
REFUSED_NAME = "refused.policy"
"""A policy that does not pay where nothing taught it."""
_KEPT_FOLDER = "trials"


class Kept(Protocol):
    """What a file of its own keeps."""

    def to_bytes(self) -> bytes:
        """The file."""
        ...

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """What a file keeps; nothing if it is damaged."""
        ...


T = TypeVar("T", bound=Kept)


def trial_settings(
    problem: Problem,
    algorithm: str,
    config: Learning,
    *,
    fewer: str,
    learns: str = ALGORITHM,
    uses: Collection[str] = (),
    at_least_one: Collection[str] = (),
) -> Any:
    """The settings of the run.

    Args:
        problem: what is decided.
        algorithm: that was asked for.
        config: how.
        fewer: the setting by which trials become fewer, for the error.
        learns: the only algorithm that learns this from trials.
        uses: options that apply, of those that are about features and objective.
        at_least_one: settings that may not be 0.

    Raises:
        UsageError: another algorithm, or something that does not apply.
    """
    check_learning(config)
    if algorithm != learns:
        raise UsageError(
            f"algorithm {algorithm}: expected {learns} for {problem.name}, which learns from trials of "
            "single functions; leave --algorithm out"
        )
    for name in sorted({"excluded", "features", "normaliser", "objective"} - set(uses)):
        if getattr(config, name) != getattr(LIKE_PRESET, name):
            raise UsageError(
                f"--{name}: expected it to be left out for {problem.name}, where it decides nothing, found "
                f"{getattr(config, name)}; `mlgokit train --help` says which settings there are"
            )
    given = {"--start": config.start, "--vocab": config.vocab, "--compilations": config.compilations}
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{option}: expected none for {problem.name}, whose trials are made once and fitted once, found "
                f"{value}; leave it out, and give --setting {fewer}=N for fewer trials"
            )
    settings = settings_of(algorithm, config.preset, config.setting, problem=problem.name)
    for name in at_least_one:
        if getattr(settings, name) < 1:
            raise UsageError(f"--setting {name}: expected at least 1, found {getattr(settings, name)}; give 1 or more")
    return settings


def module_number(module: Module) -> int:
    """A number of the module's name, for draws that do not depend on which other modules there are."""
    return int.from_bytes(_digest(module)[:8], "little")


def module_draws(module: Module, *numbers: int) -> np.random.Generator:
    """The draws for one module."""
    return np.random.default_rng([*numbers, module_number(module)])


def kept_or_made(kind: type[T], folder: Path, module: Module, make: Callable[[], T], *, part: str = "") -> T:
    """What a module's trials found: of an earlier run, if its file is there and whole, else made now and kept.

    Args:
        kind: of what is kept.
        folder: of the run.
        module: whose trials they are.
        make: makes them.
        part: of the folder, where there are several trials of a module.

    Raises:
        StorageError: the disk is full or not writable.
    """
    path = folder / _KEPT_FOLDER / part / f"{_digest(module).hex()[:24]}.npz"
    found = None
    with contextlib.suppress(OSError):
        found = kind.from_bytes(read_bounded(path, MOST_BYTES))
    if found is None:
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, found.to_bytes())
    return found


def trial_row(counters: Counters, numbers: Mapping[str, float], rewards: npt.NDArray[np.float64] | None = None) -> Row:
    """The row of a turn, with the learner's own ``numbers`` by name.

    Args:
        counters: after the turn.
        numbers: of the learner.
        rewards: of what the turn tried; without them, the judges' gain stands there.
    """
    gain = float(counters.best_gain)
    given = np.array([gain]) if rewards is None else rewards
    return {
        "turn": counters.turn,
        "compilations": counters.compilations,
        "failed": counters.failed,
        "reward": float(given.mean()),
        "reward_spread": 0.0 if rewards is None else float(rewards.std()),
        "reward_least": float(given.min()),
        "reward_most": float(given.max()),
        "validation_gain": gain,
        "user_seconds": counters.user_seconds,
        "seconds": counters.seconds,
        "seconds_left": 0.0,
        "time": time.time(),
        **{f"learner/{name}": value for name, value in numbers.items()},
    }


def refuse_loss(problem: Problem, policy: Policy, judged: Validation, folder: Path) -> None:
    """Keep a policy under a name of its own if it does not pay on projects that did not teach.

    Raises:
        UsageError: it does not.
    """
    if not judged.modules or judged.gain > 0:
        return
    save_policy(policy, folder / REFUSED_NAME)
    raise UsageError(
        f"{problem.name}: expected that departing from LLVM's heuristic pays on projects that do not teach, found "
        f"{-100 * judged.gain:+.2f} % on {len(judged.modules)} modules; leave the decision to LLVM, or collect from "
        f"more projects. The policy is in {folder / REFUSED_NAME} all the same"
    )


def _digest(module: Module) -> bytes:
    return hashlib.sha256(module.name.encode("utf-8", "surrogateescape")).digest()

"""The command that converts a TFLite model to a policy file."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from mlgokit.errors import InputError, UsageError
from mlgokit.export.tflite import MODEL
from mlgokit.policy.network import USUAL_TARGETS
from mlgokit.policy.store import save_policy
from mlgokit.policy.targets import check_targets
from mlgokit.policy.tflite.compare import compare
from mlgokit.policy.tflite.file import LARGEST_FILE, read_graph
from mlgokit.policy.tflite.read_policy import read_policy
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPolicy:
    """Turn a TFLite model of google/ml-compiler-opt, for the inliner or for eviction, into a policy file."""

    model: Annotated[Path, tyro.conf.Positional]
    """TFLite file, or a folder that has it as model.tflite."""
    output: Path = Path("imported.policy")
    """Policy file to write."""
    targets: tuple[str, ...] = USUAL_TARGETS
    """Architectures that the policy decides for, by LLVM's names such as aarch64, arm or riscv64; a model does not say
    what it was trained on, and code for others is left to LLVM."""
    compare: int = 200
    """Number of random observations on which policy and model are compared."""
    seed: int = 1
    """Random seed of the observations."""


def run(config: ImportPolicy, *, report: Report = say_nothing) -> dict[str, Any]:
    """Read the model, write the policy, and compare the two.

    Raises:
        InputError: the file is no such model, or has an operator that a policy cannot have.
        ToolError: the extra ``tflite`` is not installed.
        UsageError: a negative number of observations, or targets that are no architectures.
    """
    if config.compare < 0:
        raise UsageError(f"--compare: expected 0 or more observations, found {config.compare}; correct it")
    check_targets(config.targets)
    path = config.model / MODEL if config.model.is_dir() else config.model
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"model {path}: expected a readable file, found: {error.strerror}; check the path") from error
    origin = str(path)
    report(0, 2, "import")
    graph = read_graph(data, origin)
    read = read_policy(graph, origin)
    report(1, 2, "compare")
    rng = np.random.default_rng(config.seed)
    differing = compare(graph, read.policy, rng, observations=config.compare, origin=origin)
    save_policy(dataclasses.replace(read.policy, targets=config.targets), config.output)
    report(2, 2, "import")
    return {
        "policy": str(config.output),
        "problem": read.policy.problem,
        "targets": config.targets,
        "features": len(read.features),
        "rows": len(read.policy.features),
        "draws_decisions": read.draws,
        "largest_input_error": read.error,
        "observations_compared": config.compare,
        "decisions_differing": differing,
        "next": shlex.join(["mlgokit", "export", "plugin", str(config.output)]),
    }

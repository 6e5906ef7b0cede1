"""The command that says which features a policy goes by."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from mlgokit.commands.vocab import trace_logs
from mlgokit.errors import UsageError
from mlgokit.evaluation.importance_page import importance_page
from mlgokit.files import atomic_write
from mlgokit.learning.decision_batch import feature_rows
from mlgokit.locks import reading
from mlgokit.policy.importance import Questions, drawn_questions, importance
from mlgokit.policy.store import load_policy
from mlgokit.problems import PROBLEMS
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """Measure which features a policy's decisions depend on, and draw them."""

    policy: Annotated[Path, tyro.conf.Positional]
    """Policy file."""
    traces: Path = Path("quickstart/trace")
    """Folder that `mlgokit trace` made for the policy's problem."""
    output: Path = Path("importance.json")
    """JSON file for the result; the page with the picture is beside it and ends in .html."""
    observations: int = 2000
    """Number of observations to measure, drawn from all."""
    explained: int = 256
    """Number of these observations that get Shapley values."""
    orders: int = 8
    """Number of random feature orders for each Shapley value."""
    seed: int = 1
    """Random seed."""


def run(config: Importance, *, report: Report = say_nothing) -> dict[str, Any]:
    """Measure, and write both files.

    Raises:
        BusyError: another process traces into the folder.
        InputError: the policy or a log cannot be read.
        UsageError: a number is below 1, or there are too few observations.
    """
    for name in ("observations", "explained", "orders"):
        if getattr(config, name) < 1:
            raise UsageError(f"--{name}: expected at least 1, found {getattr(config, name)}; give more")
    policy = load_policy(config.policy)
    problem = PROBLEMS.get(policy.problem)
    if problem is None:
        known = ", ".join(PROBLEMS)
        raise UsageError(f"policy {config.policy}: expected one for {known}, found {policy.problem!r}; name another")
    rng = np.random.default_rng(config.seed)
    parts: list[Questions] = []
    with reading(config.traces):
        for log in trace_logs(config.traces, report=report, label="read traces"):
            if not log.observation_count:
                continue
            values = feature_rows(problem, log, policy.features)
            mask = None if problem.mask is None else log.columns[problem.mask].reshape(len(values), -1) != 0
            keep = slice(None) if mask is None else mask.any(axis=1)
            parts.append(Questions(values=values[keep], mask=None if mask is None else mask[keep]))
            if sum(map(len, parts)) > 50 * config.observations:
                parts = [drawn_questions(parts, 25 * config.observations, rng)]
    if not parts:
        raise UsageError(f"traces {config.traces}: expected observations of {problem.name}, found none; trace modules")
    questions = drawn_questions(parts, config.observations, rng)
    found = importance(policy, questions, rng, orders=config.orders, explained=config.explained)
    places = found.ordered()
    result: dict[str, Any] = {
        "policy": str(config.policy),
        "problem": found.problem,
        "observations": found.observations,
        "features": {
            found.features[place]: {
                "shapley": found.shapley[place],
                "changed": found.changed[place],
                "direction": found.direction[place],
            }
            for place in places
        },
    }
    picture = config.output.with_suffix(".html")
    atomic_write(config.output, json.dumps(result, indent=1))
    atomic_write(picture, importance_page(found, policy.output, name=config.policy.name))
    return {
        "result": str(config.output),
        "picture": str(picture),
        "most important": [found.features[place] for place in places[:10]],
    }

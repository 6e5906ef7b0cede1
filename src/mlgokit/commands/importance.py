"""The command that measures feature importance."""

import dataclasses
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from mlgokit.commands.vocab import trace_logs
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.learning.decision_batch import feature_rows
from mlgokit.locks import reading
from mlgokit.manifest import package_version
from mlgokit.pages.html import check_json_name, write_page
from mlgokit.policy.importance import (
    Importance as Measured,
    Questions,
    check_explained,
    draw_questions,
    importance_page,
    measure_importance,
)
from mlgokit.policy.network import Policy
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy
from mlgokit.problems import PROBLEMS
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """Measure which features a policy's decisions depend on, and plot them."""

    policy: Annotated[Path, tyro.conf.Positional]
    """Policy file, or builtin:size, which comes with mlgokit."""
    target: str | None = None
    """Architecture of the traces, such as riscv32, if the policy has parts for several."""
    traces: Path = Path("quickstart/trace")
    """Folder that `mlgokit trace` made for the policy's problem."""
    output: Path = Path("importance.json")
    """JSON file for the result; the report is beside it, as HTML and Markdown."""
    observations: int = 2000
    """Number of observations to measure, drawn from all."""
    explained: int = 256
    """Number of these observations that get Shapley values."""
    orders: int = 8
    """Number of random feature orders for each Shapley value."""
    seed: int = 1
    """Random seed of the observations that are drawn, of the values that are exchanged, and of the feature orders."""


def run(config: Importance, *, report: Report = say_nothing) -> dict[str, Any]:
    """Write the importance of each feature as JSON, with its report.

    Raises:
        BusyError: another process traces into the folder.
        InputError: the policy or a log cannot be read.
        UsageError: a number is below 1, there are too few observations, or the policy cannot be explained.
    """
    check_json_name(config.output)
    config = dataclasses.replace(config, policy=policy_file(config.policy))
    policy = load_policy(config.policy)
    found = importance_of(policy, config, report=report)
    places = found.order_features()
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
    atomic_write(config.output, json.dumps(result, indent=1))
    page = importance_page(
        found,
        policy.output,
        name=config.policy.name,
        command=shlex.join(["mlgokit", *sys.argv[1:]]),
        facts=(
            ("mlgokit", package_version()),
            ("policy", str(config.policy)),
            ("SHA-256 of the policy", digest_file(config.policy)),
            ("traces", str(config.traces)),
            ("seed", str(config.seed)),
        ),
    )
    return {
        "result": str(config.output),
        "report": str(write_page(page, config.output)),
        "most important": [found.features[place] for place in places[:10]],
    }


def _part_for(policy: Policy, target: str | None) -> Policy:
    """The part of a policy that decides for an architecture, the whole policy if it has no parts.

    Raises:
        UsageError: the policy has no part for it, or several and none is asked for.
    """
    part = policy.for_architecture(target or "")
    if part is None or (policy.others and target is None):
        known = ", ".join(sorted(policy.all_targets))
        raise UsageError(
            f"--target: expected one of {known}, found {target or 'none'}; the policy has a part for each, so name the "
            "architecture of the traces to `mlgokit importance`"
        )
    return part


def importance_of(policy: Policy, config: Importance, *, report: Report = say_nothing) -> Measured:
    """Measure the importance of a policy's features on observations of traces.

    Raises:
        BusyError: another process traces into the folder.
        InputError: a log cannot be read.
        UsageError: a number is below 1, there are too few observations, or the policy cannot be explained.
    """
    for name in ("observations", "explained", "orders"):
        if getattr(config, name) < 1:
            raise UsageError(f"--{name}: expected at least 1, found {getattr(config, name)}; give more")
    problem = PROBLEMS.get(policy.problem)
    if problem is None:
        known = ", ".join(PROBLEMS)
        raise UsageError(
            f"policy {config.policy}: expected a policy for {known}, found {policy.problem!r}; name another"
        )
    policy = _part_for(policy, config.target)
    check_explained(policy)
    rng = np.random.default_rng(config.seed)
    parts: list[Questions] = []
    share = 1.0
    with reading(config.traces):
        for log in trace_logs(config.traces, report=report, label="read traces"):
            if not log.observation_count:
                continue
            values = feature_rows(problem, log, policy.features)
            mask = None if problem.mask is None else log.columns[problem.mask].reshape(len(values), -1) != 0
            # Where its gate is closed, nothing of the policy decides.
            keep = policy.gate_opens(values) if mask is None else mask.any(axis=1)
            if share < 1:
                keep &= rng.random(len(values)) < share
            parts.append(Questions(values=values[keep], mask=None if mask is None else mask[keep]))
            if (count := sum(map(len, parts))) > 50 * config.observations:
                # Of later logs the same share is kept, so that no log counts more than another.
                drawn = 25 * config.observations
                parts, share = [draw_questions(parts, drawn, rng)], share * drawn / count
    if not parts or not any(map(len, parts)):
        raise UsageError(
            f"traces {config.traces}: expected observations of {problem.name} that the policy decides, found none; run "
            "`mlgokit trace` for this problem"
        )
    questions = draw_questions(parts, config.observations, rng)
    return measure_importance(policy, questions, rng, orders=config.orders, explained=config.explained)

"""What the checks of plugin files write and read in binary: logs, policies, tables, trials, a resident compiler.

Commands, each with its arguments:

- log <log> <column>...: a line for each observation.
- policy <policy> <problem> <feature> <weight> <bias> [hidden]: the output is weight * log(1 + feature) + bias;
  with hidden units, the mean of two networks that spread the logarithm over them.
- priced <policy> <cost> [gated]: of spill weights, which it leaves alone, with a cost of callee-saved registers;
  gated, as policies for executed instructions are.
- decisions <table> <log>: each decision of the log turned into its opposite.
- defers <table>: compile steps leave all to the link.
- trials <trials>: none, so that the plugin lists the functions.
- list <trials>: the same for all stages.
- toggles <trials> <tried> <function> <pass>...: code with each pass toggled, one after the other, from LLVM's own.
- optimizer <table> <list> <function> [<pass> <number>]...: a table that leaves these out of the optimizer.
- passes <table> <tried> <function> <pass>...: a table that leaves these out where they ask for the first time.
- trials <trials> <tried> <function> <spill or code> <probability> <seed>...: from the overrides of its last trial.
- tried <tried> [code]: a line for each function and each trial.
- allocations <table> <tried>: the overrides of each function's last trial.
- remarks <optimization record>: a line for each function.
- evictions <log> <feature>: whether the largest legal column was taken.
- known <known> <list of functions>: the digests.
- resident <object>... -- <command>...: each object from a copy of one resident compiler.

Most calls need logs and policies alone. What the others need takes longer to import, and is in ``tool_trials.py``.
"""

import sys
from pathlib import Path

import numpy as np

from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy
from mlgokit.traces import read_log

OUTPUTS = {
    "inline-size": OutputKind.EFFECT_BYTES,
    "regalloc-eviction": OutputKind.COLUMN_LOGIT,
    "regalloc-priority": OutputKind.PRIORITY,
    "pass-selection": OutputKind.EFFECT_BYTES,
    "regalloc-weight": OutputKind.LOG2_FACTOR,
}


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")


def print_log(path: str, *columns: str) -> None:
    log = read_log(Path(path))
    for context in log.contexts:
        for row in range(context.start, context.stop):
            values = (f"{name}={_text(log.columns[name][row].reshape(-1), name)}" for name in columns)
            say(context.name or "module", *values)


def _text(values: np.ndarray, name: str) -> str:
    if name == "site":
        return f"{int(values[0]) & (2**64 - 1):016x}"
    return ",".join(f"{value:.7g}" if value.dtype.kind == "f" else str(value) for value in values)


def print_evictions(path: str, feature: str) -> None:
    columns = read_log(Path(path)).columns
    for mask, values, chosen in zip(columns["mask"], columns[feature], columns["index_to_evict"], strict=True):
        largest = np.argmax(np.where(mask != 0, values, -np.inf))
        say("largest" if int(chosen[0]) == largest else "another")


def write_policy(path: str, problem: str, feature: str, weight: str, bias: str, hidden: str = "0") -> None:
    members, width = (2, int(hidden)) if int(hidden) else (1, 1)
    layers = (Layer(np.full((members, width, 1), weight, np.float32), np.full((members, 1), bias, np.float32)),)
    if int(hidden):
        spread = Layer(np.full((2, 1, width), 1 / width, np.float32), np.zeros((2, width), np.float32))
        layers = (spread, *layers)
    # What tells columns apart are shares; the first layer has the more digits the less its inputs may be.
    clip = 1.0 if problem == "regalloc-eviction" else 16.0
    policy = Policy(
        problem=problem,
        features=(feature,),
        normaliser=SignedLog(mean=np.zeros(1, np.float32), scale=np.ones(1, np.float32), clip=clip),
        layers=layers,
        output=OUTPUTS[problem],
        mask="mask" if problem == "regalloc-eviction" else "",
    )
    save_policy(policy, Path(path))


COMMANDS = {"log": print_log, "evictions": print_evictions, "policy": write_policy}

if __name__ == "__main__":
    commands = COMMANDS
    if sys.argv[1] not in COMMANDS:
        import tool_trials

        commands = tool_trials.COMMANDS
    commands[sys.argv[1]](*sys.argv[2:])

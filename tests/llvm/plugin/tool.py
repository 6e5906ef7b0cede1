"""What the checks of plugin files write and read in binary: logs, policies, tables, trials, a resident compiler.

Commands, each with its arguments:

- log <log> <column>...: a line for each observation; its score is the column reward.
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
- serve <socket>: commands that ``ask.py`` sends, each in a fork, as importing takes longer than any of them.
"""

import json
import os
import signal
import socket
import sys
import traceback
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlgokit.algorithms.live_range_search import GATES, linear_policy
from mlgokit.compiler.compilation import read_pass_changes
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.regalloc_cost import COST_WEIGHTS, read_regalloc_costs
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.reuse.trials import (
    CODE_BYTES,
    MOST_TOGGLES,
    OVERRIDE,
    SPILL_COST,
    TRIAL,
    Overrides,
    Series,
    Stage,
    TrialRequest,
    TrialResults,
    executed_weights,
    read_trial_results,
)
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy
from mlgokit.problems import REGALLOC_WEIGHT
from mlgokit.tables.decisions import make_entry, table_bytes
from mlgokit.tables.overrides import ALLOCATIONS, OPTIMIZER_PASSES, PASSES, override_bytes
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
    found = {**log.columns} if log.scores is None else {**log.columns, "reward": log.scores}
    for context in log.contexts:
        for row in range(context.start, context.stop):
            values = (f"{name}={_text(found[name][row].reshape(-1), name)}" for name in columns)
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


def write_priced(path: str, cost: str, gated: str = "") -> None:
    ones = np.ones(1, np.float32)
    gate = GATES["executed"] if gated else None
    normaliser = SignedLog(mean=0 * ones, scale=ones, clip=16.0)
    policy = linear_policy(REGALLOC_WEIGHT, ["li_size"], normaliser, np.zeros(1), gate=gate)
    save_policy(replace(policy, csr_first_time_cost=int(cost)), Path(path))


def write_decisions(path: str, log_path: str) -> None:
    columns = read_log(Path(log_path)).columns
    sites = columns["site"].reshape(-1).astype(np.int64).view(np.uint64)
    opposite = columns["inlining_decision"].reshape(-1) == 0
    Path(path).write_bytes(table_bytes([make_entry(columns["caller_id"].reshape(-1).tolist(), sites, opposite)]))


def write_deferral(path: str) -> None:
    Path(path).write_bytes(table_bytes([make_entry([1], np.array([2], np.uint64), np.array([True]), defers=True)]))


def last_overrides(one: TrialResults) -> Overrides:
    return one.outcomes[-1].overrides if one.outcomes else Overrides()


def write_trials(
    path: str, tried_path: str = "", function: str = "", weights: str = "", probability: str = "0", *seeds: str
) -> None:
    trials = np.array([(float(probability), float(probability), int(seed), 0, 0) for seed in seeds], TRIAL)
    series = [
        Series(key=one.key, base=last_overrides(one), score=np.inf, trials=trials)
        for one in (read_trial_results(Path(tried_path)) if tried_path else ())
        if one.name == function
    ]
    Path(path).write_bytes(TrialRequest(series=tuple(series), seconds=20, weights=_weights(weights)).to_bytes())


def _weights(name: str) -> np.ndarray:
    return {"code": CODE_BYTES, "executed": executed_weights(CODE_BYTES)}.get(name, SPILL_COST)


def print_tried(path: str, weights: str = "spill") -> None:
    for one in read_trial_results(Path(path), weights=_weights(weights)):
        say(f"{one.name} key={one.key:016x}{' passes' if one.stage is Stage.PASSES else ''}")
        for trial in one.outcomes:
            questions = f"evictions={trial.evictions} priorities={trial.priorities}"
            if one.stage is Stage.PASSES:
                questions = f"passes={trial.passes}"
            say(f"  score={trial.score:.7g} cost={trial.cost:.7g} {questions} overrides={len(trial.overrides)}")


def print_remarks(path: str) -> None:
    found = read_regalloc_costs(Path(path))
    for name, costs in zip(found.functions, found.costs, strict=True):
        say(f"{name} cost={costs @ COST_WEIGHTS:.7g}")


def write_allocations(path: str, tried_path: str) -> None:
    tried = read_trial_results(Path(tried_path))
    Path(path).write_bytes(override_bytes(ALLOCATIONS, {one.key: last_overrides(one) for one in tried if one.outcomes}))


def write_known(path: str, functions: str) -> None:
    digests = [line.split()[1] for line in Path(functions).read_text().splitlines()]
    Path(path).write_bytes(b"".join(bytes.fromhex(digest) for digest in digests if digest.strip("0")))


def run_resident(*words: str) -> None:
    cut = words.index("--")
    residents = Residents()
    for output in words[:cut]:
        program, _, *own = words[cut + 1 :]
        done = residents.run(
            Cc1Line(program, own=own), environment=os.environ, request={}, output=Path(output), timeout_seconds=60
        )
        say(*(residents.declined.values() if done is None else (f"exit {done.returncode}",)))
    residents.close()


def write_list(path: str) -> None:
    Path(path).write_bytes(TrialRequest(stages=Stage.REGISTERS | Stage.PASSES, seconds=20).to_bytes())


def write_toggles(path: str, tried_path: str, function: str, *names: str) -> None:
    trials, toggled = np.zeros(1 + len(names), TRIAL), np.zeros((1 + len(names), MOST_TOGGLES), OVERRIDE)
    trials["toggles"][1:] = 1
    toggled["range"][1:, 0] = [zlib.crc32(name.encode()) for name in names]
    series = [
        Series(key=one.key, base=Overrides(), score=np.inf, trials=trials, toggled=toggled)
        for one in read_trial_results(Path(tried_path))
        if one.name == function and one.stage is Stage.PASSES
    ]
    weights = executed_weights(CODE_BYTES)
    Path(path).write_bytes(
        TrialRequest(series=tuple(series), stages=Stage.PASSES, seconds=20, weights=weights).to_bytes()
    )


def write_optimizer(path: str, listed: str, function: str, *questions: str) -> None:
    keys = read_pass_changes(Path(listed)).keys
    left_out = [(zlib.crc32(name.encode()), int(nth), 0) for name, nth in zip(*[iter(questions)] * 2, strict=True)]
    by_key = {keys[function]: Overrides(passes=np.array(left_out, OVERRIDE))}
    Path(path).write_bytes(override_bytes(OPTIMIZER_PASSES, by_key))


def write_passes(path: str, tried_path: str, function: str, *names: str) -> None:
    left_out = np.array([(zlib.crc32(name.encode()), 0, 0) for name in names], OVERRIDE)
    tried = [one for one in read_trial_results(Path(tried_path)) if one.stage is Stage.PASSES]
    by_key = {one.key: Overrides(passes=left_out) for one in tried if one.name == function}
    Path(path).write_bytes(override_bytes(PASSES, by_key))


REQUEST_BYTES = 1 << 20


def serve(path: str) -> None:
    """Until the process ends that started this one."""
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(f"{path}.new")
        server.listen()
        Path(f"{path}.new").rename(path)
        server.settimeout(5)
        while os.getppid() == parent:
            try:
                asker, _ = server.accept()
            except TimeoutError:
                continue
            with asker:
                if os.fork() == 0:
                    os._exit(answer(asker))


def answer(asker: socket.socket) -> int:
    """Do what is asked as if the asker had done it, and tell it the exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, _, _ = socket.recv_fds(asker, REQUEST_BYTES, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    folder, environment, words = json.loads(request)
    exit_code = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        COMMANDS[words[0]](*words[1:])
        sys.stdout.flush()
        exit_code = 0
    except Exception:
        traceback.print_exc()
    asker.send(bytes([exit_code]))
    return exit_code


COMMANDS = {
    "list": write_list,
    "toggles": write_toggles,
    "optimizer": write_optimizer,
    "passes": write_passes,
    "log": print_log,
    "policy": write_policy,
    "priced": write_priced,
    "decisions": write_decisions,
    "defers": write_deferral,
    "trials": write_trials,
    "tried": print_tried,
    "allocations": write_allocations,
    "remarks": print_remarks,
    "evictions": print_evictions,
    "known": write_known,
    "resident": run_resident,
    "serve": serve,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])

"""One kill: a command is started, killed at some instant, and what it left is held against what was there before."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.algorithms.learner import state_from_bytes
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.errors import MlgokitError
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import read_table
from mlgokit.tables.file import list_tables
from mlgokit.tables.overrides import ALLOCATIONS, read_overrides
from mlgokit.tune.check import check_plugin
from mlgokit.tune.spaces.functions.state import load_functions
from mlgokit.tune.spaces.inlining.state import load_effects, load_progress

MARKER = "MLGOKIT_KILLS"
"""A variable of the killed command's environment, by which processes that it leaves are found."""
LONGEST = 300.0
"""Seconds after which a command that was not killed is a finding."""
PATIENCE = 10.0
"""Seconds in which children must have heard of their parent's death."""
SAME = 1e-9
"""Relative difference of a promise and what compiling says, from sums in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """When a command is killed.

    Attributes:
        name: for the table.
        begun: files or folders; the phase begins when one of them changes. None if it begins with the process.
        seconds: the kill comes at a drawn time up to so long after that.
        weight: how often it is drawn.
    """

    name: str
    begun: tuple[str, ...]
    seconds: float
    weight: float


TUNE_PHASES = (
    Phase(name="start", begun=(), seconds=3.0, weight=0.15),
    Phase(name="search", begun=("search/spent.json", "search/begun"), seconds=3.0, weight=0.3),
    Phase(name="registers", begun=("search/allocation/spent.json",), seconds=2.0, weight=0.15),
    Phase(name="proof", begun=("search/proof",), seconds=1.5, weight=0.25),
    Phase(name="publishing", begun=("search/finished",), seconds=0.06, weight=0.15),
)
TRAIN_PHASES = (
    Phase(name="start", begun=(), seconds=3.0, weight=0.15),
    Phase(name="turns", begun=("checkpoint.state", "store"), seconds=3.0, weight=0.4),
    Phase(name="end of a turn", begun=("turns.json", "events.out.tfevents.0.mlgokit"), seconds=0.02, weight=0.25),
    Phase(name="result", begun=("final.policy",), seconds=0.02, weight=0.2),
)


@dataclass(slots=True, kw_only=True)
class Known:
    """What was there after the last round: nothing of it may be lost.

    Attributes:
        compilations: of the search, or turns of the training.
        score: of the search, smaller being better.
        effects: components that were measured.
        modules: names of files with progress.
        checked: digests of plugins and policies that were compiled with.
    """

    compilations: float = 0.0
    score: float = float("inf")
    effects: int = 0
    modules: frozenset[str] = frozenset()
    checked: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command works.

    Attributes:
        folder: of the search or the training.
        output: the plugin or the policy.
        temporary: all that the command has for temporary files.
        words: of the command line.
        is_tuning: whether it tunes; else it trains.
    """

    folder: Path
    output: Path
    temporary: Path
    words: tuple[str, ...]
    is_tuning: bool

    @property
    def phases(self) -> tuple[Phase, ...]:
        """When it is killed."""
        phases = TUNE_PHASES if self.is_tuning else TRAIN_PHASES
        # Where costs count, the search is that for registers.
        return tuple(one for one in phases if one.name != "registers" or "spill-cost" not in self.words)


def start(place: Place, marker: str) -> subprocess.Popen[bytes]:
    """The command in a session of its own; what it says goes to a file."""
    place.temporary.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {MARKER: marker, "TMPDIR": str(place.temporary)}
    with (place.temporary.parent / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "mlgokit", *place.words],
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def kill_once(place: Place, rng: np.random.Generator) -> dict[str, Any]:
    """Start the command and kill it, its group or it alone, at a drawn instant; says when, and whether it still ran."""
    weights = np.array([one.weight for one in place.phases])
    phase = place.phases[int(rng.choice(len(weights), p=weights / weights.sum()))]
    delay, whole_group = float(rng.uniform(0, phase.seconds)), bool(rng.random() < 0.5)
    marker = f"{os.getpid()}-{rng.integers(2**62)}"
    before = _stamps(place, phase)
    begin = time.monotonic()
    child = start(place, marker)
    try:
        while phase.begun and _stamps(place, phase) == before and child.poll() is None:
            if time.monotonic() - begin > LONGEST:
                break
            time.sleep(0.0005)
        end = time.monotonic() + delay
        while child.poll() is None and time.monotonic() < end:
            time.sleep(min(0.0005, max(0.0, end - time.monotonic())))
    finally:
        ran = child.poll() is None
        if ran:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if whole_group else os.kill)(child.pid, signal.SIGKILL)
        child.wait(timeout=30)
    return {
        "phase": phase.name,
        "killed": ran,
        "group": whole_group,
        "seconds": round(time.monotonic() - begin, 2),
        "code": child.returncode,
        "left": left_running(marker, child.pid),
    }


def finish(place: Place) -> str:
    """Run the command to its end; why that is a finding, or nothing."""
    child = start(place, marker := f"{os.getpid()}-{place.folder.parent.name}-end")
    try:
        code = child.wait(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(timeout=30)
        return f"it did not end in {LONGEST:.0f} s"
    said = (place.temporary.parent / "said").read_text(errors="replace")
    if code:
        return f"exit code {code}: {said[-500:]}"
    if left := left_running(marker, child.pid):
        return f"left running: {left}"
    rest = [path.name for path in place.temporary.iterdir()]
    rest += [str(path) for place in (place.folder, place.output.parent) for path in place.rglob("*.tmp")]
    return f"left behind: {', '.join(rest)}" if rest else ""


def _stamps(place: Place, phase: Phase) -> list[int]:
    """Which of the phase's files are there, and since when."""
    found: list[int] = []
    for name in phase.begun:
        try:
            found.append((place.folder / name).stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return found


def left_running(marker: str, session: int) -> list[str]:
    """Names of processes that the killed command left, after some time to hear of its death."""
    end = time.monotonic() + PATIENCE
    while (found := _running(marker, session)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def _running(marker: str, session: int) -> list[str]:
    """By the variable, or by the session: a sandbox that was not yet set up has the latter only."""
    wanted, found = f"{MARKER}={marker}".encode(), list[str]()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (place / "stat").read_text().partition("(")[2].rpartition(")")
            state, _, _, leads = rest.split()[:4]
            is_ours = int(leads) == session or wanted in (place / "environ").read_bytes().split(b"\0")
            if is_ours and state != "Z":
                found.append(name)
    return found


def defects(place: Place, known: Known, modules: Sequence[Module], compiler: ClangCompiler) -> list[str]:
    """What is wrong with what a kill left, each in a sentence; ``known`` is brought up to date."""
    found: list[str] = []
    checks: tuple[Callable[..., list[str]], ...] = (_of_temporary, _of_tuning if place.is_tuning else _of_training)
    for check in checks:
        try:
            found += check(place, known, modules, compiler)
        except (MlgokitError, OSError, ValueError, KeyError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def _of_temporary(place: Place, *_: object) -> list[str]:
    """Temporary files of more than the command that was killed last."""
    runs = [path.name for path in place.temporary.iterdir()]
    return [f"temporary files pile up: {', '.join(runs)}"] if len(runs) > 1 else []


def _of_tuning(place: Place, known: Known, modules: Sequence[Module], compiler: ClangCompiler) -> list[str]:
    search = place.folder / "search"
    found = _lost(known, *_spent(search / "spent.json"))
    costs = "spill-cost" in place.words
    names = frozenset(path.name for path in search.glob("modules/*.npz"))
    if known.modules - names:
        found.append(f"progress of {len(known.modules - names)} modules is gone")
    known.modules = names
    for path in search.glob("modules/*.npz"):
        (load_functions if costs else load_progress)(path)
    for path in search.glob("allocation/modules/*.npz"):
        load_functions(path)
    effects = sum(len(part.change) for part in load_effects(search / "effects"))
    if effects < known.effects:
        found.append(f"{effects} measured components, after {known.effects}")
    known.effects = effects
    if not place.output.exists():
        return found + (["the plugin is gone"] if known.checked else [])
    digest = hashlib.sha256(place.output.read_bytes()).hexdigest()
    results = [_json(path) for path in (place.folder / "tuned.json", search / "finished" / "tuned.json")]
    if digest not in [one.get("plugin_sha256") for one in results]:
        found.append("neither tuned.json nor the one that waits beside it is of the plugin")
    if digest not in known.checked:
        found += _unproved(place.output, modules, compiler)
        known.checked.add(digest)
    return found


def _unproved(plugin: Path, modules: Sequence[Module], compiler: ClangCompiler) -> list[str]:
    """Whether compiling everything with a plugin says something else than it promises."""
    inside = list_tables(plugin)
    decisions = read_table(plugin) if "decisions" in inside else None
    allocations = read_overrides(ALLOCATIONS, plugin) if "allocations" in inside else None
    result = check_plugin(modules, compiler, plugin, decisions, allocations, report=say_nothing)
    promised = result.promised_change
    found = [f"{name} does not compile: {reason}" for name, reason in result.failures.items()]
    if promised is None or abs(promised - result.change) > SAME:
        found.append(f"the plugin promises {promised}, compiling says {result.change}")
    if result.larger or any(one.worse for one in result.modules):
        found.append("something is worse with the plugin than plain")
    return found


def _of_training(place: Place, known: Known, modules: Sequence[Module], compiler: ClangCompiler) -> list[str]:
    path, turn = place.folder / "checkpoint.state", 0
    if path.exists():
        state = state_from_bytes(path.read_bytes(), learner=place.words[place.words.index("--algorithm") + 1])
        turn = int(state["loop/turn"])
    found = _lost(known, float(turn), known.score)
    if not place.output.exists():
        return found + (["the policy is gone"] if known.checked else [])
    digest = hashlib.sha256(place.output.read_bytes()).hexdigest()
    if digest not in known.checked:
        problem = load_policy(place.output).problem
        use = PluginUse(policies={problem: str(place.output)}, logs=(problem,))
        done = compiler.compile(max(modules, key=lambda one: one.bitcode_bytes), CompileRequest(use=use))
        if not done.ok or not len(done.decisions):
            found.append(f"the policy decides nothing: {done.status.value} {done.reason}")
        known.checked.add(digest)
    return found


def _lost(known: Known, compilations: float, score: float) -> list[str]:
    """Whether work that was on disk is there no more."""
    found: list[str] = []
    if compilations < known.compilations:
        found.append(f"{compilations:.0f} compilations or turns are known, after {known.compilations:.0f}")
    if score > known.score * (1 + SAME):
        found.append(f"the score is {score:.1f}, after {known.score:.1f}")
    known.compilations, known.score = compilations, score
    return found


def _spent(path: Path) -> tuple[float, float]:
    found = _json(path)
    return float(found.get("compilations", 0)), float(found.get("score", float("inf")))


def _json(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}

"""A stage that is interrupted or killed loses nothing that was finished."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.llvm.stages.tiny import HELD_OUT, MODULE_NAMES, SECONDS, Gate, Mlgokit, TinyProjects, files, poll, training

from mlgokit import errors
from mlgokit.compiler.toolchain import LOCATION_VARIABLE

pytestmark = pytest.mark.llvm


# A shell that starts tests in the background has them ignore Ctrl-C, and Python inherits that.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import mlgokit.__main__"
INTERRUPTED = "interrupted; finished work is kept; run the same command again to resume"


@pytest.fixture
def at_the_gate(tmp_path: Path, gate: Gate, tiny_projects: TinyProjects) -> Callable[..., subprocess.Popen[bytes]]:
    """Start mlgokit in a process of its own, with one worker, and wait until its compiler is stopped at the gate."""

    def start(*words: object, after: int) -> subprocess.Popen[bytes]:
        gate.close(after=after)
        argv = [sys.executable, "-c", START, *map(str, words), "--workers", "1"]
        # The child must run the code under test too, where another copy is the installed one.
        code = {"PYTHONPATH": str(Path(errors.__file__).parents[1])}
        home = {"XDG_CACHE_HOME": str(tiny_projects.home), LOCATION_VARIABLE: str(gate.root)}
        with (tmp_path / "stderr").open("wb") as said:
            surroundings = {**os.environ, **code, **home}
            started = subprocess.Popen(argv, stderr=said, stdout=subprocess.DEVNULL, env=surroundings)
        assert poll(lambda: gate.blocked() is not None or started.poll() is not None)
        assert started.poll() is None, (tmp_path / "stderr").read_text()
        return started

    return start


def lives(number: int | None) -> bool:
    """Whether there is such a process, and not only its unread status."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("stage", "after"), [("extract", 3), ("trace", 3), ("train", 9)])
def test_an_interrupt_loses_nothing(
    tmp_path: Path,
    newest_corpus: Path,
    tiny_projects: TinyProjects,
    gate: Gate,
    at_the_gate: Callable[..., subprocess.Popen[bytes]],
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    after: int,
):
    output = tmp_path / "output"
    words: list[object] = [stage, "--corpus", newest_corpus, "--output", output]
    pattern = "*.npz"
    if stage == "extract":
        sources = newest_corpus.with_name("sources")
        projects = ["--manifest", tiny_projects.manifest, "--projects", "beta", HELD_OUT, "alpha"]
        # Out of a sandbox the gate could not be seen.
        words = ["corpus", stage, *projects, "--sources", sources, "--corpus", output, "--sandbox", "off"]
        pattern = "*.bc"
    elif stage == "train":
        words += training(rounds=1)
    if stage != "extract":
        words += ["--check-share", "0"]
    running = at_the_gate(*words, after=after)
    child = gate.blocked()
    finished = files(output, pattern)
    running.send_signal(signal.SIGINT)

    assert running.wait(SECONDS) == 130
    assert (tmp_path / "stderr").read_text().splitlines()[-1] == f"mlgokit: {INTERRUPTED}"
    assert not lives(child)
    # The broken source, which is the first, gives no file.
    assert len(finished) == after - (stage == "extract")
    assert files(output, pattern) == finished

    gate.open()
    monkeypatch.setenv(LOCATION_VARIABLE, str(gate.root))
    ended = mlgokit(*words)

    assert ended.code == 0, ended.err
    everything = files(output, pattern)
    assert finished.items() <= everything.items()
    # An extraction asks for the options once, and counts what is in the modules at its end.
    extra = 1 + len(everything) if stage == "extract" else 0
    assert gate.compilations() == len(everything) - len(finished) + extra
    if stage == "train":
        store = ("--store", output / "store", "--output", tmp_path / "undisturbed")
        assert mlgokit("train", "--corpus", newest_corpus, *store, *training(rounds=1)).code == 0
        assert files(output, pattern) == everything
        assert (tmp_path / "undisturbed" / "final.policy").read_bytes() == (output / "final.policy").read_bytes()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="util-linux has no setpriv here")
def test_a_killed_run_leaves_no_compiler_and_goes_on(
    tmp_path: Path,
    newest_corpus: Path,
    gate: Gate,
    at_the_gate: Callable[..., subprocess.Popen[bytes]],
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
):
    words = ("trace", "--corpus", newest_corpus, "--output", tmp_path / "trace", "--check-share", "0")
    running = at_the_gate(*words, after=2)
    child = gate.blocked()
    finished = files(tmp_path / "trace", "*.npz")
    running.kill()
    running.wait(SECONDS)

    assert len(finished) == 2
    assert poll(lambda: not lives(child))

    gate.open()
    monkeypatch.setenv(LOCATION_VARIABLE, str(gate.root))
    ended = mlgokit(*words, "--json")

    assert (ended.code, ended.json["failed"]) == (0, [])
    assert gate.compilations() == len(MODULE_NAMES) - 2

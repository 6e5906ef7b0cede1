"""Real compilers that something happens to: kills at random instants, and pipes that are gone."""

import contextlib
import os
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.bitcode import put_bitcode

from mlgokit.advisors import Advisor, RandomLegal
from mlgokit.compiler.channel.interactive import channel_use, drive_channels
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler, command
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.problems import PROBLEMS
from mlgokit.testing import toy_source

pytestmark = pytest.mark.llvm

BOTH = ("regalloc-eviction", "regalloc-priority")
OPTIONS = ("-cc1", "-triple", "x86_64-unknown-linux-gnu", "-O2", "-w", "-target-cpu", "x86-64")
TIMEOUT_SECONDS = 60.0
# More values alive than registers, so that most of the compiler's time is in decisions.
FUNCTION = """
unsigned hash(const unsigned *p, int n) {
  unsigned a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11,l=12,m=13,o=14,q=15;
  for (int t = 0; t < n; t++) {
    unsigned v = p[t];
    a=a*31+(b^v); b=(b<<7|c>>25)^c; c+=d*v; d^=e+a; e=e*7+f; f+=g^v; g=g*13+h; h^=i+v; i+=j*3; j^=k+v;
    k+=l*5; l^=m+v; m=m<<3^o; o^=q+v; q+=a*17;
    if (t % 7 == 3) a += hash(p, q & 3);
  }
  return a^b^c^d^e^f^g^h^i^j^k^l^m^o^q;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A compiler, its sample, and a folder that is all it has for temporary files."""

    toolchain: Toolchain
    plugin: Path
    bitcode: Path
    temporary: Path
    outputs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a compilation came to: the name of its status, and the sentence about it."""

    status: str
    sentence: str


@pytest.fixture
def place(toolchain: Toolchain, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The sample as bitcode; temporary files of this process are in the place too."""
    text = "".join(FUNCTION.replace("hash", f"hash{index}") for index in range(4))
    bitcode = put_bitcode(toolchain.clang, tmp_path / "sample.c", text, "-O2")
    temporary, outputs = tmp_path / "temporary", tmp_path / "outputs"
    temporary.mkdir()
    outputs.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    return Place(toolchain=toolchain, plugin=plugin, bitcode=bitcode, temporary=temporary, outputs=outputs)


def through_plugin(place: Place, seed: int) -> Outcome:
    """Compile with random evictions and priorities, logged."""
    compiler = ClangCompiler(toolchain=place.toolchain, plugin=place.plugin, timeout_seconds=TIMEOUT_SECONDS)
    module = toy_source("a", bitcode=place.bitcode, command_line=OPTIONS)
    use = PluginUse(policies=dict.fromkeys(BOTH, ":random"), logs=BOTH, seed=seed)
    done = compiler.compile(module, CompileRequest(use=use))
    said = "" if done.status is CompileStatus.OK else f"{done.status.value}: {done.reason}"
    return Outcome(status=done.status.name, sentence=said)


def over_pipes(place: Place, seed: int, wrapper: Path | None = None) -> Outcome:
    """The same over LLVM's interactive channels."""
    advisors: dict[str, Advisor] = {
        name: RandomLegal(PROBLEMS[name], np.random.default_rng([seed, number])) for number, name in enumerate(BOTH)
    }
    module = toy_source("a", bitcode=place.bitcode, command_line=OPTIONS)
    argv = command(place.toolchain, module, place.outputs / "sample.o", None)
    done = drive_channels(
        argv if wrapper is None else [str(wrapper), *argv],
        channels={
            name: channel_use(PROBLEMS[name], major=place.toolchain.major, advisor=advisor)
            for name, advisor in advisors.items()
        },
        timeout_seconds=TIMEOUT_SECONDS,
        answer_timeout_seconds=TIMEOUT_SECONDS,
    )
    return Outcome(status=done.status.name, sentence=done.detail)


def children_of_this_process() -> set[int]:
    """The numbers of the children that run (Linux: proc(5))."""
    children: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            children.update(map(int, (task / "children").read_text().split()))
    return children


def kill_after(seconds: float, stop: threading.Event, others: set[int]) -> None:
    """Wait for a child to appear that is none of the others, and kill it so many seconds later, unless told to stop."""
    while not (children := children_of_this_process() - others):
        if stop.wait(0.0005):
            return
    child = min(children)
    if not stop.wait(seconds) and child in children_of_this_process():
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("compile_once", [through_plugin, over_pipes])
def test_a_kill_at_any_instant_is_a_sentence_and_leaves_nothing(
    place: Place, compile_once: Callable[[Place, int], Outcome]
):
    begin = time.monotonic()
    assert compile_once(place, 0).status == "OK"
    longest = time.monotonic() - begin
    rng = np.random.default_rng(3)
    # Fixtures of other tests have children too.
    others = children_of_this_process()
    for seed in range(4):
        stop = threading.Event()
        killer = threading.Thread(target=kill_after, args=(float(rng.uniform(0, longest)), stop, others))
        killer.start()
        outcome = compile_once(place, seed)
        stop.set()
        killer.join()

        assert outcome.status == "OK" or "signal" in outcome.sentence
        left = [path.name for folder in (place.temporary, place.outputs) for path in folder.iterdir()]
        assert not [name for name in left if "mlgokit" in name]


def without_pipe(place: Place, suffix: str) -> Outcome:
    """A compiler one of whose first channel's pipes is removed before it opens them."""
    wrapper = place.outputs / "wrapper.sh"
    # The first word that names a base is that of the first channel.
    wrapper.write_text(
        "#!/bin/sh\nfor word; do case $word in\n"
        f'*-channel-base=*) rm -f "${{word#*=}}.{suffix}"; break;; esac; done\nexec "$@"\n'
    )
    wrapper.chmod(stat.S_IRWXU)
    return over_pipes(place, 1, wrapper)


def test_pipes_that_are_gone_are_a_sentence(place: Place):
    inbound, outbound = without_pipe(place, "in"), without_pipe(place, "out")

    gone = "expected the two pipes that the compiler was to open, found them gone"
    if inbound.status == "FAILED":
        assert inbound.sentence.endswith("channel regalloc-eviction: its pipes were removed")
    else:
        # A busy machine starts the compiler so late that the missing pipe is seen first.
        assert inbound.status == "LOST"
        assert gone in inbound.sentence
    assert outbound.status == "LOST"
    assert gone in outbound.sentence

"""Corpora and a policy that several files of tests want."""

import json
import socket
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.bitcode import put_bitcode
from tests.llvm.cluster_processes import Cluster

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import write_sidecar
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE

SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
static int add(int x) { return get(x) + get(x + NUMBER); }
static int twice(int x) { put(x); return add(x) * add(x + 1); }
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17)
#define DECLARE(N) int v##N = get(N);
#define CHANGE(N) v##N += get(i + N) * v0;
#define USE(N) put(v##N);
extern "C" int hot_NUMBER(int n) { ALL(DECLARE) for (int i = 0; i < n; i++) { ALL(CHANGE) } ALL(USE) return twice(n); }
extern "C" void once_NUMBER(int i) { ALL(DECLARE) ALL(CHANGE) ALL(USE) put(twice(i) + add(i)); }
extern "C" int small_NUMBER(int i) { return twice(add(i)) - twice(i); }
"""


CorpusOf = Callable[..., Path]


@pytest.fixture(scope="session")
def corpus_of(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> CorpusOf:
    """``corpus_of(name, sources)``: a module, and project, for each text of C++; one without a text is no bitcode."""

    def make(name: str, sources: Mapping[str, str], level: str = "-Oz") -> Path:
        folder = tmp_path_factory.mktemp(f"{name}-{toolchain.major}")
        options = ("-cc1", "-triple", toolchain.target, level, "-ffunction-sections")
        for module, text in sources.items():
            (folder / f"{module}.bc").write_bytes(b"no bitcode")
            (folder / f"{module}.cmd").write_bytes(b"".join(option.encode() + b"\0" for option in options))
            if text:
                put_bitcode(toolchain.clangxx, folder / f"{module}.cpp", text, level)
        (folder / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": list(sources)}))
        write_sidecar(folder, {module: {"project": module} for module in sources}, ())
        return folder

    return make


@pytest.fixture(scope="session")
def small_corpus(corpus_of: CorpusOf) -> Path:
    """Five modules, one of which is no bitcode."""
    good = {f"m{number}": SOURCE.replace("NUMBER", str(number)) for number in range(4)}
    return corpus_of("small", good | {"bad": ""})


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Callable[[str], Path]]:
    """``small_disk("300k")`` mounts a disk of that size, or gives the one that is there that size."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def resize(size: str) -> Path:
        nonlocal mounted
        options = f"remount,size={size}" if mounted else f"size={size}"
        done = process.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], timeout_seconds=120)
        if done.returncode != 0:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        mounted = True
        return place

    yield resize
    if mounted:
        assert process.run(["umount", "--lazy", place], timeout_seconds=120).returncode == 0


@pytest.fixture
def never_policy(tmp_path: Path) -> Path:
    """A policy that prefers not to inline anything."""
    nothing = np.zeros(1, np.float32)
    policy = Policy(
        problem=INLINE_SIZE.name,
        features=("callee_users",),
        normaliser=SignedLog(mean=nothing, scale=nothing, clip=1.0),
        layers=(Layer(np.zeros((1, 1, 2), np.float32), np.array([[1, 0]], np.float32)),),
        output=OutputKind.LOGITS,
    )
    save_policy(policy, tmp_path / "never.policy")
    return tmp_path / "never.policy"


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[Cluster]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    made = Cluster(folder=tmp_path, port=port)
    yield made
    for child in reversed(made.children):
        made.end(child)


@pytest.fixture
def here(toolchain: Toolchain, plugin: Path) -> ClangCompiler:
    return ClangCompiler(toolchain=toolchain, plugin=plugin, workers=2)

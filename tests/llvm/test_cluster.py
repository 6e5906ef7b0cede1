"""A real Dask cluster on loopback: its workers compile what the clang here compiles, whatever breaks meanwhile."""

import contextlib
import dataclasses
import os
import shutil
import signal
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.processes import make_certificate
from tests.llvm.cluster_processes import Cluster, opened

from mlgokit.builds.compilers import ClusterChoice, CompilerOptions
from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.compiler import open_cluster
from mlgokit.cluster.link import FORGOTTEN_AT_ONCE
from mlgokit.cluster.parcel import pack
from mlgokit.commands import evaluate, train
from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import ADVISED_MAJOR, Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import StorageError, ToolError
from mlgokit.learning.settings import Learning
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import say_nothing
from mlgokit.traces import render_log

pytestmark = [pytest.mark.llvm, pytest.mark.timeout(300)]
distributed = pytest.importorskip("distributed")

ONE_MAJOR = pytest.mark.parametrize("toolchain", [ADVISED_MAJOR], indirect=True)
LOGGED = CompileRequest(use=PluginUse(policies={INLINE_SIZE.name: ":default"}, logs=(INLINE_SIZE.name,)), keep="log")
QUICK = Learning(
    iterations=2,
    validation_share=0.2,
    setting=("modules=2", "fit.epochs=2", "fit.members=2", "most_decisions=0"),
)


def same(one: Compilation, other: Compilation) -> bool:
    """Whether two compilations are one, but for times."""
    if (one.status, one.decision_count) != (other.status, other.decision_count):
        return False
    if [render_log(log) for log in one.logs.values()] != [render_log(log) for log in other.logs.values()]:
        return False
    if one.sizes is None or other.sizes is None:
        return one.sizes is other.sizes
    return one.sizes.totals == other.sizes.totals and bool(
        np.array_equal(one.decisions.inlined, other.decisions.inlined)
    )


def test_a_cluster_compiles_what_the_clang_here_compiles(
    cluster: Cluster, here: ClangCompiler, small_corpus: Path, never_policy: Path, tmp_path: Path
):
    modules = load_corpus(small_corpus).modules
    cluster.start_scheduler()
    cluster.start_worker()
    use = PluginUse(policies={INLINE_SIZE.name: str(never_policy)}, logs=(INLINE_SIZE.name,), seed=3, temperature=1.0)
    for request in (CompileRequest(), LOGGED, CompileRequest(use=use), CompileRequest(use=PluginUse(), regalloc=True)):
        with opened(cluster, here) as compiler:
            for module in modules:
                assert same(compiler.compile(module, request), here.compile(module, request))
    for name, compiler in (("here", here), ("there", open_cluster(here, cluster.options))):
        kept = dataclasses.replace(
            LOGGED, keep_object=tmp_path / name / "m.o", keep_logs={INLINE_SIZE.name: tmp_path / name / "m.log"}
        )
        (tmp_path / name).mkdir()
        assert compiler.compile(modules[0], kept).ok
        compiler.close()
    for file in ("m.o", "m.log"):
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()


@ONE_MAJOR
def test_a_cluster_keeps_few_of_the_tasks_that_ended(cluster: Cluster, here: ClangCompiler, small_corpus: Path):
    module = load_corpus(small_corpus).modules[0]
    cluster.start_scheduler()
    cluster.start_worker()
    with opened(cluster, here) as compiler:
        assert all(compiler.compile(module).ok for _ in range(FORGOTTEN_AT_ONCE + 4))
        with distributed.Client(cluster.scheduler, set_as_default=False) as looker:
            assert looker.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) <= FORGOTTEN_AT_ONCE


@ONE_MAJOR
def test_training_gives_the_same_policy_on_threads_and_on_a_cluster(
    cluster: Cluster, toolchain: Toolchain, small_corpus: Path, tmp_path: Path
):
    """Two trainings, and three processes of Dask: several seconds."""
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker()

    def policy(name: str, scheduler: str | None) -> bytes:
        options = CompilerOptions(llvm=toolchain.major, workers=2)
        chosen = ClusterChoice(scheduler=scheduler, insecure=True, scheduler_patience_seconds=60)
        config = train.Train(
            corpus=small_corpus, output=tmp_path / name, learning=QUICK, compiler=options, cluster=chosen
        )
        return train.run(config).policy.read_bytes()

    assert policy("threads", None) == policy("cluster", cluster.scheduler)


@ONE_MAJOR
def test_an_evaluation_says_the_same_on_workers_that_this_process_starts(
    toolchain: Toolchain, small_corpus: Path, never_policy: Path
):
    projects = tuple(module.project for module in load_corpus(small_corpus).modules)

    def rows(scheduler: str | None) -> object:
        config = evaluate.Evaluate(
            corpus=small_corpus,
            projects=projects,
            policy=(str(never_policy),),
            compiler=CompilerOptions(llvm=toolchain.major, workers=2),
            cluster=ClusterChoice(scheduler=scheduler),
        )
        found = evaluate.run(config)
        return [(one["project"], one["before"], one["after"], one["failures"]) for one in found.to_json()["projects"]]

    assert rows("local:2") == rows(None)


@ONE_MAJOR
@pytest.mark.parametrize("what", ["worker", pytest.param("scheduler", marks=pytest.mark.slow)])
def test_what_is_killed_costs_no_result(cluster: Cluster, here: ClangCompiler, small_corpus: Path, what: str):
    modules = [module for module in load_corpus(small_corpus).modules if module.name != "bad"] * 12
    expected = {module.name: here.compile(module, LOGGED) for module in modules[:4]}
    victims = {"scheduler": cluster.start_scheduler()}
    victims["worker"] = cluster.start_worker()
    cluster.start_worker()
    told: list[str] = []
    done, under_way = 0, threading.Event()

    def work(module: Module) -> Compilation:
        nonlocal done
        result = compiler.compile(module, LOGGED)
        done += 1
        if done == 8:
            under_way.set()
        return result

    def kill() -> None:
        assert under_way.wait(120)
        cluster.end(victims[what])
        if what == "scheduler":
            cluster.start_scheduler()

    with opened(cluster, here, told) as compiler:
        killer = threading.Thread(target=kill)
        killer.start()
        results = parallel(work, modules, workers=2, report=say_nothing, label="")
        killer.join()
    assert len(results) == len(modules)
    assert all(same(result, expected[module.name]) for module, result in zip(modules, results, strict=True))


@ONE_MAJOR
def test_a_worker_with_another_clang_gets_nothing(
    cluster: Cluster, here: ClangCompiler, small_corpus: Path, tmp_path: Path
):
    tools = tmp_path / "llvm" / "bin"
    tools.mkdir(parents=True)
    for tool in here.toolchain.clang.resolve().parent.iterdir():
        (tools / tool.name).symlink_to(tool)
    other = tools / here.toolchain.clang.resolve().name
    other.unlink()
    shutil.copyfile(here.toolchain.clang.resolve(), other)
    other.chmod(0o755)
    with other.open("ab") as file:
        file.write(b"another build")
    (tmp_path / "llvm" / "lib").symlink_to(here.toolchain.clang.resolve().parent.parent / "lib")
    cluster.start_scheduler()
    cluster.start_worker(MLGOKIT_LLVM=str(tools))
    module = load_corpus(small_corpus).modules[0]
    with opened(cluster, here) as compiler, pytest.raises(ToolError, match="expected the clang of the client"):
        compiler.compile(module, LOGGED)
    told: list[str] = []
    cluster.start_worker()
    with opened(cluster, here, told) as compiler:
        with distributed.Client(cluster.scheduler, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        results = parallel(
            lambda one: compiler.compile(one, LOGGED), [module] * 6, workers=3, report=say_nothing, label=""
        )
    assert all(result.ok for result in results)
    assert [text for text in told if "gets nothing" in text and "another" in text]


@ONE_MAJOR
def test_a_full_disk_of_a_worker_ends_the_run_with_its_name(
    cluster: Cluster, here: ClangCompiler, small_corpus: Path, small_disk: Callable[[str], Path]
):
    disk = small_disk("4m")
    cluster.start_scheduler()
    cluster.start_worker(TMPDIR=str(disk))
    module = load_corpus(small_corpus).modules[0]
    with opened(cluster, here) as compiler:
        assert compiler.compile(module, LOGGED).ok
        with contextlib.suppress(OSError):
            (disk / "full").write_bytes(bytes(8 << 20))
        with pytest.raises(StorageError, match=r"worker tcp://.*what was finished is kept"):
            compiler.compile(module, LOGGED)
        (disk / "full").unlink()
        assert compiler.compile(module, LOGGED).ok


@ONE_MAJOR
def test_compilers_stay_on_workers(cluster: Cluster, here: ClangCompiler, small_corpus: Path):
    stays = dataclasses.replace(here, residents=Residents(), known={})
    request = dataclasses.replace(LOGGED, reuse=True, keep="all")
    modules = [module for module in load_corpus(small_corpus).modules if module.name != "bad"]
    cluster.start_scheduler()
    cluster.start_worker()
    with opened(cluster, stays) as compiler:
        for _ in range(3):
            for module in modules:
                assert same(compiler.compile(module, request), here.compile(module, request))


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Path, Path]:
    """The authority, and a certificate with its key."""
    return make_certificate(tmp_path)


@ONE_MAJOR
def test_connections_are_encrypted(
    cluster: Cluster, here: ClangCompiler, small_corpus: Path, certificates: tuple[Path, Path]
):
    cluster.tls = certificates
    cluster.start_scheduler()
    cluster.start_worker()
    module = load_corpus(small_corpus).modules[0]
    with opened(cluster, here) as compiler:
        assert same(compiler.compile(module, LOGGED), here.compile(module, LOGGED))


@pytest.fixture
def other_machine() -> Generator[str]:
    """A network of its own for one process, as another machine has it; this machine is 10.77.0.1 in it."""
    name = f"mlgokit{os.getpid()}"
    near, far = f"n{os.getpid()}", f"f{os.getpid()}"

    def ip(*words: str) -> bool:
        return process.run(["ip", *words], timeout_seconds=30).returncode == 0

    if shutil.which("ip") is None or not ip("netns", "add", name):
        pytest.skip("no network namespace can be made here; run as root, with iproute2")
    try:
        made = (
            ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
            and ip("address", "add", "10.77.0.1/24", "dev", near)
            and ip("link", "set", near, "up")
            and ip("-n", name, "address", "add", "10.77.0.2/24", "dev", far)
            and ip("-n", name, "link", "set", far, "up")
            and ip("-n", name, "link", "set", "lo", "up")
        )
        if not made:
            pytest.skip("no network can be made between two namespaces here")
        yield name
    finally:
        ip("netns", "delete", name)
        ip("link", "delete", near)


# Half a minute of waiting for Dask; that a worker is killed is tried in the fast half.
@pytest.mark.slow
@ONE_MAJOR
def test_a_network_that_breaks_costs_no_result(
    cluster: Cluster,
    here: ClangCompiler,
    small_corpus: Path,
    certificates: tuple[Path, Path],
    other_machine: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("mlgokit.cluster.link.HUNG_SECONDS", 8.0)
    modules = [module for module in load_corpus(small_corpus).modules if module.name != "bad"] * 6
    expected = {module.name: here.compile(module, LOGGED) for module in modules[:4]}
    cluster.host, cluster.tls = "10.77.0.1", certificates
    cluster.start_scheduler()
    cluster.start_worker(inside=("ip", "netns", "exec", other_machine))
    done, told = 0, list[str]()

    def work(module: Module) -> Compilation:
        nonlocal done
        result = compiler.compile(module, LOGGED)
        done += 1
        if done == 6:
            # The cable is pulled, and another machine comes.
            words = ["ip", "-n", other_machine, "link", "set", f"f{os.getpid()}", "down"]
            assert process.run(words, timeout_seconds=30).returncode == 0
            cluster.start_worker()
        return result

    with opened(cluster, here, told) as compiler:
        results = parallel(work, modules, workers=2, report=say_nothing, label="")
    assert all(same(result, expected[module.name]) for module, result in zip(modules, results, strict=True))
    assert [text for text in told if "does not answer" in text]


@pytest.mark.slow
@ONE_MAJOR
def test_a_result_that_is_long_on_its_way_breaks_no_other(
    cluster: Cluster, here: ClangCompiler, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
):
    # All results are longer on their way than this, and nothing may be tried again.
    monkeypatch.setattr("mlgokit.cluster.link.SLICE_SECONDS", 0.001)
    monkeypatch.setattr("mlgokit.cluster.link.MOST_FAILURES", 1)
    modules = [module for module in load_corpus(small_corpus).modules if module.name != "bad"] * 12
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker()
    with opened(cluster, here) as compiler:
        results = parallel(
            lambda module: compiler.compile(module, LOGGED), modules, workers=6, report=say_nothing, label=""
        )
    assert all(result.ok for result in results)


@ONE_MAJOR
def test_an_interrupted_run_waits_for_no_worker(cluster: Cluster, here: ClangCompiler, small_corpus: Path):
    modules = load_corpus(small_corpus).modules[:1] * 40
    cluster.start_scheduler()
    worker = cluster.start_worker()

    class StoppedError(Exception):
        """In place of an interrupt, which would end the tests."""

    told: list[str] = []
    with opened(cluster, here, told) as compiler:
        assert compiler.compile(modules[0], LOGGED).ok
        os.killpg(worker.pid, signal.SIGSTOP)

        def report(done: int, _total: int, _text: str) -> None:
            if done == 1:
                raise StoppedError

        def work(number: int) -> None:
            if number:
                compiler.compile(modules[number], LOGGED)

        with pytest.raises(StoppedError):
            parallel(work, range(40), workers=4, report=report, label="")
        assert not [text for text in told if "does not answer" in text]
        os.killpg(worker.pid, signal.SIGCONT)


@ONE_MAJOR
def test_a_file_that_is_replaced_before_it_is_sent_ends_the_run(
    here: ClangCompiler, small_corpus: Path, tmp_path: Path
):
    module = load_corpus(small_corpus).modules[0]
    bitcode = tmp_path / "m.bc"
    shutil.copy(module.bitcode, bitcode)
    compiler = open_cluster(here, ClusterOptions(scheduler="local:1"))
    try:
        parcel = pack(here, compiler.setup, dataclasses.replace(module, bitcode=bitcode), CompileRequest())
        bitcode.write_bytes(b"something else")
        with pytest.raises(ToolError, match=r"failed 10 times with ValueError \(a file sent to the worker: expected "):
            compiler.link.answer(parcel)
    finally:
        compiler.close()


@ONE_MAJOR
def test_what_breaks_again_and_again_ends_the_run(
    cluster: Cluster, here: ClangCompiler, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
):
    def breaks(*_: object) -> None:
        raise RuntimeError("a defect")

    cluster.start_scheduler()
    cluster.start_worker()
    monkeypatch.setattr("mlgokit.cluster.link.compile_here", breaks)
    with (
        opened(cluster, here) as compiler,
        pytest.raises(ToolError, match=r"failed 10 times with RuntimeError \(a defect\)"),
    ):
        compiler.compile(load_corpus(small_corpus).modules[0], LOGGED)

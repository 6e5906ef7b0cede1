"""Commands over a real Dask cluster on loopback: what they leave is what threads leave."""

from pathlib import Path

import pytest
from tests.llvm.cluster_processes import Cluster, opened
from tests.llvm.conftest import CorpusOf
from tests.llvm.searching import is_smaller, tune_until
from tests.llvm.test_live_range_policies import SOURCE
from tests.llvm.test_tune import build as build_sources, output_of, put_database, put_sources, text_bytes

from mlgokit.builds.compilers import ClusterChoice, CompilerOptions
from mlgokit.commands import trace, train, tune
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import ADVISED_MAJOR, Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.learning.settings import Learning
from mlgokit.problems import REGALLOC_PRIORITY

pytestmark = [pytest.mark.llvm, pytest.mark.timeout(300)]
distributed = pytest.importorskip("distributed")

ONE_MAJOR = pytest.mark.parametrize("toolchain", [ADVISED_MAJOR], indirect=True)
LEARNING = Learning(setting=("functions=6", "share=1.0", "population=6", "judges=0", "generations=2", "score=bytes"))


def chosen(cluster: Cluster | None) -> ClusterChoice:
    scheduler = None if cluster is None else cluster.scheduler
    return ClusterChoice(scheduler=scheduler, insecure=True, scheduler_patience_seconds=60)


def files_below(folder: Path) -> dict[str, bytes]:
    """What a command leaves, but for its store."""
    kept = (path for path in sorted(folder.rglob("*")) if path.is_file() and "store" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@ONE_MAJOR
@pytest.mark.slow  # In the fast half test_cluster.py compares a training by threads with one on a cluster.
def test_a_policy_from_trials_is_the_same_bytes(
    cluster: Cluster, toolchain: Toolchain, corpus_of: CorpusOf, tmp_path: Path
):
    """Two trainings, and three processes of Dask: several seconds."""
    corpus = corpus_of("trials", {f"m{number}": SOURCE.replace("NUMBER", str(number + 2)) for number in range(4)})
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker()

    def policy(name: str, there: Cluster | None) -> bytes:
        config = train.Train(
            corpus=corpus,
            output=tmp_path / name,
            problem=REGALLOC_PRIORITY.name,
            learning=LEARNING,
            compiler=CompilerOptions(llvm=toolchain.major, workers=2),
            cluster=chosen(there),
        )
        return train.run(config).policy.read_bytes()

    assert policy("threads", None) == policy("cluster", cluster)


@ONE_MAJOR
def test_traces_are_the_same_bytes(cluster: Cluster, toolchain: Toolchain, small_corpus: Path, tmp_path: Path):
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker()

    def traced(name: str, there: Cluster | None) -> dict[str, bytes]:
        config = trace.Trace(
            corpus=small_corpus,
            output=tmp_path / name,
            tfrecord=tmp_path / name / "all.tfrecord",
            compiler=CompilerOptions(llvm=toolchain.major, workers=2),
            cluster=chosen(there),
        )
        found = trace.run(config)
        assert found["failed"]
        kept = files_below(tmp_path / name)
        return {path: data for path, data in kept.items() if path.endswith((".log", ".csv", ".tfrecord"))}

    here = traced("threads", None)
    assert len(here) == 6
    assert here == traced("cluster", cluster)


@ONE_MAJOR
def test_a_project_is_tuned_on_a_cluster_and_its_plugin_gives_what_was_promised(
    cluster: Cluster, toolchain: Toolchain, tmp_path: Path
):
    """Which decision is tried next depends on what has finished, so the plugin is not the same bytes."""
    sources = put_sources(tmp_path / "source")
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker()
    result = tune_until(
        is_smaller,
        tune.Tune(
            compile_commands=put_database(tmp_path / "source"),
            budget="2s",
            output=tmp_path / "tuned.so",
            folder=tmp_path / "tune",
            compiler=CompilerOptions(llvm=toolchain.major, workers=2),
            cluster=chosen(cluster),
        ),
    ).to_json()
    plain = build_sources(toolchain, sources, tmp_path / "plain")
    tuned = build_sources(toolchain, sources, tmp_path / "tuned", result["flag"])
    assert text_bytes(tuned) < text_bytes(plain)
    assert output_of(toolchain, plain, tmp_path / "a") == output_of(toolchain, tuned, tmp_path / "b")


@ONE_MAJOR
def test_a_worker_needs_no_learning_framework(cluster: Cluster, here: ClangCompiler, small_corpus: Path):
    """On the worker, what `pip install 'mlgokit[cluster]'` does not bring cannot be imported."""
    blocked = cluster.folder / "blocked"
    for name in ("jax", "jaxlib", "optax", "flax", "cmaes", "tensorflow", "gymnasium", "matplotlib"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text(f"raise ImportError('{name} is not installed here')")

    def framework() -> str:
        try:
            import jax
        except ImportError as error:
            return str(error)
        return str(jax)

    cluster.start_scheduler()
    cluster.start_worker(PYTHONPATH=str(blocked))
    module = load_corpus(small_corpus).modules[0]
    with opened(cluster, here) as compiler:
        assert compiler.compile(module, CompileRequest(regalloc=True)).ok
        with distributed.Client(cluster.scheduler, set_as_default=False) as client:
            assert list(client.run(framework).values()) == ["jax is not installed here"]

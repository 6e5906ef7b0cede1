"""The example that asks SLURM for workers, as far as it goes without SLURM: the script of a job."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.processes import make_certificate

ROOT = Path(__file__).parents[2]


def show(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the example in a folder, for what it would start."""
    pytest.importorskip("dask_jobqueue")
    argv = [sys.executable, ROOT / "examples/slurm_cluster.py", "--show", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=folder, check=False)


def test_a_job_is_one_worker_with_a_thread_for_each_compiler(tmp_path: Path):
    done = show(tmp_path, "--insecure", "--cores", "12", "--memory", "48GB")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "#SBATCH --cpus-per-task=12" in lines
    (worker,) = [line for line in lines if "dask_worker" in line]
    assert "--nthreads 12" in worker
    assert "tcp://127.0.0.1:" in worker
    assert "--worker-class mlgokit.cluster.nodes.Worker" in worker
    # Dask imports from where it works.
    assert lines.index("export TMPDIR=$(mktemp -d)") < lines.index(worker)


def test_a_job_joins_by_tls_with_the_files_that_are_given(tmp_path: Path):
    make_certificate(tmp_path)
    done = show(tmp_path, "--tls-authority", "authority.pem", "--tls-certificate", "certificate.pem")
    assert done.returncode == 0, done.stderr
    (worker,) = [line for line in done.stdout.splitlines() if "dask_worker" in line]
    assert "tls://127.0.0.1:" in worker
    assert "tcp://" not in done.stdout
    found = dict(zip(worker.split(), worker.split()[1:], strict=False))
    paths = [Path(found[option]) for option in ("--tls-ca-file", "--tls-cert", "--tls-key")]
    assert [path.name for path in paths] == ["authority.pem", "certificate.pem", "certificate.pem"]
    # Jobs start in another folder, perhaps.
    assert all(path.is_absolute() for path in paths), paths


def test_without_certificates_it_needs_a_word(tmp_path: Path):
    done = show(tmp_path)
    assert done.returncode == 2
    assert "expected --tls-authority and --tls-certificate" in done.stderr

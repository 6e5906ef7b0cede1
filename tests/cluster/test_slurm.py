"""The example that asks SLURM for workers, as far as it goes without SLURM: the script of a job."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_job_is_one_worker_with_a_thread_for_each_compiler(tmp_path: Path):
    pytest.importorskip("dask_jobqueue")
    done = subprocess.run(
        [sys.executable, ROOT / "examples/slurm_cluster.py", "--show", "--cores", "12", "--memory", "48GB"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert "#SBATCH --cpus-per-task=12" in lines
    (worker,) = [line for line in lines if "dask_worker" in line]
    assert "--nthreads 12" in worker
    assert "tcp://127.0.0.1:" in worker

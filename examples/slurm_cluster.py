"""Workers by SLURM: a scheduler here, jobs that join it, and its address for ``mlgokit ... --scheduler``.

    python examples/slurm_cluster.py --jobs 8

It ends, and its jobs with it, when it is interrupted. ``--show`` prints the script of a job and submits nothing.
"""

import argparse
import os
import signal
import tempfile
from typing import Any

import dask.config
from dask_jobqueue.slurm import SLURMCluster
from distributed.security import Security
from distributed.utils import import_term


def security(given: argparse.Namespace) -> Security:
    """One certificate for all, as ``--tls-authority`` and ``--tls-certificate`` of mlgokit take it."""
    roles = ("scheduler", "worker", "client")
    files = {f"tls_{role}_{part}": given.tls_certificate for role in roles for part in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=given.tls_authority, **files)


def main() -> None:
    """Start the cluster and wait."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, help="nodes to ask for")
    parser.add_argument("--cores", type=int, default=16, help="compilers that run at once on each")
    parser.add_argument("--memory", default="64GB", help="of each")
    parser.add_argument("--walltime", default="08:00:00", help="of each")
    parser.add_argument("--interface", default="lo", help="network interface that nodes reach this machine by")
    parser.add_argument("--scheduler-file", default="scheduler.json", help="what mlgokit takes as --scheduler")
    # Jobs may start in another folder.
    parser.add_argument("--tls-authority", type=os.path.abspath, help="file of the authority, for connections by TLS")
    parser.add_argument("--tls-certificate", type=os.path.abspath, help="certificate and key, on a disk of all nodes")
    parser.add_argument("--insecure", action="store_true", help="no TLS, where each user of the network is trusted")
    parser.add_argument("--show", action="store_true", help="print the script of a job")
    given = parser.parse_args()
    if not given.insecure and not (given.tls_authority and given.tls_certificate):
        parser.error(
            "expected --tls-authority and --tls-certificate, as whoever reaches a scheduler or a worker without TLS "
            "can run programs as you; give both, or --insecure where you trust each user of the network"
        )
    secret = {"protocol": "tls://", "security": security(given)} if given.tls_certificate else {}
    cluster: Any
    # Dask imports from the folder that it works in, which all users of a machine would share.
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"temporary-directory": folder}),
        SLURMCluster(
            cores=given.cores,
            # One process with a thread for each compiler, which runs beside it.
            processes=1,
            memory=given.memory,
            walltime=given.walltime,
            interface=given.interface,
            job_script_prologue=["export TMPDIR=$(mktemp -d)", "trap 'rm -rf \"$TMPDIR\"' EXIT"],
            # Neither the scheduler nor a worker serves HTTP.
            scheduler_cls=import_term("mlgokit.cluster.nodes.Scheduler"),
            scheduler_options={"scheduler_file": given.scheduler_file},
            worker_extra_args=["--worker-class", "mlgokit.cluster.nodes.Worker", "--no-dashboard"],
            **secret,
        ) as cluster,
    ):
        if given.show:
            print(cluster.job_script())
            return
        cluster.scale(jobs=given.jobs)
        print(f"mlgokit train ... --scheduler {given.scheduler_file}")
        signal.pause()


if __name__ == "__main__":
    main()

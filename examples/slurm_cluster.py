"""Workers by SLURM: a scheduler here, jobs that join it, and its address for ``mlgokit ... --scheduler``.

    python examples/slurm_cluster.py --jobs 8

It ends, and its jobs with it, when it is interrupted. ``--show`` prints the script of a job and submits nothing.
"""

import argparse
import os
import signal
from typing import Any

from dask_jobqueue.slurm import SLURMCluster
from distributed.security import Security


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
    parser.add_argument("--tls-certificate", type=os.path.abspath, help="certificate and key, for all nodes to read")
    parser.add_argument("--show", action="store_true", help="print the script of a job")
    given = parser.parse_args()
    secret = {"protocol": "tls://", "security": security(given)} if given.tls_certificate else {}
    cluster: Any
    with SLURMCluster(
        cores=given.cores,
        # One process with a thread for each compiler, which runs beside it.
        processes=1,
        memory=given.memory,
        walltime=given.walltime,
        interface=given.interface,
        scheduler_options={"scheduler_file": given.scheduler_file, "dashboard_address": "127.0.0.1:0"},
        **secret,
    ) as cluster:
        if given.show:
            print(cluster.job_script())
            return
        cluster.scale(jobs=given.jobs)
        print(f"mlgokit train ... --scheduler {given.scheduler_file}")
        signal.pause()


if __name__ == "__main__":
    main()

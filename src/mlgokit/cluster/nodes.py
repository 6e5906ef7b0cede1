"""Dask's scheduler and worker without their HTTP servers.

Dask has no setting for this and takes classes, so these inherit. They keep the names, by which Dask finds its settings.
A nanny has no such server.
"""

import distributed


class _WithoutHttp:
    def start_http_server(self, *_given: object, **_named: object) -> None:
        """Do nothing in place of starting the server."""


class Scheduler(_WithoutHttp, distributed.Scheduler):
    """A scheduler that listens for workers and clients only."""


class Worker(_WithoutHttp, distributed.Worker):
    """A worker that listens for the scheduler, its nanny and other workers only."""

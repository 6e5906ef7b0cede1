"""Modules that may end the workers that compile them, and how each is tried alone.

Dask gives a task out again when its worker dies, and gives up when four did (its setting ``allowed-failures``). All
that a worker had at that time counts as well, so most of what Dask gives up has done nothing. Each is then compiled
alone, on a worker that has nothing else meanwhile: what ends that worker too is guilty.
"""

import contextlib
import threading
from collections.abc import Generator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

_SLICE_SECONDS = 0.5


class AloneGoneError(Exception):
    """The worker that a suspect had for itself is gone."""


@dataclass(slots=True, kw_only=True, eq=False)
class Suspects:
    """Modules that Dask gave up, and the worker that one of them has for itself. Threads may share it.

    Attributes:
        reserved: the worker; empty for none.
        guilty: modules that ended a worker alone.
    """

    reserved: str = ""
    guilty: set[str] = field(default_factory=set[str])
    _names: set[str] = field(default_factory=set[str])
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __contains__(self, module: str) -> bool:
        """Whether a module must be compiled alone."""
        return module in self._names

    def add(self, module: str) -> None:
        """Suspect a module."""
        self._names.add(module)

    def convict(self, module: str) -> None:
        """It ended a worker alone, and is compiled alone from now on."""
        self.guilty.add(module)

    def acquit(self, module: str) -> None:
        """It was compiled alone; what was guilty before stays suspect."""
        if module not in self.guilty:
            self._names.discard(module)

    @contextlib.contextmanager
    def alone(self, stopped: threading.Event) -> Generator[None]:
        """Be the only suspect that is compiled.

        Raises:
            CancelledError: it is not wanted any more.
        """
        while not self._turn.acquire(timeout=_SLICE_SECONDS):
            if stopped.is_set():
                raise CancelledError
        try:
            yield
        finally:
            self.reserved = ""
            self._turn.release()

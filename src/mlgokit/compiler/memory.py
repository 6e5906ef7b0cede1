"""Compilers that run beside each other share the machine's memory: a large one waits until there is enough for it."""

import contextlib
import threading
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from mlgokit.compiler.limits import MACHINE_BYTES

SHARE = 0.8
"""Of the machine's memory, for compilers."""


@dataclass(slots=True, kw_only=True, eq=False)
class MemoryGate:
    """Memory that threads take and give back, in the order in which they ask.

    Attributes:
        bytes: how much there is; whoever wants more runs alone.
    """

    bytes: int = int(SHARE * MACHINE_BYTES)
    _taken: int = 0
    _waiting: deque[object] = field(default_factory=deque[object])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextlib.contextmanager
    def taking(self, wanted: int) -> Generator[None]:
        """Wait for so many bytes, and have them meanwhile.

        Those that wait end with the compilers before them, whose deadlines bound the wait.
        """
        wanted = min(wanted, self.bytes)
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._taken + wanted <= self.bytes)
                self._taken += wanted
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._taken -= wanted
                self._changed.notify_all()

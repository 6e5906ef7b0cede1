"""Resource limits of child processes, and how to tell that one was exceeded."""

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

GIB = 1 << 30
MOST_PRINTED_BYTES = 256 << 20
"""Limit on what a child prints to each of its two streams; standard output is read into memory."""


def _read_of_groups(controller: str, name: str, root: Path) -> Iterator[str]:
    """Read a file in each control group that this process is in, of version 2, or of a controller of version 1.

    In a container the path of a group may be that on the host; its own group is then the top one that it sees.
    """
    try:
        text = (root / "proc/self/cgroup").read_text(errors="surrogateescape")
    except OSError:
        return
    for controllers, path in re.findall(r"^\d+:([^:\n]*):/?(.*)$", text, re.MULTILINE):
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = top / path
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                with contextlib.suppress(OSError):
                    yield (folder / name).read_text()


def usable_memory(root: Path = Path("/")) -> int:
    """Bytes of the machine's memory, or of that part which the control groups of this process may have."""
    values = (
        text for name in ("memory.max", "memory.limit_in_bytes") for text in _read_of_groups("memory", name, root)
    )
    most = [int(text) for text in values if text.strip().isdigit()]
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *most])


def usable_processors(root: Path = Path("/")) -> int:
    """Number of the processors that this process may run on, or that its control groups have the time of."""
    quotas, periods = (_read_of_groups("cpu", f"cpu.cfs_{name}_us", root) for name in ("quota", "period"))
    shares = [*_read_of_groups("cpu", "cpu.max", root), *map(" ".join, zip(quotas, periods, strict=False))]
    limited = (re.match(r"(\d+)\s+([1-9]\d*)", share) for share in shares)
    most = [-(-int(share[1]) // int(share[2])) for share in limited if share is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *most]))


MACHINE_BYTES = usable_memory()
PROCESSORS = usable_processors()
_THREAD_BYTES = 128 << 20
"""Address space, not memory, that the C library reserves for each thread that allocates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a child process and each of its children, which the operating system enforces.

    Attributes:
        file_bytes: size of each file that it writes, standard error included; ``None`` for no limit.
        memory_bytes: address space, at most 1.5 times the resident memory of a compiler; ``None`` for no limit.
        printed_bytes: output on each standard stream, checked every second.
        settable: whether ``--memory-limit-gib`` and ``--file-limit-gib`` change them.
    """

    file_bytes: int | None
    memory_bytes: int | None
    printed_bytes: int = MOST_PRINTED_BYTES
    settable: bool = False


COMPILER_LIMITS = Limits(file_bytes=512 << 20, memory_bytes=min(8 * GIB, max(2 * GIB, MACHINE_BYTES)), settable=True)
"""Limits of ``clang -cc1``: 2 KB of bitcode can make gigabytes of object, one line of assembly can take all memory."""

_TOOL_FILE_BYTES = 4 * GIB
_TOOL_MEMORY_BYTES = max(8 * GIB, MACHINE_BYTES) + _THREAD_BYTES * (os.cpu_count() or 1)
TOOL_LIMITS = Limits(file_bytes=_TOOL_FILE_BYTES, memory_bytes=_TOOL_MEMORY_BYTES)
"""Limits of drivers, linkers and other tools of LLVM. Linkers map their output, and have one thread per processor."""

USERS_LIMITS = Limits(file_bytes=None, memory_bytes=None)
"""Limits of commands that the user named: a build, a link, a measurement. Only their output is bounded."""


def take_stricter(limits: Limits, *, file_bytes: int | None, memory_bytes: int | None) -> Limits:
    """Combine limits with further bounds on files and memory; the stricter one counts.

    Example:
        >>> take_stricter(USERS_LIMITS, file_bytes=5, memory_bytes=None).file_bytes
        5
    """
    files = [most for most in (limits.file_bytes, file_bytes) if most is not None]
    memory = [most for most in (limits.memory_bytes, memory_bytes) if most is not None]
    return replace(limits, file_bytes=min(files, default=None), memory_bytes=min(memory, default=None))


_NO_MEMORY = re.compile(
    r"LLVM ERROR: out of memory|Allocation failed|bad_alloc|Cannot allocate memory"
    r"|^(?!.*unable to load plugin).*failed to map segment",
    re.MULTILINE,
)
"""A plugin is small: that of a file system mounted ``noexec`` is not mapped either."""
_FILE_TOO_LARGE = "File too large"


def format_bytes(count: int) -> str:
    """Format a number of bytes for a sentence.

    Example:
        >>> [format_bytes(512 << 20), format_bytes(3 << 30), format_bytes(3 << 29), format_bytes(999)]
        ['512 MiB', '3 GiB', '1.5 GiB', '999 bytes']
    """
    for unit, name in ((GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def describe_exceeded_limit(limits: Limits, *, returncode: int, complaint: str, printed_bytes: int = 0) -> str:
    """Describe the limit that ended a child; empty if none did.

    Args:
        limits: limits of the child.
        returncode: exit status as :mod:`subprocess` reports it, or 128 and the signal, as a shell and bubblewrap do.
        complaint: standard error of the child.
        printed_bytes: size of the larger of its two output streams.
    """
    if printed_bytes > limits.printed_bytes:
        return f"it printed more than {format_bytes(limits.printed_bytes)}, and was ended"
    if returncode == 0:
        return ""
    file_bytes, memory_bytes = limits.file_bytes, limits.memory_bytes
    too_large = returncode in {-signal.SIGXFSZ, 128 + signal.SIGXFSZ} or _FILE_TOO_LARGE in complaint
    if file_bytes is not None and too_large:
        remedy = "; allow more with --file-limit-gib" if limits.settable else ""
        return f"it wrote more than {format_bytes(file_bytes)} into one file, and was ended{remedy}"
    if memory_bytes is not None and _NO_MEMORY.search(complaint):
        remedy = "; allow more with --memory-limit-gib" if limits.settable else ""
        return f"it asked for more than {format_bytes(memory_bytes)} of memory, and was ended{remedy}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCosts:
    """Resources of a module's baseline compilation: memory, object size, processor time."""

    memory_bytes: int
    object_bytes: int
    seconds: float


LEAST_MEMORY_BYTES = 2 * GIB
LEAST_FILE_BYTES = 64 << 20
LEAST_SECONDS = 20.0
MEMORY_FACTOR = 8
FILE_FACTOR = 16
TIME_FACTOR = 50
"""A module's compilation may take this many times the resources of its baseline compilation, and at least the minimum
above. Inlining everything makes objects up to 8 times as large; address space is 2 to 4 times the memory that is
used."""


LARGE_BITCODE_BYTES = 1 << 19
"""Bitcode of so many bytes takes two to three seconds of processor time at -Oz, and longer on a busy machine."""
FIRST_MEMORY_BYTES = 100 << 20
FIRST_MEMORY_FACTOR = 60
"""Estimate for a module that was not compiled yet: a tenth of a gigabyte, plus this many times its bitcode."""
MEMORY_MARGIN = 1.25
"""Factor for a policy that inlines more than LLVM and takes more memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModuleLimits:
    """Limits of the compilations of a run, derived per module from its baseline compilation once that was measured.

    Threads may share it.

    Attributes:
        memory_bytes: the user's limit on memory, which overrides the derived one; ``None`` without one.
        file_bytes: the user's limit on files, which overrides the derived one; ``None`` without one.
        seconds: whether deadlines are derived too; not if the user gave one.
    """

    memory_bytes: int | None = None
    file_bytes: int | None = None
    seconds: bool = False
    _plain: dict[str, PlainCosts] = field(default_factory=dict[str, PlainCosts])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def default(self) -> Limits:
        """Limits of a module without a baseline compilation."""
        return Limits(
            memory_bytes=self.memory_bytes or COMPILER_LIMITS.memory_bytes,
            file_bytes=self.file_bytes or COMPILER_LIMITS.file_bytes,
            settable=True,
        )

    def note(self, module: str, *, memory_bytes: int, object_bytes: int, seconds: float) -> None:
        """Record the costs of a baseline compilation; the maximum of several counts."""
        with self._lock:
            known = self._plain.get(module)
            self._plain[module] = PlainCosts(
                memory_bytes=max(memory_bytes, known.memory_bytes if known else 0),
                object_bytes=max(object_bytes, known.object_bytes if known else 0),
                seconds=max(seconds, known.seconds if known else 0.0),
            )

    def put(self, module: str, costs: PlainCosts) -> None:
        """Record costs that another process measured."""
        self.note(module, memory_bytes=costs.memory_bytes, object_bytes=costs.object_bytes, seconds=costs.seconds)

    def costs_of(self, module: str) -> PlainCosts | None:
        """Return the costs of a module's plain compilation; ``None`` if they were not measured."""
        return self._plain.get(module)

    def expected_memory(self, module: str, *, bitcode_bytes: int) -> int:
        """Estimate the bytes of memory of a compilation, from its baseline or, before that, from its bitcode size."""
        plain = self._plain.get(module)
        if plain is None:
            return FIRST_MEMORY_BYTES + FIRST_MEMORY_FACTOR * bitcode_bytes
        return int(MEMORY_MARGIN * plain.memory_bytes)

    def of(self, module: str, *, only_object: bool) -> Limits:
        """Compute the limits of one compilation.

        Args:
            module: name of the module, as for :meth:`note`.
            only_object: whether the compiler writes nothing but the object; the size of a log cannot be derived.
        """
        most, plain = self.default, self._plain.get(module)
        if plain is None or most.memory_bytes is None or most.file_bytes is None:
            return most
        memory = min(most.memory_bytes, max(LEAST_MEMORY_BYTES, MEMORY_FACTOR * plain.memory_bytes))
        file = min(most.file_bytes, max(LEAST_FILE_BYTES, FILE_FACTOR * plain.object_bytes))
        return Limits(
            memory_bytes=self.memory_bytes or memory,
            file_bytes=self.file_bytes or (file if only_object else most.file_bytes),
            settable=True,
        )

    def deadline(self, module: str, most_seconds: float, *, bitcode_bytes: int = 0) -> float:
        """Compute the seconds that one compilation may take, at most ``most_seconds``, or more if its bitcode is large.

        Example:
            >>> limits = ModuleLimits(seconds=True)
            >>> [limits.deadline("a", 60.0, bitcode_bytes=size) for size in (9000, 3 << 20)]
            [60.0, 360.0]
        """
        plain = self._plain.get(module)
        if self.seconds:
            most_seconds *= max(1.0, bitcode_bytes / LARGE_BITCODE_BYTES)
        if plain is None or not self.seconds:
            return most_seconds
        return min(most_seconds, max(LEAST_SECONDS, TIME_FACTOR * plain.seconds))


def link_limits(objects_bytes: int) -> Limits:
    """Compute the limits of a link from the size of its inputs, far above what linkers need."""
    return Limits(
        file_bytes=min(_TOOL_FILE_BYTES, (256 << 20) + 4 * objects_bytes),
        memory_bytes=min(_TOOL_MEMORY_BYTES, 4 * GIB + 32 * objects_bytes),
    )

"""The worker side: a compilation request is unpacked, compiled by the worker's own clang, and answered."""

import contextlib
import dataclasses
import functools
import hashlib
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from mlgokit.cluster.parcel import Parcel, Reply, Setup, programs_of, unpack
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.limits import MACHINE_BYTES, ModuleLimits
from mlgokit.compiler.memory import SHARE, HostMemory, MemoryGate
from mlgokit.compiler.reuse.known_decisions import KnownDecisions
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.sandbox import open_sandbox
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.disk import Room
from mlgokit.errors import MlgokitError, ToolError
from mlgokit.files import atomic_write, digest_cached
from mlgokit.manifest import package_version

KEPT_SECONDS = 7 * 24 * 3600.0
"""Age in seconds at which an unused file is deleted."""

ATTEMPTS = 3
"""Number of attempts to open the compiler of a setup."""
_opening = threading.Lock()
_compilers: dict[Setup, ClangCompiler | str] = {}
"""The compiler of each setup, or the reason why there is none."""
_seats: dict[str, threading.Semaphore] = {}
"""Semaphores by worker address, since a process may have several workers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shelf:
    """A folder of files by SHA-256. Processes and threads may share it.

    Attributes:
        folder: path of the folder; each file is in a subfolder under its own name.
    """

    folder: Path
    _seen: set[Path] = field(default_factory=set[Path])

    def place(self, digest: str, name: str) -> Path:
        """Make the path at which a file is stored, whether it is there or not."""
        return self.folder / digest[:2] / digest / name

    def missing(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """List the digests of files that are missing or damaged.

        Args:
            files: digest by path on the client.
        """
        return tuple(dict.fromkeys(digest for path, digest in files.items() if not self._has(path, digest)))

    def put(self, digest: str, names: tuple[str, ...], data: bytes) -> None:
        """Store a file under each of its names.

        Raises:
            StorageError: the disk is full or not writable.
            ValueError: the content has another digest.
        """
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(
                f"a file sent to the worker: expected the SHA-256 digest {digest[:12]}, found another; send it again"
            )
        for name in names:
            atomic_write(self.place(digest, name), data)

    def clear(self) -> None:
        """Delete the files that nobody used within :data:`KEPT_SECONDS`."""
        before = time.time() - KEPT_SECONDS
        for path in self.folder.glob("*/*/*"):
            with contextlib.suppress(OSError):
                if path.stat().st_atime < before and path.stat().st_mtime < before:
                    path.unlink()

    def _has(self, path: str, digest: str) -> bool:
        """Whether the file that the client has at a path is here, with this digest."""
        stored = self.place(digest, Path(path).name)
        if stored in self._seen:
            return stored.exists()
        try:
            same = digest_cached(stored) == digest
        except OSError:
            return False
        if same:
            self._seen.add(stored)
        return same


def seats_of(address: str, count: int) -> threading.Semaphore:
    """Return the semaphore that lets ``count`` compilers of the worker at an address run at once."""
    return _seats.setdefault(address, threading.Semaphore(count))


def compile_parcel(parcel: Parcel, *, address: str, seats: contextlib.AbstractContextManager[object]) -> Reply:
    """Compile a request; or reply which files are missing, or why this worker cannot compile for the run.

    Args:
        parcel: the compilation.
        address: address of this worker.
        seats: context that is held while a compiler runs, and bounds how many run at once.

    Raises:
        MlgokitError: an error of :meth:`~mlgokit.compiler.compile.ClangCompiler.compile`, with the worker's name.
    """
    files = open_shelf()
    compiler = _compiler_for(parcel.setup, files)
    if isinstance(compiler, str):
        return Reply(worker=address, refused=compiler)
    if missing := files.missing(parcel.files):
        return Reply(worker=address, missing=missing)
    limits = ModuleLimits(memory_bytes=parcel.setup.memory_bytes, file_bytes=parcel.setup.file_bytes)
    if parcel.costs is not None:
        limits.put(parcel.module.name, parcel.costs)
    compiler = dataclasses.replace(compiler, limits=limits, timeout_seconds=parcel.deadline)
    with tempfile.TemporaryDirectory(prefix="mlgokit-", ignore_cleanup_errors=True) as scratch:
        module, request = unpack(parcel, files.place, Path(scratch))
        try:
            with seats:
                done = compiler.compile(module, request)
        except MlgokitError as error:
            raise type(error)(f"worker {address}: {error}") from error
        costs = limits.costs_of(module.name)
        kept = request.keep_object
        return Reply(
            worker=address,
            done=dataclasses.replace(done, reason=_restore_paths(done.reason, parcel, files)),
            costs=costs if costs != parcel.costs else None,
            object=kept.read_bytes() if kept is not None and kept.exists() else None,
            logs={problem: path.read_bytes() for problem, path in request.keep_logs.items() if path.exists()},
        )


def _restore_paths(sentence: str, parcel: Parcel, files: Shelf) -> str:
    """Put the client's paths into a compiler's message, in place of the worker's."""
    for path, digest in parcel.files.items():
        sentence = sentence.replace(str(files.place(digest, Path(path).name)), path)
    return sentence


def put_files(files: Mapping[str, tuple[tuple[str, ...], bytes]]) -> None:
    """Store files that a parcel needs on this worker: names and content of each, by digest."""
    shelf = open_shelf()
    for digest, (names, data) in files.items():
        shelf.put(digest, names, data)


def end_compilers() -> None:
    """End the resident compilers of this worker."""
    with _opening:
        opened = [compiler for compiler in _compilers.values() if not isinstance(compiler, str)]
        _compilers.clear()
    for compiler in opened:
        compiler.close()


@functools.cache
def open_shelf() -> Shelf:
    """Open the worker's folder of files below the user's cache, deleting those unused for a week."""
    shelf = Shelf(folder=platformdirs.user_cache_path("mlgokit") / "cluster")
    shelf.clear()
    return shelf


def _compiler_for(setup: Setup, shelf: Shelf) -> ClangCompiler | str:
    """Return the compiler of a setup, opened when it is first needed; or why there is none."""
    with _opening:
        if setup not in _compilers:
            _compilers[setup] = open_with_retries(lambda: _open_compiler(setup, shelf))
        return _compilers[setup]


def open_with_retries(make: Callable[[], ClangCompiler | str]) -> ClangCompiler | str:
    """Open a compiler, or return why there is none.

    The result is kept for the worker's lifetime, so a failure is retried first: the compiler may only have been killed.
    """
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(ToolError):
            return make()
    try:
        return make()
    except ToolError as error:
        return str(error)


def _open_compiler(setup: Setup, shelf: Shelf) -> ClangCompiler | str:
    """Open this worker's clang for a setup; or return why it does not meet the requirements."""
    mine = (package_version(), ".".join(platform.python_version_tuple()[:2]))
    if mine != (setup.mlgokit, setup.python):
        return (
            f"expected mlgokit {setup.mlgokit} on Python {setup.python}, as the client has, found mlgokit {mine[0]} on "
            f"Python {mine[1]}; install the same on this worker"
        )
    toolchain = find_toolchain(setup.major)
    compiler = ClangCompiler(
        toolchain=toolchain,
        residents=Residents() if setup.residents else None,
        known={} if setup.known_functions else None,
        decided=KnownDecisions() if setup.known_decisions else None,
        recheck=setup.recheck,
        sandbox=open_sandbox(toolchain, (shelf.folder,)) if setup.sandboxed else None,
        room=Room(folder=None),
        keep_hot=setup.keep_hot,
        memory=MemoryGate(bytes=_memory_of_worker(), host=HostMemory()),
    )
    programs = programs_of(compiler.loaded)
    if programs != setup.programs:
        others = sorted({name for name, _ in set(programs) ^ set(setup.programs)})
        return (
            f"expected the clang of the client ({setup.clang}), found {toolchain.version_text or toolchain.version} "
            f"with another {', '.join(others)}; install the same packages here, or name that clang's folder in "
            "MLGOKIT_LLVM where the worker starts"
        )
    return compiler


def _memory_of_worker() -> int:
    """Compute the bytes for all compilers of this worker: a share of its limit in Dask, or of the machine's memory."""
    try:
        from distributed import get_worker

        limit = get_worker().memory_manager.memory_limit
    except (ImportError, ValueError, AttributeError):
        limit = None
    return int(SHARE * (limit or MACHINE_BYTES))

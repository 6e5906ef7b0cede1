"""A sandbox (bubblewrap) for compilers of corpora that were made elsewhere.

Inside there are the system's programs and libraries, the compiler, the corpus and the plugin, all read-only, and one
folder to write to. There is no network, no home folder, no other process, and no variable of the user's environment
that a compiler does not need. The sandbox ends with this process.
"""

import contextlib
import dataclasses
import functools
import os
import re
import shutil
import signal
import tempfile
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.compiler import process
from mlgokit.compiler.limits import Limits
from mlgokit.errors import ToolError
from mlgokit.files import writing

if TYPE_CHECKING:
    from mlgokit.compiler.toolchain import Toolchain

BUBBLEWRAP = "bwrap"
TRIAL_SECONDS = 20.0
INSTALL = "install it (apt-get install bubblewrap), and allow user namespaces"
_APART = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL",
    "--die-with-parent", "--new-session", "--as-pid-1",
)  # fmt: skip
"""The compiler is process 1 of its own namespace, because a process between would keep what it took to itself."""
_SEALED = ("--remount-ro", "/dev", "--remount-ro", "/")
"""Mounted last, because folders of the run may be below ``/dev/shm``, which may be used for temporary files."""
_SOCKETS = ("/run", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  (hidden, not written to)
"""Folders where other processes have sockets, which work even in a read-only file system."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_KEPT_VARIABLE = re.compile(r"(MLGOKIT|LLVM|LC)_.*|LANG|TMPDIR|LD_LIBRARY_PATH|SOURCE_DATE_EPOCH|PATH")
"""The environment is cleared, because it may hold secrets and can be read in ``/proc/self/environ``."""
_TRIAL = """
test ! -e "$1" || { echo "it shows files outside" >&2; exit 1; }
if (echo > "$2") 2>/dev/null; then echo "it writes outside" >&2; exit 1; fi
if grep -v -e lo: -e "|" /proc/net/dev >&2; then echo "it has a network" >&2; exit 1; fi
echo > "$3" && exec "$4" --version
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Sandbox:
    """A sandbox for compilers; made by :func:`open_sandbox`.

    Attributes:
        program: path of bubblewrap.
        system: options of bubblewrap that show the system's files and the compiler.
        readable: further files and folders that all compilers of the run may read.
        scratch: a folder of this process, which contains the output folders of compilers.
    """

    program: Path
    system: tuple[str, ...]
    readable: tuple[Path, ...]
    scratch: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="mlgokit-sandbox-")))

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)

    def __call__(
        self,
        limits: Limits,
        *,
        program: str | os.PathLike[str],
        writable: Path,
        readable: Sequence[Path] = (),
        folder: Path | None = None,
    ) -> tuple[str, ...]:
        """Make the words to put before a command line to run it in the sandbox, limited from its first instruction on.

        Args:
            limits: limits of each process inside.
            program: first word of the command line.
            writable: the only folder that may be written to.
            readable: files and folders to read, beside those that all compilers of the run may read.
            folder: working directory; ``writable`` if not given.
        """
        places = [os.path.abspath(path) for path in (*self.readable, *readable)]  # noqa: PTH100  (links stay)
        shown = [word for path in dict.fromkeys(places) for word in ("--ro-bind", path, path)]
        target = str(writable.absolute())
        where = ("--bind", target, target, "--chdir", target if folder is None else str(folder.absolute()))
        inside = [*_APART, *self.system, *shown, *where, *_SEALED]
        return (*process.limit_words(limits, os.fspath(program)), str(self.program), *inside, "--")

    def settings(self, settings: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Copy policies to ``folder``, which the sandbox can read; return the plugin's settings with their paths."""
        from mlgokit.problems import PROBLEMS

        copied: dict[str, str] = {}
        for problem in PROBLEMS.values():
            name = problem.policy_variable
            policy = settings.get(name, ":")
            if not policy.startswith(":"):
                with writing(folder):
                    copied[name] = shutil.copyfile(policy, str(folder / name))
        return {**settings, **copied}


def inside_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Select the environment variables that a compiler in a sandbox may have.

    Example:
        >>> inside_environment({"LANG": "C", "GITHUB_TOKEN": "x", "MLGOKIT_SEED": "1"})
        {'LANG': 'C', 'MLGOKIT_SEED': '1'}
    """
    return {name: value for name, value in environment.items() if _KEPT_VARIABLE.fullmatch(name)}


@contextlib.contextmanager
def writable_folder(sandbox: Sandbox | None) -> Generator[Path]:
    """Make a folder for the time of the block, to which programs may write, also in the sandbox if there is one."""
    # Processes in a sandbox may end a moment after it was killed; what they leave is deleted with its own folder.
    with tempfile.TemporaryDirectory(
        prefix="mlgokit-", dir=None if sandbox is None else sandbox.scratch, ignore_cleanup_errors=sandbox is not None
    ) as folder:
        yield Path(folder)


def sandbox_command(
    sandbox: Sandbox | None,
    argv: Sequence[str | os.PathLike[str]],
    environment: Mapping[str, str],
    *,
    writable: Path,
    readable: Sequence[Path] = (),
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Make the environment of a program, and the words in front of it, so that it runs in the sandbox if there is one.

    Args:
        sandbox: the sandbox; ``None`` for none.
        argv: the command line.
        environment: variables of the program without a sandbox.
        writable: the only folder that it may write to.
        readable: files and folders to read, beside those that all compilers of the run may read.
    """
    if sandbox is None:
        return dict(environment), ()
    limits = process.choose_limits(argv, None)
    return inside_environment(environment), sandbox(limits, program=argv[0], writable=writable, readable=readable)


def open_front_end_sandbox(toolchain: "Toolchain") -> Sandbox:
    """Make a sandbox for front ends, which can read all files that the user can, as sources may include any.

    There is no network, no write access except for one folder, and no access to sockets of other processes: those are
    in :data:`_SOCKETS`, of which :func:`expose_to_front_end` shows only what belongs to the build.
    """
    hidden = [word for folder in _SOCKETS if Path(folder).is_dir() for word in ("--tmpfs", folder)]
    system = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *hidden)
    return dataclasses.replace(open_sandbox(toolchain), system=system)


def expose_to_front_end(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Find the parts of the folders with sockets that a front end may see, because one of ``paths`` is in them."""
    exposed: dict[Path, None] = {}
    for path in paths:
        for sockets in map(Path, _SOCKETS):
            if path.is_relative_to(sockets) and path != sockets:
                shown = sockets / path.relative_to(sockets).parts[0]
                if shown.exists():
                    exposed[shown] = None
    return tuple(exposed)


def open_sandbox(toolchain: "Toolchain", readable: Sequence[Path] = ()) -> Sandbox:
    """Make a sandbox for a compiler, after trying it.

    Args:
        toolchain: LLVM installation whose clang runs in it.
        readable: files and folders that its compilers may read: a corpus, a plugin.

    Raises:
        ToolError: bubblewrap is not on this machine, or does not isolate the compiler.
    """
    result = try_sandbox(toolchain)
    if isinstance(result, str):
        raise ToolError(f"sandbox: expected a working bubblewrap, found {result}; {INSTALL}, or give --sandbox off")
    program, system = result
    return Sandbox(program=program, system=system, readable=tuple(readable))


@functools.cache
def try_sandbox(toolchain: "Toolchain") -> tuple[Path, tuple[str, ...]] | str:
    """Try whether bubblewrap works for this compiler; return its path and options, or why it does not.

    It must start the compiler, hide a file outside, refuse to write outside the compiler's folder, and have no network.
    """
    program = shutil.which(BUBBLEWRAP)
    if program is None:
        return "no program of that name"
    if shutil.which("prlimit") is None:
        return "no prlimit (util-linux) to limit what runs in it"
    system = tuple(_system_words(toolchain))
    with tempfile.TemporaryDirectory(prefix="mlgokit-sandbox-") as scratch:
        secret, folder = Path(scratch) / "secret", Path(scratch) / "folder"
        secret.write_text("secret")
        folder.mkdir()
        box = Sandbox(program=Path(program), system=system, readable=(), scratch=folder)
        argv = ["/bin/sh", "-c", _TRIAL, "sh", secret, Path(scratch) / "beside", folder / "inside", toolchain.clang]
        try:
            inside = box(process.choose_limits(["", "-cc1"], None), program=toolchain.clang, writable=folder)
            done = process.run(argv, timeout_seconds=TRIAL_SECONDS, env=inside_environment(os.environ), inside=inside)
        except ToolError as error:
            return str(error)
        lines = done.stderr.strip().splitlines()
        if done.returncode != 0:
            return f"that it does not work here ({lines[-1] if lines else f'exit code {done.returncode}'})"
        if not (folder / "inside").exists() or b"clang version" not in done.stdout:
            return "that it starts another program"
    return Path(program), system


def end_abandoned_sandboxes(folder: Path) -> int:
    """Kill this user's sandboxes whose scratch folder is below ``folder``, the folder of a process that has ended.

    If bubblewrap is killed before it lets its child go, the child waits for ever.

    Returns:
        Number of sandboxes that were killed.
    """
    ended = 0
    below = f"{folder}{os.sep}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        # Most are gone, or somebody else's, by the time they are looked at.
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            is_ours = entry.stat().st_uid == os.getuid() and Path(os.fsdecode(words[0])).name == BUBBLEWRAP
            if is_ours and any(word.startswith(below) for word in words):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
    return ended


def _system_words(toolchain: "Toolchain") -> Iterator[str]:
    """Make the options of bubblewrap that mount the system and the compiler read-only."""
    shown: list[Path] = []
    for top in map(Path, _SYSTEM):
        if top.is_symlink():
            yield from ("--symlink", str(top.readlink()), str(top))
        elif top.is_dir():
            yield from ("--ro-bind", str(top), str(top))
            shown.append(top)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--proc", "/proc", "--dev", "/dev")
    clang = toolchain.clang.absolute()
    real = clang.resolve()
    libraries = toolchain.library_dir
    places = [clang.parent, real.parent, real.parent.parent / "lib", *([] if libraries is None else [libraries])]
    for path in dict.fromkeys(places):
        if path.is_dir() and not any(path.resolve().is_relative_to(top) for top in shown):
            yield from ("--ro-bind", str(path), str(path))

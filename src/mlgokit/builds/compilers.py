"""How compilers are opened: which clang, how many at once, in which limits and sandbox, here or on a cluster."""

import contextlib
import dataclasses
import itertools
import os
import re
import secrets
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from mlgokit.basic import Basic
from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.compiler import open_cluster
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.limits import GIB, PROCESSORS, ModuleLimits
from mlgokit.compiler.memory import HostMemory, MemoryGate
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.recheck import SHARE, Recheck
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.compiler.reuse.known_decisions import KnownDecisions
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.sandbox import Sandbox, open_front_end_sandbox, open_sandbox, try_sandbox
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, SUPPORTED_MAJORS, Toolchain, find_toolchain, find_toolchains
from mlgokit.corpus.importers.build_compiler import build_compiler, compiler_name, drop_launchers
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.origin import is_made_here
from mlgokit.disk import Room
from mlgokit.errors import ToolError, UsageError
from mlgokit.progress import Report, say_nothing

WORKERS = PROCESSORS
"""Compilers that run at once unless a command is told otherwise."""
_MOST_GIB = 1 << 20
_MOST_COUNTED = 1000
"""Commands of a database whose compilers are counted."""
_COMPILER_VARIABLE = re.compile(r"(?:CC|CXX|-DCMAKE_C(?:XX)?_COMPILER(?::\w+)?)=(.+)")

SandboxMode = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOptions:
    """The clang that compiles, how many of it run at once, and how long each may take."""

    llvm: Annotated[int | None, Basic.MACHINE] = None
    """LLVM major version to use. By default that of the build's own clang, where a build or its database is given;
    otherwise the newest supported one that is installed."""
    workers: Annotated[int, Basic.MACHINE] = WORKERS
    """Number of compilers that run at once."""
    timeout_seconds: float | None = None
    """Deadline of one compilation in seconds; by default 60 (120 for a front end alone), longer for bitcode of more
    than 0.5 MiB, and shorter once the module's plain compilation time is known."""
    memory_limit_gib: float | None = None
    """Memory limit of each compiler in GiB; by default 8 or the machine's memory, whichever is less, and lower once the
    module's plain compilation is known."""
    file_limit_gib: float | None = None
    """Size limit of each file that a compiler writes, in GiB; by default 0.5, and lower once the size of the module's
    plain object is known."""
    check_share: float = SHARE
    """Share of cached results that are compiled again to check them, from 0 to 1; a difference is an error."""
    check_seed: int | None = None
    """Random seed for choosing the results to check; different in each run by default."""

    sandbox: SandboxMode = "auto"
    """Run compilers in a sandbox (bubblewrap): no network, writes only to a scratch folder, and no home folder for
    compilers of bitcode. auto sandboxes front ends, and compilers of corpora that were not made here, if bubblewrap
    works."""

    disk_reserve_gib: float | None = None
    """Free space in GiB to keep on the run's disk and on the disk of temporary files; the run stops before using it. By
    default 1, or 2 % of a smaller disk."""
    disk_limit_gib: float | None = None
    """Maximum size of the run's folder in GiB; the run stops there, keeps finished work, and can be resumed."""

    def deadline(self, default: float = 60.0) -> float:
        """The seconds that one compilation may take."""
        return default if self.timeout_seconds is None else self.timeout_seconds

    def limits(self) -> ModuleLimits:
        """The resource limits of compilations.

        Raises:
            UsageError: a limit is no positive number.
        """
        return ModuleLimits(
            memory_bytes=_bytes("--memory-limit-gib", self.memory_limit_gib),
            file_bytes=_bytes("--file-limit-gib", self.file_limit_gib),
            seconds=self.timeout_seconds is None,
        )

    def recheck(self) -> Recheck:
        """The draw of the cached results that are compiled again.

        Raises:
            UsageError: the share is outside 0 to 1.
        """
        if not 0 <= self.check_share <= 1:
            raise UsageError(f"--check-share: expected a number from 0 to 1, found {self.check_share:g}; correct it")
        return Recheck(
            share=self.check_share, seed=secrets.randbits(32) if self.check_seed is None else self.check_seed
        )

    def room(self, folder: Path | None) -> Room:
        """The disk space that a run may take that writes into ``folder``; ``None`` if it has temporary files only.

        Raises:
            UsageError: a bound is no positive number.
        """
        return room_of(folder, reserve_gib=self.disk_reserve_gib, limit_gib=self.disk_limit_gib)


def room_of(folder: Path | None, *, reserve_gib: float | None, limit_gib: float | None) -> Room:
    """The disk space that a run may take that writes into ``folder``.

    Raises:
        UsageError: a bound is no positive number.
    """
    return Room(
        folder=folder,
        reserve_bytes=_bytes("--disk-reserve-gib", reserve_gib),
        most_bytes=_bytes("--disk-limit-gib", limit_gib),
    )


def _bytes(option: str, gib: float | None) -> int | None:
    if gib is None:
        return None
    if not 0 < gib < _MOST_GIB:
        raise UsageError(f"{option}: expected a positive number of GiB, below {_MOST_GIB}, found {gib:g}; correct it")
    return int(gib * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseOptions:
    """Reuse of work between compilations of a module; it does not change results."""

    residents: Literal["on", "off"] = "on"
    """Keep compiler processes that have read a module and wait at the inliner, and fork them for each compilation: on
    or off."""
    known_functions: Literal["on", "off"] = "on"
    """Skip code generation of functions whose final IR was compiled before: on or off."""
    known_decisions: Literal["on", "off"] = "off"
    """Stop a compilation after the inliner if an earlier one made the same decisions: on or off."""

    def new_residents(self) -> Residents | None:
        """Make a pool of resident compilers; ``None`` if they are off."""
        return Residents() if self.residents == "on" else None

    def new_known(self) -> dict[str, KnownFunctions] | None:
        """Make the caches of functions by module; ``None`` if functions are not skipped."""
        return {} if self.known_functions == "on" else None

    def apply_to(self, clang: ClangCompiler, *, recheck: Recheck) -> ClangCompiler:
        """Return a copy of a compiler that reuses work as chosen here, and recompiles a sample without reuse."""
        return dataclasses.replace(
            clang,
            residents=self.new_residents(),
            known=self.new_known(),
            decided=KnownDecisions() if self.known_decisions == "on" else None,
            recheck=recheck,
        )


def open_tools(options: CompilerOptions) -> tuple[Toolchain, Path]:
    """Find the clang that is asked for, and build our plugin for it.

    Raises:
        ToolError: there is no such clang, or it has neither headers nor a prebuilt plugin.
    """
    toolchain = find_toolchain(options.llvm, need_plugin=True)
    return toolchain, build_plugin(toolchain)


def toolchain_of_build(
    options: CompilerOptions, *, database: Path | None, commands: Sequence[str], need_plugin: bool = True
) -> Toolchain:
    """Find the clang of the requested major, else the build's own or one of its major, else the newest installed one.

    The major of most of a database's first thousand commands counts. Without a database the commands of the build name
    compilers by ``CC``, ``CXX`` and CMake's variables, as the environment does.

    Raises:
        ToolError: no installed clang fits.
    """
    if options.llvm is None and not os.environ.get(LOCATION_VARIABLE):
        # A database is data, and none of its programs is started; a build's commands will be.
        for clang in _named_clangs(commands) if database is None else ():
            with contextlib.suppress(ToolError):
                return find_toolchain(clang=clang, need_plugin=need_plugin)
        for major in majors_of_build(database=database, commands=commands):
            if major in SUPPORTED_MAJORS or not need_plugin:
                with contextlib.suppress(ToolError):
                    return find_toolchain(major, need_plugin=need_plugin)
    return find_toolchain(options.llvm, need_plugin=need_plugin)


def majors_of_build(*, database: Path | None, commands: Sequence[str]) -> list[int]:
    """The majors of the clangs that a build names, the most used first; see :func:`toolchain_of_build`."""
    calls = _database_calls(database) if database is not None else _named_compilers(commands)
    majors = Counter[int]()
    for call in calls:
        with contextlib.suppress(ValueError):
            majors[build_compiler(call).major or _installed_major(drop_launchers(call)[0])] += 1
    return [major for major, _ in majors.most_common() if major]


def _installed_major(word: str) -> int:
    """The major of the installed clang that a word names by a path without a number; 0 if it is none."""
    if not (word.startswith("/") and (name := compiler_name(word)) is not None and name.is_clang):
        return 0
    program = Path(word).resolve()
    found = (one.major for one in find_toolchains() if program in {one.clang.resolve(), one.clangxx.resolve()})
    return next(found, 0)


def _named_clangs(commands: Sequence[str]) -> Iterator[Path]:
    """The C compilers of the clangs that commands name by whole paths."""
    for call in _named_compilers(commands):
        with contextlib.suppress(ValueError):
            word = drop_launchers(call)[0]
            name = compiler_name(word)
            program = Path(word).with_name(Path(word).name.replace("clang++", "clang"))
            if name is not None and name.is_clang and program.is_absolute() and program.is_file():
                yield program


def _database_calls(database: Path) -> Iterator[Sequence[str]]:
    for command in itertools.islice(read_compile_commands(database), _MOST_COUNTED):
        if isinstance(command, CompileCommand):
            yield command.arguments


def _named_compilers(commands: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the words of the compilers that commands and the environment name; what is not understood names none."""
    words = itertools.chain.from_iterable(map(_split, commands))
    values = [found[1] for word in words if (found := _COMPILER_VARIABLE.fullmatch(word)) is not None]
    values += [os.environ.get(name, "") for name in ("CC", "CXX")]
    yield from filter(None, map(_split, values))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def check_sandbox(options: CompilerOptions, toolchain: Toolchain) -> None:
    """Check that a sandbox that the user asked for works, before anything is compiled.

    Raises:
        ToolError: the sandbox does not work.
    """
    if options.sandbox == "on":
        open_sandbox(toolchain)


def open_sandbox_for(
    options: CompilerOptions,
    toolchain: Toolchain,
    *,
    corpus: Path,
    files: Sequence[Path] = (),
    report: Report = say_nothing,
) -> Sandbox | None:
    """Open the sandbox for the compilers of a corpus; ``None`` if they run without one.

    Raises:
        ToolError: the user asked for a sandbox, and it does not work on this machine.
    """
    if options.sandbox == "off" or (options.sandbox == "auto" and is_made_here(corpus)):
        return None
    if options.sandbox == "auto" and isinstance(found := try_sandbox(toolchain), str):
        report(1, 1, f"no sandbox for a corpus from elsewhere ({found}): compilers run with your rights")
        return None
    return open_sandbox(toolchain, (corpus, *files))


def open_sandbox_of_front_ends(mode: SandboxMode, toolchain: Toolchain) -> Sandbox | None:
    """Open the sandbox for front ends that read a build's sources; ``None`` if it is off, or does not work here.

    Raises:
        ToolError: the user asked for a sandbox, and it does not work on this machine.
    """
    if mode == "off" or (mode == "auto" and isinstance(try_sandbox(toolchain), str)):
        return None
    return open_front_end_sandbox(toolchain)


def clang_for(
    options: CompilerOptions,
    toolchain: Toolchain,
    plugin: Path | None = None,
    *,
    corpus: Path | None,
    folder: Path | None = None,
    files: Sequence[Path] = (),
    report: Report = say_nothing,
) -> ClangCompiler:
    """Open the clang of a toolchain for the modules of a corpus, or for a link.

    Args:
        options: options for compilers, from the command line.
        toolchain: LLVM installation, as of :func:`open_tools`.
        plugin: our plugin for it, if requests need one.
        corpus: folder of the corpus with the modules; ``None`` for a link, which reads the whole build, so that it runs
            in no sandbox.
        folder: folder that the run writes to; ``None`` if it has temporary files only.
        files: files that the user's own compiler options name, which a sandbox must show.
        report: called if there should be a sandbox, but it does not work.

    Raises:
        ToolError: the user asked for a sandbox, and it does not work.
    """
    return ClangCompiler(
        toolchain=toolchain,
        plugin=plugin,
        workers=options.workers,
        timeout_seconds=options.deadline(),
        limits=options.limits(),
        sandbox=None
        if corpus is None
        else open_sandbox_for(options, toolchain, corpus=corpus, files=files, report=report),
        room=options.room(folder),
        memory=MemoryGate(host=HostMemory()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """The cluster that compiles in place of this machine, if one is to."""

    scheduler: str | None = None
    """Dask scheduler whose workers compile instead of this machine: tls://host:port, tcp://host:port or the scheduler's
    file; or local:N for N compilers on this machine."""
    insecure: bool = False
    """Allow a scheduler without TLS. Everybody who can reach it can run programs as you, on 127.0.0.1 every user of the
    machine."""
    tls_authority: Path | None = None
    """With tls://: certificate file of the authority that signed the certificates."""
    tls_certificate: Path | None = None
    """With tls://, file with the certificate and key of this machine."""
    scheduler_patience_seconds: float = 600.0
    """Seconds to wait for an unreachable scheduler, or for a first worker."""


def spread(cluster: ClusterChoice, clang: ClangCompiler, *, report: Report = say_nothing) -> Compiler:
    """Let a cluster compile in place of ``clang`` if one was asked for; return the compiler to use.

    Raises:
        UsageError: the scheduler's address is malformed, or the connection would not be safe.
    """
    if cluster.scheduler is None:
        return clang
    options = ClusterOptions(
        scheduler=cluster.scheduler,
        insecure=cluster.insecure,
        certificate_authority=cluster.tls_authority,
        certificate=cluster.tls_certificate,
        patience_seconds=cluster.scheduler_patience_seconds,
    )
    return open_cluster(clang, options, report=report)

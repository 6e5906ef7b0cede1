"""Runs a user's build with its compilers replaced by wrappers, which add options and write down every call.

The wrappers are found through ``PATH``, ``CC`` and ``CXX``; whatever compiler a build asks for by one of the usual
names, the toolchain's clang runs.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compile import first_error
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.regalloc_cost import record_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError
from mlgokit.files import atomic_write, writing

_C = ("cc", "gcc", "clang", "c99", "c89")
_CXX = ("c++", "g++", "clang++")
_TOOLS = ("ld.lld", "llvm-ar", "llvm-ranlib", "llvm-nm", "llvm-strip", "llvm-objcopy")
_SETTINGS, _LOG = "settings.json", "log"

_RECORD = [word for option in record_options(Path("{record}")) for word in ("-Xclang", option)]
"""Past the driver, whose own option for this gives other objects, with lines of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedCall:
    """A compilation or a link of a build.

    Attributes:
        kind: ``compile``, ``link``, or ``both`` in one call.
        folder: where it ran.
        words: its words, those of response files in their place; without what was added.
        inputs: absolute paths.
        outputs: absolute paths.
        code: exit code; negative for a signal.
        errors: the end of standard error, if it failed.
        user_seconds: processor time.
        wall_seconds: elapsed time.
        record: the record of register allocation, if one was asked for.
    """

    kind: str
    folder: Path
    words: tuple[str, ...]
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    code: int
    errors: str
    user_seconds: float
    wall_seconds: float
    record: Path | None

    @property
    def reason(self) -> str:
        """The first error, if it failed."""
        return first_error(self.errors) if self.code else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedBuild:
    """How a build ended.

    Attributes:
        reason: why it failed, else empty.
        calls: compilations and links, in the order in which they ended.
        wall_seconds: elapsed time.
    """

    reason: str
    calls: tuple[WrappedCall, ...]
    wall_seconds: float


def wrapped_names(toolchain: Toolchain) -> dict[str, Path]:
    """The names of compilers that are replaced, and what runs in their place.

    Example:
        >>> clang = Toolchain(major=22, version="22.1", clang=Path("/l/clang"), clangxx=Path("/l/clang++"))
        >>> sorted(wrapped_names(clang))[:5]
        ['c++', 'c89', 'c99', 'cc', 'clang']
        >>> wrapped_names(clang)["clang++-22"]
        PosixPath('/l/clang++')
    """
    plain = dict.fromkeys(_C, toolchain.clang) | dict.fromkeys(_CXX, toolchain.clangxx)
    return plain | {f"{name}-{toolchain.major}": plain[name] for name in ("clang", "clang++")}


def run_wrapped(
    commands: Sequence[Sequence[str]],
    *,
    tree: Path,
    folder: Path,
    toolchain: Toolchain,
    compile_options: Sequence[str] = (),
    link_options: Sequence[str] = (),
    record: bool = False,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float,
) -> WrappedBuild:
    """Run the commands of a build one after the other, until one fails.

    Args:
        commands: words of each; no shell.
        tree: where they run.
        folder: an empty one for wrappers and what they write.
        toolchain: whose clang compiles.
        compile_options: put behind each compilation of C or C++.
        link_options: put behind each link.
        record: whether compilations write records of register allocation.
        environment: variables that are set beside those of this process.
        timeout_seconds: deadline of all commands together.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
    """
    variables = _make_wrappers(folder, toolchain, compile_options, link_options, record=record)
    variables |= dict(environment or {})
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
    reason, spent = "", 0.0
    for words in commands:
        done = process.run(
            words,
            timeout_seconds=max(1.0, timeout_seconds - spent),
            cwd=tree,
            env=kept | variables,
            limits=USERS_LIMITS,
        )
        spent += done.wall_seconds
        if done.timed_out:
            reason = f"{shlex.join(words)} did not end within {timeout_seconds:.0f} s"
        elif done.returncode != 0:
            reason = f"{shlex.join(words)} ended with {done.returncode}: {first_error(done.stderr)}"
        if reason:
            break
    return WrappedBuild(reason=reason, calls=_calls(folder / _LOG), wall_seconds=spent)


def _make_wrappers(
    folder: Path, toolchain: Toolchain, compile_options: Sequence[str], link_options: Sequence[str], *, record: bool
) -> dict[str, str]:
    """Put the wrappers into a folder; gives the variables that lead a build to them."""
    names = wrapped_names(toolchain)
    settings = {
        "programs": {name: str(path) for name, path in names.items()},
        "log": str(folder / _LOG),
        "compile": list(compile_options),
        "link": list(link_options),
        # The driver's own option for this gives objects with lines of the source.
        "record": [word for option in record_options(Path("{record}")) for word in ("-Xclang", option)]
        if record
        else [],
    }
    programs = folder / "bin"
    with writing(folder):
        programs.mkdir(parents=True)
        (folder / _LOG).mkdir()
    atomic_write(folder / _SETTINGS, json.dumps(settings))
    source = resources.files("mlgokit.compiler") / "wrapper.py"
    atomic_write(folder / "wrapper.py", source.read_bytes())
    start = [sys.executable, "-I", "-S", str(folder / "wrapper.py"), str(folder / _SETTINGS)]
    for name in names:
        atomic_write(programs / name, f'#!/bin/sh\nexec {shlex.join([*start, name])} "$@"\n')
        (programs / name).chmod(0o755)
    # A build that looks for them beside its compiler shall find those of the same LLVM.
    for name in _TOOLS:
        tool = toolchain.clang.resolve().parent / name
        if tool.exists():
            (programs / name).symlink_to(tool)
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    # __DATE__ must not make two builds differ, nor an object in a cache that was made with other options.
    return {
        "PATH": path,
        "CC": str(programs / "clang"),
        "CXX": str(programs / "clang++"),
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "0"),
        "CCACHE_DISABLE": "1",
    }


def _calls(log: Path) -> tuple[WrappedCall, ...]:
    """What the wrappers wrote."""
    found: list[tuple[str, WrappedCall]] = []
    for path in log.glob("*.json"):
        try:
            facts = json.loads(path.read_bytes())
            folder = Path(facts["folder"])
            call = WrappedCall(
                kind=facts["kind"],
                folder=folder,
                words=tuple(facts["words"]),
                inputs=tuple(_absolute(folder, name) for name in facts["inputs"]),
                outputs=tuple(_absolute(folder, name) for name in facts["outputs"]),
                code=facts["code"],
                errors=facts["errors"],
                user_seconds=facts["user_seconds"],
                wall_seconds=facts["wall_seconds"],
                record=Path(facts["record"]) if facts["record"] else None,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}: expected what a wrapped compiler wrote, found: {error!r}; build again, and let nothing else "
                "write there"
            ) from error
        found.append((path.name, call))
    return tuple(call for _, call in sorted(found, key=lambda pair: pair[0]))


def _absolute(folder: Path, name: str) -> Path:
    return Path(os.path.normpath(folder / name))

"""What works on this machine: every answer comes from running the tool on a small input, none from its version."""

import contextlib
import functools
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from mlgokit.commands.doctor_plugin import list_prebuilt, obtain_plugin
from mlgokit.commands.doctor_rust import rust_trials
from mlgokit.compiler import process
from mlgokit.compiler.prebuilt import find_prebuilt
from mlgokit.compiler.sandbox import open_sandbox
from mlgokit.compiler.toolchain import (
    SUPPORTED_MAJORS,
    Toolchain,
    UnusableProgram,
    apt_command,
    apt_packages,
    survey,
)
from mlgokit.errors import MlgokitError, ToolError
from mlgokit.problems import PROBLEMS, Problem
from mlgokit.progress import Report, say_nothing

TRIAL_SECONDS = 30.0
NEEDED_DISK_BYTES = 2 * 2**30
NEEDED_MEMORY_BYTES = 2 * 2**30
EXIT_UNUSABLE = 3
_FRAMEWORK = "learning framework"

_IR = """
define internal i32 @callee(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}
define i32 @caller(i32 %x) {
  %y = call i32 @callee(i32 %x)
  ret i32 %y
}
"""

_PROGRAM = (
    "#include <vector>\nint main(int count, char **) { return static_cast<int>(std::vector<int>(count).size()) - 1; }\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Find every clang, try what works with it, and say what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question that was put to the machine.

    Attributes:
        name: what was tried.
        works: the answer.
        detail: what was found, or why it does not work.
        needed: whether the plugin and tuning need it.
    """

    name: str
    works: bool
    detail: str
    needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainDiagnosis:
    """What one compiler can do."""

    toolchain: Toolchain
    checks: tuple[Check, ...]

    @property
    def usable(self) -> bool:
        """Whether it can be tuned with, and loads the plugin."""
        return all(check.works for check in self.checks if check.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What this machine can do.

    Attributes:
        toolchains: the best first.
        unusable: programs named like clang that do not work.
        system: checks that do not depend on a compiler.
        advice: lines to run, or sentences on what to change.
    """

    toolchains: tuple[ToolchainDiagnosis, ...]
    unusable: tuple[UnusableProgram, ...]
    system: tuple[Check, ...]
    advice: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether at least one compiler does everything that tuning needs, and so does the machine."""
        machine = all(check.works for check in self.system if check.needed)
        return machine and any(toolchain.usable for toolchain in self.toolchains)

    @property
    def exit_code(self) -> int:
        """What ``mlgokit doctor`` exits with."""
        return 0 if self.usable else EXIT_UNUSABLE

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        toolchains = [
            {
                **{
                    name: str(value) if isinstance(value, Path) else value
                    for name, value in asdict(entry.toolchain).items()
                },
                "usable": entry.usable,
                "checks": [asdict(check) for check in entry.checks],
            }
            for entry in self.toolchains
        ]
        return {
            "usable": self.usable,
            "toolchains": toolchains,
            "unusable": [{"path": str(program.path), "reason": program.reason} for program in self.unusable],
            "system": [asdict(check) for check in self.system],
            "advice": list(self.advice),
        }


def run(config: Doctor, *, report: Report = say_nothing) -> Diagnosis:  # noqa: ARG001  (as of other commands)
    """Try everything."""
    return diagnose()


def exit_code(config: Doctor, diagnosis: Diagnosis) -> int:  # noqa: ARG001  (as of other commands)
    """3 if no compiler does everything."""
    return diagnosis.exit_code


def diagnose(search: tuple[Path, ...] | None = None, *, plugin: bool = True) -> Diagnosis:
    """Try everything.

    Args:
        search: look for compilers only in these folders.
        plugin: also build the plugin for each supported compiler (some ten seconds each, the first time).
    """
    found = survey(search)
    toolchains = tuple(diagnose_toolchain(toolchain, plugin=plugin) for toolchain in found.toolchains)
    trials = rust_trials(plugin=plugin) if search is None else ()
    rust = tuple(_check(name, attempt) for name, attempt in trials)
    system = (*_system_checks(), *rust)
    return Diagnosis(
        toolchains=toolchains,
        unusable=found.unusable,
        system=system,
        advice=_advice(toolchains, system),
    )


def diagnose_toolchain(toolchain: Toolchain, *, plugin: bool = True) -> ToolchainDiagnosis:
    """Try everything that depends on one compiler."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-doctor-") as name:
        folder = Path(name)
        (folder / "tiny.ll").write_text(_IR)
        channels = (("interactive", _open_channel), ("training log", _write_log), ("embedded", _use_embedded))
        checks = [
            _check("compile", lambda: _compile(toolchain, folder), needed=True),
            _check("link C++ with lld", lambda: _link(toolchain, folder), needed=True),
            _check("sandbox", lambda: _enter_sandbox(toolchain)),
            *(
                _check(f"{name} {problem.name}", functools.partial(attempt, toolchain, problem, folder))
                for name, attempt in channels
                for problem in PROBLEMS.values()
                if problem.is_llvms
            ),
        ]
        if plugin:
            checks.append(_check("plugin", lambda: _load_plugin(toolchain, folder), needed=True))
    return ToolchainDiagnosis(toolchain=toolchain, checks=tuple(checks))


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Write a table per compiler, the machine, and what to do."""
    for entry in diagnosis.toolchains:
        title = (
            f"{entry.toolchain.version_text or entry.toolchain.version}: {'usable' if entry.usable else 'not usable'}"
        )
        table = _table(title)
        for tool, path in _tools(entry.toolchain):
            table.add_row(tool, _mark(works=path is not None, needed=False), str(path or "not found"))
        table.add_section()
        for check in entry.checks:
            table.add_row(check.name, _mark(works=check.works, needed=check.needed), escape(check.detail))
        console.print(table)
    table = _table("This machine")
    for check in diagnosis.system:
        table.add_row(check.name, _mark(works=check.works, needed=check.needed), escape(check.detail))
    for program in diagnosis.unusable:
        table.add_row(escape(str(program.path)), _mark(works=False, needed=False), escape(program.reason))
    console.print(table)
    for line in diagnosis.advice:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if diagnosis.usable and any(_is_framework(check) and not check.works for check in diagnosis.system):
        console.print("Tuning and the plugin work on this machine, training does not yet.")
    elif diagnosis.usable:
        console.print("Training and the plugin work on this machine.")
    else:
        console.print("Training and the plugin do not work on this machine yet.")


def _table(title: str) -> Table:
    return Table("", "", Column(overflow="fold"), title=title, title_justify="left", show_header=False)


def _mark(*, works: bool, needed: bool) -> str:
    if works:
        return "[green]yes[/green]"
    return "[red]no[/red]" if needed else "no"


def _tools(toolchain: Toolchain) -> Iterator[tuple[str, Path | None]]:
    yield "clang", toolchain.clang
    yield "clang++", toolchain.clangxx
    yield "opt", toolchain.opt
    yield "llc", toolchain.llc
    yield "ld.lld", toolchain.lld
    yield "llvm-config", toolchain.llvm_config
    yield "headers", toolchain.include_dir


def _check(name: str, attempt: Callable[[], str], *, needed: bool = False) -> Check:
    """Turn the sentence that a trial returns, or the error that it raises, into an answer."""
    try:
        return Check(name=name, works=True, detail=attempt(), needed=needed)
    except (MlgokitError, OSError) as error:
        return Check(name=name, works=False, detail=str(error), needed=needed)


def _run(toolchain: Toolchain, folder: Path, *llvm_options: str, plugin: Path | None = None) -> None:
    """Compile the tiny module.

    Raises:
        ToolError: with the first complaint of the compiler.
    """
    words = [word for option in llvm_options for word in ("-mllvm", option)]
    if plugin is not None:
        words.append(f"-fpass-plugin={plugin}")
    argv = [toolchain.clang, "-Oz", "-c", "tiny.ll", "-o", "tiny.o", "-Wno-override-module", *words]
    _expect_success(process.run(argv, timeout_seconds=TRIAL_SECONDS, cwd=folder))


def _expect_success(completed: process.Completed) -> None:
    if completed.timed_out:
        raise ToolError(f"no end after {TRIAL_SECONDS:g} s")
    if completed.returncode != 0:
        lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
        complaint = next((line for line in lines if "error" in line or "nknown" in line), lines[0] if lines else "")
        # "clang (LLVM option parsing): Unknown command line argument '-x'.  Try: ... --help"
        complaint = complaint.removeprefix("clang (LLVM option parsing): ").split("  Try: ")[0]
        raise ToolError(complaint or f"exit status {completed.returncode} and no message")


def _compile(toolchain: Toolchain, folder: Path) -> str:
    _run(toolchain, folder)
    return f"IR to object ({(folder / 'tiny.o').stat().st_size} bytes)"


def _link(toolchain: Toolchain, folder: Path) -> str:
    if toolchain.lld is None:
        raise ToolError(f"no ld.lld of major {toolchain.major} found")
    (folder / "main.cpp").write_text(_PROGRAM)
    argv = [toolchain.clangxx, "main.cpp", "-o", "main", f"--ld-path={toolchain.lld}", "-Wl,--gc-sections"]
    _expect_success(process.run(argv, timeout_seconds=TRIAL_SECONDS, cwd=folder))
    _expect_success(process.run([folder / "main"], timeout_seconds=TRIAL_SECONDS, cwd=folder))
    return "a program with the C++ standard library links and runs"


def _enter_sandbox(toolchain: Toolchain) -> str:
    sandbox = open_sandbox(toolchain)
    return f"bubblewrap ({sandbox.program}): no network, nothing written outside, for corpora not made here"


def _open_channel(toolchain: Toolchain, problem: Problem, folder: Path) -> str:
    base = folder / problem.name
    inbound, outbound = (base.with_name(f"{base.name}.{end}") for end in ("in", "out"))
    for path in (inbound, outbound):
        os.mkfifo(path)
    with contextlib.ExitStack() as stack:
        # Opened for both directions, which Linux allows, neither side waits for the other, so no thread is needed:
        # the answers lie ready before the first question, and what LLVM sends fits into the pipe.
        descriptors: list[int] = []
        for path in (inbound, outbound):
            descriptors.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            stack.callback(os.close, descriptors[-1])
        os.write(descriptors[0], bytes(4096))
        _run(toolchain, folder, *(option.format(base=base) for option in problem.channel_options))
        try:
            header = os.read(descriptors[1], 65536).split(b"\n", 1)[0]
        except BlockingIOError:
            raise ToolError("the option is accepted, but nothing was sent over the channel") from None
    try:
        return f"{len(json.loads(header)['features'])} features"
    except (ValueError, KeyError, TypeError):
        raise ToolError(f"expected a header with features over the channel, found {header[:40]!r}") from None


def _write_log(toolchain: Toolchain, problem: Problem, folder: Path) -> str:
    log = folder / f"{problem.name}.log"
    development = problem.channel_options[0].replace("=release", "=development")
    _run(toolchain, folder, development, f"{problem.log_option}={log.name}")
    if not log.exists() or not log.stat().st_size:
        raise ToolError("the option is accepted, but no log was written")
    return "the compiler writes training logs, and takes a TFLite model under training"


def _use_embedded(toolchain: Toolchain, problem: Problem, folder: Path) -> str:
    _run(toolchain, folder, problem.channel_options[0])
    return "the compiler accepts its release mode"


def _load_plugin(toolchain: Toolchain, folder: Path) -> str:
    plugin, whence = obtain_plugin(toolchain)
    _run(toolchain, folder, plugin=plugin)
    return f"{whence}, and the compiler loads it: {plugin}"


def _system_checks() -> tuple[Check, ...]:
    cache = platformdirs.user_cache_path("mlgokit")
    free = shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.exists())).free
    memory = _available_memory_bytes()
    framework = all(importlib.util.find_spec(name) is not None for name in ("jax", "optax", "cmaes"))
    return (
        Check(name="Python", works=sys.version_info >= (3, 11), detail=platform.python_version(), needed=True),
        Check(
            name=_FRAMEWORK,
            works=framework,
            detail="jax, optax and cmaes are installed"
            if framework
            else "jax, optax or cmaes is not installed: no training, and tuning fits no policy on the way",
        ),
        _check("prebuilt plugins", list_prebuilt),
        Check(name="cores", works=True, detail=str(len(os.sched_getaffinity(0)))),
        Check(
            name="memory",
            works=memory >= NEEDED_MEMORY_BYTES,
            detail=f"{memory / 2**30:.1f} GiB available, {NEEDED_MEMORY_BYTES / 2**30:.0f} GiB recommended",
        ),
        Check(
            name="disk",
            works=free >= NEEDED_DISK_BYTES,
            detail=f"{free / 2**30:.1f} GiB free for {cache}, {NEEDED_DISK_BYTES / 2**30:.0f} GiB recommended",
        ),
    )


def _available_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _advice(toolchains: tuple[ToolchainDiagnosis, ...], system: tuple[Check, ...]) -> tuple[str, ...]:
    """What to install for what is missing, most important first."""
    lines: list[str] = []
    supported = [entry for entry in toolchains if entry.toolchain.supported]
    if not supported:
        lines.append(apt_command(*apt_packages(SUPPORTED_MAJORS[0])))
    for entry in supported:
        major = entry.toolchain.major
        if entry.toolchain.include_dir is None and isinstance(
            find_prebuilt(entry.toolchain.version, entry.toolchain.target), str
        ):
            lines.append(apt_command(f"llvm-{major}-dev"))
        if entry.toolchain.lld is None:
            lines.append(apt_command(f"lld-{major}"))
        elif any(check.name.startswith("link") and not check.works for check in entry.checks):
            lines.append(apt_command("g++"))
        if entry.toolchain.opt is None or entry.toolchain.llc is None:
            lines.append(apt_command(f"llvm-{major}"))
    if any(_is_framework(check) and not check.works for check in system):
        lines.append("pip install 'mlgokit[train]'")
    return tuple(dict.fromkeys(lines))


def _is_framework(check: Check) -> bool:
    return check.name == _FRAMEWORK

"""What works on this machine: every answer comes from running the tool on a small input, none from its version."""

import importlib.util
import platform
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

from mlgokit.commands.doctor_trials import list_prebuilt, rust_trials, toolchain_trials
from mlgokit.compiler.limits import MACHINE_BYTES, PROCESSORS
from mlgokit.compiler.prebuilt import find_prebuilt
from mlgokit.compiler.toolchain import (
    SUPPORTED_MAJORS,
    Toolchain,
    UnusableProgram,
    apt_command,
    apt_packages,
    survey,
)
from mlgokit.disk import free_bytes
from mlgokit.errors import MlgokitError
from mlgokit.manifest import plain_json
from mlgokit.policy.pretrained import SHIPPED, policy_files
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import join_names
from mlgokit.progress import Report, say_nothing

NEEDED_DISK_BYTES = 2 * 2**30
NEEDED_MEMORY_BYTES = 2 * 2**30
EXIT_UNUSABLE = 3
_FRAMEWORK = "learning framework"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Find every clang, try what works with it, and say what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question that was put to the machine: whether it works, and what was found, or why it does not.

    It is ``needed`` if the plugin and tuning need it.
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
    """What this machine can do with its toolchains, the best first, and by checks that depend on no compiler.

    ``unusable`` are programs named like clang that do not work; the advice is lines to run, or sentences.
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

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        toolchains = [
            {**asdict(entry.toolchain), "usable": entry.usable, "checks": entry.checks} for entry in self.toolchains
        ]
        return plain_json({"usable": self.usable, **asdict(self), "toolchains": toolchains})


def run(config: Doctor, *, report: Report = say_nothing) -> Diagnosis:  # noqa: ARG001  (as of other commands)
    """Try everything."""
    return diagnose()


def exit_code(config: Doctor, diagnosis: Diagnosis) -> int:  # noqa: ARG001  (as of other commands)
    """3 if no compiler does everything."""
    return 0 if diagnosis.usable else EXIT_UNUSABLE


def diagnose(search: tuple[Path, ...] | None = None) -> Diagnosis:
    """Try everything, also building plugins; with ``search`` only of the compilers in these folders."""
    found = survey(search)
    toolchains = tuple(map(diagnose_toolchain, found.toolchains))
    rust = [_check(name, attempt) for name, attempt in (rust_trials() if search is None else ())]
    system = (*_system_checks(), *rust)
    return Diagnosis(toolchains=toolchains, unusable=found.unusable, system=system, advice=_advice(toolchains, system))


def diagnose_toolchain(toolchain: Toolchain, *, plugin: bool = True) -> ToolchainDiagnosis:
    """Try everything that depends on one compiler; to build the plugin takes some ten seconds, the first time."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-doctor-") as name:
        trials = toolchain_trials(toolchain, Path(name), plugin=plugin)
        checks = [_check(what, attempt, needed=needed) for what, attempt, needed in trials]
    return ToolchainDiagnosis(toolchain=toolchain, checks=tuple(checks))


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Write a table per compiler, the machine, and what to do."""
    for entry in diagnosis.toolchains:
        version = entry.toolchain.version_text or entry.toolchain.version
        title = f"{version}, built with {entry.toolchain.cxx_library}: {'usable' if entry.usable else 'not usable'}"
        table = _table(title)
        for tool, path in _tools(entry.toolchain):
            table.add_row(tool, _mark(works=path is not None, needed=False), str(path or "not found: optional"))
        table.add_section()
        _add_checks(table, entry.checks)
        console.print(table)
    table = _table("This machine")
    _add_checks(table, diagnosis.system)
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
    return "[red]no[/red]" if needed else "[dim]-[/dim]"


def _tools(toolchain: Toolchain) -> Iterator[tuple[str, Path | None]]:
    yield "clang", toolchain.clang
    yield "clang++", toolchain.clangxx
    yield "opt", toolchain.opt
    yield "llc", toolchain.llc
    yield "ld.lld", toolchain.lld
    yield "llvm-config", toolchain.llvm_config
    yield "headers", toolchain.include_dir


def _add_checks(table: Table, checks: tuple[Check, ...]) -> None:
    for check in checks:
        # Nothing is wrong where what is not needed is not there.
        detail = check.detail if check.works or check.needed else f"optional, not here: {check.detail}"
        table.add_row(check.name, _mark(works=check.works, needed=check.needed), escape(detail))


def _check(name: str, attempt: Callable[[], str], *, needed: bool = False) -> Check:
    """Turn the sentence that a trial returns, or the error that it raises, into an answer."""
    try:
        return Check(name=name, works=True, detail=attempt(), needed=needed)
    except (MlgokitError, OSError) as error:
        return Check(name=name, works=False, detail=str(error), needed=needed)


def _system_checks() -> tuple[Check, ...]:
    cache = platformdirs.user_cache_path("mlgokit")
    free = free_bytes(cache)
    memory = _available_memory_bytes()
    framework = all(importlib.util.find_spec(name) is not None for name in ("jax", "optax", "cmaes"))
    return (
        Check(name="Python", works=sys.version_info >= (3, 11), detail=platform.python_version(), needed=True),
        Check(
            name=_FRAMEWORK,
            works=framework,
            detail="jax, optax and cmaes are installed"
            if framework
            else "jax, optax or cmaes is not installed: training is not possible, and tuning fits no policy during the "
            "search",
        ),
        _check("prebuilt plugins", list_prebuilt),
        _check(SHIPPED, _shipped_targets),
        Check(name="cores", works=True, detail=str(PROCESSORS)),
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


def _shipped_targets() -> str:
    """For which processors each of the policies that come with mlgokit decides."""
    targets: dict[tuple[str, ...], list[str]] = {}
    for path in policy_files([SHIPPED]):
        policy = load_policy(path)
        targets.setdefault(policy.all_targets, []).append(policy.problem)
    known = "; ".join(f"{join_names(names)} for {join_names(each)}" for each, names in targets.items())
    return f"{known}; all else, such as wasm32, is left to LLVM, and can be tuned"


def _available_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min(int(line.split()[1]) * 1024, MACHINE_BYTES)
    return MACHINE_BYTES


def _advice(toolchains: tuple[ToolchainDiagnosis, ...], system: tuple[Check, ...]) -> tuple[str, ...]:
    """What to install for what is missing, most important first."""
    lines: list[str] = []
    supported = [entry for entry in toolchains if entry.toolchain.supported]
    if not supported:
        lines.append(apt_command(*apt_packages(SUPPORTED_MAJORS[0])))
    for entry in supported:
        major = entry.toolchain.major
        if entry.toolchain.include_dir is None and isinstance(
            find_prebuilt(entry.toolchain.version, entry.toolchain.target, entry.toolchain.cxx_library), str
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

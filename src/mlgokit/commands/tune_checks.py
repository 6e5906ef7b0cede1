"""What a call of `mlgokit tune` may not say, and what it means."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from mlgokit.builds.link import OUTPUT, link_words, plan_link
from mlgokit.builds.measurement import Measure, measuring_words
from mlgokit.commands.chosen import ModuleSelection
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.database import module_outputs
from mlgokit.corpus.profiles import profiles_in
from mlgokit.errors import ReuseError, UsageError
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.tables.decisions import DecisionTable, read_table
from mlgokit.tables.overrides import ALLOCATIONS, OverrideTable, read_overrides

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
STARTS_FROM = "builtin:size"
"""The policy that inlining starts from."""
NO_POLICY = "none"
_MOST_KEPT = 99.9999
"""Percent; LLVM's summary of a profile goes no further."""
_SUMMARY = b"ProfileFormat"
"""A name in the summary of a profile, as bitcode has it."""


def seconds_of(budget: str) -> float:
    """The seconds that a user means.

    Raises:
        UsageError: it is no time.

    Example:
        >>> seconds_of("1.5h")
        5400.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if found is None:
        raise UsageError(f"budget: expected a number with s, m or h, such as 30m, found {budget!r}")
    return float(found[1]) * _UNITS[found[2]]


def check_objective(config: Tune) -> None:
    """Refuse commands that the objective has no use for, and an objective without its commands.

    Raises:
        UsageError: such a call.
    """
    if config.problem != "both" and config.objective != "spill-cost":
        raise UsageError(
            f"--problem {config.problem}: expected --objective spill-cost with it, found {config.objective}; "
            "add or leave out"
        )
    if config.command is not None and config.objective != "command":
        raise UsageError(f"--command: expected --objective command with it, found {config.objective}; add or leave out")
    if config.link_command is not None and config.objective not in {"linked", "command"}:
        raise UsageError(
            f"--link-command: expected --objective linked or command with it, found {config.objective}; change one"
        )
    is_recorded = bool(config.built.build)
    if config.link_command is None and config.objective == "linked" and not is_recorded:
        raise UsageError(
            "--objective linked: expected --link-command with the link of the build, found none; "
            "add the last line of `ninja -t commands PROGRAM`, or what link.txt says, or give --build"
        )
    if config.link_command is not None:
        link_words(config.link_command)
    if config.objective == "command":
        if config.command is None:
            raise UsageError(
                "--objective command: expected --command with what prints a number, found none; add it, "
                'as in --command "./measure.sh {output}"'
            )
        if (
            any(OUTPUT in word for word in measuring_words(config.command))
            and config.link_command is None
            and not is_recorded
        ):
            raise UsageError(
                f"--command: expected --link-command to make {OUTPUT}, found none; add it, or measure {{objects}}"
            )


def check_shares(config: Tune) -> None:
    """Refuse shares of the budget, and a bound, that cannot be.

    Raises:
        UsageError: such a call.
    """
    for name, share in (("allocation", config.allocation_share), ("pass", config.pass_share)):
        if not 0 <= share <= 1:
            raise UsageError(f"--{name}-share: expected a part from 0 to 1, found {share:g}; correct it")
    if not config.slowdown >= 0:
        raise UsageError(
            f"--slowdown: expected a part of at least 0, such as 0.01, found {config.slowdown:g}; correct it"
        )


def check_keep_hot(config: Tune) -> None:
    """Refuse a share of hot functions that is none, or a policy that would decide in them later.

    Raises:
        UsageError: such a call.
    """
    if not 0 <= config.keep_hot <= _MOST_KEPT:
        raise UsageError(
            f"--keep-hot: expected a percentage from 0 to {_MOST_KEPT:g}, found {config.keep_hot:g}; correct it"
        )
    if config.keep_hot and config.fallback == "policy":
        raise UsageError(
            "--keep-hot: expected --fallback heuristic with it, found policy, which would decide in hot functions; "
            "leave one out"
        )


def with_hot_functions(config: Tune, chosen: ModuleSelection) -> ModuleSelection:
    """The same modules, with what is said of functions that are kept.

    Raises:
        UsageError: no module is compiled with a profile that could say which functions are hot.
    """
    if not config.keep_hot:
        return chosen
    profiled = sum(map(_has_profile, chosen.modules))
    if not profiled:
        raise UsageError(
            f"--keep-hot {config.keep_hot:g}: expected a build with a profile, such as -fprofile-use=a.profdata, found "
            f"none in {len(chosen.modules)} modules; build with one, or leave it out"
        )
    note = (
        f"functions in the most executed {config.keep_hot:g} % of the profile stay as LLVM has them, in {profiled} of "
        f"{len(chosen.modules)} modules"
    )
    return dataclasses.replace(chosen, notes=(*chosen.notes, note))


def _has_profile(module: Module) -> bool:
    """Whether a module is compiled with a profile; what a linker compiles has that of its compile steps inside."""
    if module.link_folder is None:
        return bool(profiles_in(module.command_line))
    return _SUMMARY in module.bitcode.read_bytes()


def policy_to_start_from(config: Tune) -> Path | None:
    """The policy file that is named, else that of the package where inlining is searched.

    Raises:
        UsageError: no such policy comes with the package.
    """
    if config.policy is not None:
        return None if str(config.policy) == NO_POLICY else policy_file(config.policy)
    inlines = config.objective != "spill-cost" and config.cargo is None
    return policy_file(STARTS_FROM) if inlines else None


def policies_of(config: Tune) -> dict[str, Path]:
    """The policy to start from, by its problem.

    Raises:
        UsageError: it decides something else than what is searched, or is missing where it is to decide the rest.
    """
    if config.objective != "spill-cost":
        if config.policy is not None:
            load_policy(config.policy, problem=INLINE_SIZE.name)
        return {} if config.policy is None else {INLINE_SIZE.name: config.policy}
    if config.policy is None:
        if config.fallback == "policy":
            raise UsageError(
                "--fallback policy: expected --policy with --objective spill-cost, as this search makes none; add it"
            )
        return {}
    problem = load_policy(config.policy).problem
    if problem not in (REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name):
        raise UsageError(
            f"--policy {config.policy}: expected one for {REGALLOC_EVICTION.name} or {REGALLOC_PRIORITY.name} with "
            f"--objective spill-cost, found one for {problem}; name another"
        )
    return {problem: config.policy}


def earlier_table(config: Tune, toolchain: Toolchain) -> DecisionTable | OverrideTable | None:
    """The table of an earlier plugin.

    Raises:
        UsageError: it was tuned with another LLVM.
    """
    if config.start is None:
        return None
    costs = config.objective == "spill-cost"
    earlier = read_overrides(ALLOCATIONS, config.start) if costs else read_table(config.start)
    if earlier.summary is not None and earlier.summary.llvm != toolchain.major:
        raise UsageError(
            f"{config.start}: expected a plugin tuned with LLVM {toolchain.major}, found one for "
            f"{earlier.summary.llvm}, whose keys are others; give --llvm {earlier.summary.llvm}, or no --start"
        )
    return earlier


def measure_of(config: Tune, modules: Sequence[Module], toolchain: Toolchain) -> Measure | None:
    """What judges, if the objective is more than the account."""
    if config.objective not in {"linked", "command"}:
        return None
    plan, database = None, config.compile_commands
    if config.link_command is not None:
        folder = config.link_folder or (Path() if database is None else database.resolve().parent)
        plan = plan_link(
            link_words(config.link_command),
            folder=folder.resolve(),
            outputs={}
            if database is None
            else module_outputs(database, project=config.build_project, level=config.level),
            modules=[module.name for module in modules],
            toolchain=toolchain,
        )
    return Measure(
        plan=plan,
        command=() if config.command is None else measuring_words(config.command),
        modules=tuple(module.name for module in modules) if plan is None else plan.modules,
        timeout_seconds=config.judge.timeout_seconds,
        error=config.judge.error,
    )


def check_claim(config: Tune, place: Path, inputs: dict[str, str], versions: dict[str, str]) -> Callable[[], None]:
    """What signs the folder; refuses one with another search, and one that a search began in unless it is to go on."""
    commands = {"link_command": config.link_command, "command": config.command}
    settings = {"objective": config.objective, "project": config.project}
    settings |= {} if config.cargo is None else {"cargo": config.cargo}
    settings |= {"problem": config.problem} if config.objective == "spill-cost" else {}
    settings |= {"keep_hot": str(config.keep_hot)} if config.keep_hot else {}
    settings |= {name: value for name, value in commands.items() if value is not None}
    began = check_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=inputs)
    if began and not config.go_on:
        raise ReuseError(
            f"{place}: expected a new folder, found a search of the same project; "
            "add --continue to go on with it, or name another --folder"
        )

    def claim() -> None:
        if not began:
            write_manifest(place, kind="tuning", config=settings, toolchain=versions, inputs=inputs)

    return claim

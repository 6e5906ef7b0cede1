"""What a call of `mlgokit tune` may not say, and what it means."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.database import module_outputs
from mlgokit.errors import ReuseError, UsageError
from mlgokit.evaluation.linked import OUTPUT, link_words, plan_link
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.tables.decisions import DecisionTable, read_table
from mlgokit.tables.overrides import ALLOCATIONS, OverrideTable, read_overrides
from mlgokit.tune.measurement import Measure, measuring_words

if TYPE_CHECKING:
    from mlgokit.commands.tune import Tune


def check_objective(config: "Tune") -> None:
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


def policies_of(config: "Tune") -> dict[str, Path]:
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


def earlier_table(config: "Tune", toolchain: Toolchain) -> DecisionTable | OverrideTable | None:
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


def measure_of(config: "Tune", modules: Sequence[Module], toolchain: Toolchain) -> Measure | None:
    """What judges, if the objective is more than the account."""
    if config.objective not in {"linked", "command"}:
        return None
    plan, database = None, config.compile_commands
    if config.link_command is not None:
        folder = config.link_folder or (Path() if database is None else database.resolve().parent)
        plan = plan_link(
            link_words(config.link_command),
            folder=folder.resolve(),
            outputs={} if database is None else module_outputs(database, level=config.level),
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


def check_claim(config: "Tune", place: Path, inputs: dict[str, str], versions: dict[str, str]) -> Callable[[], None]:
    """What signs the folder; refuses one with another search, and one that a search began in unless it is to go on."""
    commands = {"link_command": config.link_command, "command": config.command}
    settings = {"objective": config.objective, "project": config.project}
    settings |= {"problem": config.problem} if config.objective == "spill-cost" else {}
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

"""The options of ``mlgokit tune``: what a call says, and what it may not say."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mlgokit.basic import Basic
from mlgokit.builds.cargo import cargo_words
from mlgokit.builds.corpus import ANY_COMMANDS
from mlgokit.builds.link import OUTPUT, link_words
from mlgokit.builds.measurement import measuring_words
from mlgokit.builds.request import ANY_LEVEL
from mlgokit.commands.options import (
    COMPILER,
    NO_BUILD,
    NO_CLUSTER,
    REUSE,
    Clustering,
    Compiling,
    Databases,
    Reusing,
    Texts,
    WholeBuild,
    check_module_source,
    check_rust_path,
    reject_with_cargo,
)
from mlgokit.corpus.front_end import Level
from mlgokit.errors import ReuseError, UsageError
from mlgokit.export.replay import replay_files
from mlgokit.files import check_writable
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.tune.judge import JudgeConfig
from mlgokit.tune.spaces.inlining.space import SearchConfig

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_KEPT = 99.9999
"""Percent; LLVM's summary of a profile goes no further."""
_NOT_BY_CARGO = {"linked", "command", "spill-cost", "instructions"}
ALLOCATION_SHARE = 0.3
"""Of the budget: inlining pays longer in C++, register allocation more in C."""
PASS_SHARE = 0.4
"""Of the budget, where ``docs/results/passes_share.md`` measured what it gives."""
CARGO_PASS_SHARE = 0.15
"""Of the budget, whatever inlining gains, where a module is a whole program: after its first steps inlining gains less
there than a first look at passes (docs/results/tuning_rust.md, by kind of decision)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Search the compiler's decisions of one project for the smallest build; verify them, and write one plugin."""

    compile_commands: Annotated[Path | None, Basic.INPUT] = None
    """Compilation database (compile_commands.json) of the project; name this, --build or a corpus."""
    built: WholeBuild = NO_BUILD
    """Build to record, and to make again with the plugin."""
    corpus: Path | None = None
    """Folder of a corpus with the project's modules."""
    cargo: Annotated[str | None, Basic.INPUT] = None
    """Cargo build to tune, as in --cargo 'cargo build --release', in the current folder or --link-folder. Each program
    with lto = "fat" is tuned, including std and all crates."""
    project: str | None = None
    """Name of the project to tune, in a corpus of several."""
    budget: Annotated[str, Basic.WORK] = "30m"
    """Time for the search, such as 90s, 30m or 2h."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"]), Basic.RESULT] = Path("tuned.so")
    """Plugin to write. It becomes a symbolic link to a file beside it whose name contains a digest; builds load that
    file."""
    artifact: Literal["plugin", "replay"] = "plugin"
    """Result to write. plugin: the plugin alone; replay: also its verified inlining decisions, for compilers that load
    no plugin, in the folder <plugin>-replay. Registers and passes cannot be replayed: they are not searched then, and
    the plugin has no pretrained policies."""
    replay_clang: Path | None = None
    """With --artifact replay: clang that will read the replayed decisions, such as clang-16; the one that tunes if
    not given."""
    folder: Annotated[Path, Basic.RESULT] = Path("tune")
    """Folder that keeps the state of the search, so that --continue can resume it."""
    go_on: Annotated[bool, tyro.conf.arg(name="continue"), Basic.WORK] = False
    """Resume the search in the folder. If the code changed since, the modules that changed are searched first, from the
    decisions that still apply."""
    objective: Annotated[
        Literal["image", "instructions", "text", "object", "linked", "compressed", "command", "spill-cost"],
        Basic.WORK,
    ] = "image"
    """Quantity to minimise. image: code, read-only data and unwind tables, each COMDAT once; text: code alone; object:
    whole objects; linked: the output of the link command; command: a number that a command prints; spill-cost: executed
    spills, reloads and copies; instructions: what --run executes."""
    run: Texts = ()
    """With `instructions`: command that runs what --build makes, in the folder of the build, as in --run './app a.txt'.
    Callgrind counts it, plain and tuned; a build without a profile gets one of it. May be repeated."""
    held_out: Texts = ()
    """With `instructions`: command with another workload than --run, which is counted too; may be repeated."""
    growth: float = 0.01
    """With `instructions`: share by which the image of each program may grow."""
    run_seconds: float = 60.0
    """With `instructions`: deadline of one run in seconds; callgrind gets 150 times that."""
    problem: Literal["both", "regalloc-eviction", "regalloc-priority"] = "both"
    """With --objective spill-cost: decisions of the register allocator that are searched."""
    link_command: str | None = None
    """With --objective linked, compressed or command: link command of the build, which names paths of objects, or
    has the placeholders {objects} and {output}."""
    link_folder: Path | None = None
    """Folder where the link command runs; by default that of compile_commands.json, else the current one."""
    links: Path | None = None
    """With --compile-commands: build folder that CMake or Meson configured for Ninja or Make. The programs are linked
    by the commands found there, and the result is verified by their sizes, as with --build."""
    link_only: bool = False
    """With --objective linked and a -flto build: do not change the compile steps. By default they leave all inlining
    to the link if that makes the image at most 1 % larger before the search."""
    command: str | None = None
    """With --objective command: command that prints a number for the linked {output} or the {objects}; smaller is
    better."""
    compressor: str | None = None
    """Command that compresses standard input to standard output, such as `zstd -19`. The result also has the
    compressed size of each stripped program; --objective compressed minimises that, by `xz -9` unless this names
    another."""
    start: Annotated[Path | None, Basic.WORK] = None
    """Plugin of an earlier version of the code; the search starts from its decisions that still apply."""
    allocation_share: float = ALLOCATION_SHARE
    """Share of the budget for register allocation; 0 leaves it to LLVM."""
    pass_share: float = PASS_SHARE
    """Share of the budget for skipping optimizer and codegen passes in functions that are smaller without them.
    Inlining uses this time as long as it gains more, and the share of register allocation is taken first. 0 runs all
    passes."""
    slowdown: float = 0.0
    """Relative increase of a function's executed instructions, by LLVM's estimate, that skipping passes may cause, such
    as 0.01 for 1 %."""
    policy: Path | None = None
    """Inlining policy that the search starts from: a file, or the word none. By default builtin:size, and none with
    --cargo. With --objective spill-cost: a policy for the register allocator's evictions or priorities; by default
    none."""
    shipped_policies: Literal["on", "off"] = "on"
    """Pretrained policies of builtin:Oz inside the plugin: they decide where they save more than the search, and in
    code that changes later; so the result is never larger than with them alone. Not with --objective instructions,
    spill-cost or command, nor with --keep-hot or --artifact replay."""
    fallback: Literal["heuristic", "policy"] = "heuristic"
    """Source of inlining decisions in modules for which the plugin has none: LLVM's heuristic (builtin:Oz with
    --shipped-policies on), or the policy fitted during the search."""
    keep_hot: Annotated[float, Basic.WORK] = 0.0
    """Leave hot functions to LLVM: those that make up this percentage of the executions in the build's profile, such as
    99. 0 leaves none. LLVM's cutoffs are 90, 95, 99, 99.9 and finer; the next one above is used."""
    level: Level | None = None
    """Optimization level in place of the build's own: Os or Oz; needs --compile-commands."""
    database: Databases = ANY_COMMANDS
    """Which commands of the database are taken."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    reuse: Reusing = REUSE
    """Reuse between the compilations of a module."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine; links run here."""
    judge: JudgeConfig = dataclasses.field(default_factory=JudgeConfig)
    """Settings of the judge, which confirms the gains of the search by the link or the command."""
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    """Settings of the search."""

    @property
    def least_for_passes(self) -> float:
        """Share of the budget that passes get in any case; inlining may use the rest of ``share_for_passes`` too."""
        if self.objective == "instructions":
            # What gains bytes in a second says nothing of them.
            return self.share_for_passes
        return 0.0 if self.cargo is None else min(CARGO_PASS_SHARE, self.share_for_passes)

    @property
    def share_for_passes(self) -> float:
        """Share of the budget for passes, which registers come before."""
        return min(self.pass_share, 1 - self.allocation_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that does not contradict itself, with the values of its texts.

    These are the budget of the search in seconds, the policy to start from by its problem, and the words of the cargo
    command and of the one that prints a number.
    """

    options: Tune
    seconds: float
    policies: dict[str, Path]
    cargo: tuple[str, ...]
    measuring: tuple[str, ...]


def check_call(config: Tune) -> Call:
    """Check a call.

    Raises:
        ReuseError: the folder has a search of a build, which is not to be resumed.
        StorageError: the list of ``--artifact replay`` cannot be written.
        UsageError: the call contradicts itself, or a text cannot be parsed.
    """
    seconds = seconds_of(config.budget)
    _check_runs(config)
    _check_links(config)
    _check_shares(config)
    _check_keep_hot(config)
    _check_objective(config)
    _check_build(config)
    if config.cargo is not None:
        _check_cargo(config)
    elif not config.built.build:
        check_module_source(
            "tune",
            compile_commands=config.compile_commands,
            corpus=config.corpus,
            database=config.database,
            level=config.level,
        )
    options = _for_replay(config)
    policies = _policies_of(options)
    if config.link_command is not None:
        # Words are made of it where the link is planned; a mistake in it is told before a build is recorded.
        link_words(config.link_command)
    return Call(
        options=options,
        seconds=seconds,
        policies=policies,
        measuring=() if config.command is None else measuring_words(config.command),
        cargo=() if config.cargo is None else cargo_words(config.cargo),
    )


def seconds_of(budget: str) -> float:
    """Convert a budget such as ``30m`` to seconds.

    Raises:
        UsageError: the text is not a number with a unit.

    Example:
        >>> seconds_of("1.5h")
        5400.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if found is None:
        raise UsageError(f"--budget: expected a number with s, m or h, such as 30m, found {budget!r}; correct it")
    return float(found[1]) * _UNITS[found[2]]


def _check_objective(config: Tune) -> None:
    """Refuse commands that the objective has no use for, and an objective without its commands."""
    if config.problem != "both" and config.objective != "spill-cost":
        raise UsageError(
            f"--problem {config.problem}: expected --objective spill-cost with it, found --objective "
            f"{config.objective}; change one"
        )
    if config.command is not None and config.objective != "command":
        raise UsageError(
            f"--command: only for --objective command, found --objective {config.objective}; change "
            "the objective, or remove --command"
        )
    if config.link_command is not None and config.objective not in {"linked", "compressed", "command"}:
        raise UsageError(
            "--link-command: expected --objective linked, compressed or command with it, found --objective "
            f"{config.objective}; change one"
        )
    is_recorded = bool(config.built.build)
    if config.compressor is not None and config.objective != "compressed" and not is_recorded:
        raise UsageError(
            f"--compressor: expected --build or --objective compressed with it, found --objective {config.objective}; "
            "add one of them, or remove it"
        )
    has_links = is_recorded or config.links is not None
    if config.link_command is None and config.objective in {"linked", "compressed"} and not has_links:
        raise UsageError(
            f"--objective {config.objective}: expected --link-command with the link of the build, found none; add "
            "the last line of `ninja -t commands PROGRAM`, or the command in CMake's link.txt, or give --build or "
            "--links"
        )
    if config.objective != "command":
        return
    if config.command is None:
        raise UsageError(
            "--objective command: expected --command with a command that prints a number, found none; add it, "
            "as in --command './measure.sh {output}'"
        )
    if OUTPUT in config.command and config.link_command is None and not is_recorded:
        raise UsageError(
            f"--command: expected --link-command to make {OUTPUT}, found none; add it, or measure {{objects}}"
        )


def _check_runs(config: Tune) -> None:
    """Refuse runs without the objective that they prove, and the objective without them."""
    if config.objective != "instructions":
        for option, given in {"run": config.run, "held-out": config.held_out}.items():
            if given:
                raise UsageError(
                    f"--{option}: expected --objective instructions with it, found {config.objective}; change the "
                    f"objective, or remove --{option}"
                )
        return
    if not (config.built.build and config.run):
        raise UsageError(
            "--objective instructions: expected --build and --run with what the build is run by, found "
            f"{'no --run' if config.built.build else 'no --build'}; add it, as in --run './app input.txt'"
        )
    if not config.growth >= 0:
        raise UsageError(f"--growth: expected a share of at least 0, such as 0.01, found {config.growth:g}; correct it")
    if config.run_seconds <= 0:
        raise UsageError(f"--run-seconds: expected a number above 0, found {config.run_seconds:g}; correct it")


def _check_links(config: Tune) -> None:
    """Refuse the links of a configured build beside another source of modules, or beside a link."""
    if config.links is not None and (config.compile_commands is None or config.link_command is not None):
        given = "no --compile-commands" if config.compile_commands is None else "--link-command"
        raise UsageError(
            f"--links {config.links}: expected --compile-commands with it, and no --link-command, found {given}; "
            "add or remove one"
        )


def _check_shares(config: Tune) -> None:
    """Refuse shares of the budget outside 0 to 1, and a negative ``slowdown``."""
    for name, share in (("allocation", config.allocation_share), ("pass", config.pass_share)):
        if not 0 <= share <= 1:
            raise UsageError(f"--{name}-share: expected a number from 0 to 1, found {share:g}; correct it")
    if not config.slowdown >= 0:
        raise UsageError(
            f"--slowdown: expected a number of at least 0, such as 0.01, found {config.slowdown:g}; correct it"
        )


def _check_keep_hot(config: Tune) -> None:
    """Refuse a percentage of hot functions out of range, and a fallback policy, which would decide in these."""
    if not 0 <= config.keep_hot <= _MOST_KEPT:
        raise UsageError(
            f"--keep-hot: expected a percentage from 0 to {_MOST_KEPT:g}, found {config.keep_hot:g}; correct it"
        )
    if config.keep_hot and config.fallback == "policy":
        raise UsageError(
            "--keep-hot: cannot be combined with --fallback policy, which would decide in hot functions; give "
            "only one of the two"
        )


def _policies_of(config: Tune) -> dict[str, Path]:
    """The policy to start from, by its problem."""
    path = _policy_to_start_from(config)
    if config.objective != "spill-cost":
        if path is not None:
            load_policy(path, problem=INLINE_SIZE.name)
        return {} if path is None else {INLINE_SIZE.name: path}
    if path is None:
        if config.fallback == "policy":
            raise UsageError(
                "--fallback policy: expected --policy with --objective spill-cost, as this search fits no policy; "
                "add it"
            )
        return {}
    problem = load_policy(path).problem
    if problem not in (REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name):
        raise UsageError(
            f"--policy {path}: expected a policy for {REGALLOC_EVICTION.name} or {REGALLOC_PRIORITY.name} "
            f"with --objective spill-cost, found one for {problem}; name another"
        )
    return {problem: path}


def _policy_to_start_from(config: Tune) -> Path | None:
    """The policy file that is named, else that of the package where inlining is searched."""
    if config.policy is not None:
        return None if str(config.policy) == "none" else policy_file(config.policy)
    inlines = config.objective != "spill-cost" and config.cargo is None
    return policy_file("builtin:size") if inlines else None


def _check_build(config: Tune) -> None:
    """Refuse options that need --build without it, --build beside another source of modules, and unknown programs."""
    options = config.built
    if not options.build:
        for name in ("test", "program", "clean"):
            others = {"test": config.cargo is not None, "program": config.links is not None}
            if getattr(options, name) and not others.get(name):
                raise UsageError(f"--{name}: needs --build; add that, or remove --{name}")
        return
    if config.compile_commands is not None or config.corpus is not None:
        raise UsageError(
            "tune: expected exactly one of --build, --compile-commands and --corpus, found several; give one"
        )
    given = next((option for option, is_given in config.database.given.items() if is_given), None)
    if given is not None:
        raise UsageError(
            f"{given}: only for --compile-commands, as --build always compiles the whole build with clang; remove it"
        )
    if config.level is not None:
        raise UsageError(
            "--level: only for --compile-commands; a build by --build has its own level; build with -Oz instead"
        )
    folder = options.build_folder
    if not folder.is_dir():
        raise UsageError(f"--build-folder {folder}: expected a folder with sources to build, found none; correct it")
    options.check_programs()
    if (config.folder / "search").exists() and not config.go_on:
        raise ReuseError(
            f"{config.folder / 'search'}: expected a new folder, found a search; "
            "add --continue to go on with it, or name another --folder"
        )


def _check_cargo(config: Tune) -> None:
    """Refuse what the search of a cargo build does not have."""
    reject_with_cargo(
        {
            f"--objective {config.objective}": config.objective in _NOT_BY_CARGO,
            "--compile-commands": config.compile_commands is not None,
            "--corpus": config.corpus is not None,
            "--build": bool(config.built.build),
            "--level": config.level is not None,
            **config.database.given,
            "--keep-hot": bool(config.keep_hot),
            "--sandbox on": config.compiler.sandbox == "on",
            "--scheduler": config.cluster.scheduler is not None,
        }
    )
    check_rust_path("--folder", config.folder)
    check_rust_path("--output", config.output)


def _for_replay(config: Tune) -> Tune:
    """Return the configuration of the search: with ``artifact="replay"``, inlining alone is searched.

    The shipped policies decide about registers and passes too, and would take the place of inlining decisions that gain
    less, but can be replayed.

    Raises:
        StorageError: the list cannot be written.
        UsageError: an option asks for decisions that cannot be replayed, or no compiler can read the list's path.
    """
    if config.artifact != "replay":
        if config.replay_clang is not None:
            raise UsageError("--replay-clang: needs --artifact replay; add that, or remove --replay-clang")
        return config
    for option, given in {
        f"--objective {config.objective}": config.objective in ANY_LEVEL,
        "--corpus": config.corpus is not None,
        "--replay-clang with --cargo": config.replay_clang is not None and config.cargo is not None,
        f"--allocation-share {config.allocation_share:g}": config.allocation_share not in (ALLOCATION_SHARE, 0),
        f"--pass-share {config.pass_share:g}": config.pass_share not in (PASS_SHARE, 0),
    }.items():
        if given:
            raise UsageError(
                f"{option}: cannot be combined with --artifact replay, which covers only inlining in compile "
                "steps; give only one of the two"
            )
    replay_files(replay_folder(config), rust=config.cargo is not None)
    check_writable(replay_folder(config), is_folder=True)
    return dataclasses.replace(config, allocation_share=0.0, pass_share=0.0, shipped_policies="off")


def replay_folder(config: Tune) -> Path:
    """Where the list goes."""
    return config.output.with_name(f"{config.output.stem}-replay")

"""What a call of `mlgokit tune` says."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mlgokit.commands.build_site import BuildOptions, WholeBuild
from mlgokit.commands.options import (
    ANY_CLANG,
    COMPILER,
    NO_CLUSTER,
    REUSE,
    Clustering,
    Compiling,
    Databases,
    Reusing,
)
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.layout import default_project
from mlgokit.tune.judge import JudgeConfig
from mlgokit.tune.spaces.inlining.space import SearchConfig

ALLOCATION_SHARE = 0.3
"""Of the budget: inlining pays longer in C++, register allocation more in C."""
PASS_SHARE = 0.4
"""Of the budget, where ``docs/results/passes_share.md`` measured what it gives."""
PASSES_GAIN = 20.0
"""Bytes per second of processor time that searches over passes gained at least, in two small projects."""
CARGO_PASS_SHARE = 0.15
"""Of the budget, whatever inlining gains, where a module is a whole program: after its first steps inlining gains less
there than a first look at passes (docs/results/tuning_rust.md, by kind of decision)."""
SLOWDOWN = 0.0
"""Of any function by passes that do not run, as far as LLVM estimates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Make one project smaller: search its compiler's decisions, verify the result, and put it into one plugin."""

    compile_commands: Path | None = None
    """Compilation database (compile_commands.json) of the project; name this, --build or a corpus."""
    built: WholeBuild = dataclasses.field(default_factory=BuildOptions)
    """Build to record, and to make again with the plugin."""
    corpus: Path | None = None
    """Folder of a corpus with the project's modules."""
    cargo: str | None = None
    """Cargo build of a Rust project in place of both, as in --cargo 'cargo build --release'; it runs in the current
    folder or --link-folder, and each program with lto = "fat" is tuned, std and all crates in it."""
    project: str | None = None
    """Name of the project to tune, in a corpus of several."""
    budget: str = "30m"
    """Time for the search, such as 90s, 30m or 2h."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("tuned.so")
    """Plugin to write: a link to a file beside it whose name has a digest, which builds load."""
    artifact: Literal["plugin", "replay"] = "plugin"
    """Result: the plugin alone; or beside it, in a folder of the plugin's name with -replay, its decisions of inlining
    for compilers that load no plugin, verified. Registers and passes, which these cannot replay, are not searched."""
    replay_clang: Path | None = None
    """With `--artifact replay`: clang that is to use the list, such as clang-16; the one that tunes if not given."""
    folder: Path = Path("tune")
    """Folder where the search is kept, so that it can go on later."""
    go_on: Annotated[bool, tyro.conf.arg(name="continue")] = False
    """Go on where the search in the folder stopped."""
    objective: Literal["image", "text", "object", "linked", "command", "spill-cost"] = "image"
    """Bytes to save: code, read-only data and unwind tables as the linker keeps them; code alone; whole objects; what
    the link command writes; or a number that a command prints. Or how often spills, reloads and copies are executed."""
    problem: Literal["both", "regalloc-eviction", "regalloc-priority"] = "both"
    """With `spill-cost`: decisions of the register allocator that are searched."""
    link_command: str | None = None
    """With `linked` or `command`: link command of the build, with paths of objects, or {objects} and {output}."""
    link_folder: Path | None = None
    """Folder where the link command runs; by default that of compile_commands.json, else the current one."""
    link_only: bool = False
    """With a -flto build and `linked`: leave the compile steps as the build has them. Else they leave inlining to the
    link where that makes the image about as small, so that the link can decide about all calls."""
    command: str | None = None
    """With `command`: command that prints a number for the linked {output} or the {objects}; smaller is better."""
    start: Path | None = None
    """Plugin of an earlier version of the code; the search starts from its decisions that still apply."""
    allocation_share: float = ALLOCATION_SHARE
    """Share of the budget for register allocation, for the bytes that it saves; 0 leaves it to LLVM."""
    pass_share: float = PASS_SHARE
    """Share of the budget, as far as inlining does not gain more in it, for passes of the optimizer and of the code
    generator that do not run on a function where it is smaller without them; at most what registers leave; 0 lets all
    run."""
    slowdown: float = SLOWDOWN
    """Part by which a function may execute more instructions than with all passes, by LLVM's estimate, such as 0.01."""
    policy: Path | None = None
    """Policy file to start from, as `mlgokit train` writes it, or none; with `spill-cost` one of evictions or
    priorities. If not given, inlining starts from builtin:size, which comes with mlgokit, but for `cargo`."""
    register_policies: Literal["auto", "on", "off"] = "auto"
    """Policies of registers that come with mlgokit, in functions where they save more than the search found: on, off,
    or on with --cargo alone."""
    fallback: Literal["heuristic", "policy"] = "heuristic"
    """Advisor for code that changed after the search: LLVM's heuristic, or the policy that the search ended with."""
    keep_hot: float = 0.0
    """Percent of the executions in the build's profile whose functions stay as LLVM has them, calls and registers, such
    as 99, to save size and leave hot code alone; 0 keeps none. LLVM knows 90, 95, 99, 99.9 and finer, and takes the
    next of these."""
    level: Level | None = None
    """Optimization level in place of the build's own; needs --compile-commands, and must be one for size."""
    database: Databases = ANY_CLANG
    """Which commands of the database are taken."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    reuse: Reusing = REUSE
    """Reuse between the compilations of a module."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine; links run here."""
    judge: JudgeConfig = dataclasses.field(default_factory=JudgeConfig)
    """Settings of the confirmation by the link or the command."""
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    """Settings of the search."""

    @property
    def least_for_passes(self) -> float:
        """Part of that which inlining does not get, whatever it gains."""
        return 0.0 if self.cargo is None else min(CARGO_PASS_SHARE, self.share_for_passes)

    @property
    def share_for_passes(self) -> float:
        """Share of the budget for passes, which registers come before."""
        return min(self.pass_share, 1 - self.allocation_share)

    @property
    def build_project(self) -> str | None:
        """First component of the names of a recorded build's modules; ``None`` for that of the database's folder."""
        return default_project(self.built.build_folder) if self.built.build else None

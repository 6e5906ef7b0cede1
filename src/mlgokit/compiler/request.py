"""Requests for compilations, and the protocol of compilers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from mlgokit.compiler.compilation import Compilation, Ints, Keep
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.reuse.trials import TrialRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import writing
from mlgokit.module import Module
from mlgokit.problems import PROBLEMS

Lto = Literal["", "full", "thin"]
"""Kinds of link-time optimization."""
HEURISTIC = ":default"
NEVER = ":never"
ALWAYS = ":always"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUse:
    """What the plugin does in one compilation.

    Attributes:
        plugin: the shared library; ``None`` for the compiler's own.
        policies: by problem, a policy file or a rule such as ``:default``; problems that are left out use the policy
            inside the plugin, and LLVM's heuristic if it has none.
        logs: the problems whose training logs are written.
        seed: random seed of exploration.
        temperature: temperature of drawn decisions; 0 acts greedily.
        flip_probability: probability of flipping a decision.
        decisions: table of inlining decisions that take precedence over the policy; empty for none.
        allocations: table of evictions and priorities that take precedence over the policies; empty for none.
        passes: table of passes that do not run on some functions in code generation; empty for none.
        optimizer_passes: table of passes that do not run on some functions in the optimizer, from the inliner on; empty
            for none.
        list_changes: whether the plugin lists the passes of the optimizer that changed something.
        trials: alternative decisions to measure in functions of the module.
        any_level: whether the policies also decide inlining in modules that are not compiled for size, as in training
            and evaluation; links are left to LLVM.
        any_growth: with ``any_level``, whether such a module may grow as far as the decisions make it, as by LLVM's
            heuristic; by default inlining ends where LLVM ends it for policies.
        log_default: whether logs have the heuristic's decision where the table decides as well; it is -1 otherwise.
        replay_lines: where the plugin writes all inlining decisions as LLVM's replay reads them; with a further number
            at the end of its name for each further module of one process.
    """

    plugin: Path | None = None
    policies: Mapping[str, str] = field(default_factory=dict[str, str])
    logs: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 0.0
    flip_probability: float = 0.0
    decisions: bytes = b""
    allocations: bytes = b""
    passes: bytes = b""
    optimizer_passes: bytes = b""
    list_changes: bool = False
    trials: TrialRequest | None = None
    any_level: bool = False
    any_growth: bool = False
    log_default: bool = True
    replay_lines: Path | None = None

    @property
    def explores(self) -> bool:
        """Whether decisions deviate from the policies at random."""
        return bool(self.temperature or self.flip_probability or self.decisions)

    def decides_at_any_level(self, module: Module) -> bool:
        """Whether the plugin must be told to decide in a module that is not compiled for size."""
        return self.any_level and not module.is_for_size and module.link_folder is None

    def environment(self, folder: Path) -> dict[str, str]:
        """Make the plugin's environment variables, and write the files that they name to ``folder``.

        ``plugin/shared/Settings.cpp`` reads them.
        """
        given = {
            "decisions": self.decisions,
            "allocations": self.allocations,
            "passes": self.passes,
            "optimizer_passes": self.optimizer_passes,
            "trials": b"" if self.trials is None else self.trials.to_bytes(),
        }
        files: dict[str, str] = {} if self.trials is None else {"MLGOKIT_TRIED": str(folder / "tried")}
        if self.list_changes:
            files["MLGOKIT_CHANGED"] = str(folder / "changed")
        for name, data in given.items():
            if data:
                path = folder / name
                with writing(path):
                    path.write_bytes(data)
                files[f"MLGOKIT_{name.upper()}"] = str(path)
        return (
            {PROBLEMS[problem].policy_variable: policy for problem, policy in self.policies.items()}
            | {PROBLEMS[problem].log_variable: str(folder / f"{problem}.log") for problem in self.logs}
            | files
            | ({} if self.log_default else {"MLGOKIT_LOG_DEFAULT": "0"})
            | ({} if self.replay_lines is None else {"MLGOKIT_REPLAY_LINES": str(self.replay_lines)})
            | {
                "MLGOKIT_SEED": str(self.seed),
                "MLGOKIT_TEMPERATURE": repr(float(self.temperature)),
                "MLGOKIT_FLIP_PROBABILITY": repr(float(self.flip_probability)),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompileRequest:
    """A request for one compilation.

    Attributes:
        use: what the plugin shall do; ``None`` compiles without it.
        keep: which features, or whether whole logs, are kept in the record.
        flips: keys of call sites, with the decision in bit 0, that count as flips; see
            :func:`~mlgokit.compiler.compilation.decode_decisions`.
        regalloc: whether the costs of register allocation are wanted; the object is the same.
        keep_object: where to keep the object file; by default it is only measured.
        keep_logs: by problem, where to keep a training log; by default it is only read.
        reuse: whether resident compilers and known functions may be used, where the compiler has them. The
            outcome is the same; verification disables it.
        extra_seconds: added to the compiler's deadline, for trials.
        references: whether the sizes have what refers to each function.
        lto: the link-time optimization that the object is for: it is bitcode then, which is kept and not measured.
    """

    use: PluginUse | None = None
    keep: Keep = "all"
    flips: Ints | None = None
    regalloc: bool = False
    keep_object: Path | None = None
    keep_logs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    reuse: bool = False
    extra_seconds: float = 0.0
    lto: Lto = ""
    references: bool = False


PLAIN = CompileRequest()
"""Compile with the recorded options, without the plugin, and measure the object."""


class Compiler(Protocol):
    """Compiles modules. Threads may share it."""

    @property
    def toolchain(self) -> Toolchain:
        """The toolchain of the compiler."""
        ...

    @property
    def plugin(self) -> Path | None:
        """The plugin of requests that name none."""
        ...

    @property
    def workers(self) -> int:
        """The best number of simultaneous compilations."""
        ...

    @property
    def loaded(self) -> Loaded:
        """Digests of the compiler's program and of the libraries that it loads.

        Raises:
            ToolError: the compiler cannot be started, or a library cannot be read.
        """
        ...

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module. A failure is a result, not an exception.

        Raises:
            StorageError: the compiler found the disk full.
            ToolError: the compiler cannot be started.
            UsageError: the request uses a plugin, and there is none.
        """
        ...

    def close(self) -> None:
        """End resident compilers; later requests start new ones."""
        ...


class InFront(Protocol):
    """What a compiler in front of another one has of that one: all but how it compiles.

    Attributes:
        compiler: the other one.
    """

    compiler: Compiler

    @property
    def toolchain(self) -> Toolchain:
        """The toolchain of the compiler."""
        return self.compiler.toolchain

    @property
    def plugin(self) -> Path | None:
        """The plugin of requests that name none."""
        return self.compiler.plugin

    @property
    def workers(self) -> int:
        """The best number of simultaneous compilations."""
        return self.compiler.workers

    def close(self) -> None:
        """End resident compilers."""
        self.compiler.close()

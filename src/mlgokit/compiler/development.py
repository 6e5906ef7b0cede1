"""An LLVM built in development mode (with TFLite) as a compiler: it writes training logs itself, without a plugin.

Its options are those of ``llvm/lib/Analysis/DevelopmentModeInlineAdvisor.cpp`` and of the two advisors of the register
allocator; its logs are LLVM's own, which :mod:`mlgokit.traces` reads. A policy is a folder as `mlgokit export tflite`
writes it.
"""

import dataclasses
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler, command, compiler_environment
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.outcome import add_sizes, describe_end, read_logs
from mlgokit.compiler.request import HEURISTIC, PLAIN, CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, TraceError, UsageError
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.problems import PROBLEMS, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DevelopmentCompiler:
    """A clang that was built with TFLite.

    Attributes:
        clang: starts the compilations, and has the limits; one with a sandbox is refused.
    """

    clang: ClangCompiler

    def __post_init__(self) -> None:
        """Refuse a sandbox."""
        if self.clang.sandbox is not None:
            raise UsageError(
                "development mode: expected a corpus that was made on this machine, found one that is compiled in "
                "a sandbox, where clang cannot read a model; extract the corpus here"
            )

    @property
    def toolchain(self) -> Toolchain:
        """The toolchain of the compiler."""
        return self.clang.toolchain

    @property
    def plugin(self) -> Path | None:
        """Always ``None``: no plugin is needed."""
        return None

    @property
    def workers(self) -> int:
        """The best number of simultaneous compilations."""
        return self.clang.workers

    @property
    def loaded(self) -> Loaded:
        """Digests of the compiler and its libraries."""
        return self.clang.loaded

    @property
    def identity(self) -> str:
        """Digest of the compiler, by content."""
        return digest_value(["development", self.loaded.facts])

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module. A request may contain only logs and policies, and policies must be folders with a model.

        Raises:
            StorageError: the compiler found the disk full.
            ToolError: the compiler cannot be started, or was built without development mode.
            UsageError: the request contains anything else, or a problem that only the plugin has.
        """
        use = request.use
        if use is None:
            return self.clang.compile(module, request)
        if request.regalloc or request.flips is not None or request.lto or use.explores or use.trials is not None:
            raise UsageError(
                f"{module.name}: expected a request for policies and logs alone, found one for more; use the "
                "plugin, as LLVM's development mode cannot explore, try, or measure register allocation"
            )
        asked = {name: use.policies.get(name, HEURISTIC) for name in (*use.policies, *use.logs)}
        with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
            folder = Path(scratch)
            output = folder / "module.o" if request.keep_object is None else request.keep_object
            words = command(self.toolchain, module, output, None)
            for name, policy in asked.items():
                words = words.append_words(development_options(PROBLEMS[name], folder / f"{name}.log", policy))
            deadline = self.clang.limits.deadline(module.name, self.clang.timeout_seconds)
            done = process.run(
                words,
                timeout_seconds=deadline,
                env=compiler_environment() | {"TMPDIR": scratch},
                limits=self.clang.limits.of(module.name, only_object=False),
            )
            _check_mode(self.toolchain, done)
            return _read_outputs(describe_end(done, output, deadline), output, request, folder)

    def close(self) -> None:
        """Do nothing: there are no resident compilers."""


def development_options(problem: Problem, log: Path, policy: str) -> list[str]:
    """Make the options that let LLVM log a problem's decisions, by its heuristic or by the model in a folder.

    Raises:
        UsageError: LLVM has no advisor for the problem, or the policy is no folder with a model.

    Example:
        >>> development_options(PROBLEMS["regalloc-eviction"], Path("/l"), ":default")
        ['-mllvm', '-regalloc-enable-advisor=development', '-mllvm', '-regalloc-training-log=/l']
    """
    if not problem.has_llvm_advisor:
        raise UsageError(
            f"{problem.name}: expected a problem for which LLVM has an advisor, found one that only the plugin "
            "has; leave --development out"
        )
    options = [problem.channel_options[0].replace("=release", "=development"), f"{problem.log_option}={log}"]
    if policy != HEURISTIC:
        model = Path(policy)
        missing = [name for name in ("model.tflite", "output_spec.json") if not (model / name).is_file()]
        if missing:
            raise UsageError(
                f"policy {policy}: expected a folder with model.tflite and output_spec.json, found no {missing[0]}; "
                "make one with `mlgokit export tflite`"
            )
        options.append(f"{problem.model_option}={model.resolve()}")
    return [word for option in options for word in ("-mllvm", option)]


def _check_mode(toolchain: Toolchain, done: process.Completed) -> None:
    """Raise an error if the compiler was built without TFLite, which is not a failure of the module."""
    if done.returncode != 0 and "Unknown command line argument" in done.stderr:
        message = done.stderr.strip().splitlines()[0][:200]
        raise ToolError(
            f"{toolchain.clang}: expected an LLVM that was built with TFLite, found one without ({message}); use the "
            "plugin with this one, or name another by MLGOKIT_LLVM"
        )


def _read_outputs(ended: Compilation, output: Path, request: CompileRequest, folder: Path) -> Compilation:
    """Complete the record of a compilation, unless it failed, from its output files."""
    if ended.status is CompileStatus.OK:
        ended = add_sizes(ended, functools.partial(measure_object, output))
    if ended.status is not CompileStatus.OK:
        return ended
    # A module without a decision leaves an empty log, or none.
    for path in folder.glob("*.log"):
        if not path.stat().st_size:
            path.unlink()
    try:
        logs = read_logs(request, folder)
    except TraceError as error:
        return dataclasses.replace(ended, status=CompileStatus.BAD_TRACE, reason=str(error))
    count = sum(log.observation_count for log in logs.values())
    return dataclasses.replace(ended, decision_count=count, logs=logs if request.keep == "log" else {})

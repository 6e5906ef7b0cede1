"""A compilation as a gymnasium environment, for users with their own learner; needs the extra ``gym``.

An episode is one compilation of a module of a corpus: each question of the compiler, asked over LLVM's interactive
channel, is an observation, and the last step's reward is the relative improvement over LLVM's heuristic. Stepping
through Python costs far more than the plugin; see ``mlgokit train``.
"""

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from mlgokit.advisors import Advice, Observation
from mlgokit.advisors.legal import legal_columns
from mlgokit.compiler.channel.interactive import InteractiveStatus, Session, channel_use, open_session
from mlgokit.compiler.compile import ClangCompiler, command
from mlgokit.compiler.objects.measure import measure_object, size_score
from mlgokit.compiler.regalloc_cost import RegallocCosts, mean_change, read_regalloc_costs
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, UsageError
from mlgokit.module import Module
from mlgokit.policy.exploration import UNIT_BOUND, priority_of
from mlgokit.problems import Problem, column_count
from mlgokit.spec import AdviceKind

Inputs = npt.NDArray[np.float32]
Action = np.int64 | npt.NDArray[np.float32]
Step = tuple[Inputs, float, bool, bool, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of a compilation: bytes of text, or the costs of register allocation of each function."""

    text_bytes: float
    regalloc: RegallocCosts | None

    def reward(self, default: "Score") -> float:
        """Compute the relative improvement over ``default``; for register allocation, the mean over functions."""
        if self.regalloc is None or default.regalloc is None:
            return 1 - self.text_bytes / max(default.text_bytes, 1.0)
        return mean_change(default.regalloc, self.regalloc)


@final
class CompilerEnvironment(gymnasium.Env[Inputs, Action]):
    """Each episode is one compilation of a module of a corpus; :func:`open_environment` makes the environment.

    Observations are the raw features, [F], or [C, F] for C candidates, without the mask, which is in ``info["mask"]``
    (int8 [C], as ``sample`` of the action space takes it). Actions are 0 or 1, the index of a candidate, or for
    priorities a number from -1 to 1: greater is allocated earlier. An index that the mask does not allow is replaced by
    the first one that it allows, and ``info["replaced"]`` is true.

    ``reset`` draws a module, or takes the one whose position is ``options["module"]``. The reward is 0 except for the
    last step. If the compiler fails, that step is truncated, and ``info["detail"]`` says why.

    Attributes:
        problem: problem whose decisions are the actions.
        features: names of the F features.
    """

    def __init__(
        self,
        *,
        toolchain: Toolchain,
        modules: Sequence[Module],
        problem: Problem,
        features: tuple[str, ...],
        columns: int,
        timeout_seconds: float,
    ) -> None:
        self.metadata = {"render_modes": []}
        self.problem = problem
        self.features = features
        self._toolchain, self._modules, self._columns = toolchain, tuple(modules), columns
        self._timeout_seconds = timeout_seconds
        self._defaults: dict[int, Score | None] = {}
        self._stack = contextlib.ExitStack()
        self._session: Session | None = None
        self._folder = Path()
        self._module = 0
        self._asked: Observation | None = None
        shape = (columns, len(features)) if problem.mask is not None else (len(features),)
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = _actions(problem, columns)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Inputs, dict[str, Any]]:
        """Start to compile a module, and return the first observation.

        Raises:
            UsageError: no module has the position ``options["module"]``, or no module has a decision.
        """
        super().reset(seed=seed)
        given = (options or {}).get("module")
        if given is None:
            tried = self.np_random.permutation(len(self._modules)).tolist()
        elif given in range(len(self._modules)):
            tried = [int(given)]
        else:
            raise UsageError(
                f"module: expected one of 0 to {len(self._modules) - 1}, found {given!r}; name one of these"
            )
        for index in tried:
            self._begin(index)
            if self._asked is not None:
                return self._observation(), self._info()
        self._end()
        raise UsageError(
            f"{self.problem.name}: expected a module with something to decide, found none among {len(tried)} "
            "modules; choose other modules"
        )

    def step(self, action: Action) -> Step:
        """Take a decision, and return the next observation, which is all zeros at the end.

        Raises:
            UsageError: the compiler is not waiting for a decision.
        """
        if self._asked is None or self._session is None:
            raise UsageError(
                "step: expected a question of the compiler that waits for an answer, found none; call reset first"
            )
        advice, replaced = self._advice(action, self._asked)
        self._session.answer(advice)
        self._asked = self._session.next()
        if self._asked is not None:
            return self._observation(), 0.0, False, False, self._info() | {"replaced": replaced}
        result = self._session.close()
        score = self._score(self._folder) if result.status is InteractiveStatus.OK else None
        default = self._default()
        self._end()
        facts: dict[str, Any] = {"module": self._modules[self._module].name, "replaced": replaced}
        nothing = np.zeros(self.observation_space.shape or (), np.float32)
        if score is None or default is None:
            detail = result.detail or "the object, or the plain compilation, could not be measured"
            return nothing, 0.0, False, True, facts | {"detail": detail}
        return nothing, score.reward(default), True, False, facts | {"score": score, "default_score": default}

    def close(self) -> None:
        """Stop the compiler if it is still running."""
        self._end()

    def _begin(self, index: int) -> None:
        """Start a compiler for module ``index``, and wait for its first question."""
        self._end()
        self._module = index
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mlgokit-")))
        self._session = _start(
            self._stack,
            self._toolchain,
            self._modules[index],
            self.problem,
            self._folder,
            timeout_seconds=self._timeout_seconds,
        )
        self._asked = self._session.next()

    def _end(self) -> None:
        """Stop the compiler, and delete its folder."""
        self._asked = self._session = None
        self._stack.close()

    def _observation(self) -> Inputs:
        """Make the features of the compiler's question, [F] or [C, F]."""
        assert self._asked is not None  # noqa: S101  (looked at by the callers)
        rows = [np.broadcast_to(self._asked.values[name].ravel(), (self._columns,)) for name in self.features]
        # LLVM divides by the maximum of a row, which may be 0 or infinite. Policies get no NaN either.
        found = np.nan_to_num(np.stack(rows, axis=-1).astype(np.float32))
        return found if self.problem.mask is not None else found[0]

    def _info(self) -> dict[str, Any]:
        """Make gymnasium's ``info`` of the compiler's question: module, function, and mask."""
        assert self._asked is not None  # noqa: S101  (looked at by the callers)
        facts: dict[str, Any] = {"module": self._modules[self._module].name, "function": self._asked.context}
        if self.problem.mask is not None:
            mask = np.zeros(self._columns, np.int8)
            mask[legal_columns(self.problem, self._asked)] = 1
            facts["mask"] = mask
        return facts

    def _advice(self, action: Action, asked: Observation) -> tuple[Advice, bool]:
        """Convert an action to advice; also tell whether an index that is not allowed was replaced."""
        if self.problem.advice_kind is AdviceKind.REAL:
            return priority_of(UNIT_BOUND * float(np.asarray(action).ravel()[0])), False
        chosen = int(action)
        if self.problem.mask is None:
            return chosen, False
        legal = legal_columns(self.problem, asked)
        return (chosen, False) if chosen in legal else (legal[0], True)

    def _score(self, folder: Path) -> Score | None:
        """Score the object of the episode; ``None`` if it cannot be measured."""
        try:
            sizes = measure_object(folder / "module.o")
            record = folder / "module.opt.yaml"
            costs = read_regalloc_costs(record) if self.problem.by_regalloc_cost else None
        except (InputError, OSError):
            return None
        return Score(text_bytes=size_score(sizes, {}), regalloc=costs)

    def _default(self) -> Score | None:
        """Score the module under LLVM's heuristic, once; ``None`` if it does not compile."""
        if self._module not in self._defaults:
            module = self._modules[self._module]
            compiler = ClangCompiler(toolchain=self._toolchain, timeout_seconds=self._timeout_seconds)
            done = compiler.compile(module, CompileRequest(regalloc=self.problem.by_regalloc_cost))
            sizes = done.sizes if done.ok else None
            self._defaults[self._module] = (
                None if sizes is None else Score(text_bytes=size_score(sizes, {}), regalloc=done.regalloc)
            )
        return self._defaults[self._module]


def open_environment(
    toolchain: Toolchain, modules: Sequence[Module], problem: Problem, *, timeout_seconds: float = 60.0
) -> CompilerEnvironment:
    """Open an environment; the first module with a decision determines the features and the number of candidates.

    Args:
        toolchain: toolchain whose clang compiles.
        modules: modules of a corpus.
        problem: the problem whose decisions are the actions.
        timeout_seconds: limit for a whole compilation, including the caller's time.

    Raises:
        ToolError: the compiler cannot be started.
        UsageError: no module has a decision.
    """
    for module in modules:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mlgokit-")))
            asked = _start(stack, toolchain, module, problem, folder, timeout_seconds=timeout_seconds).next()
        if asked is not None:
            return CompilerEnvironment(
                toolchain=toolchain,
                modules=modules,
                problem=problem,
                features=tuple(name for name in asked.values if name not in (problem.mask, problem.default_decision)),
                columns=column_count(problem, asked.header.features),
                timeout_seconds=timeout_seconds,
            )
    raise UsageError(
        f"{problem.name}: expected a module with something to decide, found none among {len(modules)} modules; "
        "choose other modules"
    )


def _actions(problem: Problem, columns: int) -> Any:
    """Make the action space of a problem."""
    match problem.advice_kind:
        case AdviceKind.BINARY:
            return spaces.Discrete(2)
        case AdviceKind.MASKED_CHOICE:
            return spaces.Discrete(columns)
        case AdviceKind.REAL:
            return spaces.Box(-1.0, 1.0, (1,), np.float32)


def _start(
    stack: contextlib.ExitStack,
    toolchain: Toolchain,
    module: Module,
    problem: Problem,
    folder: Path,
    *,
    timeout_seconds: float,
) -> Session:
    """Start clang on a module with an interactive channel for the problem."""
    record = folder / "module.opt.yaml" if problem.by_regalloc_cost else None
    argv = command(toolchain, module, folder / "module.o", None, record=record)
    return stack.enter_context(
        open_session(
            argv,
            channels={problem.name: channel_use(problem, major=toolchain.major)},
            timeout_seconds=timeout_seconds,
            answer_timeout_seconds=timeout_seconds,
        )
    )

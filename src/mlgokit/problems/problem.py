"""What a problem is: the facts about one decision of LLVM, and whether what a compiler declares fits them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlgokit.errors import UsageError
from mlgokit.spec import AdviceKind, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How compilers of one LLVM major are made to ask over an interactive channel.

    Attributes:
        options: LLVM options; ``{base}`` stands for the path to which ``.in`` and ``.out`` are added. Clang wants
            ``-mllvm`` before each.
        overwritten: the name of a feature in whose place the compiler sends another, and the name of that other one.
    """

    options: tuple[str, ...]
    overwritten: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """One named value of an observation.

    Attributes:
        name: LLVM's name.
        type: LLVM's name of the element type, a key of :data:`mlgokit.spec.DTYPES`.
        per_column: whether there is one element for each column that may be chosen, or one in all.
    """

    name: str
    type: str = "int64_t"
    per_column: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One kind of decision that LLVM asks an advisor for.

    Attributes:
        name: what a user types.
        summary: one line for help texts.
        policy_variable: the environment variable that tells the plugin which policy decides.
        log_variable: the one that tells it where to write the training log.
        rules: policies without a file that the plugin knows, LLVM's heuristic first.
        log_option: LLVM's own option for a training log; empty if it has none.
        model_option: LLVM's own option for a TFLite model under training; empty if it has none.
        advice_kind: what an answer may be.
        decision: LLVM's name of the answer; the column of a log that holds the decision taken.
        default_decision: the column with the heuristic's decision. The channel has it only with ``default_option``;
            the plugin's log has it always.
        context: what one context of a log is.
        channel_options: as in :class:`Channel`, without the default decision; the first makes LLVM ask an advisor.
            None where LLVM has none.
        default_option: the option that makes the compiler send the default decision too.
        default_overwrites: majors before this number send the default decision in the place of this feature.
        features: what LLVM 19 and 22 send, in their order, without the default decision. A reader uses the header
            of the log: another compiler may send more, fewer or others, and the number of columns is the target's.
        scores: names of the scores that a policy may be trained on, the usual one first.
        mask: the feature that is not 0 in the columns that may be chosen; only a masked choice has one.
        takes_sites: whether the compiler can be given decisions at single sites, as a table.
    """

    name: str
    summary: str
    policy_variable: str
    log_variable: str
    rules: tuple[str, ...]
    log_option: str
    model_option: str
    advice_kind: AdviceKind
    decision: str
    default_decision: str
    context: Literal["module", "function"]
    channel_options: tuple[str, ...]
    default_option: str | None
    default_overwrites: tuple[int, str] | None
    features: tuple[Feature, ...]
    scores: tuple[str, ...]
    mask: str | None = None
    takes_sites: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of :attr:`features`."""
        return tuple(feature.name for feature in self.features)

    @property
    def by_regalloc_cost(self) -> bool:
        """Whether a decision is judged by what register allocation costs its function, not by bytes of the object."""
        return "regalloc-cost" in self.scores

    @property
    def is_llvms(self) -> bool:
        """Whether LLVM has an advisor for it, with a channel and a log of its own; else only the plugin has one."""
        return bool(self.channel_options)

    def channel_for(self, major: int, *, include_default: bool) -> Channel:
        """The channel of compilers of an LLVM major; ``include_default`` asks for the default decision as a feature.

        Raises:
            UsageError: LLVM has no advisor for this problem.
        """
        if not self.is_llvms:
            raise UsageError(
                f"{self.name}: LLVM has no interactive channel for this problem, which only the plugin has; use a "
                "policy"
            )
        if not include_default or self.default_option is None:
            return Channel(options=self.channel_options)
        overwritten = None
        if self.default_overwrites is not None and major < self.default_overwrites[0]:
            overwritten = (self.default_overwrites[1], self.default_decision)
        return Channel(options=(*self.channel_options, self.default_option), overwritten=overwritten)


def header_defect(
    problem: Problem, features: Sequence[TensorSpec], *, advice: TensorSpec | None = None, needed: Iterable[str] = ()
) -> str | None:
    """Why declared tensors do not fit, in one sentence; ``None`` if they do. Features that nobody reads may be there.

    Args:
        problem: what is decided.
        features: what the compiler declares.
        advice: the tensor that it waits for, if it is known.
        needed: names of features that are read, by a policy for example.

    Example:
        >>> from mlgokit.problems import REGALLOC_PRIORITY
        >>> told = [TensorSpec(name="stage", type="int64_t", shape=(1,))]
        >>> header_defect(REGALLOC_PRIORITY, told, needed=["weight"])
        "regalloc-priority: expected a feature 'weight' from the compiler, found stage; ask for what it has"
        >>> header_defect(REGALLOC_PRIORITY, told, needed=["stage"]) is None
        True
    """
    sizes = {spec.name: math.prod(spec.shape) for spec in features}
    names = list(needed) if problem.mask is None else [problem.mask, *needed]
    for name in names:
        if name not in sizes:
            return (
                f"{problem.name}: expected a feature {name!r} from the compiler, found {', '.join(sizes)}; "
                "ask for what it has"
            )
    columns = column_count(problem, features)
    for name in names:
        if sizes[name] not in (1, columns):
            expected = "1 element" if columns == 1 else f"1 or {columns} elements"
            return f"{problem.name}: feature {name!r}: expected {expected}, found {sizes[name]}; ask for what it has"
    if advice is not None:
        real = problem.advice_kind is AdviceKind.REAL
        if advice.name != problem.decision or math.prod(advice.shape) != 1 or (advice.dtype.kind == "f") != real:
            expected = f"{problem.decision!r} of one {'floating-point number' if real else 'integer'}"
            return (
                f"{problem.name}: expected the compiler to wait for {expected}, found {advice.name!r} of type "
                f"{advice.type} and shape {list(advice.shape)}; give the channel to its own problem"
            )
    return None


def column_count(problem: Problem, features: Sequence[TensorSpec]) -> int:
    """How many columns there are to choose from: the elements of the mask; 1 for a problem without columns."""
    return next((math.prod(spec.shape) for spec in features if spec.name == problem.mask), 1)

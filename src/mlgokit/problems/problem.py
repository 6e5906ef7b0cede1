"""Problems: the facts about one kind of decision, and checks of the tensors that a compiler declares for it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlgokit.errors import UsageError
from mlgokit.spec import AdviceKind, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Options that make a compiler of one LLVM major ask for advice over an interactive channel.

    Attributes:
        options: LLVM options, each of which clang takes after ``-mllvm``. ``{base}`` stands for the common path of the
            two pipes, to which LLVM appends ``.in`` and ``.out``.
        overwritten: name of a feature in whose place the compiler sends another feature, and the latter's name;
            ``None`` if there is none.
    """

    options: tuple[str, ...]
    overwritten: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """One named value of an observation.

    Attributes:
        name: LLVM's name.
        type: LLVM's name of the element type, a key of :data:`mlgokit.spec.DTYPES`.
        per_column: whether there is one element for each eviction candidate, or a single one.
    """

    name: str
    type: str = "int64_t"
    per_column: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One kind of decision that LLVM asks an advisor for.

    Attributes:
        name: identifies the problem on the command line and in files.
        summary: one line for help texts.
        policy_variable: environment variable from which the plugin reads the policy to use.
        log_variable: environment variable from which the plugin reads the path of the training log to write.
        rules: policies that are built into the plugin, LLVM's heuristic first.
        log_option: LLVM's own option for a training log; empty if it has none.
        model_option: LLVM's own option for a TFLite model under training; empty if it has none.
        advice_kind: type of a decision.
        decision: LLVM's name for the decision; the column of a log with the decision that was made.
        default_decision: column of a log with the heuristic's decision. Logs of the plugin always have it; the channel
            has it only with ``default_option``.
        context: what one context of a log is: a module or a function.
        channel_options: as in :class:`Channel`, without the default decision; the first option makes LLVM ask an
            advisor. Empty if LLVM has no advisor for this problem.
        default_option: the option that makes the compiler send the default decision as a feature.
        default_overwrites: an LLVM major and a feature; older majors send the default decision in place of the feature.
        features: the features of LLVM 19 and 22, in their order, without the default decision. Readers of logs use the
            log's header, since another compiler may send other features, and the number of candidates depends on the
            target.
        scores: names of the scores that a policy may be trained on, the default first.
        mask: feature that is not 0 for the candidates that may be chosen; only for a masked choice.
        takes_sites: whether the compiler accepts a table of decisions for single call sites.
    """

    name: str
    summary: str
    policy_variable: str
    log_variable: str
    rules: tuple[str, ...]
    advice_kind: AdviceKind
    decision: str
    default_decision: str
    context: Literal["module", "function"]
    features: tuple[Feature, ...]
    scores: tuple[str, ...]
    log_option: str = ""
    model_option: str = ""
    channel_options: tuple[str, ...] = ()
    default_option: str | None = None
    default_overwrites: tuple[int, str] | None = None
    mask: str | None = None
    takes_sites: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of :attr:`features`."""
        return tuple(feature.name for feature in self.features)

    @property
    def by_regalloc_cost(self) -> bool:
        """Whether decisions are scored by the cost of register allocation, not by the size of the object."""
        return "regalloc-cost" in self.scores

    @property
    def has_llvm_advisor(self) -> bool:
        """Whether LLVM has an advisor for the problem, with a channel and a log; otherwise only the plugin has one."""
        return bool(self.channel_options)

    def channel_for(self, major: int, *, include_default: bool) -> Channel:
        """Return the channel options for an LLVM major; with ``include_default`` LLVM sends the default decision too.

        Raises:
            UsageError: LLVM has no advisor for this problem.
        """
        if not self.has_llvm_advisor:
            raise UsageError(
                f"{self.name}: expected a problem for which LLVM has an interactive channel, found one that only the "
                "plugin decides; use a policy"
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
    """Check the tensors that a compiler declares; return an error sentence, or ``None`` if they fit the problem.

    Features that are not needed may be declared as well.

    Args:
        problem: the problem that the compiler asks about.
        features: declared features.
        advice: declared tensor of the advice, if known.
        needed: names of the features that the advisor or policy reads.

    Example:
        >>> from mlgokit.problems import REGALLOC_PRIORITY
        >>> declared = [TensorSpec(name="stage", type="int64_t", shape=(1,))]
        >>> header_defect(REGALLOC_PRIORITY, declared, needed=["weight"])
        "regalloc-priority: expected a feature 'weight' from the compiler, found stage; ask for what it has"
        >>> header_defect(REGALLOC_PRIORITY, declared, needed=["stage"]) is None
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
                f"{advice.type} and shape {list(advice.shape)}; open the channel for the problem that it belongs to"
            )
    return None


def column_count(problem: Problem, features: Sequence[TensorSpec]) -> int:
    """Count the candidates of a decision: the elements of the mask, or 1 for a problem without a mask."""
    return next((math.prod(spec.shape) for spec in features if spec.name == problem.mask), 1)

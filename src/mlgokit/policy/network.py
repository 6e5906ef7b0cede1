"""A policy: feature names, normaliser and an ensemble of small networks, evaluated in numpy.

The plugin evaluates the same files in C++. Both have the same integers in the first layer, and multiply and add in the
same order and precision in all others, so a preference, a column's logit or a unit number is the same here and there;
``tests/llvm`` holds them to it. docs/formats.md, "The arithmetic", has the order.
"""

import enum
import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError
from mlgokit.policy.normaliser import Normaliser, Values
from mlgokit.problems import REGALLOC_WEIGHT
from mlgokit.spec import AdviceKind

LARGEST_INPUT = 1 << 13
LARGEST_WEIGHT = np.iinfo(np.int16).max
LARGEST_SUM = np.iinfo(np.int32).max
_LARGEST_EXPONENT = 40
_LARGEST = float(np.finfo(np.float32).max)

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
LOGIT_BOUND = 1e30
"""No column's logit leaves [-LOGIT_BOUND, LOGIT_BOUND]; a network that overflows still gives numbers to compare."""


HEURISTIC_PREFERENCE = 2.0
"""Units for what the heuristic decides, where gate or doubt leave it to that: hardly a temperature explores it."""


USUAL_TARGETS = ("x86_64",)
"""Targets of a policy whose file names none, as older files do."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstLayer:
    """The first dense layer of each of K networks in integers: the arithmetic of the plugin's ``FirstLayer.cpp``.

    Integers have the same sum in any order. So the plugin adds only what changed since the decision before, and numpy
    takes a matrix product: of doubles, which hold every sum exactly. docs/formats.md, "The arithmetic", has the rules.

    Attributes:
        bound: no input is beyond it.
        input_scale: the power of two by which inputs are multiplied.
        weight: [K, I, O] whole numbers.
        bias: [K, O] whole numbers.
        unit: [K] what 1 in a member's sums stands for.
    """

    bound: float
    input_scale: float
    weight: Doubles
    bias: Doubles
    unit: Doubles

    def apply(self, inputs: Floats) -> Floats:
        """Outputs [K, N, O] for ``inputs`` [N, I]."""
        whole = np.rint(np.clip(inputs.astype(np.float64), -self.bound, self.bound) * self.input_scale)
        outputs = np.empty((len(self.weight), len(inputs), self.bias.shape[1]), np.float32)
        with np.errstate(over="ignore"):
            for member, (weight, bias, unit) in enumerate(zip(self.weight, self.bias, self.unit, strict=True)):
                outputs[member] = (whole @ weight + bias) * unit
        return outputs


def scale_layer(weight: npt.NDArray[Any], bias: npt.NDArray[Any], bound: float) -> FirstLayer:
    """The layer ``weight`` [K, I, O], ``bias`` [K, O] for inputs that are not beyond ``bound``.

    Each member has the largest power of two with which no weight takes more than 16 bits, and no sum more than 32,
    whatever the inputs are.

    Example:
        >>> layer = scale_layer(np.array([[[0.5], [-0.25]]]), np.array([[1.0]]), 4.0)
        >>> layer.input_scale, layer.weight.ravel().tolist(), layer.apply(np.array([[2.0, 4.0]], np.float32)).tolist()
        (2048.0, [16384.0, -8192.0], [[[1.0]]])
    """
    bound = min(bound, _LARGEST)
    mantissa, exponent = math.frexp(bound)
    input_exponent = min(13 - exponent + (mantissa == 0.5), _LARGEST_EXPONENT)
    # Files have finite numbers only; a learner whose numbers overflow may ask for others.
    weights, biases = (
        np.nan_to_num(values.astype(np.float64), posinf=_LARGEST, neginf=-_LARGEST) for values in (weight, bias)
    )
    scaled = [_scale_member(*member, input_exponent) for member in zip(weights, biases, strict=True)]
    return FirstLayer(
        bound=bound,
        input_scale=math.ldexp(1.0, input_exponent),
        weight=np.stack([weight for weight, _, _ in scaled]),
        bias=np.stack([bias for _, bias, _ in scaled]),
        unit=np.array([math.ldexp(1.0, -exponent - input_exponent) for _, _, exponent in scaled]),
    )


def _scale_member(weight: Doubles, bias: Doubles, input_exponent: int) -> tuple[Doubles, Doubles, int]:
    """``weight`` [I, O] and ``bias`` [O] as whole numbers, and the power of two by which weights were multiplied."""
    largest = (math.frexp(float(np.abs(values).max(initial=0.0)))[1] for values in (weight, bias))
    exponent = min(15 - next(largest), 31 - input_exponent - next(largest))
    while True:
        weights = np.rint(np.ldexp(weight, exponent))
        biases = np.rint(np.ldexp(bias, exponent + input_exponent))
        sums = np.abs(weights).sum(axis=0) * LARGEST_INPUT + np.abs(biases)
        if np.abs(weights).max(initial=0.0) <= LARGEST_WEIGHT and sums.max() <= LARGEST_SUM:
            return weights, biases, exponent
        exponent -= 1


class OutputKind(enum.Enum):
    """What the last layer means."""

    EFFECT_BYTES = "effect-bytes"
    """One number: the change of the score in bytes when the call site is inlined rather than not."""
    LOGITS = "logits"
    """Two numbers: the unnormalised log-probabilities of not inlining and of inlining."""
    COLUMN_LOGIT = "column-logit"
    """One number for each column, of networks that see one column at a time: its unnormalised log-probability."""
    COLUMN_EFFECT = "column-effect"
    """One number for each column but the heuristic's: the change of the score when it is chosen in that one's place."""
    PRIORITY = "priority"
    """One number, which :func:`mlgokit.policy.exploration.priority_of` turns into a priority."""
    LOG2_FACTOR = "log2-factor"
    """One number: the binary logarithm of what a live range's spill weight is multiplied by."""

    @property
    def advice_kind(self) -> AdviceKind:
        """What a policy with this output answers."""
        match self:
            case OutputKind.EFFECT_BYTES | OutputKind.LOGITS:
                return AdviceKind.BINARY
            case OutputKind.COLUMN_LOGIT | OutputKind.COLUMN_EFFECT:
                return AdviceKind.MASKED_CHOICE
            case OutputKind.PRIORITY | OutputKind.LOG2_FACTOR:
                return AdviceKind.REAL

    @property
    def width(self) -> int:
        """Outputs of the last layer."""
        return 2 if self is OutputKind.LOGITS else 1

    @classmethod
    def of_numbers(cls, problem: str) -> "OutputKind":
        """The output kind of a policy that gives one number for a problem."""
        return cls.LOG2_FACTOR if problem == REGALLOC_WEIGHT.name else cls.PRIORITY


@dataclass(frozen=True, slots=True)
class Layer:
    """One dense layer of each of K networks.

    Attributes:
        weight: float32 [K, I, O].
        bias: float32 [K, O].
    """

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Where a policy leaves the decision to LLVM: effects that are not beyond a margin.

    Attributes:
        feature: the one of the policy's features that says which margin counts.
        margins: bytes, not negative: where the feature is 0, and where it is not. No effect is beyond infinity, and
            where it is infinite, no live range is a policy's.
    """

    feature: str
    margins: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Decides from features: call sites, columns or live ranges, as its output says.

    Attributes:
        problem: name of the problem it was trained for.
        features: names of its inputs, in the order of the normaliser's rows.
        normaliser: turns raw values into inputs.
        layers: dense layers with ReLU between them.
        output: meaning of the last layer.
        bytes_per_unit: bytes, or what else a score is in, that make one unit of preference (effects only).
        caution: standard deviations of the members by which a column's logit is made worse (column-logit only).
        doubt: standard deviations of the members that an effect must exceed, beyond the gate's margin if there is one,
            before LLVM's own decision gives way to it; 0 for believing the mean (effects only).
        margin: what an effect must exceed before the heuristic's column gives way to it (column-effect only).
        most_departures: how often it departs from the heuristic in one function; 0 for any number (column-effect only).
        csr_first_time_cost: what the first use of a callee-saved register costs in a function, where 2**14 is one
            execution of its entry, as LLVM's option ``-regalloc-csr-first-time-cost`` has it; 0 leaves it to LLVM
            (log2-factor only).
        mask: the feature that says which columns may be chosen (columns only).
        gate: how sure an answer must be before LLVM's own decision gives way to it (effect-bytes), or whether it does
            at all (priority, log2-factor).
        targets: architectures that it decides for, as :func:`mlgokit.module.architecture_of` names them; for all others
            every decision is LLVM's.
    """

    problem: str
    features: tuple[str, ...]
    normaliser: Normaliser
    layers: tuple[Layer, ...]
    output: OutputKind
    bytes_per_unit: float = 1.0
    caution: float = 0.0
    doubt: float = 0.0
    margin: float = 0.0
    most_departures: int = 0
    csr_first_time_cost: int = 0
    mask: str = ""
    gate: Gate | None = None
    targets: tuple[str, ...] = USUAL_TARGETS
    _first: FirstLayer | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def members(self) -> int:
        """Number of networks in the ensemble."""
        return len(self.layers[0].weight)

    def of_members(self, chosen: npt.NDArray[np.bool_]) -> "Policy | None":
        """The ensemble of the ``chosen`` [K] members alone; nothing if there are none."""
        layers = tuple(Layer(layer.weight[chosen], layer.bias[chosen]) for layer in self.layers)
        return replace(self, layers=layers) if chosen.any() else None

    @property
    def asks_heuristic(self) -> bool:
        """Whether some decisions are left to LLVM, so that its decision is needed."""
        return self.gate is not None or self.doubt > 0 or self.output is OutputKind.COLUMN_EFFECT

    def answers(self, values: Values) -> Doubles:
        """Each member's answer [K, N] for raw ``values`` [N, F]: effects in bytes, logit differences, or outputs."""
        hidden = self.integer_layer().apply(self.normaliser.apply(values))
        with np.errstate(over="ignore", invalid="ignore"):
            for layer in self.layers[1:]:
                hidden = np.where(hidden > 0, hidden, np.float32(0))
                total = np.broadcast_to(layer.bias[:, None, :], (*hidden.shape[:2], layer.bias.shape[1])).copy()
                # One input after the other: the plugin's order of additions, which a matrix product would not keep.
                for column in range(layer.weight.shape[1]):
                    total += hidden[:, :, column, None] * layer.weight[:, None, column, :]
                hidden = total
            wide = hidden.astype(np.float64)
            return wide[:, :, 1] - wide[:, :, 0] if self.output is OutputKind.LOGITS else wide[:, :, 0]

    def preferences(self, values: Values, heuristic: npt.NDArray[np.bool_] | None = None) -> Doubles:
        """Preference for inlining [T] for raw ``values`` [T, F]; positive means inline.

        Args:
            values: the features.
            heuristic: [T] what LLVM itself would decide. Without it, the preference before gate and doubt.

        Raises:
            UsageError: the policy does not decide yes or no.
        """
        self._expect(AdviceKind.BINARY)
        average, deviation = self._summary(values)
        if self.output is OutputKind.LOGITS:
            return np.where(np.isnan(average), 0.0, average)
        with np.errstate(over="ignore", invalid="ignore"):
            preferences = np.where(np.isnan(average), 0.0, -average / self.bytes_per_unit)
            if not self.asks_heuristic or heuristic is None:
                return preferences
            margin = np.zeros(len(values))
            if self.gate is not None:
                margin = self._margins(self.gate, values)
            believed = np.abs(average) > margin + self.doubt * deviation
        return np.where(believed, preferences, np.where(heuristic, HEURISTIC_PREFERENCE, -HEURISTIC_PREFERENCE))

    def column_logits(self, values: Values, default: npt.NDArray[np.int64] | None = None) -> Doubles:
        """Logits [T, C] for raw ``values`` [T, C, F], every one finite; the mask is the caller's.

        Args:
            values: the features.
            default: [T] the heuristic's column, to which effects give a logit of 0.

        Raises:
            UsageError: the policy does not choose a column, or measures effects against a column that is not given.
        """
        self._expect(AdviceKind.MASKED_CHOICE)
        average, deviation = self._summary(values.reshape(-1, values.shape[-1]))
        if self.output is OutputKind.COLUMN_EFFECT:
            if default is None:
                raise UsageError(
                    f"policy for {self.problem}: expected the heuristic's column, against which it measures effects, "
                    "found none; ask a compiler that loads the plugin"
                )
            with np.errstate(over="ignore", invalid="ignore"):
                believed = -average > self.margin + self.doubt * deviation
                wanted = np.minimum(-average / self.bytes_per_unit, LOGIT_BOUND)
            logits = np.where(believed, wanted, -HEURISTIC_PREFERENCE).reshape(values.shape[:-1])
            logits[np.arange(len(logits)), default] = 0.0
            return logits
        with np.errstate(over="ignore", invalid="ignore"):
            logits = average - self.caution * deviation
        logits = np.where(np.isnan(logits), -LOGIT_BOUND, np.clip(logits, -LOGIT_BOUND, LOGIT_BOUND))
        return logits.reshape(values.shape[:-1])

    def units(self, values: Values) -> Doubles:
        """Unit numbers [T] for raw ``values`` [T, F], before the gate; none is NaN.

        A live range with a greater one is allocated earlier, or defends its register harder.

        Raises:
            UsageError: the policy does not give numbers.
        """
        self._expect(AdviceKind.REAL)
        average, _ = self._summary(values)
        return np.where(np.isnan(average), 0.0, average)

    def opens(self, values: Values) -> npt.NDArray[np.bool_]:
        """[T] whether the gate lets the policy decide at all for raw ``values`` [T, F]."""
        if self.gate is None:
            return np.ones(len(values), bool)
        return np.isfinite(self._margins(self.gate, values))

    def _margins(self, gate: Gate, values: Values) -> Doubles:
        elsewhere, there = gate.margins
        return np.where(values[:, self.features.index(gate.feature)] != 0, there, elsewhere)

    def _summary(self, values: Values) -> tuple[Doubles, Doubles]:
        """Average and standard deviation [N] of the members' answers."""
        total = np.zeros(len(values))
        squares = np.zeros(len(values))
        with np.errstate(over="ignore", invalid="ignore"):
            for answer in self.answers(values):
                total += answer
                squares += answer * answer
            average = total / self.members
            variance = squares / self.members - average * average
        return average, np.sqrt(np.where(variance > 0, variance, 0.0))

    def integer_layer(self) -> FirstLayer:
        """The first layer in integers; made once, since an advisor asks for one row at a time."""
        if self._first is None:
            first = self.layers[0]
            object.__setattr__(self, "_first", scale_layer(first.weight, first.bias, self.normaliser.bound))
        return cast("FirstLayer", self._first)

    def _expect(self, kind: AdviceKind) -> None:
        if self.output.advice_kind is not kind:
            raise UsageError(
                f"policy for {self.problem}: expected an output of kind {kind.value}, found "
                f"{self.output.advice_kind.value} (output {self.output.value}); call the method for that kind"
            )

"""A policy: feature names, normaliser and an ensemble of small networks, evaluated in numpy.

The plugin evaluates the same files in C++. Both have the same integers in the first layer, and multiply and add in the
same order and precision in all others, so a preference, a column's logit or a unit number is the same here and there;
``tests/llvm`` holds them to it. docs/formats.md, "The arithmetic", has the order.
"""

import enum
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

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
"""Logits of columns are clipped to [-LOGIT_BOUND, LOGIT_BOUND], so that they compare even if a network overflows."""


HEURISTIC_PREFERENCE = 2.0
"""Preference for the heuristic's decision where gate or doubt leave it to LLVM: so high that it is rarely explored."""


USUAL_TARGETS = ("x86_64",)
"""Targets of a policy whose file names none, as older files do."""
Stage = Literal["compile", "link"]
"""Where a policy decides: in whole compilations, or in what a linker compiles with link-time optimization."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstLayer:
    """The first dense layer of each of K networks in integers: the arithmetic of the plugin's ``FirstLayer.cpp``.

    Integers have the same sum in any order. So the plugin adds only what changed since the decision before, and numpy
    takes a matrix product: of doubles, which hold every sum exactly. docs/formats.md, "The arithmetic", has the rules.

    Attributes:
        bound: inputs are clipped to [-bound, bound].
        input_scale: the power of two by which inputs are multiplied.
        weight: [K, I, O] whole numbers.
        bias: [K, O] whole numbers.
        unit: [K] by what a member's integer sums are multiplied to give its outputs.
    """

    bound: float
    input_scale: float
    weight: Doubles
    bias: Doubles
    unit: Doubles

    def apply(self, inputs: Floats) -> Floats:
        """Compute the outputs [K, N, O] for ``inputs`` [N, I]."""
        whole = np.rint(np.clip(inputs.astype(np.float64), -self.bound, self.bound) * self.input_scale)
        outputs = np.empty((len(self.weight), len(inputs), self.bias.shape[1]), np.float32)
        with np.errstate(over="ignore"):
            for member, (weight, bias, unit) in enumerate(zip(self.weight, self.bias, self.unit, strict=True)):
                outputs[member] = (whole @ weight + bias) * unit
        return outputs


def scale_layer(weight: npt.NDArray[Any], bias: npt.NDArray[Any], bound: float) -> FirstLayer:
    """Convert a first layer to integers: ``weight`` [K, I, O], ``bias`` [K, O], for inputs in [-bound, bound].

    Each member is multiplied by the largest power of two with which no weight takes more than 16 bits, and no sum more
    than 32, whatever the inputs are.

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
    """Quantise ``weight`` [I, O] and ``bias`` [O] of a network to integers; also returns the scale's exponent."""
    weight_exponent, bias_exponent = (math.frexp(np.abs(values).max(initial=0.0))[1] for values in (weight, bias))
    exponent = min(15 - weight_exponent, 31 - input_exponent - bias_exponent)
    while True:
        weights = np.rint(np.ldexp(weight, exponent))
        biases = np.rint(np.ldexp(bias, exponent + input_exponent))
        sums = np.abs(weights).sum(axis=0) * LARGEST_INPUT + np.abs(biases)
        if np.abs(weights).max(initial=0.0) <= LARGEST_WEIGHT and sums.max() <= LARGEST_SUM:
            return weights, biases, exponent
        exponent -= 1


class OutputKind(enum.Enum):
    """What the output of a policy's last layer means."""

    EFFECT_BYTES = "effect-bytes"
    """One number: the change of the score in bytes when the call site is inlined rather than not."""
    LOGITS = "logits"
    """Two numbers: the unnormalised log-probabilities of not inlining and of inlining."""
    COLUMN_LOGIT = "column-logit"
    """One number for each column, of networks that see one column at a time: its unnormalised log-probability."""
    PRIORITY = "priority"
    """One number, which :func:`mlgokit.policy.exploration.priority_of` turns into a priority."""
    LOG2_FACTOR = "log2-factor"
    """One number: the binary logarithm of what a live range's spill weight is multiplied by."""

    @property
    def advice_kind(self) -> AdviceKind:
        """Kind of advice that a policy with this output gives."""
        match self:
            case OutputKind.EFFECT_BYTES | OutputKind.LOGITS:
                return AdviceKind.BINARY
            case OutputKind.COLUMN_LOGIT:
                return AdviceKind.MASKED_CHOICE
            case OutputKind.PRIORITY | OutputKind.LOG2_FACTOR:
                return AdviceKind.REAL

    @property
    def width(self) -> int:
        """Number of outputs of the last layer."""
        return 2 if self is OutputKind.LOGITS else 1

    @classmethod
    def for_numbers(cls, problem: str) -> "OutputKind":
        """Return the output kind of policies that answer this problem with a real number."""
        return cls.LOG2_FACTOR if problem == REGALLOC_WEIGHT.name else cls.PRIORITY


@dataclass(frozen=True, slots=True)
class Layer:
    """One dense layer of each of K networks.

    Attributes:
        weight: float32 [K, inputs, outputs].
        bias: float32 [K, outputs].
    """

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]


@dataclass(slots=True, kw_only=True)
class Memory:
    """What a recurrent policy keeps from one decision of a module to the next; zero before the first.

    Attributes:
        hidden: float32 [K, H] outputs of the LSTM at the decision before.
        cell: float32 [K, H] its cells.
    """

    hidden: Floats
    cell: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Where a policy leaves decisions to LLVM: where the predicted effect is not larger than a margin.

    Attributes:
        feature: name of the feature of the policy that selects one of the two margins.
        margins: margins in bytes, not negative, where the feature is 0 and where it is not. Where a margin is infinite,
            all decisions are LLVM's, also those of policies whose output is no effect.
    """

    feature: str
    margins: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An ensemble of networks that decides from features about call sites, columns or live ranges, as its output says.

    Attributes:
        problem: name of the problem that the policy was trained for.
        features: names of the features, in the order of the normaliser's rows.
        normaliser: turns raw values into inputs.
        layers: dense layers with ReLU between them; of a recurrent policy the one before the last is an LSTM.
        output: meaning of the last layer.
        bytes_per_unit: bytes (or other units of the score) in one unit of preference (effect-bytes only).
        caution: standard deviations of the members that are subtracted from a column's logit (column-logit only).
        doubt: standard deviations of the members that an effect must exceed, in addition to the gate's margin if there
            is one, before the policy overrides LLVM's decision; 0 to use the mean alone (effect-bytes only).
        csr_first_time_cost: cost of the first use of a callee-saved register in a function, where 2**14 is one
            execution of its entry, as in LLVM's option ``-regalloc-csr-first-time-cost``; 0 leaves it to LLVM
            (log2-factor only).
        mask: name of the feature that says which columns may be chosen (column-logit only).
        gate: margin that an effect must exceed before the policy overrides LLVM's decision (effect-bytes), or which
            live ranges the policy decides about at all (priority, log2-factor).
        targets: architectures that the policy decides for, as :func:`mlgokit.module.architecture_of` names them; for
            all others every decision is LLVM's, unless one of ``others`` is for them.
        recurrent: number H of units of the LSTM, which has the weights [K, inputs + H, 4 H], last those of its own
            outputs at the decision before, for the gates input, forget, cell and output; 0 for dense layers alone. The
            decisions of a module then depend on those before (logits of inlining only).
        stage: whether it decides in whole compilations, or in what a linker compiles with link-time optimization.
        others: policies for the same problem and further architectures or the other stage, which are in the same file;
            they have none.
    """

    problem: str
    features: tuple[str, ...]
    normaliser: Normaliser
    layers: tuple[Layer, ...]
    output: OutputKind
    bytes_per_unit: float = 1.0
    caution: float = 0.0
    doubt: float = 0.0
    csr_first_time_cost: int = 0
    mask: str = ""
    gate: Gate | None = None
    targets: tuple[str, ...] = USUAL_TARGETS
    recurrent: int = 0
    stage: Stage = "compile"
    others: "tuple[Policy, ...]" = ()
    _first: FirstLayer | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def members(self) -> int:
        """Number of networks in the ensemble."""
        return len(self.layers[0].weight)

    @property
    def parts(self) -> "tuple[Policy, ...]":
        """This policy and the others of its file, each for architectures or a stage of its own."""
        return (replace(self, others=()), *self.others) if self.others else (self,)

    @property
    def all_targets(self) -> tuple[str, ...]:
        """The architectures that any part decides for."""
        return tuple(dict.fromkeys(target for part in self.parts for target in part.targets))

    def for_architecture(self, architecture: str, stage: Stage = "compile") -> "Policy | None":
        """Return the part that decides for an architecture in a stage; ``None`` where every decision is LLVM's.

        Modules whose command line names no architecture, the empty one, are decided by the first part.
        """
        parts = [part for part in self.parts if part.stage == stage]
        return next((one for one in parts if not architecture or architecture in one.targets), None)

    def select_members(self, chosen: npt.NDArray[np.bool_]) -> "Policy | None":
        """Make the policy with the ``chosen`` [K] members alone; ``None`` if none is chosen."""
        layers = tuple(Layer(layer.weight[chosen], layer.bias[chosen]) for layer in self.layers)
        return replace(self, layers=layers) if chosen.any() else None

    @property
    def asks_heuristic(self) -> bool:
        """Whether the policy may leave decisions to LLVM's heuristic, so that the heuristic's decision is needed."""
        return self.gate is not None or self.doubt > 0

    def start_memory(self) -> Memory:
        """Make the memory of a recurrent policy before the first decision of a module."""
        shape = (self.members, self.recurrent)
        return Memory(hidden=np.zeros(shape, np.float32), cell=np.zeros(shape, np.float32))

    def answers(self, values: Values, memory: Memory | None = None) -> Doubles:
        """Compute each member's answer [K, N] for raw ``values`` [N, F].

        An answer is an effect in bytes, the difference of the two logits, or the output itself. To a recurrent policy
        the rows are decisions of one module, in their order.

        Args:
            values: [N, F] raw features.
            memory: what a recurrent policy keeps of the decisions before, and is changed to what it keeps of these;
                that of a module's beginning if not given.
        """
        hidden = self.integer_layer().apply(self.normaliser.apply(values))
        dense = self.layers[1:-2] if self.recurrent else self.layers[1:]
        with np.errstate(over="ignore", invalid="ignore"):
            for layer in dense:
                hidden = _add_products(layer.bias, layer.weight, np.where(hidden > 0, hidden, np.float32(0)))
            if self.recurrent:
                hidden = self._recall(np.where(hidden > 0, hidden, np.float32(0)), memory or self.start_memory())
            wide = hidden.astype(np.float64)
            return wide[:, :, 1] - wide[:, :, 0] if self.output is OutputKind.LOGITS else wide[:, :, 0]

    def _recall(self, inputs: Floats, memory: Memory) -> Floats:
        """Compute the outputs [K, N, O] of the layer after the LSTM for its ``inputs`` [K, N, I], in their order."""
        gates, last = self.layers[-2:]
        width = inputs.shape[2]
        totals = _add_products(gates.bias, gates.weight[:, :width], inputs)
        outputs = np.empty((self.members, inputs.shape[1], self.recurrent), np.float32)
        for row in range(inputs.shape[1]):
            total = totals[:, row]
            for unit in range(self.recurrent):
                total = total + memory.hidden[:, unit, None] * gates.weight[:, width + unit]
            enter, keep, new, leave = np.split(total.astype(np.float64), 4, axis=1)
            memory.cell = (_sigmoid(keep) * memory.cell + _sigmoid(enter) * _tanh(new)).astype(np.float32)
            memory.hidden = (_sigmoid(leave) * _tanh(memory.cell)).astype(np.float32)
            outputs[:, row] = memory.hidden
        return _add_products(last.bias, last.weight, outputs)

    def preferences(
        self, values: Values, heuristic: npt.NDArray[np.bool_] | None = None, memory: Memory | None = None
    ) -> Doubles:
        """Compute preferences [T] for raw ``values`` [T, F]; positive means yes: inline, or leave the pass out.

        Args:
            values: [T, F] raw features.
            heuristic: [T] what LLVM itself would decide; if not given, gate and doubt are not applied.
            memory: as in :meth:`answers`.

        Raises:
            UsageError: the policy does not decide yes or no.
        """
        self._expect(AdviceKind.BINARY)
        average, deviation = self._summary(values, memory)
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

    def column_logits(self, values: Values) -> Doubles:
        """Compute the logits [T, C] of columns for raw ``values`` [T, C, F], all finite; the caller applies the mask.

        Raises:
            UsageError: the policy does not choose a column.
        """
        self._expect(AdviceKind.MASKED_CHOICE)
        average, deviation = self._summary(values.reshape(-1, values.shape[-1]))
        with np.errstate(over="ignore", invalid="ignore"):
            logits = average - self.caution * deviation
        logits = np.where(np.isnan(logits), -LOGIT_BOUND, np.clip(logits, -LOGIT_BOUND, LOGIT_BOUND))
        return logits.reshape(values.shape[:-1])

    def units(self, values: Values) -> Doubles:
        """Compute the real outputs ("unit numbers") [T] for raw ``values`` [T, F], before the gate; none is NaN.

        A live range with a greater unit number is allocated earlier, or has a greater spill weight.

        Raises:
            UsageError: the policy's output is not a real number.
        """
        self._expect(AdviceKind.REAL)
        average, _ = self._summary(values)
        return np.where(np.isnan(average), 0.0, average)

    def gate_opens(self, values: Values) -> npt.NDArray[np.bool_]:
        """Evaluate the gate [T] for raw ``values`` [T, F]: whether the policy may decide at all."""
        if self.gate is None:
            return np.ones(len(values), bool)
        return np.isfinite(self._margins(self.gate, values))

    def _margins(self, gate: Gate, values: Values) -> Doubles:
        """Look up the gate's margin [T] for raw ``values`` [T, F]."""
        unset, is_set = gate.margins
        return np.where(values[:, self.features.index(gate.feature)] != 0, is_set, unset)

    def _summary(self, values: Values, memory: Memory | None = None) -> tuple[Doubles, Doubles]:
        """Compute the average and the standard deviation [N] of the members' answers for raw ``values`` [N, F]."""
        total = np.zeros(len(values))
        squares = np.zeros(len(values))
        with np.errstate(over="ignore", invalid="ignore"):
            for answer in self.answers(values, memory):
                total += answer
                squares += answer * answer
            average = total / self.members
            variance = squares / self.members - average * average
        return average, np.sqrt(np.where(variance > 0, variance, 0.0))

    def integer_layer(self) -> FirstLayer:
        """Convert the first layer to integers, once, since an advisor asks for one row at a time."""
        if self._first is None:
            first = self.layers[0]
            object.__setattr__(self, "_first", scale_layer(first.weight, first.bias, self.normaliser.bound))
        return cast("FirstLayer", self._first)

    def _expect(self, kind: AdviceKind) -> None:
        """Raise a UsageError if the policy's output is not of this kind of advice."""
        if self.output.advice_kind is not kind:
            raise UsageError(
                f"policy for {self.problem}: expected an output of kind {kind.value}, found "
                f"{self.output.advice_kind.value} (output {self.output.value}); call the method for that kind"
            )


def _add_products(bias: Floats, weight: Floats, inputs: Floats) -> Floats:
    """Compute a dense layer [K, N, O] for ``inputs`` [K, N, I], with ``weight`` [K, I, O] and ``bias`` [K, O].

    One input is added after the other: the plugin's order of additions, which a matrix product would not keep.
    """
    total = np.broadcast_to(bias[:, None, :], (*inputs.shape[:2], bias.shape[1])).copy()
    for column in range(weight.shape[1]):
        total += inputs[:, :, column, None] * weight[:, None, column, :]
    return total


def _tanh(values: npt.NDArray[np.floating[Any]]) -> Doubles:
    """Compute the hyperbolic tangent by the C library, as the plugin does; numpy's own may differ in the last bit."""
    return np.array([math.tanh(value) for value in values.ravel().tolist()]).reshape(values.shape)


def _sigmoid(values: Doubles) -> Doubles:
    """Compute the logistic function."""
    return 0.5 + 0.5 * _tanh(0.5 * values)

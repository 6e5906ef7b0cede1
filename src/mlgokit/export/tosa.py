"""Export a policy as a TOSA function in MLIR, which a build of LLVM 24 lowers to C++ for its release mode.

All tensors have the shape [1, C, N]: C is the number of eviction candidates or 1, N the number of elements. Only
operations are used that MLIR 22 lowers to C++ through EmitC, so there is no reduce, clamp, reshape or gather. The table
lookup of a quantized feature is a matrix product: a 0/1 vector of the boundaries that the value reaches, times what
each boundary adds. A feature with many boundaries is compared in two levels, first with the start of each group. The
integer sums are exactly those of the policy's first layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.errors import UsageError
from mlgokit.export.model_source import COLUMNS
from mlgokit.files import atomic_write
from mlgokit.policy.network import LOGIT_BOUND, OutputKind, Policy
from mlgokit.policy.normaliser import LARGEST, Quantile
from mlgokit.policy.pretrained import policy_name
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import check_exportable_to_llvm
from mlgokit.policy.tflite.graph import Array
from mlgokit.policy.tflite.steps import Steps, integer_inputs
from mlgokit.policy.tflite.write_policy import EXACT_FLOAT, digits_of
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, Feature, Problem

NAMES = {INLINE_SIZE.name: "inliner", REGALLOC_EVICTION.name: "regalloc"}
"""LLVM's name for the kind of model of each problem; it is also the name of the model."""
_FLOAT, _INT, _BIT = "f32", "i64", "i1"
_MANY = 512
"""Number of boundaries from which on a feature is compared in two levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTosa:
    """An exported TOSA model.

    Attributes:
        model: path of the file.
        inputs: number of features that the model takes.
        model_bytes: size of the file.
        build: CMake option that configures a build of LLVM 24 with the model.
        flag: clang options with which that build of LLVM lets the model decide.
    """

    model: str
    inputs: int
    model_bytes: int
    build: str
    flag: str


def export_tosa(path: Path, folder: Path) -> ExportedTosa:
    """Convert the policy at ``path`` to TOSA and write it into ``folder``; other files in it are kept.

    Raises:
        PolicyError: the policy is not usable, or needs a feature that LLVM does not supply.
        UsageError: the policy is for another problem than inlining or eviction, has caution, or leaves decisions to
            LLVM's heuristic.
        StorageError: the disk is full or not writable.
    """
    policy, origin = load_policy(path), policy_name(path)
    text = tosa_text(policy, origin=origin)
    name = NAMES[policy.problem]
    model = folder / f"{name}.mlir"
    atomic_write(model, text)
    return ExportedTosa(
        model=str(model),
        inputs=len(set(policy.features)),
        model_bytes=len(text),
        build=f'"-DLLVM_MLGO_MODELS={name},{model.resolve()},{name}"',
        flag=f"-mllvm {PROBLEMS[policy.problem].channel_options[0]} -mllvm -mlgo-model={name}",
    )


def tosa_text(policy: Policy, *, origin: str = "policy") -> str:
    """Generate the MLIR text of a function that makes the same decisions as ``policy``.

    Raises:
        PolicyError: the policy needs a feature that LLVM does not supply.
        UsageError: the policy is for another problem, has caution, or leaves decisions to LLVM's heuristic.
    """
    check_exportable_to_llvm(policy, origin)
    problem = PROBLEMS[policy.problem]
    if problem.name not in NAMES or policy.asks_heuristic or policy.caution:
        unsupported = "caution" if policy.caution else "a gate or doubt" if problem.name in NAMES else problem.name
        raise UsageError(
            f"policy {origin}: expected a policy for {' or '.join(NAMES)} without gate, doubt and caution, "
            f"found {unsupported}; use `mlgokit export llvm`"
        )
    body = _Body()
    arguments = {feature.name: body.argument(feature) for feature in _features(policy, problem)}
    answers = [
        _member_answer(body, policy, member, hidden)
        for member, hidden in enumerate(_first_layer(body, policy, arguments))
    ]
    total = answers[0]
    for answer in answers[1:]:
        total = body.add("add", [total, answer])
    if problem is INLINE_SIZE:
        decision = _inline_decision(body, policy, total)
    else:
        decision = _eviction_decision(body, total, arguments[policy.mask], policy.members)
    names = ", ".join(
        f'%{feature.name}: {body.types[feature.name].text} {{tf_saved_model.index_path = ["{feature.name}"]}}'
        for feature in _features(policy, problem)
    )
    kind = body.types[decision].text
    result = f'({kind} {{tf_saved_model.index_path = ["{problem.decision}"]}})'
    lines = [f"func.func @{NAMES[problem.name]}({names}) -> {result} {{", *body.lines, f"return %{decision} : {kind}"]
    return "\n".join(["// A policy of mlgokit, written by `mlgokit export tosa`.", *lines, "}", ""])


def _features(policy: Policy, problem: Problem) -> list[Feature]:
    """List the features that the policy needs, in LLVM's order."""
    return [feature for feature in problem.features if feature.name in {*policy.features, policy.mask}]


@dataclass(frozen=True, slots=True)
class _Type:
    """A tensor type of shape [1, rows, elements]; ``kind`` is MLIR's element type."""

    rows: int
    elements: int
    kind: str = _FLOAT

    @property
    def text(self) -> str:
        """The type in MLIR's syntax."""
        return f"tensor<1x{self.rows}x{self.elements}x{self.kind}>"


@dataclass(slots=True, kw_only=True)
class _Body:
    """The function body under construction: its operations, and the type of each SSA value by its name."""

    lines: list[str] = field(default_factory=list[str])
    types: dict[str, _Type] = field(default_factory=dict[str, _Type])

    def add(self, name: str, values: Sequence[str], *, kind: str = _FLOAT) -> str:
        """Append an elementwise operation; operands of one row or one element are broadcast."""
        given = [self.types[value] for value in values]
        result = _Type(max(operand.rows for operand in given), max(operand.elements for operand in given), kind)
        return self._append(name, values, [operand.text for operand in given], result)

    def argument(self, feature: Feature) -> str:
        """Declare the function's argument for a feature, and convert it to floats."""
        whole = feature.type == "int64_t"
        self.types[feature.name] = _Type(COLUMNS if feature.per_column else 1, 1, _INT if whole else _FLOAT)
        return self.add("cast", [feature.name]) if whole else feature.name

    def constant(self, values: Array) -> str:
        """Append a float constant: a vector [N], or a matrix [I, O]."""
        table = np.atleast_2d(np.ascontiguousarray(values, np.float32))
        return self._constant(_Type(*table.shape), f'"0x{table.tobytes().hex().upper()}"')

    def integer(self, value: int) -> str:
        """Append an integer constant."""
        return self._constant(_Type(1, 1, _INT), str(value))

    def select(self, condition: str, yes: str, no: str, *, kind: str = _FLOAT) -> str:
        """Append an elementwise select."""
        return self.add("select", [condition, yes, no], kind=kind)

    def maximum(self, value: str, other: str) -> str:
        """Append the maximum of two values; if ``value`` is NaN, it is ``other``."""
        return self.select(self.add("greater", [value, other], kind=_BIT), value, other)

    def to_float(self, condition: str) -> str:
        """Convert a condition to 1.0 and 0.0."""
        given = self.types[condition]
        return self.select(condition, self.constant(np.ones((1, given.elements))), self.constant(np.zeros(1)))

    def matrix_product(self, value: str, matrix: Array | str) -> str:
        """Append the product of ``value`` and a matrix: a constant [I, O], or another SSA value."""
        factor = matrix if isinstance(matrix, str) else self.constant(matrix)
        zero = self._small("f32", "0.0")
        given = [self.types[value], self.types[factor]]
        types = [*(operand.text for operand in given), *["tensor<1xf32>"] * 2]
        return self._append("matmul", [value, factor, zero, zero], types, _Type(given[0].rows, given[1].elements))

    def multiply(self, value: str, factor: float | str) -> str:
        """Append the elementwise product of ``value`` and a number or another SSA value."""
        other = factor if isinstance(factor, str) else self.constant(np.array([factor]))
        given = [self.types[value], self.types[other]]
        result = _Type(max(operand.rows for operand in given), max(operand.elements for operand in given))
        types = [*(operand.text for operand in given), "tensor<1xi8>"]
        return self._append("mul", [value, other, self._small("i8", "0")], types, result)

    def _small(self, kind: str, value: str) -> str:
        """Append a constant of type ``tensor<1x...>``, which some operations take as an operand."""
        name, text = f"v{len(self.lines)}", f"tensor<1x{kind}>"
        self.lines.append(f'%{name} = "tosa.const"() {{values = dense<{value}> : {text}}} : () -> {text}')
        return name

    def _constant(self, kind: _Type, value: str) -> str:
        """Append a constant; returns the name of its value."""
        name = f"v{len(self.lines)}"
        self.lines.append(f'%{name} = "tosa.const"() {{values = dense<{value}> : {kind.text}}} : () -> {kind.text}')
        self.types[name] = kind
        return name

    def _append(self, operation: str, values: Sequence[str], types: Sequence[str], result: _Type) -> str:
        """Append an operation; returns the name of its result."""
        name = f"v{len(self.lines)}"
        given = ", ".join(f"%{value}" for value in values)
        self.lines.append(f"%{name} = tosa.{operation} {given} : ({', '.join(types)}) -> {result.text}")
        self.types[name] = result
        return name


def _first_layer(body: _Body, policy: Policy, arguments: dict[str, str]) -> list[str]:
    """Append the first layer; return its output for each member of the ensemble."""
    layer = policy.integer_layer()
    each = policy.normaliser.width // len(policy.features)
    kinds = {feature.name: feature for feature in PROBLEMS[policy.problem].features}
    nan = policy.normaliser.nan if isinstance(policy.normaliser, Quantile) else 0.0
    inputs: list[str] = []
    orders: list[list[int]] = []
    for index, name in enumerate(policy.features):
        whole, value = kinds[name].type == "int64_t", arguments[name]
        if not whole:
            # A policy maps NaN to a number of its own; NaN does not equal itself.
            value = body.select(body.add("equal", [value, value], kind=_BIT), value, body.constant(np.array([nan])))
        steps = integer_inputs(policy.normaliser, layer, index, whole_numbers=whole)
        inputs.append(_quantize(body, value, steps))
        orders.append([each * index + part for part in range(each)])
    outputs: list[str] = []
    for weight, bias, unit in zip(layer.weight, layer.bias, layer.unit, strict=True):
        # Floats hold the sums over inputs exactly for each digit of the weights, but not for whole weights.
        digits, base = digits_of(weight)
        total = ""
        for digit in digits:
            part = ""
            for value, order in zip(inputs, orders, strict=True):
                product = body.matrix_product(value, digit[order])
                part = product if not part else body.add("add", [part, product])
            total = part if not total else body.add("add", [body.multiply(total, base), part])
        total = body.add("add", [total, body.constant(bias)])
        outputs.append(body.multiply(total, float(unit)))
    return outputs


def _quantize(body: _Body, value: str, steps: Steps) -> str:
    """Append the quantized value of a feature: the lowest value, plus what each boundary that it reaches adds."""
    values = steps.values.reshape(len(steps.values), -1)
    added: Array = np.diff(values, axis=0)
    if np.abs(added).sum(axis=0).max(initial=0) + np.abs(values[0]).max() > EXACT_FLOAT:
        raise UsageError(
            "policy: expected integer inputs whose sums 32-bit floats hold exactly, found larger ones; report "
            "this as a bug"
        )
    lowest = body.constant(values[0])
    if not len(steps.knots):
        return lowest
    if len(steps.knots) >= _MANY and values.shape[1] == 1 and (np.all(added > 0) or np.all(added < 0)):
        return body.add("add", [_sum_by_groups(body, value, steps.knots, added[:, 0]), lowest])
    reached = body.add("greater_equal", [value, body.constant(steps.knots)], kind=_BIT)
    return body.add("add", [body.matrix_product(body.to_float(reached), added), lowest])


def _sum_by_groups(body: _Body, value: str, knots: Array, added: Array) -> str:
    """Append operations that sum what each boundary up to ``value`` adds; all addends have the same sign.

    A boundary that adds n is repeated n times, so that the sum is a count. The value lies in the last group whose first
    boundary it reaches, and is compared with the boundaries of that group only.
    """
    single = np.repeat(knots, np.abs(added).astype(np.int64))
    size = math.isqrt(len(single))
    starts = np.minimum(np.arange(0, len(single), size), len(single) - size)
    table = single[starts[:, None] + np.arange(size)]
    # Every value reaches the first group.
    firsts = np.concatenate([[-LARGEST], table[1:, 0]])
    begun = body.to_float(body.add("greater_equal", [value, body.constant(firsts)], kind=_BIT))
    own = body.matrix_product(begun, np.eye(len(starts)) - np.eye(len(starts), k=-1))
    reached = body.to_float(body.add("greater_equal", [value, body.matrix_product(own, table)], kind=_BIT))
    rank = body.add(
        "add", [body.matrix_product(own, starts[:, None]), body.matrix_product(reached, np.ones((size, 1)))]
    )
    return rank if added[0] > 0 else body.multiply(rank, -1)


def _member_answer(body: _Body, policy: Policy, member: int, hidden: str) -> str:
    """Append the other layers of one member; return its effect, its preference for inlining, or its column logits."""
    for layer in policy.layers[1:]:
        hidden = body.maximum(hidden, body.constant(np.zeros(1)))
        hidden = body.add("add", [body.matrix_product(hidden, layer.weight[member]), body.constant(layer.bias[member])])
    return body.matrix_product(hidden, np.array([[-1.0], [1.0]])) if policy.output is OutputKind.LOGITS else hidden


def _inline_decision(body: _Body, policy: Policy, total: str) -> str:
    """Append the inlining decision, 1 or 0, for the sum of the members' answers."""
    none = body.constant(np.zeros(1))
    # Inline if the effect in bytes is negative, or the preference positive.
    ends = [none, total] if policy.output is OutputKind.EFFECT_BYTES else [total, none]
    return body.select(body.add("greater", ends, kind=_BIT), body.integer(1), body.integer(0), kind=_INT)


def _eviction_decision(body: _Body, total: str, mask: str, members: int) -> str:
    """Append an argmax over the allowed columns, the first one of equal logits; the last column if none is allowed."""
    bound = LOGIT_BOUND * members
    # Clamp; NaN becomes the lower bound.
    bounded = body.maximum(total, body.constant(np.array([-bound])))
    bounded = body.multiply(body.maximum(body.multiply(bounded, -1), body.constant(np.array([-bound]))), -1)
    forbidden = np.full((COLUMNS, 1), -LARGEST)
    # Greater than the others, so that it wins where no column is allowed.
    forbidden[-1] /= 2
    none = body.constant(np.zeros(1))
    logits = body.select(body.add("equal", [mask, none], kind=_BIT), body.constant(forbidden), bounded)
    # The logits as a row as well, to compare all pairs.
    row = body.matrix_product(
        body.constant(np.ones((1, COLUMNS))), body.multiply(body.constant(np.eye(COLUMNS)), logits)
    )
    greater = body.to_float(body.add("greater", [row, logits], kind=_BIT))
    earlier = body.constant(np.tri(COLUMNS, k=-1))
    equal = body.select(body.add("equal", [row, logits], kind=_BIT), earlier, none)
    before = body.matrix_product(body.add("add", [greater, equal]), np.ones((COLUMNS, 1)))
    index = body.select(body.add("equal", [before, none], kind=_BIT), body.constant(np.arange(COLUMNS)[:, None]), none)
    broadcast = body.matrix_product(body.constant(np.ones((1, COLUMNS))), index)
    # A cast to an integer rounds, which EmitC cannot lower.
    decision = body.integer(0)
    for column in range(1, COLUMNS):
        chosen = body.add("equal", [broadcast, body.constant(np.array([column]))], kind=_BIT)
        decision = body.select(chosen, body.integer(column), decision, kind=_INT)
    return decision

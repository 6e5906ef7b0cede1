"""Converts a policy into a TFLite model, with the names and shapes of LLVM's development mode and ml-compiler-opt.

Inputs and the first layer are the policy's own integers: a table for each feature gives the integer inputs, and partial
sums below 2^24, which floats hold exactly, are added up as 32-bit integers. The other layers are in floats, also where
the policy computes in doubles.
"""

from dataclasses import dataclass

import numpy as np

from mlgokit.errors import UsageError
from mlgokit.policy.exploration import LARGEST_PRIORITY, PRIORITIES_PER_UNIT, UNIT_BOUND
from mlgokit.policy.network import HEURISTIC_PREFERENCE, LARGEST_INPUT, LOGIT_BOUND, OutputKind, Policy
from mlgokit.policy.normaliser import LARGEST, Quantile
from mlgokit.policy.targets import check_exportable_to_llvm
from mlgokit.policy.tflite.graph import BOOL, FLOAT, INT32, INT64, Array, Graph, GraphBuilder
from mlgokit.policy.tflite.network import PREFIX
from mlgokit.policy.tflite.steps import Steps, integer_inputs, merge_knots, representatives
from mlgokit.problems import PROBLEMS, Feature, Problem
from mlgokit.spec import AdviceKind, TensorSpec

OUTPUT = "StatefulPartitionedCall"
LOGITS = "CategoricalProjectionNetwork_logits"
"""google/ml-compiler-opt's name of the logits in a training log."""
EXACT_FLOAT = 1 << 24
"""Bound up to which 32-bit floats hold all whole numbers exactly."""
_INT64_FEATURE = "int64_t"
_UNUSED = (("discount", FLOAT), ("reward", FLOAT), ("step_type", INT32))
"""Inputs of google/ml-compiler-opt's models besides features; no operator reads them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrittenModel:
    """A model that was made of a policy.

    Attributes:
        graph: the model.
        outputs: name under which LLVM logs each output, and specification of its tensor; the decision is first.
    """

    graph: Graph
    outputs: tuple[tuple[str, TensorSpec], ...]


def write_policy(policy: Policy, *, columns: int = 33, draws: bool = False, origin: str = "policy") -> WrittenModel:
    """Make the model that decides as ``policy`` does.

    Args:
        policy: policy for one of LLVM's problems, with LLVM's own features only.
        columns: number of columns of an eviction; LLVM gives a model 33.
        draws: whether the model draws its decisions at random, by the policy's preferences at temperature 1, and has
            its logits as an output too.
        origin: name of the policy in error messages.

    Raises:
        PolicyError: the policy needs features or a decision that LLVM does not send.
        UsageError: ``draws`` is set for a priority.
    """
    problem = PROBLEMS[policy.problem]
    _check(policy, problem, draws=draws, origin=origin)
    builder = GraphBuilder()
    count = columns if problem.advice_kind is AdviceKind.MASKED_CHOICE else 1
    inputs = _inputs(builder, policy, problem, count)
    model = _Model(builder=builder, policy=policy, problem=problem, inputs=inputs, columns=count)
    answers = _answers(model, _first_layer(model, *_integer_inputs(model)))
    average, deviation = _summary(model, answers)
    match problem.advice_kind:
        case AdviceKind.REAL:
            return _priority(model, average)
        case AdviceKind.BINARY:
            return _decide(model, _binary_logits(model, average, deviation), 2, draws=draws)
        case AdviceKind.MASKED_CHOICE:
            return _decide(model, _column_logits(model, average, deviation), count, draws=draws)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Model:
    """A model under construction.

    Attributes:
        builder: builder with the operators so far.
        policy: policy that the model is made of.
        problem: problem of the policy.
        inputs: numbers of the input tensors, by feature.
        columns: number of rows that the networks are evaluated on.
    """

    builder: GraphBuilder
    policy: Policy
    problem: Problem
    inputs: dict[str, int]
    columns: int


def _check(policy: Policy, problem: Problem, *, draws: bool, origin: str) -> None:
    """Check that LLVM can evaluate the policy as a model, and that decisions to draw are no priorities."""
    check_exportable_to_llvm(policy, origin)
    if draws and problem.advice_kind is AdviceKind.REAL:
        raise UsageError(
            f"policy {origin}: expected a policy with binary decisions or a choice among columns, which --collect "
            "can sample, found one of priorities; export it without --collect"
        )


def _inputs(builder: GraphBuilder, policy: Policy, problem: Problem, columns: int) -> dict[str, int]:
    """Add the inputs: the features that the policy needs, in LLVM's order, and the unused ones of ml-compiler-opt."""
    needed = {*policy.features, policy.mask}
    inputs = {
        feature.name: builder.input(
            f"{PREFIX}{feature.name}:0",
            INT64 if feature.type == _INT64_FEATURE else FLOAT,
            _shape(feature, columns),
        )
        for feature in problem.features
        if feature.name in needed
    }
    if policy.asks_heuristic:
        inputs[problem.default_decision] = builder.input(f"{PREFIX}{problem.default_decision}:0", INT64, (1,))
    for name, dtype in _UNUSED:
        builder.input(f"{PREFIX}{name}:0", dtype, (1,))
    return inputs


def _shape(feature: Feature, columns: int) -> tuple[int, ...]:
    """Return the shape of a feature's input tensor."""
    return (1, columns) if feature.per_column else (1,)


# --- Inputs and the first layer ---------------------------------------------------------------------------------------


def _integer_inputs(model: _Model) -> tuple[int, list[int]]:
    """Add the integer inputs [columns, I] of the first layer; also returns which row of its weights each one has."""
    builder, policy, columns = model.builder, model.policy, model.columns
    layer = policy.integer_layer()
    each = policy.normaliser.width // len(policy.features)
    places: dict[str, list[int]] = {}
    for index, name in enumerate(policy.features):
        places.setdefault(name, []).append(index)
    parts: list[int] = []
    order: list[int] = []
    for feature in model.problem.features:
        if feature.name not in places:
            continue
        own = places[feature.name]
        whole = feature.type == _INT64_FEATURE
        rows = [integer_inputs(policy.normaliser, layer, index, whole_numbers=whole) for index in own]
        steps = _combine(rows, whole_numbers=whole)
        order += [each * index + part for index in own for part in range(each)]
        parts.append(_look_up(model, steps, feature))
    if len(parts) == 1:
        return parts[0], order
    return builder.add("CONCATENATION", parts, (columns, len(order)), Axis=1), order


def _combine(steps: list[Steps], *, whole_numbers: bool) -> Steps:
    """Combine several step functions of one feature into one with all their values."""
    knots = merge_knots([step.knots for step in steps])
    raw = representatives(knots, whole_numbers=whole_numbers)
    return Steps(knots=knots, values=np.concatenate([step.at(raw) for step in steps], axis=1))


def _look_up(model: _Model, steps: Steps, feature: Feature) -> int:
    """Add the look-up [columns, k] of a step function's values for a feature."""
    builder, value, columns = model.builder, model.inputs[feature.name], model.columns
    shape, width = _shape(feature, columns), steps.values.shape[1]
    knots = steps.knots if len(steps.knots) else np.array([LARGEST], np.float32)
    values = steps.values if len(steps.knots) else np.repeat(steps.values, 2, axis=0)
    if feature.type != _INT64_FEATURE:
        # A policy replaces NaN by a number; TFLite would rank it above all boundaries.
        nan = model.policy.normaliser.nan if isinstance(model.policy.normaliser, Quantile) else 0.0
        number = builder.add("EQUAL", [value, value], shape, BOOL)
        value = builder.add("SELECT_V2", [number, value, builder.constant(np.full(shape, nan, FLOAT))], shape)
    ranks = builder.add("BUCKETIZE", [value], shape, INT32, Boundaries=knots)
    table = builder.constant(values.astype(FLOAT))
    gathered = builder.add("GATHER", [table, ranks], (*shape, width), Axis=0)
    rows = columns if feature.per_column else 1
    gathered = builder.reshape(gathered, (rows, width))
    if rows == columns:
        return gathered
    return builder.add("TILE", [gathered, builder.integers(columns, 1)], (columns, width))


def _first_layer(model: _Model, rows: int, order: list[int]) -> list[int]:
    """Add the first layer of each member, [columns, O], in digits whose sums 32-bit floats hold exactly."""
    builder, layer = model.builder, model.policy.integer_layer()
    outputs: list[int] = []
    for weight, bias, unit in zip(layer.weight[:, order], layer.bias, layer.unit, strict=True):
        digits, base = digits_of(weight)
        shape = (model.columns, weight.shape[1])
        none = np.zeros(weight.shape[1])
        total = -1
        for digit in digits:
            part = builder.cast(builder.dense(rows, digit, none), INT32)
            if total >= 0:
                raised = builder.add("MUL", [total, builder.constant(np.array(base, INT32))], shape, INT32)
                part = builder.add("ADD", [raised, part], shape, INT32)
            total = part
        total = builder.add("ADD", [total, builder.constant(bias.astype(INT32))], shape, INT32)
        outputs.append(builder.add("MUL", [builder.cast(total, FLOAT), builder.floats(float(unit))], shape))
    return outputs


def digits_of(weight: Array) -> tuple[list[Array], int]:
    """Split integer weights [I, O] into signed digits of a base, such that no sum over inputs exceeds 2^24.

    Returns:
        The digits [I, O], the highest first, and the base, the largest power of two that allows it.
    """
    for bits in range(16, 1, -1):
        base = 1 << bits
        digits: list[Array] = []
        left = weight.astype(np.int64)
        while left.any() or not digits:
            digit = (left + base // 2) % base - base // 2
            digits.append(digit)
            left = (left - digit) // base
        if all(np.abs(digit).sum(axis=0).max() * LARGEST_INPUT <= EXACT_FLOAT for digit in digits):
            return digits[::-1], base
    raise UsageError(
        f"policy: expected a first layer whose sums 32-bit floats hold exactly, found one of {len(weight)} inputs with "
        "larger sums; train a policy with fewer features"
    )


# --- The other layers -------------------------------------------------------------------------------------------------


def _answers(model: _Model, first: list[int]) -> int:
    """Add the other layers of each member; returns the members' answers [columns, K]."""
    builder, policy = model.builder, model.policy
    answers: list[int] = []
    for member, hidden in enumerate(first):
        tensor = hidden
        for layer in policy.layers[1:]:
            tensor = builder.add("RELU", [tensor], builder.shape_of(tensor))
            tensor = builder.dense(tensor, layer.weight[member], layer.bias[member])
        if policy.output is OutputKind.LOGITS:
            tensor = builder.dense(tensor, np.array([[-1.0], [1.0]]), np.zeros(1))
        answers.append(tensor)
    if len(answers) == 1:
        return answers[0]
    return builder.add("CONCATENATION", answers, (model.columns, len(answers)), Axis=1)


def _summary(model: _Model, answers: int) -> tuple[int, int]:
    """Add the average [columns, 1] of the members' answers, and their standard deviation (-1 if it is not needed)."""
    builder, columns, members = model.builder, model.columns, model.policy.members
    needed = model.policy.doubt > 0 or model.policy.caution != 0
    if members == 1:
        return answers, builder.constant(np.zeros((columns, 1), FLOAT)) if needed else -1
    shape = (columns, 1)
    average = builder.add("MEAN", [answers, builder.integers(1)], shape, KeepDims=True)
    if not needed:
        return average, -1
    apart = builder.add("SUB", [answers, average], (columns, members))
    squares = builder.add("MUL", [apart, apart], (columns, members))
    variance = builder.add("MEAN", [squares, builder.integers(1)], shape, KeepDims=True)
    return average, builder.add("SQRT", [variance], shape)


def _binary_logits(model: _Model, average: int, deviation: int) -> int:
    """Add the logits [1, 2] of inlining: 0 for not inlining, and the preference for inlining after gate and doubt."""
    builder, policy = model.builder, model.policy
    shape = (1, 1)
    preference = average
    if policy.output is OutputKind.EFFECT_BYTES:
        preference = builder.add("MUL", [average, builder.floats(-1 / policy.bytes_per_unit)], shape)
    if policy.asks_heuristic:
        least = builder.constant(np.zeros(shape, FLOAT))
        if policy.gate is not None:
            unset, is_set = (np.full(shape, min(margin, LARGEST), FLOAT) for margin in policy.gate.margins)
            side = builder.reshape(_is_not_0(model, policy.gate.feature), shape)
            least = builder.add("SELECT_V2", [side, builder.constant(is_set), builder.constant(unset)], shape)
        if policy.doubt > 0:
            doubted = builder.add("MUL", [deviation, builder.floats(policy.doubt)], shape)
            least = builder.add("ADD", [least, doubted], shape)
        believed = builder.add("GREATER", [builder.add("ABS", [average], shape), least], shape, BOOL)
        inlines = builder.reshape(_is_not_0(model, model.problem.default_decision), shape)
        yes, no = (np.full(shape, sign * HEURISTIC_PREFERENCE, FLOAT) for sign in (1, -1))
        left = builder.add("SELECT_V2", [inlines, builder.constant(yes), builder.constant(no)], shape)
        preference = builder.add("SELECT_V2", [believed, preference, left], shape)
    return builder.add("CONCATENATION", [builder.constant(np.zeros(shape, FLOAT)), preference], (1, 2), Axis=1)


def _is_not_0(model: _Model, name: str) -> int:
    """Add the comparison of an input with 0."""
    builder, value = model.builder, model.inputs[name]
    shape, dtype = builder.shape_of(value), builder.dtype_of(value)
    return builder.add("NOT_EQUAL", [value, builder.constant(np.zeros(shape, dtype))], shape, BOOL)


def _column_logits(model: _Model, average: int, deviation: int) -> int:
    """Add the logits [1, columns] of columns; those that may not be chosen get the least float."""
    builder, policy, columns = model.builder, model.policy, model.columns
    logits = average
    if policy.caution:
        careful = builder.add("MUL", [deviation, builder.floats(policy.caution)], (columns, 1))
        logits = builder.add("SUB", [logits, careful], (columns, 1))
    logits = builder.add("MINIMUM", [logits, builder.floats(LOGIT_BOUND)], (columns, 1))
    logits = builder.add("MAXIMUM", [logits, builder.floats(-LOGIT_BOUND)], (columns, 1))
    shape = (1, columns)
    allowed = _is_not_0(model, policy.mask)
    least = builder.constant(np.full(shape, np.finfo(np.float32).min, FLOAT))
    return builder.add("SELECT_V2", [allowed, builder.reshape(logits, shape), least], shape)


# --- Outputs ----------------------------------------------------------------------------------------------------------


def _decide(model: _Model, logits: int, choices: int, *, draws: bool) -> WrittenModel:
    """Add the decision: the largest logit, or with ``draws`` one drawn at random; and finish the model."""
    builder, problem = model.builder, model.problem
    if not draws:
        decision = builder.add("ARG_MAX", [logits, builder.integers(-1)], (1,), INT64, name=f"{OUTPUT}:0", OutputType=4)
        return WrittenModel(graph=builder.finish([decision]), outputs=((problem.decision, _decision_spec(0)),))
    drawn = builder.add("MULTINOMIAL", [logits, builder.constant(np.array(1, INT32))], (1, 1), INT64)
    decision = builder.reshape(drawn, (1,), name=f"{OUTPUT}:1")
    named = builder.reshape(logits, (1, choices), name=f"{OUTPUT}:0")
    spec = TensorSpec(name=OUTPUT, port=0, type="float", shape=(1, choices))
    return WrittenModel(
        graph=builder.finish([named, decision]), outputs=((problem.decision, _decision_spec(1)), (LOGITS, spec))
    )


def _decision_spec(port: int) -> TensorSpec:
    """Make the specification of the decision for LLVM, at an output port."""
    return TensorSpec(name=OUTPUT, port=port, type="int64_t", shape=(1,))


def _priority(model: _Model, average: int) -> WrittenModel:
    """Add the priority that a unit number stands for, in floats; and finish the model."""
    builder, problem = model.builder, model.problem
    shape = (1, 1)
    unit = builder.add("MINIMUM", [average, builder.floats(UNIT_BOUND)], shape)
    unit = builder.add("MAXIMUM", [unit, builder.floats(-UNIT_BOUND)], shape)
    scaled = builder.add("ADD", [unit, builder.floats(UNIT_BOUND)], shape)
    scaled = builder.add("MUL", [scaled, builder.floats(PRIORITIES_PER_UNIT)], shape)
    whole = builder.add("FLOOR", [scaled], shape)
    least = builder.add("MINIMUM", [whole, builder.floats(LARGEST_PRIORITY)], shape)
    decision = builder.reshape(least, (1,), name=f"{OUTPUT}:0")
    spec = TensorSpec(name=OUTPUT, port=0, type="float", shape=(1,))
    return WrittenModel(graph=builder.finish([decision]), outputs=((problem.decision, spec),))

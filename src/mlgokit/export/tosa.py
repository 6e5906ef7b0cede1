"""Export: a policy of inlining becomes TOSA, which LLVM 24 takes for a model of its release mode and makes C++ of.

Everything has three dimensions, the first two of which are 1, and only those operations are used that MLIR 22 lowers
to C++ by EmitC: no reductions, no clamps, no changes of shape. A feature's rank and table are one product: of which
boundaries it reaches, with what each of them adds. Sums of whole numbers are those of the policy's first layer.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.policy.llvms_own import check_llvms_own
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.pretrained import policy_name
from mlgokit.policy.store import load_policy
from mlgokit.policy.tflite.graph import Array
from mlgokit.policy.tflite.steps import Steps, whole_inputs
from mlgokit.policy.tflite.write_policy import EXACT_FLOAT, digits_of
from mlgokit.problems import INLINE_SIZE

NAME = "inliner"
_FLOAT, _INT = "f32", "i64"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTosa:
    """What was written.

    Attributes:
        model: the file.
        inputs: how many features it takes.
        model_bytes: size of the file.
        build: what to add to the command that configures a build of LLVM 24.
        flag: what the compiler that has the model in it takes, to decide by it.
    """

    model: str
    inputs: int
    model_bytes: int
    build: str
    flag: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def export_tosa(path: Path, folder: Path) -> ExportedTosa:
    """Write the policy at ``path`` as TOSA into ``folder``; other files in it stay.

    Raises:
        PolicyError: the policy is not usable, or needs what LLVM does not send.
        UsageError: the policy is not one of inlining that decides alone.
        StorageError: the disk is full or not writable.
    """
    policy, origin = load_policy(path), policy_name(path)
    text = tosa_text(policy, origin=origin)
    model = folder / f"{NAME}.mlir"
    atomic_write(model, text)
    return ExportedTosa(
        model=str(model),
        inputs=len(set(policy.features)),
        model_bytes=len(text),
        build=f'"-DLLVM_MLGO_MODELS={NAME},{model.resolve()},inliner"',
        flag=f"-mllvm {INLINE_SIZE.channel_options[0]} -mllvm -mlgo-model={NAME}",
    )


def tosa_text(policy: Policy, *, origin: str = "policy") -> str:
    """The function that decides as ``policy`` does, as MLIR's text.

    Raises:
        PolicyError: the policy needs what LLVM does not send.
        UsageError: it is not one of inlining, or it asks LLVM's heuristic, which no model in LLVM can.
    """
    check_llvms_own(policy, origin)
    if policy.problem != INLINE_SIZE.name or policy.asks_heuristic:
        found = policy.problem if policy.problem != INLINE_SIZE.name else "a gate or doubt"
        raise UsageError(
            f"policy {origin}: expected one of {INLINE_SIZE.name} without a gate and doubt, found {found}; "
            "`mlgokit export llvm` takes it"
        )
    body = _Body()
    sums = _first_layer(body, policy)
    answers = [_member(body, policy, member, hidden) for member, hidden in enumerate(sums)]
    total = answers[0]
    for answer in answers[1:]:
        total = body.add("add", [total, answer], 1)
    none = body.constant(np.zeros(1))
    # An effect in bytes pays if it is below 0, a preference if it is above.
    ends = [none, total] if policy.output is OutputKind.EFFECT_BYTES else [total, none]
    inlines = body.add("greater", ends, 1, kind="i1")
    decision = body.add("select", [inlines, body.whole(1), body.whole(0)], 1, kind=_INT)
    arguments = ", ".join(
        f'%{name}: {_type(1, _INT)} {{tf_saved_model.index_path = ["{name}"]}}' for name in _features(policy)
    )
    result = f'({_type(1, _INT)} {{tf_saved_model.index_path = ["{INLINE_SIZE.decision}"]}})'
    lines = [f"func.func @{NAME}({arguments}) -> {result} {{", *body.lines, f"return %{decision} : {_type(1, _INT)}"]
    return "\n".join(["// A policy of mlgokit, written by `mlgokit export tosa`.", *lines, "}", ""])


def _features(policy: Policy) -> list[str]:
    """Those that are needed, in LLVM's order."""
    return [name for name in INLINE_SIZE.feature_names if name in policy.features]


def _type(elements: int, kind: str) -> str:
    return f"tensor<1x1x{elements}x{kind}>"


@dataclass(slots=True, kw_only=True)
class _Body:
    """Operations so far; a value is its name, and its type is known by that."""

    lines: list[str] = field(default_factory=list[str])
    types: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, name: str, values: Sequence[str], elements: int, *, kind: str = _FLOAT) -> str:
        """The result of an operation of ``values``."""
        given, result = [self.types[value] for value in values], _type(elements, kind)
        return self._note(
            f"tosa.{name} {', '.join(f'%{value}' for value in values)} : ({', '.join(given)}) -> {result}", result
        )

    def argument(self, name: str) -> str:
        """An argument of the function, as a float."""
        self.types[name] = _type(1, _INT)
        return self.add("cast", [name], 1)

    def constant(self, values: Array) -> str:
        """Floats [n], or [I, O] for a product."""
        flat = np.ascontiguousarray(values, np.float32)
        shape = "x".join(map(str, (1,) * (3 - flat.ndim) + flat.shape))
        kind = f"tensor<{shape}x{_FLOAT}>"
        data = f'"0x{flat.tobytes().hex().upper()}"'
        return self._note(f'"tosa.const"() {{values = dense<{data}> : {kind}}} : () -> {kind}', kind)

    def whole(self, value: int) -> str:
        """One whole number."""
        kind = _type(1, _INT)
        return self._note(f'"tosa.const"() {{values = dense<{value}> : {kind}}} : () -> {kind}', kind)

    def product(self, value: str, matrix: Array) -> str:
        """``value`` times a matrix [I, O]."""
        kind = "tensor<1xf32>"
        zero = self._note(f'"tosa.const"() {{values = dense<0.0> : {kind}}} : () -> {kind}', kind)
        return self.add("matmul", [value, self.constant(matrix), zero, zero], matrix.shape[1])

    def scaled(self, value: str, factor: float, elements: int) -> str:
        """``value`` times a number."""
        shift = self._note('"tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>', "tensor<1xi8>")
        return self.add("mul", [value, self.constant(np.array([factor])), shift], elements)

    def _note(self, operation: str, kind: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"%{name} = {operation}")
        self.types[name] = kind
        return name


def _first_layer(body: _Body, policy: Policy) -> list[str]:
    """Of each member, the outputs of the first layer."""
    layer = policy.integer_layer()
    each = policy.normaliser.width // len(policy.features)
    inputs: list[str] = []
    orders: list[list[int]] = []
    arguments = {name: body.argument(name) for name in _features(policy)}
    for place, name in enumerate(policy.features):
        steps = whole_inputs(policy.normaliser, layer, place, whole_numbers=True)
        inputs.append(_looked_up(body, arguments[name], steps))
        orders.append([each * place + part for part in range(each)])
    found: list[str] = []
    for weight, bias, unit in zip(layer.weight, layer.bias, layer.unit, strict=True):
        digits, base = digits_of(weight)
        outputs = weight.shape[1]
        total = ""
        for digit in digits:
            part = ""
            for value, order in zip(inputs, orders, strict=True):
                one = body.product(value, digit[order])
                part = one if not part else body.add("add", [part, one], outputs)
            total = part if not total else body.add("add", [body.scaled(total, base, outputs), part], outputs)
        total = body.add("add", [total, body.constant(bias)], outputs)
        found.append(body.scaled(total, float(unit), outputs))
    return found


def _looked_up(body: _Body, value: str, steps: Steps) -> str:
    """What the first layer reads of a feature: the lowest value, and what each boundary that is reached adds."""
    values = steps.values.reshape(len(steps.values), -1)
    added: Array = np.diff(values, axis=0)
    if np.abs(added).sum(axis=0).max(initial=0) + np.abs(values[0]).max() > EXACT_FLOAT:
        raise UsageError("policy: expected inputs that floats hold exactly, found larger ones; report this as a bug")
    width, knots = values.shape[1], len(steps.knots)
    lowest = body.constant(values[0])
    if not knots:
        return lowest
    reached = body.add("greater_equal", [value, body.constant(steps.knots)], knots, kind="i1")
    ones = body.add("select", [reached, body.constant(np.ones(knots)), body.constant(np.zeros(knots))], knots)
    return body.add("add", [body.product(ones, added), lowest], width)


def _member(body: _Body, policy: Policy, member: int, hidden: str) -> str:
    """One member's answer: an effect, or its preference for inlining."""
    for layer in policy.layers[1:]:
        inputs, outputs = (int(size) for size in layer.weight.shape[1:])
        none = body.constant(np.zeros(inputs))
        positive = body.add("greater", [hidden, none], inputs, kind="i1")
        hidden = body.add("select", [positive, hidden, none], inputs)
        hidden = body.add(
            "add", [body.product(hidden, layer.weight[member]), body.constant(layer.bias[member])], outputs
        )
    return body.product(hidden, np.array([[-1.0], [1.0]])) if policy.output is OutputKind.LOGITS else hidden

"""Policy files: safetensors for the numbers, one JSON description in the metadata, no code. See docs/formats.md."""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mlgokit.errors import PolicyError
from mlgokit.files import atomic_write
from mlgokit.policy.network import USUAL_TARGETS, Gate, Layer, OutputKind, Policy, Stage
from mlgokit.policy.normaliser import LARGEST, Quantile, SignedLog
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.spec import AdviceKind

FORMAT_VERSION = 1
GATED_FORMAT_VERSION = 2
"""Version of files with a gate, which a reader of version 1 would ignore silently."""
ROWS_FORMAT_VERSION = 3
"""Version of files whose features have different numbers of boundaries; earlier readers would count the padding too."""
DOUBT_FORMAT_VERSION = 4
"""Version of files with doubt; earlier readers would ignore it. They may have all fields of earlier versions."""
EXTENDED_FORMAT_VERSION = 5
"""Version of files with targets other than x86-64, or in which NaN is replaced by another number than 0; earlier
readers would decide for all targets, and take NaN for 0. They may have all fields of earlier versions."""
COST_FORMAT_VERSION = 6
"""Version of files with a cost of the first use of a callee-saved register; earlier readers would leave that cost to
LLVM. They may have all fields of earlier versions."""
PARTS_FORMAT_VERSION = 7
"""Version of files with several parts, each a policy of the same problem for other architectures or another stage."""
RECURRENT_FORMAT_VERSION = 8
"""Version of files with an LSTM, which earlier readers would take for a dense layer. They have logits of inlining, and
may have all fields of versions 1 to 5."""
MOST_PARTS = 16
"""Maximum parts of a policy file."""
MOST_COST = 2**32 - 1
"""Maximum cost of the first use of a callee-saved register; LLVM's option has 32 bits."""
MOST_UNITS = 4096
"""Maximum units of an LSTM."""
DEEPEST_JSON = 16
"""Maximum levels of nesting of the JSON in a policy file; a policy has three."""
MOST_FEATURES = 1024
"""Maximum features of a policy. The plugin makes a table of 1 kB for each; LLVM supplies less than a hundred."""
_PART_FORMAT_VERSIONS = (*range(FORMAT_VERSION, COST_FORMAT_VERSION + 1), RECURRENT_FORMAT_VERSION)
_KEY = "mlgokit.policy"
_TARGET = re.compile(r"[a-z0-9_]{1,32}")
_MOST_TARGETS = 64
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}]', re.DOTALL)
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}


def policy_bytes(policy: Policy) -> bytes:
    """Encode ``policy`` as a file; equal policies give equal bytes."""
    if not policy.others and policy.stage == "compile":
        description, tensors = _encode(policy)
    else:
        encoded = [_encode(part) for part in policy.parts]
        description = {"format_version": PARTS_FORMAT_VERSION, "parts": [one for one, _ in encoded]}
        tensors = {
            f"part{index}.{name}": tensor for index, (_, of) in enumerate(encoded) for name, tensor in of.items()
        }
    contiguous = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    return save(contiguous, metadata={_KEY: json.dumps(description, sort_keys=True)})


def _encode(policy: Policy) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, np.dtype[np.float32]]]]:
    """Make the description and the tensors of one part."""
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION if policy.gate is None else GATED_FORMAT_VERSION,
        "problem": policy.problem,
        "features": list(policy.features),
        "output": policy.output.value,
        "members": policy.members,
        "layers": len(policy.layers),
    }
    tensors: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
    if isinstance(policy.normaliser, SignedLog):
        description |= {"normaliser": "signed-log", "clip": policy.normaliser.clip}
        tensors |= {"normaliser.mean": policy.normaliser.mean, "normaliser.scale": policy.normaliser.scale}
    else:
        description |= {"normaliser": "quantile"}
        tensors |= {"normaliser.boundaries": policy.normaliser.boundaries}
        if policy.normaliser.lengths is not None:
            description |= {"format_version": ROWS_FORMAT_VERSION, "lengths": list(policy.normaliser.lengths)}
    description |= _output_fields(policy)
    description |= _optional_fields(policy)
    description |= _cost_fields(policy)
    if policy.recurrent:
        description |= {"format_version": RECURRENT_FORMAT_VERSION, "recurrent": policy.recurrent}
    description |= {} if policy.stage == "compile" else {"stage": policy.stage}
    if policy.gate is not None:
        margins = [None if math.isinf(margin) else margin for margin in policy.gate.margins]
        description |= {"gate_feature": policy.gate.feature, "gate_margins": margins}
    for index, layer in enumerate(policy.layers):
        tensors |= {f"layer{index}.weight": layer.weight, f"layer{index}.bias": layer.bias}
    return description, tensors


def _output_fields(policy: Policy) -> dict[str, Any]:
    """Make the fields of a file's description that depend on the output kind."""
    match policy.output:
        case OutputKind.EFFECT_BYTES:
            doubt = {"format_version": DOUBT_FORMAT_VERSION, "doubt": policy.doubt} if policy.doubt else {}
            return {"bytes_per_unit": policy.bytes_per_unit, **doubt}
        case OutputKind.COLUMN_LOGIT:
            return {"mask": policy.mask, "caution": policy.caution}
        case OutputKind.LOGITS | OutputKind.PRIORITY | OutputKind.LOG2_FACTOR:
            return {}


def _optional_fields(policy: Policy) -> dict[str, Any]:
    """Make the optional fields of a file's description: targets other than the default, and the treatment of NaN."""
    extensions: dict[str, Any] = {} if policy.targets == USUAL_TARGETS else {"targets": list(policy.targets)}
    if isinstance(policy.normaliser, Quantile) and policy.normaliser.nan:
        extensions |= {"nan": policy.normaliser.nan}
    if not extensions:
        return {}
    doubt = {"doubt": policy.doubt} if policy.output is OutputKind.EFFECT_BYTES else {}
    return {"format_version": EXTENDED_FORMAT_VERSION, **extensions, **doubt}


def _cost_fields(policy: Policy) -> dict[str, Any]:
    """Make the fields of a file's description for the cost of the first use of a callee-saved register, if set."""
    if not policy.csr_first_time_cost:
        return {}
    return {"format_version": COST_FORMAT_VERSION, "csr_first_time_cost": policy.csr_first_time_cost}


def save_policy(policy: Policy, path: Path) -> None:
    """Write ``policy`` to the file ``path``, atomically and synced to disk."""
    atomic_write(path, policy_bytes(policy), durable=True)


def load_policy(path: Path, *, problem: str | None = None) -> Policy:
    """Read a policy file, checking every shape.

    Args:
        path: the file.
        problem: name of the problem that the policy must be for; any if not given.

    Raises:
        PolicyError: the file is missing, malformed, of a newer format, or for another problem.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(
            f"policy {path}: expected a readable file, found: {error.strerror}; check the path"
        ) from error
    return read_policy_bytes(data, str(path), problem=problem)


def read_policy_bytes(data: bytes, path: str, *, problem: str | None = None) -> Policy:
    """Parse the bytes of a policy file; errors name it ``path``.

    Raises:
        PolicyError: the bytes are malformed, of a newer format, or for another problem.
    """
    try:
        text = data[8 : 8 + int.from_bytes(data[:8], "little")].decode()
        _check_nesting(text)
        tensors = load(data)
        header: dict[str, Any] = json.loads(text)
        metadata: dict[str, str] = header.get("__metadata__") or {}
        description = _json_object(metadata[_KEY])
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise PolicyError(
            f"policy {path}: expected a safetensors file with the metadata {_KEY!r}, found something else "
            f"({error}); name a file that `mlgokit train` wrote"
        ) from error
    parts = _described_parts(description, path)
    wanted = problem or parts[0][0].get("problem")
    for part, prefix in parts:
        if part.get("format_version") not in _PART_FORMAT_VERSIONS:
            # A part has no parts itself.
            most = f"{COST_FORMAT_VERSION} or {RECURRENT_FORMAT_VERSION} of each part"
            raise PolicyError(
                f"policy {path}: expected format version {FORMAT_VERSION} to "
                f"{most if prefix else RECURRENT_FORMAT_VERSION}, "
                f"found {part.get('format_version')!r}; use the mlgokit that wrote it or train again"
            )
        if part.get("problem") != wanted:
            raise PolicyError(
                f"policy {path}: expected a policy for {wanted}, found one for {part.get('problem')!r}; "
                "name a policy for this problem"
            )
    try:
        return join_parts([_build(part, _own_tensors(tensors, prefix)) for part, prefix in parts])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PolicyError(
            f"policy {path}: its tensors do not fit its description ({error}); train or export it again"
        ) from error


def _described_parts(description: dict[str, Any], path: str) -> list[tuple[dict[str, Any], str]]:
    """List the descriptions in a file, each with the prefix of the names of its tensors."""
    if description.get("format_version") != PARTS_FORMAT_VERSION:
        return [(description, "")]
    parts = description.get("parts")
    listed = cast("list[object]", parts) if isinstance(parts, list) else []
    found = [cast("dict[str, Any]", part) for part in listed if isinstance(part, dict)]
    if not 1 <= len(found) <= MOST_PARTS or len(found) != len(listed):
        raise PolicyError(
            f"policy {path}: expected 1 to {MOST_PARTS} descriptions as parts, found {len(listed)}; train or export it "
            "again"
        )
    return [(part, f"part{index}.") for index, part in enumerate(found)]


def _own_tensors(tensors: dict[str, np.ndarray[Any, Any]], prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    """Choose the tensors whose names begin with a prefix, and remove the prefix from the names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def join_parts(policies: Sequence[Policy]) -> Policy:
    """Make one policy of several for the same problem, each of which decides for architectures or a stage of its own.

    Raises:
        ValueError: two are for the same architecture and stage, for different problems, or there are more than a file
            can have.

    Example:
        >>> from mlgokit.policy.pretrained import policy_file
        >>> size = load_policy(policy_file("builtin:size"))
        >>> join_parts([size]) == size
        True
    """
    parts = [part for policy in policies for part in policy.parts]
    targets = Counter((target, part.stage) for part in parts for target in part.targets)
    if twice := [target for (target, _), count in targets.items() if count > 1]:
        raise ValueError(f"targets: expected each architecture in one part, found {', '.join(twice)} in several")
    if len(problems := sorted({part.problem for part in parts})) > 1:
        raise ValueError(f"problem: expected one for all parts, found {' and '.join(problems)}")
    if len(parts) > MOST_PARTS:
        raise ValueError(f"parts: expected at most {MOST_PARTS}, found {len(parts)}")
    return dataclasses.replace(parts[0], others=tuple(parts[1:]))


def _check_nesting(text: str) -> None:
    """Refuse JSON nested deeper than :data:`DEEPEST_JSON`, as ``plugin/shared/Policy.cpp`` does."""
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth = max(0, depth + _STEPS.get(bracket, 0))
        if depth > DEEPEST_JSON:
            raise ValueError(f"JSON of more than {DEEPEST_JSON} levels")


def _json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object of bounded nesting."""
    _check_nesting(text)
    value: object = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("the description is not a JSON object")
    return cast("dict[str, Any]", value)


def _expect(tensors: dict[str, np.ndarray[Any, Any]], name: str, shape: tuple[int | None, ...]) -> Any:
    """Look up a tensor of finite float32 numbers; ``None`` in ``shape`` stands for any size above 0."""
    tensor = tensors[name]
    fits = tensor.ndim == len(shape) and all(
        have > 0 and want in (None, have) for want, have in zip(shape, tensor.shape, strict=True)
    )
    if tensor.dtype != np.float32 or not fits or not np.isfinite(tensor).all():
        raise ValueError(f"{name}: expected finite float32 {shape}, found {tensor.dtype} {tensor.shape}")
    return tensor


def _number(description: dict[str, Any], key: str, *, above: float) -> float:
    """Read a finite number of the description that must be greater than ``above``."""
    value = float(description[key])
    if not (math.isfinite(value) and value > above):
        raise ValueError(f"{key}: expected a number above {above:g}, found {value:g}")
    return value


def _gate(description: dict[str, Any], features: tuple[str, ...]) -> Gate | None:
    """Read the gate, two margins between which a feature chooses; ``None`` if the description has none."""
    version = description["format_version"]
    if version == FORMAT_VERSION or (version != GATED_FORMAT_VERSION and "gate_feature" not in description):
        return None
    feature, margins = description["gate_feature"], description["gate_margins"]
    if feature not in features:
        raise ValueError(f"gate_feature: expected one of the features, found {feature!r}")
    if_zero, if_nonzero = (math.inf if margin is None else float(margin) for margin in margins)
    if not (if_zero >= 0 and if_nonzero >= 0):
        raise ValueError(f"gate_margins: expected null or numbers of at least 0, found {margins}")
    return Gate(feature=feature, margins=(if_zero, if_nonzero))


def _doubt(description: dict[str, Any]) -> float:
    """Read the doubt of a policy of effects; 0 in files older than doubt, which must then have no caution either."""
    if float(description.get("caution", 0)) != 0:
        raise ValueError(
            "caution: expected 0 in a policy that predicts effects, for which caution is no longer supported, "
            f"found {description['caution']!r}"
        )
    if description["format_version"] < DOUBT_FORMAT_VERSION:
        return 0.0
    doubt = float(description["doubt"])
    if not (math.isfinite(doubt) and doubt >= 0):
        raise ValueError(f"doubt: expected a number that is not negative, found {doubt:g}")
    return doubt


def _targets(description: dict[str, Any]) -> tuple[str, ...]:
    """Read the architectures of the description; x86-64 in files that name none."""
    if description["format_version"] < EXTENDED_FORMAT_VERSION or "targets" not in description:
        return USUAL_TARGETS
    listed = description["targets"]
    names = cast("list[object]", listed) if isinstance(listed, list) else []
    targets = tuple(name for name in names if isinstance(name, str) and _TARGET.fullmatch(name))
    if not 1 <= len(targets) <= _MOST_TARGETS or len(targets) != len(names):
        raise ValueError(f"targets: expected 1 to {_MOST_TARGETS} names of architectures, found {listed!r}")
    return targets


def _stage(description: dict[str, Any]) -> Stage:
    """Read the stage of the description; whole compilations if it names none."""
    if "stage" not in description:
        return "compile"
    if description["stage"] != "link" or description["problem"] != INLINE_SIZE.name:
        raise ValueError(
            f"stage: expected none other than 'link', and only for {INLINE_SIZE.name}, found {description['stage']!r} "
            f"for {description['problem']}"
        )
    return "link"


def _count(description: dict[str, Any], key: str) -> int:
    """Read a whole number of the description that must be 0 or greater."""
    value = description[key]
    if type(value) is not int or value < 0:
        raise ValueError(f"{key}: expected a whole number that is not negative, found {value!r}")
    return value


def _csr_first_time_cost(description: dict[str, Any], output: OutputKind) -> int:
    """Read the cost of the first use of a callee-saved register; 0 in older files."""
    if description["format_version"] != COST_FORMAT_VERSION:
        return 0
    cost = _count(description, "csr_first_time_cost")
    if output is not OutputKind.LOG2_FACTOR or not 1 <= cost <= MOST_COST:
        raise ValueError(
            f"csr_first_time_cost: expected a whole number from 1 to {MOST_COST}, with the output log2-factor only, "
            f"found {cost} with the output {output.value}"
        )
    return cost


def _recurrent(description: dict[str, Any], output: OutputKind, depth: int) -> int:
    """Read the number of units of the LSTM; 0 in files of other versions."""
    if description["format_version"] != RECURRENT_FORMAT_VERSION:
        return 0
    units = _count(description, "recurrent")
    if (
        output is not OutputKind.LOGITS
        or description["problem"] != INLINE_SIZE.name
        or not 1 <= units <= MOST_UNITS
        or depth < 3
    ):
        raise ValueError(
            f"recurrent: expected 1 to {MOST_UNITS} units, in at least 3 layers with logits for {INLINE_SIZE.name}, "
            f"found {units} in {depth} layers with {output.value} for {description['problem']}"
        )
    return units


def _quantile(description: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]], count: int) -> Quantile:
    """Read a normaliser of quantile boundaries for ``count`` features."""
    boundaries = _expect(tensors, "normaliser.boundaries", (count, None))
    if (np.diff(boundaries, axis=1) < 0).any():
        raise ValueError("normaliser.boundaries: expected ascending rows, found one that descends")
    version = description["format_version"]
    nan = float(description.get("nan", 0)) if version >= EXTENDED_FORMAT_VERSION else 0.0
    if not abs(nan) <= LARGEST:
        raise ValueError(f"nan: expected a number within the range of a 32-bit float, found {nan:g}")
    if version < ROWS_FORMAT_VERSION or (version >= DOUBT_FORMAT_VERSION and "lengths" not in description):
        return Quantile(boundaries=boundaries, nan=nan)
    lengths = tuple(int(length) for length in description["lengths"])
    if len(lengths) != count or not all(0 < length <= boundaries.shape[1] for length in lengths):
        raise ValueError(f"lengths: expected {count} numbers from 1 to {boundaries.shape[1]}, found {lengths}")
    return Quantile(boundaries=boundaries, lengths=lengths, nan=nan)


def _output(description: dict[str, Any]) -> OutputKind:
    """Read the meaning of the last layer."""
    known = [output.value for output in OutputKind]
    if description["output"] not in known:
        raise ValueError(f"output: expected one of {', '.join(known)}, found {description['output']!r}")
    return OutputKind(description["output"])


def _build(description: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> Policy:
    """Make the policy of a file's description and tensors, and check every field."""
    features = tuple(str(name) for name in description["features"])
    count = len(features)
    members, depth = int(description["members"]), int(description["layers"])
    if not 1 <= count <= MOST_FEATURES or not 1 <= depth <= 64 or not 1 <= members <= 1024:
        raise ValueError(
            f"expected 1 to {MOST_FEATURES} features, 1 to 64 layers, and 1 to 1024 members; "
            f"found {count}, {depth} and {members}"
        )
    match description["normaliser"]:
        case "signed-log":
            normaliser = SignedLog(
                mean=_expect(tensors, "normaliser.mean", (count,)),
                scale=_expect(tensors, "normaliser.scale", (count,)),
                clip=_number(description, "clip", above=0),
            )
        case "quantile":
            normaliser = _quantile(description, tensors, count)
        case other:
            raise ValueError(f"normaliser: expected signed-log or quantile, found {other!r}")
    output, problem = _output(description), str(description["problem"])
    if problem in PROBLEMS and PROBLEMS[problem].advice_kind is not output.advice_kind:
        raise ValueError(
            f"output: expected an output of the kind {PROBLEMS[problem].advice_kind.value} for {problem}, "
            f"found {output.value!r}"
        )
    numbers = output.advice_kind is AdviceKind.REAL
    if numbers and problem in PROBLEMS and output is not OutputKind.for_numbers(problem):
        raise ValueError(
            f"output: expected {OutputKind.for_numbers(problem).value} for {problem}, found {output.value!r}"
        )
    width, units = normaliser.width, _recurrent(description, output, depth)
    layers: list[Layer] = []
    for index in range(depth):
        gates = units > 0 and index + 2 == depth
        outputs = output.width if index + 1 == depth else 4 * units if gates else None
        weight = _expect(tensors, f"layer{index}.weight", (members, width + units * gates, outputs))
        layers.append(Layer(weight, _expect(tensors, f"layer{index}.bias", (members, weight.shape[2]))))
        width = units if gates else weight.shape[2]
    effect, column = output is OutputKind.EFFECT_BYTES, output is OutputKind.COLUMN_LOGIT
    mask = description["mask"] if column else ""
    if not isinstance(mask, str) or column != bool(mask):
        raise ValueError(
            "mask: expected the name of a feature, in a policy whose output is for columns and no other, found "
            f"{mask!r}"
        )
    return Policy(
        problem=problem,
        features=features,
        normaliser=normaliser,
        layers=tuple(layers),
        output=output,
        bytes_per_unit=_number(description, "bytes_per_unit", above=0) if effect else 1.0,
        caution=_number(description, "caution", above=-math.inf) if column else 0.0,
        doubt=_doubt(description) if effect else 0.0,
        mask=mask,
        csr_first_time_cost=_csr_first_time_cost(description, output),
        gate=_gate(description, features) if effect or numbers else None,
        targets=_targets(description),
        recurrent=units,
        stage=_stage(description),
    )

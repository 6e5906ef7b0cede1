"""Policy files: safetensors for the numbers, one JSON description in the metadata, no code. See docs/formats.md."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mlgokit.dataset.normaliser import Quantile, SignedLog
from mlgokit.errors import PolicyError
from mlgokit.manifest import atomic_write
from mlgokit.policy.network import Layer, OutputKind, Policy

FORMAT_VERSION = 1
_KEY = "mlgokit.policy"


def policy_bytes(policy: Policy) -> bytes:
    """The file for ``policy``; the same policy always gives the same bytes."""
    description: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
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
    if policy.output is OutputKind.EFFECT_BYTES:
        description |= {"bytes_per_unit": policy.bytes_per_unit, "caution": policy.caution}
    for index, layer in enumerate(policy.layers):
        tensors |= {f"layer{index}.weight": layer.weight, f"layer{index}.bias": layer.bias}
    contiguous = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    return save(contiguous, metadata={_KEY: json.dumps(description, sort_keys=True)})


def save_policy(policy: Policy, path: Path) -> None:
    """Write ``policy`` to ``path``, atomically."""
    atomic_write(path, policy_bytes(policy))


def load_policy(path: Path, *, problem: str | None = None) -> Policy:
    """Read a policy file, checking every shape.

    Args:
        path: the file.
        problem: when given, the problem that the policy must be for.

    Raises:
        PolicyError: the file is missing, malformed, too new, or for another problem.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(
            f"policy {path}: expected a readable file, found: {error.strerror}; check the path"
        ) from error
    try:
        tensors = load(data)
        header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata: dict[str, str] = header.get("__metadata__") or {}
        found = _json_object(metadata[_KEY])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise PolicyError(
            f"policy {path}: expected a safetensors file with the metadata {_KEY!r}, found something else "
            f"({error}); name a file that `mlgokit train` wrote"
        ) from error
    if found.get("format_version") != FORMAT_VERSION:
        raise PolicyError(
            f"policy {path}: expected format version {FORMAT_VERSION}, found {found.get('format_version')!r}; "
            "use the mlgokit that wrote it or train again"
        )
    if problem is not None and found.get("problem") != problem:
        raise PolicyError(
            f"policy {path}: expected a policy for {problem}, found one for {found.get('problem')!r}; "
            "name a policy for this problem"
        )
    try:
        return _build(found, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise PolicyError(
            f"policy {path}: its tensors do not fit its description ({error}); train or export it again"
        ) from error


def _json_object(text: str) -> dict[str, Any]:
    value: object = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("the description is not a JSON object")
    return cast("dict[str, Any]", value)


def _expect(tensors: dict[str, np.ndarray[Any, Any]], name: str, shape: tuple[int | None, ...]) -> Any:
    tensor = tensors[name]
    fits = tensor.ndim == len(shape) and all(
        want in (None, have) for want, have in zip(shape, tensor.shape, strict=True)
    )
    if tensor.dtype != np.float32 or not fits or not np.isfinite(tensor).all():
        raise ValueError(f"{name}: expected finite float32 {shape}, found {tensor.dtype} {tensor.shape}")
    return tensor


def _build(description: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> Policy:
    features = tuple(str(name) for name in description["features"])
    count = len(features)
    match description["normaliser"]:
        case "signed-log":
            normaliser = SignedLog(
                mean=_expect(tensors, "normaliser.mean", (count,)),
                scale=_expect(tensors, "normaliser.scale", (count,)),
                clip=float(description["clip"]),
            )
        case "quantile":
            normaliser = Quantile(boundaries=_expect(tensors, "normaliser.boundaries", (count, None)))
        case other:
            raise ValueError(f"normaliser: expected signed-log or quantile, found {other!r}")
    output = OutputKind(description["output"])
    members, depth, width = int(description["members"]), int(description["layers"]), normaliser.width
    last = 2 if output is OutputKind.LOGITS else 1
    layers: list[Layer] = []
    for index in range(depth):
        outputs = last if index + 1 == depth else None
        weight = _expect(tensors, f"layer{index}.weight", (members, width, outputs))
        width = weight.shape[2]
        layers.append(Layer(weight, _expect(tensors, f"layer{index}.bias", (members, width))))
    if not layers or not features:
        raise ValueError("expected at least one feature and one layer")
    return Policy(
        problem=str(description["problem"]),
        features=features,
        normaliser=normaliser,
        layers=tuple(layers),
        output=output,
        bytes_per_unit=float(description.get("bytes_per_unit", 1.0)),
        caution=float(description.get("caution", 0.0)),
    )

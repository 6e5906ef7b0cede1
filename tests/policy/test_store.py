"""Policy files: what is written comes back; what is wrong is named."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from mlgokit.dataset.normaliser import Quantile, SignedLog
from mlgokit.errors import PolicyError
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.store import load_policy, policy_bytes, save_policy


def make_policy(*, features: tuple[str, ...] = ("a", "b"), output: OutputKind = OutputKind.EFFECT_BYTES) -> Policy:
    rng = np.random.default_rng(1)
    count = len(features)
    if output is OutputKind.EFFECT_BYTES:
        normaliser = SignedLog(mean=np.ones(count, np.float32), scale=np.full(count, 0.5, np.float32), clip=4.0)
    else:
        normaliser = Quantile(boundaries=np.sort(rng.normal(size=(count, 7)).astype(np.float32) * 9, axis=1))
    widths = [normaliser.width, 5, 2 if output is OutputKind.LOGITS else 1]
    layers = tuple(
        Layer(
            rng.normal(size=(3, inputs, outputs)).astype(np.float32),
            rng.normal(size=(3, outputs)).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise(widths)
    )
    return Policy(
        problem="inline-size", features=features, normaliser=normaliser, layers=layers, output=output,
        bytes_per_unit=5.0, caution=0.5,
    )  # fmt: skip


@pytest.mark.parametrize("output", list(OutputKind))
def test_round_trip(tmp_path: Path, output: OutputKind) -> None:
    policy = make_policy(output=output)
    save_policy(policy, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy", problem="inline-size")
    values = np.random.default_rng(2).integers(-5000, 5000, (50, 2))
    np.testing.assert_array_equal(policy.preferences(values), again.preferences(values))
    assert policy_bytes(again) == policy_bytes(policy)


def test_another_problem_is_refused(tmp_path: Path) -> None:
    save_policy(make_policy(), tmp_path / "p.policy")
    with pytest.raises(PolicyError, match="expected a policy for regalloc-eviction, found one for 'inline-size'"):
        load_policy(tmp_path / "p.policy", problem="regalloc-eviction")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = policy_bytes(make_policy())
    path = tmp_path / "p.policy"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(PolicyError):
            load_policy(path)


def rewritten(data: bytes, **changes: object) -> bytes:
    """The file with keys of its description changed."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    description = json.loads(header["__metadata__"]["mlgokit.policy"]) | changes
    header["__metadata__"]["mlgokit.policy"] = json.dumps(description)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "expected format version 1, found 2"),
        ({"features": ["a"]}, "its tensors do not fit its description"),
        ({"members": 4}, "its tensors do not fit its description"),
        ({"normaliser": "magic"}, "expected signed-log or quantile, found 'magic'"),
        ({"layers": 0}, "expected at least one feature and one layer"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_policy()), **changes))
    with pytest.raises(PolicyError, match=message):
        load_policy(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"no\.policy: expected a readable file, found: No such file"):
        load_policy(tmp_path / "no.policy")

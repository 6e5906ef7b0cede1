"""Policy files: what is written comes back; what is wrong is named."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgokit.errors import PolicyError, UsageError
from mlgokit.policy.importance import check_explained
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy, Stage
from mlgokit.policy.normaliser import BELOW_LARGEST, Quantile, SignedLog
from mlgokit.policy.store import join_parts, load_policy, policy_bytes, save_policy
from mlgokit.policy.targets import check_exportable_to_llvm

PROBLEM_OF = {
    OutputKind.EFFECT_BYTES: "inline-size",
    OutputKind.LOGITS: "inline-size",
    OutputKind.COLUMN_LOGIT: "regalloc-eviction",
    OutputKind.PRIORITY: "regalloc-priority",
    OutputKind.LOG2_FACTOR: "regalloc-weight",
}


def make_policy(*, features: tuple[str, ...] = ("a", "b"), output: OutputKind = OutputKind.EFFECT_BYTES) -> Policy:
    rng = np.random.default_rng(1)
    count = len(features)
    if output is OutputKind.LOGITS:
        normaliser = Quantile(boundaries=np.sort(rng.normal(size=(count, 7)).astype(np.float32) * 9, axis=1))
    else:
        normaliser = SignedLog(mean=np.ones(count, np.float32), scale=np.full(count, 0.5, np.float32), clip=4.0)
    widths = [normaliser.width, 5, output.width]
    layers = tuple(
        Layer(
            rng.normal(size=(3, inputs, outputs)).astype(np.float32),
            rng.normal(size=(3, outputs)).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise(widths)
    )
    return Policy(
        problem=PROBLEM_OF[output], features=features, normaliser=normaliser, layers=layers, output=output,
        bytes_per_unit=5.0, caution=0.5 if output is OutputKind.COLUMN_LOGIT else 0.0,
        mask="mask" if PROBLEM_OF[output] == "regalloc-eviction" else "",
    )  # fmt: skip


@pytest.mark.parametrize("output", list(OutputKind))
def test_a_saved_policy_is_loaded_with_the_same_answers(tmp_path: Path, output: OutputKind) -> None:
    policy = make_policy(output=output)
    save_policy(policy, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy", problem=PROBLEM_OF[output])
    values = np.random.default_rng(2).integers(-5000, 5000, (50, 2))
    np.testing.assert_array_equal(policy.answers(values), again.answers(values))
    assert policy_bytes(again) == policy_bytes(policy)


@pytest.mark.parametrize("output", list(OutputKind))
def test_a_policy_for_other_processors_says_so_in_a_version_of_its_own(tmp_path: Path, output: OutputKind) -> None:
    usual = make_policy(output=output)
    policy = replace(usual, targets=("aarch64", "riscv64"))
    save_policy(policy, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy")
    assert again.targets == ("aarch64", "riscv64")
    assert policy_bytes(again) == policy_bytes(policy)
    assert policy_bytes(replace(again, targets=usual.targets)) == policy_bytes(usual)
    assert b'\\"format_version\\": 5' in policy_bytes(policy)


@pytest.mark.parametrize("targets", [(), ("AArch64",), ("a",) * 65, ("aarch64-linux-gnu",)])
def test_targets_that_are_no_architectures_are_refused(tmp_path: Path, targets: tuple[str, ...]) -> None:
    save_policy(replace(make_policy(), targets=targets), tmp_path / "p.policy")
    with pytest.raises(PolicyError, match="targets: expected 1 to 64 names of architectures, found"):
        load_policy(tmp_path / "p.policy")


def test_a_file_from_before_the_other_kinds_of_advice_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.policy"
    save_policy(make_policy(), path)
    size = int.from_bytes(path.read_bytes()[:8], "little")
    keys = json.loads(json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["mlgokit.policy"])
    assert set(keys) == {
        "format_version", "problem", "features", "normaliser", "clip", "members", "layers", "output", "bytes_per_unit",
    }  # fmt: skip
    assert load_policy(path).mask == ""


def test_the_caution_of_effects_is_read_only_if_it_did_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_policy()), caution=0.0))
    assert policy_bytes(load_policy(path)) == policy_bytes(make_policy())
    path.write_bytes(rewritten(policy_bytes(make_policy()), caution=0.5))
    with pytest.raises(PolicyError, match=r"caution: expected 0 in a policy that predicts effects, .* found 0\.5"):
        load_policy(path)


@pytest.mark.parametrize("gate", [None, Gate(feature="b", margins=(math.inf, 0.25))])
def test_doubt_comes_back_and_readers_of_older_versions_refuse_it(tmp_path: Path, gate: Gate | None) -> None:
    for normaliser in (make_policy().normaliser, Quantile(boundaries=np.zeros((2, 7), np.float32), lengths=(7, 3))):
        width = normaliser.width
        layer = Layer(np.ones((2, width, 1), np.float32), np.zeros((2, 1), np.float32))
        policy = replace(make_policy(), normaliser=normaliser, layers=(layer,), gate=gate, doubt=1.5)
        save_policy(policy, tmp_path / "p.policy")
        again = load_policy(tmp_path / "p.policy")
        assert (again.doubt, again.gate) == (1.5, gate)
        assert policy_bytes(again) == policy_bytes(policy)
        assert b'format_version\\": 4' in policy_bytes(policy)
    (tmp_path / "p.policy").write_bytes(rewritten(policy_bytes(make_policy()), format_version=4, doubt=0))
    assert policy_bytes(load_policy(tmp_path / "p.policy")) == policy_bytes(make_policy())


@pytest.mark.parametrize("targets", [("x86_64",), ("aarch64",)])
def test_a_cost_of_callee_saved_registers_comes_back_and_older_readers_refuse_it(
    tmp_path: Path, targets: tuple[str, ...]
) -> None:
    usual = replace(make_policy(output=OutputKind.LOG2_FACTOR), targets=targets)
    policy = replace(usual, csr_first_time_cost=16384)
    save_policy(policy, tmp_path / "p.policy")

    again = load_policy(tmp_path / "p.policy")

    assert (again.csr_first_time_cost, again.targets) == (16384, targets)
    assert policy_bytes(again) == policy_bytes(policy)
    assert b'format_version\\": 6' in policy_bytes(policy)
    assert policy_bytes(replace(again, csr_first_time_cost=0)) == policy_bytes(usual)


@pytest.mark.parametrize("output", [OutputKind.LOG2_FACTOR, OutputKind.PRIORITY])
@pytest.mark.parametrize("cost", [0, -1, 1.5, 2**32, "much", None])
def test_a_cost_that_llvm_does_not_take_is_refused(tmp_path: Path, output: OutputKind, cost: object) -> None:
    cost = cost if output is OutputKind.LOG2_FACTOR else 16384
    data = policy_bytes(make_policy(output=output))
    (tmp_path / "p.policy").write_bytes(rewritten(data, format_version=6, csr_first_time_cost=cost))

    with pytest.raises(PolicyError, match="csr_first_time_cost: expected a whole number"):
        load_policy(tmp_path / "p.policy")


@pytest.mark.parametrize("doubt", [-1, "much", None, 1e999])
def test_an_invalid_doubt_is_refused(tmp_path: Path, doubt: object) -> None:
    (tmp_path / "p.policy").write_bytes(rewritten(policy_bytes(make_policy()), format_version=4, doubt=doubt))

    with pytest.raises(PolicyError, match="its tensors do not fit its description"):
        load_policy(tmp_path / "p.policy")


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


GATED: dict[str, object] = {"format_version": 2, "gate_feature": "a", "gate_margins": [None, 1.5]}


def test_a_gate_comes_back_and_readers_of_version_1_refuse_it(tmp_path: Path) -> None:
    policy = replace(make_policy(), gate=Gate(feature="b", margins=(math.inf, 0.25)))
    save_policy(policy, tmp_path / "p.policy")
    assert load_policy(tmp_path / "p.policy").gate == policy.gate
    assert b'format_version\\": 2' in policy_bytes(policy)
    (tmp_path / "p.policy").write_bytes(rewritten(policy_bytes(make_policy()), **GATED))
    assert load_policy(tmp_path / "p.policy").gate == Gate(feature="a", margins=(math.inf, 1.5))


def test_rows_of_different_lengths_come_back_and_older_readers_refuse_them(tmp_path: Path) -> None:
    policy = make_policy(output=OutputKind.LOGITS)
    assert isinstance(policy.normaliser, Quantile)
    rows = replace(policy, normaliser=replace(policy.normaliser, lengths=(7, 3)))
    save_policy(rows, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy")
    values = np.random.default_rng(2).integers(-20, 20, (50, 2))

    assert isinstance(again.normaliser, Quantile)
    assert again.normaliser.lengths == (7, 3)
    np.testing.assert_array_equal(rows.answers(values), again.answers(values))
    assert (rows.answers(values) != policy.answers(values)).any()
    assert b'format_version\\": 3' in policy_bytes(rows)


@pytest.mark.parametrize("output", [OutputKind.LOGITS, OutputKind.EFFECT_BYTES])
@pytest.mark.parametrize("lengths", [None, (7, 3)])
def test_what_nan_counts_as_comes_back_and_older_readers_refuse_it(
    tmp_path: Path, output: OutputKind, lengths: tuple[int, ...] | None
) -> None:
    policy = make_policy(output=OutputKind.LOGITS)
    assert isinstance(policy.normaliser, Quantile)
    usual = replace(policy, normaliser=replace(policy.normaliser, lengths=lengths))
    if output is OutputKind.EFFECT_BYTES:
        last = usual.layers[-1]
        usual = replace(
            usual,
            output=output,
            doubt=0.5,
            layers=(*usual.layers[:-1], Layer(last.weight[..., :1], last.bias[..., :1])),
        )
    largest = replace(usual, normaliser=replace(usual.normaliser, nan=BELOW_LARGEST))
    save_policy(largest, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy")
    values = np.array([[np.nan, 1.0], [2.0, np.nan]])

    assert isinstance(again.normaliser, Quantile)
    assert (again.normaliser.nan, again.normaliser.lengths) == (BELOW_LARGEST, lengths)
    assert again.doubt == usual.doubt
    np.testing.assert_array_equal(again.answers(values), usual.answers(np.nan_to_num(values, nan=BELOW_LARGEST)))
    np.testing.assert_array_equal(usual.answers(values), usual.answers(np.nan_to_num(values, nan=0)))
    assert (again.answers(values) != usual.answers(values)).any()
    assert b'format_version\\": 5' in policy_bytes(largest)
    for wrong in (1e300, math.inf, None):
        (tmp_path / "p.policy").write_bytes(rewritten(policy_bytes(largest), nan=wrong))
        with pytest.raises(PolicyError, match="its tensors do not fit its description"):
            load_policy(tmp_path / "p.policy")


@pytest.mark.parametrize("lengths", [[7], [7, 0], [8, 7], None])
def test_lengths_that_do_not_fit_are_refused(tmp_path: Path, lengths: object) -> None:
    changed = rewritten(policy_bytes(make_policy(output=OutputKind.LOGITS)), format_version=3, lengths=lengths)
    (tmp_path / "p.policy").write_bytes(changed)

    with pytest.raises(PolicyError, match="its tensors do not fit its description"):
        load_policy(tmp_path / "p.policy")


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
        ({"format_version": 9}, "expected format version 1 to 8, found 9"),
        (
            {"format_version": 8, "recurrent": 3},
            "expected 1 to 4096 units, in at least 3 layers with logits for inline",
        ),
        ({"format_version": 7}, "expected 1 to 16 descriptions as parts, found 0"),
        ({"format_version": 7, "parts": [{}, 1]}, "expected 1 to 16 descriptions as parts, found 2"),
        ({"format_version": 7, "parts": [{}]}, "expected format version 1 to 6 or 8 of each part, found None"),
        (
            {"format_version": 7, "parts": [{"format_version": 7}]},
            "expected format version 1 to 6 or 8 of each part, found 7",
        ),
        ({"format_version": 2}, r"its tensors do not fit its description \('gate_feature'\)"),
        (GATED | {"gate_feature": "c"}, "gate_feature: expected one of the features, found 'c'"),
        (GATED | {"gate_margins": [0, -1]}, r"null or numbers of at least 0, found \[0, -1\]"),
        (GATED | {"gate_margins": [0]}, "its tensors do not fit its description"),
        ({"features": ["a"]}, "its tensors do not fit its description"),
        ({"members": 4}, "its tensors do not fit its description"),
        ({"normaliser": "magic"}, "expected signed-log or quantile, found 'magic'"),
        ({"features": ["a"] * 1025}, "expected 1 to 1024 features"),
        ({"layers": 0}, "expected 1 to 1024 features, 1 to 64 layers"),
        ({"members": 0}, "1 to 1024 members; found 2, 2 and 0"),
        ({"clip": 0}, "clip: expected a number above 0, found 0"),
        ({"bytes_per_unit": -1}, "bytes_per_unit: expected a number above 0, found -1"),
        (
            {"problem": "regalloc-priority"},
            "expected an output of the kind real for regalloc-priority, found 'effect-bytes'",
        ),
        ({"output": "column-effect"}, "output: expected one of effect-bytes, .* log2-factor, found 'column-effect'"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_policy()), **changes))
    with pytest.raises(PolicyError, match=message):
        load_policy(path)


def make_recurrent(units: int = 4) -> Policy:
    """A policy of logits with an LSTM before its last layer."""
    rng = np.random.default_rng(6)
    policy = make_policy(output=OutputKind.LOGITS)
    shapes = [(5 + units, 4 * units), (units, 2)]
    layers = tuple(
        Layer(rng.normal(size=(3, *shape)).astype(np.float32), rng.normal(size=(3, shape[1])).astype(np.float32))
        for shape in shapes
    )
    return replace(policy, layers=(policy.layers[0], *layers), recurrent=units)


def test_a_recurrent_policy_is_loaded_as_it_was(tmp_path: Path) -> None:
    policy = make_recurrent()
    save_policy(policy, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy")
    assert (again.recurrent, policy_bytes(again)) == (4, policy_bytes(policy))
    values = np.random.default_rng(2).integers(-50, 50, (20, 2))
    np.testing.assert_array_equal(policy.answers(values), again.answers(values))
    parts = join_parts([policy, replace(make_policy(), targets=("arm",)), replace(policy, stage="link")])
    save_policy(parts, tmp_path / "parts.policy")
    assert [part.recurrent for part in load_policy(tmp_path / "parts.policy").parts] == [4, 0, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recurrent": 0}, "recurrent: expected 1 to 4096 units, .*, found 0 in 3 layers with logits for inline-size"),
        ({"recurrent": 3}, "layer1.weight: expected finite float32 .*, found"),
        ({"recurrent": "4"}, "recurrent: expected a whole number"),
        ({"problem": "pass-selection"}, "with logits for inline-size, found 4 in 3 layers with logits for pass-selec"),
        ({"format_version": 5}, "its tensors do not fit its description"),
    ],
)
def test_a_wrong_lstm_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_recurrent()), **changes))
    with pytest.raises(PolicyError, match=message):
        load_policy(path)


def test_memory_goes_from_row_to_row_and_begins_anew_without_one() -> None:
    policy = make_recurrent()
    values = np.random.default_rng(2).integers(-50, 50, (12, 2))
    whole = policy.preferences(values)
    memory = policy.start_memory()
    one_by_one = [float(policy.preferences(row[None], None, memory)[0]) for row in values]
    assert one_by_one == whole.tolist()
    assert policy.preferences(values).tolist() == whole.tolist()
    alone = [float(policy.preferences(row[None])[0]) for row in values]
    assert alone[0] == whole[0]
    assert alone[1:] != whole[1:].tolist()


def test_what_has_no_memory_takes_no_recurrent_policy() -> None:
    with pytest.raises(PolicyError, match="policy p: expected a network of dense layers, found an LSTM, whose state"):
        check_exportable_to_llvm(make_recurrent(), "p")
    with pytest.raises(UsageError, match="importance: expected a policy that decides by one observation, found a rec"):
        check_explained(make_recurrent())


def make_parts() -> tuple[Policy, Policy]:
    first, second = make_policy(), make_policy(features=("b", "c", "d"))
    return first, replace(second, targets=("arm", "riscv32"), doubt=0.5)


def test_parts_for_other_processors_are_loaded_as_they_were(tmp_path: Path) -> None:
    first, second = make_parts()
    joined = join_parts([first, second])
    save_policy(joined, tmp_path / "p.policy")
    again = load_policy(tmp_path / "p.policy", problem="inline-size")
    assert [policy_bytes(part) for part in again.parts] == [policy_bytes(first), policy_bytes(second)]
    assert policy_bytes(again) == policy_bytes(joined)
    assert again.all_targets == ("x86_64", "arm", "riscv32")
    found = {name: again.for_architecture(name) for name in ("", "x86_64", "riscv32", "aarch64")}
    features = {name: part and part.features for name, part in found.items()}
    assert features == {"": ("a", "b"), "x86_64": ("a", "b"), "riscv32": ("b", "c", "d"), "aarch64": None}


def test_a_part_for_links_is_loaded_as_it_was(tmp_path: Path) -> None:
    first = make_policy()
    second = replace(make_policy(features=("b", "c", "d")), stage="link")
    save_policy(second, tmp_path / "links.policy")
    alone = load_policy(tmp_path / "links.policy")
    assert (alone.stage, policy_bytes(alone)) == ("link", policy_bytes(second))
    assert b'"parts"' in policy_bytes(second).replace(b"\\", b""), "earlier readers refuse it"
    save_policy(join_parts([first, alone]), tmp_path / "both.policy")
    both = load_policy(tmp_path / "both.policy")
    assert [policy_bytes(part) for part in both.parts] == [policy_bytes(first), policy_bytes(second)]
    assert both.all_targets == ("x86_64",)
    stages: tuple[Stage, ...] = ("compile", "link")
    found = {stage: both.for_architecture("x86_64", stage) for stage in stages}
    assert {stage: part and part.features for stage, part in found.items()} == {
        "compile": first.features,
        "link": second.features,
    }
    assert alone.for_architecture("x86_64") is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stage": "compile"}, "stage: expected none other than 'link', and only for inline-size, found 'compile'"),
        ({"stage": "link", "problem": "pass-selection"}, "found 'link' for pass-selection"),
    ],
)
def test_other_stages_are_refused(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_policy()), **fields))
    with pytest.raises(PolicyError, match=message):
        load_policy(path)


def test_parts_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    first, second = make_parts()
    with pytest.raises(ValueError, match="expected each architecture in one part, found x86_64 in several"):
        join_parts([first, replace(second, targets=("x86_64",))])
    with pytest.raises(ValueError, match="expected one for all parts, found inline-size and regalloc-weight"):
        join_parts([first, replace(second, problem="regalloc-weight")])
    with pytest.raises(ValueError, match="expected at most 16, found 17"):
        join_parts([replace(first, targets=(f"a{number}",)) for number in range(17)])
    data = policy_bytes(join_parts([first, second]))
    (tmp_path / "p.policy").write_bytes(data.replace(b"part1.layer0.bias", b"part2.layer0.bias"))
    with pytest.raises(PolicyError, match=r"its tensors do not fit its description \('layer0.bias'\)"):
        load_policy(tmp_path / "p.policy")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"no\.policy: expected a readable file, found: No such file"):
        load_policy(tmp_path / "no.policy")


@pytest.mark.parametrize("mask", [None, "", 3])
def test_a_choice_names_its_mask(tmp_path: Path, mask: object) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_policy(output=OutputKind.COLUMN_LOGIT)), mask=mask))
    with pytest.raises(
        PolicyError,
        match="mask: expected the name of a feature, in a policy whose output is for columns and no other, found",
    ):
        load_policy(path)


def test_boundaries_ascend(tmp_path: Path) -> None:
    policy = make_policy(output=OutputKind.LOGITS)
    path = tmp_path / "p.policy"
    save_policy(replace(policy, normaliser=Quantile(boundaries=np.array([[1, 2], [2, 1]], np.float32))), path)
    with pytest.raises(PolicyError, match="expected ascending rows"):
        load_policy(path)


@pytest.mark.parametrize("where", ["header", "description"])
def test_json_that_nests_is_refused_before_it_is_read(tmp_path: Path, where: str):
    deep = "[" * 400_000 + "]" * 400_000
    header = deep if where == "header" else json.dumps({"__metadata__": {"mlgokit.policy": deep}})
    path = tmp_path / "p.policy"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    with pytest.raises(PolicyError, match=r"found something else \(JSON of more than 16 levels\)"):
        load_policy(path)


def test_brackets_in_names_do_not_nest(tmp_path: Path):
    policy = make_policy(features=('[[[[[[[[[[[[[[[[[[[["[[', "b"))
    save_policy(policy, tmp_path / "p.policy")
    assert load_policy(tmp_path / "p.policy").features == policy.features


@pytest.mark.parametrize("key", ["members", "layers", "clip"])
def test_a_number_beyond_all_bounds_is_named(tmp_path: Path, key: str):
    path = tmp_path / "p.policy"
    path.write_bytes(rewritten(policy_bytes(make_policy()), **{key: 1e999}))
    with pytest.raises(PolicyError, match="its tensors do not fit its description"):
        load_policy(path)

from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.regalloc_cost import (
    COSTS,
    COUNTS,
    parse_regalloc_costs,
    read_regalloc_costs,
    relative_changes,
)
from mlgokit.errors import InputError


def remark(function: str, *, name: str = "SpillReloadCopies", **arguments: str) -> str:
    """As LLVM prints one, with its columns."""
    lines = "".join(
        f"  - {key + ': ':<18}'{value}'\n  - String:          ' text '\n" for key, value in arguments.items()
    )
    return (
        f"--- !Missed\nPass:            regalloc\nName:            {name}\n"
        "DebugLoc:        { File: '/a/very long/name.h', \n                   Line: 1276, Column: 1 }\n"
        f"Function:        {function}\nArgs:\n{lines}...\n"
    )


RECORD = (
    remark("f", name="LoopSpillReloadCopies", NumVRCopies="1", TotalCopiesCost="9.920000e+02")
    + remark("f", NumVRCopies="3", TotalCopiesCost="1.024000e+03")
    + remark(
        "_ZN1gEv",
        NumSpills="3",
        TotalSpillsCost="3.500000e+00",
        NumFoldedSpills="2",
        TotalFoldedSpillsCost="2.000000e+00",
        NumReloads="1",
        TotalReloadsCost="2.861019e-06",
        NumFoldedReloads="4",
        TotalFoldedReloadsCost="1.000000e+01",
        NumZeroCostFoldedReloads="7",
        NumVRCopies="18",
        TotalCopiesCost="7.800000e+01",
    )
)


def test_counts_and_costs_of_each_function():
    found = parse_regalloc_costs(RECORD, name="x")
    assert found.functions == ("f", "_ZN1gEv")
    assert [dict(zip(COUNTS, row, strict=True)) for row in found.counts.tolist()] == [
        {
            "spills": 0,
            "reloads": 0,
            "folded_spills": 0,
            "folded_reloads": 0,
            "zero_cost_folded_reloads": 0,
            "copies": 3,
        },
        {
            "spills": 3,
            "reloads": 1,
            "folded_spills": 2,
            "folded_reloads": 4,
            "zero_cost_folded_reloads": 7,
            "copies": 18,
        },
    ]
    assert [dict(zip(COSTS, row, strict=True)) for row in found.costs.tolist()] == [
        {"spills": 0.0, "reloads": 0.0, "folded_spills": 0.0, "folded_reloads": 0.0, "copies": 1024.0},
        {"spills": 3.5, "reloads": 2.861019e-06, "folded_spills": 2.0, "folded_reloads": 10.0, "copies": 78.0},
    ]


def test_the_score_has_llvms_weights():
    scores = parse_regalloc_costs(RECORD, name="x").scores
    np.testing.assert_allclose(scores, [0.2 * 1024, 3.5 + 2 + 4 * (2.861019e-06 + 10) + 0.2 * 78], rtol=1e-12)


def test_a_function_without_a_remark_costs_nothing():
    assert parse_regalloc_costs(RECORD, name="x").score_of(["h", "f"]).tolist() == [0.0, pytest.approx(204.8)]


@pytest.mark.parametrize("text", ["", remark("f", name="LoopSpillReloadCopies", NumVRCopies="1")])
def test_a_record_without_functions_is_empty(text: str):
    found = parse_regalloc_costs(text, name="x")
    assert found.functions == ()
    assert found.counts.shape == (0, 6)
    assert found.costs.shape == (0, 5)
    assert found.scores.shape == (0,)


def test_names_are_quoted_as_yaml_does():
    record = remark("'operator''s name: \"x\"'", NumVRCopies="1") + remark('"tab\\tname"', NumVRCopies="1")
    assert parse_regalloc_costs(record, name="x").functions == ('operator\'s name: "x"', "tab\tname")


def test_unknown_arguments_and_remarks_are_left_out():
    record = remark("f", NumVRCopies="2", NumMoons="1") + remark("g", name="Moon", NumVRCopies="2")
    found = parse_regalloc_costs(record, name="x")
    assert found.functions == ("f",)
    assert found.counts[0].tolist() == [0, 0, 0, 0, 0, 2]


def test_of_two_reports_on_a_function_the_last_counts():
    found = parse_regalloc_costs(remark("f", NumSpills="1") + remark("f", NumSpills="5"), name="x")
    assert found.functions == ("f",)
    assert found.counts[0, 0] == 5


@pytest.mark.parametrize("cut", [1, 40, 130, -1, -4, -5, -30])
def test_a_record_that_was_cut_short_is_refused(cut: int):
    with pytest.raises(InputError, match=r"optimization record x: expected a document that ends with '\.\.\.', found"):
        parse_regalloc_costs(RECORD[:cut], name="x")


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (remark("f", NumSpills="-1"), "expected a count as NumSpills, found '-1'"),
        (remark("f", NumSpills="1" * 30), "expected a count as NumSpills, found '1111"),
        (remark("f", TotalSpillsCost="nan"), "expected a number that is not negative as TotalSpillsCost, found 'nan'"),
        (remark("f", TotalSpillsCost="-2"), "as TotalSpillsCost, found '-2'"),
        (remark("f", TotalSpillsCost="much"), "as TotalSpillsCost, found 'much'"),
        (
            remark("[]", NumSpills="1"),
            "expected a remark SpillReloadCopies with Function and Args, found one with Pass",
        ),
        (remark("f", NumSpills="1").replace("Args:\n", "Args: 1\n"), "expected YAML, found"),
        (remark("@@@", NumSpills="1"), "expected YAML, found"),
    ],
)
def test_each_defect_has_its_sentence(record: str, sentence: str):
    with pytest.raises(InputError) as caught:
        parse_regalloc_costs(record, name="x")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_in_a_file(tmp_path: Path):
    (tmp_path / "r.yaml").write_text(RECORD)
    assert read_regalloc_costs(tmp_path / "r.yaml").functions == ("f", "_ZN1gEv")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\0" * 9)
    with pytest.raises(InputError, match=r"binary\.yaml: expected a document that ends"):
        read_regalloc_costs(tmp_path / "binary.yaml")
    with pytest.raises(InputError, match=r"none\.yaml: expected a readable file, found No such file"):
        read_regalloc_costs(tmp_path / "none.yaml")


def test_changes_are_relative_to_the_function_itself():
    before, after = np.array([1000.0, 1.0, 0.0, 2.0]), np.array([900.0, 0.9, 0.0, 4.0])
    found = relative_changes(before, after)
    np.testing.assert_allclose(found, [0.1, 0.1, 0.0, -1.0], atol=0.01)

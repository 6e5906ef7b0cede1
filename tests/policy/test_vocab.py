"""Vocabularies: numpy's quantiles to the bit, in bounded memory, in the reference's text."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from mlgokit.errors import InputError, UsageError
from mlgokit.policy import vocab

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(
    arrays.arrays(np.int64, st.integers(1, 200), elements=st.integers(-(2**40), 2**40))
    | arrays.arrays(np.float32, st.integers(1, 200), elements=st.floats(0, 2**20, width=32))
    | arrays.arrays(np.float64, st.integers(1, 200), elements=FINITE),
    st.integers(2, 40),
    st.integers(1, 50),
)
def test_the_fit_is_numpys_to_the_bit(values: np.ndarray, buckets: int, chunk: int):
    parts = [values[begin : begin + chunk] for begin in range(0, len(values), chunk)]

    fitted = vocab.fit_vocab(lambda: ({"a": part} for part in parts), buckets=buckets)

    np.testing.assert_array_equal(fitted["a"], np.quantile(values, np.linspace(0, 1, buckets)))


def test_features_that_do_not_fit_together_are_done_in_turns():
    rng = np.random.default_rng(1)
    columns = {"wide": rng.permutation(900), "other": rng.permutation(800) * 2, "small": np.arange(900) % 7}
    passes = []

    def chunks() -> Iterator[vocab.Columns]:
        passes.append(1)
        for begin in range(0, 900, 100):
            yield {name: values[begin : begin + 100] for name, values in columns.items()}

    fitted = vocab.fit_vocab(chunks, buckets=11, budget_values=1000)

    assert len(passes) == 2
    assert list(fitted) == ["other", "small", "wide"]
    for name, values in columns.items():
        np.testing.assert_array_equal(fitted[name], np.quantile(values, np.linspace(0, 1, 11)))


def test_a_feature_beyond_the_budget_is_a_sentence():
    with pytest.raises(
        UsageError, match="feature a: expected at most 10 different values, found more; raise budget_values"
    ):
        vocab.fit_vocab(lambda: [{"a": np.arange(11)}], budget_values=10)


def test_infinities_count_as_the_largest_finite_value_and_constants_stay():
    values = np.array([np.inf, 1.0, 3.0, -np.inf, np.nan])

    fitted = vocab.fit_vocab(
        lambda: [{"density": values, "constant": np.full(5, 7), "lost": np.full(5, np.inf)}], buckets=4
    )

    assert fitted["density"].tolist() == [1, 1, 3, 3]
    assert fitted["constant"].tolist() == [7, 7, 7, 7]
    assert fitted["lost"].tolist() == [0, 0, 0, 0]


def test_nothing_to_fit_is_a_sentence():
    with pytest.raises(UsageError, match="expected at least one observation, found none"):
        vocab.fit_vocab(list)
    with pytest.raises(UsageError, match="expected at least two buckets, found 1"):
        vocab.fit_vocab(lambda: [{"a": np.arange(3)}], buckets=1)


def test_files_are_written_as_the_reference_writes_them_and_read_back_to_the_bit(tmp_path: Path):
    rng = np.random.default_rng(1)
    made = {"a": np.sort(rng.normal(size=1000)), "b": np.array([2.0, 1e16, 1e22, np.inf])}

    vocab.write_vocab(made, tmp_path)

    # The reference formats numpy's doubles one per line.
    assert (tmp_path / "a.buckets").read_text() == "".join(f"{edge}\n" for edge in made["a"])
    assert (tmp_path / "b.buckets").read_text() == "2.0\n1e+16\n1e+22\ninf\n"
    found = vocab.read_vocab(tmp_path)
    assert list(found) == ["a", "b"]
    for name, boundaries in made.items():
        np.testing.assert_array_equal(found[name], boundaries)


@pytest.mark.parametrize("name", ["../outside", "/outside", "..", "", "a\0b", "a\ud800"])
def test_a_name_from_a_log_is_never_a_path(name: str, tmp_path: Path):
    folder = tmp_path / "vocab"
    with pytest.raises(InputError, match="expected a name that a file in a folder can have"):
        vocab.write_vocab({"usual": np.array([1.0]), name: np.array([2.0])}, folder)
    assert not list(tmp_path.rglob("*"))


def test_features_of_an_earlier_vocabulary_leave_the_folder(tmp_path: Path):
    vocab.write_vocab({"old": np.array([1.0]), "kept": np.array([1.0])}, tmp_path)
    vocab.write_vocab({"kept": np.array([2.0])}, tmp_path)
    assert {name: row.tolist() for name, row in vocab.read_vocab(tmp_path).items()} == {"kept": [2.0]}


def test_infinite_boundaries_make_a_normaliser_that_is_finite():
    normaliser = vocab.quantile_of({"a": np.array([1.0, np.inf])}, ("a",))
    assert np.isfinite(normaliser.boundaries).all()


def test_the_integers_of_shipped_files_are_read(tmp_path: Path):
    (tmp_path / "edge_count.buckets").write_text("2\n2\n2\n3\n4\n5\n8\n16\n51\n")

    assert vocab.read_vocab(tmp_path)["edge_count"].tolist() == [2, 2, 2, 3, 4, 5, 8, 16, 51]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\nnan\n", r"line 2: expected a number not below the one before, found 'nan'"),
        ("1\n\n2\n", r"line 2: expected a number not below the one before, found ''"),
        ("2\n1\n", r"line 2: expected a number not below the one before, found '1'"),
        ("", "expected at least one line, found none"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "a.buckets").write_text(text)

    with pytest.raises(InputError, match=message):
        vocab.read_vocab(tmp_path)


def test_a_folder_without_files_is_a_sentence(tmp_path: Path):
    with pytest.raises(InputError, match=r"expected files <feature>\.buckets, found none"):
        vocab.read_vocab(tmp_path)


def reference_inputs(values: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
    """google/ml-compiler-opt's first two inputs of a feature: the share of boundaries not above it, and its square."""
    share = (np.searchsorted(boundaries, values, side="right") / len(boundaries)).astype(np.float32)
    return np.stack([share, share * share], axis=-1)


def test_a_policys_normaliser_gives_the_references_first_two_inputs():
    rows = np.array([2.0, 2, 2, 3, 4, 5, 8, 16, 51])
    normaliser = vocab.quantile_of({"edges": rows, "nodes": rows * 2}, ("nodes", "edges"))
    values = np.array([[4, 2], [100, 8]])

    found = normaliser.apply(values)

    np.testing.assert_allclose(found[:, 2:], reference_inputs(values[:, 1], rows), rtol=1e-7)
    np.testing.assert_allclose(found[:, :2], reference_inputs(values[:, 0], rows * 2), rtol=1e-7)


def test_rows_of_different_lengths_keep_their_ranks():
    """The reference ships vocabularies of 999 and of 9999 lines in one folder."""
    rng = np.random.default_rng(3)
    found = {name: np.sort(rng.integers(0, 50, count)).astype(float) for name, count in (("a", 999), ("b", 9999))}
    values = rng.integers(-5, 60, (200, 2))

    inputs = vocab.quantile_of(found, ("b", "a")).apply(values)

    for column, name in enumerate("ba"):
        expected = reference_inputs(values[:, column], found[name])
        np.testing.assert_allclose(inputs[:, 2 * column : 2 * column + 2], expected, rtol=1e-6)
    assert inputs.max() == 1.0


def test_a_normaliser_needs_all_features():
    with pytest.raises(UsageError, match="expected boundaries of b, found none"):
        vocab.quantile_of({"a": np.arange(3.0)}, ("a", "b"))

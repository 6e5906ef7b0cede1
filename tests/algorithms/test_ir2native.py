import numpy as np
import pytest

from mlgokit.algorithms.config import SizeModelConfig
from mlgokit.algorithms.ir2native import fit_size_model, predict_bytes, size_errors
from mlgokit.errors import UsageError

COLUMNS = ("instructions", "calls", "always_zero", "phis")


def functions(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Functions whose calls are long, whose phis cost nothing, and whose sizes are rounded to 4."""
    total = np.exp(rng.uniform(0.7, 6, count)).astype(np.int64) + 1
    calls = (total * rng.uniform(0, 0.5, count)).astype(np.int64)
    phis = (total * rng.uniform(0, 0.3, count)).astype(np.int64)
    sizes = 3 * (total - calls - phis) + 9 * calls + 2
    return np.stack([total, calls, np.zeros_like(total), phis], axis=1), sizes - sizes % -4


def test_sizes_of_unseen_functions_are_learned():
    rng = np.random.default_rng(1)
    config = SizeModelConfig(members=2, hidden=(32,), epochs=60)
    model = fit_size_model(COLUMNS, *functions(2000, rng), config, rng=rng)
    values, sizes = functions(500, rng)
    errors = size_errors(predict_bytes(model, COLUMNS, values), sizes, ["p"] * 250 + ["q"] * 250)
    flat = size_errors(4.0 * values[:, 0], sizes, ["p"] * 500)
    assert errors.functions == 500
    assert errors.median < 0.04
    assert flat.median > 0.15
    assert errors.of_groups < 0.03


def test_the_same_seed_gives_the_same_model_and_columns_go_by_name():
    values, sizes = functions(100, np.random.default_rng(2))
    config = SizeModelConfig(members=1, hidden=(4,), epochs=2)
    first, second = (fit_size_model(COLUMNS, values, sizes, config, rng=np.random.default_rng(3)) for _ in range(2))
    expected = predict_bytes(first, COLUMNS, values)
    assert (predict_bytes(second, COLUMNS, values) == expected).all()
    turned = (*COLUMNS[::-1], "more")
    wider = np.concatenate([values[:, ::-1], values[:, :1]], axis=1)
    assert predict_bytes(first, turned, wider) == pytest.approx(expected)


def test_an_absurd_function_gets_no_absurd_size():
    values, sizes = functions(50, np.random.default_rng(2))
    model = fit_size_model(COLUMNS, values, sizes, SizeModelConfig(epochs=1), rng=np.random.default_rng(3))
    (found,) = predict_bytes(model, COLUMNS, np.array([[1, 10**15, 10**15, 0]]))
    assert np.isfinite(found)
    assert 4 * np.exp(-4) <= found <= 4 * np.exp(4)


def test_a_size_model_without_functions_or_columns_is_refused():
    with pytest.raises(UsageError, match="size model: expected at least one function, found none; give a corpus"):
        fit_size_model(
            COLUMNS, np.zeros((0, 4), np.int64), np.zeros(0, np.int64), SizeModelConfig(), rng=np.random.default_rng(1)
        )
    values, sizes = functions(10, np.random.default_rng(2))
    model = fit_size_model(COLUMNS, values, sizes, SizeModelConfig(epochs=1), rng=np.random.default_rng(3))
    with pytest.raises(UsageError, match="found no phis; describe the functions with the LLVM major"):
        predict_bytes(model, COLUMNS[:3], values[:, :3])

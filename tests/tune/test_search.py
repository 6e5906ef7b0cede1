"""Text in damaged arrays that Python cannot have."""

from pathlib import Path

import numpy as np
import pytest

from mlgokit.errors import InputError
from mlgokit.tune.search import read_kept


def test_invalid_characters_are_damage(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez(path, names=np.array([0x7FFFFFFF], np.uint32).view("<U1"))
    with pytest.raises(InputError, match="expected names, found a damaged file"):
        read_kept(path, ("names",), lambda arrays: arrays["names"].tolist(), what="names")

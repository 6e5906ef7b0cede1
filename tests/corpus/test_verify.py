from pathlib import Path

import pytest

from mlgokit.corpus.verify import objects_of_build
from mlgokit.testing import toy_source


@pytest.mark.parametrize("name", ["a.o", "a [1].o", "a*.o"])
def test_the_object_of_a_local_thinlto_link_is_found_by_the_modules_name(tmp_path: Path, name: str):
    find = objects_of_build(tmp_path)
    module = toy_source(f"project/{name}", project="project")
    made = tmp_path / f"program.lto.{name}"
    made.write_bytes(b"\x7fELF")
    (tmp_path / "program.lto.a1.o").write_bytes(b"\x7fELF")
    assert find(module, tmp_path) == made
    made.unlink()
    assert find(module, tmp_path) == f"expected project/{name} below {tmp_path}, found no such object"

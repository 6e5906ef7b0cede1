"""Compilations that others have made."""

from pathlib import Path

import pytest

from mlgokit.compiler.caching import CachingCompiler, open_caching
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.recheck import Recheck
from mlgokit.compiler.request import PLAIN
from mlgokit.compiler.shared_store import open_shared
from mlgokit.errors import StaleError, StorageError, ToolError
from mlgokit.module import Module
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source

DONE = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 7}))
OTHER = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 8}))


@pytest.fixture
def module(tmp_path: Path) -> Module:
    (tmp_path / "m.bc").write_bytes(b"BC")
    return toy_source("m", bitcode=tmp_path / "m.bc")


def user(tmp_path: Path, name: str, url: str, *, makes: Compilation = DONE, share: float = 0.0) -> CachingCompiler:
    fake = FakeCompiler(answer=lambda *_: makes)
    return open_caching(fake, tmp_path / name, recheck=Recheck(share=share, seed=1), shared=open_shared(url))


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_what_one_user_compiled_another_recalls(tmp_path: Path, module: Module, kind: str):
    pytest.importorskip("fsspec")
    url = str(tmp_path / "shared") if kind == "folder" else f"memory://{tmp_path.name}"
    one, two = user(tmp_path, "one", url), user(tmp_path, "two", url, makes=OTHER)
    assert one.compile(module, PLAIN).measured.totals == DONE.measured.totals
    assert two.compile(module, PLAIN).measured.totals == DONE.measured.totals
    assert (len(one.compiler.asked), len(two.compiler.asked)) == (1, 0)  # pyright: ignore[reportAttributeAccessIssue]


def test_what_is_wrong_in_it_is_found_and_put_right(tmp_path: Path, module: Module):
    pytest.importorskip("fsspec")
    url = str(tmp_path / "shared")
    user(tmp_path, "one", url, makes=OTHER).compile(module, PLAIN)
    with pytest.raises(StaleError):
        user(tmp_path, "two", url, share=1.0).compile(module, PLAIN)
    assert user(tmp_path, "three", url, makes=OTHER).compile(module, PLAIN).measured.totals == DONE.measured.totals


def test_a_damaged_entry_is_made_again(tmp_path: Path, module: Module):
    pytest.importorskip("fsspec")
    shared = tmp_path / "shared"
    user(tmp_path, "one", str(shared)).compile(module, PLAIN)
    (kept,) = shared.rglob("*.npz")
    kept.write_bytes(b"damage")
    assert user(tmp_path, "two", str(shared)).compile(module, PLAIN).ok
    assert kept.read_bytes() != b"damage"


def test_a_store_that_cannot_be_written_to_ends_the_run(tmp_path: Path, module: Module):
    pytest.importorskip("fsspec")
    (tmp_path / "shared").write_text("no folder")
    with pytest.raises(StorageError, match="--shared-store"):
        user(tmp_path, "one", str(tmp_path / "shared")).compile(module, PLAIN)


def test_a_kind_that_nobody_knows_is_named():
    pytest.importorskip("fsspec")
    with pytest.raises(ToolError, match="nowhere"):
        open_shared("nowhere://x")

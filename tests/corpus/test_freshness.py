"""What was noted of a module's sources, read in the memory that such a note may take."""

import json
import tracemalloc
import zlib
from pathlib import Path

import pytest

from mlgokit.corpus.freshness import FileDigests, is_current, note_sources


@pytest.mark.parametrize(("mebibytes", "current"), [(0, True), (4, True), (512, False)])
def test_no_more_is_unpacked_than_a_note_may_have(tmp_path: Path, mebibytes: int, current: bool):
    (tmp_path / "a.c").write_text("int x;")
    digests, path = FileDigests(), tmp_path / "a.dep"
    digest = digests.digest_all(["a.c"], tmp_path)
    assert digest is not None
    note_sources(path, ["a.c"], sha256=digest, call="c", bitcode_sha256="b")
    deflate = zlib.compressobj()
    blanks = b"".join(deflate.compress(b" " * (1 << 20)) for _ in range(mebibytes))
    path.write_bytes(blanks + deflate.compress(zlib.decompress(path.read_bytes())) + deflate.flush())
    tracemalloc.start()
    assert is_current(path, digests, folder=tmp_path, call="c", bitcode_sha256="b") is current
    assert tracemalloc.get_traced_memory()[1] < 48 << 20
    tracemalloc.stop()


def test_an_invalid_note_is_not_current(tmp_path: Path):
    path = tmp_path / "a.dep"
    for data in (b"", b"none", zlib.compress(b"[" * 100_000), zlib.compress(json.dumps([1]).encode())):
        path.write_bytes(data)
        assert not is_current(path, FileDigests(), folder=tmp_path, call="c", bitcode_sha256="b")

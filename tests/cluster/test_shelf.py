"""Files of a worker by content."""

import hashlib
import os
from pathlib import Path

import pytest

from mlgokit.cluster.worker import Shelf

DATA = b"bitcode"
DIGEST = hashlib.sha256(DATA).hexdigest()


def test_a_file_comes_once_for_all_paths_of_one_name(tmp_path: Path):
    shelf = Shelf(folder=tmp_path)
    assert shelf.missing({"/a/m.bc": DIGEST, "/b/m.bc": DIGEST}) == (DIGEST,)
    shelf.put(DIGEST, ("m.bc",), DATA)
    assert shelf.missing({"/a/m.bc": DIGEST, "/b/m.bc": DIGEST}) == ()
    assert shelf.place(DIGEST, "m.bc").read_bytes() == DATA
    assert Shelf(folder=tmp_path).missing({"/a/m.bc": DIGEST}) == ()


def test_a_damaged_or_deleted_file_is_missing(tmp_path: Path):
    Shelf(folder=tmp_path).put(DIGEST, ("m.bc",), DATA)
    place = Shelf(folder=tmp_path).place(DIGEST, "m.bc")
    place.write_bytes(b"other")
    shelf = Shelf(folder=tmp_path)
    assert shelf.missing({"m.bc": DIGEST}) == (DIGEST,)
    shelf.put(DIGEST, ("m.bc",), DATA)
    assert shelf.missing({"m.bc": DIGEST}) == ()
    place.unlink()
    assert shelf.missing({"m.bc": DIGEST}) == (DIGEST,)


def test_other_bytes_than_the_digest_says_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="found another"):
        Shelf(folder=tmp_path).put(DIGEST, ("m.bc",), b"other")


def test_what_nobody_asked_for_in_a_week_goes(tmp_path: Path):
    shelf = Shelf(folder=tmp_path)
    shelf.put(DIGEST, ("old.bc", "new.bc"), DATA)
    os.utime(shelf.place(DIGEST, "old.bc"), (1, 1))
    shelf.clear()
    assert not shelf.place(DIGEST, "old.bc").exists()
    assert shelf.place(DIGEST, "new.bc").exists()

from pathlib import Path

import numpy as np
import pytest

from mlgokit.deploy.decisions import TableEntry, entry_of, read_table, table_bytes, write_table
from mlgokit.errors import InputError


def entries() -> list[TableEntry]:
    first = entry_of([-1, 5], np.array([2**63, 8], np.uint64), np.array([True, False]))
    return [first, TableEntry(names=np.array([7], np.uint64), keys=np.zeros(0, np.uint64), plain=True)]


def test_a_table_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "decisions"
    write_table(path, entries())
    for written, read in zip(entries(), read_table(path), strict=True):
        assert read.names.tolist() == written.names.tolist()
        assert read.keys.tolist() == written.keys.tolist()
        assert read.plain == written.plain


def test_the_bytes_are_as_documented():
    data = table_bytes(entries()[1:])
    assert data == b"MLGODT1\n" + bytes([1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0])


def test_every_shorter_or_longer_file_is_refused(tmp_path: Path):
    data = table_bytes(entries())
    path = tmp_path / "decisions"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(InputError, match=r"^decision table .*decisions: expected .*, found "):
            read_table(path)
    path.write_bytes(data + b"x")
    with pytest.raises(InputError, match="it is damaged"):
        read_table(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(InputError, match="check the path"):
        read_table(tmp_path / "none")

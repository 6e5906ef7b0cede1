from pathlib import Path

import numpy as np
import pytest

from mlgokit.errors import InputError
from mlgokit.tables.decisions import (
    DecisionTable,
    TableEntry,
    TuningSummary,
    make_entry,
    read_table,
    table_bytes,
    write_table,
)


def entries() -> list[TableEntry]:
    first = make_entry([-1, 5], np.array([2**63, 8], np.uint64), np.array([True, False]), any_level=True)
    return [first, TableEntry(names=np.array([7], np.uint64), keys=np.zeros(0, np.uint64), plain=True)]


def test_a_table_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "decisions"
    summary = TuningSummary(llvm=22, objective="link-aware", plain_bytes=9, tuned_bytes=7.5, modules=("a", "b"))
    write_table(path, entries(), summary)
    found = read_table(path)
    assert found.summary == summary
    for written, read in zip(entries(), found.entries, strict=True):
        assert read.names.tolist() == written.names.tolist()
        assert read.keys.tolist() == written.keys.tolist()
        assert (read.plain, read.any_level) == (written.plain, written.any_level)


def test_the_bytes_are_as_documented():
    data = table_bytes(entries()[1:])
    numbers = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert data == b"MLGODT2\n" + bytes(numbers)
    summary = TuningSummary(llvm=22, objective="link-aware", plain_bytes=9, tuned_bytes=7.5, modules=("a",))
    text = (
        b'{"llvm": 22, "objective": "link-aware", "plain_bytes": 9, "tuned_bytes": 7.5, "modules": ["a"], '
        b'"linked": false}'
    )
    assert table_bytes(entries()[1:], summary) == data[:-4] + bytes([len(text), 0, 0, 0]) + text


def test_every_shorter_or_longer_file_is_refused(tmp_path: Path):
    summary = TuningSummary(llvm=22, objective="link-aware", plain_bytes=9, tuned_bytes=7.5, modules=())
    data = table_bytes(entries(), summary)
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


PROMISE = '{"llvm": %s, "objective": %s, "plain_bytes": %s, "tuned_bytes": 1, "modules": []}'


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"[",
        b'{"llvm": "x"}',
        (PROMISE % ("22", '"fewest"', "2")).encode(),
        (PROMISE % ("22", "3", "2")).encode(),
        (PROMISE % ("Infinity", '"link-aware"', "2")).encode(),
        (PROMISE % ("22", '"link-aware"', "NaN")).encode(),
        (PROMISE % ("22", '"link-aware"', "1" + 400 * "0")).encode(),
        (PROMISE % ("22", '"link-aware"', 100_000 * "[")).encode(),
    ],
)
def test_an_invalid_summary_is_refused(tmp_path: Path, text: bytes):
    path = tmp_path / "decisions"
    path.write_bytes(table_bytes([])[:-4] + len(text).to_bytes(4, "little") + text)
    with pytest.raises(InputError, match="expected a summary at its end"):
        read_table(path)


def test_an_object_without_decisions_is_no_tuned_plugin(tmp_path: Path):
    path = tmp_path / "plugin.so"
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + (62).to_bytes(2, "little") + bytes(44)
    path.write_bytes(header)
    with pytest.raises(InputError, match=r"plugin\.so: expected a plugin of `mlgokit tune`|expected"):
        read_table(path)


def test_programs_that_share_their_main_alone_find_the_entry_of_their_name():
    def ids(*numbers: int) -> np.ndarray:
        return np.array(numbers, np.uint64)

    names = {"a/one.o": ids(7, 8), "a/two.o": ids(7, 9), "a/none.o": ids(), "a/other.o": ids()}
    table = DecisionTable(
        entries=tuple(TableEntry(names=one, keys=ids(4, 9), plain=True) for one in names.values()),
        summary=TuningSummary(llvm=22, objective="link-aware", plain_bytes=9, tuned_bytes=7, modules=tuple(names)),
    )
    found = [table.find_entry(module, of, ids()) for module, of in names.items()]
    assert found == [0, 1, 2, 3]
    # Today's programs have nothing but main in common with those that were tuned.
    assert table.find_entry("a/two.o", ids(7), ids()) == 1
    assert table.find_entry("b/two.o", ids(7, 9), ids(8)) == 1
    assert table.find_entry("b/new.o", ids(5), ids()) is None
    assert table.find_entry("b/none.o", ids(), ids()) is None


def test_a_module_is_compared_with_the_entries_that_have_its_functions_alone(monkeypatch: pytest.MonkeyPatch):
    keys, count = np.array([4, 9], np.uint64), 50
    names = [np.array([2 * index, 2 * index + 1], np.uint64) for index in range(count)]
    table = DecisionTable(entries=tuple(TableEntry(names=one, keys=keys) for one in names), summary=None)
    compared, isin = list[int](), np.isin

    def count_calls(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        compared.append(1)
        return isin(one, other)

    monkeypatch.setattr(np, "isin", count_calls)
    assert [table.find_entry("m", one, keys) for one in names] == list(range(count))
    assert len(compared) <= 2 * count

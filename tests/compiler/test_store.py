"""What is kept comes back; what is damaged counts as not kept."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus, InlineDecisions
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.objects.object_file import SectionTotals
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.compiler.store import load_compilation, save_compilation
from mlgokit.errors import StorageError


def integers(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


SIZES = ObjectSizes(
    totals=SectionTotals(text=50, rodata=36, eh_frame=88, data=16, bss=100, except_table=8),
    function_names=("f", "größe\udcff"),
    function_text=integers(20, 30),
    function_rodata=integers(24, 0),
    function_except_table=integers(8, 0),
    function_eh_frame=integers(32, 28),
    function_signature=integers(-1, 0),
    signatures=("g", "_ZTV1A"),
    signature_rest=np.array([[0, 0, 0], [0, 7, 0]]),
    signature_data=integers(0, 12),
    rest=integers(0, 5, 28),
)
RUN = Compilation(
    status=CompileStatus.OK,
    user_seconds=0.125,
    sizes=SIZES,
    decisions=InlineDecisions(
        caller=integers(-(2**63), 7, 7),
        callee=integers(5, 2**63 - 1, 5),
        inlined=np.array([True, False, True]),
        flipped=np.array([False, False, True]),
        by_table=np.array([False, True, True]),
        heuristic=np.array([True, True, False]),
        site=np.array([2, 2**64 - 2, 4], np.uint64),
        names=("a", "b"),
        rows=integers(2),
        values=np.array([[-1, 2**40]]),
    ),
    decision_count=3,
)
FAILED = Compilation(status=CompileStatus.FAILED, reason="error: 'x' — \"y\"")


def load(path: Path) -> Compilation | None:
    return load_compilation(path, problem="inline-size")


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    for field in dataclasses.fields(expected):
        ours, theirs = getattr(found, field.name), getattr(expected, field.name)
        if dataclasses.is_dataclass(theirs):
            assert_equal(ours, theirs)
        elif isinstance(theirs, np.ndarray):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), field.name
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        else:
            assert ours == theirs, field.name


COSTS = RegallocCosts(
    functions=("f", "größe\udcff"), counts=np.arange(12).reshape(2, 6), costs=np.linspace(0, 1, 10).reshape(2, 5)
)


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        FAILED,
        dataclasses.replace(RUN, status=CompileStatus.BAD_TRACE),
        dataclasses.replace(RUN, regalloc=COSTS, decision_count=7),
    ],
)
def test_what_is_kept_comes_back(tmp_path: Path, run: Compilation):
    path = tmp_path / "ab" / "abcd.npz"
    save_compilation(path, run)

    found = load(path)

    assert found is not None
    assert_equal(found, run)
    assert list(path.parent.iterdir()) == [path]


def test_saving_again_replaces_the_record(tmp_path: Path):
    save_compilation(tmp_path / "run.npz", FAILED)
    save_compilation(tmp_path / "run.npz", RUN)

    found = load(tmp_path / "run.npz")

    assert found is not None
    assert found.status is CompileStatus.OK


@pytest.mark.parametrize(
    ("run", "ok"),
    [
        (RUN, True),
        (FAILED, False),
        (dataclasses.replace(RUN, sizes=None), False),
        (dataclasses.replace(RUN, status=CompileStatus.BAD_TRACE), False),
    ],
)
def test_only_a_success_with_an_object_teaches(run: Compilation, ok: bool):
    assert run.ok is ok


def test_what_was_never_kept_is_none(tmp_path: Path):
    assert load(tmp_path / "nowhere" / "run.npz") is None


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "run.npz"
    save_compilation(path, RUN)
    return path, path.read_bytes()


def test_a_truncated_record_is_not_loaded(kept: tuple[Path, bytes]):
    path, data = kept
    for length in [*range(0, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:length])
        assert load(path) is None, length


def test_a_changed_byte_gives_none_or_what_was_kept(kept: tuple[Path, bytes]):
    # Prime steps and three kinds of change: headers, compressed data, checksums and padding are all hit.
    path, data = kept
    lost = 0
    for place in range(0, len(data), 13):
        for change in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
            found = load(path)
            if found is None:
                lost += 1
            else:
                assert_equal(found, RUN)
    assert lost > 0


def archive(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def array(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=True)
    return file.getvalue()


def facts(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        b"BC\xc0\xde" * 100,
        array(np.arange(3)),
        array(np.array([{}], object)),
        archive(),
        archive(other=np.arange(3)),
        archive(facts=np.arange(3)),
        archive(facts=facts("[]")),
        archive(facts=facts("3")),
        archive(facts=facts('"totals"')),
        archive(facts=facts('{"status": "OK"}')),
        archive(facts=facts('{"status": "MELTED", "reason": "", "user_seconds": 0, "names": []}')),
        archive(facts=facts('{"status": "OK", "totals": [1], "function_names": [], "signatures": []}')),
    ],
)
def test_a_foreign_file_is_not_loaded(tmp_path: Path, data: bytes):
    (tmp_path / "run.npz").write_bytes(data)

    assert load(tmp_path / "run.npz") is None


def test_a_folder_is_not_loaded_as_a_record(tmp_path: Path):
    assert load(tmp_path) is None


def test_a_store_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(
        StorageError, match="expected to be able to write there, found: File exists; check the disk and the path"
    ):
        save_compilation(tmp_path / "file" / "run.npz", RUN)

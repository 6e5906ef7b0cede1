from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.errors import InputError
from mlgokit.tables.overrides import (
    ALLOCATIONS,
    PASSES,
    OverrideSummary,
    override_bytes,
    read_overrides,
    renew_scores,
    write_overrides,
)

SUMMARY = OverrideSummary(llvm=22, functions=3, plain_score=9.5, tuned_score=7.0)


def entries() -> dict[int, Overrides]:
    some = np.array([(1, 0, 4), (2, 3, 0)], OVERRIDE)
    return {2**64 - 1: Overrides(evictions=some), 5: Overrides(evictions=some[:1], priorities=some), 6: Overrides()}


def test_a_table_is_read_as_it_was_written(tmp_path: Path):
    write_overrides(ALLOCATIONS, tmp_path / "t", entries(), SUMMARY)
    found = read_overrides(ALLOCATIONS, tmp_path / "t")
    assert found.summary == SUMMARY
    assert list(found.by_key) == [5, 6, 2**64 - 1]
    for key, written in entries().items():
        assert found.by_key[key].evictions.tolist() == written.evictions.tolist()
        assert found.by_key[key].priorities.tolist() == written.priorities.tolist()


def test_a_pass_table_has_one_list(tmp_path: Path):
    left_out = np.array([(8, 0, 0), (8, 1, 0)], OVERRIDE)
    write_overrides(PASSES, tmp_path / "t", {9: Overrides(passes=left_out), 4: Overrides()}, SUMMARY)
    found = read_overrides(PASSES, tmp_path / "t")
    assert (list(found.by_key), found.summary) == ([4, 9], SUMMARY)
    assert found.by_key[9].passes.tolist() == left_out.tolist()
    with pytest.raises(InputError, match="`mlgokit tune` of this version wrote, found b'MLGO"):
        read_overrides(ALLOCATIONS, tmp_path / "t")


def test_what_is_no_whole_table_is_refused(tmp_path: Path):
    data = override_bytes(ALLOCATIONS, entries(), SUMMARY)
    path = tmp_path / "t"
    for cut in (1, 60, len(data) - 14):
        path.write_bytes(data[:-cut])
        with pytest.raises(InputError, match="it is cut short, tune again with --continue"):
            read_overrides(ALLOCATIONS, path)
    path.write_bytes(data.replace(b"plain_score", b"plain_bytes"))
    with pytest.raises(InputError, match="expected a summary at its end"):
        read_overrides(ALLOCATIONS, path)
    path.write_bytes(b"MLGODT2\n" + data[8:])
    with pytest.raises(InputError, match="`mlgokit tune` of this version wrote, found b'MLGO"):
        read_overrides(ALLOCATIONS, path)
    with pytest.raises(InputError, match="expected a readable file"):
        read_overrides(ALLOCATIONS, tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    [
        b'{"llvm": 22, "functions": Infinity, "plain_score": 1, "tuned_score": 1}',
        b'{"llvm": 22, "functions": 1, "plain_score": NaN, "tuned_score": 1}',
        b'{"llvm": 22, "functions": 1, "plain_score": 1, "tuned_score": 1' + 400 * b"0" + b"}",
        100_000 * b"[",
    ],
)
def test_an_invalid_summary_is_refused(tmp_path: Path, text: bytes):
    path = tmp_path / "allocations"
    path.write_bytes(override_bytes(ALLOCATIONS, {})[:-4] + len(text).to_bytes(4, "little") + text)
    with pytest.raises(InputError, match="expected a summary at its end"):
        read_overrides(ALLOCATIONS, path)


def test_a_promise_is_renewed_by_what_was_measured(tmp_path: Path):
    path = tmp_path / "allocations"
    write_overrides(ALLOCATIONS, path, {}, OverrideSummary(llvm=22, functions=1, plain_score=9.0, tuned_score=5.0))
    assert renew_scores(ALLOCATIONS, path, 9.0, 6.0)
    assert not renew_scores(ALLOCATIONS, path, 9.0, 6.0)
    assert read_overrides(ALLOCATIONS, path).summary == OverrideSummary(
        llvm=22, functions=1, plain_score=9.0, tuned_score=6.0
    )

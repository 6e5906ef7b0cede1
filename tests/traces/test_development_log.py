"""Logs as a development-mode LLVM writes them itself (TrainingLogger.cpp), put together by hand, byte by byte."""

import re
import struct

import numpy as np
import pytest

from mlgokit.errors import TraceError
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION
from mlgokit.traces import read_log_bytes, render_log

REGISTERS = 33


def spec(name: str, type_: str, shape: str) -> str:
    return f'{{"name":"{name}","type":"{type_}","port":0,"shape":{shape}}}'


def inlining_log(*, scored: bool) -> bytes:
    """One context without a name; LLVM before 2025-11 gave the module's change of size after its last decision."""
    names = [*INLINE_SIZE.feature_names, "inlining_default", "inlining_decision"]
    header = '{"features":[' + ",".join(spec(name, "int64_t", "[1]") for name in names) + "]"
    header += "," + '"score":' + spec("delta_size", "int64_t", "[1]") if scored else ""
    parts = [header.encode() + b"}\n", b'{"context":""}\n']
    for number in range(3):
        values = [1000 * number + column for column in range(len(names))]
        parts += [b'{"observation":%d}\n' % number, struct.pack(f"<{len(names)}q", *values), b"\n"]
        if scored:
            parts += [b'{"outcome":%d}\n' % number, struct.pack("<q", -number), b"\n"]
    return b"".join(parts)


def eviction_log(*, last_outcome: bool = True) -> bytes:
    """Two functions; the outcome of an observation comes before the next one, of the last when the function ends."""
    shape = f"[1,{REGISTERS}]"
    specs = [
        spec(feature.name, feature.type, shape if feature.per_column else "[1]")
        for feature in REGALLOC_EVICTION.features
    ]
    specs.append(spec("index_to_evict", "int64_t", "[1]"))
    header = '{"features":[' + ",".join(specs) + '],"score":' + spec("reward", "float", "[1]") + "}\n"
    parts = [header.encode()]
    for name, rewards in (("_ZN3fooEv", [0.0, 36.5]), ("main", [7.25])):
        parts.append(b'{"context":"%b"}\n' % name.encode())
        for number, reward in enumerate(rewards):
            parts.append(b'{"observation":%d}\n' % number)
            for place, feature in enumerate(REGALLOC_EVICTION.features):
                count = REGISTERS if feature.per_column else 1
                letter = "f" if feature.type == "float" else "q"
                parts.append(struct.pack(f"<{count}{letter}", *(place + column for column in range(count))))
            parts += [struct.pack("<q", 10 + number), b"\n"]
            if last_outcome or (name, number) != ("main", 0):
                parts += [b'{"outcome":%d}\n' % number, struct.pack("<f", reward), b"\n"]
    return b"".join(parts)


@pytest.mark.parametrize("scored", [True, False])
def test_an_inlining_log(scored: bool):
    data = inlining_log(scored=scored)
    log = read_log_bytes(data, name="x")
    assert [span.name for span in log.contexts] == [""]
    assert log.columns["sroa_savings"].tolist() == [[0], [1000], [2000]]
    assert log.columns["inlining_decision"].tolist() == [[39], [1039], [2039]]
    if scored:
        assert log.scores is not None
        assert log.scores.tolist() == [[0], [-1], [-2]]
    assert render_log(log) == data


def test_an_eviction_log():
    data = eviction_log()
    log = read_log_bytes(data, name="x")
    assert [(span.name, span.start, span.stop) for span in log.contexts] == [("_ZN3fooEv", 0, 2), ("main", 2, 3)]
    assert len(log.header.features) == 22
    assert log.columns["mask"].shape == (3, 1, REGISTERS)
    for place, feature in enumerate(REGALLOC_EVICTION.features):
        column = log.columns[feature.name]
        assert column.dtype == (np.float32 if feature.type == "float" else np.int64)
        expected = place + np.arange(REGISTERS if feature.per_column else 1)
        np.testing.assert_array_equal(column.reshape(3, -1), np.tile(expected, (3, 1)))
    assert log.columns["index_to_evict"].tolist() == [[10], [11], [10]]
    assert log.scores is not None
    assert log.scores.tolist() == [[0.0], [36.5], [7.25]]
    assert render_log(log) == data


def test_the_last_outcome_is_missing_if_the_compiler_was_killed():
    data = eviction_log(last_outcome=False)
    sentence = f'byte {len(data)}: expected {{"outcome":0}}, found the end; the compiler was probably killed'
    with pytest.raises(TraceError, match=re.escape(sentence)):
        read_log_bytes(data, name="x")
    assert read_log_bytes(data, name="x", partial=True).observation_count == 2


def places(data: bytes) -> list[int]:
    """Every byte near a line's end, and of what is all alike between them every 61st; test_log.py has every byte."""
    return [at for at in range(len(data)) if at % 61 == 0 or b"\n" in data[max(at - 20, 0) : at + 20]]


@pytest.mark.parametrize(
    "data",
    [inlining_log(scored=True), inlining_log(scored=False), eviction_log()],
    ids=["inlining, scored", "inlining", "eviction"],
)
def test_a_log_that_was_cut_short_is_a_sentence_or_a_shorter_log(data: bytes):
    log = read_log_bytes(data, name="x")
    counts: set[int] = set()
    for at in places(data):
        found = read_log_bytes(data[:at], name="x", partial=True)
        counts.add(found.observation_count)
        for name, column in found.columns.items():
            np.testing.assert_array_equal(column, log.columns[name][: found.observation_count])
        if found.damage is None:
            assert read_log_bytes(data[:at], name="x").observation_count == found.observation_count
            continue
        with pytest.raises(TraceError) as caught:
            read_log_bytes(data[:at], name="x")
        assert str(caught.value) == found.damage
        assert "the compiler was probably killed" in found.damage
        assert 0 <= caught.value.offset <= at
    assert counts == {0, 1, 2}

"""The interactive channel of real compilers."""

from pathlib import Path

import numpy as np
import pytest

from mlgokit.advisors import Advisor, Constant, Echo, RandomLegal, Recording, ReplayContexts
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveResult, InteractiveStatus, clang_words, drive
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.problems import INLINE_SIZE

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SOURCE = """
extern int sink(int);
static int a(int x) { return sink(x) + sink(x + 1); }
static int b(int x) { return a(x) * a(x + 2) + sink(x); }
static int c(int x) { int s = 0; for (int i = 0; i < x; ++i) s += b(i) * sink(i); return s; }
struct P { int v; int get(int k) const { return sink(v + k) * 3 + k; } };
static int d(P p, int k) { return p.get(k) + p.get(k + 1) + c(k); }
static int tiny(int x) { return x + 1; }
int e(int x) { P p{x}; return d(p, 3) + d(p, tiny(4)) + a(tiny(x)); }
int f(int x) { return c(x) + b(x + 1) + e(x) + a(1); }
int g(int x) { P p{x * 2}; return d(p, x) + f(x) + c(2); }
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.cpp"
    path.write_text(SOURCE)
    return path


def advised(
    toolchain: Toolchain, source: Path, advisor: Advisor, *, include_default: bool = True
) -> tuple[InteractiveResult, bytes]:
    output = source.with_suffix(".advised.o")
    channel = INLINE_SIZE.channel_for(toolchain.major, include_default=include_default)
    result = drive(
        [toolchain.clangxx, "-Oz", "-c", source, "-o", output],
        channel_options=clang_words(channel.options),
        overwritten=channel.overwritten,
        advisor=advisor,
        timeout_seconds=120,
        answer_timeout_seconds=60,
    )
    assert result.status is InteractiveStatus.OK, result
    return result, output.read_bytes()


def plain(toolchain: Toolchain, source: Path) -> bytes:
    output = source.with_suffix(".plain.o")
    done = process.run([toolchain.clangxx, "-Oz", "-c", source, "-o", output], timeout_seconds=120)
    assert done.returncode == 0, done.stderr
    return output.read_bytes()


def test_echoing_the_default_is_plain_clang(toolchain: Toolchain, source: Path):
    result, data = advised(toolchain, source, Echo())
    assert data == plain(toolchain, source)
    assert result.log is not None
    assert result.log.observation_count >= 12
    assert set(result.log.columns["inlining_default"].flat) == {0, 1}
    np.testing.assert_array_equal(result.log.columns["inlining_decision"], result.log.columns["inlining_default"])
    assert [span.name for span in result.log.contexts] == [""]
    assert {(spec.type, spec.shape) for spec in result.log.header.features} == {("int64_t", (1,))}


def test_the_compiler_sends_the_features_that_the_problem_lists(toolchain: Toolchain, source: Path):
    result, _ = advised(toolchain, source, Constant(0), include_default=False)
    assert result.log is not None
    assert tuple(result.log.columns) == (*INLINE_SIZE.feature_names, INLINE_SIZE.decision)
    assert result.log.columns["callee_basic_block_count"].min() >= 1


def test_the_default_takes_the_place_of_no_feature_but_the_declared_one(toolchain: Toolchain, source: Path):
    alone, _ = advised(toolchain, source, Constant(0), include_default=False)
    result, _ = advised(toolchain, source, Constant(0))
    assert result.log is not None
    assert alone.log is not None
    missing = set(alone.log.columns) - set(result.log.columns)
    assert missing == ({"callee_basic_block_count"} if toolchain.major < 21 else set())
    for name in set(alone.log.columns) - missing:
        np.testing.assert_array_equal(alone.log.columns[name], result.log.columns[name])


def test_decisions_change_the_object(toolchain: Toolchain, source: Path):
    objects = {advised(toolchain, source, Constant(advice))[1] for advice in (0, 1)}
    assert len(objects | {plain(toolchain, source)}) == 3


def test_recorded_decisions_give_the_same_questions_and_object_again(toolchain: Toolchain, source: Path):
    recording = Recording(RandomLegal(INLINE_SIZE, np.random.default_rng(5)))
    first, data = advised(toolchain, source, recording)
    (context,) = {question.context for question in recording.observations}
    again, data_again = advised(toolchain, source, ReplayContexts({context: recording.decisions}))
    assert data == data_again
    assert first.log is not None
    assert again.log is not None
    for name, column in first.log.columns.items():
        np.testing.assert_array_equal(column, again.log.columns[name])


def test_cc1_takes_the_same_words(toolchain: Toolchain, source: Path):
    output = source.with_suffix(".o")
    result = drive(
        [toolchain.clang, "-cc1", "-Oz", "-emit-obj", source, "-o", output],
        channel_options=clang_words(INLINE_SIZE.channel_options),
        advisor=Constant(0),
        timeout_seconds=120,
        answer_timeout_seconds=60,
    )
    assert result.status is InteractiveStatus.OK, result
    assert result.log is not None
    assert result.log.observation_count >= 12


def test_a_module_without_decisions(toolchain: Toolchain, source: Path):
    source.write_text("int x;")
    result, data = advised(toolchain, source, Echo())
    assert data == plain(toolchain, source)
    assert result.log is None or result.log.observation_count == 0


def test_source_that_does_not_compile(toolchain: Toolchain, source: Path):
    source.write_text("int f( {")
    result = drive(
        [toolchain.clangxx, "-Oz", "-c", source, "-o", source.with_suffix(".o")],
        channel_options=clang_words(INLINE_SIZE.channel_options),
        advisor=Constant(1),
        timeout_seconds=120,
        answer_timeout_seconds=60,
    )
    assert result.status is InteractiveStatus.FAILED
    assert result.returncode == 1
    assert "error:" in result.stderr
    assert result.log is None

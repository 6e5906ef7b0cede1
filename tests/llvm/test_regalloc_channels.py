"""Register allocation over the interactive channels of real compilers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.pressure import PRESSURE

from mlgokit.advisors import Advisor, Constant, Legal, RandomLegal, ReplayContexts, recorded_decisions
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveResult, InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem, header_defect

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SOURCE = f"""
#include <stdio.h>
{PRESSURE}
int main(void) {{
  double x[64]; unsigned p[64];
  for (int i = 0; i < 64; ++i) {{ x[i] = i * 0.01; p[i] = i * 37; }}
  printf("%.6f %u\\n", mix(x, x, 64), hash(p, 64));
  return 0;
}}
"""

REGALLOC = (REGALLOC_EVICTION, REGALLOC_PRIORITY)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.c"
    path.write_text(SOURCE)
    return path


def advised(
    toolchain: Toolchain, source: Path, advisors: Mapping[str, Advisor], *, level: str = "-O2"
) -> tuple[InteractiveResult, bytes]:
    output = source.with_suffix(".advised.o")
    result = drive_channels(
        [toolchain.clang, level, "-c", source, "-o", output],
        channels={
            name: channel_use(PROBLEMS[name], major=toolchain.major, advisor=advisor)
            for name, advisor in advisors.items()
        },
        timeout_seconds=120,
        answer_timeout_seconds=60,
    )
    assert (result.status, result.detail) == (InteractiveStatus.OK, "")
    return result, output.read_bytes()


def behaviour(toolchain: Toolchain, object_file: Path) -> bytes:
    program = object_file.with_suffix(".program")
    linked = process.run([toolchain.clang, object_file, "-o", program], timeout_seconds=60)
    assert linked.returncode == 0, linked.stderr
    done = process.run([program], timeout_seconds=20)
    assert done.returncode == 0
    return done.stdout


@pytest.fixture
def expected(toolchain: Toolchain, source: Path) -> bytes:
    output = source.with_suffix(".plain.o")
    done = process.run([toolchain.clang, "-O2", "-c", source, "-o", output], timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    return behaviour(toolchain, output)


@pytest.mark.parametrize("problem", REGALLOC, ids=lambda problem: problem.name)
def test_the_compiler_sends_what_the_problem_lists(toolchain: Toolchain, source: Path, problem: Problem):
    result, _ = advised(toolchain, source, {problem.name: Legal(Constant(0), problem)})
    assert result.log is not None
    told = result.log.header.features[:-1]
    assert [(spec.name, spec.type) for spec in told] == [(feature.name, feature.type) for feature in problem.features]
    assert header_defect(problem, told, needed=problem.feature_names) is None
    assert [np.prod(spec.shape) > 1 for spec in told] == [feature.per_column for feature in problem.features]
    assert [span.name for span in result.log.contexts] == ["mix", "hash", "main"]
    assert result.log.observation_count > 20


@pytest.mark.parametrize("problem", REGALLOC, ids=lambda problem: problem.name)
def test_random_decisions_give_a_right_program_and_can_be_replayed(
    toolchain: Toolchain, source: Path, problem: Problem, expected: bytes
):
    first, data = advised(toolchain, source, {problem.name: RandomLegal(problem, np.random.default_rng(7))})
    assert behaviour(toolchain, source.with_suffix(".advised.o")) == expected
    assert first.log is not None
    replay = ReplayContexts(recorded_decisions(first.log, problem.decision))
    again, data_again = advised(toolchain, source, {problem.name: replay})
    assert data_again == data
    assert again.log is not None
    for name, column in first.log.columns.items():
        np.testing.assert_array_equal(column, again.log.columns[name])


def test_three_channels_in_one_compilation(toolchain: Toolchain, source: Path, expected: bytes):
    rng = np.random.default_rng(3)
    advisors: dict[str, Advisor] = {problem.name: RandomLegal(problem, rng) for problem in (*REGALLOC, INLINE_SIZE)}
    first, data = advised(toolchain, source, advisors)
    assert behaviour(toolchain, source.with_suffix(".advised.o")) == expected
    assert first.sessions == dict.fromkeys(advisors, 1)
    replays: dict[str, Advisor] = {}
    for name, log in first.logs.items():
        assert log is not None
        assert log.observation_count > 0
        replays[name] = ReplayContexts(recorded_decisions(log, PROBLEMS[name].decision))
    assert advised(toolchain, source, replays)[1] == data


def test_a_compiler_that_opens_its_channel_again(toolchain: Toolchain, source: Path):
    other = source.with_name("other.c")
    other.write_text(SOURCE.replace("main", "other"))
    result = drive_channels(
        [toolchain.clang, "-O2", "-c", source, other],
        channels={
            "priority": channel_use(
                REGALLOC_PRIORITY,
                major=toolchain.major,
                advisor=RandomLegal(REGALLOC_PRIORITY, np.random.default_rng(1)),
            )
        },
        timeout_seconds=120,
        answer_timeout_seconds=60,
        cwd=source.parent,
    )
    assert (result.status, result.detail) == (InteractiveStatus.OK, "")
    assert result.sessions == {"priority": 2}
    assert result.log is not None
    assert [span.name for span in result.log.contexts] == ["mix", "hash", "main", "mix", "hash", "other"]


def test_llc_takes_the_words_bare(toolchain: Toolchain, llc: Path, source: Path):
    bitcode = source.with_suffix(".bc")
    made = process.run([toolchain.clang, "-O2", "-emit-llvm", "-c", source, "-o", bitcode], timeout_seconds=60)
    assert made.returncode == 0, made.stderr
    result = drive_channels(
        [llc, "-O2", "-filetype=obj", bitcode, "-o", source.with_suffix(".o")],
        channels={
            problem.name: channel_use(problem, major=toolchain.major, advisor=Legal(Constant(0), problem), words=tuple)
            for problem in REGALLOC
        },
        timeout_seconds=120,
        answer_timeout_seconds=60,
    )
    assert result.status is InteractiveStatus.OK, result
    assert all(log is not None and log.observation_count for log in result.logs.values())

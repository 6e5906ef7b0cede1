"""The plugin and the pipes: the heuristic's decisions reproduce its object, and a policy decides alike in both."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.pressure import PRESSURE

from mlgokit.advisors import Observation, ReplayContexts, advice_defect, default_decisions
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveResult, InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.traces import Log, read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SOURCE = f"{PRESSURE}long nothing(void) {{ return 7; }}\n"

REGALLOC = (REGALLOC_EVICTION, REGALLOC_PRIORITY)
SETTING = {REGALLOC_EVICTION: "EVICTION", REGALLOC_PRIORITY: "PRIORITY"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Compiles SOURCE with one toolchain, in one folder."""

    toolchain: Toolchain
    plugin: Path
    folder: Path

    def words(self, name: str) -> list[str | Path]:
        return [self.toolchain.clang, "-O2", "-c", self.folder / "source.c", "-o", self.folder / name]

    def compile(self, name: str, **settings: str) -> bytes:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MLGOKIT_")}
        environment |= {f"MLGOKIT_{key}": value for key, value in settings.items()}
        plugin = [f"-fpass-plugin={self.plugin}"] if settings else []
        done = process.run([*self.words(name), *plugin], timeout_seconds=60, env=environment)
        assert done.returncode == 0, done.stderr
        return (self.folder / name).read_bytes()

    def logged(self, problem: Problem, policy: str, **settings: str) -> tuple[Log, bytes]:
        log = self.folder / f"{problem.name}.log"
        own = {f"{SETTING[problem]}_POLICY": policy, f"{SETTING[problem]}_LOG": str(log)}
        data = self.compile("plugin.o", **own, **settings)
        return read_log(log), data

    def over_pipes(self, advisors: dict[Problem, object]) -> tuple[InteractiveResult, bytes]:
        result = drive_channels(
            self.words("pipes.o"),
            channels={
                problem.name: channel_use(problem, major=self.toolchain.major, advisor=advisor)  # type: ignore[arg-type]
                for problem, advisor in advisors.items()
            },
            timeout_seconds=120,
            answer_timeout_seconds=60,
        )
        assert (result.status, result.detail) == (InteractiveStatus.OK, "")
        return result, (self.folder / "pipes.o").read_bytes()


@pytest.fixture
def bench(toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Bench:
    (tmp_path / "source.c").write_text(SOURCE)
    return Bench(toolchain=toolchain, plugin=plugin, folder=tmp_path)


def observations(log: Log) -> list[Observation]:
    """The log's questions, as an advisor gets them."""
    found: list[Observation] = []
    next_index: dict[str, int] = {}
    for span in log.contexts:
        for row in range(span.start, span.stop):
            index = next_index.setdefault(span.name, 0)
            next_index[span.name] = index + 1
            values = {name: column[row] for name, column in log.columns.items()}
            found.append(Observation(header=log.header, values=values, context=span.name, index=index))
    return found


def drawn_layers(widths: list[int], rng: np.random.Generator) -> tuple[Layer, ...]:
    return tuple(
        Layer(
            rng.normal(size=(3, inputs, outputs)).astype(np.float32), rng.normal(size=(3, outputs)).astype(np.float32)
        )
        for inputs, outputs in itertools.pairwise(widths)
    )


def make_policy(problem: Problem, log: Log, *, quantile: bool) -> Policy:
    """An ensemble with random weights, of features that take many values in ``log``."""
    rng = np.random.default_rng(11)
    names = tuple(
        name for name in problem.feature_names if name != problem.mask and len(np.unique(log.columns[name])) > 1
    )
    count = max(column[0].size for column in log.columns.values())
    columns = [
        np.broadcast_to(log.columns[name].reshape(log.observation_count, -1), (log.observation_count, count))
        for name in names
    ]
    rows = np.stack(columns, axis=-1).reshape(-1, len(names)).astype(np.float64)
    normaliser = fit_quantile(rows, count=50) if quantile else fit_signed_log(rows)
    output = OutputKind.COLUMN_LOGIT if problem is REGALLOC_EVICTION else OutputKind.PRIORITY
    widths = [normaliser.width, 24, 9, 1]
    return Policy(
        problem=problem.name,
        features=names,
        normaliser=normaliser,
        layers=drawn_layers(widths, rng),
        output=output,
        caution=0.25 if output is OutputKind.COLUMN_LOGIT else 0.0,
        mask=problem.mask or "",
    )


def test_the_heuristics_decisions_over_the_pipes_give_the_plain_object(bench: Bench):
    plain = bench.compile("plain.o")
    replays: dict[Problem, object] = {}
    for problem in REGALLOC:
        log, _ = bench.logged(problem, ":default")
        assert log.observation_count > 20
        assert "nothing" not in default_decisions(log, problem) or problem is REGALLOC_PRIORITY
        replays[problem] = ReplayContexts(default_decisions(log, problem))
        result, data = bench.over_pipes({problem: replays[problem]})
        assert data == plain
        assert result.log is not None
        for name in problem.feature_names:
            np.testing.assert_array_equal(result.log.columns[name], log.columns[name])
    assert bench.over_pipes(replays)[1] == plain


@pytest.mark.parametrize("problem", REGALLOC, ids=lambda problem: problem.name)
@pytest.mark.parametrize(
    ("exploration", "quantile"),
    [
        (Exploration(), False),
        (Exploration(), True),
        (Exploration(seed=2**63 + 5, temperature=0.75), False),
        (Exploration(seed=3, temperature=2.5, flip_probability=0.2), False),
    ],
)
def test_a_policy_decides_alike_in_the_plugin_and_over_the_pipes(
    bench: Bench, problem: Problem, exploration: Exploration, quantile: bool
):
    if problem is REGALLOC_PRIORITY and exploration.flip_probability:
        pytest.skip("a priority has no opposite")
    default, _ = bench.logged(problem, ":default")
    policy = make_policy(problem, default, quantile=quantile)
    path = bench.folder / "p.policy"
    save_policy(policy, path)

    log, data = bench.logged(
        problem,
        str(path),
        SEED=str(exploration.seed),
        TEMPERATURE=str(exploration.temperature),
        FLIP_PROBABILITY=str(exploration.flip_probability),
    )
    advisor = PolicyAdvisor(policy, exploration)
    told = [advisor.decide(observation) for observation in observations(log)]
    np.testing.assert_array_equal(log.columns[problem.decision][:, 0], [decision for decision, _ in told])
    np.testing.assert_array_equal(
        log.columns["log_probability"][:, 0], np.array([logarithm for _, logarithm in told], np.float32)
    )
    assert all(
        advice_defect(problem, observation, decision) is None
        for observation, (decision, _) in zip(observations(log), told, strict=True)
    )
    assert len({decision for decision, _ in told}) > 3

    result, data_over_pipes = bench.over_pipes({problem: advisor})
    assert data_over_pipes == data
    assert result.log is not None
    for name in (*problem.feature_names, problem.decision):
        np.testing.assert_array_equal(result.log.columns[name], log.columns[name])

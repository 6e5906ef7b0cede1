"""Recurrent policies in real compilers: the memory is a module's own, and goes with the questions in their order."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.train import Train, run as train
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, clang_words, drive
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.learning.settings import Learning
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.exploration import Exploration, decide_binary, exploration_draws
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import make_entry, strong_names, table_bytes
from mlgokit.traces.log import Log, read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

UNITS, MEMBERS = 7, 2
CALLS = """
extern int sink(int);
static int a@(int x) { return sink(x) + sink(x + 1); }
static int b@(int x) { return a@(x) * a@(x + 2) + sink(x); }
static int c@(int x) { int s = 0; for (int i = 0; i < x; ++i) s += b@(i) * sink(i); return s; }
static int d@(int x, int k) { return a@(x + k) * 3 + b@(k) + c@(k); }
int e@(int x) { return d@(x, 3) + d@(x, 4) + a@(x); }
int f@(int x) { return c@(x) + b@(x + 1) + e@(x) + a@(1); }
int g@(int x) { return d@(x, x) + f@(x) + c@(2); }
"""
SOURCE = "".join(CALLS.replace("@", str(number)) for number in range(3))


class Compiler:
    """Compiles C under settings of the plugin in one folder."""

    def __init__(self, toolchain: Toolchain, plugin: Path, folder: Path) -> None:
        self.toolchain, self.plugin, self.folder = toolchain, plugin, folder
        (folder / "source.c").write_text(SOURCE)

    def run(self, words: list[str | Path], **settings: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
        environment |= {f"MLGOKIT_{key.upper()}": value for key, value in settings.items()}
        done = process.run(words, timeout_seconds=60, cwd=self.folder, env=environment)
        assert done.returncode == 0, done.stderr

    def compile(self, output: str, **settings: str) -> bytes:
        words: list[str | Path] = [self.toolchain.clang, "-Oz", f"-fpass-plugin={self.plugin}", "-c", "source.c"]
        self.run([*words, "-o", output], **settings)
        return (self.folder / output).read_bytes()


@pytest.fixture
def compiler(toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Compiler:
    return Compiler(toolchain, plugin, tmp_path)


@pytest.fixture
def policy(compiler: Compiler) -> Policy:
    """A drawn policy of LLVM's own features, in ``some.policy``."""
    compiler.compile("plain.o", policy=":default", log="plain.log")
    columns = read_log(compiler.folder / "plain.log").columns
    values = np.stack([columns[name][:, 0] for name in INLINE_SIZE.feature_names], axis=1)
    rng = np.random.default_rng(4)
    shapes = [(values.shape[1], 12), (12, 8), (8 + UNITS, 4 * UNITS), (UNITS, 2)]
    made = Policy(
        problem=INLINE_SIZE.name,
        features=INLINE_SIZE.feature_names,
        normaliser=fit_signed_log(values),
        layers=tuple(
            Layer(
                (rng.normal(size=(MEMBERS, *shape)) * 2 / np.sqrt(shape[0])).astype(np.float32),
                (rng.normal(size=(MEMBERS, shape[1])) * 0.2).astype(np.float32),
            )
            for shape in shapes
        ),
        output=OutputKind.LOGITS,
        recurrent=UNITS,
    )
    made.layers[-1].bias[:, 1] -= np.float32(np.median(made.preferences(values)))
    save_policy(made, compiler.folder / "some.policy")
    return made


def preferences(policy: Policy, log: Log) -> np.ndarray:
    return policy.preferences(np.stack([log.columns[name][:, 0] for name in policy.features], axis=1))


def decided(log: Log) -> list[bool]:
    return [bool(one) for one in log.columns["inlining_decision"][:, 0]]


@pytest.mark.parametrize(
    "exploration",
    [
        Exploration(),
        pytest.param(Exploration(seed=5, temperature=1.0), id="drawn", marks=pytest.mark.first_major),
    ],
)
def test_plugin_numpy_and_python_over_pipes_decide_alike(
    compiler: Compiler, policy: Policy, exploration: Exploration
) -> None:
    settings = {"seed": str(exploration.seed), "temperature": repr(exploration.temperature)}
    logged = compiler.compile("logged.o", policy="some.policy", log="log", **settings)
    channel = INLINE_SIZE.channel_for(compiler.toolchain.major, include_default=False)
    advisor = PolicyAdvisor(policy, exploration)
    for _ in range(2):  # An advisor's next module begins anew.
        result = drive(
            [str(compiler.toolchain.clang), "-Oz", "-c", "source.c", "-o", "pipes.o"],
            channel_options=clang_words(channel.options),
            overwritten=channel.overwritten,
            advisor=advisor,
            timeout_seconds=60,
            answer_timeout_seconds=20,
            cwd=compiler.folder,
        )
        assert result.status is InteractiveStatus.OK, result
        assert (compiler.folder / "pipes.o").read_bytes() == logged

    log = read_log(compiler.folder / "log")
    found = preferences(policy, log)
    expected = [
        decide_binary(preference, exploration, *exploration_draws(exploration.seed, index))
        for index, preference in enumerate(found.tolist())
    ]
    assert decided(log) == [bool(decision) for decision, _ in expected]
    np.testing.assert_array_equal(
        log.columns["log_probability"][:, 0], np.array([logarithm for _, logarithm in expected], np.float32)
    )
    assert 0.1 < np.mean(decided(log)) < 0.9
    values = np.stack([log.columns[name][:, 0] for name in policy.features], axis=1)
    alone = np.concatenate([policy.preferences(row[None]) for row in values])
    assert ((alone > 0) != (found > 0)).any(), "the memory has to matter"
    if exploration == Exploration():
        assert compiler.compile("unlogged.o", policy="some.policy") == logged


def test_what_a_table_decides_is_remembered_as_a_question_all_the_same(compiler: Compiler, policy: Policy) -> None:
    compiler.compile("before.o", policy="some.policy", log="before.log")
    before = read_log(compiler.folder / "before.log")
    keys, inlined = before.columns["site"][:, 0].view(np.uint64), np.array(decided(before))
    names = strong_names(measure_object(compiler.folder / "before.o"))
    # Every third question is answered as the policy did, so that the compiler asks the same.
    (compiler.folder / "table").write_bytes(table_bytes([make_entry(names, keys[::3], inlined[::3])]))

    compiler.compile("after.o", policy="some.policy", decisions="table", log="after.log")

    after = read_log(compiler.folder / "after.log")
    assert 0 < int(after.columns["decided_by_table"].sum()) < len(inlined)
    assert decided(after) == inlined.tolist()
    assert (compiler.folder / "after.o").read_bytes() == (compiler.folder / "before.o").read_bytes()


@pytest.mark.first_major
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recurrent": UNITS + 1}, "tensor 'layer2.weight': its shape does not fit the description"),
        ({"recurrent": 5000}, "expected 1 to 4096 units as 'recurrent'"),
        ({"problem": "pass-selection"}, "in at least 3 layers with 'logits' for inline-size"),
    ],
)
def test_a_wrong_lstm_is_named(compiler: Compiler, policy: Policy, changes: dict[str, Any], message: str) -> None:
    save_policy(dataclasses.replace(policy, **changes), compiler.folder / "some.policy")
    with pytest.raises(AssertionError, match=f"mlgokit: policy some.policy: .*{message}"):
        compiler.compile("out.o", policy="some.policy")


@pytest.mark.parametrize("threads", ["1", "4"])
def test_modules_of_one_link_have_memories_of_their_own(compiler: Compiler, policy: Policy, threads: str) -> None:
    assert compiler.toolchain.lld is not None
    objects: list[str | Path] = []
    for number in range(4):
        text = "".join(CALLS.replace("@", f"{number}_{part}") for part in range(2))
        (compiler.folder / f"{number}.c").write_text(text)
        words: list[str | Path] = [compiler.toolchain.clang, "-Oz", "-flto=thin", "-fPIC", "-c", f"{number}.c"]
        compiler.run([*words, "-o", f"{number}.o"])
        objects.append(f"{number}.o")

    compiler.run(
        [compiler.toolchain.lld, "-shared", f"--load-pass-plugin={compiler.plugin}", f"--thinlto-jobs={threads}",
         *objects, "-o", "image.so"],
        policy="some.policy", lto="1", log="link.log",
    )  # fmt: skip

    logs = [read_log(path) for path in sorted(compiler.folder.glob("link.log*"))]
    assert sum(log.observation_count > 10 for log in logs) == 4
    for log in logs:
        assert decided(log) == (preferences(policy, log) > 0).tolist()


@pytest.mark.first_major
def test_a_recurrent_policy_is_trained_validated_and_trained_further(
    toolchain: Toolchain, small_corpus: Path, tmp_path: Path
) -> None:
    def trained(name: str, *changes: str, algorithm: Any = "behavioural-cloning", **learning: Any) -> Policy:
        train(
            Train(
                corpus=small_corpus,
                output=tmp_path / name,
                algorithm=algorithm,
                store=tmp_path / "store",
                compiler=CompilerOptions(llvm=toolchain.major, workers=1),
                learning=Learning(iterations=1, setting=changes, **learning),
            )
        )
        return load_policy(tmp_path / name / "final.policy")

    few, start = "imitation.steps=20", tmp_path / "first" / "final.policy"
    changes = (few, "imitation.recurrent=5", "imitation.hidden=[8,6]")
    policy = trained("first", *changes, validation_share=0.2, evaluate_every=1)
    assert policy.recurrent == 5
    assert [layer.weight.shape[1:] for layer in policy.layers[1:]] == [(8, 6), (11, 20), (5, 2)]
    assert json.loads((tmp_path / "first" / "metrics.json").read_text())["judged"] > 0
    further = trained("second", few, start=start)
    assert further.recurrent == 5
    assert (further.layers[2].weight != policy.layers[2].weight).any()
    with pytest.raises(
        UsageError, match="algorithm ppo: expected one of behavioural-cloning, dqn, bc-max and the prob"
    ):
        trained("third", algorithm="ppo", start=start)

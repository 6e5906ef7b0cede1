"""The default run of ``mlgokit train``, against a compiler that is arithmetic: what is compiled, what that teaches."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.caching import CachingCompiler, open_caching
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.errors import CorpusError, InputError, PolicyError, UsageError
from mlgokit.learning.baselines import compile_defaults
from mlgokit.learning.loop import learn
from mlgokit.learning.page import training_page
from mlgokit.learning.record import FORMAT, FORMAT_VERSION, TrainingRecord
from mlgokit.learning.rollouts import BEST_NAME, INNER_MARGIN
from mlgokit.learning.run_folder import rounds_of
from mlgokit.learning.settings import Learning
from mlgokit.learning.task import make_task, split_modules
from mlgokit.learning.training import Learned
from mlgokit.module import Module
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import policy_bytes, save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import parse_table
from mlgokit.testing import FakeCompiler, ToyCall, ToyModule, toy_compiler, toy_source

CALLS = 12
QUICK = ("fit.members=2", "fit.epochs=2", "later_share=1.0")


def toy(name: str) -> ToyModule:
    """Inlining what function i of the module calls adds i - 6 bytes to it."""

    def weigh(inlined: tuple[bool, ...]) -> dict[str, int]:
        return {f"{name}.f{index}": 100 + (index - 6) * done for index, done in enumerate(inlined)}

    calls = tuple(
        ToyCall(caller=f"{name}.f{index}", callee=f"{name}.g{index}", site=2 * index + 2, features={"size": index})
        for index in range(CALLS)
    )
    return ToyModule(calls=calls, weigh=weigh, user_seconds=0.5)


@pytest.fixture
def toys() -> dict[str, ToyModule]:
    """The modules by name; a test may exchange one."""
    return {name: toy(name) for name in "abcd"}


@pytest.fixture
def fake(toys: dict[str, ToyModule], tmp_path: Path) -> FakeCompiler:
    (tmp_path / "plugin.so").write_bytes(b"plugin")
    compiler = toy_compiler(toys)
    compiler.plugin = tmp_path / "plugin.so"
    return compiler


@pytest.fixture
def compiler(fake: FakeCompiler, tmp_path: Path) -> CachingCompiler:
    return open_caching(fake, tmp_path / "store")


@pytest.fixture
def modules(tmp_path: Path) -> list[Module]:
    made: list[Module] = []
    for name, project in (("a", "p"), ("b", "p"), ("c", "q"), ("d", "q")):
        bitcode = tmp_path / f"{name}.bc"
        bitcode.write_bytes(name.encode())
        made.append(toy_source(name, project=project, bitcode=bitcode))
    return made


def uses(fake: FakeCompiler) -> list[tuple[str, PluginUse]]:
    """What was compiled: the module's name, and how."""
    return [(module.name, request.use) for module, request in fake.asked if request.use is not None]


def tables(fake: FakeCompiler) -> list[tuple[str, dict[int, bool]]]:
    """The decision tables that were compiled with: the module's name, and the decisions by site."""
    found: list[tuple[str, dict[int, bool]]] = []
    for name, use in uses(fake):
        if isinstance(use.decisions, bytes) and use.decisions:
            (entry,) = parse_table(use.decisions, name="table").entries
            found.append((name, {int(key) & ~1: bool(int(key) & 1) for key in entry.keys}))
    return found


def train(compiler: CachingCompiler, modules: list[Module], folder: Path, *setting: str, **how: Any) -> Learned:
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {"iterations": 2, "evaluate_every": 0} | how
    config = Learning(**given, setting=(*QUICK, "independent=4", *setting))
    return learn(
        compiler, modules, INLINE_SIZE, "effect-regression", config.resolve("effect-regression"), folder=folder
    )


def test_explorations_repeat_the_base_but_for_flips_that_cannot_meet(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    done = train(compiler, modules, tmp_path / "train")

    # Two explorations of each module in each round; the first round's bases are the default trace.
    assert len(tables(fake)) == 2 * 2 * len(modules)
    assert len(fake.asked) == (2 * 3) * len(modules)
    rounds = rounds_of(done.rows)
    assert [one["compilations"] for one in rounds] == [3 * len(modules)] * 2
    for _, use in uses(fake):
        assert (use.temperature, use.flip_probability) == (0.0, 0.0)
    for number, (_, given) in enumerate(tables(fake)):
        assert len(given) == CALLS
        if number < 2 * len(modules):
            assert sum(given.values()) == 4
    # Each flip is a component, and nothing is left over.
    first, second = rounds
    assert first["flips"] == first["components"] <= 4 * 2 * len(modules)
    assert first["components"] < second["components"] <= 2 * first["components"] + 4
    assert (first["unattributed_share"], first["failures"]) == (0.0, {})
    assert (done.taught, done.judged) == (4, 0)


def test_an_interrupted_training_repeats_no_compilation_and_gives_the_same_bits(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    train(compiler, modules, tmp_path / "parts", iterations=1)
    known = len(fake.asked)
    whole = train(compiler, modules, tmp_path / "whole")
    assert len(fake.asked) == known + 3 * len(modules)

    parts = train(compiler, modules, tmp_path / "parts")

    assert len(fake.asked) == known + 3 * len(modules)
    assert policy_bytes(parts.policy) == policy_bytes(whole.policy)


def test_a_module_that_did_not_compile_at_first_stays_out_of_a_training(
    fake: FakeCompiler,
    compiler: CachingCompiler,
    modules: list[Module],
    tmp_path: Path,
    toys: dict[str, ToyModule],
):
    works, fails = toys["a"], dataclasses.replace(toys["a"], fails=lambda _: "killed by signal 9")
    modules[0] = dataclasses.replace(modules[0], project="alone")
    toys["a"] = fails
    whole = train(compiler, modules, tmp_path / "whole")
    train(compiler, modules, tmp_path / "parts", iterations=1)
    toys["a"] = works

    parts = train(compiler, modules, tmp_path / "parts")

    assert policy_bytes(parts.policy) == policy_bytes(whole.policy)
    assert (whole.left_out, parts.left_out) == ({"killed by signal 9": 1}, {"left out when the training began": 1})
    train(compiler, modules, tmp_path / "with a", iterations=1)
    toys["a"] = fails
    with pytest.raises(InputError, match="expected the 4 modules that compiled when it began, found that a does not;"):
        train(open_caching(fake, tmp_path / "another store"), modules, tmp_path / "with a")


def test_random_flips_can_be_asked_for(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    done = train(compiler, modules, tmp_path / "train", "independent=0")

    assert tables(fake) == []
    # Three of twelve decisions are expected to flip, and there is no temperature before there is a policy.
    assert [use.flip_probability for _, use in uses(fake) if use.flip_probability > 0] == [0.25] * 16
    assert sum(use.temperature > 0 for _, use in uses(fake)) == 8
    assert [one["compilations"] for one in rounds_of(done.rows)] == [12, 12]


def test_a_module_without_names_of_its_own_is_explored_at_random(
    fake: FakeCompiler,
    compiler: CachingCompiler,
    modules: list[Module],
    tmp_path: Path,
    toys: dict[str, ToyModule],
):
    toys["b"] = dataclasses.replace(toys["b"], signatures={f"b.f{index}": f"b.f{index}" for index in range(CALLS)})
    done = train(compiler, modules, tmp_path / "train", iterations=1)

    assert {name for name, _ in tables(fake)} == {"a", "c", "d"}
    assert [name for name, use in uses(fake) if use.flip_probability > 0] == ["b", "b"]
    assert done.counters.compilations == 12


def with_a_table(request: CompileRequest) -> str:
    return "boom" if request.use is not None and request.use.decisions else ""


def test_failed_explorations_are_counted_and_teach_nothing(
    fake: FakeCompiler,
    compiler: CachingCompiler,
    modules: list[Module],
    tmp_path: Path,
    toys: dict[str, ToyModule],
):
    toys["d"] = dataclasses.replace(toys["d"], fails=with_a_table)
    (only,) = rounds_of(train(compiler, modules, tmp_path / "train", iterations=1).rows)

    assert only["failures"] == {"boom": 2}
    assert 0 < only["flips"] <= 3 * 2 * 4


def test_a_training_in_which_nothing_compiled_makes_no_policy(
    compiler: CachingCompiler, modules: list[Module], tmp_path: Path, toys: dict[str, ToyModule]
):
    def with_the_rule(request: CompileRequest) -> str:
        wrong = request.use is not None and ":alway" in request.use.policies.values()
        return "policy :alway: expected a readable file" if wrong else ""

    toys.update({name: dataclasses.replace(one, fails=with_the_rule) for name, one in toys.items()})
    config = Learning(iterations=2, setting=("rule=:alway",))
    with pytest.raises(CorpusError, match=r"one of 8 compilations of behavioural-cloning to succeed, found none"):
        learn(compiler, modules, INLINE_SIZE, "behavioural-cloning", config, folder=tmp_path)


def test_explorations_that_came_out_alike_are_one(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    # With room for all of them every exploration flips all decisions.
    (only,) = rounds_of(train(compiler, modules, tmp_path / "train", "independent=64", iterations=1).rows)

    assert {sum(given.values()) for _, given in tables(fake)} == {CALLS}
    assert only["flips"] == CALLS * len(modules)


def test_later_rounds_visit_a_part_of_the_modules(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    done = train(compiler, modules, tmp_path / "train", "later_share=0.7")

    assert [one["compilations"] for one in rounds_of(done.rows)] == [12, 9]


def test_modules_with_most_decisions_are_left_out_but_not_all_of_them(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    with pytest.raises(UsageError, match=r"^effect-regression: expected at least one of 4 modules to have at most "):
        train(compiler, modules, tmp_path / "train", "most_decisions=1")


def test_the_policy_does_not_depend_on_the_speed_of_the_machine(
    fake: FakeCompiler, toys: dict[str, ToyModule], modules: list[Module], tmp_path: Path
):
    fast = train(open_caching(fake, tmp_path / "store"), modules, tmp_path / "fast", evaluate_every=None)
    toys.update({name: dataclasses.replace(one, user_seconds=100.0) for name, one in toys.items() if name != "c"})
    slow = train(open_caching(fake, tmp_path / "other"), modules, tmp_path / "slow", evaluate_every=None)

    assert slow.counters.user_seconds > fast.counters.user_seconds
    assert policy_bytes(slow.policy) == policy_bytes(fast.policy)


def test_the_first_round_is_made_however_late_it_is(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    config = Learning(iterations=3, evaluate_every=0, setting=QUICK).resolve("effect-regression")
    done = learn(compiler, modules, INLINE_SIZE, "effect-regression", config, folder=tmp_path, deadline=-math.inf)

    assert done.counters.turn == 1
    assert "gate" in rounds_of(done.rows)[0]


def test_every_module_teaches_and_members_judge_on_projects_they_do_not_know(
    fake: FakeCompiler, compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    done = train(compiler, modules, tmp_path / "train", evaluate_every=None)

    assert (done.taught, done.judged) == (4, 4)
    assert done.counters.evaluations == 2 * 4
    assert all(math.isfinite(row["validation_gain"]) for row in done.rows)
    assert done.counters.best_gain == max(row["validation_gain"] for row in done.rows)
    best = (tmp_path / "train" / BEST_NAME).read_bytes()
    last_gain = done.rows[-1]["validation_gain"]
    assert (policy_bytes(done.policy) == best) == (
        done.counters.best_turn == done.counters.turn or done.counters.best_gain > last_gain + INNER_MARGIN
    )
    # Of two members each knows one of the two projects, so that four modules are judged by networks of one member.
    judges = {use.policies[INLINE_SIZE.name] for _, use in uses(fake)[-4:]}
    assert len(judges) == 2


def test_a_last_policy_that_is_validated_at_the_end_is_in_the_report(
    compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    done = train(compiler, modules, tmp_path / "train", iterations=1, evaluate_every=2, validation_share=0.5)

    assert math.isnan(done.rows[-1]["validation_gain"])
    assert (done.judged, done.counters.evaluations, done.counters.best_turn) == (2, 2, 1)
    assert [module.project for module in done.judged_modules] == ["q", "q"]
    record = TrainingRecord.from_json(
        {"format": FORMAT, "format_version": FORMAT_VERSION, "policy": "p", **done.to_json()}
    )
    assert training_page(record).headline.startswith("In validation, ")
    whole = train(compiler, modules, tmp_path / "train", iterations=2, evaluate_every=2, validation_share=0.5)
    assert whole.counters.evaluations == 2


def test_modules_kept_apart_to_judge_are_not_drawn_to_teach(compiler: CachingCompiler, modules: list[Module]):
    baselines = compile_defaults(compiler, modules, INLINE_SIZE)
    taught, judged = split_modules(baselines, Learning(evaluate_every=1, validation_share=0.5))
    task = make_task(baselines, taught, Learning(), algorithm="effect-regression")
    assert judged
    assert task.compiled == task.modules == len(taught)
    assert task.place is not None
    assert task.place.tolist() == list(range(len(taught)))


def test_llvms_own_features_alone_are_what_a_build_of_llvm_has(
    compiler: CachingCompiler, modules: list[Module], tmp_path: Path
):
    baselines = compile_defaults(compiler, modules, INLINE_SIZE)
    known = dataclasses.replace(baselines, available=("callee_users", "callee_is_discardable"))
    config = Learning(features="llvm")

    task = make_task(known, range(len(modules)), config, algorithm="effect-regression")

    assert task.features == ("callee_users",)
    start = tmp_path / "start.policy"
    one = np.ones(2, np.float32)
    policy = Policy(
        problem=INLINE_SIZE.name,
        features=known.available,
        normaliser=SignedLog(mean=0 * one, scale=one, clip=4.0),
        layers=(Layer(np.zeros((1, 2, 2), np.float32), np.zeros((1, 2), np.float32)),),
        output=OutputKind.LOGITS,
    )
    save_policy(policy, start)
    make_task(known, range(len(modules)), Learning(start=start), algorithm="ppo")
    with pytest.raises(PolicyError, match="sends without our plugin, found 'callee_is_discardable'; start from"):
        make_task(known, range(len(modules)), dataclasses.replace(config, start=start), algorithm="ppo")

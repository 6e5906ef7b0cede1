"""Rounds of effect training against a compiler that is arithmetic: what it is asked for, and what that teaches."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.config import EffectConfig
from mlgokit.collect import Workshop, open_workshop
from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse
from mlgokit.compiler.objects.function_id import function_id
from mlgokit.compiler.objects.measure import ObjectSizes, SectionTotals
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.store import recall, remember
from mlgokit.tables.decisions import read_table
from mlgokit.traces import ContextSpan, Header, Log
from mlgokit.train import EffectTraining, RoundResult, train_effects

CALLS = 12
QUICK = EffectConfig(members=2, epochs=2)


class Compiler:
    """Stands for ``compile_module``: inlining what function i of a module calls adds i - 6 bytes to it."""

    def __init__(self) -> None:
        self.local: set[str] = set()
        """Modules whose functions are all in COMDAT groups."""
        self.failing: set[str] = set()
        """Modules that fail with a decision table."""
        self.uses: list[tuple[str, PluginUse]] = []
        self.tables: list[tuple[str, dict[int, bool]]] = []

    def __call__(
        self, _toolchain: Toolchain, _command_line: tuple[str, ...], bitcode: Path, *, use: PluginUse, **_: Any
    ) -> CompileResult:
        name = bitcode.stem
        self.uses.append((name, use))
        given: dict[int, bool] = {}
        if isinstance(use.decisions, Path):
            (entry,) = read_table(use.decisions).entries
            given = {int(key) & ~1: bool(int(key) & 1) for key in entry.keys}
            self.tables.append((name, given))
            if name in self.failing:
                return CompileResult(
                    status=CompileStatus.CRASHED, sizes=None, logs={}, user_seconds=0.1, wall_seconds=0.1, reason="boom"
                )
        values = np.arange(CALLS)
        policy = use.policies[INLINE_SIZE.name]
        loaded = None if policy.startswith(":") else load_policy(Path(policy))
        own = np.zeros(CALLS, bool) if loaded is None else preferences(loaded, values) > 0
        turned = np.random.default_rng(use.seed).random(CALLS) < use.flip_probability
        sites = 2 * (values + 1)
        inlined = np.array([given.get(int(site), bool(one)) for site, one in zip(sites, own ^ turned, strict=True)])
        log_probability = np.where(turned & (not given), -3.0, -0.1)
        return CompileResult(
            status=CompileStatus.OK,
            sizes=sizes_of(name, 100 + np.where(inlined, values - 6, 0), local=name in self.local),
            logs={INLINE_SIZE.name: log_of(name, sites, inlined, log_probability, bool(given))},
            user_seconds=0.5,
            wall_seconds=0.5,
        )


def preferences(policy: Policy, values: np.ndarray) -> np.ndarray:
    return policy.preferences(values[:, None], np.zeros(len(values), bool))


def log_of(name: str, sites: np.ndarray, inlined: np.ndarray, log_probability: np.ndarray, by_table: bool) -> Log:
    columns = {
        "size": np.arange(CALLS),
        "caller_id": np.array([function_id(f"{name}.f{index}") for index in range(CALLS)]),
        "callee_id": np.array([function_id(f"{name}.g{index}") for index in range(CALLS)]),
        "site": sites,
        "decided_by_table": np.full(CALLS, int(by_table)),
        "inlining_default": np.zeros(CALLS, np.int64),
        "inlining_decision": inlined.astype(np.int64),
        "log_probability": log_probability.astype(np.float32),
    }
    return Log(
        header=Header(features=()),
        contexts=(ContextSpan(name="m", start=0, stop=CALLS),),
        columns={key: column.reshape(CALLS, 1) for key, column in columns.items()},
    )


def sizes_of(name: str, text: np.ndarray, *, local: bool) -> ObjectSizes:
    none = np.zeros(CALLS, np.int64)
    signatures = tuple(f"{name}.f{index}" for index in range(CALLS)) if local else ()
    return ObjectSizes(
        totals=SectionTotals(text=int(text.sum()), rodata=0, eh_frame=0, data=0, bss=0, except_table=0),
        function_names=tuple(f"{name}.f{index}" for index in range(CALLS)),
        function_text=text.astype(np.int64),
        function_rodata=none,
        function_except_table=none,
        function_eh_frame=none,
        function_signature=np.arange(CALLS) if local else none - 1,
        signatures=signatures,
        signature_rest=np.zeros((len(signatures), 3), np.int64),
        signature_data=np.zeros(len(signatures), np.int64),
        rest=np.zeros(3, np.int64),
    )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    stand_in = Compiler()
    monkeypatch.setattr("mlgokit.collect.compile_module", stand_in)
    return stand_in


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "plugin.so").write_bytes(b"plugin")
    clang = Path("clang")
    toolchain = Toolchain(major=19, version="19.1.7", clang=clang, clangxx=clang)
    return open_workshop(toolchain, tmp_path / "plugin.so", tmp_path / "store", workers=1)


@pytest.fixture
def modules(tmp_path: Path) -> list[Module]:
    made: list[Module] = []
    for name, project in (("a", "p"), ("b", "p"), ("c", "q"), ("d", "q")):
        bitcode = tmp_path / f"{name}.bc"
        bitcode.write_bytes(name.encode())
        made.append(
            Module(name=name, project=project, language="c++", bitcode=bitcode, command_line=("-cc1",), bitcode_bytes=1)
        )
    return made


def train(workshop: Workshop, modules: list[Module], folder: Path, **settings: Any) -> tuple[Path, list[RoundResult]]:
    folder.mkdir(exist_ok=True)
    config = EffectTraining(**({"rounds": 2, "later_share": 1.0, "most_moves": 4, "fit": QUICK} | settings))
    return train_effects(workshop, modules, config, folder=folder)


def test_explorations_repeat_the_base_but_for_flips_that_cannot_meet(
    compiler: Compiler, workshop: Workshop, modules: list[Module], tmp_path: Path
):
    path, rounds = train(workshop, modules, tmp_path / "train")

    # Two explorations of each module in each round; the first round's bases are the default trace.
    assert len(compiler.tables) == 2 * 2 * len(modules)
    assert len(compiler.uses) == (2 * 3) * len(modules)
    assert [one.compilations for one in rounds] == [3 * len(modules)] * 2
    for _, use in compiler.uses:
        assert (use.temperature, use.flip_probability) == (0.0, 0.0)
    for number, (_, given) in enumerate(compiler.tables):
        assert len(given) == CALLS
        if number < 2 * len(modules):
            assert sum(given.values()) == 4
    # Each flip is a component, and nothing is left over.
    first, second = rounds
    assert first.flips == first.components <= 4 * 2 * len(modules)
    assert first.components < second.components <= 2 * first.components + 4
    assert (first.unattributed_share, first.failures) == (0.0, {})
    assert path == tmp_path / "train" / "round-1.policy"


def test_an_interrupted_training_repeats_no_compilation_and_gives_the_same_bits(
    compiler: Compiler, workshop: Workshop, modules: list[Module], tmp_path: Path
):
    train(workshop, modules, tmp_path / "first", rounds=1)
    known = len(compiler.uses)
    whole, _ = train(workshop, modules, tmp_path / "second")
    assert len(compiler.uses) == known + 3 * len(modules)

    again, _ = train(workshop, modules, tmp_path / "third")

    assert len(compiler.uses) == known + 3 * len(modules)
    assert again.read_bytes() == whole.read_bytes()


def test_what_an_older_version_kept_without_sites_is_compiled_again(
    compiler: Compiler, workshop: Workshop, modules: list[Module], tmp_path: Path
):
    before, _ = train(workshop, modules, tmp_path / "first", rounds=1)
    for path in workshop.store.rglob("*.npz"):
        run = recall(path)
        assert run is not None
        remember(path, dataclasses.replace(run, sites=None))
    compiler.uses.clear()

    after, _ = train(workshop, modules, tmp_path / "second", rounds=1)

    assert [name for name, _ in compiler.uses] == ["a", "b", "c", "d"]
    assert after.read_bytes() == before.read_bytes()


@pytest.mark.parametrize(("exploration", "tables", "random"), [("random", 0, 16), ("mixed", 12, 4)])
def test_random_flips_can_be_asked_for(
    compiler: Compiler,
    workshop: Workshop,
    modules: list[Module],
    tmp_path: Path,
    exploration: str,
    tables: int,
    random: int,
):
    _, rounds = train(workshop, modules, tmp_path / "train", exploration=exploration)

    assert len(compiler.tables) == tables
    assert sum(use.flip_probability > 0 for _, use in compiler.uses) == random
    assert [one.compilations for one in rounds] == [12, 12]


def test_a_module_without_names_of_its_own_is_explored_at_random(
    compiler: Compiler, workshop: Workshop, modules: list[Module], tmp_path: Path
):
    compiler.local = {"b"}
    _, (only,) = train(workshop, modules, tmp_path / "train", rounds=1)

    assert {name for name, _ in compiler.tables} == {"a", "c", "d"}
    assert [name for name, use in compiler.uses if use.flip_probability > 0] == ["b", "b"]
    assert only.compilations == 12


def test_failed_explorations_are_counted_and_teach_nothing(
    compiler: Compiler, workshop: Workshop, modules: list[Module], tmp_path: Path
):
    compiler.failing = {"d"}
    _, (only,) = train(workshop, modules, tmp_path / "train", rounds=1)

    assert only.failures == {"boom": 2}
    assert 0 < only.flips <= 3 * 2 * 4


def test_explorations_that_came_out_alike_are_one(
    compiler: Compiler, workshop: Workshop, modules: list[Module], tmp_path: Path
):
    # With room for all of them every exploration turns all decisions round.
    _, (only,) = train(workshop, modules, tmp_path / "train", rounds=1, most_moves=64)

    assert {sum(given.values()) for _, given in compiler.tables} == {CALLS}
    assert only.flips == CALLS * len(modules)

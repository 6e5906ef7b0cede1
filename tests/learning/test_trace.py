"""Which modules are traced, and what is written of them; no compiler takes part."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.regalloc_cost import COSTS, COUNTS, RegallocCosts
from mlgokit.compiler.request import CompileRequest
from mlgokit.errors import InputError, UsageError
from mlgokit.learning import trace
from mlgokit.learning.trace import Selection, outcome, select, trace_modules, write_performance, write_summary
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION
from mlgokit.spec import TensorSpec
from mlgokit.testing import FakeCompiler, toy_sizes
from mlgokit.traces import ContextSpan, Header, Log
from mlgokit.traces.training_set import iter_training_set

NAMES = ("a/one.o", "a/two.o", "b/three.o", "b/four.o")


def selection(**changes: Any) -> Selection:
    given: dict[str, Any] = {"modules": "", "keys": "", "keys_file": None, "share": 1.0, "seed": 1}
    return select(**given | changes)


@pytest.fixture
def modules(tmp_path: Path) -> list[Module]:
    found: list[Module] = []
    for name in NAMES:
        bitcode = tmp_path / f"{name.replace('/', '-')}.bc"
        bitcode.write_text(name)
        found.append(
            Module(name=name, project=name[0], language="c++", bitcode=bitcode, command_line=("-cc1",), bitcode_bytes=2)
        )
    return found


def costs(**reloads: float) -> RegallocCosts:
    """Functions and how often they reload."""
    values = np.zeros((len(reloads), len(COSTS)))
    values[:, list(COSTS).index("reloads")] = list(reloads.values())
    return RegallocCosts(functions=tuple(reloads), counts=np.zeros((len(reloads), len(COUNTS)), np.int64), costs=values)


EVICTION = Log(
    header=Header(
        features=(
            TensorSpec(name="mask", type="int64_t", shape=(1, 3)),
            TensorSpec(name="index_to_evict_default", type="int64_t", shape=(1,)),
            TensorSpec(name="index_to_evict", type="int64_t", shape=(1,)),
        )
    ),
    contexts=(ContextSpan(name="f", start=0, stop=2), ContextSpan(name="g", start=2, stop=5)),
    columns={
        "mask": np.array([[[1, 1, 1]]] * 4 + [[[1, 0, 1]]], np.int64),
        "index_to_evict_default": np.ones((5, 1), np.int64),
        "index_to_evict": np.arange(5).reshape(5, 1) % 3,
    },
)


def evicting(module: Module, request: CompileRequest) -> Compilation:
    """three.o fails under the policy, four.o only plainly; the policy halves what g costs."""
    if "three" in module.name:
        return Compilation(status=CompileStatus.CRASHED, reason="signal 11")
    if request.use is None:
        if "four" in module.name:
            return Compilation(status=CompileStatus.FAILED, reason="error: e")
        return Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 100}), regalloc=costs(f=1.0, g=2.0))
    logs = dict.fromkeys(request.use.logs, EVICTION) if request.use.logs == ("regalloc-eviction",) else {}
    after = costs(f=1.0, g=1.0, h=3.0)
    return Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 90}), regalloc=after, logs=logs)


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler(answer=evicting)


def test_modules_are_chosen_by_their_names(modules: list[Module]):
    assert [one.name for one in selection().draw(modules)] == list(NAMES)
    assert [one.name for one in selection(modules="b/").draw(modules)] == ["b/three.o", "b/four.o"]
    assert [one.name for one in selection(modules=".*o.*o$").draw(modules)] == ["a/one.o", "a/two.o", "b/four.o"]


def test_a_share_is_drawn_by_seed_and_stays_in_order(modules: list[Module]):
    drawn = {seed: [one.name for one in selection(share=0.5, seed=seed).draw(modules)] for seed in range(20)}
    assert drawn[3] == [one.name for one in selection(share=0.5, seed=3).draw(modules)]
    assert len({tuple(names) for names in drawn.values()}) > 3
    for names in drawn.values():
        assert len(names) == 2
        assert names == sorted(names, key=NAMES.index)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"modules": "c/"},
            "at least one module, found none: 0 of 4 modules match 'c/', and a share of 1 of these is",
        ),
        ({"share": 0.1}, "at least one module, found none: 4 of 4 modules match '', and a share of 0.1 of these is"),
        ({"share": 0.0}, "sampling rate: expected a share above 0 and at most 1, found 0.0"),
        ({"share": 1.5}, "sampling rate: expected a share above 0 and at most 1, found 1.5"),
        ({"modules": "("}, r"module filter '(': expected a regular expression, found: "),
        ({"keys": "*"}, r"key filter '*': expected a regular expression, found: "),
    ],
)
def test_a_choice_of_nothing_or_nonsense_is_refused(modules: list[Module], changes: dict[str, Any], sentence: str):
    with pytest.raises(UsageError) as caught:
        selection(**changes).draw(modules)
    assert sentence in str(caught.value)


def test_keys_are_chosen_by_expression_and_list(tmp_path: Path):
    (tmp_path / "keys").write_text("f\n\n  gg \n")
    assert [key for key in ("f", "g", "gg", "h") if selection(keys_file=tmp_path / "keys").selects(key)] == ["f", "gg"]
    assert [key for key in ("f", "g", "gg") if selection(keys="g", keys_file=tmp_path / "keys").selects(key)] == ["gg"]
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match="empty: expected a key on each line, found none"):
        selection(keys_file=tmp_path / "empty")
    with pytest.raises(InputError, match=r"nowhere: expected a key on each line, found: .*No such file"):
        selection(keys_file=tmp_path / "nowhere")


def test_scores_are_those_of_the_plain_build_and_of_the_policy(
    tmp_path: Path, compiler: FakeCompiler, modules: list[Module]
):
    traces = trace_modules(compiler, modules, REGALLOC_EVICTION, policy=":random", folder=tmp_path / "logs")

    assert write_performance(tmp_path / "performance.csv", traces, selection()) == 6
    rows = list(csv.reader((tmp_path / "performance.csv").read_text().splitlines()))
    expected = [["f", "4.0", "4.0"], ["g", "8.0", "4.0"], ["h", "0.0", "12.0"]]
    assert rows == [[name, *row] for name in ("a/one.o", "a/two.o") for row in expected]
    assert write_performance(tmp_path / "some.csv", traces, selection(keys="g|h", modules="unused")) == 4

    found = outcome(traces)
    assert (found["modules"], found["succeeded"], found["decisions"]) == (4, 2, 15)
    assert found["failures"] == {"crashed": 1, "failed": 1}
    assert found["failed"] == [
        {"module": "b/three.o", "status": "crashed", "reason": "signal 11"},
        {"module": "b/four.o", "status": "failed", "reason": "baseline: error: e"},
    ]
    write_summary(tmp_path / "traces.json", traces, REGALLOC_EVICTION)
    summary = json.loads((tmp_path / "traces.json").read_text())
    assert (summary["format_version"], summary["problem"]) == (1, "regalloc-eviction")
    assert [row["reason"] for row in summary["modules"]] == ["", "", "signal 11", "baseline: error: e"]
    assert [row["decisions"] for row in summary["modules"]] == [5, 5, 0, 5]
    assert [row["masked_defaults"] for row in summary["modules"]] == [1, 1, 0, 0]
    assert found["masked_defaults"] == 2


def test_the_heuristic_is_its_own_baseline(tmp_path: Path, compiler: FakeCompiler, modules: list[Module]):
    traces = trace_modules(compiler, modules[:1], INLINE_SIZE, policy=":default", folder=tmp_path / "logs")
    assert len(compiler.asked) == 1
    assert write_performance(tmp_path / "performance.csv", traces, selection(keys="a/one")) == 1
    assert (tmp_path / "performance.csv").read_text() == "a/one.o,default,90,90\n"
    assert write_performance(tmp_path / "performance.csv", traces, selection(keys="default")) == 0


def test_a_training_set_has_the_chosen_keys_and_their_rewards(
    tmp_path: Path, compiler: FakeCompiler, modules: list[Module]
):
    logs = tmp_path / "logs"
    traces = trace_modules(compiler, modules[:2], REGALLOC_EVICTION, policy=":random", folder=logs)
    path = tmp_path / "x.tfrecord"
    count = trace.write_training_set(path, traces, REGALLOC_EVICTION, folder=logs, selection=selection())

    (found,) = iter_training_set(path)
    assert count == found.observation_count == 10
    assert [(span.name, span.stop) for span in found.contexts] == [
        ("a/one.o:f", 2),
        ("a/one.o:g", 5),
        ("a/two.o:f", 7),
        ("a/two.o:g", 10),
    ]
    assert sorted(found.columns) == ["index_to_evict", "index_to_evict_default", "mask"]
    assert found.scores is not None
    np.testing.assert_allclose(found.scores[:5, 0], [0, 0, *[1 - 4.01 / 8.01] * 3], rtol=1e-6)

    trace.write_training_set(path, traces, REGALLOC_EVICTION, folder=logs, selection=selection(keys="g"))
    (found,) = iter_training_set(path)
    assert [span.name for span in found.contexts] == ["a/one.o:g", "a/two.o:g"]


@pytest.mark.parametrize("damage", ["vanishes", "is cut short"])
def test_a_log_that_is_lost_before_it_is_written_is_a_failure(
    tmp_path: Path, compiler: FakeCompiler, modules: list[Module], damage: str
):
    logs = tmp_path / "logs"
    traces = trace_modules(compiler, modules[:2], REGALLOC_EVICTION, policy=":default", folder=logs)
    log = logs / "a" / "one.o.log"
    if damage == "vanishes":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:-5])
    path = tmp_path / "x.tfrecord"
    count = trace.write_training_set(path, traces, REGALLOC_EVICTION, folder=logs, selection=selection())
    assert count == 5
    (failure,) = outcome(traces)["failed"]
    assert (failure["module"], failure["status"]) == ("a/one.o", "bad_trace")
    assert "found No such file" in failure["reason"] or "the compiler was probably killed" in failure["reason"]

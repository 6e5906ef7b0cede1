"""What is remembered of compilations; no compiler takes part."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.caching import CachingCompiler, older_results, open_caching
from mlgokit.compiler.compilation import NOT_FEATURES, Compilation, CompileStatus
from mlgokit.compiler.recheck import Recheck
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import StaleError
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.spec import TensorSpec
from mlgokit.testing import FakeCompiler, ToyCall, toy_log, toy_sizes, toy_source
from mlgokit.traces import ContextSpan, Header, Log
from mlgokit.traces.function_id import function_id

CALLS = tuple(
    ToyCall(caller=caller, callee=callee, site=2 * number, features={"size": 100 + number, "depth": 200 + number})
    for number, (caller, callee) in enumerate(("fa", "ga", "gb"))
)
# The second one was flipped; a probability of one half is no flip.
THREE = Compilation(
    status=CompileStatus.OK,
    sizes=toy_sizes({"f": 50, "g": 60}),
    logs={"inline-size": toy_log(CALLS, [True, False, True], log_probability=np.log([0.9, 0.1, 0.5]).tolist())},
    user_seconds=0.5,
)
COSTS = RegallocCosts(functions=("f", "g"), counts=np.arange(12).reshape(2, 6), costs=np.arange(10.0).reshape(2, 5))


def asking(policy: str = HEURISTIC, problem: str = "inline-size", **use: Any) -> PluginUse:
    return PluginUse(policies={problem: policy}, logs=(problem,), **use)


DEFAULT = CompileRequest(use=asking())


@pytest.fixture
def module(tmp_path: Path) -> Module:
    bitcode = tmp_path / "m.bc"
    bitcode.write_bytes(b"BC")
    return toy_source("m", bitcode=bitcode)


@pytest.fixture
def fake(tmp_path: Path) -> FakeCompiler:
    (tmp_path / "plugin.so").write_bytes(b"plugin")
    return FakeCompiler(answer=lambda *_: THREE, plugin=tmp_path / "plugin.so")


@pytest.fixture
def remembering(tmp_path: Path, fake: FakeCompiler) -> Callable[..., CachingCompiler]:
    """``remembering(version="22.0.0")``: the store in front of ``fake``, opened anew."""

    def again(version: str = "22.0.0") -> CachingCompiler:
        fake.toolchain = Toolchain(major=22, version=version, clang=Path("clang"), clangxx=Path("clang"))
        return open_caching(fake, tmp_path / "store")

    return again


@pytest.fixture
def compiler(remembering: Callable[..., CachingCompiler]) -> CachingCompiler:
    return remembering()


def test_decisions_and_features_of_a_compilation(compiler: CachingCompiler, module: Module):
    for _ in range(2):
        done = compiler.compile(module, CompileRequest(use=asking(), keep="flips"))
        found = done.decisions

        assert (done.ok, done.decision_count, len(found), done.logs) == (True, 3, 3, {})
        assert found.caller.tolist() == [function_id(name) for name in "fgg"]
        assert found.callee.tolist() == [function_id(name) for name in "aab"]
        assert found.inlined.tolist() == [True, False, True]
        assert found.flipped.tolist() == [False, True, False]
        assert found.by_site == {0: True, 2: False, 4: True}
        assert (found.names, found.rows.tolist(), found.values.tolist()) == (("size", "depth"), [1], [[101, 201]])
        assert not set(found.names) & set(NOT_FEATURES)


@pytest.mark.parametrize(("keep", "rows"), [("none", []), ("flips", [1]), ("all", [0, 1, 2])])
def test_only_the_wanted_values_are_kept(compiler: CachingCompiler, module: Module, keep: str, rows: list[int]):
    for _ in range(2):
        found = compiler.compile(module, CompileRequest(use=asking(), keep=keep)).decisions  # type: ignore[arg-type]

        assert found.rows.tolist() == rows
        assert found.values.shape == (len(rows), 2)
        assert len(found) == 3


def test_the_other_compiler_is_asked_for_what_is_wanted(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    request = CompileRequest(use=asking(seed=5, temperature=0.5, flip_probability=0.25))
    compiler.compile(module, request)

    assert fake.asked == [(module, request)]


def test_nothing_is_compiled_twice(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    first, again = (compiler.compile(module, DEFAULT) for _ in range(2))

    assert len(fake.asked) == 1
    np.testing.assert_array_equal(again.decisions.values, first.decisions.values)
    assert again.sizes is not None


@pytest.mark.parametrize("status", [CompileStatus.FAILED, CompileStatus.CRASHED, CompileStatus.BAD_TRACE])
def test_failures_are_remembered(compiler: CachingCompiler, module: Module, fake: FakeCompiler, status: CompileStatus):
    fake.answer = lambda *_: Compilation(status=status, reason="error: e")
    _, again = (compiler.compile(module, CompileRequest(use=asking(":never"))) for _ in range(2))

    assert len(fake.asked) == 1
    assert (again.status, again.reason, again.ok, len(again.decisions)) == (status, "error: e", False, 0)


@pytest.mark.parametrize("status", [CompileStatus.FAILED, CompileStatus.CRASHED, CompileStatus.BAD_RECORD])
@pytest.mark.parametrize("request_", [CompileRequest(regalloc=True), DEFAULT])
def test_a_failed_baseline_is_made_again(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler, status: CompileStatus, request_: CompileRequest
):
    fake.answer = lambda *_: Compilation(status=status, reason="error: e")
    done = compiler.compile(module, request_)
    assert (done.status, done.reason) == (status, "error: e")
    compiler.compile(module, request_)
    assert len(fake.asked) == 2
    assert not compiler.store.exists()

    fake.answer = lambda *_: THREE
    assert compiler.compile(module, request_).ok
    assert compiler.compile(module, request_).ok
    assert len(fake.asked) == 3


def test_a_plain_compilation_is_kept_by_content_options_and_compiler(
    remembering: Callable[..., CachingCompiler], module: Module, fake: FakeCompiler, tmp_path: Path
):
    fake.answer = lambda *_: replace(THREE, logs={}, regalloc=COSTS)
    costs = CompileRequest(regalloc=True)
    found = remembering().compile(module, costs)
    (tmp_path / "plugin.so").write_bytes(b"another plugin")
    again = remembering().compile(module, costs)
    assert len(fake.asked) == 1
    for done in (found, again):
        assert done.regalloc is not None
        assert done.regalloc.functions == ("f", "g")
        np.testing.assert_array_equal(done.regalloc.scores, COSTS.scores)
        np.testing.assert_array_equal(done.regalloc.counts, COSTS.counts)
        assert done.decision_count == 0

    remembering().compile(replace(module, command_line=("-cc1", "-O2")), costs)
    remembering().compile(module)
    remembering("22.0.1").compile(module, costs)
    module.bitcode.write_bytes(b"BC other")
    remembering().compile(module, costs)
    assert len(fake.asked) == 5


def test_another_problem_keeps_costs_and_the_number_of_decisions(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler
):
    log = Log(
        header=Header(features=(TensorSpec(name="index_to_evict", type="int64_t", shape=(1,)),)),
        contexts=(ContextSpan(name="f", start=0, stop=7),),
        columns={"index_to_evict": np.zeros((7, 1), np.int64)},
    )
    fake.answer = lambda *_: replace(THREE, logs={"regalloc-eviction": log}, regalloc=COSTS)

    def run(problem: str, *, regalloc: bool, keep: str = "none") -> Compilation:
        use = asking(":random", problem)
        return compiler.compile(module, CompileRequest(use=use, keep=keep, regalloc=regalloc))  # type: ignore[arg-type]

    for _ in range(2):
        found = run("regalloc-eviction", regalloc=True)
        assert (found.decision_count, len(found.decisions)) == (7, 0)
        assert found.regalloc is not None
    assert len(fake.asked) == 1
    for _ in range(2):
        assert run("regalloc-eviction", regalloc=True, keep="log").logs["regalloc-eviction"].observation_count == 7
    assert len(fake.asked) == 2
    run("regalloc-priority", regalloc=True)
    run("regalloc-eviction", regalloc=False)
    assert len(fake.asked) == 4


@pytest.mark.parametrize("status", [CompileStatus.TIMED_OUT, CompileStatus.LIMITED])
def test_a_limit_that_was_met_is_not_remembered(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler, status: CompileStatus
):
    fake.answer = lambda *_: Compilation(status=status, reason="after 7 s")
    assert compiler.compile(module, CompileRequest(use=asking(":never"))).status is status
    assert not compiler.store.exists()

    fake.answer = lambda *_: THREE
    assert compiler.compile(module, DEFAULT).ok


def test_a_kill_from_outside_is_not_remembered(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    fake.answer = lambda *_: Compilation(status=CompileStatus.CRASHED, killed=True)
    assert compiler.compile(module, CompileRequest(use=asking(":never"))).status is CompileStatus.CRASHED
    assert not compiler.store.exists()


def test_what_becomes_of_damaged_bitcode_is_kept_apart(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    intact = replace(module, bitcode_sha256=digest_file(module.bitcode))
    module.bitcode.write_bytes(b"damaged")
    fake.answer = lambda *_: Compilation(status=CompileStatus.FAILED, reason="error: e")
    never = CompileRequest(use=asking(":never"))
    assert not compiler.compile(intact, never).ok

    module.bitcode.write_bytes(b"BC")
    fake.answer = lambda *_: THREE
    assert compiler.compile(intact, never).ok
    assert compiler.compile(intact, never).ok
    assert len(fake.asked) == 2


def test_the_bitcode_counts_and_not_what_the_sidecar_says_of_it(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler
):
    promised = replace(module, bitcode_sha256="0" * 64)
    compiler.compile(promised, DEFAULT)
    module.bitcode.write_bytes(b"other bitcode")
    compiler.compile(promised, DEFAULT)
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("-fprofile-instrument-use-path={}",),
        ("-fprofile-sample-use={}",),
        ("-include", "{}"),
        ("-fpass-plugin={}",),
        ("-mllvm", "-an-option-of-next-year={}"),
        ("-mllvm", "-dfsan-abilist", "-mllvm", "{}"),
        ("-fnew-option=first,{},last",),
        ("-fmodule-file=name={}",),
    ],
)
def test_what_an_option_names_counts_by_its_content(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler, tmp_path: Path, words: tuple[str, ...]
):
    named = tmp_path / "named"
    named.write_bytes(b"one")
    asked = replace(module, command_line=("-cc1", *(word.format(named) for word in words)))
    for _ in range(2):
        compiler.compile(asked, DEFAULT)
        compiler.compile(asked)
    assert len(fake.asked) == 2
    named.write_bytes(b"two")
    compiler.compile(asked, DEFAULT)
    compiler.compile(asked)
    assert len(fake.asked) == 4


@pytest.mark.parametrize(
    "words",
    [("@words",), ("-ivfsoverlay", "a"), ("-working-directory", "a"), ("-fpass-plugin=a.so",), ("-load", "a.so")],
)
def test_options_that_hide_what_they_read_are_not_remembered(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler, words: tuple[str, ...]
):
    for _ in range(2):
        compiler.compile(replace(module, command_line=("-cc1", *words)), DEFAULT)
    assert len(fake.asked) == 2
    assert not compiler.store.exists()


def test_what_changes_while_it_is_compiled_is_not_remembered(
    compiler: CachingCompiler, module: Module, fake: FakeCompiler
):
    def answer(*_: object) -> Compilation:
        module.bitcode.write_bytes(b"changed meanwhile")
        return THREE

    fake.answer = answer
    assert compiler.compile(module, DEFAULT).ok
    assert not compiler.store.exists()


def test_a_missing_file_is_for_the_compiler_to_name(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    fake.answer = lambda *_: Compilation(status=CompileStatus.FAILED, reason="error: no such file")
    missing = replace(module, bitcode=module.bitcode.with_name("none.bc"))
    assert compiler.compile(missing, CompileRequest(use=asking(":never"))).reason == "error: no such file"
    assert not compiler.store.exists()


def test_results_of_another_version_are_not_read(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    compiler.compile(module, DEFAULT)
    (kept,) = compiler.store.rglob("*.npz")
    older = compiler.store / kept.parent.name / kept.name
    older.parent.mkdir()
    kept.rename(older)
    assert older_results(compiler.store) == 1

    compiler.compile(module, DEFAULT)
    assert len(fake.asked) == 2
    assert older_results(compiler.store) == 1


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (replace(THREE, sizes=toy_sizes({"f": 51, "g": 60})), "sizes: totals (SectionTotals(text=110"),
        (Compilation(status=CompileStatus.CRASHED), "status: "),
        (
            replace(THREE, logs={"inline-size": toy_log(CALLS, [True, True, True])}),
            "decisions: inlined (sum 2 recalled, 3 made)",
        ),
    ],
)
def test_a_recalled_result_that_is_another_one_now_is_an_error(
    fake: FakeCompiler, module: Module, tmp_path: Path, now: Compilation, differs: str
):
    def opened(share: float) -> CachingCompiler:
        return open_caching(fake, tmp_path / "store", recheck=Recheck(share=share, seed=1))

    never = CompileRequest(use=asking(":never"))
    opened(0).compile(module, never)
    assert opened(1).compile(module, never).ok
    assert len(fake.asked) == 2

    fake.answer = lambda *_: now
    assert opened(0).compile(module, never).status is CompileStatus.OK
    with pytest.raises(StaleError) as raised:
        opened(1).compile(module, never)
    said = str(raised.value)
    assert said.startswith("m: the compiler's result differs from what the store ")
    assert differs in said
    assert "so the cache key (version 3; compiler " in said
    for had in ('command_line ["-cc1", "-Oz"]', f"bitcode {digest_file(module.bitcode)}", "policy :never", "seed 0"):
        assert had in said
    assert "use another store, and report this sentence" in said
    # What is in the store now is right, and what else was there still is.
    assert opened(1).compile(module, never).status is now.status


def test_a_check_that_the_machine_ended_says_nothing(fake: FakeCompiler, module: Module, tmp_path: Path):
    compiler = open_caching(fake, tmp_path / "store", recheck=Recheck(share=1, seed=1))
    compiler.compile(module, DEFAULT)
    for ended in (Compilation(status=CompileStatus.TIMED_OUT), Compilation(status=CompileStatus.CRASHED, killed=True)):
        fake.answer = lambda *_, ended=ended: ended
        assert compiler.compile(module, DEFAULT).ok


def test_a_check_that_finds_nothing_changes_no_result(fake: FakeCompiler, module: Module, tmp_path: Path):
    compiler = open_caching(fake, tmp_path / "store", recheck=Recheck(share=1, seed=1))
    fake.answer = lambda *_: THREE
    first = compiler.compile(module, DEFAULT)
    fake.answer = lambda *_: replace(THREE, user_seconds=THREE.user_seconds + 1)

    assert compiler.compile(module, DEFAULT).user_seconds == first.user_seconds
    assert len(fake.asked) == 2


def test_the_draw_follows_share_and_seed():
    keys = [str(number) for number in range(4000)]
    drawn = {key for key in keys if Recheck(share=0.01, seed=7).draws(key)}
    assert 20 <= len(drawn) <= 60
    assert drawn == {key for key in reversed(keys) if Recheck(share=0.01, seed=7).draws(key)}
    assert drawn != {key for key in keys if Recheck(share=0.01, seed=8).draws(key)}
    assert drawn < {key for key in keys if Recheck(share=0.1, seed=7).draws(key)}


def test_a_damaged_file_in_the_store_is_made_again(compiler: CachingCompiler, module: Module, fake: FakeCompiler):
    compiler.compile(module, DEFAULT)
    (kept,) = compiler.store.rglob("*.npz")
    kept.write_bytes(kept.read_bytes()[:100])

    assert compiler.compile(module, DEFAULT).ok
    assert len(fake.asked) == 2


def test_everything_that_decides_the_outcome_is_in_the_key(
    tmp_path: Path, remembering: Callable[..., CachingCompiler], module: Module, fake: FakeCompiler
):
    policy = tmp_path / "a.policy"
    policy.write_bytes(b"one")

    def run(module: Module = module, rule: str = ":default", version: str = "22.0.0", **how: Any) -> int:
        remembering(version).compile(module, CompileRequest(use=asking(rule, **how), keep="none"))
        return len(fake.asked)

    assert [run(), run()] == [1, 1]
    assert run(seed=1) == 2
    assert run(temperature=1.0) == 3
    assert run(flip_probability=0.5) == 4
    assert run(rule=":never") == 5
    assert run(rule=str(policy)) == 6
    policy.write_bytes(b"two")
    assert run(rule=str(policy)) == 7
    assert run(replace(module, command_line=("-cc1", "-Os"))) == 8
    assert run(replace(module, name="renamed")) == 8
    module.bitcode.write_bytes(b"BC2")
    assert run() == 9
    assert run(version="22.0.1") == 10
    (tmp_path / "plugin.so").write_bytes(b"another")
    assert run() == 11
    index = tmp_path / "a.thinlto.bc"
    for count, data in enumerate((b"BC1", b"BC2"), 12):
        index.write_bytes(data)
        assert run(replace(module, thinlto_index=index)) == count
    assert run(decisions=b"table") == 14
    assert run(decisions=b"another table") == 15
    assert run(any_level=True) == 15
    assert run(replace(module, command_line=("-cc1", "-O2"))) == 16
    assert run(replace(module, command_line=("-cc1", "-O2")), any_level=True) == 17


@pytest.mark.parametrize(
    "request_",
    [
        CompileRequest(keep_object=Path("m.o")),
        CompileRequest(use=PluginUse(plugin=Path("tuned.so"))),
        CompileRequest(use=asking(allocations=b"table")),
        CompileRequest(use=replace(asking(), logs=())),
        CompileRequest(use=PluginUse(policies=dict.fromkeys(("inline-size", "regalloc-eviction"), HEURISTIC))),
    ],
)
def test_what_has_no_key_is_made_each_time(
    compiler: CachingCompiler,
    module: Module,
    fake: FakeCompiler,
    request_: CompileRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        compiler.compile(module, request_)
    assert len(fake.asked) == 2
    assert not compiler.store.exists()


def test_a_wanted_log_that_is_gone_is_made_again(
    tmp_path: Path, compiler: CachingCompiler, module: Module, fake: FakeCompiler
):
    log = tmp_path / "m.log"
    request = CompileRequest(use=asking(), keep="none", keep_logs={"inline-size": log})
    for _ in range(2):
        compiler.compile(module, request)
    assert len(fake.asked) == 1

    log.unlink()
    compiler.compile(module, request)
    assert len(fake.asked) == 2
    assert log.exists()


def test_an_exploration_has_keys_of_call_sites_only_with_its_log(compiler: CachingCompiler, module: Module):
    for _ in range(2):
        bare = compiler.compile(module, CompileRequest(use=asking(seed=1, flip_probability=0.5), keep="flips"))
        assert bare.decisions.site is None
        logged = compiler.compile(module, CompileRequest(use=asking(seed=1, flip_probability=0.5), keep="log"))
        assert logged.decisions.sites.tolist() == [0, 2, 4]


def test_closing_reaches_the_other_compiler(compiler: CachingCompiler, fake: FakeCompiler):
    compiler.close()

    assert fake.closed == 1
    assert (compiler.plugin, compiler.workers, compiler.toolchain) == (fake.plugin, 1, fake.toolchain)

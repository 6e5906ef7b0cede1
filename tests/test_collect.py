"""What is remembered of compilations and what they teach; no compiler takes part."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgokit.collect import (
    NOT_FEATURES,
    Workshop,
    compiled,
    module_effects,
    open_workshop,
    project_weights,
    run_baseline,
    run_module,
)
from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse
from mlgokit.compiler.objects.function_id import function_id
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, SectionTotals
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.store import ModuleRun
from mlgokit.traces import ContextSpan, Header, Log


def sizes_of(functions: dict[str, int], *, signature: str | None = None) -> ObjectSizes:
    """An object of functions with that much code; all of them in one COMDAT group, or in none."""
    text = np.array(list(functions.values()), np.int64)
    none, signatures = np.zeros_like(text), () if signature is None else (signature,)
    return ObjectSizes(
        totals=SectionTotals(text=int(text.sum()), rodata=0, eh_frame=0, data=0, bss=0, except_table=0),
        function_names=tuple(functions),
        function_text=text,
        function_rodata=none,
        function_except_table=none,
        function_eh_frame=none,
        function_signature=none - (signature is None),
        signatures=signatures,
        signature_rest=np.zeros((len(signatures), 3), np.int64),
        signature_data=np.zeros(len(signatures), np.int64),
        rest=np.zeros(3, np.int64),
    )


def log_of(decisions: list[tuple[str, str, bool, float]]) -> Log:
    """A log with two features; each decision has caller, callee, whether it inlined, and its probability."""
    count = len(decisions)
    columns = {
        "size": np.arange(count) + 100,
        "depth": np.arange(count) + 200,
        "caller_id": np.array([function_id(caller) for caller, _, _, _ in decisions], np.int64),
        "callee_id": np.array([function_id(callee) for _, callee, _, _ in decisions], np.int64),
        "inlining_default": np.zeros(count, np.int64),
        "inlining_decision": np.array([inlined for _, _, inlined, _ in decisions], np.int64),
        "log_probability": np.log(np.array([probability for *_, probability in decisions])).astype(np.float32),
    }
    return Log(
        header=Header(features=()),
        contexts=(ContextSpan(name="m", start=0, stop=count),),
        columns={name: column.reshape(count, 1) for name, column in columns.items()},
    )


def success(functions: dict[str, int], decisions: list[tuple[str, str, bool, float]]) -> CompileResult:
    return CompileResult(
        status=CompileStatus.OK,
        sizes=sizes_of(functions),
        logs={"inline-size": log_of(decisions)},
        user_seconds=0.5,
        wall_seconds=1.0,
    )


THREE = success(
    {"f": 50, "g": 60}, [("f", "a", True, 0.9), ("g", "a", False, 0.1), ("g", "b", True, 0.5)]
)  # The second one was flipped; a probability of one half is no flip.


@pytest.fixture
def module(tmp_path: Path) -> Module:
    bitcode = tmp_path / "m.bc"
    bitcode.write_bytes(b"BC")
    return Module(
        name="m",
        project="p",
        language="c++",
        bitcode=bitcode,
        command_line=("-cc1", "-Oz"),
        bitcode_bytes=2,
    )


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "plugin.so").write_bytes(b"plugin")
    return workshop_with(tmp_path)


def workshop_with(tmp_path: Path, *, version: str = "19.1.7") -> Workshop:
    clang = Path("clang")
    toolchain = Toolchain(major=19, version=version, clang=clang, clangxx=clang)
    return open_workshop(toolchain, tmp_path / "plugin.so", tmp_path / "store", workers=1, timeout_seconds=7.0)


class Compiler:
    """Stands for ``compile_module``: gives ``result`` and keeps what it was asked."""

    def __init__(self) -> None:
        self.result = THREE
        self.uses: list[PluginUse] = []
        self.calls = 0
        self.regalloc: list[bool] = []
        self.deadlines: list[float] = []

    def __call__(
        self,
        _toolchain: Toolchain,
        _command_line: tuple[str, ...],
        _bitcode: Path,
        *,
        use: PluginUse | None = None,
        keep_logs: dict[str, Path] | None = None,
        timeout_seconds: float,
        regalloc: bool = False,
        thinlto_index: Path | None = None,
    ) -> CompileResult:
        del thinlto_index
        self.calls += 1
        self.regalloc.append(regalloc)
        if use is not None:
            self.uses.append(use)
        self.deadlines.append(timeout_seconds)
        for path in (keep_logs or {}).values():
            path.write_bytes(b"log")
        return self.result


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    stand_in = Compiler()
    monkeypatch.setattr("mlgokit.collect.compile_module", stand_in)
    return stand_in


@pytest.mark.parametrize(
    ("name", "md5"),
    [  # The first four are from RFC 1321.
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("\udcff", "00594fd4f42ba43fc1ca0427a0576295"),
    ],
)
def test_functions_are_numbered_by_md5(name: str, md5: str):
    low = int.from_bytes(bytes.fromhex(md5)[:8], "little")

    assert function_id(name) % 2**64 == low
    assert -(2**63) <= function_id(name) < 2**63


def test_decisions_and_features_of_a_compilation(workshop: Workshop, module: Module, compiler: Compiler):
    run = run_module(workshop, module, Exploration(), ":default", keep="flips")

    assert run.ok
    assert run.caller.tolist() == [function_id(name) for name in "fgg"]
    assert run.callee.tolist() == [function_id(name) for name in "aab"]
    assert run.inlined.tolist() == [True, False, True]
    assert run.flipped.tolist() == [False, True, False]
    assert (run.names, run.rows.tolist(), run.values.tolist()) == (("size", "depth"), [1], [[101, 201]])
    assert not set(run.names) & set(NOT_FEATURES)
    assert compiler.deadlines == [7.0]


@pytest.mark.parametrize(("keep", "rows"), [("none", []), ("flips", [1]), ("all", [0, 1, 2])])
def test_only_the_wanted_values_are_kept(
    workshop: Workshop, module: Module, compiler: Compiler, keep: str, rows: list[int]
):
    run = run_module(workshop, module, Exploration(), ":default", keep=keep)

    assert run.rows.tolist() == rows
    assert run.values.shape == (len(rows), 2)
    assert len(run.caller) == 3


def test_the_plugin_is_asked_for_what_the_exploration_says(workshop: Workshop, module: Module, compiler: Compiler):
    exploration = Exploration(seed=5, temperature=0.5, flip_probability=0.25)

    run_module(workshop, module, exploration, ":default", keep="none")

    assert compiler.uses == [
        PluginUse(
            plugin=workshop.plugin,
            policies={"inline-size": ":default"},
            logs=("inline-size",),
            seed=5,
            temperature=0.5,
            flip_probability=0.25,
        )
    ]


def test_nothing_is_compiled_twice(workshop: Workshop, module: Module, compiler: Compiler):
    first = run_module(workshop, module, Exploration(), ":default", keep="all")
    again = run_module(workshop, module, Exploration(), ":default", keep="all")

    assert len(compiler.uses) == 1
    np.testing.assert_array_equal(again.values, first.values)
    assert again.sizes is not None


@pytest.mark.parametrize("status", [CompileStatus.FAILED, CompileStatus.CRASHED, CompileStatus.BAD_TRACE])
def test_failures_are_remembered(workshop: Workshop, module: Module, compiler: Compiler, status: CompileStatus):
    compiler.result = CompileResult(status=status, reason="error: e")
    run_module(workshop, module, Exploration(), ":never", keep="all")

    again = run_module(workshop, module, Exploration(), ":never", keep="all")

    assert len(compiler.uses) == 1
    assert (again.status, again.reason, again.ok, len(again.caller)) == (status, "error: e", False, 0)


@pytest.mark.parametrize("status", [CompileStatus.FAILED, CompileStatus.CRASHED, CompileStatus.BAD_RECORD])
@pytest.mark.parametrize("plain", [True, False])
def test_a_failed_baseline_is_made_again(
    workshop: Workshop, module: Module, compiler: Compiler, status: CompileStatus, plain: bool
):
    def run() -> ModuleRun:
        if plain:
            return run_baseline(workshop, module, regalloc=True)
        return run_module(workshop, module, Exploration(), ":default", keep="all")

    compiler.result = CompileResult(status=status, reason="error: e")
    assert (run().status, run().reason) == (status, "error: e")
    assert compiler.calls == 2
    assert not workshop.store.exists()

    compiler.result = THREE
    assert run().ok
    assert run().ok
    assert compiler.calls == 3


COSTS = RegallocCosts(functions=("f", "g"), counts=np.arange(12).reshape(2, 6), costs=np.arange(10.0).reshape(2, 5))


def test_a_baseline_is_kept_by_content_options_and_compiler(
    workshop: Workshop, module: Module, compiler: Compiler, tmp_path: Path
):
    compiler.result = replace(THREE, logs={}, regalloc=COSTS)
    found = run_baseline(workshop, module, regalloc=True)
    (tmp_path / "plugin.so").write_bytes(b"another plugin")
    again = run_baseline(workshop_with(tmp_path), module, regalloc=True)
    assert (compiler.calls, compiler.uses, compiler.regalloc) == (1, [], [True])
    for run in (found, again):
        assert run.regalloc is not None
        assert run.regalloc.functions == ("f", "g")
        np.testing.assert_array_equal(run.regalloc.scores, COSTS.scores)
        np.testing.assert_array_equal(run.regalloc.counts, COSTS.counts)
        assert run.decision_count == 0

    run_baseline(workshop, replace(module, command_line=("-cc1", "-O2")), regalloc=True)
    run_baseline(workshop, module)
    run_baseline(workshop_with(tmp_path, version="19.1.8"), module, regalloc=True)
    module.bitcode.write_bytes(b"BC other")
    run_baseline(workshop, module, regalloc=True)
    assert compiler.calls == 5


def test_a_run_of_another_problem_keeps_costs_and_the_number_of_decisions(
    workshop: Workshop, module: Module, compiler: Compiler
):
    log = Log(
        header=Header(features=()),
        contexts=(ContextSpan(name="f", start=0, stop=7),),
        columns={"index_to_evict": np.zeros((7, 1), np.int64)},
    )
    compiler.result = replace(THREE, logs={"regalloc-eviction": log}, regalloc=COSTS)

    def run(problem: str, *, regalloc: bool) -> ModuleRun:
        return run_module(workshop, module, Exploration(), ":random", keep="none", problem=problem, regalloc=regalloc)

    for _ in range(2):
        found = run("regalloc-eviction", regalloc=True)
        assert (found.decision_count, len(found.caller)) == (7, 0)
        assert found.regalloc is not None
    assert compiler.calls == 1
    assert compiler.uses[0].policies == {"regalloc-eviction": ":random"}
    assert compiler.uses[0].logs == ("regalloc-eviction",)
    run("regalloc-priority", regalloc=True)
    run("regalloc-eviction", regalloc=False)
    assert compiler.calls == 3


def test_a_missed_deadline_is_not_remembered(workshop: Workshop, module: Module, compiler: Compiler):
    compiler.result = CompileResult(status=CompileStatus.TIMED_OUT, reason="after 7 s")
    assert run_module(workshop, module, Exploration(), ":default", keep="all").status is CompileStatus.TIMED_OUT
    assert not workshop.store.exists()

    compiler.result = THREE
    assert run_module(workshop, module, Exploration(), ":default", keep="all").ok


def test_a_kill_from_outside_is_not_remembered(workshop: Workshop, module: Module, compiler: Compiler):
    compiler.result = CompileResult(status=CompileStatus.CRASHED, killed=True)
    assert run_module(workshop, module, Exploration(), ":default", keep="all").status is CompileStatus.CRASHED
    assert not workshop.store.exists()


def test_what_becomes_of_damaged_bitcode_is_not_remembered(workshop: Workshop, module: Module, compiler: Compiler):
    intact = replace(module, bitcode_sha256=digest_file(module.bitcode))
    module.bitcode.write_bytes(b"damaged")
    compiler.result = CompileResult(status=CompileStatus.FAILED, reason="error: e")
    assert not run_module(workshop, intact, Exploration(), ":default", keep="all").ok
    assert not workshop.store.exists()

    module.bitcode.write_bytes(b"BC")
    compiler.result = THREE
    assert run_module(workshop, intact, Exploration(), ":default", keep="all").ok
    assert len(list(workshop.store.rglob("*.npz"))) == 1


def test_a_damaged_file_in_the_store_is_made_again(workshop: Workshop, module: Module, compiler: Compiler):
    run_module(workshop, module, Exploration(), ":default", keep="all")
    (kept,) = workshop.store.rglob("*.npz")
    kept.write_bytes(kept.read_bytes()[:100])

    assert run_module(workshop, module, Exploration(), ":default", keep="all").ok
    assert len(compiler.uses) == 2


def test_everything_that_decides_the_outcome_is_in_the_key(
    tmp_path: Path, workshop: Workshop, module: Module, compiler: Compiler
):
    policy = tmp_path / "a.policy"
    policy.write_bytes(b"one")

    def run(module: Module = module, workshop: Workshop = workshop, rule: str = ":default", **how: float) -> int:
        exploration = replace(Exploration(), **how)
        run_module(workshop, module, exploration, rule, keep="none")
        return len(compiler.uses)

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
    assert run(workshop=workshop_with(tmp_path, version="19.1.8")) == 10
    (tmp_path / "plugin.so").write_bytes(b"another")
    assert run(workshop=workshop_with(tmp_path)) == 11
    index = tmp_path / "a.thinlto.bc"
    for count, data in enumerate((b"BC1", b"BC2"), 12):
        index.write_bytes(data)
        assert run(replace(module, thinlto_index=index), workshop_with(tmp_path)) == count


def test_a_wanted_log_that_is_gone_is_made_again(
    tmp_path: Path, workshop: Workshop, module: Module, compiler: Compiler
):
    log = tmp_path / "m.log"
    for _ in range(2):
        run_module(workshop, module, Exploration(), ":default", keep="none", keep_log=log)
    assert len(compiler.uses) == 1

    log.unlink()
    run_module(workshop, module, Exploration(), ":default", keep="none", keep_log=log)
    assert len(compiler.uses) == 2
    assert log.exists()


def run_of(functions: dict[str, int], *, signature: str | None = None) -> ModuleRun:
    nothing, no = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return ModuleRun(
        status=CompileStatus.OK,
        reason="",
        user_seconds=0.0,
        sizes=sizes_of(functions, signature=signature),
        caller=nothing,
        callee=nothing,
        inlined=no,
        flipped=no,
        names=(),
        rows=nothing,
        values=np.zeros((0, 0), np.int64),
    )


def test_signatures_are_counted_project_by_project(module: Module):
    other = replace(module, project="q")
    inline = run_of({"f": 10}, signature="f")
    failed = replace(inline, status=CompileStatus.FAILED, sizes=None)

    weights = project_weights([module, other, module, module], [inline, inline, inline, failed])

    assert weights == {"p": {"f": 2}, "q": {"f": 1}}


def test_scores_of_a_run_are_shared_among_the_modules():
    ready = compiled(run_of({"f": 10, "g": 30}, signature="f"), {"f": 2}, Objective.LINK_AWARE)

    assert ready.functions.tolist() == [function_id("f"), function_id("g")]
    assert ready.scores.tolist() == [5.0, 15.0]


def test_a_run_without_object_has_no_scores():
    run = replace(run_of({}), status=CompileStatus.CRASHED, sizes=None)

    with pytest.raises(UsageError, match=r"found one where the compiler was ended by a signal; leave it out"):
        compiled(run, {}, Objective.LINK_AWARE)


@pytest.fixture
def explore(workshop: Workshop, module: Module, compiler: Compiler) -> Callable[[int, CompileResult], ModuleRun]:
    def run(seed: int, result: CompileResult) -> ModuleRun:
        compiler.result = result
        return run_module(workshop, module, Exploration(seed=seed), ":default", keep="flips")

    return run


def test_flips_and_changes_of_several_explorations_are_joined(
    module: Module, explore: Callable[[int, CompileResult], ModuleRun]
):
    base = explore(0, success({"f": 50, "g": 60}, [("f", "a", False, 1.0), ("g", "b", True, 1.0)]))
    both = explore(1, success({"f": 60, "g": 56}, [("f", "a", True, 0.1), ("g", "b", False, 0.1)]))
    last = explore(2, success({"f": 50, "g": 53}, [("f", "a", False, 0.9), ("g", "b", False, 0.1)]))
    crashed = explore(3, CompileResult(status=CompileStatus.CRASHED))

    effects = module_effects(module, base, [both, crashed, last], weights={}, excluded=("depth",))

    assert effects.measured is not None
    measured = effects.measured
    assert (measured.names, measured.projects) == (("size",), ("p",))
    assert measured.values.tolist() == [[100], [101], [101]]
    assert measured.sign.tolist() == [1.0, -1.0, -1.0]
    assert measured.component.tolist() == [0, 1, 2]
    assert measured.change.tolist() == [10.0, -4.0, -7.0]
    assert measured.project.tolist() == [0, 0, 0]
    assert (effects.changed_bytes, effects.unattributed_bytes) == (21.0, 0.0)


def test_a_change_that_no_flip_explains_is_counted(module: Module, explore: Callable[[int, CompileResult], ModuleRun]):
    base = explore(0, success({"f": 50, "x": 60}, [("f", "a", False, 1.0)]))
    flipped = explore(1, success({"f": 58, "x": 57}, [("f", "a", True, 0.1)]))

    effects = module_effects(module, base, [flipped], weights={})

    assert (effects.changed_bytes, effects.unattributed_bytes) == (8.0, 3.0)


def test_without_a_baseline_or_a_flip_nothing_is_learnt(
    module: Module, explore: Callable[[int, CompileResult], ModuleRun]
):
    base = explore(0, THREE)
    greedy = explore(1, success({"f": 51, "g": 60}, [("f", "a", True, 0.9)]))
    failed = explore(2, CompileResult(status=CompileStatus.FAILED))

    assert module_effects(module, base, [greedy, failed], weights={}).measured is None
    assert module_effects(module, failed, [base], weights={}).measured is None

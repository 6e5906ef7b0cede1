"""Models for builds of LLVM, asked by LLVM's own ReleaseModeModelRunner: the decisions of plugin and numpy."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.llvm.embedded_model import ask_model, build_driver, compile_headers
from tests.llvm.pressure import MIX

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.export.release import CLASSES, export_release
from mlgokit.learning.decision_batch import feature_rows
from mlgokit.policy.exploration import priority_of
from mlgokit.policy.network import HEURISTIC_PREFERENCE, Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import Quantile, fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.testing import toy_layers
from mlgokit.traces import Log, read_log

pytestmark = pytest.mark.llvm

# Calls to decide on, and more values alive than registers.
SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
static int add(int x) { return get(x) + get(x + 1); }
static int twice(int x) { put(x); return add(x) * add(x + 1); }
static int many(int x) { return twice(x) - twice(x + 2) + add(x) * get(twice(x)); }
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17)
#define DECLARE(N) int v##N = get(N);
#define CHANGE(N) v##N += get(i + N) * v0;
#define USE(N) put(v##N);
extern "C" int hot(int n) { ALL(DECLARE) for (int i = 0; i < n; i++) { ALL(CHANGE) } ALL(USE) return many(n); }
extern "C" void once(int i) { ALL(DECLARE) ALL(CHANGE) ALL(USE) put(twice(i) + add(i)); }
extern "C" int small(int i) { return many(add(i)) - twice(i); }
extern "C" """ + MIX.lstrip()
# Calls whose inlining makes others direct: LLVM's heuristic inlines the cheapest alone, by its estimate it were all.
DIRECT = """
extern "C" int get(int);
static int each(int (*f)(int), int n) { int sum = 0; for (int i = 0; i < n; i++) sum += f(i); return sum; }
static int ask(int x) { return get(x) + get(x + 1); }
static int ten(int x) { return x + 10; }
extern "C" int costly(int n) { return each(ask, n) + each(ask, n + 1); }
extern "C" int cheap(int n) { return each(ten, n) - each(get, n); }
"""
VARIABLES = {INLINE_SIZE.name: "", REGALLOC_EVICTION.name: "EVICTION_", REGALLOC_PRIORITY.name: "PRIORITY_"}
OUTPUTS = {
    INLINE_SIZE.name: OutputKind.EFFECT_BYTES,
    REGALLOC_EVICTION.name: OutputKind.COLUMN_LOGIT,
    REGALLOC_PRIORITY.name: OutputKind.PRIORITY,
}


@pytest.fixture(scope="module")
def headers(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LLVM's headers for all models."""
    return compile_headers(toolchain, tmp_path_factory.mktemp("headers") / "embedded_model.pch")


def logs(
    toolchain: Toolchain, plugin: Path, folder: Path, policies: Mapping[str, str], source: str = SOURCE
) -> dict[str, Log]:
    """What the plugin decides by ``policies``, with what it decided on."""
    folder.mkdir()
    (folder / "source.cpp").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
    for name, policy in policies.items():
        variable = VARIABLES[name]
        environment |= {f"MLGOKIT_{variable}POLICY": policy, f"MLGOKIT_{variable}LOG": str(folder / f"{name}.log")}
    words = ["-Oz", f"-fpass-plugin={plugin}", "-c", "source.cpp", "-o", "source.o"]
    done = process.run([toolchain.clangxx, *words], timeout_seconds=120, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return {name: read_log(folder / f"{name}.log") for name in policies}


def some_policy(problem: Problem, log: Log, *, output: OutputKind, quantile: bool, seed: int) -> Policy:
    """A random policy over all of LLVM's features that says both yes and no to what the log shows.

    One of effects leaves some calls to LLVM, unless it has quantiles.
    """
    rng = np.random.default_rng(seed)
    values = feature_rows(problem, log, problem.feature_names).reshape(-1, len(problem.feature_names))
    normaliser = fit_quantile(values, count=20) if quantile else fit_signed_log(values)
    layers = toy_layers(rng, (normaliser.width, 17, 9, output.width))
    policy = Policy(
        problem=problem.name, features=problem.feature_names, normaliser=normaliser, layers=layers,
        output=output, caution=0.4 if output is OutputKind.COLUMN_LOGIT else 0.0, mask=problem.mask or "",
    )  # fmt: skip
    if problem is not INLINE_SIZE:
        return policy
    answers = policy.answers(values)
    middle = np.median(answers.mean(axis=0))
    # Half of the calls are left to LLVM.
    sure = float(np.median(np.abs(answers.mean(axis=0) - middle) / answers.std(axis=0)))
    leaves = output is OutputKind.EFFECT_BYTES and not quantile
    shift = np.array([0, middle] if output is OutputKind.LOGITS else [middle], np.float32)
    return replace(
        policy,
        layers=(*layers[:-1], Layer(layers[-1].weight, layers[-1].bias - shift)),
        doubt=sure if leaves else 0.0,
        gate=Gate(feature="is_multiple_blocks", margins=(1e-6, 1e-5)) if leaves else None,
    )


def decided_by_numpy(policy: Policy, log: Log) -> Any:
    rows = feature_rows(PROBLEMS[policy.problem], log, policy.features)
    match policy.output:
        case OutputKind.EFFECT_BYTES | OutputKind.LOGITS:
            return policy.preferences(rows, log.columns["inlining_default"][:, 0] != 0) > 0
        case OutputKind.COLUMN_LOGIT:
            mask = log.columns["mask"].reshape(log.observation_count, -1)
            return np.where(mask != 0, policy.column_logits(rows), -np.inf).argmax(axis=1)
        case OutputKind.PRIORITY:
            return np.array([priority_of(unit) for unit in policy.units(rows).tolist()], np.float32)


@pytest.mark.every_major
def test_a_model_in_llvm_decides_as_plugin_and_numpy_do(
    toolchain: Toolchain, plugin: Path, headers: Path, tmp_path: Path
):
    """A model of each problem, compiled and linked with LLVM."""
    check_models(toolchain, plugin, headers, tmp_path, quantile=False)


@pytest.mark.slow  # In the fast half the next two tests have quantiles, and test_policy_arithmetic.py all outputs.
def test_a_model_with_quantiles_decides_as_plugin_and_numpy_do(
    toolchain: Toolchain, plugin: Path, headers: Path, tmp_path: Path
):
    """As with logarithms; the arithmetic is our own, so one LLVM major shows it."""
    check_models(toolchain, plugin, headers, tmp_path, quantile=True)


def check_models(toolchain: Toolchain, plugin: Path, headers: Path, tmp_path: Path, *, quantile: bool) -> None:
    seen = logs(toolchain, plugin, tmp_path / "seen", dict.fromkeys(VARIABLES, ":default"))
    policies = {
        name: some_policy(PROBLEMS[name], log, output=OUTPUTS[name], quantile=quantile, seed=3)
        for name, log in seen.items()
    }
    inlining = policies[INLINE_SIZE.name]
    rows = feature_rows(INLINE_SIZE, seen[INLINE_SIZE.name], inlining.features)
    preferences = inlining.preferences(rows, seen[INLINE_SIZE.name].columns["inlining_default"][:, 0] != 0)
    left = np.abs(preferences) == HEURISTIC_PREFERENCE
    assert left.any() != quantile
    assert not left.all()
    for name, policy in policies.items():
        save_policy(policy, tmp_path / f"{name}.policy")
    decided = logs(toolchain, plugin, tmp_path / "decided", {name: str(tmp_path / f"{name}.policy") for name in seen})

    for name, log in decided.items():
        made = export_release(toolchain, [tmp_path / f"{name}.policy"], tmp_path / "models")
        assert made.header == str(tmp_path / "models" / f"{CLASSES[name]}.h")
        program = build_driver(toolchain, headers, Path(made.header), PROBLEMS[name], tmp_path / name)
        found = ask_model(program, PROBLEMS[name], log, tmp_path).decisions

        assert len(np.unique(found)) > 1
        np.testing.assert_array_equal(found, log.columns[PROBLEMS[name].decision][:, 0])
        np.testing.assert_array_equal(found, decided_by_numpy(policies[name], log))


def test_what_a_policy_leaves_to_llvm_is_decided_as_by_its_heuristic(
    toolchain: Toolchain, plugin: Path, headers: Path, tmp_path: Path
):
    (log,) = logs(toolchain, plugin, tmp_path / "seen", {INLINE_SIZE.name: ":never"}, DIRECT).values()
    wanted = log.columns["inlining_default"][:, 0]
    assert log.columns["nested_inlines"].max() == 1
    assert len(np.unique(wanted)) == 2
    assert np.any((log.columns["cost_estimate"][:, 0] < 5) != wanted)
    unsure = replace(some_policy(INLINE_SIZE, log, output=OutputKind.EFFECT_BYTES, quantile=True, seed=5), doubt=1e30)
    save_policy(unsure, tmp_path / "policy")
    made = export_release(toolchain, [tmp_path / "policy"], tmp_path)
    program = build_driver(toolchain, headers, Path(made.header), INLINE_SIZE, tmp_path / "unsure")

    found = ask_model(program, INLINE_SIZE, log, tmp_path).decisions

    np.testing.assert_array_equal(found, wanted)


@pytest.mark.every_major
def test_llvms_selector_chooses_among_policies(toolchain: Toolchain, plugin: Path, headers: Path, tmp_path: Path):
    (log,) = logs(toolchain, plugin, tmp_path / "seen", {INLINE_SIZE.name: ":default"}).values()
    kinds = {"first": OutputKind.EFFECT_BYTES, "second": OutputKind.LOGITS}
    policies = {
        name: some_policy(INLINE_SIZE, log, output=output, quantile=name == "second", seed=4)
        for name, output in kinds.items()
    }
    for name, policy in policies.items():
        save_policy(policy, tmp_path / name)
    made = export_release(toolchain, [tmp_path / name for name in kinds], tmp_path, names=list(kinds), name="Both")
    program = build_driver(toolchain, headers, Path(made.header), INLINE_SIZE, tmp_path / "both")

    answers = {name: ask_model(program, INLINE_SIZE, log, tmp_path, selector=name).decisions for name in policies}

    for name, found in answers.items():
        np.testing.assert_array_equal(found, decided_by_numpy(policies[name], log))
    assert np.any(answers["first"] != answers["second"])
    with pytest.raises(ToolError, match="as -ml-inliner-model-selector: first second; found another, or none"):
        ask_model(program, INLINE_SIZE, log, tmp_path, selector="third")
    with pytest.raises(ToolError, match="A model selector was not specified"):
        ask_model(program, INLINE_SIZE, log, tmp_path)


def test_a_source_compiles_without_llvm_and_two_models_share_nothing(toolchain: Toolchain, tmp_path: Path):
    values = np.arange(40.0).reshape(20, 2)
    for name in ("one", "two"):
        normaliser = fit_quantile(values, count=5)
        assert isinstance(normaliser, Quantile)
        weight = np.ones((1, 4, 1), np.float32)
        save_policy(
            Policy(
                problem=REGALLOC_PRIORITY.name, features=("weight", "stage"), normaliser=normaliser,
                layers=(Layer(weight, np.zeros((1, 1), np.float32)),), output=OutputKind.PRIORITY,
            ),
            tmp_path / name,
        )  # fmt: skip
        export_release(toolchain, [tmp_path / name], tmp_path, name=name.title())
    (tmp_path / "main.cpp").write_text(
        '#include "One.h"\n#include "Two.h"\n'
        "int main() {\n  llvm::One A;\n  llvm::Two B;\n"
        '  return A.LookupArgIndex("feed_li_size") == -1 && A.LookupArgIndex("feed_stage") == 0 &&\n'
        '                 B.LookupResultIndex("fetch_priority") == 0 && A.Run() && B.Run()\n'
        "             ? 0\n             : 1;\n}\n"
    )
    words = ["-std=c++17", "-Wall", "-Werror", "main.cpp", "One.cpp", "Two.cpp", "-o", "main"]

    done = process.run([toolchain.clangxx, *words], timeout_seconds=300, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert process.run([tmp_path / "main"], timeout_seconds=60).returncode == 0

"""What a decision costs inside the compiler: the plugin's own ``Policy::preference``, timed on real observations."""

import itertools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.compilation import NOT_FEATURES
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.module import Module
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import Normaliser, Values, fit_quantile, fit_signed_log
from mlgokit.policy.store import load_policy, policy_bytes
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

BAR_MICROSECONDS = 1.0
FEATURES = 39
HIDDEN = (40, 40, 20)
QUANTILES = 1000
_CHECKED_ROWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpeed:
    """Time one decision of a 39-40-40-20-1 network, and of given policies, in the plugin's own code."""

    policy: tuple[Path, ...] = ()
    """Policy files to time as well."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 16
    """Modules drawn from all projects, whose observations are used."""
    rows: int = 10_000
    """Most observations, shuffled."""
    repetitions: int = 200
    """Passes over all observations."""
    seed: int = 1
    """Of the draw, the shuffle and the random networks."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Microseconds per decision.

    Attributes:
        least: of the passes, each the mean over all observations.
        median: of the same.
        cold: median of single decisions after 16 MB of other memory were written.
    """

    least: float
    median: float
    cold: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PolicySpeed, measure, arguments)


def measure(config: PolicySpeed, setup: Setup) -> Result:
    """Collect observations, make the policies, build the driver and time each policy."""
    rng = np.random.default_rng(config.seed)
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    setup.policies(config.policy)
    report = setup.report
    built = build_plugin(toolchain).parent
    columns = observe(toolchain, built / "mlgokit.so", draw_modules(corpus.modules, config.modules, rng), report)
    order = rng.permutation(len(next(iter(columns.values()))))[: config.rows]
    names = benchmark_features(tuple(columns))
    values = np.stack([columns[name] for name in names], axis=1)
    policies = {
        "signed logarithm": random_policy(names, fit_signed_log(values), rng),
        f"quantile, {QUANTILES} boundaries": random_policy(names, fit_quantile(values, count=QUANTILES), rng),
        **{str(path.name): load_policy(path, problem=INLINE_SIZE.name) for path in config.policy},
    }
    rows: list[tuple[Cell, ...]] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-speed-") as scratch:
        driver = build_driver(toolchain, built, Path(scratch))
        for index, (title, policy) in enumerate(policies.items()):
            report(index, len(policies), "time")
            observed = np.stack([_column(columns, name, title)[order] for name in policy.features], axis=1)
            asked = ~left_to_heuristic(policy, observed)
            groups = {title: observed} | ({} if asked.all() else {f"{title}, its network alone": observed[asked]})
            for group, taken in groups.items():
                times = time_policy(driver, policy, taken, config.repetitions, Path(scratch))
                left = 100 * float(left_to_heuristic(policy, taken).mean())
                turned = float_differences(policy, taken)
                rows.append(
                    (group, policy.members, shape_of(policy), left, times.least, times.median, times.cold, turned)
                )
        report(len(policies), len(policies), "time")
    # Two networks of other shapes stay for comparison with earlier results; the bar is for what is shipped.
    slowest = max(float(row[5] or 0) for row in rows[2:] or rows)
    table = Table(
        title="Microseconds per decision",
        columns=(
            "policy",
            "members",
            "network",
            "left to the heuristic (%)",
            "least",
            "median",
            "median, cold caches",
            "otherwise in floats",
        ),
        rows=tuple(rows),
        note=(
            f"Each pass decides {len(order)} shuffled observations of real modules, {config.repetitions} passes; "
            "normaliser included, the observations' computation in LLVM excluded. A quantile normaliser gives two "
            "inputs per feature. Every timed policy gave the same preferences as numpy to the last bit. Cold: single "
            "decisions, each after 16 MB of other memory were written. A policy's network alone: decisions that its "
            "gate does not leave to the heuristic before anything is computed. On a busy machine believe the least. "
            "Otherwise in floats: observations that would be decided otherwise with the first layer, too, in floats."
        ),
    )
    return Result(
        benchmark="policy_speed",
        question="How long does the plugin's own code take for one decision of a policy?",
        answer="; ".join(f"{row[0]}: {row[5]:.2f} microseconds, at least {row[4]:.2f}" for row in rows),
        bar=f"median of each given policy and of its network alone <= {BAR_MICROSECONDS:g} microsecond",
        passed=slowest <= BAR_MICROSECONDS,
        seed=config.seed,
        tables=(table,),
    )


def float_differences(policy: Policy, values: Values) -> int:
    """How many of ``values`` [T, F] the networks would decide otherwise without integers in the first layer."""
    hidden = np.broadcast_to(policy.normaliser.apply(values), (policy.members, len(values), policy.normaliser.width))
    for index, layer in enumerate(policy.layers):
        total = hidden @ layer.weight + layer.bias[:, None]
        hidden = np.maximum(total, 0) if index + 1 < len(policy.layers) else total
    effects = hidden[:, :, 0].astype(np.float64)
    effect, margin = effects.mean(axis=0), policy.doubt * effects.std(axis=0)
    if policy.gate is not None:
        elsewhere, there = policy.gate.margins
        margin += np.where(values[:, policy.features.index(policy.gate.feature)] != 0, there, elsewhere)
    # The heuristic inlines nothing here.
    wanted = (effect < 0) & (np.abs(effect) > margin)
    return int((wanted != (policy.preferences(values, np.zeros(len(values), bool)) > 0)).sum())


def left_to_heuristic(policy: Policy, values: Values) -> npt.NDArray[np.bool_]:
    """Which decisions [T] a closed gate leaves to the heuristic, so that the network is not computed."""
    if policy.gate is None:
        return np.zeros(len(values), bool)
    elsewhere, there = policy.gate.margins
    return np.isinf(np.where(values[:, policy.features.index(policy.gate.feature)] != 0, there, elsewhere))


def observe(toolchain: Toolchain, plugin: Path, modules: Sequence[Module], report: Report) -> dict[str, Values]:
    """All columns of the training logs of ``modules`` under the heuristic, one after the other; a failure adds none.

    Raises:
        CorpusError: there is no decision in any of them.
    """
    parts: dict[str, list[Values]] = {}
    reason = "they call nothing"
    clang = ClangCompiler(toolchain=toolchain, plugin=plugin)
    use = PluginUse(plugin=plugin, policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,))
    for index, module in enumerate(modules):
        report(index, len(modules), "observe")
        done = clang.compile(module, CompileRequest(use=use, keep="log"))
        reason = done.reason or reason
        log = done.logs.get(INLINE_SIZE.name)
        for name, column in ({} if log is None else log.columns).items():
            parts.setdefault(name, []).append(column[:, 0])
    report(len(modules), len(modules), "observe")
    columns = {name: np.concatenate(column) for name, column in parts.items()}
    if not columns or not len(next(iter(columns.values()))):
        raise CorpusError(
            f"observations: expected decisions in {len(modules)} modules, found none ({reason}); use more modules, and "
            f"a corpus that LLVM {toolchain.major} can read"
        )
    return columns


def _column(columns: Mapping[str, Values], name: str, policy: str) -> Values:
    if name not in columns:
        raise UsageError(
            f"policy {policy}: expected features that this compiler observes, found {name!r}; "
            "give a policy that was trained with this LLVM major"
        )
    return columns[name]


def benchmark_features(columns: Sequence[str]) -> tuple[str, ...]:
    """The first features of the log and the heuristic's decision, :data:`FEATURES` together."""
    observed = [name for name in columns if name not in NOT_FEATURES]
    return (*observed[: FEATURES - 1], "inlining_default")


def random_policy(names: tuple[str, ...], normaliser: Normaliser, rng: np.random.Generator) -> Policy:
    """One random network with the benchmark's layers."""
    widths = [normaliser.width, *HIDDEN, 1]
    layers = tuple(
        Layer(
            (rng.normal(size=(1, inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32),
            (rng.normal(size=(1, outputs)) * 0.1).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise(widths)
    )
    return Policy(
        problem=INLINE_SIZE.name, features=names, normaliser=normaliser, layers=layers, output=OutputKind.EFFECT_BYTES
    )


def shape_of(policy: Policy) -> str:
    """Features and outputs of each layer, as 39-40-40-20-1."""
    return "-".join(str(width) for width in (len(policy.features), *(layer.bias.shape[1] for layer in policy.layers)))


def build_driver(toolchain: Toolchain, built: Path, folder: Path) -> Path:
    """Compile the driver and link it with the plugin's own ``Policy.o`` from the folder ``built``.

    Raises:
        ToolError: the driver does not compile.
    """
    source, output = Path(__file__).with_suffix(".cpp").resolve(), folder / "policy_speed"
    libraries = [f"-L{toolchain.library_dir}", f"-Wl,-rpath,{toolchain.library_dir}", f"-lLLVM-{toolchain.major}"]
    done = process.run(
        [
            toolchain.clangxx, "-O2", "-std=c++17", "-fno-rtti", "-fno-exceptions", f"-I{built}",
            "-isystem", str(toolchain.include_dir), source,
            *(built / f"shared/{name}.o" for name in ("Policy", "Evaluator", "Network", "FirstLayer")),
            *libraries, "-o", output,
        ],
        timeout_seconds=300,
    )  # fmt: skip
    if done.returncode != 0:
        raise ToolError(
            f"{source.name}: expected {toolchain.clangxx} to build it, found exit code {done.returncode} "
            f"({done.stderr.strip().splitlines()[:1]}); install llvm-{toolchain.major}-dev"
        )
    return output


def time_policy(driver: Path, policy: Policy, values: Values, repetitions: int, folder: Path) -> Times:
    """Time ``policy`` on ``values`` [T, F], after checking that the driver computes what numpy does.

    Raises:
        ToolError: the driver fails, or computes something else.
    """
    (folder / "timed.policy").write_bytes(policy_bytes(policy))
    (folder / "values.bin").write_bytes(np.ascontiguousarray(values, np.float64).tobytes())
    done = process.run(
        [
            driver, folder / "timed.policy", folder / "values.bin", str(len(values)), str(repetitions),
            folder / "preferences.bin",
        ],
        timeout_seconds=600,
    )  # fmt: skip
    if done.returncode != 0:
        raise ToolError(f"{driver.name}: expected it to succeed, found: {done.stderr.strip()}; report this as a bug")
    found = np.fromfile(folder / "preferences.bin", np.float64)[:_CHECKED_ROWS]
    # The driver's heuristic, which a gate asks, inlines nothing.
    refused = np.zeros(len(found), bool)
    different = int((found != policy.preferences(values[:_CHECKED_ROWS], refused)).sum())
    if different:
        raise ToolError(
            f"{driver.name}: expected numpy's preferences to the last bit, found {different} of {len(found)} that "
            "differ; the plugin and mlgokit.policy.network must compute alike"
        )
    return read_times(json.loads(done.stdout))


def read_times(found: Mapping[str, Sequence[float]]) -> Times:
    """Microseconds from the driver's nanoseconds.

    Example:
        >>> read_times({"hot_nanoseconds": [900.0, 1000.0, 5000.0], "cold_nanoseconds": [4000.0]})
        Times(least=0.9, median=1.0, cold=4.0)
    """
    hot: npt.NDArray[np.float64] = np.array(found["hot_nanoseconds"]) / 1000
    cold: npt.NDArray[np.float64] = np.array(found["cold_nanoseconds"]) / 1000
    return Times(least=float(hot.min()), median=float(np.median(hot)), cold=float(np.median(cold)))


if __name__ == "__main__":
    sys.exit(main())

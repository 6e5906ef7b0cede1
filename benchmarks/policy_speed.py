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
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.collect import NOT_FEATURES
from mlgokit.compiler import process
from mlgokit.compiler.compile import HEURISTIC, PluginUse, compile_module
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.module import Module
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import Normaliser, Values, fit_quantile, fit_signed_log
from mlgokit.policy.store import load_policy, policy_bytes
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

BAR_MICROSECONDS = 2.0
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
    json: Path = Path("docs/results/policy_speed.json")
    """Where the result goes; the Markdown goes beside it."""


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


def measure(config: PolicySpeed, report: Report) -> Result:
    """Collect observations, make the policies, build the driver and time each policy."""
    rng = np.random.default_rng(config.seed)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    found = tool_versions(toolchain)
    corpus = load_corpus(config.corpus)
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
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="mlgokit-speed-") as scratch:
        driver = build_driver(toolchain, built, Path(scratch))
        for index, (title, policy) in enumerate(policies.items()):
            report(index, len(policies), "time")
            observed = np.stack([_column(columns, name, title)[order] for name in policy.features], axis=1)
            times = time_policy(driver, policy, observed, config.repetitions, Path(scratch))
            rows.append((title, policy.members, shape_of(policy), times.least, times.median, times.cold))
            # The bar is for the network that is named in it; given policies are larger or smaller.
            slowest = max(slowest, times.median) if index < 2 else slowest
        report(len(policies), len(policies), "time")
    table = Table(
        title="Microseconds per decision",
        columns=("policy", "members", "network", "least", "median", "median, cold caches"),
        rows=tuple(rows),
        note=(
            f"Each pass decides {len(order)} shuffled observations of real modules, {config.repetitions} passes; "
            "normaliser included, the observations' computation in LLVM excluded. A quantile normaliser gives two "
            "inputs per feature. Every timed policy gave the same preferences as numpy to the last bit. Cold: single "
            "decisions, each after 16 MB of other memory were written."
        ),
    )
    return Result(
        benchmark="policy_speed",
        question="How long does the plugin's own code take for one decision of a 39-40-40-20-1 network?",
        answer="; ".join(f"{row[0]}: {row[4]:.2f} microseconds" for row in rows),
        bar=f"median with either normaliser <= {BAR_MICROSECONDS:g} microseconds",
        passed=slowest <= BAR_MICROSECONDS,
        seed=config.seed,
        versions=found,
        inputs=corpus_inputs(corpus, config.policy),
        tables=(table,),
    )


def observe(toolchain: Toolchain, plugin: Path, modules: Sequence[Module], report: Report) -> dict[str, Values]:
    """All columns of the training logs of ``modules`` under the heuristic, one after the other; a failure adds none.

    Raises:
        CorpusError: there is no decision in any of them.
    """
    parts: dict[str, list[Values]] = {}
    reason = "they call nothing"
    use = PluginUse(plugin=plugin, policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,))
    for index, module in enumerate(modules):
        report(index, len(modules), "observe")
        done = compile_module(toolchain, module.command_line, module.bitcode, use=use)
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
    """Compile the driver and link it with the plugin's own ``shared/Policy.o`` from the folder ``built``.

    Raises:
        ToolError: the driver does not compile.
    """
    source, output = Path(__file__).with_suffix(".cpp").resolve(), folder / "policy_speed"
    libraries = [f"-L{toolchain.library_dir}", f"-Wl,-rpath,{toolchain.library_dir}", f"-lLLVM-{toolchain.major}"]
    done = process.run(
        [
            toolchain.clangxx, "-O2", "-std=c++17", "-fno-rtti", "-fno-exceptions", f"-I{built}",
            "-isystem", str(toolchain.include_dir), source, built / "shared/Policy.o", *libraries, "-o", output,
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

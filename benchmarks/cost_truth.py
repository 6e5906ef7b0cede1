"""Do estimated costs of an allocation tell what programs then execute, function by function?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from allocated import MEMORY, Floats, fine
from block_traces import BLOCKS, PASSES, cycles, executed
from counted_programs import Run, count_builds, open_shop, profile_of
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.algorithms.live_range_search import linear_policy
from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.side import SideFlags, open_side
from mlgokit.bench.workloads import Workload, choose_workloads
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import MEASURES, SPILL_COST
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError
from mlgokit.evaluation.sides import make_side
from mlgokit.learning.live_range_trials import ask_ranges, try_ranges
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import REGALLOC_WEIGHT

BAR = 0.7
"""Rank correlation of estimated and counted instructions over functions."""
LEAST = 10_000
"""Instructions that a function must execute to be compared."""
_SAME = 1e-6
_EXECUTED = MEASURES.index("executed")
_SPREAD = 0.3
"""Standard deviation of the weights of drawn policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTruth:
    """Allocate programs by drawn policies of spill weights, and count what each function executes; needs valgrind."""

    corpus: Path = Path("quickstart/corpus")
    """Corpus at the level of ``options``, which has the programs' sources."""
    workloads: tuple[str, ...] = ("zstd", "snappy", "re2", "yaml-cpp", "double-conversion", "fmt", "leveldb")
    """Workloads of `mlgokit bench`."""
    options: str = "-O2"
    """Level of both builds."""
    policies: int = 3
    """Drawn policies."""
    profiled: bool = False
    """Compile programs and corpus with a profile of the same run, from which LLVM takes its block frequencies."""
    cpu: str = "skylake"
    """Processor for which llvm-mca prices blocks."""
    folder: Path = Path("build/cost_truth")
    """Where programs are built."""
    seed: int = 1
    """Of the policies."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 2
    """Compilers that run at once."""
    json: Path = Path("docs/results/cost_truth.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """What functions of one program changed by under the policies, one row for each function and policy.

    Attributes:
        instructions: [N] that the plain one executes.
        executed: [N] estimated change of instructions, as a part of those.
        memory: [N] that of spills and reloads, as such a part.
        cost: [N] that of LLVM's cost of spills, reloads and copies, as such a part.
        traced: [N] change of instructions by how often the plain build executed each block, as such a part; NaN where
            both builds have other blocks.
        priced: [N] the same of cycles by llvm-mca, as a part of cycles.
        counted: [N] counted change of instructions, as a part.
        counted_memory: [N] counted change of loads and stores, as a part of instructions.
    """

    instructions: Floats
    executed: Floats
    memory: Floats
    cost: Floats
    traced: Floats
    priced: Floats
    counted: Floats
    counted_memory: Floats


_FIELDS = tuple(field.name for field in dataclasses.fields(Changes))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(CostTruth, measure, arguments)


def measure(config: CostTruth, setup: Setup) -> Result:
    """Estimate, count, and correlate."""
    toolchain = setup.toolchain(config.llvm)
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers)
    callgrind = find_callgrind()
    setup.tools["counter"] = callgrind.name
    workloads = choose_workloads(None, config.workloads)
    names = {project.name for workload in workloads for project in workload.projects}
    modules = [module for module in setup.corpus(config.corpus).modules if module.project in names]
    files = _drawn_policies(config, compiler, modules)
    sides = [SideFlags(words=(config.options, BLOCKS))]
    for path in files:
        record = make_side((str(path),), options=(config.options, BLOCKS)).record
        sides.append(open_side(record, toolchain, path.with_suffix(".so")))
    shop = open_shop(workloads, config.folder, toolchain=toolchain, workers=1)
    uses: dict[str, str] = {}
    if config.profiled:
        profiles = parallel(
            lambda workload: profile_of(workload, (config.options,), shop, config.folder),
            workloads,
            workers=config.workers,
            report=setup.report,
            label="profiles",
        )
        uses = {workload.name: str(profile) for workload, profile in zip(workloads, profiles, strict=True)}
        modules = _with_profiles(modules, workloads, uses, toolchain)
    estimates = _estimates(config, setup, compiler, modules, [load_policy(path) for path in files])

    def count(workload: Workload) -> list[Run]:
        more = (f"-fprofile-use={uses[workload.name]}",) if uses else ()
        flags = [dataclasses.replace(side, words=(*side.words, *more)) for side in sides]
        return count_builds(workload, flags, shop, config.folder, callgrind)

    counted = parallel(
        count,
        workloads,
        workers=config.workers,
        report=setup.report,
        label="programs",
    )
    found = {
        workload.name: _changes(config, shop.toolchain, estimates, runs)
        for workload, runs in zip(workloads, counted, strict=True)
    }
    return _result(config, found)


def _with_profiles(
    modules: Sequence[Module], workloads: Sequence[Workload], profiles: Mapping[str, str], toolchain: Toolchain
) -> list[Module]:
    """The modules as they are compiled with the profile of the workload that they are of."""
    of = {project.name: profiles[workload.name] for workload in workloads for project in workload.projects}
    kind = ("-fprofile-instrument-use=llvm",) if toolchain.wants_profile_kinds else ()
    return [
        dataclasses.replace(
            module, command_line=(*module.command_line, *kind, f"-fprofile-instrument-use-path={of[module.project]}")
        )
        for module in modules
    ]


def _drawn_policies(config: CostTruth, compiler: ClangCompiler, modules: Sequence[Module]) -> list[Path]:
    """Files of policies with random weights."""
    _, asked = ask_ranges(compiler, modules[0], REGALLOC_WEIGHT, rows=4000, seed=config.seed)
    if asked is None:
        raise CorpusError(f"{modules[0].name}: expected a module with live ranges, found none; name another corpus")
    rng = np.random.default_rng(config.seed)
    paths: list[Path] = []
    for number in range(config.policies):
        weights = _SPREAD * rng.normal(size=len(asked.features))
        policy = linear_policy(REGALLOC_WEIGHT, asked.features, fit_signed_log(asked.rows), weights)
        paths.append(config.folder.absolute() / f"drawn{number}.policy")
        save_policy(policy, paths[-1])
    return paths


def _estimates(
    config: CostTruth, setup: Setup, compiler: ClangCompiler, modules: Sequence[Module], policies: Sequence[Policy]
) -> dict[str, Floats]:
    """By symbol [1 + P, 9] what trials measure; without symbols that are not the same in all modules that have them."""

    def work(module: Module) -> dict[str, Floats]:
        done, asked = ask_ranges(compiler, module, REGALLOC_WEIGHT, rows=1, seed=config.seed)
        if not done.ok:
            raise CorpusError(f"{module.name}: expected it to compile, found: {done.reason}")
        if asked is None:
            return {}
        measured = try_ranges(compiler, module, REGALLOC_WEIGHT, asked.keys, policies).measured
        return {one.name: measured[one.key] for one in done.tried if one.key in measured}

    found: dict[str, Floats] = {}
    differ: set[str] = set()
    for part in parallel(work, modules, workers=config.workers, report=setup.report, label="estimates"):
        for name, rows in part.items():
            if not np.array_equal(found.setdefault(name, rows), rows, equal_nan=True):
                differ.add(name)
    return {name: rows for name, rows in found.items() if name not in differ}


def _changes(config: CostTruth, toolchain: Toolchain, estimates: Mapping[str, Floats], runs: Sequence[Run]) -> Changes:
    """Functions that are estimated, run long enough, and are changed by a policy."""
    plain = runs[0]
    wanted = [name for name, one in plain.counts.items() if name in estimates and (one.instructions or 0) >= LEAST]
    prices = [
        cycles({name: run.blocks[name] for name in wanted if name in run.blocks}, toolchain, config.cpu) for run in runs
    ]
    rows: list[tuple[float, ...]] = []
    for name in wanted:
        before, counts = estimates[name][0], plain.counts[name]
        times = executed(plain.blocks.get(name, {}), plain.addresses)
        for after, run, price in zip(estimates[name][1:], runs[1:], prices[1:], strict=True):
            if name not in run.counts or not np.isfinite(after).all() or before[_EXECUTED] <= 0:
                continue
            changed = (after - before) / before[_EXECUTED]
            whole = float(counts.instructions or 0)
            other = run.counts[name]
            more = ((other.instructions or 0) - whole) / whole
            touched = (other.loads or 0) + (other.stores or 0) - (counts.loads or 0) - (counts.stores or 0)
            if np.abs(changed).max() > _SAME or more:
                lengths = [
                    {number: float(len(one.lines)) for number, one in each.blocks.get(name, {}).items()}
                    for each in (plain, run)
                ]
                rows.append(
                    (
                        whole, changed[_EXECUTED], changed[MEMORY].sum(), changed @ SPILL_COST,
                        _traced(times, *lengths), _traced(times, prices[0].get(name, {}), price.get(name, {})),
                        more, touched / whole,
                    )
                )  # fmt: skip
    columns = np.array(rows, np.float64).reshape(-1, len(_FIELDS)).T
    return Changes(**dict(zip(_FIELDS, columns, strict=True)))


def _traced(times: Mapping[int, int], before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Change of a price of blocks, each executed so often, as a part; NaN if one that is executed is not in both."""
    ran = [number for number, count in times.items() if count]
    if not ran or not before.keys() >= set(ran) <= after.keys():
        return float("nan")
    then, now = (sum(times[number] * one[number] for number in ran) for one in (before, after))
    return now / then - 1 if then else float("nan")


def _result(config: CostTruth, found: Mapping[str, Changes]) -> Result:
    every = Changes(**{name: np.concatenate([getattr(one, name) for one in found.values()]) for name in _FIELDS})
    rows = [(name, *_row(one)) for name, one in (*found.items(), ("all", every)) if len(one.counted) > 2]
    rank = ranked(every.executed, every.counted)
    return Result(
        benchmark="cost_truth",
        question="Do estimated costs of an allocation tell what programs then execute, function by function?",
        answer=f"rank correlation with counted instructions over {len(every.counted)} changes of functions in "
        f"{len(found)} programs: {rank:.2f} by estimated instructions, {ranked(every.cost, every.counted):.2f} by "
        f"LLVM's spill cost; of estimated spills and reloads with counted loads and stores "
        f"{ranked(every.memory, every.counted_memory):.2f}; by blocks as a run of the plain build executed them "
        f"{ranked(every.traced, every.counted):.2f} of instructions and {ranked(every.priced, every.counted):.2f} of "
        "cycles by llvm-mca",
        bar=f"at least {BAR} by estimated instructions",
        passed=rank >= BAR,
        seed=config.seed,
        tables=(
            Table(
                title="Programs",
                columns=(
                    "program", "changes of functions", "instructions, rank correlation", "slope",
                    "the same sign", "spill cost with instructions, rank correlation",
                    "spills and reloads with loads and stores, rank correlation", "blocks alike",
                    "instructions by executed blocks, rank correlation",
                    "cycles by llvm-mca and executed blocks, rank correlation",
                    "all functions together, estimated", "counted",
                ),
                rows=tuple(rows),
                note=f"{config.policies} drawn policies of spill weights at {config.options}"
                f"{' with a profile of the run' if config.profiled else ''} against LLVM's own, "
                f"functions that execute at least {LEAST} instructions themselves and that a policy changes. Slope: "
                "counted over estimated change, by least squares weighted by instructions. All together: the mean "
                "change over functions, weighted by instructions. Executed blocks: how often the plain build ran "
                "each, which a profile would tell, and what it is in the other build, where both have the blocks that "
                f"ran; cycles are those of {config.cpu}, a block repeated {PASSES} times.",
            ),
        ),
    )  # fmt: skip


def _row(one: Changes) -> tuple[Cell, ...]:
    weights = one.instructions / one.instructions.sum()
    slope = float((weights * one.executed * one.counted).sum() / max((weights * one.executed**2).sum(), 1e-300))
    moved = (np.abs(one.executed) > _SAME) & (one.counted != 0)
    sign = float((np.sign(one.executed) == np.sign(one.counted))[moved].mean()) if moved.any() else 1.0
    return (
        len(one.counted), round(ranked(one.executed, one.counted), 2), round(slope, 2), f"{100 * sign:.0f} %",
        round(ranked(one.cost, one.counted), 2), round(ranked(one.memory, one.counted_memory), 2),
        int(np.isfinite(one.traced).sum()), round(ranked(one.traced, one.counted), 2),
        round(ranked(one.priced, one.counted), 2),
        fine(float((weights * one.executed).sum())), fine(float((weights * one.counted).sum())),
    )  # fmt: skip


def ranked(one: Floats, other: Floats) -> float:
    """Rank correlation (Spearman), equal values with their mean rank; without pairs of which one is not known.

    Example:
        >>> round(ranked(np.array([1.0, 2.0, 2.0, 9.0]), np.array([0.0, 5.0, 5.0, 6.0])), 2)
        1.0
    """
    known = np.isfinite(one) & np.isfinite(other)
    return float(np.corrcoef(_ranks(one[known]), _ranks(other[known]))[0, 1]) if known.sum() > 1 else float("nan")


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(np.round(values, 9), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


if __name__ == "__main__":
    raise SystemExit(main())

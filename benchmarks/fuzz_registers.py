"""Random evictions and priorities in modules of real projects: what goes wrong."""

import itertools
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import Ledger, Setup, clean_environment, open_ledger, run_benchmark
from results import Cell, Result, Table

from mlgokit.advisors import Advisor, RandomLegal
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.compile import command
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, PluginUse
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.errors import InputError, ToolError, TraceError
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log, read_log

Record = dict[str, Any]
BAD = ("hang", "crash", "illegal", "bad object")
BOTH = (REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name)
RANDOM = ":random"
POOL = 6
"""Drawn policies for each problem and major."""

# More values alive than registers, so that the allocator has decisions to make; the drawn policies are scaled to it.
PRESSURE = """
unsigned hash(const unsigned *p, int n) {
  unsigned a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11,l=12,m=13,o=14,q=15;
  for (int t = 0; t < n; t++) {
    unsigned v = p[t];
    a=a*31+(b^v); b=(b<<7|c>>25)^c; c+=d*v; d^=e+a; e=e*7+f; f+=g^v; g=g*13+h; h^=i+v; i+=j*3; j^=k+v;
    k+=l*5; l^=m+v; m=m<<3^o; o^=q+v; q+=a*17;
    if (t % 7 == 3) a += hash(p, q & 3);
  }
  return a^b^c^d^e^f^g^h^i^j^k^l^m^o^q;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRegisters:
    """Compile modules under random legal evictions and priorities, over the plugin and over LLVM's channels."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus of the newest compiler."""
    older_corpus: Path | None = None
    """A corpus of LLVM 19; a quarter of the compilations is on it."""
    compilations: int = 2000
    """Compilations of modules of the corpus."""
    pipes: float = 0.2
    """Share of these over LLVM's interactive channels; only modules smaller than the median."""
    minutes: float = 60.0
    """After this nothing new is begun, and the result says what is missing; starting again goes on."""
    seed: int = 1
    """Of all draws."""
    timeout_seconds: float = 600.0
    """Deadline of one compilation."""
    records: Path = Path("build/fuzz_registers.jsonl")
    """One line for each thing that is done; what is in it is not done again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A compiler, its plugin, and the drawn policies: problem to files."""

    toolchain: Toolchain
    plugin: Path
    policies: Mapping[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How the register allocator is led in one compilation.

    Attributes:
        policies: problem to ``:random`` or a policy file.
        pipes: over LLVM's interactive channels instead of the plugin.
        seed: of the decisions.
        temperature: of a policy's decisions.
        logged: whether the plugin's logs are written, and looked through for illegal decisions.
    """

    policies: Mapping[str, str]
    pipes: bool
    seed: int
    temperature: float
    logged: bool

    def facts(self) -> dict[str, str | int]:
        """For a record."""
        names = "+".join(name.removeprefix("regalloc-") for name in sorted(self.policies))
        drawn = {"random" if policy == RANDOM else "drawn network" for policy in self.policies.values()}
        channel = "pipes" if self.pipes else "plugin"
        return {"problems": names, "advisors": " and ".join(sorted(drawn)), "channel": channel, "seed": self.seed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one compilation ended: ``ok``, ``error``, ``crash``, ``hang``, ``illegal`` or ``bad object``, and why."""

    outcome: str
    sentence: str = ""
    decisions: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzRegisters, measure, arguments)


def measure(config: FuzzRegisters, setup: Setup) -> Result:
    """Do what is not done yet, while there is time, and sum everything up."""
    begin = time.monotonic()
    folders = {find_toolchain(None, need_plugin=True).major: config.corpus}
    if config.older_corpus is not None:
        folders = {19: config.older_corpus, **folders}
    corpora = {major: setup.corpus(folder, f"corpus of LLVM {major}") for major, folder in folders.items()}
    ledger = open_ledger(config.records, {"seed": config.seed, "pipes": str(config.pipes), **setup.inputs})
    counts = dict.fromkeys(corpora, config.compilations)
    if len(corpora) == 2:
        counts[19] = config.compilations // 4
        counts[max(corpora)] -= counts[19]
    total = sum(counts.values())
    with tempfile.TemporaryDirectory(prefix="mlgokit-stress-") as scratch:
        benches: dict[int, Bench] = {}
        for major in corpora:
            folder = Path(scratch) / str(major)
            folder.mkdir()
            toolchain = setup.toolchain(major, suffix=f" {major}")
            benches[major] = make_bench(toolchain, folder, np.random.default_rng([config.seed, major]))
        for _ in _compilations(config, corpora, counts, benches, ledger):
            setup.report(len(ledger.known) - 1, total, "modules")
            if time.monotonic() - begin > 60 * config.minutes:
                break
    return summarise(ledger, total=total, seed=config.seed)


def _compilations(
    config: FuzzRegisters, corpora: Mapping[int, Corpus], counts: Mapping[int, int], benches: Mapping[int, Bench],
    ledger: Ledger,
) -> Iterator[None]:  # fmt: skip
    """One step for each compilation that is not done; the majors in turns."""
    for major, index in sorted(
        ((major, index) for major, count in counts.items() for index in range(count)),
        key=lambda item: (item[1] / counts[item[0]], item[0]),
    ):
        key = f"module {major} {index}"
        if key not in ledger.known:
            rng = np.random.default_rng([config.seed, major, index])
            ledger.add(key, _one_module(config, corpora[major], benches[major], rng))
            yield


def _one_module(config: FuzzRegisters, corpus: Corpus, bench: Bench, rng: np.random.Generator) -> Record:
    pipes = bool(rng.random() < config.pipes)
    sizes = np.array([module.bitcode_bytes for module in corpus.modules], dtype=float)
    weights = 1 / (60_000 + sizes)
    if pipes:
        weights *= sizes <= np.median(sizes)
    module = corpus.modules[int(rng.choice(len(sizes), p=weights / weights.sum()))]
    level = str(rng.choice(["-Oz", "-O2"]))
    options = tuple(level if option == "-Oz" else option for option in module.command_line)
    treatment = draw_treatment(bench, rng, pipes=pipes)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mlgokit-stress-") as scratch:
        folder = Path(scratch)
        output = folder / "module.o"
        argv = command(bench.toolchain, replace(module, command_line=options), output, None)
        ended = treat(bench, treatment, argv, output, folder=folder, timeout_seconds=config.timeout_seconds)
        seconds = time.monotonic() - begin
        sentence = ended.sentence
        if ended.outcome != "ok":
            plain = treat(bench, None, argv, output, folder=folder, timeout_seconds=config.timeout_seconds)
            sentence = explain(ended, plain)
    return {
        "major": bench.toolchain.major, "module": module.name, "level": level, **treatment.facts(),
        "outcome": ended.outcome, "sentence": sentence, "decisions": ended.decisions, "seconds": round(seconds, 3),
    }  # fmt: skip


def explain(ended: Ending, plain: Ending) -> str:
    """What went wrong, and whether the compiler does the same without any advisor.

    Example:
        >>> explain(Ending(outcome="error", sentence="no registers"), Ending(outcome="ok"))
        'no registers; without an advisor the module compiles'
    """
    said = "the module compiles" if plain.outcome == "ok" else f"it ends with {plain.outcome}: {plain.sentence}"
    return f"{ended.sentence}; without an advisor {said}"


def summarise(ledger: Ledger, *, total: int, seed: int) -> Result:
    """The tables, and whether nothing hung or crashed."""
    modules = [record for key, record in ledger.known.items() if key.startswith("module ")]
    endings = Counter(record["outcome"] for record in modules)
    failures: list[tuple[Cell, ...]] = [
        (record["major"], record["module"], record["level"], record["channel"], record["problems"], record["outcome"],
         record["sentence"])
        for record in modules if record["outcome"] != "ok"
    ]  # fmt: skip
    unexplained = sum(not row[-1] for row in failures)
    groups = Counter((r["major"], r["channel"], r["problems"], r["advisors"], r["outcome"]) for r in modules)
    tables = [
        Table(
            title="Compilations of modules",
            columns=("LLVM", "channel", "problems", "advisors", "outcome", "compilations"),
            rows=tuple((*group, count) for group, count in sorted(groups.items())),
            note=(
                "A module is drawn with a probability of 1 over its size and 60 kB, so small ones come more often. "
                "Half are compiled at -O2, half at -Oz. Over the pipes only modules smaller than the median are "
                "compiled. "
                f"{len({(r['major'], r['module']) for r in modules})} different modules took part, "
                f"{sum(r['decisions'] for r in modules):,} decisions were looked through and were legal "
                "(all over the pipes, and where the plugin wrote a log)."
            ),
        )
    ]
    if failures:
        columns = ("LLVM", "module", "level", "channel", "problems", "outcome", "why")
        tables.append(Table(title="Everything that did not succeed", columns=columns, rows=tuple(failures)))
    missing = f"; {total - len(modules)} of {total} were not done for want of time" if len(modules) < total else ""
    return Result(
        benchmark="fuzz_registers",
        question="Do compilations hang or crash when evictions and priorities are random but legal?",
        answer=(
            f"of {len(modules)} compilations under random policies {endings['hang']} hung, {endings['crash']} crashed, "
            f"{endings['illegal']} decided illegally, {endings['error']} ended with an error of the compiler{missing}"
        ),
        bar="no hang, no crash, and every failure explained",
        passed=not sum(endings[outcome] for outcome in BAD) and not unexplained and len(modules) >= total,
        seed=seed,
        tables=tuple(tables),
    )


def make_bench(toolchain: Toolchain, folder: Path, rng: np.random.Generator) -> Bench:
    """Build the plugin, and draw the policies into ``folder``.

    Raises:
        ToolError: the plugin cannot be built, or does not compile the sample.
    """
    plugin = build_plugin(toolchain)
    source = folder / "pressure.c"
    source.write_text(PRESSURE)
    use = PluginUse(plugin=plugin, policies=dict.fromkeys(BOTH, HEURISTIC), logs=BOTH)
    argv = [toolchain.clang, "-O2", f"-fpass-plugin={plugin}", "-c", source, "-o", folder / "pressure.o"]
    done = process.run(argv, timeout_seconds=60, env=clean_environment() | use.environment(folder))
    if done.returncode != 0:
        raise ToolError(f"{toolchain.clang}: expected it to compile a sample with the plugin, found: {done.stderr}")
    policies: dict[str, tuple[Path, ...]] = {}
    for name in BOTH:
        log = read_log(folder / f"{name}.log")
        paths = tuple(folder / f"{name}.{toolchain.major}.{index}.policy" for index in range(POOL))
        for path in paths:
            save_policy(draw_policy(PROBLEMS[name], log, rng), path)
        policies[name] = paths
    return Bench(toolchain=toolchain, plugin=plugin, policies=policies)


def draw_treatment(bench: Bench, rng: np.random.Generator, *, pipes: bool) -> Treatment:
    """One or both problems, each decided at random or by a drawn network, greedily or not."""
    chosen = (BOTH, BOTH[:1], BOTH[1:])[int(rng.integers(3))]
    policies = {
        name: RANDOM if rng.random() < 0.6 else str(bench.policies[name][int(rng.integers(POOL))]) for name in chosen
    }
    return Treatment(
        policies=policies,
        pipes=pipes,
        seed=int(rng.integers(2**63)),
        temperature=float(rng.choice([0.0, 1.0, 10.0])),
        logged=bool(rng.random() < 0.5),
    )


def treat(
    bench: Bench,
    treatment: Treatment | None,
    argv: Cc1Line,
    output: Path,
    *,
    folder: Path,
    timeout_seconds: float,
) -> Ending:
    """Compile with ``argv``, which writes the object ``output``; ``None`` compiles plainly. Logs go to ``folder``."""
    if treatment is not None and treatment.pipes:
        return _over_pipes(bench, treatment, argv, output, timeout_seconds=timeout_seconds)
    environment = clean_environment()
    if treatment is not None:
        use = PluginUse(
            plugin=bench.plugin,
            policies=treatment.policies,
            logs=tuple(treatment.policies) if treatment.logged else (),
            seed=treatment.seed,
            temperature=treatment.temperature,
        )
        environment |= use.environment(folder)
        argv = argv.append_words([f"-fpass-plugin={bench.plugin}"])
    logs = {name: folder / f"{name}.log" for name in (treatment.policies if treatment else ())}
    for path in logs.values():
        path.unlink(missing_ok=True)
    done = process.run(argv, timeout_seconds=timeout_seconds, env=environment)
    if done.timed_out:
        return Ending(outcome="hang", sentence=f"expected the compiler's end within {timeout_seconds:g} s, found none")
    if done.returncode:
        return _failure(done.returncode, done.stderr)
    try:
        read = {name: read_log(path) for name, path in logs.items() if path.exists()}
    except TraceError as error:
        return Ending(outcome="illegal", sentence=str(error))
    return _judge(read, output)


def _over_pipes(bench: Bench, treatment: Treatment, argv: Cc1Line, output: Path, *, timeout_seconds: float) -> Ending:
    advisors: dict[str, Advisor] = {}
    for number, (name, policy) in enumerate(sorted(treatment.policies.items())):
        if policy == RANDOM:
            advisors[name] = RandomLegal(PROBLEMS[name], np.random.default_rng([treatment.seed, number]))
        else:
            exploration = Exploration(seed=treatment.seed, temperature=treatment.temperature)
            advisors[name] = PolicyAdvisor(load_policy(Path(policy)), exploration)
    result = drive_channels(
        argv,
        channels={
            name: channel_use(PROBLEMS[name], major=bench.toolchain.major, advisor=advisor)
            for name, advisor in advisors.items()
        },
        timeout_seconds=timeout_seconds,
        answer_timeout_seconds=timeout_seconds,
        env=clean_environment(),
    )
    if result.status is InteractiveStatus.FAILED:
        return _failure(result.returncode, result.stderr)
    if result.status is not InteractiveStatus.OK:
        return Ending(outcome="hang", sentence=result.detail)
    return _judge({name: log for name, log in result.logs.items() if log is not None}, output)


def _failure(returncode: int, stderr: str) -> Ending:
    if returncode < 0 or returncode > 128:
        number = -returncode if returncode < 0 else returncode - 128
        return Ending(outcome="crash", sentence=f"{signal.Signals(number).name}: {first_error(stderr)}")
    return Ending(outcome="error", sentence=first_error(stderr))


def _judge(logs: Mapping[str, Log], output: Path) -> Ending:
    decisions = sum(log.observation_count for log in logs.values())
    for name, log in logs.items():
        illegal = count_illegal(name, log)
        if illegal:
            return Ending(outcome="illegal", sentence=f"{name}: {illegal} decisions are not legal", decisions=decisions)
    try:
        measure_object(output)
    except (InputError, OSError) as error:
        return Ending(outcome="bad object", sentence=str(error), decisions=decisions)
    return Ending(outcome="ok", decisions=decisions)


def count_illegal(name: str, log: Log) -> int:
    """Decisions in a log that LLVM must never see: columns masked out, priorities that are no 32-bit numbers."""
    problem = PROBLEMS[name]
    if not log.observation_count:
        return 0
    decisions = log.columns[problem.decision].reshape(-1)
    if problem.mask is None:
        return int(np.count_nonzero(~((decisions >= 0) & (decisions < 2.0**32))))
    mask = log.columns[problem.mask].reshape(log.observation_count, -1)
    inside = (decisions >= 0) & (decisions < mask.shape[1])
    allowed = mask[np.arange(len(decisions)), np.where(inside, decisions, 0)].astype(bool)
    # With everything masked out, the last column stands for the range that asks.
    allowed |= ~mask.any(axis=1) & (decisions == mask.shape[1] - 1)
    return int(np.count_nonzero(~(inside & allowed)))


def draw_policy(problem: Problem, log: Log, rng: np.random.Generator) -> Policy:
    """A policy for eviction or priority, of drawn shape and weights.

    Args:
        problem: one that decides by columns or by a number.
        log: what the features look like; half of them, drawn, are used, and of these all that vary in it.
        rng: where everything comes from.
    """
    varying = [
        name for name in problem.feature_names if name != problem.mask and np.ptp(log.columns[name].astype(float)) > 0
    ]
    count = max(1, len(varying) // 2)
    names = tuple(varying[index] for index in sorted(rng.choice(len(varying), count, replace=False).tolist()))
    columns = [log.columns[name].reshape(log.observation_count, -1).astype(np.float64) for name in names]
    width = max(column.shape[1] for column in columns)
    rows = np.stack([np.broadcast_to(column, (len(column), width)).ravel() for column in columns], axis=1)
    normaliser = fit_quantile(rows, count=50) if rng.random() < 0.5 else fit_signed_log(rows)
    members, hidden = int(rng.integers(1, 4)), int(rng.integers(4, 25))
    layers = tuple(
        Layer(
            rng.normal(size=(members, inputs, outputs)).astype(np.float32),
            rng.normal(size=(members, outputs)).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise((normaliser.width, hidden, 1))
    )
    chooses = problem.advice_kind is AdviceKind.MASKED_CHOICE
    return Policy(
        problem=problem.name,
        features=names,
        normaliser=normaliser,
        layers=layers,
        output=OutputKind.COLUMN_LOGIT if chooses else OutputKind.PRIORITY,
        mask=problem.mask or "",
    )


if __name__ == "__main__":
    sys.exit(main())

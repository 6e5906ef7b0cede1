"""Compilations whose evictions and priorities are decided at random, and how they may end."""

import itertools
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import clean_environment

from mlgokit.advisors import Advisor, RandomLegal
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, ToolError, TraceError
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log, read_log

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
    argv: Sequence[str | Path],
    output: Path,
    *,
    folder: Path,
    timeout_seconds: float,
    cwd: Path | None = None,
) -> Ending:
    """Compile with ``argv``, which writes the object ``output``; ``None`` compiles plainly. Logs go to ``folder``."""
    if treatment is not None and treatment.pipes:
        return _over_pipes(bench, treatment, argv, output, timeout_seconds=timeout_seconds, cwd=cwd)
    environment, words = clean_environment(), list(argv)
    if treatment is not None:
        use = PluginUse(
            plugin=bench.plugin,
            policies=treatment.policies,
            logs=tuple(treatment.policies) if treatment.logged else (),
            seed=treatment.seed,
            temperature=treatment.temperature,
        )
        environment |= use.environment(folder)
        words.append(f"-fpass-plugin={bench.plugin}")
    logs = {name: folder / f"{name}.log" for name in (treatment.policies if treatment else ())}
    for path in logs.values():
        path.unlink(missing_ok=True)
    done = process.run(words, timeout_seconds=timeout_seconds, cwd=cwd, env=environment)
    if done.timed_out:
        return Ending(outcome="hang", sentence=f"expected the compiler's end within {timeout_seconds:g} s, found none")
    if done.returncode:
        return _failure(done.returncode, done.stderr)
    try:
        read = {name: read_log(path) for name, path in logs.items() if path.exists()}
    except TraceError as error:
        return Ending(outcome="illegal", sentence=str(error))
    return _judge(read, output)


def _over_pipes(
    bench: Bench,
    treatment: Treatment,
    argv: Sequence[str | Path],
    output: Path,
    *,
    timeout_seconds: float,
    cwd: Path | None,
) -> Ending:
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
        cwd=cwd,
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

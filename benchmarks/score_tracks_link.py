"""Does a score of objects track the linked image? Whole projects under many policies, objects and image measured.

The policies are of very different kinds, so that no score can look good by following one of them: the rules, the
heuristic with decisions turned round, other thresholds of the heuristic, random networks, networks that imitate the
heuristic and lean towards or away from some features, and trained policies with and without decisions turned round.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from leaning_policies import leaning_network, random_network
from policy_speed import observe
from results import Result, corpus_inputs, draw_modules, run_benchmark, tool_versions
from score_summary import Failure, Point, summarise

from mlgokit.compiler.compile import ALWAYS, HEURISTIC, NEVER, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.objects.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import ObjectSizes, link_aware_score, link_weights, project_image_estimate
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.module import Module
from mlgokit.policy.normaliser import Values
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

LINK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTracksLink:
    """Build projects under many policies; correlate scores of objects with the size of the linked image."""

    policy: tuple[Path, ...] = ()
    """Trained policies to include, each also with a part of its decisions turned round."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = ("yaml-cpp", "re2", "leveldb")
    """Projects to build."""
    modules: int = 0
    """Modules of each project, drawn; 0 for all."""
    flip_probabilities: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3)
    """Parts of the heuristic's decisions that are turned round; each with two seeds."""
    thresholds: tuple[int, ...] = (-50, 0, 7, 12, 15, 20, 25, 35, 50, 100, 225)
    """Values of -inline-threshold for the heuristic, whose own at -Oz is 5."""
    random_networks: int = 4
    """Policies with random weights."""
    leaning_networks: int = 18
    """Policies that imitate the heuristic and lean towards or away from features."""
    trained_flips: tuple[float, ...] = (0.01, 0.05)
    """Parts of a trained policy's decisions that are turned round."""
    workers: int = 2
    """Compilers that run at once."""
    seed: int = 1
    """Of everything random."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/score_tracks_link.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to decide.

    Attributes:
        kind: what sort of policy it is.
        name: which of them.
        policy: for the plugin; empty compiles without it.
        options: more options for the compiler.
        flip_probability: part of the decisions that are turned round.
        seed: of those; each module gets its own from it.
    """

    kind: str
    name: str
    policy: str = ""
    options: tuple[str, ...] = ()
    flip_probability: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Bytes of one build of a project: the sums of :data:`score_summary.MEASURES`, and the image."""

    scores: tuple[float, ...]
    image: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project and its plain build.

    Attributes:
        name: of the project.
        modules: those that compile plainly.
        roots: of every link.
        weights: of COMDAT signatures.
        plain: the baseline.
    """

    name: str
    modules: tuple[Module, ...]
    roots: tuple[str, ...]
    weights: dict[str, int]
    plain: Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every build needs."""

    toolchain: Toolchain
    lld: Path
    plugin: Path
    timeout_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ScoreTracksLink, measure, arguments)


def measure(config: ScoreTracksLink, report: Report) -> Result:
    """Build every project under every contender.

    Raises:
        ToolError: the toolchain has no linker.
    """
    rng = np.random.default_rng(config.seed)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    if toolchain.lld is None:
        raise ToolError(
            f"score tracks link: expected ld.lld of LLVM {toolchain.major}, found none; install it: apt-get install "
            f"lld-{toolchain.major}"
        )
    found = tool_versions(toolchain)
    corpus = load_corpus(config.corpus)
    bench = Bench(
        toolchain=toolchain,
        lld=toolchain.lld,
        plugin=build_plugin(toolchain),
        timeout_seconds=config.timeout_seconds,
    )
    chosen = {name: [module for module in corpus.modules if module.project == name] for name in config.projects}
    unknown = [name for name, modules in chosen.items() if not modules]
    if unknown:
        raise UsageError(f"projects: expected names from the corpus, found {', '.join(unknown)}; correct --projects")
    drawn = [(name, draw_modules(modules, config.modules, rng)) for name, modules in chosen.items()]
    every = [module for _, modules in drawn for module in modules]
    columns = observe(toolchain, bench.plugin, every, report)
    with tempfile.TemporaryDirectory(prefix="mlgokit-score-") as scratch:
        contenders = make_contenders(config, columns, Path(scratch), rng)
        projects = parallel(
            lambda entry: build_baseline(bench, *entry), drawn, workers=config.workers, report=report, label="plain"
        )
        tasks = [(project, contender) for contender in contenders for project in projects]
        outcomes = parallel(
            lambda task: build_point(bench, *task), tasks, workers=config.workers, report=report, label="policies"
        )
    return summarise(
        [outcome for outcome in outcomes if isinstance(outcome, Point)],
        [outcome for outcome in outcomes if isinstance(outcome, Failure)],
        seed=config.seed,
        versions=found,
        inputs=corpus_inputs(corpus, config.policy),
    )


def make_contenders(
    config: ScoreTracksLink, columns: Mapping[str, Values], folder: Path, rng: np.random.Generator
) -> list[Contender]:
    """All contenders; networks are written to ``folder``."""
    found = [Contender(kind="rule", name=rule, policy=rule) for rule in (HEURISTIC, NEVER, ALWAYS)]
    found += [
        Contender(
            kind="heuristic, flipped",
            name=f"flip {probability:g}, seed {seed}",
            policy=HEURISTIC,
            flip_probability=probability,
            seed=seed,
        )
        for probability in config.flip_probabilities
        for seed in (1, 2)
    ]
    found += [
        Contender(
            kind="heuristic, threshold",
            name=f"-inline-threshold={value}",
            options=("-mllvm", f"-inline-threshold={value}"),
        )
        for value in config.thresholds
    ]
    networks = [("random network", random_network(columns, rng)) for _ in range(config.random_networks)]
    networks += [("leaning network", leaning_network(columns, rng)) for _ in range(config.leaning_networks)]
    for index, (kind, policy) in enumerate(networks):
        path = folder / f"{index}.policy"
        save_policy(policy, path)
        found.append(Contender(kind=kind, name=f"{kind} {index}", policy=str(path)))
    for path in config.policy:
        found.append(Contender(kind="trained", name=path.stem, policy=str(path)))
        found += [
            Contender(
                kind="trained, flipped",
                name=f"{path.stem}, flip {probability:g}",
                policy=str(path),
                flip_probability=probability,
                seed=3,
            )
            for probability in config.trained_flips
        ]
    return found


def build_baseline(bench: Bench, name: str, modules: Sequence[Module]) -> Project:
    """Compile ``modules`` plainly and link them; those that do not compile are left out.

    Raises:
        CorpusError: none compiles, or they do not link.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-score-") as scratch:
        folder = Path(scratch)
        built = [_compile(bench, module, Contender(kind="", name=""), folder, i) for i, module in enumerate(modules)]
        kept = [index for index, sizes in enumerate(built) if isinstance(sizes, ObjectSizes)]
        measured = [sizes for sizes in built if isinstance(sizes, ObjectSizes)]
        if not kept:
            raise CorpusError(
                f"{name}: expected modules that compile, found none of {len(modules)} ({built[0]}); "
                "leave the project out"
            )
        roots, weights = link_roots([folder / f"{index}.o" for index in kept]), link_weights(measured)
        plain = _link(bench, folder, kept, measured=measured, roots=roots, weights=weights)
        if isinstance(plain, str):
            raise CorpusError(f"{name}: expected its plain build to link, found: {plain}; leave the project out")
    return Project(
        name=name, modules=tuple(modules[index] for index in kept), roots=roots, weights=weights, plain=plain
    )


def build_point(bench: Bench, project: Project, contender: Contender) -> Point | Failure:
    """Compile and link one project under one contender."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-score-") as scratch:
        folder = Path(scratch)
        measured: list[ObjectSizes] = []
        for index, module in enumerate(project.modules):
            sizes = _compile(bench, module, contender, folder, index)
            if isinstance(sizes, str):
                return Failure(project=project.name, name=contender.name, reason=f"{module.name}: {sizes}")
            measured.append(sizes)
        kept = range(len(measured))
        build = _link(bench, folder, kept, measured=measured, roots=project.roots, weights=project.weights)
    if isinstance(build, str):
        return Failure(project=project.name, name=contender.name, reason=build)
    return Point(
        project=project.name,
        kind=contender.kind,
        name=contender.name,
        scores=tuple(after / before - 1 for before, after in zip(project.plain.scores, build.scores, strict=True)),
        image=build.image / project.plain.image - 1,
    )


def _compile(bench: Bench, module: Module, contender: Contender, folder: Path, index: int) -> ObjectSizes | str:
    """Sizes of the object ``<index>.o``, or why there is none."""
    use = None
    if contender.policy:
        use = PluginUse(
            plugin=bench.plugin,
            policies={INLINE_SIZE.name: contender.policy},
            # Modules of one build are not to be turned round at the same places.
            seed=1_000_003 * contender.seed + index,
            flip_probability=contender.flip_probability,
        )
    done = compile_module(
        bench.toolchain,
        (*module.command_line, *contender.options),
        module.bitcode,
        use=use,
        keep_object=folder / f"{index}.o",
        timeout_seconds=bench.timeout_seconds,
    )
    if done.status is not CompileStatus.OK or done.sizes is None:
        return f"{done.status.value}: {done.reason}"
    return done.sizes


def _link(
    bench: Bench,
    folder: Path,
    indices: Sequence[int],
    *,
    measured: Sequence[ObjectSizes],
    roots: Sequence[str],
    weights: Mapping[str, int],
) -> Build | str:
    image = link_image(
        [folder / f"{index}.o" for index in indices],
        folder / "image",
        roots=roots,
        lld=bench.lld,
        timeout_seconds=LINK_SECONDS,
    )
    if image.status is not LinkStatus.LINKED:
        return f"{image.status.value}: {image.stderr.strip()[:200]}"
    scores = (
        float(sum(sizes.llvm_size_text for sizes in measured)),
        sum(link_aware_score(sizes, weights) for sizes in measured),
        project_image_estimate(measured),
    )
    return Build(scores=scores, image=float(image.image))


if __name__ == "__main__":
    sys.exit(main())

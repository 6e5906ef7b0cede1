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
import numpy.typing as npt
from policy_speed import observe
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.collect import NOT_FEATURES, Report, parallel
from mlgokit.compiler.compile import ALWAYS, HEURISTIC, NEVER, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.measure import ObjectSizes, link_aware_score, link_weights, project_image_estimate
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.module import Module, load_corpus
from mlgokit.dataset.normaliser import SignedLog, Values, fit_signed_log
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.evaluation.statistics import correlation
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE

MEASURES = ("object text", "link-aware", "exact account")
"""Scores of objects that are held against the image; the last counts every COMDAT signature once."""
FEWEST_POLICIES = 30
NEAR = 0.10
"""Largest absolute change of the image for which a policy is near the baseline."""
NO_CHANGE = 0.0005
"""Smaller absolute changes of the image have no sign."""
LINK_SECONDS = 120.0
Floats = npt.NDArray[np.float64]


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
class Point:
    """One project under one contender: relative changes against plain ``-Oz``; -0.02 is 2 % smaller.

    Attributes:
        project: its name.
        kind: of the contender.
        name: of the contender.
        scores: change of each of :data:`MEASURES`.
        image: change of the linked image.
    """

    project: str
    kind: str
    name: str
    scores: tuple[float, ...]
    image: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A project that could not be built under a contender, and why."""

    project: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Bytes of one build of a project: the sums of :data:`MEASURES`, and the image."""

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


def _observed(columns: Mapping[str, Values]) -> tuple[tuple[str, ...], Values]:
    """Names [F] and values [T, F] of the features in a log."""
    names = tuple(name for name in columns if name not in NOT_FEATURES)
    return names, np.stack([columns[name] for name in names], axis=1)


def random_network(columns: Mapping[str, Values], rng: np.random.Generator, width: int = 16) -> Policy:
    """Random weights over all features, shifted so that a part of the calls drawn from 5 to 60 % is inlined."""
    names, values = _observed(columns)
    normaliser = fit_signed_log(values)
    hidden = rng.normal(size=(len(names), width)) / np.sqrt(len(names))
    output = rng.normal(size=width)
    answer = np.maximum(normaliser.apply(values) @ hidden, 0) @ output
    # An effect below 0 is an improvement: inline.
    shift = np.quantile(answer, rng.uniform(0.05, 0.6))
    return _network(names, normaliser, hidden=hidden, bias=np.zeros(width), output=output, shift=-shift)


def leaning_network(columns: Mapping[str, Values], rng: np.random.Generator, width: int = 96) -> Policy:
    """A ridge regression of the heuristic's decisions on random features of the observations, plus a lean.

    The lean is a combination of three features with random weights, of a strength drawn between 0.03 and 0.5.
    """
    names, values = _observed(columns)
    normaliser = fit_signed_log(values)
    inputs = normaliser.apply(values).astype(np.float64)
    decisions = np.where(columns["inlining_default"] != 0, 1.0, -1.0)
    hidden = rng.normal(size=(len(names), width)) / np.sqrt(len(names))
    bias = rng.normal(size=width)
    features = np.column_stack([np.maximum(inputs @ hidden + bias, 0), np.ones(len(inputs))])
    gram = features.T @ features + 1e-3 * len(inputs) * np.eye(width + 1)
    weights = np.linalg.solve(gram, features.T @ decisions)
    lean = np.zeros(len(names))
    lean[rng.choice(len(names), 3, replace=False)] = rng.normal(size=3) * np.exp(rng.uniform(np.log(0.03), np.log(0.5)))
    # x = max(x, 0) - max(-x, 0): two more units carry the lean through the hidden layer.
    return _network(
        names,
        normaliser,
        hidden=np.column_stack([hidden, lean, -lean]),
        bias=np.append(bias, [0.0, 0.0]),
        output=np.append(-weights[:-1], [1.0, -1.0]),
        shift=-weights[-1],
    )


def _network(
    names: tuple[str, ...],
    normaliser: SignedLog,
    *,
    hidden: Floats,
    bias: Floats,
    output: Floats,
    shift: float,
) -> Policy:
    first = Layer(hidden[None].astype(np.float32), bias[None].astype(np.float32))
    last = Layer(output[None, :, None].astype(np.float32), np.array([[shift]], np.float32))
    return Policy(
        problem=INLINE_SIZE.name,
        features=names,
        normaliser=normaliser,
        layers=(first, last),
        output=OutputKind.EFFECT_BYTES,
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How one measure goes with the image over points.

    Attributes:
        points: their number.
        pearson: correlation of the changes; ``None`` of fewer than three points or without variation.
        spearman: the same of their ranks.
        same_sign: of the points whose image changes, the part where the measure changes in the same direction.
        signed: number of those points.
        error: mean absolute difference of the two changes.
    """

    points: int
    pearson: float | None
    spearman: float | None
    same_sign: float | None
    signed: int
    error: float


def agreement(score: Floats, image: Floats) -> Agreement:
    """Compare changes of a score with those of the image.

    Example:
        >>> found = agreement(np.array([-0.02, 0.01, 0.03, 0.0]), np.array([0.01, 0.02, 0.03, 0.0001]))
        >>> found.signed, round(found.same_sign, 3), round(found.error, 6)
        (3, 0.667, 0.010025)
    """
    varies = len(score) >= 3 and np.ptp(score) > 0 and np.ptp(image) > 0
    found = correlation(score, image) if varies else None
    moved = np.abs(image) >= NO_CHANGE
    return Agreement(
        points=len(score),
        pearson=found.pearson if found else None,
        spearman=found.spearman if found else None,
        same_sign=float((np.sign(score[moved]) == np.sign(image[moved])).mean()) if moved.any() else None,
        signed=int(moved.sum()),
        error=float(np.abs(score - image).mean()) if len(score) else 0.0,
    )


def summarise(
    points: Sequence[Point],
    failures: Sequence[Failure],
    *,
    seed: int,
    versions: dict[str, str],
    inputs: dict[str, str],
) -> Result:
    """Correlations by project, near the baseline first, and the points themselves.

    Raises:
        CorpusError: there is no point.
    """
    if not points:
        reason = failures[0].reason if failures else "no policy"
        raise CorpusError(f"score tracks link: expected builds that link, found none ({reason}); check the corpus")
    projects = list(dict.fromkeys(point.project for point in points))
    tables: list[Table] = []
    least: dict[str, Agreement] = {}
    for title, bound in ((f"Policies near the baseline: image changes by less than {NEAR:.0%}", NEAR), ("All", np.inf)):
        rows: list[tuple[Cell, ...]] = []
        for project in [*projects, "all together"]:
            chosen = [
                point for point in points if project in {point.project, "all together"} and abs(point.image) < bound
            ]
            image = np.array([point.image for point in chosen])
            for index, measure_name in enumerate(MEASURES):
                found = agreement(np.array([point.scores[index] for point in chosen]), image)
                rows.append(
                    (
                        project, measure_name, found.points, found.pearson, found.spearman,
                        None if found.same_sign is None else 100 * found.same_sign, found.signed, 100 * found.error,
                    )
                )  # fmt: skip
                if bound == NEAR and project == "all together":
                    least[measure_name] = found
        tables.append(
            Table(
                title=title,
                columns=(
                    "project", "score of the objects", "policies", "Pearson", "Spearman", "same sign (%)",
                    "policies with a sign", "mean difference (points)",
                ),
                rows=tuple(rows),
                note=_NOTE if bound == NEAR else "",
            )
        )  # fmt: skip
    tables.append(
        Table(
            title="Points",
            columns=("project", "kind", "policy", *(f"{name} (%)" for name in MEASURES), "image (%)"),
            rows=tuple(
                (point.project, point.kind, point.name, *(100 * score for score in point.scores), 100 * point.image)
                for point in sorted(points, key=lambda point: (point.project, point.image))
            ),
        )
    )
    if failures:
        failed = tuple((failure.project, failure.name, failure.reason) for failure in failures)
        tables.append(Table(title="Builds left out", columns=("project", "policy", "reason"), rows=failed))
    fewest = min(sum(point.project == project for point in points) for project in projects)
    text, aware = least[MEASURES[0]], least[MEASURES[1]]
    passed = (
        len(projects) >= 3
        and fewest >= FEWEST_POLICIES
        and (aware.pearson or 0) > (text.pearson or 0)
        and (aware.same_sign or 0) > (text.same_sign or 0)
    )
    return Result(
        benchmark="score_tracks_link",
        question="Does the link-aware score of objects track the linked image, and does object text?",
        answer=(
            f"{len(projects)} projects, {fewest} policies or more each; near the baseline the link-aware score has "
            f"Pearson {_number(aware.pearson)} and the image's sign in {_percent(aware.same_sign)} of {aware.signed} "
            f"builds, object text {_number(text.pearson)} and {_percent(text.same_sign)}"
        ),
        bar=(
            f"at least 3 projects and {FEWEST_POLICIES} policies; near the baseline the link-aware score beats object "
            "text in correlation and in sign"
        ),
        passed=passed,
        seed=seed,
        versions=versions,
        inputs=inputs,
        tables=tuple(tables),
    )


_NOTE = (
    "Each policy is one point per project: the relative change of the sum over objects, and of the linked, "
    "garbage-collected image, against plain -Oz. Policies far away, like never inlining, make any score correlate, so "
    f"these are the points that matter. The sign is counted where the image changes by at least {NO_CHANGE:.2%}. The "
    "exact account counts each COMDAT signature once, as the first object has it; it needs all objects of a project."
)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.0%}"


if __name__ == "__main__":
    sys.exit(main())

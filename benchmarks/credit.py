"""How far labels of explored compilations are from what a decision does alone: by module, component and function."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.algorithms.credit import ScoredBuild, attribute
from mlgokit.algorithms.learner import ForcedDecisions
from mlgokit.algorithms.search import independent_flips
from mlgokit.collect import Workshop, compiled, open_workshop, project_weights, run_module
from mlgokit.compiler.compile import HEURISTIC
from mlgokit.compiler.objects.measure import Objective, size_score
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.progress import Report
from mlgokit.store import ModuleRun
from mlgokit.tables.decisions import site_table, sites_of

LABELS = ("one for the module, object text", "one for the module, link-aware", "by component", "of the caller alone")
NEAR_BYTES = 8
"""Two functions' padding, which no function owns."""
MODULE_LABEL, COMPONENT_LABEL = 1, 2
"""Positions of the label that the others are compared with, and of that in the answer."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditErrors:
    """Explore modules around the heuristic, then compile some of the flips alone, and compare."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = ()
    """Only these; all if none is named."""
    modules: int = 40
    """Modules drawn from them; 0 for all."""
    largest_bytes: int = 150_000
    """Modules with larger bitcode are not drawn, for the sake of time."""
    explorations: int = 3
    """Of each module, of each kind."""
    flip_probability: float = 0.06
    """Of random flips, as in training."""
    least_flips: float = 3.0
    """Random flips expected in a small module, as in training."""
    most: int = 64
    """Moves in one exploration by flips that cannot meet."""
    alone: int = 6
    """Flips of each kind and module that are compiled alone."""
    seed: int = 1
    """Of the draw, the explorations, and the flips compiled alone."""
    store: Path | None = None
    """Where finished compilations are kept and found; nowhere if not given."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/credit.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explored:
    """What one module gave under one kind of exploration; S flips that were also compiled alone.

    Attributes:
        errors: [S, 4] each label less what the flip does alone, in bytes of the label's objective.
        alone: [S] what it does alone, in link-aware bytes.
        flips: of all explorations.
        components: of all explorations.
        compilations: explorations.
        changed: absolute changes of functions, in bytes.
        explained: of these, in a component.
        of_callers: of these, in the caller of a flip.
    """

    errors: Floats
    alone: Floats
    flips: int
    components: int
    compilations: int
    changed: float
    explained: float
    of_callers: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_benchmark(CreditErrors, measure, arguments)


def measure(config: CreditErrors, report: Report) -> Result:
    """Explore, compile flips alone, and put the errors side by side."""
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    versions = tool_versions(toolchain)
    wanted = [module for module in corpus.modules if not config.projects or module.project in config.projects]
    small = [module for module in wanted if module.bitcode.stat().st_size <= config.largest_bytes]
    modules = draw_modules(small, config.modules, np.random.default_rng(config.seed))
    # The share of a function that several modules define is known only with all of a project's modules.
    projects = {module.project for module in modules}
    others = [module for module in corpus.modules if module.project in projects]
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as place:
        workshop = open_workshop(
            toolchain,
            build_plugin(toolchain),
            config.store or Path(place),
            workers=1,
            timeout_seconds=config.timeout_seconds,
        )
        plain = parallel(lambda one: default_run(workshop, one), others, workers=1, report=report, label="default")
        weights = project_weights(others, plain)
        found: dict[str, list[Explored]] = {"random flips": [], "flips that cannot meet": []}
        for number, module in enumerate(modules):
            report(number, len(modules), "explore")
            base = default_run(workshop, module)
            if not base.ok or base.decision_count < 2:
                continue
            for kind, known in found.items():
                rng = np.random.default_rng([config.seed, number])
                known.append(explore(config, workshop, module, base, weights[module.project], kind=kind, rng=rng))
    if not any(len(one.errors) for known in found.values() for one in known):
        raise CorpusError(
            f"{config.corpus}: expected modules with decisions to turn round, found none of {len(modules)}; draw more"
        )
    ratios = {kind: variance_ratio(known, COMPONENT_LABEL) for kind, known in found.items()}
    return Result(
        benchmark="credit",
        question="How much nearer to what a decision does alone is a label by component than one for the module?",
        answer="its error has "
        + ", ".join(f"{ratio:.3g} times less variance with {kind}" for kind, ratio in ratios.items())
        + "; in a component are "
        + " and ".join(f"{100 * (1 - unexplained(known)):.2f} %" for known in found.values())
        + " of the changed bytes",
        seed=config.seed,
        versions=versions,
        inputs=corpus_inputs(corpus),
        tables=(label_table(found, config), yield_table(found)),
    )


def default_run(workshop: Workshop, module: Module) -> ModuleRun:
    """The module under the heuristic, with its log."""
    return run_module(workshop, module, Exploration(), HEURISTIC, keep="log")


def explore(
    config: CreditErrors,
    workshop: Workshop,
    module: Module,
    base: ModuleRun,
    weights: dict[str, int],
    *,
    kind: str,
    rng: np.random.Generator,
) -> Explored:
    """Explore one module, and compile some of the flips alone."""
    before = compiled(base, weights, Objective.LINK_AWARE)
    labels: list[Floats] = []
    places: list[int] = []
    flips = components = compilations = 0
    changed = explained = of_callers = 0.0
    for seed in rng.integers(0, 2**62, config.explorations).tolist():
        if kind == "random flips":
            share = min(0.3, max(config.flip_probability, config.least_flips / base.decision_count))
            run = run_module(workshop, module, Exploration(seed=seed, flip_probability=share), HEURISTIC, keep="log")
        else:
            forced = independent_flips(before, sites_of(base), most=config.most, seed=seed)
            run = forced_run(workshop, module, base, forced)
        if not run.ok:
            continue
        after = compiled(run, weights, Objective.LINK_AWARE)
        at = base_places(base, run)
        other = (at >= 0) & (run.inlined != base.inlined[at])
        turned = run.flipped if kind == "random flips" else other
        after = ScoredBuild(**{name: getattr(after, name) for name in FIELDS}, flipped=turned)
        credit = attribute(before, after)
        change = function_changes(before, after)
        flips, components, compilations = flips + len(credit.flips), components + len(credit.change), compilations + 1
        whole = sum(abs(value) for value in change.values())
        callers = set(after.caller[credit.flips].tolist())
        changed += whole
        explained += whole - credit.unattributed
        of_callers += sum(abs(value) for function, value in change.items() if function in callers)
        scores = differences(base, run, weights)
        for flip, component in zip(credit.flips.tolist(), credit.component.tolist(), strict=True):
            # A call that only the flips before it brought about cannot be turned round alone.
            if other[flip]:
                places.append(int(at[flip]))
                labels.append(np.array([*scores, credit.change[component], change.get(int(after.caller[flip]), 0.0)]))
    chosen = rng.permutation(len(places))[: config.alone]
    errors: list[Floats] = []
    alone: list[float] = []
    for index in chosen.tolist():
        place = places[index]
        site, decision = sites_of(base)[place : place + 1], 1 - base.inlined[place : place + 1].astype(np.int64)
        single = forced_run(workshop, module, base, ForcedDecisions(sites=site, decisions=decision))
        if single.ok:
            text, aware = differences(base, single, weights)
            errors.append(labels[index] - np.array([text, aware, aware, aware]))
            alone.append(aware)
    return Explored(
        errors=np.array(errors).reshape(-1, len(LABELS)),
        alone=np.array(alone),
        flips=flips,
        components=components,
        compilations=compilations,
        changed=changed,
        explained=explained,
        of_callers=of_callers,
    )


FIELDS = ("caller", "callee", "inlined", "functions", "scores")


def forced_run(workshop: Workshop, module: Module, base: ModuleRun, forced: ForcedDecisions) -> ModuleRun:
    """The module with decisions of single sites given; the heuristic makes all others."""
    return run_module(workshop, module, Exploration(), HEURISTIC, keep="log", decisions=site_table(base, forced))


def base_places(base: ModuleRun, run: ModuleRun) -> npt.NDArray[np.int64]:
    """For each decision of ``run`` the base's decision at the same site, or -1."""
    known = {site: place for place, site in enumerate(sites_of(base).tolist())}
    return np.array([known.get(site, -1) for site in sites_of(run).tolist()], np.int64)


def function_changes(before: ScoredBuild, after: ScoredBuild) -> dict[int, float]:
    """The change of each function that changed, in bytes."""
    change: dict[int, float] = {}
    for one, sign in ((before, -1.0), (after, 1.0)):
        for function, score in zip(one.functions.tolist(), one.scores.tolist(), strict=True):
            change[function] = change.get(function, 0.0) + sign * score
    return {function: value for function, value in change.items() if abs(value) > 1e-6}


def differences(base: ModuleRun, run: ModuleRun, weights: dict[str, int]) -> tuple[float, float]:
    """What a compilation adds to the whole module, in object text and in link-aware bytes."""
    assert base.sizes is not None  # noqa: S101  (looked at by the caller)
    assert run.sizes is not None  # noqa: S101  (looked at by the caller)
    objectives = (Objective.OBJECT_TEXT, Objective.LINK_AWARE)
    text, aware = (
        size_score(run.sizes, weights, objective=one) - size_score(base.sizes, weights, objective=one)
        for one in objectives
    )
    return text, aware


def variance_ratio(known: Sequence[Explored], label: int) -> float:
    """How many times the variance of the errors is less than that of the module's link-aware number."""
    errors = np.concatenate([one.errors for one in known])
    return float(errors[:, MODULE_LABEL].var() / max(errors[:, label].var(), 1e-9))


def interval(
    known: Sequence[Explored], statistic: Callable[[Sequence[Explored]], float], *, count: int = 1000
) -> tuple[float, float]:
    """95 % of a statistic over modules drawn with replacement."""
    rng = np.random.default_rng(1)
    known = [one for one in known if len(one.errors)]
    drawn = [statistic([known[index] for index in rng.integers(0, len(known), len(known))]) for _ in range(count)]
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return low, high


def unexplained(known: Sequence[Explored]) -> float:
    """The share of the changed bytes that is in no component."""
    return 1 - sum(one.explained for one in known) / max(sum(one.changed for one in known), 1e-9)


def label_table(found: dict[str, list[Explored]], config: CreditErrors) -> Table:
    """A row for each kind of exploration and label."""
    rows: list[tuple[Cell, ...]] = []
    alone = {kind: np.concatenate([one.alone for one in known]) for kind, known in found.items()}
    for kind, known in found.items():
        errors = np.concatenate([one.errors for one in known])
        for label, name in enumerate(LABELS):
            low, high = interval(known, lambda drawn, label=label: variance_ratio(drawn, label))
            rows.append(
                (
                    kind,
                    name,
                    float(errors[:, label].mean()),
                    float(errors[:, label].std()),
                    float(np.median(np.abs(errors[:, label]))),
                    f"{100 * np.mean(np.abs(errors[:, label]) <= NEAR_BYTES):.0f} %",
                    float(1 + (errors[:, label] * alone[kind]).sum() / np.square(alone[kind]).sum()),
                    variance_ratio(known, label),
                    f"{low:.2g} to {high:.2g}",
                )
            )
    return Table(
        title="Errors of labels",
        columns=(
            "exploration", "label", "mean error, bytes", "its standard deviation", "median of absolute errors",
            f"errors up to {NEAR_BYTES} bytes", "slope", "times less variance than the module's", "95 % interval",
        ),
        rows=tuple(rows),
        note="Error: the label less what the flip does when it is compiled alone (object text against object text, all "
        f"else in link-aware bytes of the whole module). Up to {config.alone} flips of each module and kind, "
        f"{sum(len(one.errors) for known in found.values() for one in known)} in all; what random ones do alone has a "
        f"standard deviation of {alone['random flips'].std():.0f} bytes. Slope: of the label over what the flip does "
        "alone, 1 for a label that tells it in full and nothing of others on its side. Intervals are over modules.",
    )  # fmt: skip


def yield_table(found: dict[str, list[Explored]]) -> Table:
    """A row for each kind of exploration."""
    rows: list[tuple[Cell, ...]] = []
    for kind, known in found.items():
        runs = sum(one.compilations for one in known)
        changed = max(sum(one.changed for one in known), 1e-9)
        rows.append(
            (
                kind,
                len(known),
                runs,
                sum(one.flips for one in known) / runs,
                sum(one.components for one in known) / runs,
                f"{100 * (1 - unexplained(known)):.2f} %",
                f"{100 * sum(one.of_callers for one in known) / changed:.2f} %",
            )
        )
    return Table(
        title="Labels of a compilation",
        columns=(
            "exploration", "modules", "explorations", "flips of each", "components of each",
            "changed bytes in a component", "changed bytes in a flip's caller",
        ),
        rows=tuple(rows),
        note="Changed bytes: absolute link-aware changes of all functions.",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

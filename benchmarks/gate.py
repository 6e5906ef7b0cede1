"""What a gate gives: whole projects built under a policy without its gate, with it, and with other margins."""

import dataclasses
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import Cell, Result, Table, corpus_inputs, run_benchmark, tool_versions

from mlgokit.compiler.compile import PluginUse
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, UsageError
from mlgokit.evaluation.compare import Evaluation, ProjectComparison, compare_projects
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.policy.network import Gate, Policy
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

LARGEST_GROWTH = 0.005
"""No project's linked image may grow by more."""
LEAST_GAIN = 0.04
"""C++ projects together must shrink by this."""
AS_TRAINED, WITHOUT = "as trained", "no gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateBenchmark:
    """Build projects under a policy without its gate and with it; compare the linked images."""

    policy: Path = Path("quickstart/train/final.policy")
    """A policy of inlining with a gate."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = ()
    """Projects to build; those held out if none is named."""
    margins: tuple[float, ...] = ()
    """Other margins, in bytes, to try on the sides of the gate that are open."""
    workers: int = 2
    """Compilers that run at once."""
    seed: int = 1
    """Of the bootstrap intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/gate.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(GateBenchmark, measure, arguments)


def measure(config: GateBenchmark, report: Report) -> Result:
    """Build every project under every variant of the policy.

    Raises:
        CorpusError: there is no such project.
        UsageError: the policy has no gate.
    """
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    versions = tool_versions(toolchain)
    corpus = load_corpus(config.corpus)
    modules = [
        module
        for module in corpus.modules
        if (module.project in config.projects if config.projects else module.held_out)
    ]
    if not modules:
        raise CorpusError(f"{config.corpus}: expected projects to build, found none; name some with --projects")
    plugin = build_plugin(toolchain)
    evaluations: dict[str, Evaluation] = {}
    with tempfile.TemporaryDirectory(prefix="mlgokit-gate-") as scratch:
        for name, policy in variants(load_policy(config.policy, problem=INLINE_SIZE.name), config.margins).items():
            path = Path(scratch) / "variant.policy"
            save_policy(policy, path)
            evaluations[name] = compare_projects(
                modules,
                toolchain=toolchain,
                use=PluginUse(plugin=plugin, policies={INLINE_SIZE.name: str(path)}),
                workers=config.workers,
                rng=np.random.default_rng(config.seed),
                report=report,
            )
    inputs = corpus_inputs(corpus, [config.policy])
    return summarise(evaluations, seed=config.seed, versions=versions, inputs=inputs)


def variants(policy: Policy, margins: Sequence[float]) -> dict[str, Policy]:
    """The policy without its gate, as it is, and with other margins where its gate is open.

    Raises:
        UsageError: it has no gate.
    """
    gate = policy.gate
    if gate is None:
        raise UsageError("gate: expected a policy with a gate, found one without; train it with this version")
    found = {WITHOUT: dataclasses.replace(policy, gate=None), AS_TRAINED: policy}
    for margin in margins:
        elsewhere, there = (old if math.isinf(old) else margin for old in gate.margins)
        other = Gate(feature=gate.feature, margins=(elsewhere, there))
        found[f"margin {margin:g}"] = dataclasses.replace(policy, gate=other)
    return found


def summarise(
    evaluations: dict[str, Evaluation], *, seed: int, versions: dict[str, str], inputs: dict[str, str]
) -> Result:
    """Changes of the linked image by project, and by language."""
    names = list(evaluations)
    first = evaluations[names[0]].projects
    rows: list[tuple[Cell, ...]] = []
    for index, project in enumerate(first):
        changes = [_percent(evaluations[name].projects[index]) for name in names]
        rows.append((project.project, project.language, project.modules, project.before.image, *changes))
    together: list[tuple[Cell, ...]] = []
    means: dict[tuple[str, str], float] = {}
    for language in sorted({project.language for project in first}):
        for name in names:
            linked = [p for p in evaluations[name].projects if p.language == language and p.before.image]
            before = np.array([project.before.image for project in linked], np.float64)
            after = np.array([project.after.image for project in linked], np.float64)
            means[language, name] = geometric_mean_change(before, after) if linked else 0.0
        cells = tuple(100 * means[language, name] for name in names)
        together.append((language, sum(project.language == language for project in first), *cells))
    worst = max((change for row in rows if (change := row[4 + names.index(AS_TRAINED)]) is not None), default=0.0)
    c, cxx = (means.get((language, AS_TRAINED), 0.0) for language in ("c", "c++"))
    columns = tuple(f"{name} (%)" for name in names)
    return Result(
        benchmark="gate",
        question="What does the gate of a policy change in projects that it was not trained on?",
        answer=(
            f"linked image of {len(first)} projects: C++ {100 * means.get(('c++', WITHOUT), 0.0):+.2f} % without the "
            f"gate, {100 * cxx:+.2f} % with it; C {100 * means.get(('c', WITHOUT), 0.0):+.2f} % and {100 * c:+.2f} %; "
            f"the worst project {worst:+.2f} %"
        ),
        bar=(
            f"with the gate C++ at least {LEAST_GAIN:.0%} smaller, C not larger, no project more than "
            f"{LARGEST_GROWTH:.1%} larger"
        ),
        passed=bool(cxx <= -LEAST_GAIN and c <= 0 and float(worst) <= 100 * LARGEST_GROWTH),
        seed=seed,
        versions=versions,
        inputs=inputs,
        tables=(
            Table(
                title="Linked image by language",
                columns=("language", "projects", *columns),
                rows=tuple(together),
                note="Geometric means of changes against plain -Oz.",
            ),
            Table(
                title="Linked image by project",
                columns=("project", "language", "modules", "plain (bytes)", *columns),
                rows=tuple(rows),
            ),
        ),
    )


def _percent(project: ProjectComparison) -> float | None:
    return 100 * (project.after.image / project.before.image - 1) if project.before.image else None


if __name__ == "__main__":
    sys.exit(main())

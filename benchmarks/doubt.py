"""What a policy gains and harms by its doubt, in linked whole builds of projects that it was not trained on.

The number in the policy file is all that differs between two rows, and nothing is trained again. A row is one project
under one policy and one doubt, kept in a file of its own, so that a call goes on where the last one stopped.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changes import mean_change
from harness import Setup, check_names, kept_row, linker_of, run_benchmark
from results import Cell, Result, Table, percent
from validation_projects import VALIDATION_PROJECTS, modules_of

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.evaluation.compare import compare_projects
from mlgokit.evaluation.images import static_link
from mlgokit.evaluation.sides import PLAIN_SIDE, Side, make_side
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.policy.network import Gate, OutputKind, Policy
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import INLINE_SIZE

LINKS = {"gc-sections": False, "icf=all": True}
"""Both have --gc-sections; whether identical code is folded."""
JUDGED = "gc-sections"
"""The image that decides, as in the verdict of `mlgokit evaluate`."""
HARM = 0.003
"""A project that grows by more counts as harmed."""
RULE = (
    "the doubt with the smallest C++ images among those under which none grows by more than 0.3 %; if there is none, "
    "the one whose worst grows least. Folding and the open gate are shown, and do not decide"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Link validation projects under policies with several doubts."""

    policies: tuple[Path, ...] = (Path("quickstart/train/final.policy"),)
    """Policies of effects, told apart by the folders that they are in."""
    values: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    """Doubts."""
    corpus: Path = Path("quickstart/corpus")
    """The quickstart's corpus, whose held-out projects count too."""
    projects: tuple[str, ...] = tuple(VALIDATION_PROJECTS)
    """Which of the larger projects."""
    folder: Path = Path("build/doubt")
    """Where sources, builds, plain objects and rows are kept."""
    slice: int = 0
    """How many missing rows to make in this call; 0 for all, -1 for none but the tables."""
    workers: int = 2
    """Compilers that run at once."""
    timeout_seconds: float = 300.0
    """Deadline of one compilation."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/doubt.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A policy with one doubt.

    Attributes:
        policy: what it is called.
        doubt: the number.
        is_open: whether its gate is opened everywhere, which shows what doubt alone keeps from code without COMDATs.
    """

    policy: str
    doubt: float
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What linking says of a doubt.

    Attributes:
        cpp: change of the C++ images in the geometric mean over projects.
        worst: the largest change of any of them.
    """

    cpp: float
    worst: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Doubt, measure, arguments)


def measure(config: Doubt, setup: Setup) -> Result:
    """Make what is missing, as far as the slice goes, and the tables of all that is there.

    Raises:
        ToolError: there is no linker, or a project cannot be configured or linked.
        UsageError: a project is not known, or a policy is none of effects.
    """
    check_names("projects", config.projects, VALIDATION_PROJECTS)
    policies = {path.resolve().parent.name: load_policy(path, problem=INLINE_SIZE.name) for path in config.policies}
    if len(policies) < len(config.policies) or any(
        one.output is not OutputKind.EFFECT_BYTES for one in policies.values()
    ):
        raise UsageError("policies: expected policies of effects in folders of different names, found others")
    setup.inputs.update({f"policy {path.resolve().parent.name}": digest_file(path) for path in config.policies})
    toolchain = setup.toolchain(config.llvm)
    compiler = ClangCompiler(
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        workers=config.workers,
        timeout_seconds=config.timeout_seconds,
    )
    projects = _modules(config, setup, toolchain)
    rows: dict[tuple[Arm, str], dict[str, Any]] = {}
    made = 0
    for arm, name in _order(config, policies, projects):
        place = (
            config.folder / "rows" / f"{arm.policy}-{'open' if arm.is_open else 'trained'}-{arm.doubt:g}-{name}.json"
        )
        if not place.exists():
            if config.slice and made >= max(config.slice, 0):
                continue
            made += 1
        setup.report(made, made, f"{name}, {arm.policy}, doubt {arm.doubt:g}")
        policy = armed(policies[arm.policy], arm)
        plain = config.folder / "plain" / name
        make = functools.partial(_row, policy, projects[name], compiler=compiler, place=place, plain=plain)
        of = {"policy": setup.inputs[f"policy {arm.policy}"], "toolchain": toolchain.describe()}
        rows[arm, name] = kept_row(place, make, of=of)
    languages = {name: modules[0].language for name, modules in projects.items()}
    held_out = [name for name in projects if name not in config.projects]
    return summarise(rows, languages=languages, held_out=held_out, values=config.values)


def _modules(config: Doubt, setup: Setup, toolchain: Toolchain) -> dict[str, list[Module]]:
    """By project, the modules of the quickstart's held-out ones and of the larger ones."""
    projects: dict[str, list[Module]] = {}
    for module in setup.corpus(config.corpus).modules:
        if module.held_out:
            projects.setdefault(module.project, []).append(module)
    for name in config.projects:
        project = VALIDATION_PROJECTS[name]
        setup.inputs[f"{name}, {project.archive.file}"] = project.archive.sha256
        projects[name] = modules_of(
            project, config.folder, toolchain=toolchain, workers=config.workers, report=setup.report
        )
    return projects


def _row(policy: Policy, modules: Sequence[Module], *, compiler: Compiler, place: Path, plain: Path) -> dict[str, Any]:
    """One project under one policy, linked both ways.

    Raises:
        ToolError: there is no linker, or the project cannot be linked.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    file = place.with_suffix(".policy")
    save_policy(policy, file)
    return linked_row(modules, compiler=compiler, after=make_side([str(file)]), plain=plain)


def linked_row(
    modules: Sequence[Module], *, compiler: Compiler, before: Side = PLAIN_SIDE, after: Side, plain: Path
) -> dict[str, Any]:
    """One project as both sides build it, linked both ways; ``plain`` keeps the objects of the side ``before``.

    Raises:
        ToolError: there is no linker, or the project cannot be linked.
    """
    lld = linker_of(compiler.toolchain, "benchmark")
    found = compare_projects(
        modules,
        compiler=compiler,
        before=before,
        after=after,
        links={name: static_link(lld, icf=folds) for name, folds in LINKS.items()},
        before_objects=plain,
    ).projects[0]
    if found.link_failure:
        raise ToolError(f"{found.project}: expected an image, found {found.link_failure}; leave the project out")
    return {
        "modules": found.modules,
        "failures": len(found.failures),
        "larger_modules": found.larger_modules,
        "link_aware": [found.before.link_aware, found.after.link_aware],
        "images": {one.image: [dataclasses.asdict(one.before), dataclasses.asdict(one.after)] for one in found.images},
    }


def _order(
    config: Doubt, policies: Mapping[str, Policy], projects: Mapping[str, Sequence[Module]]
) -> list[tuple[Arm, str]]:
    """The rows, those of the first policy first, the ends of the curve before what lies between."""
    values = sorted(config.values, key=lambda value: (value != int(value), value))
    found: list[tuple[Arm, str]] = []
    for policy in policies:
        for value in values:
            arm = Arm(policy=policy, doubt=value)
            found += [(arm, name) for name in projects]
            is_c = [name for name, modules in projects.items() if modules[0].language == "c"]
            found += [(dataclasses.replace(arm, is_open=True), name) for name in is_c]
    return found


def armed(policy: Policy, arm: Arm) -> Policy:
    """The policy with the arm's doubt and gate."""
    gate = policy.gate
    if arm.is_open and gate is not None:
        margin = min(gate.margins)
        gate = Gate(feature=gate.feature, margins=(margin, margin))
    return dataclasses.replace(policy, doubt=arm.doubt, gate=gate)


def change(row: Mapping[str, Any], link: str, what: str = "image") -> float:
    """A project's change of a measure of one image."""
    before, after = row["images"][link]
    return float(after[what] / before[what] - 1)


def summarise(
    rows: Mapping[tuple[Arm, str], Mapping[str, Any]],
    *,
    languages: Mapping[str, str],
    held_out: Sequence[str],
    values: Sequence[float],
) -> Result:
    """The curve, the projects, and the choice, of all rows that there are."""
    arms = sorted({arm for arm, _ in rows}, key=lambda arm: (arm.is_open, arm.policy, arm.doubt))
    curve: list[tuple[Cell, ...]] = []
    known: dict[float, list[Known]] = {}
    for language in ("c++", "c"):
        for arm in arms:
            names = _shared(rows, arm, [name for name, own in languages.items() if own == language])
            if not names or any((arm, name) not in rows for name in names):
                continue
            of = {name: rows[arm, name] for name in names}
            curve.append((language, _shown(arm), arm.doubt, len(of), *_figures(of, held_out)))
            if language == "c++" and arm.doubt in values:
                changes = [change(row, JUDGED) for row in of.values()]
                known.setdefault(arm.doubt, []).append(Known(cpp=mean_change(changes), worst=max(changes)))
    projects = tuple(
        (
            name, language, "quickstart" if name in held_out else "validation list", row["modules"], _shown(arm),
            arm.doubt, *(percent(change(row, link)) for link in LINKS), percent(change(row, JUDGED, "text")),
            row["larger_modules"],
        )
        for name, language in languages.items()
        for arm in arms
        if (row := rows.get((arm, name))) is not None
    )  # fmt: skip
    # A doubt is as good as its mean over policies, and as bad as its worst.
    by_value = {
        value: Known(cpp=mean_change([one.cpp for one in found]), worst=max(one.worst for one in found))
        for value, found in known.items()
    }
    chosen = choice(by_value) if by_value else None
    return Result(
        benchmark="doubt",
        question="How much doubt keeps a policy from harm in projects that it was not trained on, at what cost?",
        answer="nothing is whole yet" if chosen is None else _answer(by_value, chosen),
        bar=f"at the chosen doubt no C++ image linked with --gc-sections more than {percent(HARM)} larger",
        passed=None if chosen is None else by_value[chosen].worst <= HARM,
        seed=0,
        tables=(
            Table(
                title="Gain against harm",
                columns=(
                    "language", "policy", "doubt", "projects", "image", "image, icf=all", ".text",
                    "image of the quickstart's", "image of the larger", "worst image", "worst image, icf=all",
                    "images beyond +0.3 %", "beyond it with icf=all",
                ),
                rows=tuple(curve),
                note="Geometric means of changes against plain -Oz, linked with --gc-sections; .text is that image's; "
                "over the projects that were linked under every whole doubt of the policy. "
                "With the gate open, a policy may decide everywhere, C among it, where its training had closed the "
                f"gate. Chosen is {RULE}.",
            ),
            Table(
                title="Against no doubt",
                columns=(
                    "language", "policy", "doubt", "projects", "image without doubt", "image", ".text without doubt",
                    ".text", "worst image without doubt", "worst image",
                ),
                rows=tuple(_pairs(rows, arms, languages)),
                note="Over the projects that were linked under both, which are more than those under all doubts "
                "where a run was stopped.",
            ),
            Table(
                title="Projects",
                columns=(
                    "project", "language", "from", "modules", "policy", "doubt", "image", "image, icf=all", ".text",
                    "larger modules",
                ),
                rows=projects,
                note="All of them were looked at for this choice.",
            ),
        ),
    )  # fmt: skip


def _shared(rows: Collection[tuple[Arm, str]], arm: Arm, names: Sequence[str]) -> list[str]:
    """The projects that the arm is compared on: those with rows under every whole doubt of its policy and gate."""
    alike = {one for one, _ in rows if (one.policy, one.is_open) == (arm.policy, arm.is_open)}
    whole = [one for one in alike if one.doubt == int(one.doubt) and any((one, name) in rows for name in names)]
    return [name for name in names if whole and all((one, name) in rows for one in whole)]


def _pairs(
    rows: Mapping[tuple[Arm, str], Mapping[str, Any]], arms: Sequence[Arm], languages: Mapping[str, str]
) -> Iterator[tuple[Cell, ...]]:
    for language in ("c++", "c"):
        for arm in arms:
            none = dataclasses.replace(arm, doubt=0.0)
            of_language = [name for name, own in languages.items() if own == language]
            both = [name for name in of_language if {(arm, name), (none, name)} <= rows.keys()]
            if not arm.doubt or not both:
                continue
            cells: list[Cell] = [language, _shown(arm), arm.doubt, len(both)]
            for what in ("image", "text"):
                changes = [[change(rows[one, name], JUDGED, what) for name in both] for one in (none, arm)]
                cells += [percent(mean_change(each)) for each in changes]
            worst = [max((change(rows[one, name], JUDGED), name) for name in both) for one in (none, arm)]
            yield (*cells, *(f"{percent(grown)}, {name}" for grown, name in worst))


def _shown(arm: Arm) -> str:
    return arm.policy + (", gate open" if arm.is_open else "")


def _figures(of: Mapping[str, Mapping[str, Any]], held_out: Sequence[str]) -> list[Cell]:
    """The cells of an arm's line in the curve, for the projects of one language."""
    parts = [[row for name, row in of.items() if (name in held_out) == is_held_out] for is_held_out in (True, False)]
    cells: list[Cell] = [percent(mean_change([change(row, link) for row in of.values()])) for link in LINKS]
    cells.append(percent(mean_change([change(row, JUDGED, "text") for row in of.values()])))
    cells += [percent(mean_change([change(row, JUDGED) for row in part])) if part else None for part in parts]
    worst = [max((change(row, link), name) for name, row in of.items()) for link in LINKS]
    cells += [f"{percent(grown)}, {name}" for grown, name in worst]
    return cells + [sum(change(row, link) > HARM for row in of.values()) for link in LINKS]


def _answer(known: Mapping[float, Known], chosen: float) -> str:
    best, none = known[chosen], known.get(0.0)
    says = f"doubt {chosen:g}: C++ images {percent(best.cpp)}, the worst project {percent(best.worst)}"
    return (
        says if none is None or not chosen else f"{says}; without doubt {percent(none.cpp)} and {percent(none.worst)}"
    )


def choice(known: Mapping[float, Known]) -> float:
    """The doubt by the rule.

    Example:
        >>> bold, careful = Known(cpp=-0.06, worst=0.01), Known(cpp=-0.05, worst=0.003)
        >>> choice({0.0: bold, 1.0: careful, 2.0: Known(cpp=-0.04, worst=0.0)})
        1.0
        >>> choice({0.0: bold, 1.0: Known(cpp=-0.05, worst=0.004)})
        1.0
    """
    harmless = [value for value in known if known[value].worst <= HARM]
    return min(harmless, key=lambda value: known[value].cpp) if harmless else min(known, key=lambda v: known[v].worst)


if __name__ == "__main__":
    raise SystemExit(main())

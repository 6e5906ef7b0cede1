"""Real projects built with passes left out at random, function by function, and their own tests."""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_passes import INLINING, draw_passes
from harness import Setup, check_names, kept_row, run_benchmark
from results import Cell, Result, Table, percent
from tuning_builds import build_project, prepare, source_folder
from tuning_projects import PROJECTS, TunedProject

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin, link_policies
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES, write_overrides

RATES = (0.02, 0.1, 0.3)
"""Of candidates that a function is made without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStress:
    """Build projects with a plugin whose tables leave out drawn passes of every function, and run their tests."""

    projects: tuple[str, ...] = ("ninja", "jsoncpp", "double-conversion", "pugixml", "cmark", "expat")
    """Which projects."""
    majors: tuple[int, ...] = (22, 19)
    """Which LLVM majors."""
    folder: Path = Path("build/pass-stress")
    """Where projects and rows are kept."""
    workers: int = 2
    """Compilers that run at once."""
    seed: int = 1
    """Of all draws."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PassStress, measure, arguments)


def measure(config: PassStress, setup: Setup) -> Result:
    """Make what is missing, and the tables.

    Raises:
        ToolError: a plain build or its tests fail.
        UsageError: a project is not known.
    """
    check_names("projects", config.projects, PROJECTS)
    rows: dict[tuple[int, str, float], dict[str, Any]] = {}
    for major in config.majors:
        toolchain = setup.toolchain(major, suffix=f" {major}")
        for number, name in enumerate(sorted(PROJECTS)):
            if name not in config.projects:
                continue
            place = config.folder / str(major)
            plain = prepare(PROJECTS[name], place, toolchain=toolchain, workers=config.workers, report=setup.report)
            setup.inputs[f"{name}, {PROJECTS[name].archive.file}"] = PROJECTS[name].archive.sha256
            for nth, rate in enumerate(RATES):
                setup.report(nth, len(RATES), f"{name} with LLVM {major}")
                rng = np.random.default_rng([config.seed, major, number, nth])
                make = functools.partial(
                    _build, config, PROJECTS[name], toolchain, place=place, rate=rate, rng=rng, setup=setup
                )
                row = kept_row(place / name / f"rate-{rate:g}.json", make)
                rows[major, name, rate] = row | {"plain": plain["image"], "plain tests": plain["tests"]}
    return summarise(config, rows)


def _build(
    config: PassStress,
    project: TunedProject,
    toolchain: Toolchain,
    *,
    place: Path,
    rate: float,
    rng: np.random.Generator,
    setup: Setup,
) -> dict[str, Any]:
    """One build with drawn tables, and what its tests say."""
    compiler = ClangCompiler(
        toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers, timeout_seconds=300
    )
    modules = load_corpus(place / project.name / "corpus").modules
    seeds = rng.spawn(len(modules))
    failed: list[str] = []

    def draw(pair: tuple[Module, np.random.Generator]) -> tuple[dict[int, Overrides], dict[int, Overrides]]:
        module, own = pair
        listed = compiler.compile(module, CompileRequest(use=PluginUse(policies=INLINING, list_changes=True)))
        if listed.changes is None:
            failed.append(f"{module.name}: {listed.reason}")
            return {}, {}
        drawn = draw_passes(compiler, module, listed.changes.changed, rate, own)
        return drawn.earlier, drawn.later

    pairs = list(zip(modules, seeds, strict=True))
    found = parallel(draw, pairs, workers=config.workers, report=setup.report, label=f"draw for {project.name}")
    tables = {}
    for kind, which in ((OPTIMIZER_PASSES, 0), (PASSES, 1)):
        by_key = {key: one for drawn in found for key, one in drawn[which].items()}
        tables[kind.table] = place / project.name / f"{kind.table}-{rate:g}.table"
        write_overrides(kind, tables[kind.table], by_key)
    plugin = link_policies(toolchain, tables, (place / project.name / f"drawn-{rate:g}.so").resolve())
    try:
        built = asdict(
            build_project(
                project,
                place / project.name / "drawn",
                source=source_folder(project, place),
                toolchain=toolchain,
                plugin_flag=f"-fpass-plugin={plugin}",
                workers=config.workers,
            )
        )
    except ToolError as error:
        return {"image": None, "tests": 0, "wrong": str(error), "passed over": failed}
    left_out = [sum(len(one.passes) for drawn in found for one in drawn[which].values()) for which in (0, 1)]
    return built | {"wrong": "", "passed over": failed, "left out": left_out}


def summarise(config: PassStress, rows: dict[tuple[int, str, float], dict[str, Any]]) -> Result:
    """The table of all builds."""
    wrong = {key: row["wrong"] for key, row in rows.items() if row["wrong"]}
    untouched = [
        key for key, row in rows.items() if row["image"] is not None and row["image"]["text"] == row["plain"]["text"]
    ]
    fewer = [key for key, row in rows.items() if not row["wrong"] and row["tests"] != row["plain tests"]]
    tests = sum(row["tests"] for row in rows.values())
    shown: list[tuple[Cell, ...]] = [
        (
            name, major, f"{rate:g}", *(row.get("left out") or (None, None)),
            None if row["image"] is None else percent(row["image"]["text"] / row["plain"]["text"] - 1),
            row["tests"], len(row["passed over"]),
        )
        for (major, name, rate), row in rows.items()
    ]  # fmt: skip
    failures = Table(
        title="What went wrong",
        columns=("project", "LLVM", "share", "what"),
        rows=tuple((name, major, f"{rate:g}", why) for (major, name, rate), why in wrong.items()),
    )
    return Result(
        benchmark="pass_stress",
        question="Do projects pass their own tests when passes are left out at random, function by function?",
        answer=f"{len(rows) - len(wrong)} of {len(rows)} builds of {len(config.projects)} projects do, "
        f"{tests:,} tests in all; in {len(fewer)} other tests ran than in the plain build, and {len(untouched)} have "
        "the plain build's code",
        bar="all do, the same tests run, and no build has the plain build's code",
        passed=not wrong and not fewer and not untouched,
        seed=config.seed,
        tables=(
            Table(
                title="Builds",
                columns=(
                    "project", "LLVM", "share of candidates left out", "left out of the optimizer",
                    "left out of the code generator", ".text", "tests that passed", "modules passed over",
                ),
                rows=tuple(shown),
                note="Each candidate of each function is left out with this probability: of the optimizer from the "
                "inliner on, those that change the function. Every project is built by its own build system with -Oz "
                "and the plugin with these tables, and its own tests run.",
            ),
            *((failures,) if wrong else ()),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

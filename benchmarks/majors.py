"""What do policies and a search give with each supported LLVM, does each decide as asked, and are programs right?"""

import functools
import itertools
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    Setup,
    check_names,
    clean_environment,
    draw_modules,
    export_shipped,
    kept_row,
    run_benchmark,
)
from promise import Promise, measure_project
from promise_projects import MANIFEST, PromisedProject, promised_projects
from results import Result, Table, mean_change, percent

from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.compile import ClangCompiler, command
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import map_in_order
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import ToolError
from mlgokit.files import digest_file
from mlgokit.learning.decision_batch import feature_rows
from mlgokit.module import Module
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.pretrained import SHIPPED
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, Problem
from mlgokit.traces import Log, read_log

BAR = (
    "nothing larger or with another output, every decision as over LLVM's channels, no random program with another sum"
)
PROJECTS = ("lzip", "tinyxml2", "lua", "cmark", "jsoncpp", "picosat")
PROBLEMS = (INLINE_SIZE, REGALLOC_EVICTION)
_COMMAND_SECONDS, _RUN_SECONDS, _ANSWER_SECONDS = 600.0, 30.0, 60.0
# A third of random programs do not end; the others take milliseconds.
_ENDING_SECONDS = 1.0
# Functions of many sizes and with loops; the defaults give programs that take most of a second to compile.
_CSMITH = ("--max-funcs", "8", "--max-block-depth", "4", "--no-bitfields")


@dataclass(frozen=True, slots=True, kw_only=True)
class Majors:
    """Tune the same projects, ask for the same decisions and compile the same random programs with each LLVM major."""

    folder: Path = Path("build/majors")
    """Folder of the sources, searches and rows; a run goes on where the last one stopped."""
    llvm: tuple[int, ...] = SUPPORTED_MAJORS
    """LLVM majors."""
    projects: tuple[str, ...] = PROJECTS
    """Names of projects of promise.toml."""
    seconds: int = 180
    """Budget of each search."""
    workers: int = 1
    """Compilers at once in a search."""
    modules: int = 60
    """Modules of the projects, for each major, whose decisions are compared."""
    programs: int = 500
    """Random programs that end; 0 for none."""
    csmith: str = "csmith"
    """Program that writes random programs."""
    headers: Path = Path("/usr/include/csmith")
    """Folder of its headers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Majors, measure, arguments)


def measure(config: Majors, setup: Setup) -> Result:
    """Measure each major in turn.

    Raises:
        FetchError: sources are not to be had.
        ToolError: a major is not there, or a command fails.
        UsageError: a project is not known.
    """
    known = promised_projects()
    check_names("--projects", config.projects, known)
    setup.inputs[MANIFEST.name] = digest_file(MANIFEST)
    toolchains = {major: setup.toolchain(major, suffix=f" of {major}") for major in config.llvm}
    rows: dict[int, dict[str, Any]] = {major: {"projects": {}} for major in toolchains}
    # Project by project, so that what an interrupted run has done is of all majors.
    for index, (name, major) in enumerate(itertools.product(config.projects, toolchains)):
        setup.report(index, len(config.projects) * len(toolchains), f"LLVM {major}: tune and rebuild {name}")
        folder = config.folder.resolve() / str(major)
        rows[major]["projects"][name] = _tune(known[name], folder, config=config, toolchain=toolchains[major])
    write = functools.partial(_write_programs, config=config, toolchain=next(iter(toolchains.values())), setup=setup)
    of = {"programs": config.programs, "options": _CSMITH}
    seeds = kept_row(config.folder / "programs.json", write, of=of)["seeds"]
    for major, toolchain in toolchains.items():
        folder, row = config.folder.resolve() / str(major), rows[major]
        compare = functools.partial(_compare_decisions, folder, config=config, toolchain=toolchain, setup=setup)
        row["agreement"] = kept_row(folder / "agreement.json", compare, of={"modules": config.modules})
        run = functools.partial(_run_random, folder, seeds, config=config, toolchain=toolchain, setup=setup)
        row["random"] = kept_row(folder / "random.json", run, of=of)
    return result_of(rows, config=config)


def _tune(project: PromisedProject, folder: Path, *, config: Majors, toolchain: Toolchain) -> dict[str, Any]:
    promise = Promise(folder=folder, seconds=config.seconds, workers=config.workers, llvm=toolchain.major)
    try:
        return measure_project(project, config=promise, toolchain=toolchain)
    except ToolError as error:
        return {"failure": str(error)[-300:]}


def _compare_decisions(folder: Path, *, config: Majors, toolchain: Toolchain, setup: Setup) -> dict[str, Any]:
    """Compile modules of the tuned projects by a random policy in the plugin, and by the same over LLVM's channels."""
    corpora = [path for name in config.projects if (path := folder / name / "tune" / "corpus").exists()]
    modules = [module for path in corpora for module in load_corpus(path).modules]
    chosen = draw_modules(modules, config.modules, np.random.default_rng(1))
    place = folder / "agreement"
    place.mkdir(exist_ok=True)
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain))
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for index, (module, problem) in enumerate(itertools.product(chosen, PROBLEMS)):
        setup.report(index, len(PROBLEMS) * len(chosen), f"LLVM {toolchain.major}: decisions in the plugin and outside")
        default = _logged(compiler, module, problem, HEURISTIC, place)
        if default is None or not default.observation_count:
            continue
        policy = _random_policy(problem, default)
        save_policy(policy, place / "random.policy")
        log = _logged(compiler, module, problem, str(place / "random.policy"), place)
        advisor = PolicyAdvisor(policy)
        driven = drive_channels(
            command(toolchain, module, place / "channel.o", None),
            channels={problem.name: channel_use(problem, major=toolchain.major, advisor=advisor)},
            timeout_seconds=_COMMAND_SECONDS,
            answer_timeout_seconds=_ANSWER_SECONDS,
            cwd=place,
        )
        same = (
            driven.status is InteractiveStatus.OK
            and driven.log is not None
            and log is not None
            and np.array_equal(driven.log.columns[problem.decision], log.columns[problem.decision])
            and (place / "channel.o").read_bytes() == (place / "plugin.o").read_bytes()
        )
        found[f"{problem.name} modules"] += 1
        found[f"{problem.name} decisions"] += default.observation_count if log is None else log.observation_count
        wrong += [] if same else [f"{problem.name} in {module.name}: {driven.status.value} {driven.detail}".strip()]
    return {"found": dict(found), "wrong": wrong, "modules": len(chosen)}


def _logged(compiler: ClangCompiler, module: Module, problem: Problem, policy: str, place: Path) -> Log | None:
    """Compile a module by a policy, and read what it decided; ``None`` of a module that comes to no decision."""
    use = PluginUse(policies={problem.name: policy}, logs=(problem.name,))
    log = place / f"{problem.name}.log"
    log.unlink(missing_ok=True)
    request = CompileRequest(use=use, keep_object=place / "plugin.o", keep_logs={problem.name: log})
    done = compiler.compile(module, request)
    if not done.ok:
        raise ToolError(f"{module.name}: expected it to compile with the plugin, found {done.reason}")
    return read_log(log) if log.exists() else None


def _random_policy(problem: Problem, log: Log) -> Policy:
    """A network with random weights, of LLVM's features that vary in ``log``, with outputs of both signs."""
    rng = np.random.default_rng(2)
    names = [
        name for name in problem.feature_names if name != problem.mask and len(np.unique(log.columns[name])) > 1
    ] or [name for name in problem.feature_names if name != problem.mask][:1]
    rows = feature_rows(problem, log, names)
    normaliser = fit_signed_log(rows.reshape(-1, len(names)).astype(np.float64))
    widths = itertools.pairwise([normaliser.width, 24, 1])
    layers = tuple(
        Layer(
            (rng.normal(size=(1, inputs, outputs)) / np.sqrt(inputs)).astype(np.float32),
            (rng.normal(size=(1, outputs)) / 10).astype(np.float32),
        )
        for inputs, outputs in widths
    )
    is_column = problem is REGALLOC_EVICTION
    return Policy(
        problem=problem.name,
        features=tuple(names),
        normaliser=normaliser,
        layers=layers,
        output=OutputKind.COLUMN_LOGIT if is_column else OutputKind.EFFECT_BYTES,
        mask=problem.mask or "",
    )


def _write_programs(*, config: Majors, toolchain: Toolchain, setup: Setup) -> dict[str, Any]:
    """Write random programs, and name those that end by their seeds."""
    place = config.folder.resolve() / "programs"
    place.mkdir(parents=True, exist_ok=True)

    def ends(seed: int) -> bool:
        source, program = place / f"{seed}.c", place / f"{seed}.bin"
        words = [config.csmith, "--seed", str(seed), *_CSMITH, "--output", str(source)]
        made = process.run(words, timeout_seconds=_COMMAND_SECONDS, cwd=place)
        if made.returncode != 0:
            raise ToolError(f"{config.csmith}: expected a program, found {made.stderr.strip()[-200:]}; install csmith")
        # Optimized, a loop without effects may end: what such a program does then is not defined.
        if reason := _compile(source, program, ["-O0"], config=config, toolchain=toolchain):
            raise ToolError(f"{source}: expected {toolchain.clang} to compile it, found {reason}")
        ran = process.run([str(program)], timeout_seconds=_ENDING_SECONDS, cwd=place)
        program.unlink()
        return not ran.timed_out

    seeds: list[int] = []
    tried = itertools.count(1)
    while len(seeds) < config.programs:
        setup.report(len(seeds), config.programs, "write random programs that end")
        some = list(itertools.islice(tried, 50))
        found = zip(some, map_in_order(ends, some, workers=os.cpu_count() or 1), strict=True)
        seeds += [seed for seed, has_ended in found if has_ended]
    return {"seeds": seeds[: config.programs]}


def _compile(source: Path, program: Path, words: Sequence[str], *, config: Majors, toolchain: Toolchain) -> str:
    """Compile a random program; returns the compiler's message if it fails."""
    line = [str(toolchain.clang), "-Oz", "-w", f"-I{config.headers}", *words, str(source), "-o", str(program)]
    done = process.run(line, timeout_seconds=_COMMAND_SECONDS, cwd=program.parent, env=clean_environment())
    return "" if done.returncode == 0 else done.stderr.strip()[-200:] or "no message"


def _run_random(
    folder: Path, seeds: Sequence[int], *, config: Majors, toolchain: Toolchain, setup: Setup
) -> dict[str, Any]:
    """Compile random programs plainly and with the package's policies, and compare what both print."""
    place = folder / "random"
    place.mkdir(parents=True, exist_ok=True)
    flag = export_shipped(place / "shipped.so", toolchain=toolchain, timeout_seconds=_COMMAND_SECONDS)
    sides = {"plain": (), "shipped": shlex.split(flag)}

    def run_one(seed: int) -> tuple[str, bool]:
        """How a program ends when it is compiled plainly and with the policies, and whether its code differs."""
        printed: list[bytes] = []
        codes: list[bytes] = []
        for side, words in sides.items():
            program = place / f"{seed}.{side}"
            source = config.folder.resolve() / "programs" / f"{seed}.c"
            if reason := _compile(source, program, words, config=config, toolchain=toolchain):
                return f"{side} does not compile: {reason}", False
            ran = process.run([str(program)], timeout_seconds=_RUN_SECONDS, cwd=place)
            printed.append(b"no end" if ran.timed_out else ran.stdout + bytes([ran.returncode & 255]))
            codes.append(program.read_bytes())
            program.unlink()
        return "same" if printed[0] == printed[1] else "another output", codes[0] != codes[1]

    found: Counter[str] = Counter()
    wrong: list[str] = []
    ended = map_in_order(run_one, seeds, workers=os.cpu_count() or 1)
    for done, (seed, (what, is_changed)) in enumerate(zip(seeds, ended, strict=True)):
        setup.report(done, len(seeds), f"LLVM {toolchain.major}: random programs")
        found[what] += 1
        found["changed"] += is_changed
        wrong += [f"seed {seed}: {what}"] if what != "same" else []
    return {"found": dict(found), "wrong": wrong}


def result_of(rows: Mapping[int, Mapping[str, Any]], *, config: Majors) -> Result:
    """The result of all majors."""
    changes = {major: _changes(row["projects"]) for major, row in rows.items()}
    names = list(config.projects)
    wrong = [f"LLVM {major}: {one}" for major, row in rows.items() for one in _defects(row)]
    decisions = sum(
        count for row in rows.values() for what, count in row["agreement"]["found"].items() if "decisions" in what
    )
    programs = sum(row["random"]["found"].get("same", 0) for row in rows.values())
    said = "; ".join(
        f"{major}: {SHIPPED} {percent(mean_change([one[0] for one in found.values()]))}, tuned "
        f"{percent(mean_change([one[1] for one in found.values()]))}"
        for major, found in changes.items()
        if found
    )

    def table(title: str, side: int) -> Table:
        return Table(
            title=title,
            columns=("project", *(f"LLVM {major}" for major in rows)),
            rows=tuple(
                (name, *(percent(found[name][side]) if name in found else "-" for found in changes.values()))
                for name in names
            ),
            note="Change of the linked programs of a project, what `llvm-size` calls text, against plain -Oz of the "
            "same compiler, built by the project's own tools; geometric mean of its programs.",
        )

    return Result(
        benchmark="majors",
        question=f"What do {SHIPPED} and a search of {config.seconds * config.workers / 60:g} core-minutes give with "
        "each supported LLVM, do its decisions equal those over LLVM's channels, and do random programs stay right?",
        answer=f"{said}; {decisions:,} decisions compared and {programs:,} random programs run: "
        f"{len(wrong)} differences",
        bar=BAR,
        passed=not wrong,
        seed=1,
        tables=(
            table(f"Projects, {SHIPPED}", 0),
            table("Projects, tuned", 1),
            Table(
                title="Decisions in the plugin and over LLVM's channels",
                columns=("LLVM", "modules", "problem", "modules that ask", "decisions", "modules that differ"),
                rows=tuple(
                    (
                        major,
                        row["agreement"]["modules"],
                        problem.name,
                        row["agreement"]["found"].get(f"{problem.name} modules", 0),
                        row["agreement"]["found"].get(f"{problem.name} decisions", 0),
                        sum(one.startswith(f"{problem.name} in ") for one in row["agreement"]["wrong"]),
                    )
                    for major, row in rows.items()
                    for problem in PROBLEMS
                ),
                note="A random policy of LLVM's features decides each module twice: in the plugin, and in Python that "
                "clang asks over the channel of its own advisor. All decisions and the objects have to be equal.",
            ),
            Table(
                title="Random programs of csmith, -Oz",
                columns=("LLVM", "the same output", f"other code by {SHIPPED}", "different"),
                rows=tuple(
                    (
                        major,
                        *(row["random"]["found"].get(what, 0) for what in ("same", "changed")),
                        len(row["random"]["wrong"]),
                    )
                    for major, row in rows.items()
                ),
            ),
            *([Table(title="Differences", columns=("what",), rows=tuple((one,) for one in wrong))] if wrong else []),
        ),
    )


def _changes(projects: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """By project, the change by the shipped policies and by tuning, over its programs."""
    found: dict[str, tuple[float, float]] = {}
    for name, row in projects.items():
        if "failure" in row:
            continue
        found[name] = _change_of(row["built"], "shipped"), _change_of(row["built"], "tuned")
    return found


def _change_of(built: Mapping[str, Mapping[str, int]], side: str) -> float:
    return mean_change([sizes.get(side, sizes["plain"]) / sizes["plain"] - 1 for sizes in built.values()])


def _defects(row: Mapping[str, Any]) -> list[str]:
    """What of a major's rows misses the bar."""
    found = [*row["agreement"]["wrong"], *row["random"]["wrong"]]
    for name, one in row["projects"].items():
        if "failure" in one:
            found.append(f"{name}: {one['failure']}")
            continue
        if not one["same_output"]:
            found.append(f"{name}: another output")
        found += [
            f"{name}: {program} is larger"
            for program, sizes in one["built"].items()
            if sizes["tuned"] > min(sizes["plain"], sizes.get("shipped", sizes["plain"]))
        ]
    return found


if __name__ == "__main__":
    sys.exit(main())

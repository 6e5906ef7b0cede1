"""Builds with a profile: are they compiled as they were, what does tuning save, and what does it cost when they run?"""

import dataclasses
import functools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, kept_row, run_benchmark
from merged_profile import merged_profile
from results import Cell, Result, Table, percent
from tuning_builds import build_project, source_folder
from tuning_execution import WORK, count_work, execution_of
from tuning_projects import PROJECTS, TunedProject

from mlgokit.bench.callgrind import Callgrind, find_callgrind
from mlgokit.commands import tune
from mlgokit.commands.corpus import import_build, verify
from mlgokit.commands.corpus.record import DATABASE_NAME
from mlgokit.commands.options import CompilerOptions
from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.files import digest_file

MOST_SLOWER = 0.005
PLAIN, TUNED, KEPT = "plain", "tuned", "tuned, hot functions kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileBuilds:
    """Build real programs with counters, run them, build them with the profile, tune that, and count what it executes.

    Needs valgrind, and llvm-profdata beside clang.
    """

    folder: Path = Path("build/profile-builds")
    """Where programs are built and tuned, and what was counted is kept."""
    projects: tuple[str, ...] = ("lzip", "ninja", "cmark")
    """Which programs."""
    budget: str = "90s"
    """Time of each search."""
    keep_hot: float = 99.0
    """Percent of the profile's executions whose functions stay as LLVM has them, in one of two searches."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/profile_builds.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    config: ProfileBuilds
    toolchain: Toolchain
    counter: Callgrind
    setup: Setup


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ProfileBuilds, measure, arguments)


def measure(config: ProfileBuilds, setup: Setup) -> Result:
    """Build, tune and run what is asked for.

    Raises:
        UsageError: a project is not known.
        ToolError: a tool is missing, or a build or a run fails.
    """
    check_names("projects", config.projects, WORK)
    bench = _Bench(config=config, toolchain=setup.toolchain(config.llvm), counter=find_callgrind(), setup=setup)
    setup.tools["valgrind"] = bench.counter.version
    rows: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(config.projects):
        setup.report(number, len(config.projects), f"build {name}")
        of = {"budget": config.budget, "keep_hot": config.keep_hot, "compiler": bench.toolchain.describe()}
        rows[name] = kept_row(config.folder / name / "row.json", functools.partial(_row, bench, name), of=of)
        setup.inputs[f"{name}, profile"] = digest_file(config.folder / name / "merged.profdata")
    return summarise(rows, config)


def _row(bench: _Bench, name: str) -> dict[str, Any]:
    """All that is known of one program in the end."""
    project = dataclasses.replace(PROJECTS[name], tests=())
    place = (bench.config.folder / name).resolve()
    source = source_folder(project, bench.config.folder / "projects")
    profile = _profile(bench, project, place, source)
    use = f"-fprofile-use={profile}"
    row: dict[str, Any] = {PLAIN: _built(bench, project, place / PLAIN, source, use)}
    corpus = place / "corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    imported = import_build.run(
        import_build.Import(
            compile_commands=place / PLAIN / DATABASE_NAME,
            corpus=corpus,
            project=name,
            include=project.include,
            exclude=project.exclude,
            llvm=bench.toolchain.major,
            workers=bench.config.workers,
        ),
        report=bench.setup.report,
    )
    compiler = CompilerOptions(llvm=bench.toolchain.major, workers=bench.config.workers)
    checked = verify.run(
        verify.Verify(corpus=corpus, compile_commands=place / PLAIN / DATABASE_NAME, compiler=compiler),
        report=bench.setup.report,
    )
    row |= {"notes": imported["notes"], "verified": checked.to_json()}
    for arm, kept in ((TUNED, 0.0), (KEPT, bench.config.keep_hot)):
        folder = place / f"search-{kept:g}"
        shutil.rmtree(folder, ignore_errors=True)
        found = tune.run(
            tune.Tune(
                corpus=corpus,
                budget=bench.config.budget,
                folder=folder,
                output=folder / "tuned.so",
                keep_hot=kept,
                compiler=compiler,
            ),
            report=bench.setup.report,
        )
        flags = f"{use} -fpass-plugin={(folder / 'tuned.so').resolve()}"
        row[arm] = _built(bench, project, place / f"build-{kept:g}", source, flags)
        row[arm]["compilations"] = found.compilations
    return row


def _profile(bench: _Bench, project: TunedProject, place: Path, source: Path) -> Path:
    """What the program's work leaves as a profile when it is built with counters."""
    raw, merged = place / "raw", place / "merged.profdata"
    _build(bench, project, place / "instrumented", source, f"-fprofile-generate={raw}")
    # The checks of a configuration are programs, too.
    shutil.rmtree(raw, ignore_errors=True)
    work = execution_of(project, place / "instrumented", source=source)
    done = process.run(work.argv, timeout_seconds=600, cwd=work.folder, env=work.environment)
    if done.returncode != 0:
        raise ToolError(f"{project.name}: expected its work to be done, found: {first_error(done.stderr)}")
    return merged_profile(raw, merged, bench.toolchain, name=project.name)


def _build(bench: _Bench, project: TunedProject, build: Path, source: Path, flags: str) -> int:
    """Build it; the bytes of its image."""
    words = dataclasses.replace(project, flags=(*project.flags, *flags.split()))
    workers = bench.config.workers
    built = build_project(words, build, source=source, toolchain=bench.toolchain, plugin_flag="", workers=workers)
    return built.image.image


def _built(bench: _Bench, project: TunedProject, build: Path, source: Path, flags: str) -> dict[str, Any]:
    """Build it, and count what its work executes."""
    image = _build(bench, project, build, source, flags)
    return dict(count_work(bench.counter, project, build, source=source, image_bytes=image))


def summarise(rows: dict[str, dict[str, Any]], config: ProfileBuilds) -> Result:
    """The table, and whether the hot functions that were kept kept the speed."""
    table: list[tuple[Cell, ...]] = []
    slower: list[float] = []
    for name, row in rows.items():
        plain = row[PLAIN]

        def change(arm: str, field: str, row: dict[str, Any] = row) -> float:
            return row[arm][field] / row[PLAIN][field] - 1

        slower.append(change(KEPT, "instructions"))
        table.append(
            (
                name, PROJECTS[name].language, WORK[name].shown, row["verified"]["modules"], row["verified"]["same"],
                plain["image"], plain["instructions"],
                *(percent(change(arm, field)) for arm in (TUNED, KEPT) for field in ("image", "instructions")),
                *(row[arm]["compilations"] for arm in (TUNED, KEPT)),
            )
        )  # fmt: skip
    same, code, modules = (
        sum(row["verified"][kind] for row in rows.values()) for kind in ("same", "same_code", "modules")
    )
    passed = same + code == modules and max(slower) <= MOST_SLOWER
    worst = percent(max(slower))
    return Result(
        benchmark="profile_builds",
        question="What does tuning save in a build with a profile, and what does it cost when the program runs?",
        answer=f"Of {modules} modules {same} compile to the object of their build, byte for byte, and {code} more to "
        f"its code. With functions in the most executed {config.keep_hot:g} % left to LLVM, programs execute at most "
        f"{worst} instructions against the untuned build with the same profile.",
        bar=f"every object has the code of the build's; at most {percent(MOST_SLOWER)} instructions with hot functions "
        "kept",
        passed=passed,
        seed=1,
        tables=(
            Table(
                title="Programs at -Oz with -fprofile-use, tuned against untuned",
                columns=(
                    "program", "language", "work, profiled and counted", "modules", "verified, every section",
                    "bytes, untuned", "instructions, untuned", "bytes, tuned", "instructions, tuned",
                    "bytes, hot functions kept", "instructions, hot functions kept", "compilations, tuned",
                    "compilations, hot functions kept",
                ),
                rows=tuple(table),
                note=f"Each search took {config.budget} on {config.workers} workers. Bytes: .text, .rodata, exception "
                "and unwind tables of the program; instructions: counted by callgrind in it alone. The profile is that "
                "of the work that is counted.",
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

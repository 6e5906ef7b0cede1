"""The command that asks what a tuned plugin still does for code that changed since."""

import contextlib
import dataclasses
import functools
import math
import shutil
import tempfile
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.basic import Basic
from mlgokit.builds.build import CandidatePlugin
from mlgokit.builds.cargo import CargoRequest, cargo_words, open_cargo
from mlgokit.builds.compilers import check_sandbox, clang_for, majors_of_build, toolchain_of_build
from mlgokit.builds.corpus import ANY_COMMANDS, Database, import_database, modules_for_size, modules_of_project
from mlgokit.builds.lto import check_steps
from mlgokit.builds.outside import outside_path
from mlgokit.builds.recorded import RecordedBuild, TunedBuild, record_plain, try_plugin
from mlgokit.commands.options import (
    COMPILER,
    NO_BUILD,
    Compiling,
    Databases,
    Texts,
    WholeBuild,
    check_module_source,
    check_rust_path,
    reject_with_cargo,
)
from mlgokit.compiler.objects.measure import Objective
from mlgokit.corpus.front_end import Level
from mlgokit.errors import CorpusError, InputError, MlgokitError, RejectedError, UsageError
from mlgokit.locks import reading
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.decisions import DecisionTable, read_table
from mlgokit.tables.file import list_tables
from mlgokit.tables.overrides import ALLOCATIONS, OPTIMIZER_PASSES, PASSES, read_overrides
from mlgokit.tune.check import CheckResult, check_plugin, find_violations, read_programs
from mlgokit.tune.check_page import check_page


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Report which decisions of a tuned plugin still apply to the current sources, and whether to tune again."""

    plugin: Annotated[Path, tyro.conf.Positional, Basic.INPUT]
    """Plugin that `mlgokit tune` wrote."""
    compile_commands: Annotated[Path | None, Basic.INPUT] = None
    """Compilation database (compile_commands.json) of the current sources; name this or a corpus."""
    corpus: Path | None = None
    """Folder of a corpus of the current sources."""
    built: WholeBuild = NO_BUILD
    """Build of the current sources, as in `mlgokit tune --build`; it runs in a copy, plainly and with the plugin."""
    cargo: str | None = None
    """Cargo build of the current sources, as in `mlgokit tune`, instead of a database or corpus; it runs in
    --cargo-folder with a temporary target folder."""
    cargo_folder: Path = Path()
    """With --cargo: folder of the package."""
    project: str | None = None
    """Name of the project that was tuned, in a corpus of several."""
    least_kept: Annotated[float, Basic.LIMITS] = 0.0
    """Minimum share of the plugin's decisions (functions, if tuned for spill cost) that must still apply, such as 0.8;
    below it, the exit code is 1."""
    max_bytes: Annotated[int | None, Basic.LIMITS] = None
    """With --build or --cargo: largest size of a program with the plugin, in bytes of what llvm-size calls text; above
    it, the exit code is 1."""
    max_growth: Annotated[float | None, Basic.LIMITS] = None
    """Percentage by which a program may have grown since the result that --against names, such as 0.5; above it, the
    exit code is 1."""
    program_bytes: Texts = ()
    """Limit of one program, by path or name, in bytes, in place of --max-bytes, as in --program-bytes app=50000."""
    program_growth: Texts = ()
    """Limit of one program, by path or name, in percent, in place of --max-growth, as in --program-growth app=1.5."""
    strict: Annotated[bool, Basic.LIMITS] = False
    """Exit code 1 also if any decision of the plugin no longer applies, or a module does not compile."""
    against: Annotated[Path | None, Basic.LIMITS] = None
    """Earlier result that --max-growth compares with: tuned.json of `mlgokit tune --build` or `--cargo`, or the output
    of `mlgokit --json check` with either."""
    level: Level | None = None
    """Optimization level in place of the build's own; needs --compile-commands. It must be Os or Oz, unless the plugin
    was tuned for spill cost."""
    database: Databases = ANY_COMMANDS
    """Which commands of the database are taken."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules; its default is the plugin's LLVM major version."""


def run(config: Check, *, report: Report = say_nothing) -> CheckResult:
    """Compile today's code plainly and with the plugin, and compare: bytes, or spill cost if it was tuned for that.

    Raises:
        UsageError: the call contradicts itself.
        InputError: the plugin is not one that `mlgokit tune` wrote.
        CorpusError: there is nothing to compile.
    """
    earlier = _check_limits(config)
    if not config.plugin.is_file():
        raise InputError(f"{config.plugin}: expected a plugin of `mlgokit tune`, found no such file; check the path")
    if config.cargo is None and not config.built.build:
        check_module_source(
            "check",
            compile_commands=config.compile_commands,
            corpus=config.corpus,
            database=config.database,
            level=config.level,
        )
    if not 0 <= config.least_kept <= 1:
        raise UsageError(f"--least-kept: expected a share from 0 to 1, found {config.least_kept:g}; correct it")
    inside = list_tables(config.plugin)
    decisions = _read_decisions(config.plugin, inside)
    if config.cargo is None:
        check_steps(config.plugin, decisions)
    allocations, passes, optimizer_passes = (
        read_overrides(kind, config.plugin) if kind.table in inside else None
        for kind in (ALLOCATIONS, PASSES, OPTIMIZER_PASSES)
    )
    summary = next((table.summary for table in (decisions, allocations) if table is not None), None)
    major = summary.llvm if config.compiler.llvm is None and summary is not None else config.compiler.llvm
    compare = functools.partial(
        check_plugin,
        plugin=config.plugin,
        decisions=decisions,
        allocations=allocations,
        passes=passes,
        optimizer_passes=optimizer_passes,
        report=report,
    )
    if config.cargo is not None:
        if decisions is None:
            raise UsageError(
                f"{config.plugin}: expected a plugin of `mlgokit tune --cargo`, found one tuned for spill cost; "
                "name another plugin"
            )
        return _check_cargo(config, config.cargo, compare, earlier, report=report)
    named = majors_of_build(database=config.compile_commands, commands=config.built.build)
    if major is not None and named and major not in named:
        report(1, 1, f"{config.plugin} is of LLVM {major}, which checks it, and the build's own clang of {named[0]}")
    toolchain = toolchain_of_build(
        dataclasses.replace(config.compiler, llvm=major),
        database=config.compile_commands,
        commands=config.built.build,
        need_plugin=False,
    )
    check_sandbox(config.compiler, toolchain)
    # Imported anew: a check leaves nothing behind.
    with _scratch_folder() as scratch:
        recorded, path = None, config.compile_commands
        if config.built.build:
            recorded = record_plain(config.built, scratch, go_on=False, toolchain=toolchain, report=report)
            path = recorded.site.database
        corpus = config.corpus or scratch / "corpus"
        if path is not None:
            project = None if recorded is None else recorded.project
            database = Database(path=path, project=project, level=config.level, choice=config.database)
            import_database(database, corpus, toolchain=toolchain, compiler=config.compiler, report=report)
        compiler = clang_for(config.compiler, toolchain, corpus=corpus, report=report)
        with reading(corpus):
            chosen = (modules_of_project if decisions is None else modules_for_size)(corpus, config.project)
            found = compare(chosen.modules, compiler, left_out=chosen.left_out)
        found = dataclasses.replace(found, notes=chosen.notes)
        return found if recorded is None else _compare_programs(config, found, recorded, earlier, report=report)


@contextlib.contextmanager
def _scratch_folder() -> Generator[Path]:
    """A temporary folder, which stays only if a build in it failed: the error names its log."""
    folder = Path(tempfile.mkdtemp(prefix="mlgokit-check-"))
    has_log = False
    try:
        yield folder
    except (CorpusError, RejectedError):
        has_log = (folder / "build").is_dir()
        raise
    finally:
        shutil.rmtree(outside_path(folder), ignore_errors=True)
        if not has_log:
            shutil.rmtree(folder, ignore_errors=True)


def _check_limits(config: Check) -> Mapping[str, int]:
    """Refuse limits without a build or an earlier result; returns the bytes of its programs, if one is named."""
    has_bytes = config.max_bytes is not None or bool(config.program_bytes)
    has_growth = config.max_growth is not None or bool(config.program_growth)
    for option, texts in (("--program-bytes", config.program_bytes), ("--program-growth", config.program_growth)):
        _limits(option, texts)
    if config.built.build:
        config.built.check_programs()
        given = {
            "--cargo": config.cargo is not None,
            "--corpus": config.corpus is not None,
            "--compile-commands": config.compile_commands is not None,
            "--level": config.level is not None,
            **config.database.given,
        }
        if more := [option for option, is_given in given.items() if is_given]:
            raise UsageError(f"check: expected either --build or {more[0]}, found both; remove one")
    elif config.cargo is None and (config.built != NO_BUILD or has_bytes or has_growth):
        raise UsageError(
            "check: --max-bytes, --max-growth and --test need --build or --cargo, --program and the like --build; add "
            "the build command"
        )
    if has_growth != (config.against is not None):
        raise UsageError("check: expected --max-growth and --against together, found one of them; add the other")
    return {} if config.against is None else read_programs(config.against)


def _compare_programs(
    config: Check, found: CheckResult, recorded: RecordedBuild, earlier: Mapping[str, int], *, report: Report
) -> CheckResult:
    """Build today's code with the plugin, and compare its programs with the plain ones and with the limits."""
    plugin = config.plugin.resolve()
    candidate = CandidatePlugin(file=plugin, output=plugin, published=plugin)
    built = try_plugin(recorded, candidate, "compile", by_size=False, remedy="tune again", report=report)
    if config.built.program:
        chosen = {one.program for one in built.programs}
        earlier = {name: size for name, size in earlier.items() if name in chosen}
    return _with_programs(config, found, built, earlier)


def _with_programs(config: Check, found: CheckResult, built: TunedBuild, earlier: Mapping[str, int]) -> CheckResult:
    """The result with its programs, and with what exceeds the limits."""
    return dataclasses.replace(
        found,
        built=built,
        violations=find_violations(
            built,
            max_bytes=config.max_bytes,
            max_growth=config.max_growth,
            earlier=earlier,
            bytes_of=_limits("--program-bytes", config.program_bytes),
            growth_of=_limits("--program-growth", config.program_growth),
        ),
    )


def _limits(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Limits of single programs, as in ``app=50000``.

    Raises:
        UsageError: a text is not a program, an equals sign and a number.
    """
    found = dict[str, float]()
    for text in texts:
        program, _, limit = text.rpartition("=")
        try:
            found[program] = float(limit)
        except ValueError:
            program = ""
        # No comparison with nan holds, so nothing would ever exceed it.
        if not program or not math.isfinite(found[program]):
            raise UsageError(f"{option}: expected a program and a number, as in app=50000, found {text!r}; correct it")
    return found


def _read_decisions(plugin: Path, inside: Collection[str]) -> DecisionTable | None:
    """Read the inlining decisions of a plugin; ``None`` if it has allocations alone, being tuned for spill cost."""
    if inside == {"allocations"}:
        return None
    decisions = read_table(plugin)
    if decisions.summary is not None and decisions.summary.objective == Objective.EXECUTED.value:
        raise UsageError(
            f"{plugin}: expected a plugin tuned for size or spill cost, found one tuned for executed instructions; "
            "count them again by the `mlgokit tune` that made it, with --continue --budget 0s"
        )
    return decisions


def _check_cargo(
    config: Check,
    command: str,
    compare: Callable[..., CheckResult],
    earlier: Mapping[str, int],
    *,
    report: Report,
) -> CheckResult:
    """Compare what a cargo build makes by full link-time optimization today, and its programs by rustc's own link."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-check-") as scratch:
        words = cargo_words(command)
        reject_with_cargo(
            {
                "--compile-commands": config.compile_commands is not None,
                "--corpus": config.corpus is not None,
                "--level": config.level is not None,
                **config.database.given,
                "--program": bool(config.built.program),
                "--clean": bool(config.built.clean),
                "--sandbox on": config.compiler.sandbox == "on",
            }
        )
        check_rust_path(str(config.plugin), config.plugin)
        request = CargoRequest(
            words=words,
            folder=config.cargo_folder,
            scratch=Path(scratch),
            compiler=config.compiler,
            tests=tuple(map(tuple, config.built.words("test"))),
            test_seconds=60 * config.built.test_minutes,
        )
        found = open_cargo(request, report=report)
        try:
            checked = compare(found.modules, found.compiler, left_out=found.left_out)
            programs = found.link_programs(config.plugin.resolve())
            tests = tuple(found.run_tests("tune again"))
        finally:
            found.compiler.close()
        return _with_programs(config, checked, TunedBuild(programs=programs, tests="", notes=tests, line=""), earlier)


page = check_page


def exit_code(config: Check, result: CheckResult) -> int:
    """1 if less still applies than the user asked for, or a program is beyond its limits."""
    fails = result.share < config.least_kept or result.violations or (config.strict and result.is_stale)
    return MlgokitError.exit_code if fails else 0

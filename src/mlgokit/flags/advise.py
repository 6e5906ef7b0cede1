"""Advice for a build: its trials, what pays together, and what comes on top of that."""

import dataclasses
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from mlgokit.builds.compression import find_stripper
from mlgokit.builds.images import holds_path, weigh_image
from mlgokit.builds.lines import BuildSystem, format_added, format_system_line
from mlgokit.builds.rebuild import open_rebuilder
from mlgokit.builds.recorded import RecordedBuild
from mlgokit.builds.site import PLAIN, BuildCommands
from mlgokit.builds.variant import plugin_options, with_options
from mlgokit.compiler.project_calls import CHECKED, TRIED
from mlgokit.compiler.regalloc_cost import link_option
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import AddedOptions
from mlgokit.corpus.build_notes import baseline_text, level_of
from mlgokit.corpus.importers.compile_commands import split_command
from mlgokit.decode import read_json
from mlgokit.errors import ToolError, UsageError
from mlgokit.export.plugin import export_plugin
from mlgokit.flags.record import BuildLine, FlagAdvice, Trial
from mlgokit.flags.reviewed import FLAGS, LEVEL, Flag
from mlgokit.flags.search import Budget, combine, confirm, describe_budget, try_alone
from mlgokit.flags.trials import ALREADY, TRIALS, BuildTrials, Trials, TrialStore, options_of
from mlgokit.policy.pretrained import SHIPPED, policy_files
from mlgokit.progress import Report

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOptions:
    """The folder for what trials leave, seconds for all but the plain build and the last ones, and flags not to try."""

    folder: Path
    seconds: float
    without: tuple[str, ...] = ()


def search_flags(
    trials: Trials, options: AdviceOptions, *, build: tuple[str, ...], whole_seconds: float, report: Report
) -> tuple[FlagAdvice, tuple[Flag, ...]]:
    """Try the flags of ``trials`` on its build, first each alone, and then those that save bytes together.

    Returns what was found, and the flags that are advised.

    The record gets the commands of the ``build``, which take ``whole_seconds`` all together, with its tests.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
        UsageError: the build fails without any flag.
    """
    began = time.monotonic()
    plain = trials.make_plain()
    if plain.reason:
        raise UsageError(
            f"--build: expected the plain build to succeed a second time, found: {plain.reason}; look into the "
            f"logs in {options.folder}"
        )
    budget = Budget(seconds=options.seconds, build_seconds=plain.wall_seconds)
    report(1, 1, f"{describe_budget(trials, options.without, budget)}, then a clean build of {whole_seconds:.0f} s")
    rows, budget = try_alone(trials, plain, options.without, budget, report)
    found = combine(trials, plain, rows, budget, report)
    confirmed, whole = confirm(trials, plain, found, report)
    added = options_of(confirmed.flags)
    advice = FlagAdvice(
        build=build,
        plain=plain,
        flags=tuple(rows),
        steps=confirmed.steps,
        advised=tuple(flag.name for flag in confirmed.flags),
        advised_build=whole,
        compile=added.compile,
        link=added.link,
        line="",
        lines=(),
        shipped_name=SHIPPED,
        notes=(*_note_differing_builds(found.trial, whole), *_note_growth(plain, whole)),
        wall_seconds=time.monotonic() - began,
    )
    return advice, confirmed.flags


def advise_build(recorded: RecordedBuild, options: AdviceOptions, *, report: Report) -> FlagAdvice:
    """Find the flags of :data:`FLAGS` that make a recorded build smaller, and say how to add them.

    Raises:
        InputError: a trial in the folder is damaged.
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
        UsageError: the build links nothing, fails once more, or runs in the user's own folder.
    """
    if not recorded.programs():
        raise UsageError(
            "--build: expected a build that links a program or a shared library, found none; build one, so that "
            "its size can be measured"
        )
    site, toolchain = recorded.site, recorded.site.toolchain
    # Now, as the rebuilder moves the recorded tree away.
    baseline = _describe_baseline(recorded)
    held = [name for name, path in recorded.programs().items() if holds_path(path, recorded.tree)]
    store = TrialStore(folder=site.place / TRIALS)
    with open_rebuilder(recorded, compressor=find_stripper(toolchain)) as rebuilder:
        trials = BuildTrials(rebuilder=rebuilder, store=store, flags=FLAGS, has_lld=toolchain.lld is not None)
        advice, flags = search_flags(
            trials, options, build=site.commands.build, whole_seconds=recorded.seconds, report=report
        )
        advice = dataclasses.replace(
            advice,
            line=format_added(site.commands, recorded.tree, AddedOptions(compile=advice.compile, link=advice.link)),
            lines=lines_of(advice),
            tune=_tune_command(site.commands),
            tests=describe_tests(recorded.tests),
            notes=(*advice.notes, *_build_notes(recorded, advice.plain, flags, held)),
            baseline=baseline,
        )
        return _measure_shipped(advice, trials, flags, recorded, options, report=report)


def lines_of(advice: FlagAdvice) -> tuple[BuildLine, ...]:
    """Write the lines that add the advised options, for CMake, Meson and Make."""
    found: list[BuildLine] = []
    for system in get_args(BuildSystem):
        if system in {"cargo", "Ninja"}:
            continue
        texts = [
            format_system_line(system, options, is_link=is_link)
            for options, is_link in ((advice.compile, False), (advice.link, True))
        ]
        if any(texts):
            found.append(BuildLine(system=system, line="\n".join(filter(None, texts))))
    return tuple(found)


def _measure_shipped(
    advice: FlagAdvice,
    trials: BuildTrials,
    flags: Sequence[Flag],
    recorded: RecordedBuild,
    options: AdviceOptions,
    *,
    report: Report,
) -> FlagAdvice:
    """Build with the package's policies on top of the advised flags, and add the result to the advice."""
    report(0, 1, f"{SHIPPED} on top")
    toolchain = recorded.site.toolchain
    try:
        plugin = export_shipped(toolchain, options.folder)
    except ToolError as error:
        return dataclasses.replace(advice, shipped_reason=str(error))
    lto = {flag.name for flag in trials.flags if flag.group == "lto"}
    optimizes = not lto.isdisjoint(advice.advised)
    has_lto = any(trials.list_excluded().get(name) == ALREADY for name in lto)
    added = plugin_options(plugin, "both" if optimizes or has_lto else "compile")
    if optimizes:
        # The wrappers look for link-time optimization in the words of the build itself.
        added = dataclasses.replace(added, link=added.lto_link, lto_link=())
    before = (advice.advised_build or advice.plain).count("loaded")
    trial = trials.make(flags, plugin=added)
    if not trial.works or trial.count("loaded") >= before:
        # The policies decide in code at -Oz alone, which may pay with them where -Os pays without.
        level = next(flag for flag in trials.flags if flag.name == LEVEL)
        if level.name not in (*advice.advised, *trials.list_excluded()):
            others = [flag for flag in flags if flag.group != level.group]
            other = trials.make([*others, level], plugin=added)
            if other.works and other.count("loaded") < before:
                trial = other
                added = with_options(added, options_of([level]))
    report(1, 1, f"{SHIPPED} on top")
    reason = shipped_defect(trial, before)
    both = AddedOptions(compile=(*advice.compile, *added.compile), link=(*advice.link, *added.link, *added.lto_link))
    return dataclasses.replace(
        advice,
        shipped=trial,
        shipped_reason=reason,
        shipped_line="" if reason else format_added(recorded.site.commands, recorded.tree, both),
        shipped_compile=added.compile,
        shipped_link=(*added.link, *added.lto_link),
    )


def export_shipped(toolchain: Toolchain, folder: Path) -> Path:
    """Write the plugin with the policies of the package into the folder of an advice.

    Raises:
        ToolError: the plugin cannot be made for this clang.
    """
    return Path(export_plugin(toolchain, policy_files([SHIPPED]), folder.resolve() / "builtin.so").versioned)


def shipped_defect(trial: Trial, before: int) -> str:
    """Say why the policies are not advised on top of flags whose build loads ``before`` bytes; empty if they are."""
    reason = trial.reason or trial.tests or ""
    return reason or ("it saves nothing on top" if trial.count("loaded") >= before else "")


def _tune_command(commands: BuildCommands) -> str:
    words = ["mlgokit", "tune"]
    for option in ("build", "test", "program"):
        for value in getattr(commands, option):
            words += [f"--{option}", str(value)]
    if commands.build_folder != Path():
        words += ["--build-folder", str(commands.build_folder)]
    return shlex.join(words)


def describe_tests(failure: str | None) -> str:
    """Say whether tests judged the flags, by why they fail on the plain build; ``None`` if there are no tests."""
    if failure is None:
        return "no --test was given, so no flag was taken that can change what a program does"
    if failure:
        return f"the tests already fail on the plain build ({failure}), so they judge nothing"
    return "the tests pass on the plain build, and on each build with what is advised"


def _describe_baseline(recorded: RecordedBuild) -> str:
    """Name the compiler of the plain build, and the optimization levels that its commands have."""
    path, remedy = recorded.site.database, "delete the folder of the advice"
    database = read_json(path, expected="the build's commands", remedy=remedy)
    levels = Counter(level_of(entry["arguments"]) for entry in database)
    return f"{baseline_text(recorded.site.toolchain.version, levels)}{recorded.in_place_of}"


def _note_differing_builds(quick: Trial, whole: Trial | None) -> Iterator[str]:
    """Note the programs that have other bytes in the whole build than in a rebuild with the same flags."""
    if whole is None or quick.flags != whole.flags:
        return
    for name, one in quick.programs.items():
        again = whole.programs[name]
        if one.flash != again.flash:
            yield (
                f"{name} has {one.flash:,} bytes in one build with what is advised and {again.flash:,} in another: "
                "the build does not repeat itself to the byte"
            )


def _note_growth(plain: Trial, whole: Trial | None) -> Iterator[str]:
    """Note the programs that are larger with the advised flags."""
    if whole is None:
        return
    grown = [name for name, one in plain.programs.items() if whole.programs[name].flash > one.flash]
    if grown:
        yield f"larger with what is advised, though all together are smaller: {', '.join(grown[:_MOST_NAMED])}"


def _build_notes(recorded: RecordedBuild, plain: Trial, flags: Sequence[Flag], held: Sequence[str]) -> Iterator[str]:
    """Note what limits the advice; ``held`` names programs that contain the path of the build's folder."""
    again = {name: one.image for name, one in plain.programs.items()}
    first = {name: weigh_image(recorded.site.kept(PLAIN, name)).row.image for name in again}
    differs = [name for name, size in again.items() if size != first[name]]
    if differs:
        yield (
            f"{differs[0]} has {first[differs[0]]:,} bytes in one plain build and {again[differs[0]]:,} "
            "in another: differences of this kind mean nothing"
        )
    commands = {name: split_command(recorded.links[path].command) for name, path in recorded.programs().items()}
    if called := [name for name, words in commands.items() if link_option("-s", words[0]) == "-s"]:
        yield (
            f"{called[0]} is linked by the linker itself: give it what is behind -Wl, as words of its own, and neither "
            "-flto, -fuse-ld=lld nor a level"
        )
    lost = {name: reason for name, reason in recorded.left_out.items() if reason not in {TRIED, CHECKED}}
    if lost:
        name, reason = next(iter(lost.items()))
        yield f"{name} does not get the flags: {reason}"
    if held:
        yield (
            f"{held[0]}: the path of the folder of the build is inside, so a build elsewhere has some bytes more or "
            "less, with the flags as without"
        )
    if any(flag.group == "lto" for flag in flags):
        yield "Static libraries of a build with -flto are best made by llvm-ar and llvm-ranlib (AR, RANLIB)"

"""The command that runs a build with a plugin in its compilers."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mlgokit.builds.lto import LINK_MODULE
from mlgokit.builds.variant import COMPILE_PLACES, LINK_PLACES, RUSTC_PLACES, BuildPlace, plugin_options
from mlgokit.commands.options import check_build_command, describe_unseen
from mlgokit.compiler import process
from mlgokit.compiler.build_tree import UnseenObject, find_unseen_objects, objects_below
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.plugin_build import check_made_for
from mlgokit.compiler.project_calls import group_by_reason, project_calls
from mlgokit.compiler.rust.toolchain import find_rustc, load_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.compiler.wrapper_folder import plugin_settings
from mlgokit.compiler.wrapping import WrappedBuild, run_wrapped
from mlgokit.corpus.build_notes import level_of
from mlgokit.errors import InputError, ToolError
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.decisions import read_table
from mlgokit.tables.overrides import ALLOCATIONS, PASSES, read_overrides
from mlgokit.terminal import counted, say

CHECK_SECONDS = 60.0
_SIGNALLED = 128
_NOT_RUSTC = "the plugin is for clang; `mlgokit tune --cargo` makes one for rustc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Run a build with a plugin in each compilation, build files unedited: build --plugin tuned.so -- make -j2."""

    command: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Build command, after --. Only what it compiles gets the plugin, so clean first."""
    plugin: Path
    """Plugin that `mlgokit tune` or `mlgokit export plugin` made."""
    plugin_in: BuildPlace | None = None
    """Steps that load the plugin: compile, link (with link-time optimization), both, rustc (programs with fat LTO), or
    all. By default the steps that a tuned plugin was tuned for, and all for a plugin of policies."""
    llvm: int | None = None
    """LLVM major version to use; that of a tuned plugin, else the newest supported one, if not given."""
    timeout_minutes: float = 240.0
    """Deadline of the build in minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """How a build with a plugin went.

    Attributes:
        plugin_in: the steps that were to load the plugin.
        compiler: that compiled, with its version.
        reason: why the build failed, else empty.
        code: of the build; negative for a signal.
        seen: compilations that the wrappers saw; each source of a call is one.
        compilations: those of the project.
        failed: how many of these failed.
        left_out: why the others are not counted, by the names of their sources, of many the first.
        levels: how many of them were at each optimization level, as the build has it.
        links_with_plugin: those that load it, for link-time optimization.
        links_without: with link-time optimization by lld, where the plugin is for compile steps alone.
        links_by_another: with link-time optimization by a linker that does not know how to load it.
        programs: that calls of rustc make with the plugin.
        programs_without: others, with the reason.
        foreign: compilers for other machines that were called, without the plugin.
        passed_by: new objects of a compiler that went past.
        up_to_date: objects that were there before, and stay as they were.
    """

    command: tuple[str, ...]
    plugin: str
    plugin_in: BuildPlace
    compiler: str
    reason: str
    code: int
    seen: int
    compilations: int
    failed: int
    left_out: dict[str, str]
    levels: dict[str, int]
    links: int
    links_with_plugin: int
    links_without: int
    links_by_another: int
    programs: tuple[str, ...]
    programs_without: dict[str, str]
    foreign: tuple[str, ...]
    passed_by: tuple[UnseenObject, ...]
    up_to_date: int
    wall_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["passed_by"] = [{"object": str(one.path), "compiler": one.compiler} for one in self.passed_by]
        return found


def run(config: Build, *, report: Report = say_nothing) -> BuildResult:  # noqa: ARG001  (the build prints)
    """Run the build in the current folder; what it prints goes to standard error.

    Raises:
        InputError: this clang does not load the plugin.
        ToolError: there is no such clang.
        UsageError: there is no such build.
    """
    words = config.command
    check_build_command("build", words, example="build --plugin tuned.so -- make -j2")
    if not config.plugin.is_file():
        raise InputError(f"{config.plugin}: expected a plugin, found no such file; correct the path")
    llvm, place = tuned_for(config.plugin)
    place = config.plugin_in or place
    toolchain = find_toolchain(config.llvm or llvm)
    check_loads(config.plugin, toolchain)
    if place == "rustc":
        _check_rustc(words, config.plugin)
    before = objects_below(Path.cwd())
    with tempfile.TemporaryDirectory(prefix="mlgokit-build-") as scratch:
        build = run_wrapped(
            [words],
            tree=Path.cwd(),
            folder=Path(scratch),
            toolchain=toolchain,
            added=plugin_options(config.plugin, place),
            environment=plugin_settings(),
            timeout_seconds=60 * config.timeout_minutes,
            output=process.STANDARD_ERROR,
        )
    return _result(config, place, build, toolchain, find_unseen_objects(Path.cwd(), build, before=before))


def check_loads(plugin: Path, toolchain: Toolchain) -> None:
    """Refuse a plugin that would fail each compilation of a build.

    Raises:
        InputError: it would.
    """
    check_made_for(plugin, toolchain)
    argv = [toolchain.clang, f"-fpass-plugin={plugin.absolute()}", "-Oz", "-x", "c", "-c", "-", "-o", "/dev/null"]
    done = process.run(argv, timeout_seconds=CHECK_SECONDS, stdin=b"int a;\n")
    if done.returncode != 0:
        raise InputError(
            f"{plugin}: expected a plugin that clang {toolchain.version} loads, found: {first_error(done.stderr)}; "
            "give the LLVM major that it was made for with --llvm, or make it anew"
        )


def _check_rustc(words: Sequence[str], plugin: Path) -> None:
    """Refuse a plugin that would fail each program of a build by the rustc of this folder.

    Raises:
        InputError: it would.
        ToolError: there is no rustc.
    """
    if any(word.startswith("+") for word in words):
        # Another rustc than that of this folder, which says itself what it does not load.
        return
    rustc = find_rustc()
    try:
        load_plugin(rustc, plugin.absolute())
    except ToolError as error:
        raise InputError(
            f"{plugin}: expected a plugin that {rustc.version} loads, found: {error}; build with the rustc that it was "
            "tuned with, or tune again with this one"
        ) from error


def exit_code(config: Build, found: BuildResult) -> int:  # noqa: ARG001  (the table of commands gives both)
    """That of the build; 1 if it succeeded, and all that it compiled went past the plugin."""
    if found.reason:
        return found.code if found.code >= 0 else _SIGNALLED - found.code
    return int(bool(found.passed_by) and not found.compilations)


def render(found: BuildResult, out: Console) -> None:
    """Print what was compiled with the plugin, and what was not."""
    how = "with" if found.plugin_in in COMPILE_PLACES else "without"
    by = f"by {found.compiler}, which replaces the build's compiler"
    if found.compilations or not found.programs:
        say(out, f"{counted(found.compilations, 'compilation')} {how} {found.plugin}, {by}; {found.failed} failed")
    if found.programs:
        count = f"{counted(len(found.programs), 'call')} of rustc with {found.plugin}"
        say(out, f"{count}, each for the full link-time optimization of a program: {', '.join(found.programs)}")
    if found.left_out:
        say(out, f"{counted(found.seen, 'compilation')} seen; not counted are")
    for name, reason in found.left_out.items():
        say(out, f"  {name}: {reason}")
    for name, reason in found.programs_without.items():
        say(out, f"a call of rustc without the plugin, for {name}: {reason}")
    others = sum(count for level, count in found.levels.items() if level not in {"-Os", "-Oz"})
    sentences = {
        f"{others} of them without -Oz or -Os, where policies and inlining for size have no effect": others,
        f"loaded in {counted(found.links_with_plugin, 'link')} with link-time optimization": found.links_with_plugin,
        "the plugin is for rustc, which linked no program in this build; cargo skips programs that are up to "
        "date, so run `cargo clean` first": found.plugin_in == "rustc" and not found.programs,
        f"not loaded in {counted(found.links_without, 'link')} with link-time optimization, as it is for compile "
        "steps; --plugin-in link loads it there": found.links_without,
        f"not loaded in {counted(found.links_by_another, 'link')} with link-time optimization by another linker than "
        "lld: link with -fuse-ld=lld": found.links_by_another,
        "the plugin is for a link with link-time optimization, and the build made none by lld": (
            found.plugin_in == "link" and not found.links_with_plugin
        ),
        f"without the plugin, as they compile for another machine: {', '.join(found.foreign)}": found.foreign,
        f"without the plugin: {describe_unseen(found.passed_by)}; start compilers by name or by CC and CXX, and do "
        "not clear the environment": found.passed_by,
        f"not rebuilt, below this folder: {counted(found.up_to_date, 'other object')}; clean first to rebuild them": (
            found.up_to_date
        ),
        "the build compiled no C or C++": not (
            found.compilations or found.passed_by or found.up_to_date or found.programs or found.plugin_in == "rustc"
        ),
        found.reason: found.reason,
    }
    for sentence, is_so in sentences.items():
        if is_so:
            say(out, sentence)


def tuned_for(plugin: Path) -> tuple[int | None, BuildPlace]:
    """The LLVM major of a tuned plugin, and the steps of a build that it is for; ``None`` and all steps for a policy.

    A tuning of a link has that among its modules, and needs the compile steps too if they leave inlining to it. No
    decision of a program by rustc is for a compile step.
    """
    with contextlib.suppress(InputError):
        table = read_table(plugin)
        if table.summary is not None:
            place: BuildPlace = "rustc" if table.entries and all(one.at_link for one in table.entries) else "compile"
            if any(name.endswith(LINK_MODULE) for name in table.summary.modules):
                place = "both" if any(one.defers for one in table.entries) else "link"
            return table.summary.llvm, place
    for kind in (ALLOCATIONS, PASSES):
        with contextlib.suppress(InputError):
            summary = read_overrides(kind, plugin).summary
            if summary is not None:
                return summary.llvm, "compile"
    return None, "all"


def _result(
    config: Build, place: BuildPlace, build: WrappedBuild, toolchain: Toolchain, passed: list[UnseenObject]
) -> BuildResult:
    project = project_calls(build, Path.cwd())
    compilations = [call for call in project.calls for _ in call.sources]
    links = [call for call in project.calls if call.kind != "compile"]
    by_lld = sum(call.lto_linker == "lld" for call in links)
    levels = Counter(level_of(call.words) for call in compilations)
    return BuildResult(
        command=config.command,
        plugin=str(config.plugin),
        plugin_in=place,
        compiler=f"clang {toolchain.version}",
        reason=build.reason,
        code=build.code,
        seen=project.seen,
        compilations=project.compilations,
        failed=sum(call.code != 0 for call in compilations),
        left_out=group_by_reason(project.left_out),
        levels=dict(levels.most_common()),
        links=len(links),
        links_with_plugin=by_lld if place in LINK_PLACES else 0,
        links_without=by_lld if place not in LINK_PLACES else 0,
        links_by_another=sum(call.lto_linker == "other" for call in links),
        programs=tuple(
            f"{one.crate} ({one.kind})" for one in build.programs if not one.reason and place in RUSTC_PLACES
        ),
        programs_without={
            f"{one.crate} ({one.kind})": one.reason or _NOT_RUSTC
            for one in build.programs
            if one.reason or place not in RUSTC_PLACES
        },
        foreign=tuple(sorted({call.name for call in build.others if call.kind == "foreign"})),
        passed_by=tuple(one for one in passed if one.is_new),
        up_to_date=sum(not one.is_new for one in passed),
        wall_seconds=build.wall_seconds,
    )

"""The user's build with a plugin before that is published: built, tested, and weighed against the plain build."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.images import weigh_image
from mlgokit.builds.variant import PluginPlace, plugin_link_option
from mlgokit.commands.build import plugin_options
from mlgokit.commands.build_site import (
    GONE,
    PLAIN,
    TUNED,
    BuildOptions,
    BuildSite,
    fresh_tree,
    keep,
    run_step,
    state_of,
)
from mlgokit.commands.options import option_words
from mlgokit.commands.tune_builds import Recorded, note_tuned_tree, programs_of
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.project_calls import project_calls
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import AddedOptions
from mlgokit.errors import RejectedError
from mlgokit.progress import Report
from mlgokit.terminal import counted
from mlgokit.tune.result import TunedBuild, TunedProgram

_SIZES = {"image", "text", "object", "linked"}
"""Objectives that are bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTrial:
    """A plugin that is to be published.

    Attributes:
        plugin: the file for now.
        published: where builds will load it.
        place: the steps of the build that it was tuned for.
    """

    plugin: Path
    published: Path
    place: PluginPlace


def try_plugin(
    config: Tune, recorded: Recorded, trial: PluginTrial, toolchain: Toolchain, *, report: Report
) -> TunedBuild:
    """Build once more with the plugin, test, and compare.

    Raises:
        RejectedError: the build fails with it, or the tests do, which passed on the plain build; or a program that is
            linked with link-time optimization is larger.
        StorageError: the disk is full or not writable.
    """
    options, tree = config.built, recorded.tree
    site = BuildSite(options=options, place=recorded.place, tree=tree, toolchain=toolchain)
    added, notes = plugin_options(trial.plugin, trial.place), list[str]()
    again = "`--continue --budget 0s` tries again"
    with fresh_tree(site):
        # What the build itself writes is not there yet.
        changed = [path for path, facts in recorded.sources.items() if state_of(Path(path)) not in (facts, GONE)]
        if changed:
            notes.append(
                f"{counted(len(changed), 'source')}, such as {changed[0]}, changed after the build was recorded"
            )
        if options.clean:
            note_tuned_tree(recorded)
            run_step(site, "clean", TUNED, AddedOptions())
        report(0, 1, "build with the plugin")
        build = run_step(site, "build", TUNED, added)
        if build.reason:
            raise RejectedError(
                f"--build: expected the build with the plugin to succeed as the plain one did, found: {build.reason}; "
                f"no plugin was written, look into {site.log(TUNED, 'build')}; {again}"
            )
        calls = project_calls(build, tree).calls
        made = {str(path) for call in calls for path in call.outputs}
        if missing := sorted(recorded.objects - made):
            notes.append(
                f"{len(missing)} objects, such as {missing[0]}, were not compiled again, and have no plugin: "
                "--clean leaves them there"
            )
        if others := [path.name for call in calls if call.lto_linker == "other" for path in call.outputs]:
            notes.append(
                f"the linker of link-time optimization of {others[0]} does not load the plugin: link with -fuse-ld=lld"
            )
        programs = _compared(config, recorded, site, is_lto=any(call.lto_linker for call in build.calls))
        tests = ""
        if recorded.tests is not None:
            report(0, 1, "test the build with the plugin")
            found = run_step(site, "test", TUNED, added).reason
            if found and not recorded.tests:
                raise RejectedError(
                    f"--test: expected the tests to pass on the tuned build as on the plain one, found: {found}; "
                    f"no plugin was written, look into {site.log(TUNED, 'test')}; {again}"
                )
            tests = "the tests pass on the plain build and on the tuned one"
            if recorded.tests:
                how = "and on the tuned one" if found else "and pass on the tuned one"
                tests = f"the tests fail on the plain build ({recorded.tests}), {how}: they say nothing of the plugin"
    return TunedBuild(
        programs=programs,
        tests=tests,
        notes=tuple(notes),
        line=_lines(options, tree, trial.published, trial.place),
    )


def _compared(config: Tune, recorded: Recorded, site: BuildSite, *, is_lto: bool) -> tuple[TunedProgram, ...]:
    """The programs of both builds; those of the second one are kept as well.

    Raises:
        RejectedError: one is larger, of a build with link-time optimization: its compile steps know nothing of that.
        StorageError: the disk is full or not writable.
    """
    found: list[TunedProgram] = []
    for name, path in programs_of(recorded, site.options).items():
        keep(path, site.kept(TUNED, name))
        program = TunedProgram(program=name, plain=weigh_image(site.kept(PLAIN, name)).row, tuned=weigh_image(path).row)
        if is_lto and config.objective in _SIZES and program.tuned.image > program.plain.image:
            raise RejectedError(
                f"--build: expected a program with -flto to be no larger with the plugin, found {name} of "
                f"{program.tuned.image:,} bytes, {program.plain.image:,} without; no plugin was written, link by lld "
                "(-fuse-ld=lld), compile and link in commands of their own, and name one program with --program, so "
                "that its link is searched"
            )
        found.append(program)
    return tuple(found)


def _lines(options: BuildOptions, tree: Path, plugin: Path, place: PluginPlace) -> str:
    places = {"both": (False, True), "link": (True,), "compile": (False,)}[place]
    return "; ".join(line_for_good(options, tree, plugin, is_link=is_link) for is_link in places)


def line_for_good(options: BuildOptions, tree: Path, plugin: Path, *, is_link: bool = False) -> str:
    """What to add to the build, by the build system that its commands and files tell of.

    Example:
        >>> line_for_good(BuildOptions(build=("meson compile -C b",)), Path("/none"), Path("/p-1a.plugin"))
        "in meson.build: add_project_arguments('-fpass-plugin=/p-1a.plugin', language: ['c', 'cpp'])"
        >>> line_for_good(BuildOptions(build=("make CFLAGS=-Os",)), Path("/none"), Path("/p-1a.plugin"))
        'to the words of the build, in place of what is there: CFLAGS="-Os -fpass-plugin=/p-1a.plugin"'
    """
    option = plugin_link_option(plugin) if is_link else f"-fpass-plugin={plugin.absolute()}"
    # What reads these words splits them at spaces.
    flag = shlex.quote(option)
    programs = " ".join(options.build)

    def has(*names: str) -> bool:
        return any((tree / name).exists() for name in names)

    if "cargo" in programs:
        return f"in the environment: CFLAGS={flag} CXXFLAGS={flag}"
    if "meson" in programs or (has("meson.build") and not has("CMakeLists.txt", "Makefile")):
        return f"in meson.build: add_project_{'link_' if is_link else ''}arguments('{option}', language: ['c', 'cpp'])"
    if "cmake" in programs or (has("CMakeLists.txt") and not has("Makefile", "configure")):
        word = option if flag == option else json.dumps(option)
        return f"in CMakeLists.txt: add_{'link' if is_link else 'compile'}_options({word})"
    if "ninja" in programs and has("build.ninja"):
        return f"to the flags of the {'linker' if is_link else 'compilers'} in build.ninja: {flag}"
    names = ("LDFLAGS",) if is_link else ("CFLAGS", "CXXFLAGS")
    if given := {name: value for name in names if (value := _given(name, options.build)) is not None}:
        words = " ".join(f'{name}="{value} {flag}"' for name, value in given.items())
        return f"to the words of the build, in place of what is there: {words}"
    where = "configure" if "configure" in programs or has("configure") else "the Makefile"
    return f"to {' and '.join(names)} of {where}, behind what they have: {flag}"


def _given(name: str, commands: Sequence[str]) -> str | None:
    """The value of a variable among the words of commands, or before them."""
    found = None
    for command in commands:
        for word in option_words(command, "--build"):
            if word.startswith(f"{name}="):
                found = word.removeprefix(f"{name}=")
    return found

"""A build that was run plainly and recorded: its database, its links, and how it is made again with a plugin."""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlgokit.builds.build import CandidatePlugin
from mlgokit.builds.compression import Compressor
from mlgokit.builds.images import LINKED, BuiltImage, holds_path, weigh_image
from mlgokit.builds.lines import format_plugin_lines
from mlgokit.builds.outside import make_outside_folder
from mlgokit.builds.programs import LinkedPrograms, choose_programs
from mlgokit.builds.site import (
    GONE,
    PLAIN,
    TUNED,
    BuildCommands,
    BuildSite,
    copies_of,
    fresh_tree,
    keep,
    put_back,
    run_step,
    state_of,
)
from mlgokit.builds.variant import PluginPlace, plugin_options, with_options
from mlgokit.compiler.build_tree import (
    UnseenObject,
    copy_sources,
    files_below,
    find_unseen_objects,
    is_copy,
    is_image,
    objects_below,
)
from mlgokit.compiler.project_calls import group_by_reason, project_calls
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import AddedOptions, WrappedProgram
from mlgokit.corpus.importers.database import module_outputs
from mlgokit.corpus.importers.recorded import RecordedLink, describe_replaced_compilers, recorded_links, write_database
from mlgokit.corpus.layout import default_project
from mlgokit.decode import read_json
from mlgokit.errors import CorpusError, InputError, RejectedError, ReuseError, UsageError
from mlgokit.files import atomic_write, writing
from mlgokit.manifest import is_ours, sign_new
from mlgokit.progress import Report
from mlgokit.terminal import counted

_RECORD = "recorded.json"
_FLAGS = ("CC", "CXX", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "LDLIBS", "LIBS")
"""Variables of the environment that make, CMake, Meson and configure scripts take options from."""
_MOST_NAMED = 5
_BY_RUSTC = "rustc makes its code: `mlgokit tune --cargo` tunes that"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBuild:
    """A plain build that was recorded.

    Attributes:
        site: where it ran, and runs again.
        links: what it linked, by the path of what was written.
        sources: size and time of change of what was compiled.
        objects: paths of what was compiled.
        tests: why the tests failed on it, empty if they did not; ``None`` without tests.
        left_out: objects that were not compiled by the recorded build, with the reason.
        in_place_of: which compilers of the build our clang stood in for.
        seconds: elapsed time of the plain build and its tests.
        added: what all of its builds are compiled with, beside the options of its own commands, such as a profile.
    """

    site: BuildSite
    links: Mapping[Path, RecordedLink]
    sources: Mapping[str, tuple[int, int]]
    objects: frozenset[str]
    tests: str | None = None
    left_out: Mapping[str, str]
    in_place_of: str = ""
    seconds: float = 0.0
    added: AddedOptions = field(default_factory=AddedOptions)

    @property
    def tree(self) -> Path:
        """Where the build ran."""
        return self.site.tree

    @property
    def project(self) -> str | None:
        """First component of the names of the build's modules."""
        return default_project(self.site.commands.build_folder)

    def programs(self) -> dict[str, Path]:
        """The programs that are compared, by their paths below the folder of the build.

        Raises:
            UsageError: the build links no such program.
        """
        commands, tree = self.site.commands, self.tree
        linked = {path.relative_to(tree).as_posix(): path for path in self.links if path.is_relative_to(tree)}
        chosen = choose_programs(commands.program, linked, folder=commands.build_folder, tree=tree)
        return {name: linked[name] for name in chosen}

    def linked_programs(self) -> LinkedPrograms:
        """The programs that are compared, with their links.

        Raises:
            UsageError: as of :meth:`programs`.
        """
        programs = self.programs()
        return LinkedPrograms(
            links={name: self.links[path] for name, path in programs.items()},
            images={name: self.site.kept(PLAIN, name) for name in programs},
            outputs=module_outputs(self.site.database, project=self.project),
        )

    def link(self) -> RecordedLink:
        """The link that is judged.

        Raises:
            UsageError: the build links several programs, and none or several were named.
        """
        programs = self.programs()
        if len(programs) != 1:
            named = ", ".join(sorted(programs)[:_MOST_NAMED]) or "none"
            raise UsageError(
                f"--objective: expected one program to judge by, found {named}; name one with --program, "
                "or give --link-command"
            )
        (path,) = programs.values()
        return self.links[path]


def record_plain(
    commands: BuildCommands,
    folder: Path,
    *,
    go_on: bool,
    toolchain: Toolchain,
    added: AddedOptions = AddedOptions(),  # noqa: B008  (frozen)
    report: Report,
) -> RecordedBuild:
    """Build plainly, write down what is compiled and linked, and test.

    With ``go_on`` a build that was recorded for the folder of the tuning stays, if it was of the same sources; in the
    user's own folder it is always made again. ``added`` are options of all compilations beside those of the commands.

    Raises:
        CorpusError: the build failed.
        ReuseError: another build was recorded for this folder.
        StorageError: the disk is full or not writable.
        UsageError: the build compiles nothing that the wrappers see, or does not link a program that was named.
    """
    place = folder.resolve() / "build"
    settings: dict[str, object] = {
        "build": list(commands.build),
        "test": list(commands.test),
        "clean": list(commands.clean),
        "folder": str(commands.build_folder.resolve()),
        "compiler": toolchain.version_text,
    }
    if added.compile:
        settings["added"] = list(added.compile)
    if given := {name: os.environ[name] for name in _FLAGS if name in os.environ}:
        settings["variables"] = given
    tree, configured = commands.build_folder.resolve(), ()
    recorded = _recalled(commands, place, settings, toolchain, added) if go_on else None
    # In the user's own folder the last build was with the plugin, and any file may have changed.
    if recorded is not None and not commands.clean:
        if is_copy(tree, copies_of(recorded.tree) / "source", without=folder):
            return recorded
        report(0, 1, "the folder of the build changed: it is built and recorded again")
    if place.is_dir() and any(place.iterdir()) and not is_ours(place):
        raise ReuseError(
            f"{place}: expected a folder that does not exist or that mlgokit made, found one with other files; "
            "name another --folder"
        )
    with writing(place):
        shutil.rmtree(place, ignore_errors=True)
    sign_new(place, "build")
    if not commands.clean:
        sizes = [path.lstat().st_size for path in files_below(tree, without=folder)]
        report(0, 1, f"copy the folder of the build: {len(sizes):,} files, {sum(sizes) / 1e6:,.0f} MB")
        copies = make_outside_folder(folder, anew=True)
        configured = copy_sources(tree, copies / "source", without=folder)
        if configured:
            names = ", ".join(map(str, configured))
            report(1, 1, f"not copied, because CMake or Meson configured it with absolute paths: {names}")
        tree = copies / "tree" / tree.name
        copy_sources(copies / "source", tree)
    site = BuildSite(commands=commands, place=place, tree=tree, toolchain=toolchain)
    began = time.monotonic()
    recorded = _record(site, configured, added, report=report)
    recorded.programs()
    recorded = dataclasses.replace(recorded, tests=_tested(site, added, report), seconds=time.monotonic() - began)
    found = {
        "tree": str(tree),
        "links": {str(path): [link.command, str(link.folder)] for path, link in recorded.links.items()},
        "sources": dict(recorded.sources),
        "objects": sorted(recorded.objects),
        "tests": recorded.tests,
        "left_out": dict(recorded.left_out),
        "in_place_of": recorded.in_place_of,
        "seconds": recorded.seconds,
    }
    atomic_write(place / _RECORD, json.dumps({"settings": settings, "build": found}, indent=1))
    return recorded


def _record(site: BuildSite, configured: Sequence[Path], added: AddedOptions, *, report: Report) -> RecordedBuild:
    commands, tree, place, toolchain = site.commands, site.tree, site.place, site.toolchain
    if commands.clean and (reason := run_step(site, "clean", PLAIN, AddedOptions()).reason):
        raise CorpusError(f"--clean: expected this command to succeed before the build, found: {reason}; correct it")
    report(0, 1, "plain build, recorded")
    before = objects_below(tree, without=place.parent)
    build = run_step(site, "build", PLAIN, added, keeps_sources=True)
    if build.reason:
        raise CorpusError(
            f"--build: expected the plain build by clang {toolchain.version} to succeed, found: {build.reason}; "
            f"look into {site.log(PLAIN, 'build')}{_without(configured)}"
        )
    project = project_calls(build, tree)
    calls = project.calls
    # A compilation runs with these words, which the build's own commands do not have.
    compiled = [dataclasses.replace(call, words=(*call.words, *added.compile)) for call in calls]
    written = write_database(compiled, site.database, kept=site.kept_sources)
    with writing(site.wrapping):
        shutil.rmtree(site.wrapping)
    passed = find_unseen_objects(tree, build, before=before, without=place.parent)
    if not written.entries:
        raise _nothing_recorded(commands, passed, build.programs)
    lost = (*project.left_out, *written.left_out)
    left_out = {one.path.relative_to(tree).as_posix(): _reason(one) for one in passed} | group_by_reason(lost)
    left_out |= {f"{one.crate} ({one.kind})": _BY_RUSTC for one in build.programs}
    if passed or lost:
        name, reason = next(iter(left_out.items()))
        report(written.entries, project.seen + len(passed), f"objects recorded; not {name}: {reason}")
    links = {path: link for path, link in recorded_links(calls).items() if is_image(path)}
    for path in links:
        if path.is_relative_to(tree):
            keep(path, site.kept(PLAIN, path.relative_to(tree).as_posix()))
    return RecordedBuild(
        site=site,
        links=links,
        sources={str(path): state_of(path) for call in calls for path in call.sources if path.is_relative_to(tree)},
        objects=frozenset(str(path) for call in calls if call.kind != "link" for path in call.outputs),
        left_out=left_out,
        in_place_of=describe_replaced_compilers(calls),
        added=added,
    )


def _without(configured: Sequence[Path]) -> str:
    if not configured:
        return ""
    return (
        f"; the build runs in a copy without {', '.join(map(str, configured))}, which contain absolute paths: "
        "configure in an earlier --build, or give --clean to build in the folder itself"
    )


def _tested(site: BuildSite, added: AddedOptions, report: Report) -> str | None:
    """Why the tests fail on the plain build, empty if they do not; nothing without tests."""
    if not site.commands.test:
        return None
    report(0, 1, "test the plain build")
    tests = run_step(site, "test", PLAIN, added).reason
    if tests:
        report(1, 1, f"the tests fail on the plain build: {tests}; look into {site.log(PLAIN, 'test')}")
    return tests


def _recalled(
    commands: BuildCommands, place: Path, settings: Mapping[str, object], toolchain: Toolchain, added: AddedOptions
) -> RecordedBuild | None:
    """The build that was recorded; ``None`` without one, or if its copy is gone."""
    path, remedy = place / _RECORD, "put back a copy of it, or delete it: the plain build is then recorded again"
    if not path.exists():
        return None
    value = read_json(path, expected="the record of the plain build", remedy=remedy)
    try:
        given, found = value["settings"], value["build"]
        names = (*settings, *(given.keys() - settings.keys()))
        different = next((name for name in names if given.get(name) != settings.get(name)), None)
        if different is None:
            site = BuildSite(commands=commands, place=place, tree=Path(found["tree"]), toolchain=toolchain)
            return _recorded_in(site, found, added)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: expected the record of the plain build, found {error!r:.200}; {remedy}") from error
    raise ReuseError(
        f"{place}: expected the build that was recorded there before, found one that differs in {different}; give "
        "the same commands and variables, or name another --folder"
    )


def _recorded_in(site: BuildSite, found: dict[str, Any], added: AddedOptions) -> RecordedBuild | None:
    if not site.commands.clean:
        put_back(copies_of(site.tree))
    if not site.tree.is_dir():
        return None
    return RecordedBuild(
        site=site,
        links={
            Path(path): RecordedLink(command=command, folder=Path(folder), output=Path(path))
            for path, (command, folder) in found["links"].items()
        },
        sources={path: (size, changed) for path, (size, changed) in found["sources"].items()},
        objects=frozenset(found["objects"]),
        tests=found["tests"],
        left_out=found["left_out"],
        in_place_of=found.get("in_place_of", ""),
        seconds=found.get("seconds", 0.0),
        added=added,
    )


def _nothing_recorded(
    commands: BuildCommands, passed: Sequence[UnseenObject], programs: Sequence[WrappedProgram]
) -> UsageError:
    if programs:
        return UsageError(
            f"--build: expected a build that compiles C or C++, found that rustc makes {programs[0].crate}; "
            "give the command of cargo with --cargo in place of --build"
        )
    new = [one for one in passed if one.is_new]
    if new:
        return UsageError(
            f"--build: {len(new)} objects were made by a compiler that bypassed the wrappers, such as "
            f"{new[0].path} by {new[0].compiler}; start compilers by name, by CC or CXX, or by an absolute path, "
            "and do not clear the environment"
        )
    there = f"{len(passed)} objects that were there before" if passed else "no object"
    remedy = "have --clean remove them" if commands.clean else "add --clean, as in --clean 'make clean'"
    return UsageError(
        f"--build: expected a build that compiles C or C++, found no compilation and {there}; {remedy}, "
        "or build a clean checkout"
    )


def _reason(one: UnseenObject) -> str:
    if one.is_new:
        return f"it bypassed the wrappers (compiled by {one.compiler})"
    return "it was already up to date before the build: clean first"


# --- Made again with a plugin ---


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedProgram:
    """A program or library that the user's build links, by its path below the folder, without and with the plugin."""

    program: str
    plain: BuiltImage
    tuned: BuiltImage

    @property
    def is_linked(self) -> bool:
        """Whether the program was linked in both builds."""
        return self.plain.status == self.tuned.status == LINKED


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBuild:
    """The user's build, made and tested with the plugin before that was published.

    ``tests`` and ``notes`` are sentences for the user, and ``line`` is what to add to the build for good, and where.
    """

    programs: tuple[TunedProgram, ...]
    tests: str
    notes: tuple[str, ...]
    line: str


def try_plugin(
    recorded: RecordedBuild,
    candidate: CandidatePlugin,
    place: PluginPlace,
    *,
    by_size: bool,
    compressor: Compressor | None = None,
    remedy: str = "no plugin was written, `--continue --budget 0s` tries again",
    run: Callable[[], None] = lambda: None,
    report: Report,
) -> TunedBuild:
    """Build once more with the plugin, test, and compare.

    Args:
        recorded: the plain build.
        candidate: the plugin.
        place: the steps of the build that load it.
        by_size: whether it was tuned for bytes, so that no program may be larger.
        compressor: measures the files of programs.
        remedy: what to do if the build or its tests fail with the plugin.
        run: called where the build with the plugin is, once it is tested.
        report: told what is done.

    Raises:
        RejectedError: the build fails with it, or the tests do, which passed on the plain build; or a program that is
            linked with link-time optimization is larger.
        StorageError: the disk is full or not writable.
    """
    site = recorded.site
    commands, tree = site.commands, site.tree
    added, notes = with_options(plugin_options(candidate.file, place), recorded.added), list[str]()
    with fresh_tree(site):
        # What the build itself writes is not there yet.
        changed = [path for path, facts in recorded.sources.items() if state_of(Path(path)) not in (facts, GONE)]
        if changed:
            notes.append(
                f"{counted(len(changed), 'source')}, such as {changed[0]}, changed after the build was recorded"
            )
        if commands.clean:
            run_step(site, "clean", TUNED, AddedOptions())
        report(0, 1, "build with the plugin")
        build = run_step(site, "build", TUNED, added)
        if build.reason:
            raise RejectedError(
                f"--build: expected the build with the plugin to succeed as the plain one did, found: {build.reason}; "
                f"look into {site.log(TUNED, 'build')}; {remedy}"
            )
        calls = project_calls(build, tree).calls
        made = {str(path) for call in calls for path in call.outputs}
        if missing := sorted(recorded.objects - made):
            notes.append(
                f"{len(missing)} objects, such as {missing[0]}, were not compiled again and so have no plugin: "
                "--clean does not remove them"
            )
        if others := [path.name for call in calls if call.lto_linker == "other" for path in call.outputs]:
            notes.append(
                f"the linker of link-time optimization of {others[0]} does not load the plugin: link with -fuse-ld=lld"
            )
        programs = _compared(
            recorded, must_shrink=by_size and any(call.lto_linker for call in build.calls), compressor=compressor
        )
        if held := [name for name, path in recorded.programs().items() if holds_path(path, tree)]:
            notes.append(
                f"{held[0]}{f' and {len(held) - 1} more' if held[1:] else ''}: the path of the folder of the build is "
                "inside, so a build elsewhere has some bytes more or less, with the plugin as without"
            )
        tests = ""
        if recorded.tests is not None:
            report(0, 1, "test the build with the plugin")
            found = run_step(site, "test", TUNED, added).reason
            if found and not recorded.tests:
                raise RejectedError(
                    f"--test: expected the tests to pass on the tuned build as on the plain one, found: {found}; "
                    f"look into {site.log(TUNED, 'test')}; {remedy}"
                )
            tests = "the tests pass on the plain build and on the tuned one"
            if recorded.tests:
                how = "and on the tuned one" if found else "and pass on the tuned one"
                tests = (
                    f"the tests already fail on the plain build ({recorded.tests}), {how}, so they do not "
                    "test the plugin"
                )
        run()
    return TunedBuild(
        programs=programs,
        tests=tests,
        notes=tuple(notes),
        line=format_plugin_lines(commands, tree, candidate.published, place, beside=recorded.added.compile),
    )


def _compared(recorded: RecordedBuild, *, must_shrink: bool, compressor: Compressor | None) -> tuple[TunedProgram, ...]:
    """The programs of both builds; those of the second one are kept as well.

    Of a build with link-time optimization none may be larger: its compile steps know nothing of that.
    """
    site, found = recorded.site, list[TunedProgram]()
    for name, path in recorded.programs().items():
        keep(path, site.kept(TUNED, name))
        plain, tuned = (weigh_program(image, compressor) for image in (site.kept(PLAIN, name), path))
        program = TunedProgram(program=name, plain=plain, tuned=tuned)
        if must_shrink and program.tuned.image > program.plain.image:
            raise RejectedError(
                f"--build: expected a program with -flto to be no larger with the plugin, found {name} of "
                f"{program.tuned.image:,} bytes, {program.plain.image:,} without; no plugin was written, link by lld "
                "(-fuse-ld=lld), compile and link in separate commands, and name one program with --program, so "
                "that its link is searched"
            )
        found.append(program)
    return tuple(found)


def weigh_program(image: Path, compressor: Compressor | None) -> BuiltImage:
    """What a program weighs, with its stripped file where a compressor can strip it."""
    row = weigh_image(image).row
    if compressor is None or row.status != LINKED:
        return row
    try:
        stripped, compressed = compressor.measure(image)
    except InputError as error:
        return dataclasses.replace(row, reason=str(error))
    return dataclasses.replace(row, file=stripped, compressed=compressed)

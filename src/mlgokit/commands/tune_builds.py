"""Tunings of a whole build: it is run plainly and written down; what it compiles is tuned, what it links is judged."""

import dataclasses
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.builds.link import OUTPUT
from mlgokit.commands.build_site import (
    PLAIN,
    BuildOptions,
    BuildSite,
    build_commands,
    copies_of,
    keep,
    put_back,
    run_step,
    state_of,
)
from mlgokit.commands.outside import outside
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.build_tree import PassedObject, copy_sources, is_image, objects_below, objects_passed_by
from mlgokit.compiler.project_calls import grouped, project_calls
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import AddedOptions, WrappedProgram
from mlgokit.corpus.importers.database import lto_kinds
from mlgokit.corpus.importers.recorded import RecordedLink, in_place_of, recorded_links, write_database
from mlgokit.errors import CorpusError, InputError, ReuseError, UsageError
from mlgokit.evaluation.decode import read_json
from mlgokit.files import atomic_write, writing
from mlgokit.manifest import is_ours, sign_new
from mlgokit.progress import Report

_RECORD = "recorded.json"
_TUNED_TREE = "tuned-tree"
"""The file that says that the user's own folder has the build with the plugin."""
_MOST_NAMED = 5
_BY_RUSTC = "rustc makes its code: `mlgokit tune --cargo` tunes that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A plain build that was recorded.

    Attributes:
        place: folder for what the builds print, and for the programs.
        tree: where the build ran, and runs again.
        database: its compilation database.
        links: what it linked, by the path of what was written.
        sources: size and time of change of what was compiled.
        objects: paths of what was compiled.
        tests: why the tests failed on it, empty if they did not; ``None`` without tests.
        left_out: objects that were not compiled by the recorded build, with the reason.
        in_place_of: which compilers of the build our clang stood in for.
    """

    place: Path
    tree: Path
    database: Path
    links: Mapping[Path, RecordedLink]
    sources: Mapping[str, tuple[int, int]]
    objects: frozenset[str]
    tests: str | None
    left_out: Mapping[str, str]
    in_place_of: str = ""


def check_build(config: Tune) -> None:
    """Refuse options of a build without one, a build beside another source, and commands that are none.

    Raises:
        UsageError: such a call.
    """
    options = config.built
    if not options.build:
        for name in ("test", "program", "clean"):
            if getattr(options, name) and not (name == "test" and config.cargo is not None):
                raise UsageError(f"--{name}: expected --build with it, found none; add it or leave this out")
        return
    if config.compile_commands is not None or config.corpus is not None:
        raise UsageError("tune: expected one of --build, --compile-commands and --corpus, found several; name one")
    given = next((option for option, is_given in config.database.given.items() if is_given), None)
    if given is not None:
        raise UsageError(
            f"{given}: expected it with --compile-commands, found it with --build, which clang compiles; leave it out"
        )
    if config.level is not None:
        raise UsageError(
            "--level: expected it with --compile-commands, found it with --build, which has its own; build with -Oz"
        )
    folder = options.build_folder
    if not folder.is_dir():
        raise UsageError(f"--build-folder {folder}: expected a folder with sources to build, found none; correct it")
    _check_programs(options)
    if (config.folder / "search").exists() and not config.go_on:
        raise ReuseError(
            f"{config.folder / 'search'}: expected a new folder, found a search; "
            "add --continue to go on with it, or name another --folder"
        )


def _check_programs(options: BuildOptions) -> None:
    for option in ("build", "clean", "test"):
        for words in build_commands(options, option):
            if "/" not in words[0] and shutil.which(words[0]) is None:
                raise UsageError(
                    f"--{option}: expected a program in {shlex.join(words)}, found no {words[0]}; check the name"
                )


def record_plain(config: Tune, toolchain: Toolchain, *, report: Report) -> Recorded:
    """Build plainly, write down what is compiled and linked, and test; a build that was recorded for this folder stays.

    Raises:
        CorpusError: the build failed.
        ReuseError: another build was recorded for this folder.
        StorageError: the disk is full or not writable.
        UsageError: the build compiles nothing that the wrappers see, or does not link a program that was named.
    """
    options, place = config.built, config.folder.resolve() / "build"
    settings: dict[str, object] = {
        "build": list(options.build),
        "test": list(options.test),
        "clean": list(options.clean),
        "folder": str(options.build_folder.resolve()),
        "compiler": toolchain.version_text,
    }
    recorded = _recalled(place, settings, in_copy=not options.clean) if config.go_on else None
    if recorded is not None:
        kinds = lto_kinds(recorded.database)
        if (place / _TUNED_TREE).exists() and (kinds["full"] or kinds["thin"]):
            _build_again(BuildSite(options=options, place=place, tree=recorded.tree, toolchain=toolchain), report)
        return recorded
    if _is_foreign(place):
        raise ReuseError(
            f"{place}: expected a folder that mlgokit made, or none, found other files; name another --folder"
        )
    with writing(place):
        shutil.rmtree(place, ignore_errors=True)
    sign_new(place, "build")
    tree, configured = options.build_folder.resolve(), ()
    if not options.clean:
        report(0, 1, "copy the folder of the build")
        copies = outside(config.folder, anew=True)
        configured = copy_sources(tree, copies / "source", without=config.folder)
        if configured:
            report(1, 1, f"not copied, as configured for its own place: {', '.join(map(str, configured))}")
        tree = copies / "tree" / tree.name
        copy_sources(copies / "source", tree)
    site = BuildSite(options=options, place=place, tree=tree, toolchain=toolchain)
    recorded = _record(site, configured, report=report)
    programs_of(recorded, options)
    recorded = dataclasses.replace(recorded, tests=_tested(site, report))
    found = {
        "tree": str(tree),
        "links": {str(path): [link.command, str(link.folder)] for path, link in recorded.links.items()},
        "sources": dict(recorded.sources),
        "objects": sorted(recorded.objects),
        "tests": recorded.tests,
        "left_out": dict(recorded.left_out),
        "in_place_of": recorded.in_place_of,
    }
    atomic_write(place / _RECORD, json.dumps({"settings": settings, "build": found}, indent=1))
    return recorded


def note_tuned_tree(recorded: Recorded) -> None:
    """Write down that the tree will not be that of the plain build any more.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(recorded.place / _TUNED_TREE, "")


def _build_again(site: BuildSite, report: Report) -> None:
    """The plain build in the user's folder once more: a link with ``-flto`` takes the objects that are there."""
    report(0, 1, "plain build once more, as the folder has the one with the plugin")
    for what in ("clean", "build"):
        if reason := run_step(site, what, PLAIN, AddedOptions()).reason:
            raise CorpusError(
                f"--{what}: expected the plain build to succeed as it did before, found: {reason}; look into "
                f"{site.log(PLAIN, what)}"
            )
    with writing(site.place):
        (site.place / _TUNED_TREE).unlink(missing_ok=True)


def programs_of(recorded: Recorded, options: BuildOptions) -> dict[str, Path]:
    """The programs that are compared, by their paths below the folder of the build.

    Raises:
        UsageError: the build links no such program.
    """
    found = {
        path.relative_to(recorded.tree).as_posix(): path
        for path in recorded.links
        if path.is_relative_to(recorded.tree)
    }
    if not options.program:
        return found
    chosen: dict[str, Path] = {}
    for wanted in options.program:
        text = wanted.as_posix().removeprefix(f"{options.build_folder.resolve().as_posix()}/")
        names = (
            [name for name in found if name == text]
            or [name for name, path in found.items() if _is_same(recorded.tree / text, path)]
            or [name for name in found if Path(name).name == wanted.name]
            or [name for name, path in found.items() if _is_same(path.with_name(wanted.name), path)]
        )
        if not names:
            others = ", ".join(sorted(found)[:_MOST_NAMED]) or "nothing"
            raise UsageError(
                f"--program {wanted}: expected a program that the build links, found that it links {others}; "
                "correct the path, or leave it out"
            )
        chosen |= {name: found[name] for name in names}
    return chosen


def _is_same(path: Path, linked: Path) -> bool:
    """Whether a program lies where it was linked to, under another name, as cargo and versions of libraries have it."""
    try:
        return path.samefile(linked)
    except OSError:
        return False


def link_of(recorded: Recorded, options: BuildOptions) -> RecordedLink:
    """The link that is judged.

    Raises:
        UsageError: the build links several programs, and none or several were named.
    """
    programs = programs_of(recorded, options)
    if len(programs) != 1:
        named = ", ".join(sorted(programs)[:_MOST_NAMED]) or "none"
        raise UsageError(
            f"--objective: expected one program to judge by, found {named}; name one with --program, "
            "or give --link-command"
        )
    (path,) = programs.values()
    return recorded.links[path]


def with_recorded(config: Tune, recorded: Recorded) -> Tune:
    """The call as it would be with the files of the recorded build."""
    config = dataclasses.replace(config, compile_commands=recorded.database)
    is_linked = config.objective == "linked" or (config.command is not None and OUTPUT in config.command)
    if config.link_command is not None or not is_linked:
        return config
    link = link_of(recorded, config.built)
    return dataclasses.replace(config, link_command=link.command, link_folder=link.folder)


def _record(site: BuildSite, configured: Sequence[Path], *, report: Report) -> Recorded:
    options, tree, place, toolchain, none = site.options, site.tree, site.place, site.toolchain, AddedOptions()
    if options.clean and (reason := run_step(site, "clean", PLAIN, none).reason):
        raise CorpusError(f"--clean: expected it to succeed before the build, found: {reason}; correct it")
    report(0, 1, "plain build, recorded")
    before = objects_below(tree, without=place.parent)
    build = run_step(site, "build", PLAIN, none, keeps_sources=True)
    if build.reason:
        raise CorpusError(
            f"--build: expected the plain build by clang {toolchain.version} to succeed, found: {build.reason}; "
            f"look into {site.log(PLAIN, 'build')}{_without(configured)}"
        )
    project = project_calls(build, tree)
    calls = project.calls
    # Not within what is tuned: names of modules count from the database's folder.
    database = (tree if not options.clean else place) / "mlgokit_commands.json"
    written = write_database(calls, database, kept=site.kept_sources)
    with writing(site.wrapping):
        shutil.rmtree(site.wrapping)
    passed = objects_passed_by(tree, build, before=before, without=place.parent)
    if not written.entries:
        raise _nothing_recorded(options, passed, build.programs)
    lost = (*project.left_out, *written.left_out)
    left_out = {one.path.relative_to(tree).as_posix(): _reason(one) for one in passed} | grouped(lost)
    left_out |= {f"{one.crate} ({one.kind})": _BY_RUSTC for one in build.programs}
    if passed or lost:
        name, reason = next(iter(left_out.items()))
        report(written.entries, project.seen + len(passed), f"objects recorded; not {name}: {reason}")
    links = {path: link for path, link in recorded_links(calls).items() if is_image(path)}
    for path in links:
        if path.is_relative_to(tree):
            keep(path, site.kept(PLAIN, path.relative_to(tree).as_posix()))
    objects = {str(path) for call in calls if call.kind != "link" for path in call.outputs}
    return Recorded(
        place=place,
        tree=tree,
        database=database,
        links=links,
        sources={str(path): state_of(path) for call in calls for path in call.sources if path.is_relative_to(tree)},
        objects=frozenset(objects),
        tests=None,
        left_out=left_out,
        in_place_of=in_place_of(calls),
    )


def _without(configured: Sequence[Path]) -> str:
    if not configured:
        return ""
    return (
        f"; what is built is a copy without {', '.join(map(str, configured))}, configured for its own place: configure "
        "in a --build before this one, or give --clean to build in the folder itself"
    )


def _tested(site: BuildSite, report: Report) -> str | None:
    """Why the tests fail on the plain build, empty if they do not; nothing without tests."""
    if not site.options.test:
        return None
    report(0, 1, "test the plain build")
    tests = run_step(site, "test", PLAIN, AddedOptions()).reason
    if tests:
        report(1, 1, f"the tests fail on the plain build: {tests}; look into {site.log(PLAIN, 'test')}")
    return tests


def _is_foreign(place: Path) -> bool:
    """Whether something else than builds of a tuning is in a folder."""
    return place.is_dir() and any(place.iterdir()) and not is_ours(place)


def _recalled(place: Path, settings: Mapping[str, object], *, in_copy: bool) -> Recorded | None:
    """The build that was recorded; ``None`` without one, or if its copy is gone.

    Raises:
        InputError: the file is damaged.
        ReuseError: another build was recorded.
    """
    path, remedy = place / _RECORD, "put back a copy of it, or delete it: the plain build is then recorded anew"
    if not path.exists():
        return None
    value = read_json(path, expected="the build that was recorded there", remedy=remedy)
    try:
        given, found = value["settings"], value["build"]
        different = next((name for name in settings if given.get(name) != settings[name]), None)
        if different is None:
            return _recorded_in(place, found, in_copy=in_copy)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: expected the build that was recorded there, found {error!r:.200}; {remedy}"
        ) from error
    raise ReuseError(
        f"{place}: expected the build that was recorded there, found another {different}; "
        "give the same commands, or name another --folder"
    )


def _recorded_in(place: Path, found: dict[str, Any], *, in_copy: bool) -> Recorded | None:
    tree = Path(found["tree"])
    if in_copy:
        put_back(copies_of(tree))
    if not tree.is_dir():
        return None
    return Recorded(
        place=place,
        tree=tree,
        database=(tree if in_copy else place) / "mlgokit_commands.json",
        links={
            Path(path): RecordedLink(command=command, folder=Path(folder), output=Path(path))
            for path, (command, folder) in found["links"].items()
        },
        sources={path: (size, changed) for path, (size, changed) in found["sources"].items()},
        objects=frozenset(found["objects"]),
        tests=found["tests"],
        left_out=found["left_out"],
        in_place_of=found.get("in_place_of", ""),
    )


def _nothing_recorded(
    options: BuildOptions, passed: Sequence[PassedObject], programs: Sequence[WrappedProgram]
) -> UsageError:
    if programs:
        return UsageError(
            f"--build: expected a build that compiles C or C++, found that rustc makes {programs[0].crate}; "
            "give the command of cargo with --cargo in place of --build"
        )
    new = [one for one in passed if one.is_new]
    if new:
        return UsageError(
            f"--build: expected compilers that are started by name, through CC, CXX or a whole path, found {len(new)} "
            f"objects of one that went past, such as {new[0].path} by {new[0].compiler}; start it by its name, and "
            "keep the environment"
        )
    there = f"{len(passed)} objects that were there before" if passed else "no object"
    remedy = "have --clean remove them" if options.clean else "add --clean, as in --clean 'make clean'"
    return UsageError(
        f"--build: expected a build that compiles C or C++, found no compilation and {there}; {remedy}, "
        "or build a clean checkout"
    )


def _reason(one: PassedObject) -> str:
    if one.is_new:
        return f"it went past the wrappers, compiled by {one.compiler}"
    return "it was there before the build and up to date: clean first"

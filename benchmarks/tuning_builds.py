"""Builds real projects through the doors that docs/how-to/tune.md shows, runs their tests, and weighs the results."""

import dataclasses
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_systems import BUILD_SYSTEMS
from harness import clean_environment, run_mlgokit
from tuning_projects import TunedProject

from mlgokit.compiler import process
from mlgokit.compiler.objects import elf
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective, measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive
from mlgokit.corpus.sources.projects import Archive
from mlgokit.corpus.sources.unpack import unpack_archive
from mlgokit.errors import ToolError
from mlgokit.files import atomic_write
from mlgokit.manifest import digest_value
from mlgokit.progress import Report

FLAGS = ("-Oz", "-ffunction-sections", "-fdata-sections")
LINKING = ("-Wl,--gc-sections",)
MERGING = ("-Xclang", "-fmerge-functions")
DATABASE_NAME = "compile_commands.json"
PLAIN = {"": "plain", "-flto": "lto", "-flto=thin": "thin"}
"""Folders of builds without a plugin, by their flag of link-time optimization."""
SECTIONS = ((".text",), (".rodata", ".gcc_except_table"), (".eh_frame", ".eh_frame_hdr"))
_SHOWN = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """A linked file's bytes by section: ``.text``; ``.rodata`` and exception tables; unwind tables; all of them."""

    text: int
    rodata: int
    eh_frame: int
    image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One build of a project, with its tests run.

    Attributes:
        image: the project's own program or shared library.
        tests: how many tests ran, as far as their output says.
        seconds: processor time of compiling and linking.
    """

    image: Bytes
    tests: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The library's objects in two builds.

    Attributes:
        plain_bytes: the account of the objects of the plain build, each COMDAT signature once.
        tuned_bytes: the same of the other one.
        larger: objects whose code, read-only data and unwind tables together are larger than in the plain build.
    """

    plain_bytes: float
    tuned_bytes: float
    larger: tuple[str, ...]


def source_folder(project: TunedProject, folder: Path) -> Path:
    """Fetch and unpack a project, once, so that its build can begin.

    Archives are unpacked without permissions and times: scripts are made executable again, and all files equally old,
    or make would renew what a release ships ready-made.

    Raises:
        FetchError: no server gave the archive, or it is not what the list says.
    """
    return (unpacked(project.archive, folder / project.name / "source") / project.root).resolve()


def unpacked(archive: Archive, place: Path) -> Path:
    """The folder ``place`` with what is in an archive; see :func:`source_folder`.

    Raises:
        FetchError: no server gave the archive, or it is not what the list says.
    """
    if not place.is_dir():
        unpack_archive(fetch_archive(archive, cache_folder=default_cache_folder()), place)
        for path in place.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    if file.read(2) == b"#!":
                        path.chmod(0o755)
                os.utime(path, (0, 10**9))
    return place.resolve()


def build_project(
    project: TunedProject,
    build: Path,
    *,
    source: Path,
    toolchain: Toolchain,
    plugin_flag: str,
    workers: int,
    linking: Sequence[str] = LINKING,
    runs_tests: bool = True,
) -> Built:
    """Configure and build a project, and run its tests.

    Args:
        project: which one.
        build: the folder to build in; made anew.
        source: its sources.
        toolchain: whose clang.
        plugin_flag: what tuning says to add to the compiler's flags; empty for the plain build. Several are one text.
        workers: compilers at once.
        linking: flags of all links.
        runs_tests: whether the tests run.

    Raises:
        ToolError: a command fails, the tests among them.
    """
    shutil.rmtree(build, ignore_errors=True)
    if project.system == "Make":
        shutil.copytree(source, build)
    build.mkdir(parents=True, exist_ok=True)
    build = build.resolve()
    flags = [*FLAGS, *project.flags]
    flags += [] if project.assertions else ["-DNDEBUG"]
    flags += shlex.split(plugin_flag)
    configure, compile_words, make_words = BUILD_SYSTEMS[project.system](build, source, toolchain, flags, linking)
    marks = {"{source}": str(source), "{build}": str(build), "{cc}": str(toolchain.clang)}
    marks["{linking}"] = shlex.join(linking)
    options = filled(project.options, marks, make_words)
    seconds = 0.0
    if configure:
        seconds += run_command(project.name, [*configure, *options], build, seconds=project.seconds).user_seconds
    else:
        compile_words = [*compile_words, *options]
    jobs = [f"-j{workers}"]
    begun = run_command(project.name, [*compile_words, *jobs, *project.targets], build, seconds=project.seconds)
    seconds += begun.user_seconds
    image = weigh(image_of(project, build))
    (place,) = filled([project.tests_folder], marks, [])
    output = ""
    for words in project.tests if runs_tests else ():
        argv = filled(words, marks, make_words)
        if argv[0].startswith("./"):
            argv[0] = str(build / argv[0])
        done = run_command(project.name, argv, Path(place), seconds=project.seconds)
        output += done.stdout.decode("utf-8", "replace")
    counts = [int(group) for found in re.finditer(project.counted, output) for group in found.groups() if group]
    return Built(image=image, tests=sum(counts), seconds=seconds)


def filled(words: Sequence[str], marks: Mapping[str, str], make_words: Sequence[str] = ()) -> list[str]:
    """The words with their marks filled in, and ``{make}`` replaced by the words of make."""
    found: list[str] = []
    for word in words:
        if word == "{make}":
            found += make_words
            continue
        found.append(re.sub(r"\{[a-z]+\}", lambda mark: marks.get(mark[0], mark[0]), word))
    return found


def run_command(name: str, argv: Sequence[str], folder: Path, *, seconds: float) -> process.Completed:
    """Run one command of the build of the project ``name``.

    Raises:
        ToolError: it fails, or does not end in time.
    """
    done = process.run(argv, timeout_seconds=seconds, cwd=folder, env=clean_environment())
    if done.returncode != 0:
        how = "did not end" if done.timed_out else f"ended with {done.returncode}"
        said = (done.stdout[-_SHOWN:].decode("utf-8", "replace") + done.stderr[-_SHOWN:]).strip()
        raise ToolError(
            f"{name}: expected `{shlex.join(argv)[:400]}` to succeed in {folder}, found that it {how}; "
            f"see the end of what it said:\n{said}"
        )
    return done


def image_of(project: TunedProject, build: Path) -> Path:
    """The program or shared library that the project ships.

    Raises:
        ToolError: the build has none.
    """
    found = sorted(path for path in build.glob(project.image) if path.is_file() and not path.is_symlink())
    if not found:
        raise ToolError(
            f"{project.name}: expected {project.image} in {build}, found none; correct the list of projects"
        )
    return found[0]


def weigh(path: Path) -> Bytes:
    """Weigh a program or shared library, without the tables that only the dynamic linker reads."""
    linked = elf.read_elf(path)
    sizes = dict(zip(linked.names, linked.sections["size"].tolist(), strict=True))
    text, rodata, eh_frame = (sum(sizes.get(name, 0) for name in names) for names in SECTIONS)
    return Bytes(text=text, rodata=rodata, eh_frame=eh_frame, image=text + rodata + eh_frame)


def prepare(
    project: TunedProject,
    folder: Path,
    *,
    toolchain: Toolchain,
    workers: int,
    report: Report,
    lto: str = "",
    linking: Sequence[str] = LINKING,
) -> dict[str, Any]:
    """Build a project plainly, with its tests, and make the corpus to tune; nothing if that was done before.

    Args:
        project: which one.
        folder: where its builds are.
        toolchain: whose clang.
        workers: compilers at once.
        report: told what is built.
        lto: flag of link-time optimization; such a build has no corpus.
        linking: flags of all links.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: the build or its tests fail.
    """
    place = folder / project.name
    path = place / f"prepared-{PLAIN[lto]}.json"
    flags = [lto, "-Wno-unused-command-line-argument"] if lto else []
    recipe = digest_value(
        {"project": project, "compiler": toolchain.describe(), "flags": [*FLAGS, *flags], "linking": list(linking)}
    )
    if path.is_file() and (known := json.loads(path.read_bytes()))["recipe"] == recipe:
        return known
    report(0, 1, f"build {project.name}")
    build = place / PLAIN[lto]
    plain = build_project(
        project,
        build,
        source=source_folder(project, folder),
        toolchain=toolchain,
        plugin_flag=shlex.join(flags),
        workers=workers,
        linking=linking,
    )
    result = {"recipe": recipe, **plain.to_json()}
    if not lto:
        shutil.rmtree(place / "corpus", ignore_errors=True)
        words = ["corpus", "import", "--compile-commands", str(build / DATABASE_NAME)]
        words += ["--corpus", str(place / "corpus")]
        words += ["--project", project.name, "--include", project.include]
        words += [] if project.exclude is None else ["--exclude", project.exclude]
        words += ["--llvm", str(toolchain.major), "--workers", str(workers)]
        result["imported"] = run_mlgokit(words, timeout_seconds=project.seconds)
    atomic_write(path, json.dumps(result))
    return result


def rebuild(
    project: TunedProject, folder: Path, *, toolchain: Toolchain, flag: str, names: Sequence[str], workers: int
) -> dict[str, Any]:
    """Build a project once more with what tuning made, run its tests, and compare its objects with the plain build's.

    Args:
        project: which one.
        folder: where it was prepared.
        toolchain: whose clang.
        flag: what tuning says to add.
        names: the tuned modules, in link order.
        workers: compilers at once.

    Raises:
        ToolError: the build or its tests fail.
    """
    build = folder / project.name / "tuned"
    source = source_folder(project, folder)
    tuned = build_project(project, build, source=source, toolchain=toolchain, plugin_flag=flag, workers=workers)
    objects = compare_objects(names, folder / project.name / "plain", build)
    return {**tuned.to_json(), "objects": dataclasses.asdict(objects)}


def folded_images(
    project: TunedProject, folder: Path, *, toolchain: Toolchain, flag: str, workers: int
) -> dict[str, Any]:
    """A project's image where functions that are alike are merged anyway, without and with what tuning made.

    Args:
        project: which one.
        folder: where it was prepared.
        toolchain: whose clang.
        flag: what tuning says to add.
        workers: compilers at once.

    Raises:
        ToolError: a build fails.
    """
    images: dict[str, Any] = {}
    for which, added in (("before", ""), ("after", flag)):
        built = build_project(
            project,
            folder / project.name / "folded",
            source=source_folder(project, folder),
            toolchain=toolchain,
            plugin_flag=shlex.join([*MERGING, *shlex.split(added)]),
            workers=workers,
            linking=[*LINKING, "-Wl,--icf=all", f"--ld-path={toolchain.lld}"],
            runs_tests=False,
        )
        images[which] = dataclasses.asdict(built.image)
    return images


def compare_objects(names: Sequence[str], plain: Path, tuned: Path) -> Objects:
    """Compare the objects of two builds; a module is named after its object, in a folder named after the project.

    Raises:
        InputError: an object is missing.
    """
    paths = [name.partition("/")[2] for name in names]
    before = {path: measure_object(plain / path) for path in paths}
    after = {path: measure_object(tuned / path) for path in paths}
    return Objects(
        plain_bytes=account_of(paths, before, objective=Objective.LINK_AWARE).image,
        tuned_bytes=account_of(paths, after, objective=Objective.LINK_AWARE).image,
        larger=tuple(path for path in paths if after[path].llvm_size_text > before[path].llvm_size_text),
    )

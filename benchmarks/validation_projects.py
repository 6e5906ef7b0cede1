"""Real projects that choices are made on: never trained on, larger than the quickstart's held-out ones, some of them C.

Their builds are configured, not run: the compilation database says what their library or program is compiled from, and
the front end alone makes modules of it.
"""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from build_systems import cmake_by_flags
from tuning_builds import FLAGS, LINKING, import_project, run_command, unpacked
from tuning_projects import debian

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.sources.projects import Archive
from mlgokit.module import Module
from mlgokit.progress import Report

CONFIGURE_SECONDS = 300.0
_TARGET = re.compile(r"CMakeFiles/[^/]*\.dir/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationProject:
    """One project, configured by CMake.

    Attributes:
        name: of the project.
        language: of its sources.
        archive: where they come from.
        root: the folder in the archive that CMake is pointed at.
        options: words for the configuration.
        targets: what must be built before the sources are complete.
        include: which sources of the compilation database count, a regular expression for their paths.
        exclude: which of these do not.
    """

    name: str
    language: Literal["c++", "c"]
    archive: Archive
    root: str
    options: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    include: str = r"\.(c|cc|cpp|cxx|c\+\+)$"
    exclude: str | None = None


_PROJECTS = (
    ValidationProject(
        name="taglib",
        language="c++",
        archive=debian("taglib", "1.13", "gz", "58f08b4db3dc31ed152c04896ee9172d22052bc7ef12888028c01d8b1d60ade0"),
        root="taglib-1.13",
        options=("-DBUILD_TESTING=OFF",),
        include=r"/taglib/.*\.cpp$",
    ),
    ValidationProject(
        name="bullet",
        language="c++",
        archive=debian("bullet", "3.24+dfsg", "xz", "43c1edae2024ba18bb5d7bfd3bb2394b066a79151a29789504a2d8efcdc333d7"),
        root="bullet3-3.24",
        options=(
            "-DBUILD_BULLET2_DEMOS=OFF", "-DBUILD_CPU_DEMOS=OFF", "-DBUILD_UNIT_TESTS=OFF", "-DBUILD_EXTRAS=OFF",
            "-DBUILD_OPENGL3_DEMOS=OFF", "-DBUILD_PYBULLET=OFF", "-DBUILD_BULLET3=OFF",
        ),
        include=r"/src/(LinearMath|BulletCollision|BulletDynamics)/.*\.cpp$",
    ),
    ValidationProject(
        name="log4cplus",
        language="c++",
        archive=debian("log4cplus", "2.0.8", "xz", "f5949e713cf8635fc554384ab99b04716e3430f28eed6dd7d71ad03d959b91a0"),
        root="log4cplus-2.0.8",
        options=("-DLOG4CPLUS_BUILD_TESTING=OFF", "-DLOG4CPLUS_BUILD_LOGGINGSERVER=OFF"),
        include=r"/src/.*\.cxx$",
    ),
    ValidationProject(
        name="wabt",
        language="c++",
        archive=debian("wabt", "1.0.32", "xz", "2e9fbcbe0ef64042f9691d995116954bc84823fe747a593d80a873566a18cba8"),
        root="wabt-1.0.32",
        options=("-DBUILD_TESTS=OFF", "-DBUILD_LIBWASM=OFF", "-DUSE_INTERNAL_SHA256=ON"),
        include=r"/src/[^/]*\.(cc|c)$|/src/interp/.*\.cc$",
    ),
    ValidationProject(
        name="mbedtls",
        language="c",
        archive=debian("mbedtls", "2.28.3", "gz", "3b4953aa55a681e084d31892d9904cc5328d6b4958ea57b90ae4b4f94ae69a8d"),
        root="Mbed-TLS-mbedtls-8f97ca5",
        options=("-DENABLE_TESTING=OFF", "-DENABLE_PROGRAMS=OFF"),
        include=r"/library/.*\.c$",
    ),
    ValidationProject(
        name="libwebp",
        language="c",
        archive=debian("libwebp", "1.2.4", "gz", "7bf5a8a28cc69bcfa8cb214f2c3095703c6b73ac5fba4d5480c205331d9494df"),
        root="libwebp-1.2.4",
        options=(
            "-DWEBP_BUILD_ANIM_UTILS=OFF", "-DWEBP_BUILD_CWEBP=OFF", "-DWEBP_BUILD_DWEBP=OFF",
            "-DWEBP_BUILD_GIF2WEBP=OFF", "-DWEBP_BUILD_IMG2WEBP=OFF", "-DWEBP_BUILD_VWEBP=OFF",
            "-DWEBP_BUILD_WEBPINFO=OFF", "-DWEBP_BUILD_WEBPMUX=OFF", "-DWEBP_BUILD_EXTRAS=OFF",
        ),
        include=r"/src/.*\.c$",
    ),
    ValidationProject(
        name="libuv",
        language="c",
        archive=debian("libuv1", "1.44.2", "gz", "d79b4b06ef04be85fb890bf39d55942cc64c2e15fd14eaa32dae5dce94485484"),
        root="libuv1-1.44.2",
        options=("-DBUILD_TESTING=OFF", "-DLIBUV_BUILD_SHARED=OFF"),
        include=r"/src/.*\.c$",
    ),
)  # fmt: skip

VALIDATION_PROJECTS = {project.name: project for project in _PROJECTS}
"""By name."""


def modules_of(
    project: ValidationProject, folder: Path, *, toolchain: Toolchain, workers: int, report: Report
) -> list[Module]:
    """The project's modules, each source once, though several targets compile it.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: CMake fails.
    """
    corpus = load_corpus(prepare(project, folder, toolchain=toolchain, workers=workers, report=report))
    once: dict[str, Module] = {}
    for module in corpus.modules:
        once.setdefault(_TARGET.sub("", module.name), dataclasses.replace(module, language=project.language))
    return list(once.values())


def prepare(project: ValidationProject, folder: Path, *, toolchain: Toolchain, workers: int, report: Report) -> Path:
    """The project's corpus, made unless it is there.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: CMake fails.
    """
    corpus = folder / project.name / "corpus"
    if (corpus / "manifest.json").is_file():
        return corpus
    source = unpacked(project.archive, folder / project.name / "source") / project.root
    build = folder / project.name / "build"
    build.mkdir(parents=True, exist_ok=True)
    configure, compile_words, _ = cmake_by_flags(build, source, toolchain, [*FLAGS, "-DNDEBUG"], LINKING)
    commands = [[*configure, *project.options]]
    commands += [[*compile_words, "--target", target] for target in project.targets]
    for argv in commands:
        run_command(project.name, argv, build, seconds=CONFIGURE_SECONDS)
    import_project(project, build, corpus, toolchain=toolchain, workers=workers, report=report)
    return corpus

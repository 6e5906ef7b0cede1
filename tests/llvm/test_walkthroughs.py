"""Whole builds become corpora, as a user would do it: CMake with Ninja, Make, LTO, ThinLTO, objects.

Each ends with the corpus compiled plainly and under the plugin that echoes LLVM's heuristic, to the same bytes.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.corpus import import_build, record
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.verify import objects_of_build, verify_corpus
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm

PROJECTS = Path(__file__).parent.parent / "projects"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a copy of the projects in it."""
    return shutil.copytree(PROJECTS, tmp_path / "projects")


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing}: expected with CI=true")
    if missing:
        pytest.skip(f"{' and '.join(missing)}: not installed; run `scripts/bootstrap.sh test`")


def run(*argv: str | Path, cwd: Path) -> str:
    done = process.run([str(word) for word in argv], timeout_seconds=240, cwd=cwd)
    assert done.returncode == 0, done.stderr + done.stdout.decode()
    return done.stdout.decode()


def configure(source: Path, compiler: str | Path, flags: str, link_flags: str = "") -> Path:
    """Configure the CMake project for Ninja, and give its build folder."""
    build = source / "build"
    settings = (
        f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DCMAKE_CXX_FLAGS={flags}",
        f"-DCMAKE_EXE_LINKER_FLAGS={link_flags}",
        # Bitcode in an archive needs an archiver that knows it.
        "-DSHAPES_KIND=OBJECT" if link_flags else "-DSHAPES_KIND=STATIC",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    )
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *settings, cwd=source)
    return build


def compiles_to_the_same(
    corpus: Corpus, toolchain: Toolchain, plugin: Path, tmp_path: Path, *, option: str = "-Oz"
) -> None:
    """Compile each module plainly and under the echoed heuristic, and compare the objects."""
    for module in corpus.modules:
        assert option in module.command_line, module.name
        objects: list[bytes] = []
        for use in (None, PluginUse(plugin=plugin, policies={INLINE_SIZE.name: HEURISTIC})):
            output = tmp_path / "module.o"
            done = ClangCompiler(toolchain=toolchain).compile(module, CompileRequest(use=use, keep_object=output))
            assert not done.reason, (module.name, done.reason)
            objects.append(output.read_bytes())
        assert objects[0] == objects[1], module.name


def test_a_cmake_project_with_ninja(toolchain: Toolchain, folder: Path, plugin: Path, tmp_path: Path):
    need("cmake", "ninja")
    build = configure(folder / "shapes", toolchain.clangxx, "-Oz -fno-ident")
    run("ninja", cwd=build)

    result = import_build.run(
        import_build.Import(
            compile_commands=build / "compile_commands.json", corpus=tmp_path / "corpus", llvm=toolchain.major
        )
    )

    assert result["modules"] == 5
    assert (result["reasons"], result["commands_without_code"]) == ({}, 1)
    corpus = load_corpus(tmp_path / "corpus")
    assert [module.name for module in corpus.modules] == [
        "shapes/CMakeFiles/shapes.dir/src/circle.cc.o",
        "shapes/CMakeFiles/shapes.dir/src/polygon.cc.o",
        "shapes/CMakeFiles/shapes.dir/src/scene.cc.o",
        "shapes/CMakeFiles/area.dir/src/main.cc.o",
        "shapes/CMakeFiles/perimeter.dir/src/main.cc.o",
    ]
    verified = verify_corpus(
        corpus, objects_of_build(build), compiler=ClangCompiler(toolchain=toolchain), rng=np.random.default_rng(1)
    )
    assert verified.verified, verified.to_json()
    compiles_to_the_same(corpus, toolchain, plugin, tmp_path)


def test_a_recorded_make_project(toolchain: Toolchain, folder: Path, plugin: Path, tmp_path: Path):
    need("make", "gcc")
    words = folder / "words"

    result = record.run(
        record.Record(
            command=("make", "-C", str(words), "-j2", "CC=gcc"),
            output=words / "compile_commands.json",
            corpus=tmp_path / "corpus",
            level="Oz",
            compiler=CompilerOptions(llvm=toolchain.major),
        )
    )

    assert (result["commands"], result["modules"], result["failures"]) == (4, 4, 0)
    assert result["dropped_options"] == {"-fno-tree-loop-distribute-patterns": 4, "-fconserve-stack": 4}
    corpus = load_corpus(tmp_path / "corpus")
    names = {"words/main.o", "words/sizes.o", "words/table/hash.o", "words/table/table.o"}
    assert {module.name for module in corpus.modules} == names
    compiles_to_the_same(corpus, toolchain, plugin, tmp_path)


def test_an_lto_build_needs_no_change(toolchain: Toolchain, folder: Path, plugin: Path, tmp_path: Path):
    """Its objects are bitcode that passes have run over; the front end alone gives what they began with."""
    need("cmake", "ninja")
    build = configure(folder / "shapes", toolchain.clangxx, "-Oz -fno-ident -flto", "-fuse-ld=lld")
    run("ninja", cwd=build)
    assert run(build / "area", cwd=build) == "shapes: 32.274\n"

    result = import_build.run(
        import_build.Import(
            compile_commands=build / "compile_commands.json",
            corpus=tmp_path / "corpus",
            include="/src/",
            exclude="scene",
            llvm=toolchain.major,
        )
    )

    assert (result["modules"], result["unwanted_commands"]) == (4, 2)
    corpus = load_corpus(tmp_path / "corpus")
    assert not any("lto" in option for module in corpus.modules for option in module.command_line)
    compiles_to_the_same(corpus, toolchain, plugin, tmp_path)


def test_a_thinlto_link_with_lld(toolchain: Toolchain, folder: Path, plugin: Path, tmp_path: Path):
    need("cmake", "ninja")
    saved = "-Wl,--save-temps=import -Wl,--thinlto-emit-index-files"
    build = configure(folder / "shapes", toolchain.clangxx, "-Oz -flto=thin", f"-fuse-ld=lld {saved}")
    run("ninja", cwd=build)
    (build / "link").write_text(run("ninja", "-t", "commands", "area", cwd=build))

    result = import_build.run(
        import_build.Import(
            thinlto=build,
            link_command=build / "link",
            project="shapes",
            corpus=tmp_path / "corpus",
            llvm=toolchain.major,
        )
    )

    assert result["modules"] >= 4
    corpus = load_corpus(tmp_path / "corpus")
    assert corpus.has_thinlto
    compiles_to_the_same(corpus, toolchain, plugin, tmp_path, option="-O2")


def test_a_folder_of_objects(toolchain: Toolchain, folder: Path, plugin: Path, tmp_path: Path):
    need("make")
    words = folder / "words"
    embed = "EXTRA=-g0 -Oz -fno-ident -Xclang -fembed-bitcode=all"
    run("make", f"CC={toolchain.clang}", "CFLAGS=-Wall", embed, cwd=words)

    result = import_build.run(import_build.Import(objects=words, corpus=tmp_path / "corpus"))

    assert (result["modules"], result["failures"]) == (4, 0)
    corpus = load_corpus(tmp_path / "corpus")
    assert {module.project for module in corpus.modules} == {"words"}
    compiles_to_the_same(corpus, toolchain, plugin, tmp_path)

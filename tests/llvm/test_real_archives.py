"""Two published archives, built by their own build systems, become corpora: run with ``-m network``.

The archives come from the cache, or else from the mirrors that pip and apt are configured with.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.corpus import import_build, record, verify
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.corpus.sources.projects import choose_projects
from mlgokit.problems import INLINE_SIZE

pytestmark = [pytest.mark.llvm, pytest.mark.network]

LOOKED_AT = 4


def unpacked(name: str, folder: Path) -> Path:
    (project,) = choose_projects(None, [name])
    archive = fetch_archive(project.archive, cache_folder=default_cache_folder())
    return prepare_sources(project, archive_path=archive, sources_folder=folder)


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing}: expected with CI=true")
    if missing:
        pytest.skip(f"{' and '.join(missing)}: not installed; run `scripts/bootstrap.sh test`")


def some_compile_to_the_same(corpus: Corpus, toolchain: Toolchain, plugin: Path, folder: Path) -> None:
    """Compile a few modules plainly and under the echoed heuristic, and compare the objects."""
    drawn = np.random.default_rng(1).choice(len(corpus.modules), size=LOOKED_AT, replace=False)
    for module in (corpus.modules[int(index)] for index in drawn):
        objects: list[bytes] = []
        for use in (None, PluginUse(plugin=plugin, policies={INLINE_SIZE.name: HEURISTIC})):
            output = folder / "module.o"
            done = ClangCompiler(toolchain=toolchain).compile(module, CompileRequest(use=use, keep_object=output))
            assert not done.reason, (module.name, done.reason)
            objects.append(output.read_bytes())
        assert objects[0] == objects[1], module.name


def test_a_cmake_project(toolchain: Toolchain, tmp_path: Path):
    """yaml-cpp, configured and not built."""
    need("cmake", "ninja")
    root = unpacked("yaml-cpp", tmp_path / "sources")
    settings = (
        f"-DCMAKE_CXX_COMPILER={toolchain.clangxx}",
        "-DCMAKE_BUILD_TYPE=MinSizeRel",
        "-DYAML_CPP_BUILD_TESTS=OFF",
    )
    configure = [
        "cmake",
        "-G",
        "Ninja",
        "-S",
        root,
        "-B",
        root / "build",
        *settings,
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    ]
    done = process.run(configure, timeout_seconds=240, cwd=root)
    assert done.returncode == 0, done.stderr
    database, folder = root / "build" / "compile_commands.json", tmp_path / "corpus"

    result = import_build.run(
        import_build.Import(
            compile_commands=database, corpus=folder, project="yaml-cpp", include="/src/", llvm=toolchain.major
        )
    )

    assert (result["modules"] > 25, result["failures"]) == (True, 0)
    verified = verify.run(
        verify.Verify(
            corpus=folder, compile_commands=database, most=LOOKED_AT, compiler=CompilerOptions(llvm=toolchain.major)
        )
    )
    assert verified.verified, verified.to_json()
    some_compile_to_the_same(load_corpus(folder), toolchain, build_plugin(toolchain), tmp_path)


def test_a_make_project(toolchain: Toolchain, tmp_path: Path):
    """Lua, built by its makefile with gcc, recorded, and imported at a level of ours."""
    need("make", "gcc")
    root = unpacked("lua", tmp_path / "sources")
    database, folder = tmp_path / "compile_commands.json", tmp_path / "corpus"

    result = record.run(
        record.Record(
            command=("make", "-C", str(root), "liblua.a", "CC=gcc"),
            output=database,
            corpus=folder,
            level="Oz",
            compiler=CompilerOptions(llvm=toolchain.major),
        )
    )

    assert (result["modules"] > 25, result["failures"]) == (True, 0)
    verified = verify.run(
        verify.Verify(
            corpus=folder, compile_commands=database, most=LOOKED_AT, compiler=CompilerOptions(llvm=toolchain.major)
        )
    )
    assert verified.verified, verified.to_json()
    some_compile_to_the_same(load_corpus(folder), toolchain, build_plugin(toolchain), tmp_path)

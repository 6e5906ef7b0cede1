import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.info import corpus_info
from mlgokit.corpus.sources.extract import OPTIONS, extract_projects, options_of, project_jobs, recognize_options
from mlgokit.corpus.sources.fetch import prepare_sources
from mlgokit.corpus.sources.projects import Archive, GeneratedFile, Language, Project
from mlgokit.corpus.verify import compile_in_one_step, verify_corpus
from mlgokit.errors import ReuseError, UsageError
from mlgokit.files import digest_file
from mlgokit.module import Module, architecture_of

pytestmark = pytest.mark.llvm

FILES = {
    "p-1/include/shape.h": """
        #pragma once
        #include <memory>
        #include <stdexcept>
        #include <string>
        #include <vector>
        struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
        std::unique_ptr<Shape> square(double side);
        inline double total(const std::vector<std::unique_ptr<Shape>>& shapes) {
          double sum = 0;
          for (const auto& shape : shapes) sum += shape->area();
          return sum;
        }
    """,
    "p-1/src/square.cc": """
        #include "shape.h"
        #include "config.h"
        namespace {
        struct Square : Shape {
          explicit Square(double side) : side(side) { if (side < 0) throw std::invalid_argument(__FILE__ NAME); }
          double area() const override { return side * side; }
          double side;
        };
        }
        std::unique_ptr<Shape> square(double side) { return std::make_unique<Square>(side); }
        const char* made() { return __DATE__ " " __TIME__ " " __TIMESTAMP__; }
    """,
    "p-1/src/sum.cc": """
        #include "../include/shape.h"
        static int helper(int x) { return x * SCALE; }
        double sum(int n) {
          std::vector<std::unique_ptr<Shape>> shapes;
          for (int i = 0; i < n; ++i) shapes.push_back(square(helper(i)));
          try { return total(shapes); } catch (const std::exception& error) { return std::string(error.what()).size(); }
        }
    """,
    "p-1/src/broken.cc": "#include <no/such/header.h>\n",
    "p-1/plain.c": """
        #include <stdlib.h>
        static int compare(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }
        void sort(int* begin, size_t count) { qsort(begin, count, sizeof(int), compare); }
        const char* where(void) { return __FILE__; }
    """,
    "p-1/bare/sum.c": "long sum(const long* p, int n) { long s = 0; while (n--) s += p[n] * sizeof(n); return s; }",
}


def project(name: str, language: Language, **parts: Any) -> Project:
    archive = Archive(registry="pypi", package="p", version="1", file="p-1.tar.gz", sha256="0" * 64)
    return Project(name=name, language=language, archive=archive, root="p-1", license="MIT", **parts)


PROJECTS = (
    project(
        "plus",
        "c++",
        standard="c++17",
        include=("include", "."),
        defines=("SCALE=3",),
        sources=("src/*.cc",),
        generated=(GeneratedFile(path="config.h", text='#define NAME " bad side"\n'),),
    ),
    project(
        "plain",
        "c",
        standard="gnu11",
        options=("-fomit-frame-pointer", "-mllvm", "-inline-threshold=5"),
        sources=("*.c",),
    ),
)


def extract(folder: Path, toolchain: Toolchain) -> Corpus:
    folder.mkdir()
    with tarfile.open(folder / "p-1.tar.gz", "w:gz") as archive:
        for name, text in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    for item in PROJECTS:
        prepare_sources(item, archive_path=folder / "p-1.tar.gz", sources_folder=folder / "sources")
    return extract_projects(
        PROJECTS,
        toolchain=toolchain,
        sources_folder=folder / "sources",
        corpus_folder=folder / "corpus",
        workers=2,
    )


def run(argv: Sequence[str], cwd: Path) -> None:
    done = process.run(argv, timeout_seconds=120, cwd=cwd, env={"SOURCE_DATE_EPOCH": "0", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr


def test_sources_become_modules_and_failures(tmp_path: Path, toolchain: Toolchain):
    corpus = extract(tmp_path / "one", toolchain)
    assert [module.name for module in corpus.modules] == [
        "plus/src/square.cc.o",
        "plus/src/sum.cc.o",
        "plain/plain.c.o",
    ]
    assert [module.language for module in corpus.modules] == ["c++", "c++", "c"]
    (failure,) = corpus.failures
    assert failure.name == "plus/src/broken.cc.o"
    assert "error: 'no/such/header.h' file not found" in failure.reason
    info = corpus_info(corpus)
    assert not info.damaged
    assert not info.duplicates


def test_the_command_line_is_what_ir_needs(tmp_path: Path, toolchain: Toolchain):
    corpus = extract(tmp_path / "one", toolchain)
    plus, plain = corpus.modules[0].command_line, corpus.modules[2].command_line
    assert plus[0] == "-cc1"
    assert {"-triple", "-Oz", "-mrelocation-model", "-ffunction-sections", "-fdata-sections", "-fexceptions"} <= {*plus}
    assert "-fcxx-exceptions" in plus
    assert "-fcxx-exceptions" not in plain
    assert "-inline-threshold=5" in plain
    for option in plus + plain:
        assert str(tmp_path) not in option
        assert not option.startswith(
            ("-I", "-D", "-isystem", "-internal", "-emit", "-o", "-x", "-main-file", "-resource")
        )
    assert "-disable-llvm-passes" not in plus


def test_compiling_the_module_is_compiling_the_source(tmp_path: Path, toolchain: Toolchain):
    corpus = extract(tmp_path / "one", toolchain)
    for module in corpus.modules:
        item = next(item for item in PROJECTS if item.name == module.project)
        from_source = compile_source(tmp_path, toolchain, item, module)
        from_ir = tmp_path / "ir.o"
        own = ("-x", "ir", str(module.bitcode), "-emit-obj", "-o", str(from_ir))
        argv = Cc1Line(toolchain.clang, options=module.command_line, own=own)
        run(argv, cwd=Path("/"))
        assert from_ir.read_bytes() == from_source.read_bytes(), module.name


def compile_source(folder: Path, toolchain: Toolchain, item: Project, module: Module) -> Path:
    driver = toolchain.clangxx if item.language == "c++" else toolchain.clang
    argv = [str(driver), *OPTIONS, f"-std={item.standard}", *item.options]
    argv += [f"-I{include}" for include in item.include] + [f"-D{macro}" for macro in item.defines]
    assert module.source is not None
    argv += ["-c", "-o", str(folder / "source.o"), module.source]
    run(argv, cwd=folder / "one" / "sources" / item.name / item.root)
    return folder / "source.o"


def test_the_folder_does_not_show_in_the_bitcode(tmp_path: Path, toolchain: Toolchain):
    one = extract(tmp_path / "one", toolchain)
    two = extract(tmp_path / "a longer name", toolchain)
    digests = [module.bitcode_sha256 for module in one.modules]
    assert [module.bitcode_sha256 for module in two.modules] == digests
    assert [module.command_line for module in two.modules] == [module.command_line for module in one.modules]
    assert [digest_file(module.bitcode) for module in one.modules] == digests
    assert str(tmp_path).encode() not in b"".join(module.bitcode.read_bytes() for module in one.modules)


def test_bitcode_comes_before_optimization_and_has_no_debug_information(
    tmp_path: Path, toolchain: Toolchain, opt: Path
):
    corpus = extract(tmp_path / "one", toolchain)
    module = next(module for module in corpus.modules if module.name == "plus/src/sum.cc.o")
    done = process.run([opt, "-S", module.bitcode, "-o", "-"], timeout_seconds=120)
    text = done.stdout.decode()
    assert "define internal" in text
    assert "helper" in text
    assert "alloca" in text
    assert "minsize" in text
    assert "!dbg" not in text


def test_an_interrupted_extraction_is_resumed(tmp_path: Path, toolchain: Toolchain):
    first = extract(tmp_path / "one", toolchain)
    removed = first.modules[1].bitcode
    removed.unlink()
    kept = first.modules[0].bitcode.stat().st_mtime_ns
    shutil.rmtree(tmp_path / "one" / "sources")
    for item in PROJECTS:
        prepare_sources(item, archive_path=tmp_path / "one" / "p-1.tar.gz", sources_folder=tmp_path / "one" / "sources")
    again = extract_projects(
        PROJECTS,
        toolchain=toolchain,
        sources_folder=tmp_path / "one" / "sources",
        corpus_folder=tmp_path / "one" / "corpus",
    )
    assert removed.exists()
    assert again.modules[0].bitcode.stat().st_mtime_ns == kept
    assert [module.bitcode_sha256 for module in again.modules] == [module.bitcode_sha256 for module in first.modules]


def test_a_corpus_of_another_level_is_one_of_its_own(tmp_path: Path, toolchain: Toolchain):
    usual = extract(tmp_path / "one", toolchain)
    fast = extract_projects(
        PROJECTS,
        toolchain=toolchain,
        sources_folder=tmp_path / "one" / "sources",
        corpus_folder=tmp_path / "fast",
        level="O2",
    )
    assert [module.name for module in fast.modules] == [module.name for module in usual.modules]
    for one, other in zip(usual.modules, fast.modules, strict=True):
        assert ("-Oz" in one.command_line, "-O2" in other.command_line) == (True, True)
        assert one.bitcode_sha256 != other.bitcode_sha256
    with pytest.raises(ReuseError, match="options"):
        extract_projects(
            PROJECTS,
            toolchain=toolchain,
            sources_folder=tmp_path / "one" / "sources",
            corpus_folder=tmp_path / "fast",
        )


def test_a_corpus_of_another_processor_compiles_to_its_code_and_is_verified(tmp_path: Path, toolchain: Toolchain):
    extract(tmp_path / "one", toolchain)
    sources = tmp_path / "one" / "sources"
    bare = project("plain", "c", standard="gnu11", sources=("bare/*.c",))
    for target, machine in (("aarch64-linux-gnu", 183), ("thumbv7-linux-gnueabihf", 40), ("riscv64-linux-gnu", 243)):
        folder = tmp_path / target
        corpus = extract_projects(
            [bare], toolchain=toolchain, sources_folder=sources, corpus_folder=folder, target=target
        )
        (module,) = corpus.modules
        assert module.architecture == architecture_of(target)
        compiler = ClangCompiler(toolchain=toolchain)
        done = compiler.compile(module, CompileRequest(keep_object=tmp_path / "sum.o"))
        assert done.ok, done.reason
        assert int.from_bytes((tmp_path / "sum.o").read_bytes()[18:20], "little") == machine
        jobs = project_jobs([bare], toolchain=toolchain, sources_folder=sources, options=options_of("Oz", target))
        verified = verify_corpus(corpus, compile_in_one_step(jobs), compiler=compiler, rng=np.random.default_rng(1))
        assert verified.verified
        recorded = json.loads((folder / "manifest.json").read_bytes())["config"]["options"]
        assert recognize_options(recorded) == options_of("Oz", target)
    with pytest.raises(ReuseError, match="options"):
        extract_projects([bare], toolchain=toolchain, sources_folder=sources, corpus_folder=folder)
    with pytest.raises(UsageError, match="target: expected a triple such as aarch64-linux-gnu, found 'arm --x'"):
        extract_projects([bare], toolchain=toolchain, sources_folder=sources, corpus_folder=folder, target="arm --x")


def test_a_corpus_has_the_further_options_that_it_was_made_with(tmp_path: Path, toolchain: Toolchain):
    extract(tmp_path / "one", toolchain)
    sources, given = tmp_path / "one" / "sources", ["-fno-asynchronous-unwind-tables", "-mno-red-zone"]
    bare = project("plain", "c", standard="gnu11", sources=("bare/*.c",))
    corpus = extract_projects(
        [bare],
        toolchain=toolchain,
        sources_folder=sources,
        corpus_folder=tmp_path / "corpus",
        options=given,
    )
    (module,) = corpus.modules
    assert "-disable-red-zone" in module.command_line
    recorded = json.loads((tmp_path / "corpus" / "manifest.json").read_bytes())["config"]["options"]
    assert recognize_options(recorded) == options_of("Oz", None, given)
    cross = options_of("Oz", "riscv32-unknown-elf", [*given, "-mabi=ilp32"])
    assert recognize_options(cross) == cross
    assert recognize_options([*cross[:-1], "-fplugin=x", cross[-1]]) is None
    assert recognize_options([*cross[:-1], "other.c", cross[-1]]) is None
    jobs = project_jobs([bare], toolchain=toolchain, sources_folder=sources, options=recorded)
    compiler = ClangCompiler(toolchain=toolchain)
    assert verify_corpus(corpus, compile_in_one_step(jobs), compiler=compiler, rng=np.random.default_rng(1)).verified
    for wrong in ("-fplugin=x.so", "other.c", "-save-temps"):
        with pytest.raises(UsageError, match="option: expected an option that decides the code alone, such as"):
            options_of("Oz", None, [wrong])


def test_an_edited_header_makes_its_modules_again_and_a_touched_source_does_not(tmp_path: Path, toolchain: Toolchain):
    folder = tmp_path / "a build"
    (folder / "in clude").mkdir(parents=True)
    header = folder / "in clude" / "value #$.h"
    header.write_text("#define VALUE 1\n")
    sources = {"a.c": '#include "value #$.h"\n#include <stdio.h>\nint a = VALUE;\n', "b.c": "int b;\n"}
    entries: list[dict[str, object]] = []
    for name, text in sources.items():
        (folder / name).write_text(text)
        words = ["clang", "-Oz", "-I", "in clude", "-include", os.devnull, "-c", name]
        entries.append({"directory": str(folder), "file": name, "arguments": words})
    database = folder / "compile_commands.json"
    database.write_text(json.dumps(entries))

    def made() -> dict[str, tuple[int, str | None]]:
        import_commands(database, toolchain=toolchain, corpus_folder=tmp_path / "corpus")
        modules = load_corpus(tmp_path / "corpus").modules
        return {str(one.source): (one.bitcode.stat().st_mtime_ns, one.bitcode_sha256) for one in modules}

    first = made()
    for name in sources:
        os.utime(folder / name, (2**31, 2**31))
    os.utime(header, (2**31, 2**31))
    assert made() == first
    header.write_text("#define VALUE 2\n")
    os.utime(header, (0, 0))
    second = made()
    assert second["b.c"] == first["b.c"]
    assert second["a.c"][1] != first["a.c"][1]
    assert made() == second
    fields = json.loads(zlib.decompress(next((tmp_path / "corpus").rglob("a.o.dep")).read_bytes()))
    assert "a.c" in fields["files"]
    assert "in clude/value #$.h" in fields["files"]
    assert any(name.endswith("/stdio.h") for name in fields["files"])

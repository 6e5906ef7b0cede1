"""Objects with embedded bitcode and ThinLTO links of real compilers become corpora that compile to the same code."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.importers.bitcode_files import import_local_thinlto
from mlgokit.corpus.importers.object_lists import objects_in_folder
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.module import Module

pytestmark = pytest.mark.llvm

USER = """
#include <string>
std::string twice(const std::string& text);
int main(int count, char**) { return twice(std::string(count, 'x')).size() != 2 * count; }
"""
LIBRARY = """
#include <string>
std::string twice(const std::string& text) { return text + text; }
"""
PLAIN = "int twice(int x) { return 2 * x; } int main() { return twice(0); }\n"
OPTIONS = ("-Oz", "-fno-ident")


def run(*argv: str | Path, cwd: Path) -> None:
    done = process.run([str(word) for word in argv], timeout_seconds=120, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    (folder / "lib").mkdir(parents=True)
    (folder / "main.cc").write_text(USER)
    (folder / "lib/twice.cc").write_text(LIBRARY)
    (folder / "plain.cc").write_text(PLAIN)
    (folder / "nop.s").write_text("nop\n")
    return folder


def tool(toolchain: Toolchain, name: str) -> Path:
    path = toolchain.clang.resolve().parent / name
    if not path.exists():
        pytest.skip(f"{name} of LLVM {toolchain.major} is not installed")
    return path


def dumped(toolchain: Toolchain, section: str, path: Path, tmp_path: Path) -> bytes:
    """What LLVM's own tool finds in a section."""
    output = tmp_path / "dumped"
    run(tool(toolchain, "llvm-objcopy"), f"--dump-section={section}={output}", path, "/dev/null", cwd=tmp_path)
    return output.read_bytes()


def code(toolchain: Toolchain, path: Path, tmp_path: Path) -> bytes:
    """All code of an object, as bytes of its sections of code and their names, without embedded bitcode."""
    copy = tmp_path / "code.o"
    shutil.copyfile(path, copy)
    options = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd", "--strip-debug"]
    run(tool(toolchain, "llvm-objcopy"), *options, copy, cwd=tmp_path)
    return copy.read_bytes()


def compiled(toolchain: Toolchain, module: Module, output: Path) -> Path:
    result = ClangCompiler(toolchain=toolchain).compile(module, CompileRequest(keep_object=output))
    assert result.status is CompileStatus.OK, result.reason
    return output


def by_name(corpus: Corpus) -> dict[str, Module]:
    return {module.name: module for module in corpus.modules}


def test_embedded_bitcode_compiles_to_the_same_object(toolchain: Toolchain, build: Path, tmp_path: Path):
    names = {"main.o": "main.cc", "lib/twice.o": "lib/twice.cc"}
    for output, source in names.items():
        run(toolchain.clangxx, *OPTIONS, "-c", "-Xclang", "-fembed-bitcode=all", source, "-o", output, cwd=build)
    run(toolchain.clang, "-c", "nop.s", "-o", "nop.o", cwd=build)
    imported = import_objects(objects_in_folder(build), corpus_folder=tmp_path / "corpus", project="p", workers=2)
    assert [failure.name for failure in imported.examples] == ["nop.o"]
    modules = by_name(load_corpus(tmp_path / "corpus"))
    assert set(modules) == set(names)
    for name, module in modules.items():
        assert module.bitcode.read_bytes() == dumped(toolchain, ".llvmbc", build / name, tmp_path)
        cmd = (tmp_path / "corpus" / f"{name}.cmd").read_bytes()
        assert cmd == dumped(toolchain, ".llvmcmd", build / name, tmp_path)
        again = compiled(toolchain, module, tmp_path / "again.o")
        assert code(toolchain, again, tmp_path) == code(toolchain, build / name, tmp_path)


@pytest.mark.parametrize(
    ("target", "sections"),
    [
        ("arm64-apple-macos13", ("__LLVM,__cmdline", "__LLVM,__bitcode")),
        ("x86_64-pc-windows-msvc", None),
        ("powerpc-linux-gnu", (".llvmcmd", ".llvmbc")),
        ("aarch64-linux-gnu", (".llvmcmd", ".llvmbc")),
        ("wasm32", (".llvmcmd", ".llvmbc")),
    ],
)
def test_other_targets_give_what_llvm_finds(
    toolchain: Toolchain, build: Path, tmp_path: Path, target: str, sections: Sequence[str] | None
):
    """LLVM's tool dumps no sections of Windows' objects; there the bitcode's magic must do."""
    output = build / "plain.o"
    embed = ("-Xclang", "-fembed-bitcode=all")
    run(toolchain.clang, "-target", target, "-x", "c", "-Oz", *embed, "-c", "plain.cc", "-o", output, cwd=build)
    foreign = {}
    if target == "wasm32":
        objcopy = tool(toolchain, "llvm-objcopy")
        foreign = {"cmd_section": ".llvmcmd", "bitcode_section": ".llvmbc", "llvm_objcopy": objcopy}
    import_objects(objects_in_folder(build), corpus_folder=tmp_path / "corpus", project="p", **foreign)
    (module,) = load_corpus(tmp_path / "corpus").modules
    assert module.bitcode.read_bytes()[:4] in {b"BC\xc0\xde", b"\xde\xc0\x17\x0b"}
    assert module.command_line[0] == "-cc1"
    if sections is not None:
        cmd = (tmp_path / "corpus/plain.o.cmd").read_bytes()
        assert cmd == dumped(toolchain, sections[0], output, tmp_path)
        assert module.bitcode.read_bytes() == dumped(toolchain, sections[1], output, tmp_path)


def thin_objects(toolchain: Toolchain, build: Path) -> list[str]:
    for output, source in {"main.o": "main.cc", "lib/twice.o": "lib/twice.cc"}.items():
        run(toolchain.clangxx, *OPTIONS, "-flto=thin", "-c", source, "-o", output, cwd=build)
    return ["main.o", "lib/twice.o"]


def link(toolchain: Toolchain, build: Path, objects: Sequence[str], *options: str) -> None:
    linker = f"--ld-path={toolchain.lld}"
    run(toolchain.clangxx, *OPTIONS, "-flto=thin", linker, *objects, "-o", "program", *options, cwd=build)


def test_a_local_thinlto_link_is_a_corpus(toolchain: Toolchain, build: Path, tmp_path: Path):
    objects = thin_objects(toolchain, build)
    link(toolchain, build, objects, "-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files")
    override = ["-cc1", "-triple", toolchain.target, "-Oz", "-mrelocation-model", "pic", "-pic-level", "2"]
    import_local_thinlto(build, corpus_folder=tmp_path / "corpus", project="p", override=override)
    modules = by_name(load_corpus(tmp_path / "corpus"))
    assert set(modules) == set(objects)
    for name, module in modules.items():
        compiled(toolchain, module, tmp_path / "again.o")
        assert module.thinlto_index is not None
        assert module.thinlto_index.read_bytes() == (build / f"{name}.thinlto.bc").read_bytes()


def test_a_distributed_thinlto_build_compiles_to_the_same_objects(toolchain: Toolchain, build: Path, tmp_path: Path):
    """The native object of each module, made with its part of the index, is what its corpus module gives."""
    objects = thin_objects(toolchain, build)
    link(toolchain, build, objects, "-Wl,--thinlto-index-only")
    embed = ("-mllvm", "-lto-embed-bitcode=post-merge-pre-opt")
    for name in objects:
        (build / "native" / name).parent.mkdir(parents=True, exist_ok=True)
        index = f"-fthinlto-index={name}.thinlto.bc"
        run(
            toolchain.clangxx, *OPTIONS, "-x", "ir", "-c", name, index, *embed, "-o", f"native/{name}", cwd=build
        )  # fmt: skip
    made = [dataclasses.replace(one, base=build) for one in objects_in_folder(build / "native")]
    import_objects(made, corpus_folder=tmp_path / "corpus", project="p", distributed_thinlto=True)
    modules = by_name(load_corpus(tmp_path / "corpus"))
    assert set(modules) == set(objects)
    shutil.rmtree(build / "lib")
    for name, module in modules.items():
        again = compiled(toolchain, module, tmp_path / "again.o")
        assert code(toolchain, again, tmp_path) == code(toolchain, build / "native" / name, tmp_path)

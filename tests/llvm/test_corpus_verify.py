"""Corpora compiled again and compared with what their builds made: from sources, from objects, from a ThinLTO link."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.corpus import verify as verifying
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.elf import read_elf
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.importers.reference import build_reference
from mlgokit.corpus.options.edits import command_line_edits
from mlgokit.corpus.options.override import UNSPECIFIED, fill_override, link_options, split_link_command
from mlgokit.corpus.verify import (
    Verdict,
    VerifyResult,
    objects_of_build,
    verify_corpus,
)
from mlgokit.errors import ToolError, UsageError

SOURCES = {
    "work.c": """
        int helper(int x); extern int table[];
        static int loop(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] * helper(i); return s; }
        int work(int n) { return loop(table, n); }
    """,
    "table.c": """
        int table[100]; int helper(int x) { return x * 3 + table[x % 100]; }
        int add(int *a, int *b, int n) { for (int i = 0; i < n; i++) a[i] += b[i]; return a[0]; }
    """,
    "main.c": """
        int work(int); int add(int *, int *, int); extern int table[];
        int main(int count, char **words) { return work(count) + add(table, table + 50, count); }
    """,
}
OPTIONS = '-O2 -g -fPIC -march=haswell -fstack-protector-strong -fcf-protection -DX=\\"a\\" -MD -MF x.d -Iinclude'
LINKS = ("-pie", "-shared -Wl,--lto-O3 -Wl,-mllvm,-inline-threshold=20", "-no-pie -march=haswell -O3")

pytestmark = pytest.mark.llvm


def run(*words: object, cwd: Path) -> None:
    done = process.run([str(word) for word in words], timeout_seconds=60, cwd=cwd)
    assert done.returncode == 0, done.stderr


def write_sources(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    return folder


def verify(corpus: Path, reference: object, toolchain: Toolchain, **extra: object) -> VerifyResult:
    rng = np.random.default_rng(1)
    return verify_corpus(load_corpus(corpus), reference, compiler=ClangCompiler(toolchain=toolchain), rng=rng, **extra)  # type: ignore[arg-type]


def test_a_corpus_from_sources_has_the_code_of_its_build(toolchain: Toolchain, tmp_path: Path):
    write_sources(tmp_path)
    entries = [
        {"directory": str(tmp_path), "file": name, "command": f"gcc {OPTIONS} -c {name} -o obj/{name}.o"}
        for name in SOURCES
    ]
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps(entries))
    import_commands(database, toolchain=toolchain, corpus_folder=tmp_path / "corpus")
    reference = build_reference(database, toolchain=toolchain, timeout_seconds=60)
    result = verify(tmp_path / "corpus", reference, toolchain)
    assert [(module.verdict, module.reason) for module in result.modules] == [(Verdict.SAME, "")] * 3
    assert result.verified
    assert all(module.text_bytes > 0 for module in result.modules)

    staged = verifying.run(
        verifying.Verify(
            corpus=tmp_path / "corpus",
            compile_commands=database,
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        )
    )
    assert staged.modules == result.modules

    database.write_text(json.dumps(entries[:1]))
    few_commands = build_reference(database, toolchain=toolchain, timeout_seconds=60)
    few = verify(tmp_path / "corpus", few_commands, toolchain, most=2)
    assert (len(few.modules), few.of, few.verified) == (2, 3, False)
    assert few.to_json()["no_reference"] >= 1

    edited = load_corpus(tmp_path / "corpus", command_line_edits(replace=["-O0"], add=["-disable-llvm-passes"]))
    other = verify_corpus(edited, reference, compiler=ClangCompiler(toolchain=toolchain), rng=np.random.default_rng(1))
    assert {module.verdict for module in other.modules} == {Verdict.DIFFERENT}
    assert {module.reason for module in other.modules} == {".text"}


def test_a_corpus_from_objects_has_their_code(toolchain: Toolchain, tmp_path: Path):
    build = write_sources(tmp_path / "build")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in SOURCES:
        run(
            toolchain.clang,
            *shlex.split(OPTIONS),
            "-Xclang",
            "-fembed-bitcode=all",
            "-c",
            name,
            "-o",
            f"{name}.o",
            cwd=build,
        )
        elf = read_elf(build / f"{name}.o")
        for section, suffix in ((".llvmbc", "bc"), (".llvmcmd", "cmd")):
            row = elf.sections[elf.names.index(section)]
            begin = int(row["offset"])
            (corpus / f"{name}.o.{suffix}").write_bytes(elf.data[begin : begin + int(row["size"])])
    modules = [f"{name}.o" for name in SOURCES]
    (corpus / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": modules}))
    result = verify(corpus, objects_of_build(build), toolchain)
    assert {module.verdict for module in result.modules} == {Verdict.SAME_CODE}
    assert {".llvmbc", ".llvmcmd"} <= set(result.modules[0].reason.split(", "))
    assert result.verified
    missing = verify(corpus, objects_of_build(corpus), toolchain)
    assert missing.modules[0].reason == f"expected work.c.o below {corpus}, found no such object"


@pytest.mark.parametrize("options", LINKS)
def test_a_link_command_gives_the_code_of_the_link(toolchain: Toolchain, tmp_path: Path, options: str):
    build = write_sources(tmp_path / "build")
    for name in SOURCES:
        run(toolchain.clang, "-flto=thin", "-fPIC", "-O2", "-c", name, "-o", f"{name}.o", cwd=build)
    line = f"{toolchain.clang} -flto=thin -fuse-ld=lld -O2 {options} -Wl,--save-temps -Wl,--thinlto-emit-index-files"
    command = f"{line} {' '.join(f'{name}.o' for name in SOURCES)} -o program"
    run(*shlex.split(command), cwd=build)

    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in SOURCES:
        (build / f"{name}.o.3.import.bc").rename(corpus / f"{name}.o.bc")
        (build / f"{name}.o.thinlto.bc").rename(corpus / f"{name}.o.thinlto.bc")
    description = {
        "global_command_override": [UNSPECIFIED],
        "has_thinlto": True,
        "modules": [f"{name}.o" for name in SOURCES],
    }
    (corpus / "corpus_description.json").write_text(json.dumps(description))
    found = link_options(split_link_command(f"ninja: entering\n: && {command} && :"), toolchain=toolchain)
    fill_override(corpus, found.options, build=build)

    result = verify(corpus, objects_of_build(build), toolchain)
    assert [(module.verdict, module.reason) for module in result.modules] == [(Verdict.SAME, "")] * 3, found.to_json()


def test_a_line_break_in_a_word_of_a_link_command_is_refused(toolchain: Toolchain):
    with pytest.raises(ToolError, match=r"clang -###: expected quoted words, found .*; take line breaks out"):
        link_options(["clang++", "-Xlinker", "a\nb", "a.o"], toolchain=toolchain)


def test_a_link_command_that_clang_does_not_take_is_refused(toolchain: Toolchain):
    with pytest.raises(
        UsageError, match=r"link command: the option .*no-such-option' is not in the list of reviewed options"
    ):
        link_options(["clang++", "--no-such-option", "a.o"], toolchain=toolchain)

"""Corpora of what a linker compiles: projects of a corpus, linked with link-time optimization."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.calls import ended

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.corpus.link import Link, run
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import UsageError
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm

SOURCES = {
    "helper.c": """
        int table[100];
        int helper(int x) { return table[0] += x * 3 + table[x % 100]; }
        int unused(int x) { return table[x] * 7; }
        int main(int count, char **words) { int work(int); return work(count); }
    """,
    "work.c": """
        int helper(int x); extern int table[];
        int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += table[i] * helper(i); return s; }
    """,
    "other.c": "int main(void) { return 1; }",
}
DEFAULT = CompileRequest(use=PluginUse(policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,)))


def import_sources(folder: Path, sources: Mapping[str, str], toolchain: Toolchain) -> Path:
    """Make a corpus with one project of these sources."""
    folder.mkdir()
    for name, text in sources.items():
        (folder / name).write_text(text)
    words = [str(toolchain.clang), "-Oz", "-c"]
    entries = [
        {"directory": str(folder), "file": name, "output": f"{name}.o", "arguments": [*words, name, "-o", f"{name}.o"]}
        for name in sources
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    argv = ["corpus", "import", "--compile-commands", str(folder / "compile_commands.json"), "--project", "app"]
    assert ended(*argv, "--corpus", folder / "corpus", "--llvm", toolchain.major) == 0
    return folder / "corpus"


def test_the_calls_of_all_modules_are_decided_in_what_is_merged(
    toolchain: Toolchain, here: ClangCompiler, tmp_path: Path
):
    corpus = import_sources(tmp_path / "app", SOURCES, toolchain)
    made = run(
        Link(modules=corpus, corpus=tmp_path / "full", shares=(1e-9,), compiler=CompilerOptions(llvm=toolchain.major))
    )
    assert made["modules"] == 1
    assert made["reasons"] == {
        "app/other.c.o": "expected functions that no other module defines, found main of app/helper.c.o too"
    }
    (module,) = load_corpus(tmp_path / "full").modules
    done = here.compile(module, DEFAULT)
    assert done.ok, done.reason
    # Of main, work and helper only main is for others, and nothing calls unused.
    assert len(done.decisions) == 2
    assert done.sizes is not None
    assert done.sizes.function_names == ("main",)


def test_of_thinlto_each_object_is_a_module_with_its_imports(toolchain: Toolchain, here: ClangCompiler, tmp_path: Path):
    corpus = import_sources(
        tmp_path / "app", {name: text for name, text in SOURCES.items() if name != "other.c"}, toolchain
    )
    made = run(
        Link(
            modules=corpus,
            corpus=tmp_path / "thin",
            lto="thin",
            shares=(1.0,),
            compiler=CompilerOptions(llvm=toolchain.major),
        )
    )
    assert (made["modules"], made["failures"]) == (2, 0)
    linked = load_corpus(tmp_path / "thin")
    assert [module.name for module in linked.modules] == ["app/link-1/helper.c.o", "app/link-1/work.c.o"]
    work = here.compile(linked.modules[1], DEFAULT)
    assert work.ok, work.reason
    # The body of helper came from the other module, and is in no object of this one.
    assert len(work.decisions) == 1
    assert work.sizes is not None
    assert "helper" not in work.sizes.function_names


def test_a_project_may_have_more_functions_than_a_command_line_takes(toolchain: Toolchain, tmp_path: Path):
    # A command line takes 2 MiB on most machines.
    names = [f"f{number:03}{'x' * 4000}" for number in range(600)]
    text = "".join(f"int {name}(int x) {{ return x + 1; }}\n" for name in names)
    corpus = import_sources(tmp_path / "app", {"many.c": text}, toolchain)
    compiler = CompilerOptions(llvm=toolchain.major)
    made = run(Link(modules=corpus, corpus=tmp_path / "full", shares=(1.0,), compiler=compiler))
    assert (made["modules"], made["failures"]) == (1, 0)


def test_what_cannot_be_linked_is_refused_before(tmp_path: Path):
    with pytest.raises(UsageError, match="--shares: expected numbers above 0 and at most 1, found 2"):
        run(Link(modules=tmp_path, corpus=tmp_path / "linked", shares=(0.5, 2.0)))
    with pytest.raises(UsageError, match="expected a corpus that was made here, as a linker does not run in a sandbox"):
        run(Link(modules=tmp_path, corpus=tmp_path / "linked"))

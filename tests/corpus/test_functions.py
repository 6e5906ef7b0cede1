"""Modules of single functions are grouped by options, and their sizes are spread evenly."""

from pathlib import Path

import pytest

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.functions import extract_functions, group_functions, partition_modules
from mlgokit.errors import ToolError, UsageError
from mlgokit.module import Module


def module(name: str, size: int, *options: str, project: str = "p", held_out: bool = False) -> Module:
    return Module(
        name=name,
        project=project,
        language="c",
        held_out=held_out,
        bitcode=Path(f"{name}.bc"),
        command_line=("-cc1", *options),
        bitcode_bytes=size,
    )


def names(modules: list[Module], most: int) -> list[list[str]]:
    return [[one.name for one in part] for part in partition_modules(modules, most)]


def test_groups_are_those_of_the_reference():
    three = [module("module1", 5), module("module2", 4), module("module3", 3)]
    assert names([three[0], three[2]], 2) == [["module1", "module3"]]
    assert names([module("module1", 5), module("module2", 5, "-O3")], 2) == [["module1"], ["module2"]]
    assert names([three[0], three[2]], 1) == [["module1"], ["module3"]]
    assert names(three, 2) == [["module1", "module3"], ["module2"]]


def test_a_group_is_of_one_project_and_on_one_side_of_the_split():
    modules = [module("a", 1), module("b", 1, project="q"), module("c", 1, held_out=True), module("d", 9)]
    assert names(modules, 4) == [["d", "a"], ["b"], ["c"]]


def test_a_tool_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    clang = tmp_path / "clang"
    compiler = ClangCompiler(toolchain=Toolchain(major=22, version="22.1.0", clang=clang, clangxx=clang), plugin=clang)
    corpus = Corpus(folder=tmp_path, modules=(module("a", 1),))
    sentence = "expected {} of LLVM 22 beside clang, found none; run `sudo apt-get install .* llvm-22`"
    with pytest.raises(ToolError, match=sentence.format("llvm-extract")):
        extract_functions(corpus, corpus_folder=tmp_path / "functions", compiler=compiler)
    with pytest.raises(ToolError, match=sentence.format("llvm-link")):
        group_functions(corpus, corpus_folder=tmp_path / "groups", compiler=compiler, groups=1)
    with pytest.raises(UsageError, match="--groups: expected at least 1, found 0; give a positive number"):
        group_functions(corpus, corpus_folder=tmp_path / "groups", compiler=compiler, groups=0)

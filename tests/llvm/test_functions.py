"""Functions of a corpus become modules of their own, and these are linked into groups."""

import json
from pathlib import Path

import pytest
from tests.llvm.test_linked_corpus import import_sources

from mlgokit.commands.compat import Compat, run
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.program_version import program_version
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.functions import NAMES_FILE, extract_functions

pytestmark = pytest.mark.llvm

SOURCES = {
    "a.c": """
        static int table[9];
        static __attribute__((noinline)) int local(int x) { return table[x % 9] += x; }
        int first(int x) { return local(x) + 1; }
        int twice(int x) { return x * 2; }
    """,
    "b.c": """
        int first(int x);
        __attribute__((weak)) int twice(int x) { return x + x; }
        int second(int x) { return first(x) * twice(x); }
    """,
}


@pytest.fixture(autouse=True)
def extractor(toolchain: Toolchain) -> None:
    """Skip where clang is installed without the tools of its LLVM."""
    found = toolchain.find_tool("llvm-extract")
    if found is None or program_version(found).major != toolchain.major:
        pytest.skip(f"llvm-extract of LLVM {toolchain.major} is not installed")


def symbols(toolchain: Toolchain, bitcode: Path) -> set[str]:
    """The names that bitcode defines."""
    nm = toolchain.find_tool("llvm-nm")
    assert nm is not None
    done = process.run([nm, "--defined-only", "--format=just-symbols", bitcode], timeout_seconds=60)
    return {*done.stdout.decode().split()}


@pytest.mark.every_major
def test_each_function_is_a_module_with_the_options_of_its_own(
    toolchain: Toolchain, here: ClangCompiler, tmp_path: Path
):
    corpus = load_corpus(import_sources(tmp_path / "app", SOURCES, toolchain))
    made = extract_functions(corpus, corpus_folder=tmp_path / "functions", compiler=here)
    assert (made.modules, made.failures) == (4, 0)
    functions = load_corpus(tmp_path / "functions")
    names = (tmp_path / "functions" / NAMES_FILE).read_text().split()
    assert {*names} == {"local", "first", "twice", "second"}
    for module, name in zip(functions.modules, names, strict=True):
        assert symbols(toolchain, module.bitcode) == {name}
        assert (module.project, module.command_line) == ("app", corpus.modules[0].command_line)
        done = here.compile(module)
        assert done.ok, done.reason
        assert done.sizes is not None
        assert done.sizes.function_names == (name,)


def test_the_calls_of_the_references_tools_give_a_corpus_that_loads(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(LOCATION_VARIABLE, str(toolchain.clang.resolve().parent.parent))
    monkeypatch.chdir(tmp_path)
    corpus = import_sources(tmp_path / "app", SOURCES, toolchain)
    Path("list").write_text("first\nmissing\nsecond\ntwice\n")
    words = ["extract_functions", f"--optimized_corpus={corpus}", "--function_list=list", "--output_path=functions"]
    extracted = run(Compat(call=(*words, "--llvm_nm_path=nm", "--llvm_extract_path=x", "--opt_path=y")))
    assert extracted.result["modules"] == 3
    reason = "expected a function that a module of the corpus defines, found none; correct its name"
    assert extracted.result["reasons"] == {"missing": reason}
    # As there, a module is named by the place of its function in the list, and the last module that defines it counts.
    assert sorted(path.name for path in Path("functions").glob("*.bc")) == ["0.bc", "2.bc", "3.bc"]
    shown = process.run([str(toolchain.find_tool("llvm-nm")), "functions/3.bc"], timeout_seconds=60).stdout.decode()
    assert shown.split()[-2:] == ["W", "twice"]

    words = ["group_functions", "--function_folder=functions", "--output_folder=groups", "--llvm_link_path=z"]
    assert run(Compat(call=(*words, "--chunk_count=2"))).result["modules"] == 2
    groups = load_corpus(Path("groups"))
    found = [symbols(toolchain, module.bitcode) for module in groups.modules]
    assert sorted(map(len, found)) == [1, 2]
    assert set[str]().union(*found) == {"first", "second", "twice"}
    # The reference's description names one module more than there are.
    described = json.loads(Path("groups/corpus_description.json").read_text())
    assert described == {"has_thinlto": False, "modules": ["0", "1"]}
    assert sorted(path.name for path in Path("groups").glob("*.bc")) == ["0.bc", "1.bc"]

"""What the plugin says of a module: what changes its identity and what does not, and the counts."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.describe import DescribeAt, ModuleDescription, describe_module
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.identity import describe_corpus, duplicate_groups
from mlgokit.module import Module

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SOURCE = """
extern int sink(const char *, int);
extern int other(const char *, int);
struct pair { int first; float second; };
static int helper(int value, struct pair *where) {
  int sum = 0;
  for (int i = 0; i < value; ++i)
    sum += where->first * i;
  return sum;
}
int twice(int value) {
  struct pair local = {3, 1.5f};
  if (value > 9)
    return helper(value, &local) + 17;
  return sink("a text", value);
}
int main(int count, char **words) {
  volatile int kept = count;
  return twice(kept) + helper(kept, 0);
}
"""

Describe = Callable[..., ModuleDescription]


def bitcode_of(toolchain: Toolchain, folder: Path, source: str, *options: str, name: str = "m.c") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(source)
    output = folder / f"{name}.bc"
    argv = [toolchain.clang, "-c", "-emit-llvm", "-Oz", "-Xclang", "-disable-llvm-passes", *options, name, "-o", output]
    done = process.run(argv, timeout_seconds=60, cwd=folder)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def describe(toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Describe:
    def describe_source(source: str, *options: str, name: str = "m.c", folder: str = "here") -> ModuleDescription:
        bitcode = bitcode_of(toolchain, tmp_path / folder, source, *options, name=name)
        found = describe_module(toolchain, plugin, bitcode)
        assert not found.reason
        return found

    return describe_source


def test_names_paths_and_debug_information_do_not_change_the_identity(describe: Describe, toolchain: Toolchain):
    whole = describe(SOURCE)
    assert whole.identity.startswith(f"{toolchain.major}:")
    swapped = SOURCE.replace("sum", "total").replace("local", "where_to").replace("value", "number")
    for same in (
        describe(SOURCE, name="renamed.c"),
        describe(SOURCE, folder="elsewhere/deep"),
        describe(SOURCE, "-g"),
        describe(SOURCE, "-g", "-fno-discard-value-names", name="sub/again.c"),
        describe("\n\n/* moved */" + SOURCE),
        describe(swapped, "-fno-discard-value-names"),
        describe(SOURCE.replace("helper", "assistant")),
        describe(SOURCE.replace("pair", "couple")),
        describe(SOURCE.replace("twice", "two_times")),
    ):
        assert same.identity == whole.identity
        assert same.identities == whole.identities


def test_the_path_of_the_source_in_a_text_does_not_change_the_identity(describe: Describe):
    source = SOURCE.replace('"a text"', "__FILE__")
    assert describe(source).identity == describe(source, name="much/longer/name.c").identity
    assert describe(source).identity != describe(SOURCE).identity


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 17", "+ 18"),
        ("+ 17", "- 17"),
        ("1.5f", "1.25f"),
        ('"a text"', '"a test"'),
        ("return sink(", "return other("),
        ("value > 9", "value >= 9"),
        ("struct pair { int first", "struct pair { short first"),
        ("volatile int kept", "int kept"),
        ("static int helper", "int helper"),
        ("static int helper", "__attribute__((noinline)) static int helper"),
        ("first * i", "first * sum"),
        ("return twice(kept) + helper(kept, 0)", "return helper(kept, 0) + twice(kept)"),
    ],
)
def test_a_change_of_meaning_changes_the_identity(old: str, new: str, describe: Describe):
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert describe(changed, "-w").identity != describe(SOURCE).identity


def test_which_function_is_called_matters_though_all_stay(describe: Describe):
    definitions = "static int f(int x) { return x + 1; } static int g(int x) { return x + 2; } "
    first = describe(definitions + "int h(int x) { return f(x) * g(x + 3); }")
    second = describe(definitions + "int h(int x) { return g(x) * f(x + 3); }")
    identities = [dict(zip(one.names, one.identities, strict=True)) for one in (first, second)]
    assert first.identity != second.identity
    assert identities[0]["f"] == identities[1]["f"]
    assert identities[0]["h"] != identities[1]["h"]


def test_the_order_of_functions_does_not_matter(describe: Describe):
    one, two = "int f(int x) { return x + 1; }", "int g(int x) { return x * 3; }"
    assert describe(one + two).identity == describe(two + one).identity


def test_functions_calls_and_linkages_are_counted(describe: Describe):
    found = describe(SOURCE, "-g")
    assert (found.functions, found.declarations, found.language) == (3, 1, "DW_LANG_C11")
    rows = {name: index for index, name in enumerate(found.names)}
    assert set(rows) == {"helper", "twice", "main"}
    assert found.linkages[rows["helper"]] == "internal"
    calls = dict(zip(found.names, found.column("call_sites").tolist(), strict=True))
    assert calls == {"helper": 0, "twice": 2, "main": 2}
    assert found.total("decidable_call_sites") == 3 == found.total("DirectCallsToDefinedFunctions")
    assert found.total("opcode_mul") == 1
    assert found.column("MaxLoopDepth").tolist() == [int(name == "helper") for name in found.names]
    assert found.column("instructions").tolist() == found.column("TotalInstructionCount").tolist()
    assert found.total("ConstantIntOperandCount") > 0
    assert found.global_bytes == len("a text") + 1 + 8


def test_after_the_passes_there_is_less(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    bitcode = bitcode_of(toolchain, tmp_path, SOURCE)
    options = ("-cc1", "-triple", toolchain.target, "-Oz")
    start = describe_module(toolchain, plugin, bitcode, command_line=options)
    end = describe_module(toolchain, plugin, bitcode, command_line=options, at=DescribeAt.END)
    assert not start.reason + end.reason
    assert 0 < end.total("instructions") < start.total("instructions")
    assert end.total("opcode_alloca") < start.total("opcode_alloca")
    assert start.columns == end.columns


@pytest.mark.usefixtures("other_targets")
def test_a_module_of_another_target_is_left_as_it_is(
    describe: Describe, toolchain: Toolchain, plugin: Path, tmp_path: Path
):
    bitcode = bitcode_of(
        toolchain, tmp_path, "int f(void) { return 1; }", "--target=aarch64-linux-gnu", "-ffreestanding"
    )
    options = ("-cc1", "-triple", "aarch64-unknown-linux-gnu", "-Oz")
    found = describe_module(toolchain, plugin, bitcode, command_line=options)
    assert not found.reason
    assert found.identity != describe("int f(void) { return 1; }").identity


def test_what_is_no_bitcode_is_a_reason(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    (tmp_path / "x.bc").write_bytes(b"BC\xc0\xde nothing")
    assert "error:" in describe_module(toolchain, plugin, tmp_path / "x.bc").reason
    assert "error:" in describe_module(toolchain, plugin, tmp_path / "gone.bc").reason


def test_a_deadline_is_a_reason(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    bitcode = bitcode_of(toolchain, tmp_path, SOURCE)
    assert describe_module(toolchain, plugin, bitcode, timeout_seconds=0).reason == "not described after 0 s"


def test_copies_in_a_corpus_are_found(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    sources = {"p/a.c": SOURCE, "q/vendored/b.c": SOURCE, "q/c.c": SOURCE.replace("17", "19")}
    modules: list[Module] = []
    for name, source in sources.items():
        bitcode = bitcode_of(toolchain, tmp_path, source, *["-g"] * name.startswith("q"), name=name)
        modules.append(
            Module(name=name, project=name[0], language="c", bitcode=bitcode, command_line=("-cc1",), bitcode_bytes=1)
        )
    shutil.copyfile(modules[0].bitcode, tmp_path / "copy.bc")
    copy = Module(
        name="copy", project="r", language="c", bitcode=tmp_path / "copy.bc", command_line=(), bitcode_bytes=1
    )
    contents = describe_corpus(tmp_path, [*modules, copy], toolchain=toolchain, plugin=plugin)
    assert not contents.failures
    assert duplicate_groups([*modules, copy], contents, exact=True) == (("p/a.c", "copy"),)
    assert duplicate_groups([*modules, copy], contents, exact=False) == (("p/a.c", "q/vendored/b.c", "copy"),)

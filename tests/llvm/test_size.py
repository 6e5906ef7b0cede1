"""Sizes of what real compilers and linkers make: totals as llvm-size has them, and who owns what."""

import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.cli import main
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, UsageError
from mlgokit.sizes.compare import compare_sizes
from mlgokit.sizes.measure import measure_file
from mlgokit.sizes.record import Sizes, SymbolSize
from mlgokit.sizes.why import find_reasons

pytestmark = pytest.mark.llvm

MAIN = """
int used(int);
template <class T> T twice(T x) { return x + x; }
template <class T> struct Box {
  T value;
  __attribute__((noinline)) T get(T more) { return value * more + twice(more); }
};
static int inlined(int x) { return x * 3 + 1; }
int table[64] = {1, 2, 3};
int zeros[128];
__attribute__((noinline)) int caller(int x) { return used(inlined(x)) + table[x] + zeros[x]; }
int pointed(int x) { return x + 7; }
int (*volatile pointer)(int) = pointed;
int main(int count, char**) {
  Box<int> a{count};
  Box<double> b{1.5 * count};
  return caller(count) + a.get(count) + int(b.get(2)) + pointer(count);
}
"""
USED = """
__attribute__((noinline)) int deep(int x) {
  volatile int sum = 0;
  for (int i = 0; i < x; i++) sum = sum + i * i;
  return sum;
}
int used(int x) { return deep(x) + 1; }
int unused(int x) { return x ^ 5; }
"""
BARE = """
static int held[50] = {1, 2, 3};
int zeroed[20];
__attribute__((noinline)) int inner(int x) { return held[x % 50]++ + zeroed[x % 20]; }
int outer(int x) { return inner(x) + 7; }
const char *text(void) { return "hello world"; }
"""
FORMATS = {
    "thumbv7m-none-eabi": "ELF ARM object",
    "riscv32-unknown-elf": "ELF RISC-V object",
    "wasm32": "wasm object",
    "x86_64-pc-windows-gnu": "COFF x86_64 object",
    "thumbv7-pc-windows-gnu": "COFF thumb object",
    "arm64-apple-macos": "Mach-O aarch64 object",
}

Build = Callable[..., Path]


@pytest.fixture
def build(toolchain: Toolchain, tmp_path: Path) -> Build:
    """Compiles main.cpp and used.cpp, and links them as ``kind`` says."""
    (tmp_path / "main.cpp").write_text(MAIN)
    (tmp_path / "used.cpp").write_text(USED)

    def run(*words: str | Path) -> None:
        done = process.run([str(word) for word in words], timeout_seconds=120, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    def make(kind: str, *options: str) -> Path:
        output = tmp_path / f"{kind}{len(list(tmp_path.iterdir()))}"
        clang = toolchain.clang
        linker = (f"--ld-path={toolchain.lld}",)
        if kind == "program":
            run(clang, "-O2", *options, "main.cpp", "used.cpp", *linker, "-o", output)
        elif kind == "library":
            run(clang, "-O2", *options, "-fPIC", "-shared", "main.cpp", "used.cpp", *linker, "-o", output)
        else:
            run(clang, "-O2", *options, "-c", "main.cpp", "used.cpp")
            archiver = toolchain.find_tool("llvm-ar")
            assert archiver is not None
            run(archiver, "qcs", output, "main.o", "used.o")
        return output

    return make


@pytest.fixture
def bare(toolchain: Toolchain, other_targets: None, tmp_path: Path) -> Build:
    """Compiles an object for another target, which needs no headers."""

    def make(target: str, text: str = BARE, *options: str) -> Path:
        (tmp_path / "bare.c").write_text(text)
        output = tmp_path / f"{target}.o"
        words = [toolchain.clang, f"--target={target}", "-O2", "-g", "-ffreestanding", *options]
        words += ["-c", "bare.c", "-o", output]
        done = process.run([str(word) for word in words], timeout_seconds=120, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return output

    return make


def check_totals(toolchain: Toolchain, path: Path) -> Sizes:
    """Sections are those of llvm-size, and every byte of the file and of memory counts once."""
    program = toolchain.find_tool("llvm-size")
    assert program is not None
    lines = process.run([program, "-A", path], timeout_seconds=60).stdout.decode().splitlines()
    sizes = measure_file(path)
    # What llvm-size calls addresses of wasm are offsets in the file.
    has_addresses = not sizes.kind.startswith("wasm")
    expected = Counter(
        (found[1], int(found[2]), int(found[3]) * has_addresses)
        for line in lines
        if (found := re.fullmatch(r"(\S.*?)\s+(\d+)\s+(\d+)", line)) and found[1] != "Total"
    )
    assert expected
    assert Counter((one.name, one.size, one.address) for one in sizes.sections if one.listed) == expected
    outside = sum(one.file for one in sizes.outside)
    no_symbol = sum(one.no_symbol_file for one in sizes.sections)
    assert sizes.file_bytes == path.stat().st_size
    assert sum(one.file for one in sizes.symbols) + no_symbol + outside == sizes.file_bytes
    in_memory = sum(one.memory for one in sizes.symbols) + sum(one.no_symbol_memory for one in sizes.sections)
    assert in_memory == sizes.memory_bytes
    for groups in (sizes.sources, sizes.libraries):
        assert sum(one.file for one in groups) + outside in {outside, sizes.file_bytes}
    return sizes


def symbol(sizes: Sizes, name: str) -> SymbolSize:
    return next(one for one in sizes.symbols if name in (*one.names, one.readable))


@pytest.mark.parametrize("kind", ["program", "library", "archive"])
@pytest.mark.parametrize(
    "options",
    [(), ("-g",), ("-ffunction-sections", "-fdata-sections")],
    ids=["plain", "debug", "sections"],
)
def test_totals_are_those_of_llvm_size(toolchain: Toolchain, build: Build, kind: str, options: tuple[str, ...]) -> None:
    sizes = check_totals(toolchain, build(kind, *options))
    assert (symbol(sizes, "table").file, symbol(sizes, "zeros").memory, symbol(sizes, "zeros").file) == (256, 512, 0)
    assert {one.name: one.symbols for one in sizes.templates}["Box<>::get"] == 2
    source = symbol(sizes, "deep(int)").source
    assert source == ("used.cpp" if "-g" in options else "")
    assert bool(sizes.notes) is ("-g" not in options)
    if kind == "archive":
        assert {one.name for one in sizes.libraries} == {"main.o", "used.o"}
        assert symbol(sizes, "used(int)").library == "used.o"


@pytest.mark.every_major
def test_symbols_have_the_sizes_of_llvm_nm(toolchain: Toolchain, build: Build) -> None:
    path = build("program", "-g")
    program = toolchain.find_tool("llvm-nm")
    assert program is not None
    lines = process.run([program, "--print-size", path], timeout_seconds=60).stdout.decode().splitlines()
    expected = {words[3]: int(words[1], 16) for line in lines if len(words := line.split()) == 4 and int(words[1], 16)}
    found = {name: one.memory for one in check_totals(toolchain, path).symbols for name in one.names}
    assert expected
    assert {name: found.get(name) for name in expected} == expected


def test_folded_functions_count_once(toolchain: Toolchain, build: Build) -> None:
    sizes = check_totals(toolchain, build("program", "-flto", "-ffunction-sections", "-Wl,--icf=all", "-g"))
    assert symbol(sizes, "caller(int)").source == "main.cpp"


@pytest.mark.every_major
@pytest.mark.parametrize("target", FORMATS)
def test_objects_of_other_formats(toolchain: Toolchain, bare: Build, target: str) -> None:
    sizes = check_totals(toolchain, bare(target))
    assert sizes.kind == FORMATS[target]
    under = "_" if "apple" in target else ""
    assert symbol(sizes, f"{under}held").file == 200
    assert symbol(sizes, f"{under}zeroed").memory >= 80
    assert symbol(sizes, f"{under}inner").file > symbol(sizes, f"{under}outer").file > 0
    assert symbol(sizes, f"{under}inner").source == "bare.c"
    reasons = find_reasons(Path(sizes.path), f"{under}inner")
    assert [(one.readable, one.calls) for one in reasons.users] == [(f"{under}outer", True)]


def test_a_mach_o_object_of_32_bits(toolchain: Toolchain, bare: Build) -> None:
    sizes = check_totals(toolchain, bare("i386-apple-macos"))
    assert (sizes.kind, symbol(sizes, "_held").file) == ("Mach-O i386 object", 200)
    assert symbol(sizes, "_inner").source == "bare.c"


def test_zeros_of_each_thread_are_in_memory_alone(toolchain: Toolchain, bare: Build) -> None:
    text = "_Thread_local int each[30]; int one(int x) { return each[x % 30]; }"
    sizes = check_totals(toolchain, bare("arm64-apple-macos13", text))
    assert (symbol(sizes, "_each$tlv$init").file, symbol(sizes, "_each$tlv$init").memory) == (0, 120)


def test_a_map_tells_the_library(toolchain: Toolchain, build: Build, tmp_path: Path) -> None:
    link_map = tmp_path / "program.map"
    path = build("program", f"-Wl,-Map={link_map}")
    sizes = measure_file(path, link_map=link_map)
    library = symbol(sizes, "deep(int)").library
    assert library.startswith("/")
    assert re.search(r"used-\w+\.o$", library)
    outside = sum(one.file for one in sizes.outside)
    assert sum(one.file for one in sizes.libraries) + outside == sizes.file_bytes


def test_the_difference_of_two_builds_adds_up(build: Build) -> None:
    before, after = measure_file(build("program", "-g")), measure_file(build("program", "-g", "-Oz"))
    found = compare_sizes(before, after)
    assert found.symbols
    assert sum(one.file_after - one.file_before for one in found.sections) == after.file_bytes - before.file_bytes
    both = compare_sizes(before, before)
    assert (both.symbols, both.sections, both.sources) == ((), (), ())


@pytest.mark.every_major
def test_why_a_function_is_there(build: Build) -> None:
    path = build("program", "-g")
    deep = find_reasons(path, "deep(int)")
    assert [(one.readable, one.calls) for one in deep.users] == [("used(int)", True)]
    assert deep.chain[-3:] == ("caller(int)", "used(int)", "deep(int)")
    pointed = find_reasons(path, "pointed(int)")
    assert [(one.readable, one.calls) for one in pointed.users] == [("pointer", False)]
    inlined = find_reasons(path, "inlined")
    assert (inlined.size, [one.into for one in inlined.inlined]) == (0, ["caller(int)"])
    assert inlined.inlined[0].bytes > 0
    with pytest.raises(UsageError, match="--why nothing_like_it: expected a symbol of"):
        find_reasons(path, "nothing_like_it")


def test_why_a_function_is_in_a_library_of_objects(build: Build) -> None:
    path = build("archive", "-g")
    assert [one.readable for one in find_reasons(path, "pointed(int)").users] == ["pointer"]
    assert [one.readable for one in find_reasons(path, "used(int)").users] == ["caller(int)"]
    assert [one.into for one in find_reasons(path, "inlined").inlined] == ["caller(int)"]


LINUX, WINDOWS = "x86_64-linux-gnu", "x86_64-pc-windows-msvc"
POINTERS = """
int f1(int x) { return x + 1; }
int f2(int x) { return x + 2; }
int (*const first[2])(int) = {f1, f1};
int (*const second[2])(int) = {f2, f2};
const int numbers[2] = {1, 2};
int g(int x) { return numbers[x]; }
"""


def run_tool(toolchain: Toolchain, name: str, *words: str | Path) -> None:
    program = toolchain.find_tool(name)
    assert program is not None
    done = process.run([program, *words], timeout_seconds=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("target", "user"), [(LINUX, "second"), (WINDOWS, "section .rdata")])
def test_sections_of_one_name_are_told_apart_or_not_named(bare: Build, target: str, user: str) -> None:
    path = bare(target, POINTERS, "-fdata-sections", "-fno-unique-section-names")
    assert [one.symbol for one in find_reasons(path, "f2").users] == [user]


def test_members_of_one_name_are_told_apart(toolchain: Toolchain, bare: Build, tmp_path: Path) -> None:
    library = tmp_path / "twice.a"
    for number in (1, 2):
        text = f"int f{number}(int x) {{ return x; }} int (*p{number})(int) = f{number};"
        run_tool(toolchain, "llvm-ar", "qc", library, bare(LINUX, text))
    assert [one.symbol for one in find_reasons(library, "f2").users] == ["p2"]


def test_a_symbol_is_found_by_each_of_its_names_and_by_a_part_of_one(bare: Build) -> None:
    path = bare(
        LINUX,
        """
        int shown(int) __asm__("_Z5showni");
        int shown(int x) { return x * 7 + 1; }
        int other(int) __asm__("_Z5otheri") __attribute__((alias("_Z5showni")));
        int name_of_c(int x) { return other(x) + 1; }
        """,
    )
    for wanted in ("shown(int)", "other(int)", "othe"):
        assert set(find_reasons(path, wanted).names) == {"_Z5showni", "_Z5otheri"}
    assert find_reasons(path, "name_of").names == ("name_of_c",)
    with pytest.raises(UsageError, match="found shown\\(int\\), other\\(int\\), name_of_c; give a whole name"):
        find_reasons(path, "n")


def test_a_symbol_with_a_version_is_called(toolchain: Toolchain, build: Build, tmp_path: Path) -> None:
    path = tmp_path / "versioned"
    run_tool(toolchain, "llvm-objcopy", "--redefine-sym", "_Z4deepi=deep@@V1", build("program"), path)
    assert [one.readable for one in find_reasons(path, "deep@@V1").users] == ["used(int)"]


def test_a_kernel_is_at_the_end_of_all_addresses(toolchain: Toolchain, bare: Build, tmp_path: Path) -> None:
    text = "int f(int x) { return x + 7; }\nint (*volatile pointer)(int) = f;\nint main(void) { return pointer(1); }"
    path = tmp_path / "kernel"
    words = ("--image-base=0xffffffff81000000", "-e", "main", bare(LINUX, text, "-fno-pic", "-mcmodel=kernel"))
    run_tool(toolchain, "ld.lld", *words, "-o", path)
    sizes = check_totals(toolchain, path)
    assert symbol(sizes, "f").source == "bare.c"
    reasons = find_reasons(path, "f")
    assert ([one.symbol for one in reasons.users], reasons.chain) == (["pointer"], ("main", "pointer", "f"))


def test_sources_are_told_whatever_a_file_is_called(
    toolchain: Toolchain, bare: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = bare(LINUX)
    for name in ("-dash.o", "copy (1)"):
        made.replace(name)
        made = Path(name)
        assert symbol(measure_file(made), "inner").source == "bare.c"
        assert [one.symbol for one in find_reasons(made, "inner").users] == ["outer"]
    Path("folder").mkdir()
    thin = Path("thin (1).a")
    run_tool(toolchain, "llvm-ar", "qc", "--thin", thin, made.replace("folder/copy (1).o"))
    assert (symbol(measure_file(thin), "inner").source, symbol(measure_file(thin), "inner").library) == (
        "bare.c",
        "folder/copy (1).o",
    )


@pytest.mark.parametrize("version", [4, 5])
def test_a_unit_whose_debug_information_is_elsewhere_has_the_name_of_that_file(bare: Build, version: int) -> None:
    path = bare(LINUX, BARE, "-gsplit-dwarf", f"-gdwarf-{version}")
    assert symbol(measure_file(path), "inner").source == str(path.with_suffix(".dwo"))


def test_the_command_prints_and_writes(build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build("program", "-g")

    def printed(*words: str | Path) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["size", *map(str, words)])
        assert not caught.value.code
        return capsys.readouterr().out

    shown = printed(path, "--output", tmp_path / "sizes.json")
    assert len(shown.splitlines()) <= 25
    assert f"{path.stat().st_size:,} bytes in the file" in shown
    assert Sizes.from_json(json.loads((tmp_path / "sizes.json").read_text())).file_bytes == path.stat().st_size
    assert 'class="treemap"' in (tmp_path / "sizes.html").read_text()
    assert json.loads(printed(path, "--format", "size-limit")) == [{"name": path.name, "size": path.stat().st_size}]
    assert printed(path, path, "--format", "markdown").startswith(f"# Sizes of {path.name} and {path.name}\n")
    assert "called by used(int)" in printed(path, "--why", "deep(int)")
    assert json.loads(printed(path, "--json"))["format"] == "mlgokit sizes"
    assert "Box<>::get" in printed(path, "--by", "template", "source")


def ended(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Exit code of `mlgokit size`, and what it printed."""
    with pytest.raises(SystemExit) as caught:
        main(["size", *map(str, words)])
    said = capsys.readouterr()
    return int(caught.value.code or 0), said.out + said.err


def test_a_file_is_held_to_its_limits(build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = build("program", "-Oz").rename(tmp_path / "small")
    large = build("program", "-O0").rename(tmp_path / "large")
    before, after = (measure_file(path).loaded_bytes for path in (small, large))
    assert before < after
    assert ended(capsys, large, "--max-bytes", str(after))[0] == 0
    code, said = ended(capsys, large, "--max-bytes", str(after - 1), "--format", "markdown")
    assert code == 1
    assert f"{large}: {after:,} bytes are loaded, 1 more than --max-bytes {after - 1:,}." in said.replace("\\", "")
    code, said = ended(capsys, large, "--max-bytes", "1", "--format", "size-limit")
    assert (code, "more than --max-bytes 1\n" in said) == (1, True)
    earlier = tmp_path / "earlier.json"
    assert ended(capsys, small, "--output", earlier)[0] == 0
    percent = 100 * (after / before - 1)
    for first in (small, earlier):
        assert ended(capsys, first, large, "--max-growth", f"{percent + 0.01}")[0] == 0
        code, said = ended(capsys, first, large, "--max-growth", "0.5", "--json")
        assert code == 1
        sentence = f"{after:,} bytes are loaded, {percent:.2f} % more than the {before:,} before; --max-growth is 0.5 %"
        assert json.loads(said)["violations"] == [f"{large}: {sentence}"]
        assert ended(capsys, large, first if first is small else large, "--max-growth", "0")[0] == 0


def test_a_map_beside_an_earlier_record_is_that_of_the_second_file(
    build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, link_map = tmp_path / "earlier.json", tmp_path / "program.map"
    path = build("program", f"-Wl,-Map={link_map}")
    assert ended(capsys, path, "--map", link_map, "--output", record)[0] == 0
    code, said = ended(capsys, record, path, "--map", link_map, "--json")
    assert (code, json.loads(said)["libraries"]) == (0, [])
    code, said = ended(capsys, record, path, "--map", link_map, "--map", link_map)
    assert (code, "--map: expected at most one linker map for each file, found 2" in said) == (2, True)


def test_a_limit_of_growth_needs_the_earlier_file(
    build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = build("program")
    code, said = ended(capsys, path, "--max-growth", "1")
    assert (code, "--max-growth: expected two files, the earlier one first, found one" in said) == (2, True)
    (tmp_path / "no.json").write_text("{}")
    code, said = ended(capsys, tmp_path / "no.json", path)
    assert code == InputError.exit_code
    assert "no.json" in said


def test_the_script_of_ci_holds_programs(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mlgokit").write_text(f'#!/bin/sh\nexec {sys.executable} -m mlgokit "$@"\n')
    (programs / "mlgokit").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    folder = tmp_path / "build"
    folder.mkdir()
    build("program", "-Oz").rename(folder / "app")

    def script(reports: str, *programs: str) -> tuple[int, str]:
        monkeypatch.setenv("MLGOKIT_REPORTS", reports)
        words = ["sh", Path(__file__).parents[2] / "examples/ci/size.sh", *programs]
        code = process.run(words, cwd=folder, timeout_seconds=60).returncode
        return code, (folder / reports / "size.md").read_text()

    assert script("first", "app=10000000") == (0, (folder / "first/size.md").read_text())
    assert script("tight", "app=10")[0] == 1
    monkeypatch.setenv("MLGOKIT_BASELINE", "first")
    monkeypatch.setenv("MLGOKIT_MAX_GROWTH", "1")
    assert script("second", "app")[0] == 0
    build("program", "-O0").rename(folder / "app")
    build("program").rename(folder / "new")
    code, text = script("third", "app", "new")
    assert (code, "before; --max-growth is 1 %" in text, "# Sizes of new\n" in text) == (1, True, True)
    assert {path.name for path in (folder / "third").glob("*.json")} == {"app.json", "new.json"}


def test_the_commands_of_the_how_to_run(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "how-to"
    (folder / "old").mkdir(parents=True)
    build("program", "-Oz", "-g").rename(folder / "old/app")
    build("program", "-g", f"-Wl,-Map={folder / 'app.map'}").rename(folder / "app")
    monkeypatch.chdir(folder)
    text = (Path(__file__).parents[2] / "docs/how-to/size.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 10
    for line in lines:
        words = shlex.split(line)
        assert words[:2] == ["mlgokit", "size"]
        with pytest.raises(SystemExit) as caught:
            main(words[1:])
        assert not caught.value.code, line
    assert {path.name for path in folder.glob("*.html")} == {"sizes.html", "difference.html", "earlier.html"}

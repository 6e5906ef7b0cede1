"""The account of what a real compiler writes, against llvm-size and against what the source says."""

from pathlib import Path

import pytest

from mlgokit.builds.images import holds_path
from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import ObjectSizes, function_scores, link_weights, measure_object
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

SOURCE = """
extern "C" int puts(const char *);
void may_throw(int);
struct Guard { ~Guard(); int held; };
struct Base { virtual ~Base(); virtual int value() const { return 1; } };
struct Derived : Base { int value() const override { may_throw(2); return 7; } };
template <class T> __attribute__((noinline)) T twice(T x) { may_throw(x); return x + x; }
inline int counter = 40;
int initialised = 3;
int zero[100];
static __attribute__((noinline)) int local(int x) { Guard guard; may_throw(x); return x; }
Base *make() { return new Derived; }
struct Made { Made(); int x; };
Made::Made() : x(counter) {}
int jump(int x) {
  switch (x) {
    case 0: return may_throw(1), 5;
    case 1: return puts("one");
    case 2: return local(3);
    case 3: return twice(4);
    case 4: return puts("four");
    case 5: return initialised;
    case 6: return zero[9];
    default: return twice<long>(x);
  }
}
"""

FLAGS = [
    ["-Oz", "-ffunction-sections", "-fdata-sections"],
    ["-Oz"],
    ["-O2", "-ffunction-sections", "-fPIC", "-g"],
    ["-O2", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-ffunction-sections"],
    ["-Oz", "-ffunction-sections", "--target=aarch64-linux-gnu"],
    ["-O1", "--target=aarch64-linux-gnu"],
    ["-Oz", "-mcmodel=large", "-fno-pie", "--target=x86_64-linux-gnu"],
    ["-Oz", "-ffunction-sections", "--target=thumbv7em-none-eabi", "-fexceptions"],
    ["-Oz", "--target=armv7a-linux-gnueabihf"],
    ["-Oz", "-ffunction-sections", "-fPIC", "--target=i386-linux-gnu"],
    ["-Oz", "-ffunction-sections", "--target=riscv32-unknown-elf", "-march=rv32imac", "-fasynchronous-unwind-tables"],
    ["-O2", "-ffunction-sections", "--target=riscv64-linux-gnu"],
]


def compile_source(toolchain: Toolchain, folder: Path, flags: list[str], source: str = SOURCE) -> Path:
    path, output = folder / "module.cc", folder / "module.o"
    path.write_text(source)
    completed = process.run(
        [toolchain.clangxx, "-std=c++17", "-w", *flags, "-c", path, "-o", output], timeout_seconds=60
    )
    assert completed.returncode == 0, completed.stderr
    return output


def text_column(toolchain: Toolchain, path: Path) -> list[int]:
    program = toolchain.clang.resolve().parent / "llvm-size"
    if not program.exists():
        pytest.skip(f"no llvm-size beside {toolchain.clang}")
    lines = process.run([program, path], timeout_seconds=20).stdout.decode().splitlines()
    return [int(word) for word in lines[1].split()[:3]]


def by_name(sizes: ObjectSizes) -> dict[str, int]:
    return {name: index for index, name in enumerate(sizes.function_names)}


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_llvm_size_agrees_and_every_byte_is_owned_once(toolchain: Toolchain, tmp_path: Path, flags: list[str]):
    path = compile_source(toolchain, tmp_path, flags)
    sizes = measure_object(path)
    assert [sizes.llvm_size_text, sizes.totals.data, sizes.totals.bss] == text_column(toolchain, path)
    owned = sizes.function_bytes.sum() + sizes.signature_rest.sum() + sizes.rest.sum()
    # Of each call for RISC-V the linker takes one instruction out.
    dump = [str(toolchain.clang.parent / "llvm-objdump"), "-r", str(path)]
    calls = process.run(dump, timeout_seconds=60).stdout.count(b" R_RISCV_CALL")
    assert owned + 4 * calls == sizes.llvm_size_text
    assert (calls > 0) == any("riscv" in flag for flag in flags)
    _, scores, rest = function_scores(sizes, {})
    assert scores.sum() + rest == owned


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_functions_own_their_unwind_and_exception_tables(toolchain: Toolchain, tmp_path: Path, flags: list[str]):
    sizes = measure_object(compile_source(toolchain, tmp_path, flags))
    index = by_name(sizes)
    local = index["_ZL5locali"]
    assert sizes.function_text[local] > 0
    if "-fno-exceptions" in flags:
        assert sizes.function_eh_frame.sum() == sizes.function_except_table.sum() == 0
    else:
        assert sizes.function_eh_frame.min() > 0
        assert sizes.function_except_table[local] > 0
        assert sizes.function_except_table[index["_ZN4MadeC2Ev"]] == 0
        assert sizes.function_except_table.sum() == sizes.totals.except_table
        # Nothing but CIEs and the terminator is left.
        assert sizes.rest[2] < 100
    if "-ffunction-sections" in flags:
        assert sizes.rest[0] == 0


def test_a_jump_table_belongs_to_its_function(toolchain: Toolchain, tmp_path: Path):
    flags = ["-O2", "-ffunction-sections", "--target=x86_64-linux-gnu"]
    sizes = measure_object(compile_source(toolchain, tmp_path, flags))
    jump = by_name(sizes)["_Z4jumpi"]
    assert sizes.function_rodata[jump] - sizes.function_except_table[jump] == 7 * 4


def test_inline_code_and_data_are_comdat(toolchain: Toolchain, tmp_path: Path):
    sizes = measure_object(compile_source(toolchain, tmp_path, FLAGS[0]))
    index, signatures = by_name(sizes), sizes.signatures
    assert {"_Z5twiceIiET_S0_", "_ZTV7Derived", "_ZTS7Derived", "counter"} <= set(signatures)
    assert signatures[sizes.function_signature[index["_Z5twiceIiET_S0_"]]] == "_Z5twiceIiET_S0_"
    assert sizes.function_signature[index["_Z4jumpi"]] == -1
    assert sizes.signature_rest[signatures.index("_ZTS7Derived")].tolist() == [0, len("7Derived") + 1, 0]
    assert sizes.signature_data[signatures.index("counter")] == 4
    assert link_weights([sizes, sizes])["counter"] == 2
    assert by_name(sizes)["_Z4makev"] >= 0


def test_more_sections_than_16_bits_count(toolchain: Toolchain, tmp_path: Path):
    source = "".join(f"extern const char v{n}; const char v{n} = 1;" for n in range(66000))
    path = compile_source(toolchain, tmp_path, ["-O0", "-fdata-sections"], source + "int last() { return 5; }")
    sizes = measure_object(path)
    assert sizes.totals.rodata == 66000
    assert sizes.function_names == ("_Z4lastv",)
    assert sizes.function_text[0] == sizes.totals.text > 0


def test_a_path_counts_where_it_is_loaded(toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "a.c").write_text("const char *name(void) { return NAME; }\n")
    for name, value, is_inside in (("inside", "__FILE__", True), ("beside", '"a"', False)):
        words = ["-g", "-Oz", f"-DNAME={value}", "-c", str(tmp_path / "a.c"), "-o", f"{name}.o"]
        done = process.run([toolchain.clang, *words], timeout_seconds=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert str(tmp_path).encode() in (tmp_path / f"{name}.o").read_bytes()
        assert holds_path(tmp_path / f"{name}.o", tmp_path) == is_inside
    assert not holds_path(tmp_path / "a.c", tmp_path)

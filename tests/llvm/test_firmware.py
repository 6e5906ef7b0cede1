"""The commands of docs/how-to/firmware.md, word for word: images get smaller, and run in QEMU as before."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from mlgokit.builds.images import weigh_image
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain

pytestmark = [pytest.mark.llvm, pytest.mark.usefixtures("other_targets")]

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "how-to" / "firmware.md"
BLOCK = re.compile(r"^ *```(?:ba)?sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PICOLIBC = Path("/usr/lib/picolibc")
ARM = ("make", "arm-none-eabi-gcc", "qemu-system-arm", PICOLIBC / "arm-none-eabi/lib/thumb/v7-m/nofp/libc.a")
RISCV = ("cmake", "riscv64-unknown-elf-gcc", "qemu-system-riscv32", PICOLIBC / "riscv64-unknown-elf/lib/rv32imac/ilp32")

SAYS = "".join(f"void say_{one}(int unused) {{ (void)unused; add({0x123456789ABC * (one + 1)}); }}" for one in range(6))
CALLS = " ".join(f"say_{number % 6}(0);" for number in range(48))
# LLVM's heuristic takes the calls of `say` for as large as their bodies, which need two registers, and inlines them.
SOURCES = {
    "main.c": """
        #include <stdio.h>
        static long long sum;
        void area(void);
        void add(long long number) { sum += number; }
        int main(void) { area(); printf("area %lld\\n", sum); return 0; }
    """,
    "shapes.c": f"""
        void add(long long number);
        {SAYS}
        void area(void) {{ {CALLS} }}
    """,
}
SAID = f"area {sum(8 * 0x123456789ABC * number for number in range(1, 7))}\n"
# As Zephyr does it: options of one interface library, a library that is linked whole, and a second link with a table
# that is made from the first image.
TWO_STEPS = """
    cmake_minimum_required(VERSION 3.13)
    project(app C)
    set(root /usr/lib/picolibc/riscv64-unknown-elf)
    set(lib ${root}/lib/rv32imac/ilp32)
    set(machine -march=rv32imac -mabi=ilp32)
    execute_process(COMMAND riscv64-unknown-elf-gcc ${machine} -print-libgcc-file-name
      OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE)
    add_library(interface INTERFACE)
    target_compile_options(interface INTERFACE ${machine} -mcmodel=medany "SHELL:-isystem ${root}/include"
      -Oz -ffunction-sections -fdata-sections -fno-unwind-tables -fno-asynchronous-unwind-tables ${PLUGIN})
    target_link_options(interface INTERFACE ${machine} -fuse-ld=lld -nostdlib -Wl,--gc-sections -T board.ld
      -L${CMAKE_SOURCE_DIR} -Wl,--defsym=FLASH=0x80000000 -Wl,--defsym=RAM=0x80400000)
    add_library(app STATIC main.c shapes.c)
    target_link_libraries(app interface)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.c "const int table_size = 0;")
    foreach(step pre0 final)
      add_executable(${step}.elf)
      target_link_libraries(${step}.elf interface ${lib}/crt0-semihost.o -Wl,--whole-archive app -Wl,--no-whole-archive
        -Wl,--start-group ${lib}/libc.a ${lib}/libsemihost.a ${libgcc} -Wl,--end-group)
    endforeach()
    add_custom_command(OUTPUT table.c DEPENDS pre0.elf
      COMMAND sh ${CMAKE_SOURCE_DIR}/table.sh)
    target_sources(pre0.elf PRIVATE ${CMAKE_BINARY_DIR}/empty.c)
    target_sources(final.elf PRIVATE ${CMAKE_BINARY_DIR}/table.c)
"""


@pytest.fixture
def project(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources beside the files of the recipe; the compiler of the page is this one."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "firmware", folder)
    for name, text in SOURCES.items():
        (folder / name).write_text(textwrap.dedent(text))
    lld = toolchain.clang.with_name("ld.lld")
    if not lld.exists():
        pytest.skip(f"{lld} is not installed")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "clang-22").symlink_to(toolchain.clang)
    (programs / "ld.lld-22").symlink_to(lld)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return folder


def skip_without(needs: Iterable[str | Path]) -> None:
    for one in needs:
        if shutil.which(one) is None and not Path(one).exists():
            pytest.skip(f"{one} is not installed")


def scripts(title: str) -> list[str]:
    """The commands of a section of the page."""
    text = DOCUMENT.read_text()
    begin = text.index(f"\n## {title}\n")
    return [textwrap.dedent(block) for block in BLOCK.findall(text[begin : text.find("\n## ", begin + 4)])]


def run(script: str, folder: Path, toolchain: Toolchain) -> str:
    """What the commands print, QEMU on standard error; the search is short."""
    mlgokit = f"{sys.executable} -m mlgokit"
    script = script.replace("mlgokit tune", f"{mlgokit} tune --llvm {toolchain.major} --workers 1").replace("15m", "2s")
    done = process.run(["sh", "-e", "-c", script], cwd=folder, timeout_seconds=240)
    assert done.returncode == 0, f"{done.stdout.decode()}{done.stderr}"
    return done.stderr


def check_promise(folder: Path, program: str) -> None:
    """The image that was built is smaller than the plain one, and what the search promised."""
    (promised,) = json.loads((folder / "tune" / "tuned.json").read_text())["built"]["programs"]
    assert promised["program"] == program
    plain, tuned = (promised[side]["image"] for side in ("plain", "tuned"))
    assert weigh_image(folder / program).row.image == tuned < plain


def test_cortex_m_by_make(toolchain: Toolchain, project: Path):
    skip_without(ARM)
    assert run(scripts("Cortex-M by Make")[0], project, toolchain).endswith(SAID)


@pytest.mark.slow
def test_cortex_m_by_make_is_tuned(toolchain: Toolchain, project: Path):
    skip_without(ARM)
    plain, _, _, tune, tuned = scripts("Cortex-M by Make")
    run(plain, project, toolchain)
    run(tune, project, toolchain)
    assert run(tuned, project, toolchain).endswith(SAID)
    check_promise(project, "firmware.elf")


@pytest.mark.slow  # the same as by Make, with another processor and build system
def test_risc_v_by_cmake_is_tuned(toolchain: Toolchain, project: Path):
    skip_without(RISCV)
    tune, tuned = scripts("RISC-V by CMake")
    run(tune, project, toolchain)
    assert run(tuned, project, toolchain).endswith(SAID)
    check_promise(project, "build/firmware.elf")


@pytest.mark.slow  # the same as by CMake, with two links
def test_an_image_that_is_linked_in_two_steps_is_tuned(toolchain: Toolchain, project: Path):
    skip_without(RISCV)
    tune, tuned = (
        text.replace("-DCMAKE_C_FLAGS='-Oz -ffunction-sections -fdata-sections'", "")
        .replace('-DCMAKE_C_FLAGS="-Oz -ffunction-sections -fdata-sections -fpass-plugin', '"-DPLUGIN=-fpass-plugin')
        .replace("build/firmware.elf", "build/final.elf")
        for text in scripts("RISC-V by CMake")
    )
    (project / "CMakeLists.txt").write_text(textwrap.dedent(TWO_STEPS))
    (project / "table.sh").write_text('echo "const int table_size = $(stat -c %s pre0.elf);" > table.c')
    with (project / "main.c").open("a") as file:
        file.write("extern const int table_size;\nint used(void) { return table_size; }\n")
    run(tune, project, toolchain)
    assert run(tuned, project, toolchain).endswith(SAID)
    check_promise(project, "build/final.elf")

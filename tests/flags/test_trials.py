"""Which flags a build's calls exclude, and which trials are stored."""

import dataclasses
from pathlib import Path

import pytest

from mlgokit.compiler.driver_call import read_call, read_linker_call
from mlgokit.compiler.wrapping import WrappedCall
from mlgokit.flags.record import Trial
from mlgokit.flags.reviewed import FLAGS
from mlgokit.flags.trials import ALREADY, PLAIN, TrialStore, find_excluded, options_of

SHARED = "the build links shared libraries"
TRIAL = Trial(
    flags=(),
    reason="",
    tests=None,
    programs={},
    files={},
    folders={},
    compile_seconds=1,
    link_seconds=1,
    wall_seconds=1,
)


def call(line: str) -> WrappedCall:
    """The record of a call that succeeded."""
    name, *words = line.split()
    facts = read_linker_call(words) if "ld" in name else read_call(words, is_cxx="++" in name)
    return WrappedCall(
        kind=facts["kind"],
        name=name,
        program=Path("/usr/bin") / name,
        folder=Path("/p"),
        words=tuple(words),
        inputs=tuple(map(Path, facts["inputs"])),
        sources=tuple(map(Path, facts["sources"])),
        languages=tuple(facts["languages"]),
        outputs=tuple(map(Path, facts["outputs"])),
        contents=(),
        texts=(),
        code=0,
        errors="",
        user_seconds=0,
        wall_seconds=0,
        record=None,
        lto_linker="",
    )


def excluded(*lines: str) -> dict[str, str]:
    return find_excluded(FLAGS, [call(line) for line in lines], has_lld=True)


@pytest.mark.parametrize(
    ("source", "is_cxx"),
    [("a.c", False), ("a.cc", True), ("-x c++ a.c", True), ("-x c a.inc", False), ("-x c a.c -x none b.cc", True)],
)
def test_the_language_is_that_of_the_call(source: str, is_cxx: bool):
    found = excluded(f"clang -c {source}", "clang a.o -o a")

    assert found.get("no-rtti", "") == ("" if is_cxx else "the build has no C++")


@pytest.mark.parametrize(
    ("command", "is_riscv"),
    [
        ("clang --target=riscv32-unknown-elf -c a.c", True),
        ("clang -target riscv64-linux-gnu -c a.c", True),
        ("riscv64-unknown-elf-clang -c a.c", True),
        ("clang --target=riscv32-unknown-elf -target thumbv7m-none-eabi -c a.c", False),
        ("clang -target thumbv7m-none-eabi --target=riscv32-unknown-elf -c a.c", True),
        ("riscv64-unknown-elf-clang --target=thumbv7m-none-eabi -c a.c", False),
        ("clang -c riscv32.c", False),
    ],
)
def test_flags_of_one_architecture_are_tried_there(command: str, is_riscv: bool):
    found = excluded(command, "clang a.o -o a")

    assert found.get("save-restore", "") == ("" if is_riscv else "the build is not for RISC-V")
    assert excluded(f"{command} -msave-restore", "clang a.o -o a")["save-restore"] != ""


def test_flags_of_webassembly_are_tried_there():
    names = {flag.name for flag in FLAGS if flag.needs == "WebAssembly"}
    command = "clang --target=wasm32-wasip1 -c a.c"
    reason = "the build is not for WebAssembly"

    assert names
    assert names.isdisjoint(excluded(command, "clang a.o -o a"))
    assert {excluded("clang -c wasm32.c", "clang a.o -o a")[name] for name in names} == {reason}
    assert excluded(f"{command} -mllvm -disable-lsr", "clang a.o -o a")["no-loop-reduce"] == ALREADY
    together = options_of([flag for flag in FLAGS if flag.name in names]).compile
    assert together[::2] == ("-mllvm",) * len(names)


@pytest.mark.parametrize(
    "link",
    [
        "clang -shared a.o -o a.so",
        "clang -Wl,-shared,-soname,a.so a.o -o a.so",
        "x86_64-linux-gnu-ld.gold --shared a.o -o a.so",
        "ld.lld -Bshareable a.o -o a.so",
    ],
)
def test_symbols_of_shared_libraries_stay_visible(link: str):
    found = excluded("clang -c a.c", link)

    assert found["hidden"] == SHARED
    assert found["no-unwind-tables"] == "exceptions of C++ programs could not pass through its shared libraries in C"


@pytest.mark.parametrize("option", ["-Wl,-E", "-rdynamic"])
def test_symbols_that_a_program_exports_stay_visible(option: str):
    found = excluded("clang -c a.c", f"clang a.o {option} -o a")

    assert found["hidden"] == "a program exports its symbols to what it loads"
    assert "no-unwind-tables" not in found


@pytest.mark.parametrize("linker", ["ld.lld", "ld", "x86_64-linux-gnu-ld.gold"])
def test_a_linker_that_is_called_itself_has_flags_too(linker: str):
    found = excluded("clang -c a.c -ffunction-sections -fdata-sections", f"{linker} --gc-sections -z relro a.o -o a")

    assert found["gc-sections"] == ALREADY
    assert ("lld" in found) == (linker == "ld.lld")


@pytest.mark.parametrize(
    ("words", "has_debug"),
    [
        ("-g", True),
        ("-g -g0", False),
        ("-g0 -ggdb", True),
        ("-gdwarf-4", True),
        ("-gz -gno-column-info", False),
        ("", False),
    ],
)
def test_the_last_option_decides_about_debug_information(words: str, has_debug: bool):
    found = excluded(f"clang {words} -c a.c", "clang a.o -o a")

    assert found.get("compressed-debug", "") == ("" if has_debug else "the build has none")


def test_a_plain_build_that_failed_is_made_again_and_a_flag_that_breaks_it_is_not(tmp_path: Path):
    store = TrialStore(folder=tmp_path)
    broken = dataclasses.replace(TRIAL, reason="the disk was full")

    assert store.load_or_make(PLAIN, lambda: broken) == broken
    assert store.load_or_make(PLAIN, lambda: TRIAL) == TRIAL
    assert store.load_or_make(PLAIN, lambda: broken) == TRIAL
    assert store.load_or_make("icf-all", lambda: broken) == broken
    assert store.load_or_make("icf-all", lambda: TRIAL) == broken

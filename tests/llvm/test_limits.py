"""Real compilers that take more than they may: two kilobytes of bitcode asked for gigabytes."""

import dataclasses
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.describe import describe_module
from mlgokit.compiler.limits import Limits, ModuleLimits
from mlgokit.compiler.objects.link import LinkStatus, link_image
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.front_end import ExtractionLimits
from mlgokit.corpus.importers.database import import_commands
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm

MIB = 1 << 20
SOURCE = "int callee(int x) { return x * 3; }\nint good(int x) { return callee(x) + 1; }\n"
LARGE = "char large[1 << 26] = {1};\n" + SOURCE
DEFAULT = PluginUse(policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,))
FILE = "it wrote more than 8 MiB into one file, and was ended; allow more with --file-limit-gib"
MEMORY = "it asked for more than 1 GiB of memory, and was ended; allow more with --memory-limit-gib"
Make = Callable[[str, str], Module]


@pytest.fixture
def make(toolchain: Toolchain, tmp_path: Path) -> Make:
    """Makes a module of C, or of text that begins with ``module``."""

    def made(name: str, text: str) -> Module:
        bitcode = tmp_path / f"{name}.bc"
        options = ("-cc1", "-triple", toolchain.target, "-Oz", "-w")
        if text.startswith("module"):
            # As text, because the writer of bitcode reads what is included as well.
            bitcode.write_text(text)
        else:
            (tmp_path / f"{name}.c").write_text(text)
            own = ["-disable-llvm-passes", "-emit-llvm-bc", "-o", str(bitcode), str(tmp_path / f"{name}.c")]
            done = process.run(Cc1Line(toolchain.clang, options=options, own=own), timeout_seconds=60)
            assert done.returncode == 0, done.stderr
        return Module(name=name, project="p", language="c", bitcode=bitcode, bitcode_bytes=1, command_line=options)

    return made


def test_a_file_has_a_size(toolchain: Toolchain, make: Make):
    compiler = ClangCompiler(toolchain=toolchain, limits=ModuleLimits(file_bytes=8 * MIB))
    large = compiler.compile(make("large", LARGE))
    assert (large.status, large.reason) == (CompileStatus.LIMITED, FILE)
    assert compiler.compile(make("good", SOURCE)).ok


def test_memory_is_bounded(toolchain: Toolchain, make: Make):
    compiler = ClangCompiler(toolchain=toolchain, limits=ModuleLimits(memory_bytes=1 << 30))
    found = compiler.compile(make("assembly", 'module asm ".incbin \\22/dev/zero\\22"\n'))
    assert (found.status, found.reason) == (CompileStatus.LIMITED, MEMORY)
    assert compiler.compile(make("good", SOURCE)).ok


def test_time_is_bounded(toolchain: Toolchain, make: Make):
    module = make("assembly", 'module asm ".rept 1000000000"\nmodule asm "nop"\nmodule asm ".endr"\n')
    limits = ModuleLimits(memory_bytes=1 << 40, file_bytes=1 << 40)
    found = ClangCompiler(toolchain=toolchain, timeout_seconds=0.2, limits=limits).compile(module)
    assert (found.status, found.reason) == (CompileStatus.TIMED_OUT, "after 0 s; allow more with --timeout-seconds")


def test_a_plain_compilation_says_what_the_next_ones_may_take(
    toolchain: Toolchain, plugin: Path, make: Make, monkeypatch: pytest.MonkeyPatch
):
    compiler = ClangCompiler(toolchain=toolchain, plugin=plugin, limits=ModuleLimits(seconds=True))
    module = make("a", SOURCE)
    assert compiler.compile(module).ok
    limits = compiler.limits.of("a", only_object=True)
    # Of a child that was just started, Linux notes its parent's memory as its own.
    assert (limits.memory_bytes or 0) <= (2 << 30) + 8 * 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert limits.file_bytes == 64 * MIB
    assert compiler.limits.deadline("a", 60.0) == 20.0
    # The same name, and now so much more than that: as a policy that inlines without end.
    monkeypatch.setattr("mlgokit.compiler.limits.LEAST_FILE_BYTES", 8 * MIB)
    large = make("a", LARGE)
    found = compiler.compile(large, CompileRequest(use=PluginUse(policies={INLINE_SIZE.name: ":always"})))
    assert (found.status, found.reason) == (CompileStatus.LIMITED, FILE)
    free = dataclasses.replace(compiler, limits=ModuleLimits())
    assert free.compile(large, CompileRequest(use=DEFAULT)).ok


def test_residents_and_their_children_have_the_limits_of_their_module(toolchain: Toolchain, plugin: Path, make: Make):
    residents = Residents()
    compiler = ClangCompiler(
        toolchain=toolchain, plugin=plugin, residents=residents, known={}, limits=ModuleLimits(file_bytes=8 * MIB)
    )
    try:
        request = CompileRequest(use=DEFAULT, reuse=True)
        assert compiler.compile(make("good", SOURCE), request).ok
        (resident,) = residents._idle
        limits = Path(f"/proc/{resident.process.pid}/limits").read_text().splitlines()
        (file_size,) = [line.split()[3] for line in limits if line.startswith("Max file size")]
        assert file_size == str(8 * MIB)
        found = compiler.compile(make("large", LARGE), request)
        assert (found.status, found.reason) == (CompileStatus.LIMITED, FILE)
    finally:
        compiler.close()


def test_a_front_end_has_limits(toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "a.c").write_text('asm(".incbin \\"/dev/zero\\"");\n' + LARGE)
    (tmp_path / "b.c").write_text(SOURCE)
    entries = [
        f'{{"directory": "{tmp_path}", "file": "{name}", "command": "clang -Oz -c {name}"}}' for name in ("a.c", "b.c")
    ]
    (tmp_path / "compile_commands.json").write_text(f"[{', '.join(entries)}]")
    made = import_commands(
        tmp_path / "compile_commands.json", toolchain=toolchain, corpus_folder=tmp_path / "corpus", project="p",
        limits=ExtractionLimits(compiler=Limits(file_bytes=8 * MIB, memory_bytes=1 << 30, settable=True)),
    )  # fmt: skip
    (failure,) = made.imported.examples
    assert failure.reason in {f"the front end: {MEMORY}", f"the front end: {FILE}"}


def test_a_description_has_limits(toolchain: Toolchain, plugin: Path, make: Make, monkeypatch: pytest.MonkeyPatch):
    bitcode = make("a", SOURCE).bitcode
    tight = Limits(file_bytes=1, memory_bytes=8 << 30, settable=True)
    monkeypatch.setattr("mlgokit.compiler.limits.COMPILER_LIMITS", tight)
    found = describe_module(toolchain, plugin, bitcode)
    assert "it wrote more than 1 bytes into one file" in found.reason


def test_a_linker_has_limits(toolchain: Toolchain, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if toolchain.lld is None:
        pytest.skip("no ld.lld")
    output = tmp_path / "a.o"
    assert ClangCompiler(toolchain=toolchain).compile(make("a", SOURCE), CompileRequest(keep_object=output)).ok
    tight = Limits(file_bytes=100, memory_bytes=8 << 30)
    monkeypatch.setattr("mlgokit.compiler.objects.link.link_limits", lambda _: tight)
    # A child is limited after it has started, and a link of one object may end before that on a busy machine.
    lld = tmp_path / "ld.lld"
    lld.write_text(f'#!/bin/sh\nwhile [ "$(ulimit -f)" = unlimited ]; do :; done\nexec {toolchain.lld} "$@"\n')
    lld.chmod(0o755)
    image = link_image([output], tmp_path / "image", roots=["good"], lld=lld, timeout_seconds=60)
    assert image.status is LinkStatus.FAILED
    assert "it wrote more than 100 bytes into one file, and was ended" in image.stderr

"""Real compilers in bubblewrap: what they can read, write and reach, and that their objects are the same."""

import contextlib
import dataclasses
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlgokit.builds.compilers import CompilerOptions, SandboxMode, open_sandbox_for
from mlgokit.commands.corpus import import_build
from mlgokit.compiler import process, sandbox
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.describe import describe_module
from mlgokit.compiler.limits import ModuleLimits
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.sandbox import expose_to_front_end, open_front_end_sandbox, open_sandbox, try_sandbox
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm

SOURCE = "int callee(int x) { return x * 3; }\nint good(int x) { return callee(x) + 1; }\n"
DEFAULT = PluginUse(policies={INLINE_SIZE.name: ":default"}, logs=(INLINE_SIZE.name,))
EVIL = r"""
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#define SAY(what) dprintf(2, "%s\n", what)
__attribute__((constructor)) static void begin(void) {
  SAY("evil runs");
  if (open("SECRET", O_RDONLY) >= 0) SAY("evil reads");
  if (open("OUTSIDE", O_WRONLY | O_CREAT, 0666) >= 0) SAY("evil writes");
  if (open("BITCODE", O_WRONLY) >= 0) SAY("evil changes the corpus");
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
  if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof at) == 0) SAY("evil connects");
  if (kill_parent()) SAY("evil kills");
  if (getenv("EVIL_TOKEN")) SAY("evil knows the token");
}
""".replace("if (kill_parent()) ", "if (getppid() > 1) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A corpus, a file outside of it, and compilers outside and inside of a sandbox."""

    folder: Path
    secret: Path
    module: Module
    outside: ClangCompiler
    inside: ClangCompiler

    def assembly(self, text: str) -> Module:
        """A module of the corpus that is inline assembly."""
        bitcode = self.folder / "assembly.bc"
        bitcode.write_text(f'module asm "{text}"\n')
        return dataclasses.replace(self.module, name="assembly", bitcode=bitcode)


@pytest.fixture
def place(toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Iterator[Place]:
    found = try_sandbox(toolchain)
    if isinstance(found, str):
        pytest.skip(f"no sandbox here: {found}")
    folder, secret = tmp_path / "corpus", tmp_path / "secret"
    folder.mkdir()
    secret.write_bytes(b"secret" * 1000)
    options = ("-cc1", "-triple", toolchain.target, "-Oz", "-w")
    (tmp_path / "a.c").write_text(SOURCE)
    own = ["-disable-llvm-passes", "-emit-llvm-bc", "-o", str(folder / "a.bc"), str(tmp_path / "a.c")]
    done = process.run(Cc1Line(toolchain.clang, options=options, own=own), timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    bitcode = folder / "a.bc"
    module = Module(name="a", project="p", language="c", bitcode=bitcode, bitcode_bytes=1, command_line=options)
    outside = ClangCompiler(toolchain=toolchain, plugin=plugin)
    inside = dataclasses.replace(outside, sandbox=open_sandbox(toolchain, (folder,)), limits=ModuleLimits())
    yield Place(folder=folder, secret=secret, module=module, outside=outside, inside=inside)
    inside.close()


def test_inline_assembly_reads_no_file_outside(place: Place):
    module = place.assembly(f".incbin \\22{place.secret}\\22")
    assert place.outside.compile(module).ok
    found = place.inside.compile(module)
    assert found.status is CompileStatus.FAILED
    assert "Could not find incbin file" in found.reason


def test_files_of_the_machine_and_of_the_user_cannot_be_read(place: Place):
    for path in ("/etc/hostname", "/etc/passwd", Path.home() / ".bashrc", "/proc/1/root/etc/passwd"):
        found = place.inside.compile(place.assembly(f".incbin \\22{path}\\22"))
        assert found.status is CompileStatus.FAILED, path


def test_code_in_the_compiler_changes_and_reaches_nothing(
    place: Place, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = EVIL.replace("SECRET", str(place.secret)).replace("OUTSIDE", str(tmp_path / "outside"))
        text = text.replace("BITCODE", str(place.module.bitcode)).replace("PORT", str(server.getsockname()[1]))
        (tmp_path / "evil.c").write_text(text)
        library = tmp_path / "evil.so"
        done = process.run(
            [toolchain.clang, "-shared", "-fPIC", tmp_path / "evil.c", "-o", library], timeout_seconds=60
        )
        assert done.returncode == 0, done.stderr
        monkeypatch.setenv("EVIL_TOKEN", "token")
        said: list[set[str]] = []
        run = process.run

        def listen(*words: object, **settings: object) -> process.Completed:
            completed = run(*words, **settings)  # type: ignore[arg-type]
            said.append({line for line in completed.stderr.splitlines() if line.startswith("evil")})
            return completed

        monkeypatch.setattr(process, "run", listen)
        for compiler in (place.outside, place.inside):
            assert not compiler.compile(place.module, CompileRequest(use=PluginUse(plugin=library))).ok
    reads = {"evil reads", "evil writes", "evil changes the corpus", "evil connects", "evil knows the token"}
    assert said == [{"evil runs", "evil kills"} | reads, {"evil runs"}]


def test_objects_and_logs_are_the_same(place: Place, tmp_path: Path):
    for use in (None, DEFAULT, PluginUse(policies={INLINE_SIZE.name: ":always"})):
        found = []
        for name, compiler in (("outside", place.outside), ("inside", place.inside)):
            kept = tmp_path / f"{name}.o"
            done = compiler.compile(place.module, CompileRequest(use=use, keep_object=kept, regalloc=True))
            assert done.ok, done.reason
            found.append((kept.read_bytes(), done.decision_count, done.sizes and done.sizes.totals))
            kept.unlink()
        assert found[0] == found[1]


def test_processor_time_in_the_sandbox_is_measured(place: Place, toolchain: Toolchain, tmp_path: Path):
    box = place.inside.sandbox
    assert box is not None
    inside = box(process.choose_limits(["clang", "-cc1"], None), program=toolchain.clang, writable=tmp_path)
    work = "i=0; while test $i -lt 300000; do i=$((i + 1)); done"
    done = process.run(["/bin/sh", "-c", work], timeout_seconds=60, inside=inside)
    assert done.returncode == 0
    assert done.user_seconds + done.system_seconds > 0.1
    ended = process.run(["/bin/sh", "-c", "exit 130"], timeout_seconds=60, inside=inside)
    assert ended.returncode == -2


def test_residents_are_in_it_too(place: Place):
    residents = Residents()
    inside = dataclasses.replace(place.inside, residents=residents, known={})
    request = CompileRequest(use=DEFAULT, reuse=True)
    try:
        found = [inside.compile(place.module, request) for _ in range(3)]
        assert [one.ok for one in found] == [True] * 3
        assert residents.declined == {}
        (resident,) = residents._idle
        # Of the namespaces of this process it has none: the compiler is a child of the one that was started.
        children = Path(f"/proc/{resident.process.pid}/task/{resident.process.pid}/children").read_text().split()
        for kind in ("net", "pid", "mnt", "user"):
            assert Path(f"/proc/{children[0]}/ns/{kind}").readlink() != Path(f"/proc/self/ns/{kind}").readlink()
        leaking = place.assembly(f".incbin \\22{place.secret}\\22")
        assert inside.compile(leaking, request).status is CompileStatus.FAILED
    finally:
        inside.close()
    assert not process_is_there(Path("/proc", children[0]))


def process_is_there(entry: Path) -> bool:
    """Whether a process does not end; one that was killed may take a moment, and the system another to forget it."""
    for _ in range(1000):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        process.run(["true"], timeout_seconds=10)
    return True


def test_temporary_files_may_be_in_memory(toolchain: Toolchain, place: Place, monkeypatch: pytest.MonkeyPatch):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    sandbox.try_sandbox.cache_clear()
    try:
        box = open_sandbox(toolchain, (place.folder,))
        assert box.scratch.parent == Path("/dev/shm")
        assert dataclasses.replace(place.inside, sandbox=box).compile(place.module).ok
    finally:
        sandbox.try_sandbox.cache_clear()


def test_limits_hold_inside(place: Place):
    endless = place.assembly(".incbin \\22/dev/zero\\22")
    tight = dataclasses.replace(place.inside, limits=ModuleLimits(memory_bytes=1 << 30))
    found = tight.compile(endless)
    assert found.status is CompileStatus.LIMITED
    assert found.reason.startswith("it asked for more than 1 GiB of memory")
    tight = dataclasses.replace(place.inside, limits=ModuleLimits(file_bytes=1 << 20))
    found = tight.compile(place.assembly(".space 0x1000000, 7"))
    assert found.status is CompileStatus.LIMITED
    assert found.reason.startswith("it wrote more than 1 MiB into one file")


def test_a_deadline_ends_all_of_it(place: Place):
    slow = place.assembly('.rept 1000000000"\nmodule asm "nop"\nmodule asm ".endr')
    late = dataclasses.replace(place.inside, timeout_seconds=0.3, limits=ModuleLimits(memory_bytes=1 << 40))
    assert late.compile(slow).status is CompileStatus.TIMED_OUT
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            assert b"-cc1" not in words or os.fsencode(slow.bitcode) not in words or not process_is_there(path.parent)


def test_a_description_is_made_inside(place: Place, toolchain: Toolchain, plugin: Path):
    box = place.inside.sandbox
    found = describe_module(toolchain, plugin, place.module.bitcode, sandbox=box)
    assert found.reason == ""
    assert found.identity == describe_module(toolchain, plugin, place.module.bitcode).identity


def test_it_is_for_corpora_from_elsewhere(place: Place, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch):
    assert open_sandbox_for(CompilerOptions(), toolchain, corpus=place.folder) is not None
    assert open_sandbox_for(CompilerOptions(sandbox="off"), toolchain, corpus=place.folder) is None
    monkeypatch.setattr("mlgokit.builds.compilers.is_made_here", lambda _: True)
    assert open_sandbox_for(CompilerOptions(), toolchain, corpus=place.folder) is None
    assert open_sandbox_for(CompilerOptions(sandbox="on"), toolchain, corpus=place.folder) is not None


def test_without_bubblewrap_there_is_a_sentence(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "BUBBLEWRAP", "no-such-bwrap")
    sandbox.try_sandbox.cache_clear()
    try:
        with pytest.raises(ToolError, match=r"working bubblewrap, found no program of that name; install it"):
            open_sandbox_for(CompilerOptions(sandbox="on"), toolchain, corpus=tmp_path)
        told: list[str] = []
        found = open_sandbox_for(
            CompilerOptions(), toolchain, corpus=tmp_path, report=lambda _done, _total, label: told.append(label)
        )
        assert found is None
        assert told == [
            "no sandbox for a corpus from elsewhere (no program of that name): compilers run with your rights"
        ]
    finally:
        sandbox.try_sandbox.cache_clear()


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ('while test "$1" != --; do shift; done; shift; exec "$@"', "it shows files outside"),
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("exit 0", "that it starts another program"),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_found_out(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: str
):
    fake = tmp_path / "fake-bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP", str(fake))
    sandbox.try_sandbox.cache_clear()
    try:
        with pytest.raises(ToolError, match=found):
            open_sandbox(toolchain)
    finally:
        sandbox.try_sandbox.cache_clear()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder beside the build's in the place for temporary files, with a header and a socket of another process."""
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as server:
        folder = Path(name)
        (folder / "other.h").write_text("")
        server.bind(str(folder / "socket"))
        server.listen()
        yield folder


@pytest.mark.parametrize(("mode", "seen"), [("on", False), ("off", True)])
def test_a_front_end_reads_the_build_in_a_sandbox(
    place: Place, toolchain: Toolchain, tmp_path: Path, elsewhere: Path, mode: SandboxMode, seen: bool
):
    build = tmp_path / "build"
    (build / "inc").mkdir(parents=True)
    (build / "src").mkdir()
    (build / "inc" / "a.h").write_text("#define BUILT 1\n")
    (build / "src" / "a.c").write_text(
        f'#include "../inc/a.h"\n#include <stddef.h>\n#if __has_include("{elsewhere}/other.h")\nint seen;\n#endif\n'
        "int built = BUILT;\n"
    )
    entry = {"directory": str(build), "file": "src/a.c", "command": "clang -Oz -c src/a.c -o a.o"}
    (build / "compile_commands.json").write_text(json.dumps([entry]))
    corpus = tmp_path / "imported"
    found = import_build.run(
        import_build.Import(
            compile_commands=build / "compile_commands.json", corpus=corpus, llvm=toolchain.major, sandbox=mode
        )
    )
    assert (found["modules"], found["reasons"]) == (1, {})
    (bitcode,) = corpus.rglob("*.bc")
    assert b"built" in bitcode.read_bytes()
    assert (b"seen" in bitcode.read_bytes()) is seen


def test_code_in_a_front_end_changes_and_reaches_nothing(place: Place, toolchain: Toolchain, elsewhere: Path):
    box = open_front_end_sandbox(toolchain)
    writable = place.folder / "writable"
    writable.mkdir()
    script = (
        'cat "$1" && echo x > "$2/inside" && ! echo x > "$1" && ! echo x > "$HOME/outside" && test ! -e "$3" && '
        "test -z \"$(ls /run)\" && ! grep -v -e lo: -e '|' /proc/net/dev"
    )
    argv = ["/bin/sh", "-c", script, "sh", place.module.bitcode, writable, elsewhere / "socket"]
    inside = box(
        process.choose_limits(argv, None),
        program="/bin/sh",
        writable=writable,
        readable=expose_to_front_end([place.module.bitcode]),
        folder=place.folder,
    )
    done = process.run(argv, timeout_seconds=60, inside=inside)
    assert done.returncode == 0, done.stderr
    assert (writable / "inside").exists()

"""A folder for :mod:`fuzz_gate` in which hostile command lines come in: what they touch there is seen afterwards."""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

SOURCE = "int twice(int x) { for (int i = 0; i < 9; i++) x += i * x; return x; }\n"
CANARY = """
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) { open("CANARY", O_CREAT | O_WRONLY, 0600); }
"""
PROGRAMS = (
    "nvptx-arch", "amdgpu-arch", "offload-arch", "evil", "ld", "ld.lld", "lld", "as", "gcc", "cc1", "cc1plus", "cpp",
    "dot", "xdg-open", "ptxas", "fatbinary", "llvm-objcopy", "touch", "clang-offload-bundler", "x86_64-linux-gnu-as",
)  # fmt: skip
"""That a compiler may want to start; each leaves the canary."""
ODD_SOURCES = ("@evil.rsp.c", "-load.c", "--.c", "-fplugin=evil.so.c", "a b;touch new.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Folders of one batch.

    Attributes:
        whole: all of them; what changes here but in ``scratch`` is a finding.
        build: what a stranger's build has, the source, response files, libraries and programs with canaries.
        scratch: what mlgokit may write to, corpora and temporary files.
    """

    whole: Path
    build: Path
    scratch: Path


def prepare(whole: Path, toolchain: Toolchain) -> Place:
    """A build folder with libraries and programs that leave a canary beside it, and something to overwrite."""
    place = Place(whole=whole, build=whole / "build", scratch=whole / "scratch")
    for folder in (place.build, place.scratch / "temporary", whole / "home", whole / "programs", whole / "out"):
        folder.mkdir(parents=True)
    build = place.build
    (build / "a.c").write_text(SOURCE)
    for name in ODD_SOURCES:
        (build / name).write_text(SOURCE)
    (build / "a.h").write_text("")
    words = f"-fplugin=./evil.so -Xclang -load -Xclang {build}/evil.so -o precious"
    for name in ("evil.rsp", "evil.cfg", "clang.cfg", "x86_64-pc-linux-gnu-clang.cfg"):
        (build / name).write_text(words)
    (build / "nested.rsp").write_text("-O2 @evil.rsp -MF precious")
    (build / "module.modulemap").write_text('module a { header "a.h" }\n')
    (build / "overlay.yaml").write_text("{'version': 0, 'roots': []}")
    canary = whole / "canary.c"
    canary.write_text(CANARY.replace("CANARY", str(whole / "canary")))
    done = process.run([toolchain.clang, "-shared", "-fPIC", canary, "-o", build / "evil.so"], timeout_seconds=60)
    if done.returncode != 0:
        raise ToolError(f"canary: expected {toolchain.clang} to compile it, found: {done.stderr}; check the compiler")
    good = ["-triple", toolchain.target, "-O2", "-disable-llvm-passes", "-emit-llvm-bc"]
    own = [*good, "-o", str(build / "good.bc"), str(build / "a.c")]
    done = process.run(Cc1Line(toolchain.clang, own=own), timeout_seconds=60)
    if done.returncode != 0:
        raise ToolError(f"good.bc: expected {toolchain.clang} to compile it, found: {done.stderr}; check the compiler")
    for name in PROGRAMS:
        for folder in (build, whole / "programs"):
            # A compiler that is in the user's own PATH may be asked which one it is.
            is_asked = folder == whole / "programs" and name == "gcc"
            answer = "test $# -eq 1 && test $1 = --version && exec echo gcc 12.2.0\n" if is_asked else ""
            (folder / name).write_text(f"#!/bin/sh\n{answer}: >{shlex.quote(str(whole / 'canary'))}\n")
            (folder / name).chmod(0o755)
    for folder in (build, whole, whole / "out"):
        (folder / "precious").write_text("precious\n")
    return place


@contextlib.contextmanager
def inside(place: Place) -> Generator[None]:
    """Let everything happen in the place: its folder, its programs first, a home and a folder for what is temporary."""
    programs = f"{place.whole / 'programs'}{os.pathsep}{os.environ.get('PATH', '')}"
    temporary = str(place.scratch / "temporary")
    # Which corpora were made here is noted in a state folder of mlgokit's own.
    state_home = str(place.scratch / "state")
    changed = {
        "PATH": programs, "HOME": str(place.whole / "home"), "TMPDIR": temporary, "XDG_STATE_HOME": state_home,
    }  # fmt: skip
    with (
        mock.patch.dict(os.environ, changed),
        mock.patch.object(tempfile, "tempdir", temporary),
        contextlib.chdir(place.build),
    ):
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            os.environ.pop(name, None)
        yield


def state(place: Place) -> dict[str, object]:
    """All that must stay as it is: of each file time, size and inode."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(place.whole):
        if Path(folder) == place.whole:
            folders.remove("scratch")
        for name in files:
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118  (thousands of them)
            found[os.path.relpath(os.path.join(folder, name), place.whole)] = (  # noqa: PTH118
                status.st_mtime_ns,
                status.st_size,
                status.st_ino,
            )
        found.update({os.path.relpath(os.path.join(folder, name), place.whole): None for name in folders})  # noqa: PTH118
    return found


def changes(place: Place, before: Mapping[str, object]) -> str:
    """What is not as it was, and what was left where temporary files are."""
    after = state(place)
    different = {name for name in before.keys() | after.keys() if before.get(name, "") != after.get(name, "")}
    different |= {f"scratch/temporary/{path.name}" for path in (place.scratch / "temporary").iterdir()}
    return ", ".join(sorted(different))

"""A shell script stands for clang++: it notes its calls and writes what it was asked for."""

import contextlib
import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.scripts import script

from mlgokit.compiler import plugin_build, process
from mlgokit.compiler.plugin_build import build_plugin, default_build_folder, link_policies
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, Toolchain
from mlgokit.errors import BusyError, StorageError, ToolError

SOURCES = Path(str(resources.files("mlgokit"))) / "plugin"
UNITS = sorted(str(path.relative_to(SOURCES).with_suffix("")) for path in SOURCES.rglob("*.cpp"))
CALLS = len(UNITS) + 2
"""Of a whole build: common headers, sources, the link."""
SUCCEED = 'echo "made of $*" > "$output"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A toolchain with a script for clang++, and a folder for what it builds."""

    toolchain: Toolchain
    cache: Path
    calls_file: Path

    def script(self, text: str) -> None:
        script(self.toolchain.clangxx, f'echo "$*" >> {self.calls_file}', "for output; do :; done", text)

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []

    def build(self, **changes: Any) -> Path:
        return build_plugin(replace(self.toolchain, **changes), cache_folder=self.cache)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    clangxx = tmp_path / "clang++"
    toolchain = Toolchain(
        major=19,
        version="19.1.7",
        clang=tmp_path / "clang",
        clangxx=clangxx,
        include_dir=tmp_path / "include",
    )
    found = Place(toolchain=toolchain, cache=tmp_path / "cache" / "plugins", calls_file=tmp_path / "calls")
    found.script(SUCCEED)
    return found


def message_of(place: Place, **changes: Any) -> str:
    with pytest.raises(ToolError) as caught:
        place.build(**changes)
    return str(caught.value)


def test_every_source_is_compiled_and_all_are_linked(place: Place):
    plugin = place.build()

    assert plugin.parent.parent == place.cache
    assert re.fullmatch("llvm-19-[0-9a-f]{16}", plugin.parent.name)
    precompilation, *compilations, link = place.calls()
    assert precompilation.endswith(" -x c++-header Precompiled.h -o Precompiled.h.pch")
    assert all(" -include-pch Precompiled.h.pch " in words for words in compilations)
    assert sorted(words.split()[-3] for words in compilations) == [f"{unit}.cpp" for unit in UNITS]
    assert all(f"-isystem {place.toolchain.include_dir} " in words for words in compilations)
    assert all("-ffp-contract=off" in words.split() for words in compilations)
    assert link == f"-shared -Wl,-Bsymbolic-functions {' '.join(f'{unit}.o' for unit in UNITS)} -o mlgokit.so"
    assert plugin.read_text() == f"made of {link}\n"
    assert list(place.cache.iterdir()) == [plugin.parent]
    assert list(plugin.parent.rglob("*.pch")) == []


def test_the_second_time_no_compiler_starts(place: Place):
    first = place.build()
    count = len(place.calls())

    assert place.build() == first
    assert len(place.calls()) == count == CALLS


def test_another_version_has_a_plugin_of_its_own(place: Place):
    first, second = place.build(), place.build(version="19.1.8")

    assert first != second
    assert first.exists()
    assert len(place.calls()) == 2 * CALLS


def test_changed_sources_are_built_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    first = place.build()
    monkeypatch.setattr(plugin_build, "plugin_sources", lambda: {"Only.cpp": b"int x;\n", "Only.h": b""})

    second = place.build()

    assert second != first
    assert place.calls()[-1] == "-shared -Wl,-Bsymbolic-functions Only.o -o mlgokit.so"
    assert (second.parent / "Only.cpp").read_bytes() == b"int x;\n"


@pytest.mark.parametrize("major", sorted({*range(14, 25)} - {*SUPPORTED_MAJORS}))
def test_a_major_that_the_plugin_does_not_know_is_refused(place: Place, major: int):
    assert message_of(place, major=major) == (
        f"plugin: expected a supported LLVM major (19, 21, 22 and 23), found {major} at {place.toolchain.clang}; "
        "choose another clang, for example: apt-get install clang-22"
    )
    assert place.calls() == []


@pytest.mark.parametrize("major", SUPPORTED_MAJORS)
def test_missing_headers_come_with_the_command_that_installs_them(place: Place, major: int):
    assert message_of(place, major=major, include_dir=None) == (
        f"plugin for LLVM {major}: expected the headers of LLVM beside {place.toolchain.clang}, found none; "
        f"install them: apt-get install llvm-{major}-dev"
    )
    assert place.calls() == []


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'In file included' >&2; echo 'a.h:3: error: bad' >&2; exit 1", "exit code 1 (a.h:3: error: bad)"),
        ("echo 'out of luck' >&2; exit 2", "exit code 2 (out of luck)"),
        ("exit 3", "exit code 3 (no message)"),
    ],
)
def test_a_compiler_that_fails_is_named_with_its_first_error(place: Place, script: str, found: str):
    place.script(script)

    message = message_of(place)

    assert message.startswith(f"plugin for LLVM 19: expected {place.toolchain.clangxx} ")
    assert f" to succeed, found {found}; check that clang-19, llvm-19-dev and libstdc++-dev are whole" in message
    assert list(place.cache.iterdir()) == []


def test_a_failure_is_not_remembered(place: Place):
    place.script("exit 1")
    message_of(place)
    place.script(SUCCEED)

    assert place.build().exists()


def test_a_linker_that_fails_leaves_no_plugin(place: Place):
    place.script(f'case "$*" in -shared*) echo "ld: error: no" >&2; exit 1;; esac; {SUCCEED}')

    assert f"{UNITS[-1]}.o -o mlgokit.so to succeed, found exit code 1 (ld: error: no)" in message_of(place)
    assert list(place.cache.iterdir()) == []


def test_a_compiler_that_is_not_there_is_named(place: Place):
    place.toolchain.clangxx.unlink()

    assert message_of(place).startswith(f"{place.toolchain.clangxx}: expected an executable program, found none")


def test_a_cache_that_cannot_be_written_is_a_sentence(place: Place):
    place.cache.parent.mkdir()
    place.cache.write_text("")

    with pytest.raises(StorageError, match="cache/plugins: expected to be able to write there, found: File exists"):
        place.build()


def test_of_builders_at_the_same_time_one_builds_and_the_others_wait(place: Place, monkeypatch: pytest.MonkeyPatch):
    # Nobody compiles before both have found nothing.
    looked = threading.Barrier(2)
    wait_for_others = plugin_build._lock_builds

    def meet(folder: Path) -> AbstractContextManager[None]:
        looked.wait(60)
        return wait_for_others(folder)

    monkeypatch.setattr(plugin_build, "_lock_builds", meet)
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(place.build) for _ in range(2))

    assert first.result() == second.result()
    assert len(place.calls()) == CALLS


BUILD = """
import sys
from pathlib import Path
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain
script, include, cache = map(Path, sys.argv[1:])
toolchain = Toolchain(major=19, version="19.1.7", clang=script, clangxx=script, include_dir=include)
print("ready", flush=True)
sys.stdin.readline()
print(build_plugin(toolchain, cache_folder=cache))
"""


@pytest.mark.parametrize("count", [2, 4])
def test_of_processes_that_find_an_empty_cache_one_builds(count: int, place: Place):
    paths = map(str, (place.toolchain.clangxx, place.toolchain.include_dir, place.cache))
    words = [sys.executable, "-c", BUILD, *paths]
    with contextlib.ExitStack() as stack:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        children = [stack.enter_context(subprocess.Popen(words, **pipes)) for _ in range(count)]
        for child in children:
            stack.callback(child.kill)
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        plugins = {child.communicate(timeout=120)[0] for child in children}
    assert [child.returncode for child in children] == [0] * count
    (plugin,) = plugins
    assert list(place.cache.iterdir()) == [Path(plugin.strip()).parent]
    assert len(place.calls()) == CALLS


def test_a_builder_that_does_not_end_is_a_sentence(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugin_build, "WAIT_SECONDS", 0)
    place.cache.mkdir(parents=True)
    descriptor = os.open(place.cache, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(BusyError, match=r"plugins: expected the process that builds a plugin there to end within 0 s"):
        place.build()
    os.close(descriptor)
    assert place.build().exists()


def test_builders_that_cannot_lock_end_with_one_folder(place: Place, monkeypatch: pytest.MonkeyPatch):
    # Both have found nothing and have linked before either puts its folder in place.
    linked = threading.Barrier(2)
    run = process.run

    def meet(argv: Sequence[str | os.PathLike[str]], **options: Any) -> process.Completed:
        done = run(argv, **options)
        if "-shared" in argv:
            linked.wait(60)
        return done

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(process, "run", meet)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(place.build) for _ in range(2))

    assert first.result() == second.result()
    assert first.result().is_file()
    assert list(place.cache.iterdir()) == [first.result().parent]


def test_a_policy_is_put_into_a_plugin(place: Place, tmp_path: Path):
    # The link shows what it was given: the policy's bytes must lie where the assembler looks for them.
    place.script(
        f'case "$*" in *policies.o*plugin.so) cat inline-size.bin policies.s > "$output"; exit;; esac; {SUCCEED}'
    )
    policy, output = tmp_path / "a.policy", tmp_path / "new" / "out.so"
    policy.write_bytes(b"\xff policy\n")

    assert link_policies(place.toolchain, {"inline-size": policy}, output, cache_folder=place.cache) == output
    linked = output.read_bytes()
    assert linked.startswith(b"\xff policy\n")
    assert b'mlgokit_inline_size_begin:\n.incbin "inline-size.bin"\n' in linked
    assert stat.S_IMODE(output.stat().st_mode) == 0o755
    *_, assemble, link = place.calls()
    assert assemble == "-c policies.s -o policies.o"
    (built,) = place.cache.iterdir()
    assert (
        link
        == f"-shared -Wl,-Bsymbolic-functions {' '.join(f'{built}/{unit}.o' for unit in UNITS)} policies.o -o plugin.so"
    )


def test_a_second_policy_needs_only_two_calls(place: Place, tmp_path: Path):
    (tmp_path / "a.policy").write_bytes(b"a")
    plugin = place.build()
    before, content = len(place.calls()), plugin.read_bytes()

    for name in ("one.so", "two.so"):
        link_policies(
            place.toolchain, {"regalloc-eviction": tmp_path / "a.policy"}, tmp_path / name, cache_folder=place.cache
        )

    assert len(place.calls()) == before + 4
    assert plugin.read_bytes() == content


def test_llvms_own_linker_puts_policies_into_a_plugin_where_it_is_installed(place: Place, tmp_path: Path):
    (tmp_path / "a.policy").write_bytes(b"a")
    toolchain = replace(place.toolchain, lld=tmp_path / "ld.lld")

    link_policies(toolchain, {"inline-size": tmp_path / "a.policy"}, tmp_path / "out.so", cache_folder=place.cache)

    assert place.calls()[-1].startswith(f"-shared -Wl,-Bsymbolic-functions --ld-path={tmp_path}/ld.lld ")


def test_a_policy_that_cannot_be_linked_leaves_no_output(place: Place, tmp_path: Path):
    (tmp_path / "a.policy").write_bytes(b"a")
    place.script(f'case "$*" in *policies.s*) echo "as: error: no" >&2; exit 1;; esac; {SUCCEED}')

    with pytest.raises(ToolError, match=r"policies\.s -o policies\.o to succeed, found exit code 1 \(as: error: no\)"):
        link_policies(
            place.toolchain, {"regalloc-eviction": tmp_path / "a.policy"}, tmp_path / "out.so", cache_folder=place.cache
        )
    assert not (tmp_path / "out.so").exists()


@pytest.mark.parametrize(
    ("cache", "folder"), [("/a/cache", "/a/cache"), ("", "/a/person/.cache"), (None, "/a/person/.cache")]
)
def test_plugins_are_kept_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, cache: str | None, folder: str):
    monkeypatch.setenv("HOME", "/a/person")
    if cache is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)

    assert default_build_folder() == Path(folder) / "mlgokit" / "plugins"


def test_two_installations_of_one_version_have_plugins_of_their_own(place: Place, tmp_path: Path):
    folders = {place.build().parent}
    folders.add(place.build(version_text="clang version 19.1.7 (another)").parent)
    folders.add(place.build(include_dir=tmp_path / "other").parent)
    configuration = tmp_path / "include" / "llvm" / "Config" / "llvm-config.h"
    configuration.parent.mkdir(parents=True)
    configuration.write_text("#define LLVM_ENABLE_ABI_BREAKING_CHECKS 1\n")
    folders.add(place.build().parent)
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libLLVM.so.19.1").write_bytes(b"1")
    folders.add(place.build(library_dir=libraries).parent)
    (libraries / "libLLVM.so.19.1").write_bytes(b"22")
    folders.add(place.build(library_dir=libraries).parent)
    assert len(folders) == 6
    assert place.build(library_dir=libraries).parent in folders

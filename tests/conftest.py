"""Fixtures for tests with real compilers, and with which LLVM majors a test runs."""

import contextlib
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hypothesis
import platformdirs
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import LIBCXX
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, Toolchain, apt_command, apt_packages, find_toolchain
from mlgokit.errors import ToolError

FAST_MAJORS = (19, 22)
"""With these the fast half runs what has the mark ``every_major``."""
FIRST_MAJORS = (22, 23, 21, 19)
"""The first that is installed is the one with which all other tests run in the fast half: Debian's has all tools."""
MAJORS_WITHOUT_TOOLS = (21,)
"""Where it is no package of the system, the compiler comes without opt and llc; tests that need them say so."""

MEMORY_BYTES = 6 << 30
"""Several times of what all tests write; what passed is removed at once."""


def pytest_configure(config: pytest.Config) -> None:
    """Settings of other people's libraries, for all tests."""
    # What JAX compiles is kept for all checkouts, as built plugins are: compiling takes longer than computing.
    if config.pluginmanager.hasplugin("cacheprovider"):
        kept = platformdirs.user_cache_path("mlgokit") / "tests" / f"jax-{processor()}"
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(kept))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # Tests with a cache folder of their own find the compilers that were fetched into the user's after all others. The
    # fast half has none of them, so that it is the same on all machines.
    if "not slow" not in config.option.markexpr:
        fetched = sorted((platformdirs.user_cache_path("mlgokit") / "llvm").glob("*/bin"), reverse=True)
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, fetched)])
    memory = memory_folder()
    if memory is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    # A busy machine is no finding.
    hypothesis.settings.register_profile("unhurried", deadline=None)
    hypothesis.settings.load_profile("unhurried")


def memory_folder() -> Path | None:
    """A tmpfs for the files of tests, which are written as files of users are, down to the disk, thousands of times.

    ``None`` where it is too small, as a container's is, or runs no programs.
    """
    memory = Path("/dev/shm")
    with contextlib.suppress(OSError):
        status = os.statvfs(memory)
        if status.f_bavail * status.f_frsize >= MEMORY_BYTES and not status.f_flag & os.ST_NOEXEC:
            return memory if os.access(memory, os.W_OK) else None
    return None


def processor() -> str:
    """A name for what this processor can do: compiled code is for no other, and machines may share a home."""
    facts: set[str] = set()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:16]


@functools.cache
def installed(major: int) -> Toolchain | str:
    """The complete toolchain of that major, or the sentence that says why there is none."""
    try:
        found = find_toolchain(major, need_plugin=True)
    except ToolError as error:
        return str(error)
    if found.lld is None or (major not in MAJORS_WITHOUT_TOOLS and (found.opt is None or found.llc is None)):
        return f"LLVM {major} is not complete; run `{apt_command(*apt_packages(major))}`"
    return found


def first_installed() -> int:
    """The first major whose toolchain is complete; the first of all if none is."""
    return next((major for major in FIRST_MAJORS if isinstance(installed(major), Toolchain)), FIRST_MAJORS[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``toolchain`` with one major; with others if marked, else in the slow half."""
    named = (mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "toolchain" not in metafunc.fixturenames or "toolchain" in named:
        return
    in_fast_half = FAST_MAJORS
    if metafunc.definition.get_closest_marker("every_major") is None:
        in_fast_half = (first_installed(),)
    # Each worker collects all tests, so those that it would leave out are not made.
    all_majors = SUPPORTED_MAJORS if "not slow" not in metafunc.config.option.markexpr else in_fast_half
    majors = [
        pytest.param(major, id=f"llvm-{major}", marks=() if major in in_fast_half else pytest.mark.slow)
        for major in all_majors
    ]
    metafunc.parametrize("toolchain", majors, indirect=True, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put what has the mark ``first_major`` into the slow half, but for its tests with that major."""
    if item.get_closest_marker("first_major") is not None and f"llvm-{first_installed()}" not in item.name:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin on every worker with what takes long, so that none ends with it.

    A worker is given items that follow one another, as many as the others, and who is ready takes the last ones of
    another. So each begins with some files of tests that need a compiler, and has the quick tests at its end.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("llvm") is not None]
    quick = [item for item in items if item.get_closest_marker("llvm") is None]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    # What follows one another shares fixtures: one file, and one LLVM major of it.
    for _, group in itertools.groupby(long, lambda item: item.path):
        min(shares, key=len).extend(group)
    ordered: list[pytest.Item] = []
    for number, share in enumerate(shares):
        size = (len(items) - len(ordered)) // (workers - number)
        count = max(0, size - len(share))
        ordered += [*share, *quick[:count]]
        del quick[:count]
    items[:] = [*ordered, *quick]


@pytest.fixture(scope="session")
def toolchain(request: pytest.FixtureRequest) -> Iterator[Toolchain]:
    """A real compiler; missing ones are skipped loudly, and are failures where CI=true promises all of them."""
    found = installed(request.param)
    if isinstance(found, Toolchain):
        with pytest.MonkeyPatch.context() as patch:
            # Programs of a compiler that brings its own libc++ need it to run, and the system may have none.
            for library in found.clang.parent.parent.glob("lib/*/libc++.so.1") if found.cxx_library == LIBCXX else ():
                patch.setenv("LD_LIBRARY_PATH", str(library.parent))
            yield found
        return
    if os.environ.get("CI") == "true":
        pytest.fail(found)
    pytest.skip(found)


@pytest.fixture(scope="session")
def opt(toolchain: Toolchain) -> Path:
    """LLVM's ``opt``; skipped where the compiler comes without it."""
    return tool_of(toolchain, "opt", toolchain.opt)


@pytest.fixture(scope="session")
def llc(toolchain: Toolchain) -> Path:
    """LLVM's ``llc``; skipped where the compiler comes without it."""
    return tool_of(toolchain, "llc", toolchain.llc)


@pytest.fixture(scope="session")
def size_level(toolchain: Toolchain) -> str:
    """The level of ``opt``'s pipelines for code whose functions have minsize: LLVM 23 has none for size alone."""
    return "O2" if toolchain.major >= 23 else "Oz"


@pytest.fixture(scope="session")
def targets(toolchain: Toolchain) -> str:
    """For which processors the compiler generates code, as it lists them."""
    return process.run([toolchain.clang, "-print-targets"], timeout_seconds=60).stdout.decode()


@pytest.fixture(scope="session")
def measured_copies(toolchain: Toolchain) -> None:
    """For tests in which copies of the compiler measure the code that they emit."""
    if toolchain.major == 21 and toolchain.cxx_library == LIBCXX:
        pytest.skip(
            f"LLVM 21: the headers that can be had for {toolchain.clang} lay out the assembler's fragments in another "
            "way than its library does, so copies of it stop before they have measured anything"
        )


@pytest.fixture(scope="session")
def other_targets(toolchain: Toolchain, targets: str) -> None:
    """For tests of code for other processors; skipped where the compiler generates code for its own alone."""
    if not {"aarch64", "thumb", "riscv32", "riscv64"} <= set(targets.split()):
        pytest.skip(f"LLVM {toolchain.major}: {toolchain.clang} generates code for its own processor alone")


def tool_of(toolchain: Toolchain, name: str, found: Path | None) -> Path:
    """The tool, if it was found."""
    if found is None:
        pytest.skip(f"LLVM {toolchain.major}: the package of {toolchain.clang} has no {name}")
    return found


@pytest.fixture(scope="session")
def plugin(toolchain: Toolchain) -> Path:
    """The generic plugin, in the user's cache folder: it takes a minute to build, and no test needs one of its own."""
    return build_plugin(toolchain)


@pytest.fixture(scope="session")
def compile_object(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``compile_object(source_text, options=("-Oz",), suffix=".cpp") -> Path``: an object, compiled once a session."""
    folder = tmp_path_factory.mktemp(f"objects-{toolchain.major}")

    def compile_text(source_text: str, options: Sequence[str] = ("-Oz",), *, suffix: str = ".cpp") -> Path:
        name = hashlib.sha256("\0".join((source_text, suffix, *options)).encode()).hexdigest()[:16]
        source, output = folder / f"{name}{suffix}", folder / f"{name}.o"
        if output.exists():
            return output
        source.write_text(source_text)
        compiler = toolchain.clangxx if suffix == ".cpp" else toolchain.clang
        argv = [compiler, "-c", source, *options, "-Wno-override-module", "-o", output]
        done = process.run(argv, timeout_seconds=120)
        assert done.returncode == 0, done.stderr
        return output

    return compile_text


CLANG = """#!/bin/sh
# Writes its words where -o says.
words="$0 $*"
while [ $# -gt 1 ]; do [ "$1" = -o ] && echo "$words" > "$2"; shift; done
"""


@pytest.fixture
def clang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """A compiler that is a script, alone with a shell and a cross compiler and a launcher in ``PATH``."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("real", "arm-none-eabi-gcc", "gcc-12"):
        (programs / name).write_text(CLANG)
        (programs / name).chmod(0o755)
    (programs / "ccache").write_text("#!/bin/sh\necho cached $*\n")
    (programs / "ccache").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Toolchain(major=99, version="99", clang=programs / "real", clangxx=programs / "real")

"""Builds the pass plugin for one LLVM major from the packaged C++ sources, once, and links policies into it."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import platformdirs

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import cxx_library_options
from mlgokit.compiler.limits import PROCESSORS
from mlgokit.compiler.pool import map_in_order
from mlgokit.compiler.prebuilt import COMPILE_OPTIONS, DIALECT, Prebuilt, find_prebuilt, plugin_sources, plugin_units
from mlgokit.compiler.toolchain import ADVISED_MAJOR, SUPPORTED_MAJORS, Toolchain, known_majors
from mlgokit.errors import BusyError, InputError, ToolError
from mlgokit.files import atomic_write, writing

BUILD_SECONDS = 300
WAIT_SECONDS = 2 * BUILD_SECONDS
"""Longest wait for other processes that build a plugin in the same folder."""
_PAUSE_SECONDS = 0.05
_PRECOMPILED = "Precompiled.h"
# Templates that all sources use are instantiated with it, and not again in each of them.
_PRECOMPILE = ("-fpch-instantiate-templates", "-x", "c++-header")
# Two plugins in one process must not call each other's functions by the same name.
_LINK = ("-shared", "-Wl,-Bsymbolic-functions")
# MlgokitMadeFor in plugin/Plugin.cpp.
_MADE_FOR = re.compile(rb"mlgokit plugin for LLVM (\d+)[.\w]* with (lib[\w+]+)\0")


def default_build_folder() -> Path:
    """Return the folder of built plugins: ``$XDG_CACHE_HOME/mlgokit/plugins``, by default below ``~/.cache``."""
    return platformdirs.user_cache_path("mlgokit") / "plugins"


def build_plugin(toolchain: Toolchain, *, cache_folder: Path | None = None) -> Path:
    """Return the generic plugin for ``toolchain``; it is built if its sources or the toolchain changed.

    Objects that came with the package are only linked, if they fit (:mod:`mlgokit.compiler.prebuilt`); else the sources
    are compiled, which takes LLVM's headers.

    Raises:
        BusyError: another process builds a plugin there, and does not end.
        ToolError: the major is not supported, neither headers nor fitting objects are there, or the sources do not
            compile.
    """
    return _build(toolchain, cache_folder or default_build_folder()) / "mlgokit.so"


def was_compiled(plugin: Path) -> bool:
    """Whether :func:`build_plugin` compiled it here, and did not link it from prebuilt objects."""
    return (plugin.parent / "Plugin.cpp").is_file()


def plugin_folder(
    toolchain: Toolchain, *, cache_folder: Path | None = None, sources: Mapping[str, bytes] | None = None
) -> Path:
    """Make the path of the folder to which the plugin for ``toolchain`` is built from ``sources``, by default ours."""
    library = cxx_library_options(toolchain.cxx_library)
    key = (
        sorted((sources or plugin_sources()).items()),
        _installation(toolchain),
        COMPILE_OPTIONS,
        _PRECOMPILE,
        _LINK,
        *library,
    )
    digest = hashlib.sha256(repr(key).encode()).hexdigest()
    return (cache_folder or default_build_folder()) / f"llvm-{toolchain.major}-{digest[:16]}"


def link_policies(
    toolchain: Toolchain, policies: Mapping[str, Path], output: Path, *, cache_folder: Path | None = None
) -> Path:
    """Write to ``output`` a plugin that has policy files inside, by the name of their problem.

    Tables go in under the names ``decisions`` (a decision table), ``passes`` and ``allocations`` (tables of functions).

    Raises:
        ToolError: as :func:`build_plugin`, or the linker failed.
    """
    built = _build(toolchain, cache_folder or default_build_folder())
    with tempfile.TemporaryDirectory(prefix="mlgokit-link-") as scratch:
        folder = Path(scratch)
        # The assembler includes the bytes; hidden symbols keep two such plugins apart in one process.
        text = [".section .rodata"]
        for problem, policy in policies.items():
            shutil.copyfile(policy, folder / f"{problem}.bin")
            symbol = f"mlgokit_{problem.replace('-', '_')}"
            for name in (f"{symbol}_begin", f"{symbol}_end"):
                text += [f".globl {name}", f".hidden {name}"]
            text += [".balign 16", f"{symbol}_begin:", f'.incbin "{problem}.bin"', f"{symbol}_end:"]
        text += ['.section .note.GNU-stack,"",@progbits', ""]
        (folder / "policies.s").write_text("\n".join(text))
        objects = sorted(built.rglob("*.o"))
        _compile(toolchain, ["-c", "policies.s", "-o", "policies.o"], folder)
        # LLVM's own linker takes half of the time of the system's; a search links several plugins.
        linker = [] if toolchain.lld is None else [f"--ld-path={toolchain.lld}"]
        _link(toolchain, [*linker, *map(str, objects), "policies.o"], folder / "plugin.so")
        atomic_write(output, (folder / "plugin.so").read_bytes())
    with writing(output):
        output.chmod(0o755)
    return output


def check_made_for(plugin: Path, toolchain: Toolchain) -> None:
    """Refuse a plugin that ``toolchain`` would not load; one that does not say what it is for is not refused.

    Raises:
        InputError: it is for another major, or for compilers with another C++ library; or it cannot be read.
    """
    try:
        found = _MADE_FOR.search(plugin.read_bytes())
    except OSError as error:
        raise InputError(f"{plugin}: expected a plugin, found {error.strerror}; correct the path") from error
    if found is None:
        return
    major, library = int(found[1]), found[2].decode()
    if (major, library) != (toolchain.major, toolchain.cxx_library):
        raise InputError(
            f"{plugin}: expected a plugin for LLVM {toolchain.major} with {toolchain.cxx_library}, as "
            f"{toolchain.clang} was built, found one for LLVM {major} with {library}; give the clang that it was made "
            "for with --llvm, or make it anew with this one"
        )


def _compile(toolchain: Toolchain, arguments: list[str], folder: Path) -> None:
    """Run the C++ compiler in a folder; raise if it fails or does not end."""
    done = process.run([toolchain.clangxx, *arguments], timeout_seconds=BUILD_SECONDS, cwd=folder)
    if done.returncode != 0 or done.timed_out:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        ending = f"no end after {BUILD_SECONDS} s" if done.timed_out else f"exit code {done.returncode}"
        raise ToolError(
            f"plugin for LLVM {toolchain.major}: expected {toolchain.clangxx} {' '.join(arguments[-3:])} to succeed, "
            f"found {ending} ({errors[0] if errors else 'no message'}); check that clang-"
            f"{toolchain.major}, llvm-{toolchain.major}-dev and libstdc++-dev are whole"
        )


def _build(toolchain: Toolchain, cache_folder: Path) -> Path:
    """Build the plugin for ``toolchain`` unless it is there already; return its folder."""
    if toolchain.major not in SUPPORTED_MAJORS:
        raise ToolError(
            f"plugin: expected a supported LLVM major ({known_majors('and')}), found {toolchain.major} at "
            f"{toolchain.clang}; choose another clang, for example: apt-get install clang-{ADVISED_MAJOR}"
        )
    prebuilt = find_prebuilt(toolchain.version, toolchain.target, toolchain.cxx_library)
    if toolchain.include_dir is None and isinstance(prebuilt, str):
        raise ToolError(
            f"plugin for LLVM {toolchain.major}: expected the headers of LLVM beside {toolchain.clang}, found none"
            f"{prebuilt and f', and {prebuilt}'}; install them: apt-get install llvm-{toolchain.major}-dev"
        )
    sources = plugin_sources()
    folder = plugin_folder(toolchain, cache_folder=cache_folder, sources=sources)
    if (folder / "mlgokit.so").is_file():
        return folder
    with writing(cache_folder):
        cache_folder.mkdir(parents=True, exist_ok=True)
    with _lock_builds(cache_folder):
        if not (folder / "mlgokit.so").is_file():
            _build_into(folder, toolchain, sources, None if isinstance(prebuilt, str) else prebuilt)
    return folder


def _installation(toolchain: Toolchain) -> tuple[object, ...]:
    """Collect what two installations of one version may differ in: their paths, LLVM's configuration, its library."""
    include = toolchain.include_dir or Path()
    try:
        configured = (include / "llvm" / "Config" / "llvm-config.h").read_bytes()
    except OSError:
        configured = b""
    libraries: list[tuple[str, int, int]] = []
    for path in sorted((toolchain.library_dir or include).glob("libLLVM*.so*")):
        with contextlib.suppress(OSError):
            status = path.stat()
            libraries.append((str(path), status.st_size, status.st_mtime_ns))
    return toolchain.version, toolchain.version_text, str(toolchain.clang), str(include), configured, libraries


@contextlib.contextmanager
def _lock_builds(cache_folder: Path) -> Generator[None]:
    """Within the block, no other process builds there; the lock of a process that dies is released."""
    with writing(cache_folder):
        descriptor = os.open(cache_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + WAIT_SECONDS
        # Some network file systems know no locks: two may build then, and the last to end takes the other's folder.
        with contextlib.suppress(OSError):
            while not _try_lock(descriptor):
                if time.monotonic() >= end:
                    raise BusyError(
                        f"{cache_folder}: expected the process that builds a plugin there to end within "
                        f"{WAIT_SECONDS} s, found it still at work; end it, then run the same command again"
                    )
                time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build_into(folder: Path, toolchain: Toolchain, sources: Mapping[str, bytes], prebuilt: Prebuilt | None) -> None:
    """Link the prebuilt objects, or compile the sources, and move the result to ``folder``."""
    cache_folder = folder.parent
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache_folder) as scratch:
        building = Path(scratch)
        if prebuilt is None or not _link_prebuilt(toolchain, prebuilt, building):
            compile_objects(toolchain, building, sources)
            _link(toolchain, [f"{unit}.o" for unit in plugin_units(sources)], building / "mlgokit.so")
        with writing(folder):
            if not (folder / "mlgokit.so").is_file():
                # What a killed build or a cleaned cache left behind.
                shutil.rmtree(folder, ignore_errors=True)
            try:
                building.rename(folder)
            except OSError:
                # Another process built the same plugin meanwhile; its result is the same.
                if not (folder / "mlgokit.so").is_file():
                    raise
            else:
                # For the temporary folder's context, which removes it.
                building.mkdir()


def compile_objects(
    toolchain: Toolchain, folder: Path, sources: Mapping[str, bytes], *, options: Sequence[str] = ()
) -> None:
    """Put the sources into ``folder``, and beside each the object that ``toolchain`` makes of it.

    The headers that most sources include are compiled first and once, as they take two thirds of each source's time.

    Raises:
        ToolError: a source does not compile.
    """
    with writing(folder):
        for name, text in sources.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(text)
    words = [*COMPILE_OPTIONS, "-iquote", ".", "-isystem", str(toolchain.include_dir), *DIALECT]
    words += [*cxx_library_options(toolchain.cxx_library), *options]
    precompiled = f"{_PRECOMPILED}.pch"
    _compile(toolchain, [*words, *_PRECOMPILE, _PRECOMPILED, "-o", precompiled], folder)

    def compile_unit(unit: str) -> None:
        _compile(toolchain, [*words, "-include-pch", precompiled, f"{unit}.cpp", "-o", f"{unit}.o"], folder)

    for _ in map_in_order(compile_unit, plugin_units(sources), workers=PROCESSORS):
        pass
    with writing(folder):
        (folder / precompiled).unlink()


def _link(toolchain: Toolchain, words: Sequence[str], output: Path) -> None:
    """Link objects, by paths relative to the output's folder, to a shared library; options may be before them."""
    library = cxx_library_options(toolchain.cxx_library)
    _compile(toolchain, [*_LINK, *library, *words, "-o", output.name], output.parent)


def _link_prebuilt(toolchain: Toolchain, prebuilt: Prebuilt, folder: Path) -> bool:
    """Link prebuilt objects, and let the compiler load the result; ``False`` if sources must be compiled instead."""
    with writing(folder):
        for unit, data in prebuilt.read():
            (folder / unit).parent.mkdir(exist_ok=True)
            (folder / f"{unit}.o").write_bytes(data)
    _link(toolchain, [f"{unit}.o" for unit in prebuilt.objects], folder / "mlgokit.so")
    source = folder / "try.c"
    source.write_text("")
    # Bound at once: what the compiler lacks has to be missed now, and not in the middle of a compilation.
    done = process.run(
        [toolchain.clang, "-Oz", "-fpass-plugin=./mlgokit.so", "-c", source.name, "-o", os.devnull],
        timeout_seconds=BUILD_SECONDS,
        cwd=folder,
        env=dict(os.environ) | {"LD_BIND_NOW": "1"},
    )
    source.unlink()
    if done.returncode == 0:
        return True
    if toolchain.include_dir is not None:
        return False
    message = (done.stderr.strip().splitlines() or ["no message"])[0]
    raise ToolError(
        f"plugin for LLVM {toolchain.major}: expected {toolchain.clang} to load the plugin that is prebuilt for "
        f"{prebuilt.name}, found: {message}; install the headers, so that it is compiled: apt-get install "
        f"llvm-{toolchain.major}-dev"
    )

"""The folder of compiler wrappers: one program for each name of a compiler, which runs the toolchain's clang instead.

A build comes to them through ``PATH``, ``CC`` and ``CXX``, and, where it starts a compiler by a whole path, through a
library that is loaded into its programs. A build that was configured with them has their paths in its files, so the
folder stays where it is, below the user's cache; outside of a build that mlgokit runs, they are the plain clang.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import platformdirs

from mlgokit.compiler import process
from mlgokit.compiler.driver_call import COMPILER, LINKER, is_native
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapper import REDIRECT, SESSION, STANDARDS
from mlgokit.errors import ToolError
from mlgokit.files import writing

_C = ("cc", "gcc", "clang", *STANDARDS)
_CXX = ("c++", "g++", "clang++")
_LLD = "ld.lld"
_TOOLS = ("llvm-ar", "llvm-ranlib", "llvm-nm", "llvm-strip", "llvm-objcopy")
_LAUNCHERS = ("ccache", "sccache", "distcc", "icecc", "buildcache")
"""Compiler launchers, which return cached objects or compile on another machine."""
_COMPILER, _LINKER = re.compile(COMPILER), re.compile(LINKER)
_CROSS = re.compile(r".+-(cc|gcc|clang|c\+\+|g\+\+|clang\+\+)(-\d+(\.\d+)*)?")
_PROGRAMS, _SOURCE, _FOLDER, _ANY = "programs.json", "redirect.c", "bin", "compiler"
_WRAPPER = ("wrapper.py", "driver_call.py", "source_texts.py")
_PACKAGE = "mlgokit/compiler"
"""Subfolder from which the wrappers import their code."""
_RUSTC, _RUSTC_SOURCE = "rustc-wrapper", "rust/wrapper.py"
_REDIRECTED = "MLGOKIT_WRAPPERS"
_BUILD_SECONDS = 60.0
# Without the variable, the wrapper's own compiler is not redirected to the wrapper.
_STARTED_SCRIPT = """#!/bin/sh
MLGOKIT_WRAPPERS= exec {start} "${session}" {name} "$@"
"""
# Outside of a build no Python is needed, which may be gone when a build that was configured with wrappers goes on.
_COMPILER_SCRIPT = """#!/bin/sh
test -f "${session}" || test -n "$MLGOKIT_STARTED" || MLGOKIT_WRAPPERS= exec {program} "$@"
MLGOKIT_WRAPPERS= exec {start} "${session}" {name} "$@"
"""
# A compiler's own link is written down as a call of the compiler.
_LINKER_SCRIPT = """#!/bin/sh
test -n "$MLGOKIT_WRAPPERS" || exec {program} "$@"
MLGOKIT_WRAPPERS= exec {start} "${session}" {name} "$@"
"""
_RUSTC_SCRIPT = """#!/bin/sh
exec {start} "${session}" "$@"
"""
_START = "import sys; sys.path.insert(0, {folder!r}); from mlgokit.compiler.wrapper import main; sys.exit(main())"
_LAUNCHER = """#!/bin/sh
unset MLGOKIT_STARTED
while case "$1" in -*) exec {launcher} "$@";; *=*) ;; *) false;; esac; do shift; done
exec "$@"
"""


def wrapped_names(toolchain: Toolchain, present: Mapping[str, Path] | None = None) -> dict[str, Path]:
    """List the compilers to replace by name, with the program that runs in place of each.

    Args:
        toolchain: LLVM installation whose clang runs instead.
        present: programs in ``PATH`` by name; those that compile for this machine are replaced as well, in any version.

    Example:
        >>> clang = Toolchain(major=22, version="22.1", clang=Path("/l/clang"), clangxx=Path("/l/clang++"))
        >>> sorted(wrapped_names(clang))[:5]
        ['c++', 'c89', 'c99', 'cc', 'clang']
        >>> wrapped_names(clang, {"g++-12": Path("/usr/bin/g++-12")})["g++-12"]
        PosixPath('/l/clang++')
    """
    plain = {name: path for names, path in ((_C, toolchain.clang), (_CXX, toolchain.clangxx)) for name in names}
    versions = {f"{name}-{toolchain.major}": plain[name] for name in ("clang", "clang++")}
    for name in present or {}:
        found = _COMPILER.fullmatch(name)
        if found is not None and is_native(found["target"]):
            versions[name] = plain[found["name"]]
    return plain | versions


def foreign_names(present: Mapping[str, Path]) -> dict[str, Path]:
    """Select the compilers for other machines from programs; they are not replaced, but their calls are recorded.

    Example:
        >>> foreign_names({"arm-none-eabi-gcc": Path("/usr/bin/arm-none-eabi-gcc"), "gcc": Path("/usr/bin/gcc")})
        {'arm-none-eabi-gcc': PosixPath('/usr/bin/arm-none-eabi-gcc')}
    """
    matches = {name: _COMPILER.fullmatch(name) for name in present}
    return {name: present[name] for name, found in matches.items() if found and not is_native(found["target"])}


def open_wrappers(toolchain: Toolchain, *, keeps_compilers: bool = False, cache_folder: Path | None = None) -> Path:
    """Make the folder of wrappers for a toolchain and the programs in ``PATH``, or find one that was made before.

    Args:
        toolchain: LLVM installation whose clang runs instead, and preprocesses sources that are kept.
        keeps_compilers: whether the build's own compilers run; then only names in ``PATH`` are wrapped.
        cache_folder: parent of the folders of wrappers; below the user's cache by default.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: no build can use wrappers in the cache folder, because of its name.
    """
    present = _programs_in_path()
    launchers = {name: str(present[name]) for name in _LAUNCHERS if name in present}
    linkers = {name: str(present[name]) for name in present if _LINKER.fullmatch(name)}
    if keeps_compilers:
        programs = {name: str(path) for name, path in present.items() if name not in {*launchers, *linkers}}
        # Such a build is recorded for its compilations, not for its links.
        foreign, tools, linkers = dict[str, str](), dict[str, str](), dict[str, str]()
    else:
        programs = {name: str(path) for name, path in wrapped_names(toolchain, present).items()}
        foreign = {name: str(path) for name, path in foreign_names(present).items()}
        # A build that looks for them beside its compiler shall find those of the same LLVM.
        beside = toolchain.clang.resolve().parent
        tools = {name: str(beside / name) for name in _TOOLS if (beside / name).exists()}
        if (beside / _LLD).exists():
            linkers[_LLD] = str(beside / _LLD)
    package = resources.files("mlgokit.compiler")
    sources = {f"{_PACKAGE}/{name}": (package / name).read_bytes() for name in _WRAPPER}
    sources |= {name: (package / name).read_bytes() for name in (_SOURCE, _RUSTC_SOURCE)}
    known = json.dumps(
        {
            "programs": programs,
            "foreign": foreign,
            "linkers": linkers,
            "launchers": launchers,
            "tools": tools,
            "keeps_compilers": keeps_compilers,
            "clang": str(toolchain.clang),
            "clang++": str(toolchain.clangxx),
        }
    )
    scripts = (_COMPILER_SCRIPT, _STARTED_SCRIPT, _LINKER_SCRIPT, _RUSTC_SCRIPT, _LAUNCHER, _START)
    key = repr((known, sorted(sources.items()), sys.executable, toolchain.version_text, scripts))
    top = cache_folder or platformdirs.user_cache_path("mlgokit") / "wrappers"
    if re.search(r"[\s:]", str(top)):
        raise ToolError(
            "wrappers of compilers: expected a cache folder without spaces and colons, at which Makefiles and the "
            f"loader of programs split paths, found {str(top)!r}; set XDG_CACHE_HOME to another folder"
        )
    folder = top / f"llvm-{toolchain.major}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if folder.is_dir():
        # C headers may have been installed since.
        if not (folder / REDIRECT).exists():
            with contextlib.suppress(OSError):
                _build_redirect(folder, toolchain)
        return folder
    with writing(top):
        top.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=top))
        try:
            scratch.chmod(0o755)
            (scratch / _PROGRAMS).write_text(known)
            for name, data in sources.items():
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).write_bytes(data)
            _put_programs(
                scratch / _FOLDER, folder, programs | foreign, launchers=launchers, tools=tools, linkers=linkers
            )
            _build_redirect(scratch, toolchain)
            if not folder.is_dir():
                scratch.rename(folder)
        except OSError:
            # Another process was faster.
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def wrapper_variables(folder: Path, settings: Path, *, keeps_compilers: bool = False) -> dict[str, str]:
    """Make the environment variables by which a build uses the wrappers of :func:`open_wrappers` with ``settings``."""
    programs = folder / _FOLDER
    found = {
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        _REDIRECTED: str(programs),
        SESSION: str(settings),
    }
    if not keeps_compilers:
        found |= {
            "CC": _wrap_named(os.environ.get("CC", ""), programs) or str(programs / "clang"),
            "CXX": _wrap_named(os.environ.get("CXX", ""), programs) or str(programs / "clang++"),
            # It replaces a wrapper of the user's, which is a cache such as sccache.
            "RUSTC_WRAPPER": str(folder / _RUSTC),
            # An object in a cache was made with other options.
            "CCACHE_DISABLE": "1",
        }
    if (folder / REDIRECT).exists():
        found["LD_PRELOAD"] = ":".join([str(folder / REDIRECT), *os.environ.get("LD_PRELOAD", "").split()])
    return found


def _wrap_named(command: str, programs: Path) -> str:
    """Replace the compiler in what ``CC`` or ``CXX`` says by its wrapper; its options stay, and launchers do not.

    A cross compiler stays, as ``PATH`` or the redirecting library lead to its wrapper. Empty for what is no compiler.
    """
    for word in re.finditer(r"\S+", command):
        name = Path(word[0]).name
        found = _COMPILER.fullmatch(name)
        if name in (*_C, *_CXX) or (found is not None and is_native(found["target"])):
            # Makefiles choose options by the name of the compiler, which is clang whatever the user's is.
            ours = name if name in STANDARDS else "clang++" if "++" in name else "clang"
            return f"{programs / ours}{command[word.end() :]}"
        if _CROSS.fullmatch(name):
            return command[word.start() :]
        if name not in _LAUNCHERS and "=" not in name:
            return ""
    return ""


def plugin_settings() -> dict[str, str]:
    """Collect the plugin's variables in the user's environment, such as `MLGOKIT_POLICY`."""
    ours = (SESSION, _REDIRECTED)
    return {name: value for name, value in os.environ.items() if name.startswith("MLGOKIT_") and name not in ours}


def _programs_in_path() -> dict[str, Path]:
    """Find compilers, their launchers and linkers in ``PATH``, the first of each name."""
    found: dict[str, Path] = {}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        place = Path(folder).absolute()
        # In a build that mlgokit runs, wrappers are no compilers.
        try:
            listed = sorted(place.iterdir())
        except OSError:
            continue
        if (place.parent / _PROGRAMS).exists():
            continue
        for path in listed:
            is_one = path.name in _LAUNCHERS or _COMPILER.fullmatch(path.name) or _LINKER.fullmatch(path.name)
            if is_one and path.name not in found and os.access(path, os.X_OK):
                found[path.name] = path
    return found


def _put_programs(
    place: Path,
    folder: Path,
    compilers: Mapping[str, str],
    *,
    launchers: Mapping[str, str],
    tools: Mapping[str, str],
    linkers: Mapping[str, str],
) -> None:
    """Write the programs of a wrapper folder to ``place``, which is later renamed to ``folder``."""
    place.mkdir()
    start = [sys.executable, "-I", "-S", "-c", _START.format(folder=str(folder)), str(folder / _PROGRAMS)]
    texts = {
        name: _COMPILER_SCRIPT.format(
            start=shlex.join(start),
            session=SESSION,
            name=shlex.quote(name),
            program=shlex.join([path, *STANDARDS.get(name, [])]),
        )
        for name, path in compilers.items()
    }
    for name, path in linkers.items():
        texts[name] = _LINKER_SCRIPT.format(
            start=shlex.join(start), session=SESSION, name=shlex.quote(name), program=shlex.quote(path)
        )
    # For what is started by a path and has a name that no program in ``PATH`` has.
    texts[f"../{_ANY}"] = _STARTED_SCRIPT.format(start=shlex.join(start), session=SESSION, name="''")
    texts |= {name: _LAUNCHER.format(launcher=shlex.quote(path)) for name, path in launchers.items()}
    start = [sys.executable, "-I", "-S", str(folder / _RUSTC_SOURCE)]
    texts[f"../{_RUSTC}"] = _RUSTC_SCRIPT.format(start=shlex.join(start), session=SESSION)
    for name, text in texts.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    for name, path in tools.items():
        (place / name).symlink_to(path)


def _build_redirect(folder: Path, toolchain: Toolchain) -> None:
    """Compile the library that redirects whole paths of compilers; without C headers, builds run without it."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch, REDIRECT)
        argv = [toolchain.clang, "-shared", "-fPIC", "-O2", folder / _SOURCE, "-o", made]
        process.run(argv, timeout_seconds=_BUILD_SECONDS)
        if made.exists():
            made.replace(folder / REDIRECT)

"""Builds the wheel: the package, and objects of the plugin for each LLVM major that Debian has, compiled here.

Usage::

    python scripts/wheel.py [--output build/wheel] [--majors 19 22] [--only-here]

Writes ``mlgokit-<version>-py3-none-any.whl``. The plugin is compiled by each major's own clang with its own headers,
for this processor, and for AArch64 where its C and C++ headers are (Debian: ``libstdc++-12-dev-arm64-cross``). The
same commit, compilers and Python packages give the same bytes, wherever the checkout is: entries are sorted and have
the time of the commit, or of SOURCE_DATE_EPOCH, and no object names a folder. Objects are kept beside the wheel, by
what they were made of.
"""

import argparse
import base64
import hashlib
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import LIBSTDCXX
from mlgokit.compiler.plugin_build import compile_objects
from mlgokit.compiler.prebuilt import (
    INDEX,
    Prebuilt,
    index_text,
    plugin_sources,
    plugin_units,
    processor_of,
    series_of,
    sources_digest,
)
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.errors import MlgokitError, ToolError

ROOT = Path(__file__).resolve().parent.parent
LARGEST_BYTES = 8_000_000
PREBUILT = "mlgokit/prebuilt"
SECONDS = 600
PACKAGED_MAJORS = (19, 22)
"""Those whose compiler and headers ``apt-get`` installs on Debian."""
CROSS = {"aarch64": "aarch64-linux-gnu"}
"""Other processors, and what clang calls them."""
EARLIEST = 315532800
"""A zip archive knows no time before 1980."""
KEPT = ("src", "pyproject.toml", "README.md", "LICENSE")


def main() -> int:
    """Build the wheel and say what is in it."""
    parser = argparse.ArgumentParser(description="Builds the wheel with prebuilt plugins.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "wheel", help="folder for the wheel")
    parser.add_argument("--majors", type=int, nargs="+", default=PACKAGED_MAJORS, help="LLVM majors to compile for")
    parser.add_argument("--only-here", action="store_true", help="compile for this processor alone")
    words = parser.parse_args()
    cross = {} if words.only_here else CROSS
    try:
        with tempfile.TemporaryDirectory(prefix="mlgokit-wheel-") as scratch:
            wheel = build_wheel(words.output.absolute(), Path(scratch), words.majors, cross)
    except MlgokitError as error:
        sys.stderr.write(f"wheel: {error}\n")
        return error.exit_code
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    sys.stdout.write(f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB, SHA-256 {digest}\n")
    return 0


def build_wheel(output: Path, scratch: Path, majors: Sequence[int], cross: Mapping[str, str]) -> Path:
    """The wheel in the folder ``output``, whose other wheels of ours go away.

    Raises:
        ToolError: a compiler is missing, a source does not compile, or the wheel is too large.
    """
    packaged = package(scratch)
    entries = {**read(packaged), **prebuilt_entries(output / "objects", majors, cross)}
    info = next(name.split("/")[0] for name in entries if name.endswith(".dist-info/RECORD"))
    entries[f"{info}/RECORD"] = record(entries, f"{info}/RECORD")
    whole = scratch / "whole" / packaged.name
    whole.parent.mkdir()
    pack(entries, whole, commit_time())
    if whole.stat().st_size > LARGEST_BYTES:
        raise ToolError(
            f"{packaged.name}: expected at most {LARGEST_BYTES} bytes, found {whole.stat().st_size}; "
            "look what has grown"
        )
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("mlgokit-*.whl"):
        old.unlink()
    return Path(shutil.move(whole, output / packaged.name))


def package(scratch: Path) -> Path:
    """The wheel of the package alone, as the build back end makes it of what git knows."""
    stage = scratch / "stage"
    for name in printed("git", "ls-files", "-z", *KEPT).split("\0"):
        if name:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, stage / name)
    call = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    run_whole([*call, "--no-build-isolation", "--wheel-dir", str(scratch / "package"), str(stage)])
    (found,) = (scratch / "package").glob("*.whl")
    return found


def prebuilt_entries(kept: Path, majors: Sequence[int], cross: Mapping[str, str]) -> dict[str, bytes]:
    """The objects for all compilers, with their index, by their path in the wheel."""
    sources = plugin_sources()
    entries: dict[str, bytes] = {}
    known: list[Prebuilt] = []
    for major in majors:
        toolchain = find_toolchain(major, need_plugin=True)
        if toolchain.include_dir is None:
            raise ToolError(f"LLVM {major}: expected its headers, found none; install llvm-{major}-dev")
        own = processor_of(toolchain.target)
        targets = {own: toolchain.target}
        # A compiler with libc++ brings that for its own processor alone.
        if toolchain.cxx_library == LIBSTDCXX:
            targets |= {name: target for name, target in cross.items() if name != own}
        for processor, target in targets.items():
            if processor != own and not has_headers(toolchain, target):
                sys.stderr.write(f"wheel: no plugin for LLVM {major} on {processor}: its C++ headers are not here\n")
                continue
            objects = compile_for(toolchain, target, sources, kept)
            prebuilt = Prebuilt(
                series=series_of(toolchain.version),
                processor=processor,
                cxx_library=toolchain.cxx_library,
                compiler=toolchain.version_text,
                sources=sources_digest(sources),
                objects={unit: hashlib.sha256(data).hexdigest() for unit, data in objects.items()},
            )
            known.append(prebuilt)
            entries |= {f"{PREBUILT}/{prebuilt.folder}/{unit}.o": data for unit, data in objects.items()}
    return {f"{PREBUILT}/{INDEX}": index_text(tuple(known)).encode(), **entries}


def compile_for(toolchain: Toolchain, target: str, sources: Mapping[str, bytes], kept: Path) -> dict[str, bytes]:
    """The objects for a target, by source without its ending; none of them names a folder of this machine."""
    made_of = (sources_digest(sources), toolchain.version_text, str(toolchain.include_dir), target)
    folder = kept / hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=kept) as scratch:
            building = Path(scratch) / "objects"
            building.mkdir()
            maps = {str(toolchain.include_dir): "llvm-headers", str(building): "."}
            options = [f"--target={target}", *(f"-ffile-prefix-map={real}={name}" for real, name in maps.items())]
            compile_objects(toolchain, building, sources, options=options)
            building.rename(folder)
    return {unit: (folder / f"{unit}.o").read_bytes() for unit in plugin_units(sources)}


def has_headers(toolchain: Toolchain, target: str) -> bool:
    """Whether the C and C++ libraries' headers for the target are installed."""
    call = [toolchain.clangxx, f"--target={target}", "-x", "c++", "-fsyntax-only", "-"]
    text = b"#include <memory>\n#include <unistd.h>\n"
    return process.run(call, timeout_seconds=SECONDS, stdin=text).returncode == 0


def read(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, by path."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def record(entries: Mapping[str, bytes], own: str) -> bytes:
    """The list of all files with their digests, as wheels have it."""
    lines = [f"{name},sha256={digest(data)},{len(data)}" for name, data in sorted(entries.items()) if name != own]
    return "".join(f"{line}\n" for line in (*lines, f"{own},,")).encode()


def digest(data: bytes) -> str:
    """SHA-256 as wheels write it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def pack(entries: Mapping[str, bytes], wheel: Path, seconds: int) -> None:
    """Write a wheel that has nothing of this machine in it: sorted, one time, one mode."""
    moment = time.gmtime(max(seconds, EARLIEST))[:6]
    # What describes the package comes last, as the format recommends.
    names = sorted(entries, key=lambda name: (".dist-info/" in name, name))
    with zipfile.ZipFile(wheel, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            info = zipfile.ZipInfo(name, moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, entries[name])


def commit_time() -> int:
    """When the commit was made, unless SOURCE_DATE_EPOCH says another time."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or printed("git", "log", "-1", "--format=%ct"))


def printed(*words: str) -> str:
    """What a program prints."""
    return run_whole(list(words)).stdout.decode()


def run_whole(words: list[str]) -> process.Completed:
    """Run a program in the checkout.

    Raises:
        ToolError: it fails.
    """
    done = process.run(words, timeout_seconds=SECONDS, cwd=ROOT)
    if done.returncode != 0 or done.timed_out:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ToolError(f"{' '.join(words[:4])}: expected it to succeed, found exit code {done.returncode} ({last})")
    return done


if __name__ == "__main__":
    sys.exit(main())

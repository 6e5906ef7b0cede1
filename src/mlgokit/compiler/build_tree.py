"""What of a wrapped build belongs to the project, and which objects no wrapper has seen."""

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.wrapping import WrappedBuild, WrappedCall
from mlgokit.errors import InputError

BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""How an object begins that is left to a link-time optimization."""
_CHECKS = ("*CMakeFiles/*/CompilerId*", "*meson-private/*", "*CMakeFiles/CMakeTmp/*", "*CMakeFiles/CMakeScratch/*")
"""What build systems compile to know their compiler, and leave behind."""
_OBJECTS = (".o", ".obj")
_CLOCK_SECONDS = 0.1
"""By which a file system's clock may be behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedObject:
    """An object that no wrapper has seen.

    Attributes:
        path: where it is.
        compiler: what it says of its compiler.
        is_new: whether this build made it; otherwise it was there before.
    """

    path: Path
    compiler: str
    is_new: bool


def is_check(path: Path, tree: Path) -> bool:
    """Whether a file below ``tree`` is from a check of the build system."""
    return any(fnmatch.fnmatch(path.as_posix().removeprefix(f"{tree.as_posix()}/"), pattern) for pattern in _CHECKS)


def project_calls(build: WrappedBuild, tree: Path) -> list[WrappedCall]:
    """The compilations and links of a build, without the checks of its build system; those are gone when it ends."""
    return [
        call
        for call in build.calls
        if all(path.exists() for path in call.inputs) and not any(is_check(path, tree) for path in call.outputs)
    ]


def objects_passed_by(tree: Path, build: WrappedBuild, *, since: float) -> list[PassedObject]:
    """The objects below a folder that a compiler made and no wrapper has seen, by path.

    Args:
        tree: the folder of the build.
        build: what the wrappers have seen.
        since: when the build began, in seconds since the epoch.
    """
    seen = {path for call in (*build.calls, *build.others) for path in call.outputs}
    # Build systems rename what a compiler made.
    renamed = {number for call in build.calls for number in call.files}
    found: list[PassedObject] = []
    for path in _objects(tree):
        try:
            status = path.stat()
            if path in seen or status.st_ino in renamed or is_check(path, tree):
                continue
            compiler = _compiler(path)
        except (OSError, InputError):
            continue
        if compiler:
            is_new = status.st_mtime >= since - _CLOCK_SECONDS
            found.append(PassedObject(path=path, compiler=compiler, is_new=is_new))
    return sorted(found, key=lambda one: one.path)


def _objects(tree: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(tree):
        folders[:] = [name for name in folders if name != ".git"]
        yield from (Path(folder, name) for name in names if name.endswith(_OBJECTS))


def _compiler(path: Path) -> str:
    """What an object says of its compiler; nothing for assembly and what is no object."""
    with path.open("rb") as file:
        if file.read(4) in BITCODE:
            return "a compiler that leaves bitcode to the link"
    elf = e.read_elf(path)
    if elf.kind != e.ET_REL or ".comment" not in elf.names:
        return ""
    section = elf.sections[elf.names.index(".comment")]
    begin, size = int(section["offset"]), int(section["size"])
    return elf.data[begin : begin + size].strip(b"\0").split(b"\0")[0].decode("utf-8", "replace")

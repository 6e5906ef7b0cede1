"""The folder of a wrapped build: copies, test compilations of build systems, objects that bypassed the wrappers."""

import filecmp
import fnmatch
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.formats import read_object
from mlgokit.compiler.source_texts import content_of
from mlgokit.compiler.wrapping import FileState, WrappedBuild, file_state
from mlgokit.errors import InputError, UsageError
from mlgokit.files import is_temporary, writing
from mlgokit.locks import LOCK_NAME
from mlgokit.manifest import is_ours

BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""First bytes of an object that contains bitcode for link-time optimization."""
_CHECKS = ("*CMakeFiles/*/CompilerId*", "*meson-private/*", "*CMakeFiles/CMakeTmp/*", "*CMakeFiles/CMakeScratch/*")
"""Files that build systems compile to examine the compiler, and do not delete."""
_CONFIGURED = ("CMakeCache.txt", "meson-private")
"""A folder with one of these files is a configured build with absolute paths; a copy would build in the old place."""
_OBJECTS = (".o", ".obj")

ObjectStates = Mapping[Path, FileState]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenObject:
    """An object whose compilation bypassed the wrappers.

    Attributes:
        path: where it is.
        compiler: named in its ``.comment`` section.
        is_new: whether this build made it, or an earlier one.
    """

    path: Path
    compiler: str
    is_new: bool


def copy_sources(folder: Path, target: Path, *, without: Path | None = None) -> tuple[Path, ...]:
    """Copy the folder of a build without mlgokit's own files and without folders that CMake or Meson configured.

    Args:
        folder: the folder to copy; file times are kept.
        target: path of the copy, which must not exist.
        without: a folder below it that is left out.

    Returns:
        The configured folders that were left out, relative to ``folder``.

    Raises:
        StorageError: the disk is full or not writable.
        UsageError: something cannot be read.
    """
    configured: list[Path] = []

    def select_ignored(place: str, names: list[str]) -> set[str]:
        """Select the names in a folder that are not copied, and note which of them were configured."""
        ours, found = _select_left_out(Path(place), names, without)
        configured.extend(Path(place, name).relative_to(folder) for name in sorted(found))
        return found | ours

    with writing(target):
        try:
            shutil.copytree(folder, target, symlinks=True, ignore=select_ignored)
        except shutil.Error as error:
            raise UsageError(
                f"{folder}: expected a folder that can be copied, found: {error.args[0][0][2]}; "
                "remove what cannot be read, or name another folder"
            ) from error
    return tuple(configured)


def is_copy(folder: Path, copy: Path, *, without: Path | None = None) -> bool:
    """Whether a copy by :func:`copy_sources` still has the contents of its folder."""
    compared = filecmp.dircmp(folder, copy, ignore=[], hide=[])

    def is_same(place: Path, one: filecmp.dircmp[str]) -> bool:
        """Whether a folder and the folders below it equal their copies, apart from what is not copied."""
        ours, configured = _select_left_out(place, one.left_only, without)
        return not (one.right_only or one.diff_files or set(one.left_only) - ours - configured) and all(
            is_same_link(path, Path(below.right)) if path.is_symlink() else is_same(path, below)
            for path, below in ((place / name, below) for name, below in one.subdirs.items())
        )

    def is_same_link(link: Path, copied: Path) -> bool:
        """Whether the copy of a link is one with the same target; what it leads to may be a folder above it."""
        return copied.is_symlink() and copied.readlink() == link.readlink()

    return copy.is_dir() and is_same(folder, compared)


def _select_left_out(place: Path, names: Iterable[str], without: Path | None) -> tuple[set[str], set[str]]:
    """Select from names in a folder mlgokit's own files and ``without``, and folders that CMake or Meson configured."""
    kept_out, whole = None if without is None else without.resolve(), place.resolve()
    ours = {
        name
        for name in names
        if name.endswith(LOCK_NAME) or is_temporary(name) or whole / name == kept_out or is_ours(place / name)
    }
    configured = {
        name
        for name in names
        if name in {"CMakeCache.txt", "CMakeFiles"} or any((place / name / mark).exists() for mark in _CONFIGURED)
    }
    return ours, configured - ours


def is_check(path: Path, tree: Path) -> bool:
    """Whether a file below ``tree`` is from a test compilation of the build system."""
    return any(fnmatch.fnmatch(path.as_posix().removeprefix(f"{tree.as_posix()}/"), pattern) for pattern in _CHECKS)


def is_image(path: Path) -> bool:
    """Whether a file is a program or a shared library."""
    try:
        return read_object(path).is_image
    except InputError:
        return False


def objects_below(tree: Path, *, without: Path | None = None) -> ObjectStates:
    """List the objects below a folder with their file states, to tell later which of them a build made.

    Args:
        tree: the folder of the build.
        without: a folder that is not looked into.
    """
    return {path: file_state(path) for path in _find_objects(tree, without)}


def find_unseen_objects(
    tree: Path, build: WrappedBuild, *, before: ObjectStates, without: Path | None = None
) -> list[UnseenObject]:
    """Find compiled objects below a folder whose compilations bypassed the wrappers, sorted by path.

    Args:
        tree: the folder of the build.
        build: the calls that the wrappers recorded.
        before: the objects when the build began. Times cannot replace it: a file system's clock may be behind, and a
            build may begin right after another.
        without: a folder that is not looked into.
    """
    seen = {path for call in (*build.calls, *build.others) for path in call.outputs}
    # Build systems rename and copy what a compiler made.
    made = {content for call in build.calls for content in call.contents if content is not None}
    sizes = {size for size, _ in made}
    found: list[UnseenObject] = []
    for path in _find_objects(tree, without):
        state = file_state(path)
        if path in seen or is_check(path, tree) or (state[1] in sizes and content_of(path) in made):
            continue
        try:
            compiler = _read_compiler(path)
        except (OSError, InputError):
            continue
        if compiler:
            found.append(UnseenObject(path=path, compiler=compiler, is_new=before.get(path) != state))
    return sorted(found, key=lambda one: one.path)


def _find_objects(tree: Path, without: Path | None) -> Iterator[Path]:
    return (path for path in files_below(tree, without=without) if path.name.endswith(_OBJECTS))


def files_below(tree: Path, *, without: Path | None = None) -> Iterator[Path]:
    """List the files below the folder of a build, folder by folder in order, except for mlgokit's own and git's."""
    for folder, folders, names in os.walk(tree):
        if Path(folder) == without or (Path(folder) != tree and is_ours(Path(folder))):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name != ".git")
        yield from (Path(folder, name) for name in sorted(names))


def _read_compiler(path: Path) -> str:
    """Read the compiler's name from an object; empty for assembly and for other files."""
    with path.open("rb") as file:
        if file.read(4) in BITCODE:
            return "a compiler that leaves bitcode to the link"
    elf = e.read_elf(path)
    if elf.kind != e.ET_REL or ".comment" not in elf.names:
        return ""
    section = elf.sections[elf.names.index(".comment")]
    begin, size = int(section["offset"]), int(section["size"])
    return elf.data[begin : begin + size].strip(b"\0").split(b"\0")[0].decode("utf-8", "replace")

"""Paths and names in a corpus: its files, its modules, its projects; :mod:`mlgokit.corpus.corpus` reads them."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mlgokit.compiler.driver_call import SOURCES
from mlgokit.errors import CorpusError, UsageError

DESCRIPTION_NAME = "corpus_description.json"
SIDECAR_NAME = "corpus_modules.json"
SIDECAR_VERSION = 1
UNSPECIFIED = "<UNSPECIFIED>"
"""Placeholder of LLVM's extraction in ``global_command_override`` for options that the user has to fill in."""

_SUFFIXES = {suffix: "c" if suffix == ".c" else "c++" for suffix in SOURCES - {".i", ".ii"}}

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_BUILD_FOLDERS = re.compile(
    r"(cmake-)?(build|out|output|release|debug|obj|bin|_build|builddir)([-_.].*)?", re.IGNORECASE
)


def bitcode_path(folder: Path, name: str) -> Path:
    """Make the path of a module's bitcode."""
    return folder / f"{name}.bc"


def thinlto_index_path(folder: Path, name: str) -> Path:
    """Make the path of a module's part of the ThinLTO index."""
    return folder / f"{name}.thinlto.bc"


def encode_command_line(options: Iterable[str]) -> bytes:
    r"""Encode the content of a ``.cmd`` file.

    Example:
        >>> encode_command_line(["-cc1", "-Oz"])
        b'-cc1\x00-Oz\x00'
    """
    return b"".join(option.encode("utf-8", "surrogateescape") + b"\0" for option in options)


def decode_command_line(data: bytes) -> tuple[str, ...]:
    r"""Decode the content of a ``.cmd`` file; the NUL after the last option is optional.

    Example:
        >>> decode_command_line(b"-cc1\x00-Oz\x00")
        ('-cc1', '-Oz')
    """
    # Modules of a project share most options: interned, a hundred thousand command lines fit into memory.
    text = data.decode("utf-8", "surrogateescape").removesuffix("\0")
    return tuple(sys.intern(option) for option in text.split("\0")) if text else ()


def language_of(name: str, command_line: tuple[str, ...]) -> str:
    """Determine the language by the source's suffix (``a.cc.o``), else by options that only C++ has."""
    path = PurePosixPath(name)
    language = _SUFFIXES.get(path.suffix) or _SUFFIXES.get(PurePosixPath(path.stem).suffix)
    if language:
        return language
    standards = [option.removeprefix("-std=") for option in command_line if option.startswith("-std=")]
    if "-fcxx-exceptions" in command_line or any("++" in standard for standard in standards):
        return "c++"
    return "c" if standards else "unknown"


def check_name(name: str, folder: Path) -> None:
    """Check that a module of that name is inside the corpus, and that its path is not an option to a compiler.

    Raises:
        CorpusError: the name leads out of the corpus, or looks like an option or a response file.
    """
    path = PurePosixPath(name)
    if name.startswith(("-", "@")):
        raise CorpusError(
            f"{folder / DESCRIPTION_NAME}: expected names of modules that clang cannot take for options (no - or @ "
            f"at the beginning), found {name!r:.200}; make the corpus again with other names"
        )
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise CorpusError(
            f"{folder / DESCRIPTION_NAME}: expected names of modules inside the folder, found {name!r}; "
            "make the corpus again with other names"
        )


def default_project(folder: Path) -> str:
    """Name a project after its build folder, or after the parent folder if that is called ``build``.

    Example:
        >>> default_project(Path("/src/zlib/build-release")), default_project(Path("/src/My Project"))
        ('zlib', 'My-Project')
    """
    root = folder.resolve()
    if _BUILD_FOLDERS.fullmatch(root.name) and root.parent.name:
        root = root.parent
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", root.name).lstrip("._+-") or "project"


def check_project(project: str | None, folder: Path) -> str:
    """Return the given project name, or the default for the folder.

    Raises:
        UsageError: the name cannot be the first component of a module's name.
    """
    if project is not None and not _PROJECT.fullmatch(project):
        raise UsageError(f"project: expected a name of letters, digits and ._+-, found {project!r}; choose another")
    return project or default_project(folder)

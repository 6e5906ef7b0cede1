"""What the project of a build is called."""

import re
from pathlib import Path

from mlgokit.errors import UsageError

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_BUILD_FOLDERS = re.compile(
    r"(cmake-)?(build|out|output|release|debug|obj|bin|_build|builddir)([-_.].*)?", re.IGNORECASE
)


def default_project(folder: Path) -> str:
    """The name of a project after the folder that it is built in, or the one above if that is called ``build``.

    Example:
        >>> default_project(Path("/src/zlib/build-release")), default_project(Path("/src/My Project"))
        ('zlib', 'My-Project')
    """
    root = folder.resolve()
    if _BUILD_FOLDERS.fullmatch(root.name) and root.parent.name:
        root = root.parent
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", root.name).lstrip("._+-") or "project"


def check_project(project: str | None, folder: Path) -> str:
    """A name that was given, or the folder's.

    Raises:
        UsageError: the name cannot be the first component of a module's.
    """
    if project is not None and not _PROJECT.fullmatch(project):
        raise UsageError(f"project: expected a name of letters, digits and ._+-, found {project!r}; choose another")
    return project or default_project(folder)

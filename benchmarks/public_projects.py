"""The projects of the public benchmark: which they are, and which of them may be learned from or looked at."""

import hashlib
from pathlib import Path
from typing import Literal

from tuning_projects import PROJECTS

from mlgokit.corpus.sources.projects import Project, load_projects

Split = Literal["train", "validation", "test"]

MANIFEST = Path(__file__).with_suffix(".toml")
"""The list of the projects that are not in the package's own list."""
TRAINING_MANIFESTS = tuple(
    MANIFEST.with_name(name) for name in ("training_projects.toml", "training_projects_cpp.toml")
)
"""The lists of further projects to train on, in C and in C++; the public benchmark has none of them."""
LOOKED_AT = frozenset({"taglib", "bullet", "log4cplus", "wabt", "mbedtls", "libwebp", "libuv"})
"""Projects that choices were made on before there was this benchmark, beside those that are tuned."""
VERSION = 2
"""Of the list: one more whenever a project, an archive or an option changes, as results are comparable within one."""
_OWN = {project.name: project for project in load_projects()}
_TAUGHT = {project.name for manifest in TRAINING_MANIFESTS for project in load_projects(manifest)}


def split_of(name: str) -> Split:
    """What a project is for, by its name alone.

    The rule was written before the list, and does not change with it. What the package's own list trains on is for
    training, and so are the lists of further projects to train on. What was looked at while policies and defaults were
    chosen is for validation: the held-out projects of the package's list, those of ``tuning_projects.py``, and
    :data:`LOOKED_AT`. Of all others the first byte of the name's SHA-256 decides: below 128 it is for the test, else
    for validation.

    Example:
        >>> split_of("zlib"), split_of("re2"), split_of("taglib")
        ('train', 'validation', 'validation')
    """
    if name in _OWN:
        return "validation" if _OWN[name].held_out else "train"
    if name in _TAUGHT:
        return "train"
    if name in LOOKED_AT or name in PROJECTS:
        return "validation"
    return "test" if hashlib.sha256(name.encode()).digest()[0] < 128 else "validation"


def public_projects() -> dict[str, Project]:
    """All projects by name, those of the package's own list first.

    Raises:
        CorpusError: a list is wrong.
    """
    return _OWN | {project.name: project for project in load_projects(MANIFEST)}

"""Folders outside of all source trees, in the user's cache, for sources and builds that are not the user's own.

A build may take every source below its folder for its own (``file(GLOB_RECURSE)``), and a folder of ours may lie there.
"""

import shutil
from pathlib import Path

import platformdirs

from mlgokit.files import writing
from mlgokit.manifest import digest_value, read_config, write_manifest


def outside_path(place: Path) -> Path:
    """Make the path of the folder of :func:`make_outside_folder` for ``place``, whether it exists or not."""
    return platformdirs.user_cache_path("mlgokit") / "builds" / digest_value(place.resolve())[:16]


def make_outside_folder(place: Path, *, anew: bool = False) -> Path:
    """Make the folder in the user's cache that belongs to ``place``, always the same one, or return it.

    Folders in the cache whose ``place`` is gone are removed.

    Args:
        place: an existing folder of mlgokit.
        anew: whether to empty the folder.

    Raises:
        StorageError: the disk is full or not writable.
    """
    folder = outside_path(place)
    top = folder.parent
    with writing(folder):
        for other in top.iterdir() if top.is_dir() else ():
            owner = read_config(other).get("place")
            if (anew and other == folder) or (isinstance(owner, str) and not Path(owner).is_dir()):
                shutil.rmtree(other, ignore_errors=True)
    write_manifest(folder, kind="outside", config={"place": place.resolve()}, toolchain=None, inputs={})
    return folder

"""A store of compilations that several runs and users share: a folder, or any fsspec URL (S3, GCS, SSH, ...)."""

import contextlib
import importlib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.compiler.limits import format_bytes
from mlgokit.errors import InputError, StorageError, ToolError


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStore:
    """Compilations that are shared with others, consulted after one's own store; made by :func:`open_shared`.

    The content under a name never changes, so there are no locks: a second writer writes the same bytes.

    Attributes:
        files: the fsspec file system.
        root: path in it.
        url: the URL as the user gave it.
    """

    files: Any
    root: str
    url: str

    def fetch(self, name: str, *, most_bytes: int) -> bytes | None:
        """Read the bytes stored under a name; ``None`` if there are none.

        Raises:
            InputError: the entry is longer than ``most_bytes``.
            StorageError: the store cannot be read.
        """
        path = f"{self.root}/{name}"
        try:
            # A file that says that it is empty and is not, such as a pipe, is not opened.
            size = int(self.files.size(path))
            data = self.files.cat_file(path, start=0, end=size) if 0 < size <= most_bytes else b""
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._store_error("read", error) from error
        if size > most_bytes:
            raise InputError(
                f"--shared-store {self.url}: expected at most {format_bytes(most_bytes)} of {name}, found "
                f"{format_bytes(size)}; delete it there, and the module is compiled again"
            )
        return data

    def put(self, name: str, path: Path) -> None:
        """Store the file at ``path`` under a name, atomically.

        Raises:
            StorageError: the store cannot be written to.
        """
        target = f"{self.root}/{name}"
        temporary = f"{target}.{uuid.uuid4().hex}"
        try:
            self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self.files.pipe_file(temporary, path.read_bytes())
            self.files.mv(temporary, target)
        except Exception as error:
            with contextlib.suppress(Exception):
                self.files.rm_file(temporary)
            raise self._store_error("written to", error) from error

    def remove(self, name: str) -> None:
        """Remove a damaged entry; failures are ignored, as it may be gone already."""
        with contextlib.suppress(Exception):
            self.files.rm_file(f"{self.root}/{name}")

    def _store_error(self, what: str, error: Exception) -> StorageError:
        return StorageError(
            f"--shared-store {self.url}: expected that it can be {what}, found {type(error).__name__}: {error}; see "
            "to it, or leave it out, then run the same command again: what was finished is kept"
        )


def open_shared(url: str) -> SharedStore:
    """Open a store at a folder or URL.

    Raises:
        ToolError: fsspec, or what it needs for this kind of URL, is not installed.
        StorageError: the URL cannot be opened.
    """
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError as error:
        raise ToolError(
            "--shared-store: expected the Python package fsspec, found none; pip install 'mlgokit[cluster]'"
        ) from error
    try:
        files, root = fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ToolError(
            f"--shared-store {url}: expected a URL that fsspec can open, found: {error}; install the package, or "
            "name a folder"
        ) from error
    return SharedStore(files=files, root=str(root).rstrip("/"), url=url)

"""Archives of source code: downloaded once, and checked by digest whenever they are used.

The cache holds ``archives/<sha256>/<file name>``. A file put there by hand serves as well, if it has the digest.
"""

import contextlib
import hashlib
import posixpath
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs

from mlgokit.compiler import process
from mlgokit.corpus.sources.projects import Archive, Project
from mlgokit.corpus.sources.unpack import MAX_BYTES, unpack_archive
from mlgokit.errors import FetchError, ToolError
from mlgokit.files import digest_file, move_into_place, temporary_beside, writing
from mlgokit.locks import locked
from mlgokit.manifest import sign_new

_ATTEMPTS = 3
_CHUNK = 1 << 16
_SOCKET_TIMEOUT = (10.0, 30.0)


def default_cache_folder() -> Path:
    """Return ``mlgokit`` in the user's cache folder (``$XDG_CACHE_HOME``, else ``~/.cache``)."""
    return platformdirs.user_cache_path("mlgokit")


def cached_path(archive: Archive, *, cache_folder: Path) -> Path:
    """Make the path of an archive in the cache, whether it is there or not."""
    return cache_folder / "archives" / archive.sha256 / posixpath.basename(archive.file)


def fetch_archive(archive: Archive, *, cache_folder: Path, timeout_seconds: float = 600.0) -> Path:
    """Return the archive's file in the cache, after downloading it if it is missing or damaged.

    The deadline is for all attempts together.

    Raises:
        FetchError: no server gave the file, or it has another digest.
        StorageError: the cache is full or not writable.
    """
    path = cached_path(archive, cache_folder=cache_folder)
    with writing(path):
        if path.is_file() and digest_file(path) == archive.sha256:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_seconds
    partial = temporary_beside(path)
    try:
        _download(archive, partial, deadline=deadline)
        with writing(path):
            move_into_place(partial, path)
    except FetchError as error:
        remedy = f"check the network, or put the file at {path} by hand"
        raise FetchError(f"{archive.file} ({archive.registry} {archive.package}): {error}; {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return path


def _download(archive: Archive, partial: Path, *, deadline: float) -> None:
    import requests
    import urllib3

    wrong = ""
    reason = "expected the archive before the deadline, found no server that gave it"
    with _session() as session:
        for _ in range(_ATTEMPTS):
            try:
                for address in _addresses(archive, session):
                    if time.monotonic() > deadline:
                        raise FetchError(wrong or reason)
                    try:
                        digest = _stream(session, address, partial, deadline=deadline)
                    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                        reason = f"expected the file, found: {error}"
                        continue
                    if digest == archive.sha256:
                        return
                    wrong = f"expected SHA-256 {archive.sha256}, found {digest}"
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                reason = f"expected an answer of the registry, found: {error}"
    raise FetchError(wrong or reason)


def _session() -> Any:
    """Make a requests session that retries transient failures, with bounded pauses."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    # Retry-After is not obeyed because it can exceed any deadline of ours.
    retry = Retry(
        total=3,
        backoff_factor=0.3,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods={"GET"},
        respect_retry_after_header=False,
    )
    session = requests.Session()
    session.mount("https://", HTTPAdapter(max_retries=retry))
    session.mount("http://", HTTPAdapter(max_retries=retry))
    return session


def _addresses(archive: Archive, session: Any) -> Iterator[str]:
    if archive.registry == "debian":
        for site in _debian_sites():
            yield f"{site.rstrip('/')}/{archive.file}"
        return
    import pypi_simple

    try:
        page = pypi_simple.PyPISimple(session=session).get_project_page(archive.package, timeout=_SOCKET_TIMEOUT)
    except pypi_simple.NoSuchProjectError:
        raise FetchError(f"expected a package {archive.package!r} in the package index, found none") from None
    except (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError, ValueError) as error:
        raise FetchError(f"expected a page of the package index, found: {error}") from error
    addresses = [package.url for package in page.packages if package.filename == archive.file]
    if not addresses:
        raise FetchError(
            f"expected this file among those of the package {archive.package!r}, found {len(page.packages)} others"
        )
    yield from addresses


def _debian_sites() -> list[str]:
    """List the HTTP archives that this machine's apt is configured with."""
    try:
        completed = process.run(["apt-get", "indextargets", "--format", "$(SITE)"], timeout_seconds=60)
    except ToolError as error:
        raise FetchError("expected apt-get to name a Debian mirror, found no apt-get") from error
    lines = completed.stdout.decode("utf-8", "replace").split()
    sites = [site for site in dict.fromkeys(lines) if site.startswith(("http://", "https://"))]
    if not sites:
        raise FetchError("expected apt to be configured with a Debian mirror, found none")
    return sites


def _stream(session: Any, address: str, partial: Path, *, deadline: float) -> str:
    digest = hashlib.sha256()
    done = 0
    headers = {"Accept-Encoding": "identity"}
    with session.get(address, stream=True, timeout=_SOCKET_TIMEOUT, headers=headers) as response:
        response.raise_for_status()
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else 0
        with writing(partial):
            file = partial.open("wb")
        with file:
            # Undecoded: some servers declare a .tar.gz as a gzip-encoded .tar.
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                done += len(chunk)
                if time.monotonic() > deadline:
                    raise FetchError(
                        f"expected the archive before the deadline, found {done} of {total or 'unknown'} bytes"
                    )
                if done > MAX_BYTES:
                    raise FetchError(f"expected an archive of at most {MAX_BYTES} bytes, found more")
                digest.update(chunk)
                with writing(partial):
                    file.write(chunk)
    return digest.hexdigest()


def project_root(project: Project, *, sources_folder: Path) -> Path:
    """Make the path of the folder that a project's paths are relative to after unpacking."""
    return sources_folder / project.name / project.root


def prepare_sources(project: Project, *, archive_path: Path, sources_folder: Path) -> Path:
    """Unpack a project's part of its archive, write the files that its build would generate, and return its root.

    Raises:
        BusyError: another process unpacks into the folder.
        FetchError: the archive is damaged, hostile, or has no such root.
        ReuseError: something else is where the sources should go.
        StorageError: the disk is full or not writable.
    """
    outside = any(posixpath.normpath(path).startswith("..") for path in project.include)
    generated = {posixpath.join(project.root, item.path): item.text for item in project.generated}
    subtree = "" if outside else project.root
    with locked(sources_folder):
        sign_new(sources_folder, "sources")
        folder = unpack_archive(archive_path, sources_folder / project.name, subtree=subtree, generated=generated)
    root = folder / project.root
    if not root.is_dir():
        raise FetchError(
            f"project {project.name!r}: root: expected a folder {project.root!r} in {archive_path.name}, "
            "found none; correct root in the list of projects"
        )
    return root

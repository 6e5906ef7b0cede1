import dataclasses
import functools
import hashlib
import http.server
import io
import os
import tarfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pypi_simple
import pytest

from mlgokit.corpus.sources import fetch
from mlgokit.corpus.sources.fetch import (
    cached_path,
    default_cache_folder,
    fetch_archive,
    prepare_sources,
    project_root,
)
from mlgokit.corpus.sources.projects import Archive, GeneratedFile, Project
from mlgokit.errors import FetchError, StorageError

BODY = bytes(range(256)) * 1000
SHA = hashlib.sha256(BODY).hexdigest()
DEBIAN = Archive(registry="debian", package="p", version="1", file="pool/main/p/p/p_1.orig.tar.gz", sha256=SHA)
PYPI = Archive(registry="pypi", package="p", version="1", file="p-1.tar.gz", sha256=SHA)


class Server:
    """A server on this machine whose answers are lists: one (status, body, claimed length) for each request."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes, int]]] = {}
        self.asked: list[str] = []
        self.kinds: dict[str, str] = {}
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                answers = server.answers.get(self.path, [])
                status, body, length = answers.pop(0) if len(answers) > 1 else (answers or [(404, b"", 0)])[0]
                self.send_response(status)
                self.send_header("Content-Type", server.kinds.get(self.path, "application/octet-stream"))
                self.send_header("Content-Length", str(length))
                if self.path.endswith(".gz"):
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def serve(self, path: str, *answers: tuple[int, bytes] | tuple[int, bytes, int]) -> None:
        self.answers[path] = [
            (answer[0], answer[1], answer[2] if len(answer) > 2 else len(answer[1])) for answer in answers
        ]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=functools.partial(server.http.serve_forever, poll_interval=0.01))
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


@pytest.fixture
def mirrors(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apt that knows two mirrors."""
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n[ \"$*\" = 'indextargets --format $(SITE)' ] || exit 1\n"
        f"echo cdrom:[x]/\necho {server.url}/one\necho {server.url}/one\necho {server.url}/two/\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_is_fetched_once(server: Server, mirrors: None, tmp_path: Path):
    server.serve(f"/one/{DEBIAN.file}", (200, BODY))
    path = fetch_archive(DEBIAN, cache_folder=tmp_path / "cache")
    assert path == cached_path(DEBIAN, cache_folder=tmp_path / "cache")
    assert path.read_bytes() == BODY
    assert fetch_archive(DEBIAN, cache_folder=tmp_path / "cache") == path
    assert server.asked == [f"/one/{DEBIAN.file}"]
    assert names_in(tmp_path / "cache") == ["p_1.orig.tar.gz"]


def test_the_next_mirror_is_asked(server: Server, mirrors: None, tmp_path: Path):
    server.serve(f"/two/{DEBIAN.file}", (200, BODY))
    assert fetch_archive(DEBIAN, cache_folder=tmp_path / "cache").read_bytes() == BODY
    assert server.asked == [f"/one/{DEBIAN.file}", f"/two/{DEBIAN.file}"]


def test_a_damaged_file_in_the_cache_is_fetched_again(server: Server, mirrors: None, tmp_path: Path):
    server.serve(f"/one/{DEBIAN.file}", (200, BODY))
    path = fetch_archive(DEBIAN, cache_folder=tmp_path / "cache")
    path.write_bytes(BODY[:-1])
    assert fetch_archive(DEBIAN, cache_folder=tmp_path / "cache").read_bytes() == BODY
    assert len(server.asked) == 2


def test_a_passing_fault_is_survived(server: Server, mirrors: None, tmp_path: Path):
    server.serve(f"/one/{DEBIAN.file}", (503, b""), (200, BODY[:1000], len(BODY)), (200, BODY))
    assert fetch_archive(DEBIAN, cache_folder=tmp_path / "cache").read_bytes() == BODY


def test_a_wrong_file_is_refused(server: Server, mirrors: None, tmp_path: Path):
    server.serve(f"/one/{DEBIAN.file}", (200, b"something else"))
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(FetchError, match=f"expected SHA-256 {SHA}, found {found}; check the network, or put the file"):
        fetch_archive(DEBIAN, cache_folder=tmp_path / "cache")
    assert not names_in(tmp_path / "cache")


def test_an_absent_file_is_named(server: Server, mirrors: None, tmp_path: Path):
    with pytest.raises(FetchError, match=r"p_1.orig.tar.gz \(debian p\): expected the file, found: 404") as caught:
        fetch_archive(DEBIAN, cache_folder=tmp_path / "cache")
    assert str(cached_path(DEBIAN, cache_folder=tmp_path / "cache")) in str(caught.value)


def test_the_deadline_holds(server: Server, mirrors: None, tmp_path: Path):
    with pytest.raises(FetchError, match=r"expected the archive before the deadline"):
        fetch_archive(DEBIAN, cache_folder=tmp_path / "cache", timeout_seconds=-1)
    assert not server.asked


def test_a_slow_body_meets_the_deadline(server: Server, mirrors: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server.serve(f"/one/{DEBIAN.file}", (200, BODY))
    clock = iter(range(1000))
    monkeypatch.setattr(fetch, "time", types.SimpleNamespace(monotonic=lambda: float(next(clock))))
    with pytest.raises(FetchError, match=f"expected the archive before the deadline, found .* of {len(BODY)} bytes"):
        fetch_archive(DEBIAN, cache_folder=tmp_path / "cache", timeout_seconds=3)
    assert not names_in(tmp_path / "cache")


def test_no_apt_and_no_mirror_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match=r"expected apt-get to name a Debian mirror, found no apt-get"):
        fetch_archive(DEBIAN, cache_folder=tmp_path / "cache")
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    with pytest.raises(FetchError, match=r"expected apt to be configured with a Debian mirror, found none"):
        fetch_archive(DEBIAN, cache_folder=tmp_path / "cache")


@pytest.fixture
def index(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    simple = functools.partial(pypi_simple.PyPISimple, endpoint=f"{server.url}/simple/")
    monkeypatch.setattr(pypi_simple, "PyPISimple", simple)
    server.kinds["/simple/p/"] = "text/html"
    page = f'<a href="{server.url}/f/p-0.tar.gz">p-0.tar.gz</a><a href="../../f/p-1.tar.gz#sha256={SHA}">p-1.tar.gz</a>'
    server.serve("/simple/p/", (200, page.encode()))
    return server


def test_a_source_distribution_is_found_by_its_name(index: Server, tmp_path: Path):
    index.serve("/f/p-1.tar.gz", (200, BODY))
    assert fetch_archive(PYPI, cache_folder=tmp_path).read_bytes() == BODY
    assert index.asked == ["/simple/p/", "/f/p-1.tar.gz"]


def test_an_unknown_file_and_package_are_named(index: Server, tmp_path: Path):
    with pytest.raises(FetchError, match=r"expected this file among those of the package 'p', found 2 others"):
        fetch_archive(dataclasses.replace(PYPI, file="p-2.tar.gz"), cache_folder=tmp_path)
    with pytest.raises(FetchError, match=r"expected a package 'q' in the package index, found none"):
        fetch_archive(dataclasses.replace(PYPI, package="q"), cache_folder=tmp_path)
    index.kinds["/simple/p/"] = "image/png"
    with pytest.raises(FetchError, match=r"expected a page of the package index, found"):
        fetch_archive(PYPI, cache_folder=tmp_path)


def test_an_index_out_of_reach_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pypi_simple, "PyPISimple", functools.partial(pypi_simple.PyPISimple, "http://127.0.0.1:1/"))
    monkeypatch.setattr(fetch, "_ATTEMPTS", 1)
    with pytest.raises(FetchError, match=r"expected an answer of the registry, found: .*refused"):
        fetch_archive(PYPI, cache_folder=tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"expected to be able to write there"):
        fetch_archive(PYPI, cache_folder=tmp_path / "file")


def test_the_cache_follows_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "mlgokit"


def project(**parts: object) -> Project:
    return dataclasses.replace(
        Project(
            name="p",
            language="c++",
            standard="c++17",
            archive=PYPI,
            root="p-1/lib",
            sources=("*.cc",),
            generated=(GeneratedFile(path="config.h", text="#define X\n"),),
            license="MIT",
        ),
        **parts,
    )


@pytest.fixture
def archive_path(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "p-1.tar.gz", "w:gz") as archive:
        for name in ("p-1/lib/a.cc", "p-1/include/a.h"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return tmp_path / "p-1.tar.gz"


def test_a_project_gets_its_root_and_generated_files(archive_path: Path, tmp_path: Path):
    root = prepare_sources(project(), archive_path=archive_path, sources_folder=tmp_path / "sources")
    assert root == project_root(project(), sources_folder=tmp_path / "sources")
    assert names_in(root) == ["a.cc", "config.h"]
    assert not (tmp_path / "sources" / "p" / "p-1" / "include").exists()


def test_a_project_that_includes_from_beside_its_root_gets_all(archive_path: Path, tmp_path: Path):
    with_include = project(include=(".", "../include"))
    root = prepare_sources(with_include, archive_path=archive_path, sources_folder=tmp_path / "sources")
    assert (root / "../include/a.h").is_file()


def test_a_root_that_is_not_there_is_named(archive_path: Path, tmp_path: Path):
    wrong = project(root="p-2", generated=())
    with pytest.raises(FetchError, match=r"project 'p': root: expected a folder 'p-2' in p-1.tar.gz, found none"):
        prepare_sources(wrong, archive_path=archive_path, sources_folder=tmp_path / "sources")

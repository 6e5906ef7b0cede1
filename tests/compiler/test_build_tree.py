"""Which objects of a build no wrapper has seen."""

import os
from pathlib import Path

from mlgokit.compiler.build_tree import UnseenObject, copy_sources, find_unseen_objects, is_copy, objects_below
from mlgokit.compiler.wrapping import WrappedBuild
from mlgokit.manifest import MANIFEST_NAME, sign_new, write_manifest

BITCODE = b"BC\xc0\xde"
NOTHING_SEEN = WrappedBuild(reason="", code=0, every_call=(), wall_seconds=0.0)


def test_an_object_is_new_if_the_build_made_or_changed_it_whatever_the_clocks_say(tmp_path: Path):
    kept, made_anew, fresh = (tmp_path / name for name in ("kept.o", "made_anew.o", "fresh.o"))
    kept.write_bytes(BITCODE)
    made_anew.write_bytes(BITCODE)
    (tmp_path / "text.o").write_bytes(b"no object")
    before = objects_below(tmp_path)

    made_anew.write_bytes(BITCODE + b"more")
    fresh.write_bytes(BITCODE)
    # A file system whose clock is a day behind.
    for path in (made_anew, fresh):
        os.utime(path, (kept.stat().st_atime, kept.stat().st_mtime - 86_400))

    compiler = "a compiler that leaves bitcode to the link"
    assert find_unseen_objects(tmp_path, NOTHING_SEEN, before=before) == [
        UnseenObject(path=fresh, compiler=compiler, is_new=True),
        UnseenObject(path=kept, compiler=compiler, is_new=False),
        UnseenObject(path=made_anew, compiler=compiler, is_new=True),
    ]


def test_a_folder_is_left_out_on_request(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "part.o").write_bytes(BITCODE)

    assert not objects_below(tmp_path, without=tmp_path / "sub")
    assert not find_unseen_objects(tmp_path, NOTHING_SEEN, before={}, without=tmp_path / "sub")


def test_objects_of_a_search_are_none_of_the_build(tmp_path: Path):
    search, extension = tmp_path / "mlgokit-tune", tmp_path / "extension"
    write_manifest(search, kind="tuning", config={}, toolchain=None, inputs={})
    extension.mkdir()
    (extension / MANIFEST_NAME).write_text('{"name": "what a browser calls so"}')
    for folder in (search / "builds", extension):
        folder.mkdir(exist_ok=True)
        (folder / "part.o").write_bytes(BITCODE)

    assert list(objects_below(tmp_path)) == [extension / "part.o"]
    assert list(objects_below(search)) == [search / "builds" / "part.o"]


def test_a_copy_of_a_folder_says_which_configured_builds_it_left_out(tmp_path: Path):
    project = tmp_path / "project"
    for name in ("main.c", "out/cmake/CMakeCache.txt", "meson/meson-private/x", "tune/CMakeCache.txt", "made/x.c"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")

    left_out = copy_sources(project, tmp_path / "copy", without=project / "tune")

    assert sorted(map(str, left_out)) == ["meson", "out/cmake"]
    kept = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert kept == {"main.c", "made/x.c"}
    (project / "CMakeCache.txt").write_text("")
    assert [str(one) for one in copy_sources(project / "made", tmp_path / "other")] == []
    assert "CMakeCache.txt" in map(str, copy_sources(project, tmp_path / "third"))


def test_a_copy_of_sources_is_one_until_a_file_is_changed_added_or_removed(tmp_path: Path):
    project, copy, tune = tmp_path / "project", tmp_path / "copy", tmp_path / "project/tune"
    put(project, "main.c", "lib/part.h", "out/CMakeCache.txt")
    sign_new(tune, "search")
    copy_sources(project, copy, without=tune)
    put(project, ".mlgokit.lock", "out/app", "tune/any.c")
    os.utime(project / "main.c", (1, 1))
    assert is_copy(project, copy, without=tune)
    (project / "lib/part.h").write_text("changed")
    assert not is_copy(project, copy, without=tune)
    (project / "lib/part.h").write_text("")
    assert is_copy(project, copy, without=tune)
    put(project, "lib/new.c")
    assert not is_copy(project, copy, without=tune)
    (project / "lib/new.c").unlink()
    (project / "main.c").unlink()
    assert not is_copy(project, copy, without=tune)
    assert not is_copy(project, tmp_path / "gone")


def test_links_in_a_folder_may_lead_anywhere_and_count_by_their_target(tmp_path: Path):
    project, copy = tmp_path / "project", tmp_path / "copy"
    put(project, "first/a.c", "second/b.c")
    for name, target in {"first/up": "..", "second/up": "..", "third": "first", "itself": "itself"}.items():
        (project / name).symlink_to(target)
    copy_sources(project, copy, without=project / "tune")
    assert is_copy(project, copy)
    (project / "third").unlink()
    (project / "third").symlink_to("second")
    assert not is_copy(project, copy)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def test_what_mlgokit_made_is_not_copied(tmp_path: Path):
    project, copy = tmp_path / "project", tmp_path / "copy"
    put(project, "main.c", "ml/model.c", "build/x.c", "work/README", ".mlgokit.lock", ".tuned.so.mlgokit.lock")
    put(project, f".mlgokit-1-{'0' * 32}.tmp", "tuned.so")
    # A tuning; one by a version that did not sign its build, and one of these that failed in that; in a user's folder.
    for name in ("tune/search", "tune/build", "earlier/search", "ml/corpus", "quick"):
        sign_new(project / name, "any")
    put(project, "tune/tuned.json", "tune/build/programs/plain/app", "quick/sources/zlib/x.c")
    put(project, "tune/link/deferred/objects/a.o", "tune/profile", "tune/runs/profile.1")
    for name in ("earlier", "failed"):
        put(project, *(f"{name}/build/{part}" for part in ("plain-build.log", "source/main.c", "tree/p/main.c")))
    put(project, "earlier/build/recorded.json", "earlier/tuned.html")
    assert copy_sources(project, copy) == ()
    kept = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert kept == {"main.c", "ml/model.c", "build/x.c", "work/README", "tuned.so"}
    assert not (copy / "tune").exists()
    assert not (copy / "earlier").exists()

"""A build with a plugin, by whatever name or path it starts its compilers."""

from pathlib import Path

import pytest

from mlgokit.commands import build
from mlgokit.commands.build import Build, exit_code
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError

pytestmark = pytest.mark.llvm

SOURCE = """
static int mix(int x, int y) {
  int s = x;
  for (int i = 0; i < 5; ++i) s = (s << 3) ^ (s >> 2) ^ (y * 31 + i);
  return s;
}
int work(int x, const int *p) { return mix(x, p[0]) + mix(p[1], x) * mix(p[2], p[3]); }
int main(int argc, char **argv) { return work(argc, (const int *)argv) == 7; }
"""
MAKEFILE = "tool: part.o\n\t$(CC) $(LINK) part.o -o tool\npart.o: part.c\n\t$(CC) $(CFLAGS) -c part.c -o part.o\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "part.c").write_text(SOURCE)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLGOKIT_POLICY", ":always")
    return tmp_path


def test_a_build_has_the_plugin_however_it_starts_its_compiler(project: Path, toolchain: Toolchain, plugin: Path):
    def by_hand(*words: str) -> bytes:
        path = project / "hand.o"
        argv = [toolchain.clang, "-Oz", *words, "-c", "part.c", "-o", path]
        assert process.run(argv, timeout_seconds=60).returncode == 0
        data = path.read_bytes()
        path.unlink()
        return data

    plain, judged = by_hand(), by_hand(f"-fpass-plugin={plugin}")
    assert plain != judged
    whole = toolchain.clang
    for compiler in ("cc", "gcc", str(whole)):
        words = ("make", f"CC={compiler}", "CFLAGS=-Oz")
        found = build.run(Build(command=words, plugin=plugin, llvm=toolchain.major))
        assert (found.compilations, found.links, found.passed_by, found.reason) == (1, 1, (), "")
        assert (project / "part.o").read_bytes() == judged
        for name in ("part.o", "tool"):
            (project / name).unlink()

    config = Build(command=("make", "CFLAGS=-Oz"), plugin=plugin, llvm=toolchain.major)
    assert build.run(config).compilations == 1
    again = build.run(config)
    assert (again.compilations, again.up_to_date, exit_code(config, again)) == (0, 1, 0)
    (project / "part.o").unlink()
    past = Build(
        command=("env", "-i", "PATH=/usr/bin:/bin", "make", f"CC={whole}", "CFLAGS=-Oz"),
        plugin=plugin,
        llvm=toolchain.major,
    )
    found = build.run(past)
    assert [one.path for one in found.passed_by] == [project / "part.o"]
    assert "clang" in found.passed_by[0].compiler
    assert exit_code(past, found) == 1
    assert (project / "part.o").read_bytes() == plain


def test_the_linker_has_it_where_there_is_link_time_optimization(
    project: Path, toolchain: Toolchain, plugin: Path, monkeypatch: pytest.MonkeyPatch
):
    lto = ("make", "CFLAGS=-Oz -flto", "LINK=-flto -fuse-ld=lld")
    found = build.run(Build(command=lto, plugin=plugin, llvm=toolchain.major))

    assert (found.links_with_plugin, found.reason) == (1, "")
    # A policy that is not there fails whatever loads the plugin.
    (project / "tool").unlink()
    monkeypatch.setenv("MLGOKIT_POLICY", str(project / "none.policy"))
    found = build.run(Build(command=lto, plugin=plugin, plugin_in="link", llvm=toolchain.major))
    assert (found.code, found.compilations, found.links) == (2, 0, 1)


def test_a_link_with_the_plugin_takes_no_object_from_the_cache_of_one_without_it(
    project: Path, toolchain: Toolchain, plugin: Path, monkeypatch: pytest.MonkeyPatch
):
    thin = ("CFLAGS=-Oz -flto=thin", f"LINK=-flto=thin --ld-path={toolchain.lld} -Wl,--thinlto-cache-dir=cache")

    def image(*, by: Path | None = None, policy: str = ":always") -> bytes:
        for name in ("part.o", "tool"):
            (project / name).unlink(missing_ok=True)
        if by is None:
            assert process.run(["make", f"CC={toolchain.clang}", *thin], timeout_seconds=60).returncode == 0
        else:
            monkeypatch.setenv("MLGOKIT_POLICY", policy)
            asked = Build(command=("make", *thin), plugin=by, plugin_in="link", llvm=toolchain.major)
            assert build.run(asked).links_with_plugin == 1
        return (project / "tool").read_bytes()

    # A policy leaves inlining in a link to LLVM, unless it is told otherwise.
    monkeypatch.setenv("MLGOKIT_LTO", "1")
    plain = image()
    assert len(list((project / "cache").glob("llvmcache-*"))) == 1
    inlined = image(by=plugin)
    assert inlined != plain
    # What the plugin is told counts as well.
    assert image(by=plugin, policy=":never") not in (inlined, b"")
    assert image() == plain
    assert image(by=plugin) == inlined
    assert len(list(project.glob("cache*"))) == 3


def test_a_plugin_that_this_clang_does_not_load_is_refused(project: Path, toolchain: Toolchain):
    (project / "tuned.so").write_text("no plugin")
    with pytest.raises(InputError, match=rf"tuned.so: expected a plugin that clang {toolchain.version} loads, found: "):
        build.run(Build(command=("make",), plugin=project / "tuned.so", llvm=toolchain.major))
    assert not (project / "part.o").exists()

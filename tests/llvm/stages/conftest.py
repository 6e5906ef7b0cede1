"""The small projects, their corpora, the command line, and a compiler that can be stopped."""

import hashlib
import io
import os
import tarfile
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.llvm.stages.tiny import (
    BROKEN,
    MAIN,
    MODULE,
    MODULES,
    Gate,
    Mlgokit,
    Ran,
    TinyProjects,
    built_already,
    entry,
    extract_tiny,
    script,
)

from mlgokit.cli import main
from mlgokit.compiler.plugin_build import default_build_folder
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain, find_toolchain
from mlgokit.corpus.sources.fetch import cached_path
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import ToolError


@pytest.fixture(scope="session")
def tiny_projects(tmp_path_factory: pytest.TempPathFactory) -> TinyProjects:
    folder = tmp_path_factory.mktemp("tiny")
    files = {
        f"tiny-1/{project}/part{number}.cc": MODULE.substitute(project=project, number=number, mark=project[0])
        for project, numbers in MODULES.items()
        for number in numbers
    }
    files |= {"tiny-1/alpha/broken.cc": BROKEN, "tiny-1/tool/main.cc": MAIN}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    manifest = folder / "projects.toml"
    manifest.write_text("".join(entry(project, hashlib.sha256(buffer.getvalue()).hexdigest()) for project in MODULES))
    cache = folder / "mlgokit"
    path = cached_path(load_projects(manifest)[0].archive, cache_folder=cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(buffer.getvalue())
    # Plugins are the same for all tests, and slow to build.
    default_build_folder().mkdir(parents=True, exist_ok=True)
    (cache / "plugins").symlink_to(default_build_folder())
    return TinyProjects(manifest=manifest, cache=cache, home=folder)


@pytest.fixture(scope="session")
def tiny_corpus(toolchain: Toolchain, tiny_projects: TinyProjects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of alpha, beta and gamma; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp(f"corpus-{toolchain.major}")
    return extract_tiny(toolchain, tiny_projects, folder)


@pytest.fixture(scope="session")
def newest() -> Toolchain:
    """The toolchain that the command line takes by itself; for what does not depend on the major."""
    try:
        return find_toolchain(need_plugin=True)
    except ToolError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def newest_corpus(newest: Toolchain, tiny_projects: TinyProjects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_tiny(newest, tiny_projects, tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def mlgokit(
    tiny_projects: TinyProjects, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Mlgokit:
    """``mlgokit("corpus", "info")``: the command in this process, with the archive in its default cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tiny_projects.home))
    monkeypatch.delenv(LOCATION_VARIABLE, raising=False)

    def call(*words: object) -> Ran:
        capsys.readouterr()
        arguments = [str(word) for word in words]
        monkeypatch.setattr("sys.argv", ["mlgokit", *arguments])
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        out, err = capsys.readouterr()
        return Ran(code=ended.value.code, out=out, err=err)

    return call


@pytest.fixture
def gate(tmp_path: Path, newest: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Generator[Gate]:
    """:class:`Gate` in front of the newest compiler, with the plugin built."""
    root = tmp_path / "gated"
    (root / "bin").mkdir(parents=True)
    assert newest.include_dir is not None
    (root / "include").symlink_to(newest.include_dir)
    for name, real in (("clang", newest.clang), ("clang++", newest.clangxx)):
        script(
            root / "bin" / name,
            f"""
            case "$*" in *-emit-obj*|*-emit-llvm*)
              echo "$*" >> "{root}/compilations"
              if [ -e "{root}/gate" ] && [ "$(wc -l < "{root}/compilations")" -gt "$(cat "{root}/gate")" ]; then
                echo $$ > "{root}/blocked"
                while [ -e "{root}/gate" ]; do sleep 0.05; done
              fi;;
            esac
            exec "{real}" "$@"
            """,
        )
    with built_already(root, newest, monkeypatch):
        yield Gate(root=root)

"""A compilation as it travels: files by content on the way out, the worker's paths on its side."""

import contextlib
import dataclasses
import hashlib
import pickle
from pathlib import Path

import pytest

from mlgokit.cluster.parcel import is_portable, pack, programs_of, setup_of, unpack
from mlgokit.cluster.worker import Shelf, compile_parcel
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.loaded import Loaded, LoadedFile
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.testing import FAKE_TOOLCHAIN

LOADED = Loaded(
    version="22",
    files=tuple(
        LoadedFile(path=Path("/lib") / name, sha256=name[::-1], stamp=())
        for name in ("libc.so.6", "clang-22", "libLLVM.so.22")
    ),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClangCompiler:
    monkeypatch.setattr(ClangCompiler, "loaded", LOADED)
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"plugin")
    return ClangCompiler(toolchain=FAKE_TOOLCHAIN, plugin=plugin)


@pytest.fixture
def module(tmp_path: Path) -> Module:
    bitcode, profile = tmp_path / "m.bc", tmp_path / "a.profdata"
    bitcode.write_bytes(b"bitcode")
    profile.write_bytes(b"profile")
    line = ("-cc1", "-Oz", f"-fprofile-instrument-use-path={profile}", "-fdebug-compilation-dir=/build")
    return Module(name="m", project="p", language="c", bitcode=bitcode, command_line=line, bitcode_bytes=7)


def test_only_what_llvm_is_made_of_counts():
    assert [name for name, _ in programs_of(LOADED)] == ["clang-22", "libLLVM.so.22"]


def test_a_parcel_has_every_file_by_its_content_and_a_worker_its_own_paths(
    here: ClangCompiler, module: Module, tmp_path: Path
):
    policy = tmp_path / "a.policy"
    policy.write_bytes(b"policy")
    request = CompileRequest(
        use=PluginUse(policies={INLINE_SIZE.name: str(policy), "regalloc-eviction": ":default"}),
        keep_object=tmp_path / "out.o",
        keep_logs={INLINE_SIZE.name: tmp_path / "out.log"},
    )
    parcel = pickle.loads(pickle.dumps(pack(here, setup_of(here), module, request)))

    contents = {b"bitcode", b"profile", b"plugin", b"policy"}
    assert set(parcel.files.values()) == {hashlib.sha256(content).hexdigest() for content in contents}
    shelf = Shelf(folder=tmp_path / "shelf")
    found, asked = unpack(parcel, shelf.place, tmp_path / "kept")
    assert asked.use is not None
    placed = [found.bitcode, asked.use.plugin, Path(asked.use.policies[INLINE_SIZE.name])]
    placed.append(Path(found.command_line[2].partition("=")[2]))
    assert all(path is not None and path.is_relative_to(shelf.folder) for path in placed)
    assert found.command_line[:2] == module.command_line[:2]
    assert found.command_line[3] == module.command_line[3]
    assert asked.use.policies["regalloc-eviction"] == ":default"
    assert asked.keep_object == tmp_path / "kept" / "module.o"
    assert asked.keep_logs == {INLINE_SIZE.name: tmp_path / "kept" / f"{INLINE_SIZE.name}.log"}


def test_what_a_client_has_noted_of_a_module_travels(here: ClangCompiler, module: Module):
    assert pack(here, setup_of(here), module, CompileRequest()).costs is None
    here.limits.note("m", memory_bytes=3, object_bytes=2, seconds=1.0)
    costs = pack(here, setup_of(here), module, CompileRequest()).costs
    assert costs is not None
    assert (costs.memory_bytes, costs.object_bytes, costs.seconds) == (3, 2, 1.0)


def test_links_and_hidden_inputs_stay_here(module: Module):
    assert is_portable(module)
    assert not is_portable(dataclasses.replace(module, link_folder=Path("/link")))
    assert not is_portable(dataclasses.replace(module, command_line=("-cc1", "@words")))


def test_a_plugin_is_needed_as_it_is_here(here: ClangCompiler, module: Module):
    bare = dataclasses.replace(here, plugin=None)
    with pytest.raises(UsageError, match="expected a plugin"):
        pack(bare, setup_of(bare), module, CompileRequest(use=PluginUse()))


def test_a_worker_of_another_version_says_so(here: ClangCompiler, module: Module):
    setup = dataclasses.replace(setup_of(here), mlgokit="0.0.1")
    reply = compile_parcel(pack(here, setup, module, CompileRequest()), address="w", seats=contextlib.nullcontext())
    assert "expected mlgokit 0.0.1" in reply.refused
    assert not reply.done.ok

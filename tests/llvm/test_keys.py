"""That remembered results follow what decides them, with real compilers: profiles, libraries, bitcode."""

import contextlib
import dataclasses
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.llvm.bitcode import put_bitcode

from mlgokit.compiler import process
from mlgokit.compiler.caching import CachingCompiler, open_caching
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.recheck import Recheck
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import ADVISED_MAJOR, Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import StaleError, ToolError
from mlgokit.files import digest_file
from mlgokit.module import Module

pytestmark = pytest.mark.llvm

HOT = "f:100000:100000\n 1: 50000 g:50000\n 2: 3\n"
COLD = "f:0:0\n 1: 0\n 2: 0\n"
SOURCE = """
int other(int);
static int g(int x) { return other(x) * other(x + 1) + other(x + 2); }
int f(int x) {
  if (x > 3) return g(x) + g(x + 7);
  return other(x) - g(x + 9);
}
"""


@pytest.fixture
def module(toolchain: Toolchain, tmp_path: Path) -> Module:
    profile = tmp_path / "samples.prof"
    profile.write_text(HOT)
    words = ("-O2", "-gline-tables-only", "-fdebug-info-for-profiling", f"-fprofile-sample-use={profile}")
    bitcode = put_bitcode(toolchain.clang, tmp_path / "m.c", SOURCE, *words)
    return Module(
        name="m",
        project="p",
        language="c",
        bitcode=bitcode,
        command_line=("-cc1", "-triple", toolchain.target, "-O2"),
        bitcode_bytes=bitcode.stat().st_size,
    )


def opened(toolchain: Toolchain, store: Path, plugin: Path | None = None, *, share: float = 0) -> CachingCompiler:
    compiler = ClangCompiler(toolchain=toolchain, plugin=plugin)
    return open_caching(compiler, store, recheck=Recheck(share=share, seed=1))


def entries(store: Path) -> int:
    return len(list(store.rglob("*.npz")))


def stale(compiler: CachingCompiler, module: Module) -> str:
    """What the check said, if it said anything."""
    try:
        compiler.compile(module)
    except StaleError as error:
        return str(error)
    return ""


def test_a_profile_that_changed_between_two_runs(toolchain: Toolchain, plugin: Path, tmp_path: Path, module: Module):
    profile, store = tmp_path / "samples.prof", tmp_path / "store"
    sampled = replace(module, command_line=(*module.command_line, f"-fprofile-sample-use={profile}"))
    requests = (
        CompileRequest(),
        CompileRequest(use=PluginUse(policies={"inline-size": HEURISTIC}, logs=("inline-size",))),
    )
    for request in requests:
        profile.write_text(HOT)
        hot = opened(toolchain, store, plugin).compile(sampled, request)
        profile.write_text(COLD)
        cold = opened(toolchain, store, plugin).compile(sampled, request)
        assert hot.measured.totals.text > cold.measured.totals.text
        profile.write_text(HOT)
        again = opened(toolchain, store, plugin, share=1).compile(sampled, request)
        assert again.measured.totals == hot.measured.totals
    assert entries(store) == 4


def test_bitcode_counts_and_not_what_a_sidecar_says(toolchain: Toolchain, tmp_path: Path, small_corpus: Path):
    folder = tmp_path / "corpus"
    shutil.copytree(small_corpus, folder)
    sidecar = folder / "corpus_modules.json"
    facts = {"format_version": 1, "modules": {f"m{number}": {"bitcode_sha256": "0" * 64} for number in range(4)}}
    sidecar.write_text(json.dumps(facts))
    compiler = opened(toolchain, tmp_path / "store")
    modules = [one for one in load_corpus(folder).modules if one.name.startswith("m")]
    assert {one.bitcode_sha256 for one in modules} == {"0" * 64}
    done = [compiler.compile(one) for one in modules]
    fresh = ClangCompiler(toolchain=toolchain)
    whole = [fresh.compile(one) for one in load_corpus(small_corpus).modules if one.name.startswith("m")]
    for kept, made in zip(done, whole, strict=True):
        assert set(kept.measured.function_names) == set(made.measured.function_names)


@pytest.mark.parametrize("toolchain", [ADVISED_MAJOR], indirect=True)
def test_another_library_below_the_same_version_line(
    toolchain: Toolchain, tmp_path: Path, module: Module, monkeypatch: pytest.MonkeyPatch
):
    store = tmp_path / "store"
    before = opened(toolchain, store)
    before.compile(module)
    assert {"clang", "libc.so.6"} <= {file.path.name for file in before.loaded.files}
    (library,) = [file.path for file in before.loaded.files if file.path.name.startswith("libclang-cpp")]

    other = tmp_path / "lib" / library.name
    other.parent.mkdir()
    shutil.copyfile(library, other)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other.parent))
    # The same content in another place is the same compiler.
    same = opened(toolchain, store)
    assert other in {file.path for file in same.loaded.files}
    assert same.identity == before.identity
    same.compile(module)
    assert entries(store) == 1

    with other.open("ab") as file:
        file.write(b"another build")
    changed = opened(toolchain, store)
    assert changed.identity != before.identity
    changed.compile(module)
    assert entries(store) == 2
    with pytest.raises(ToolError, match=r"this part of the compiler was replaced during the run"):
        same.compile(replace(module, command_line=(*module.command_line, "-fno-builtin")))
    assert entries(store) == 2


@pytest.mark.parametrize("toolchain", [ADVISED_MAJOR], indirect=True)
def test_a_wrapper_is_known_by_what_it_starts(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    preloaded = tmp_path / "preloaded.so"
    (tmp_path / "empty.c").write_text("int mlgokit_nothing;")
    words = [toolchain.clang, "-shared", "-fPIC", tmp_path / "empty.c", "-o", preloaded]
    assert process.run(words, timeout_seconds=60).returncode == 0
    wrapper = tmp_path / "clang"
    wrapper.write_text(f'#!/bin/sh\nLD_PRELOAD={preloaded} {toolchain.clang} "$@"\nexit $?\n')
    wrapper.chmod(0o755)

    wrapped = ClangCompiler(toolchain=replace(toolchain, clang=wrapper)).loaded
    plain = ClangCompiler(toolchain=toolchain).loaded
    assert {file.sha256 for file in plain.files} < {file.sha256 for file in wrapped.files}
    assert {wrapper, preloaded} <= {file.path for file in wrapped.files}
    monkeypatch.setenv("LD_PRELOAD", str(preloaded))
    assert preloaded in {file.path for file in ClangCompiler(toolchain=toolchain).loaded.files}


def test_a_compiler_that_reads_nothing_is_a_sentence(toolchain: Toolchain, tmp_path: Path):
    silent = tmp_path / "clang"
    silent.write_text("#!/bin/sh\necho 'no such option' >&2\nexit 3\n")
    silent.chmod(0o755)
    with pytest.raises(ToolError, match=r"expected a clang that reads a source from its standard input, found no such"):
        _ = ClangCompiler(toolchain=replace(toolchain, clang=silent)).loaded


def test_an_old_result_is_found_by_the_check(toolchain: Toolchain, tmp_path: Path, module: Module):
    store = tmp_path / "store"
    opened(toolchain, store).compile(module)
    other = replace(module, command_line=(*module.command_line, "-ffunction-sections", "-Oz"))
    opened(toolchain, store).compile(other)
    one, two = store.rglob("*.npz")
    one.write_bytes(two.read_bytes())
    two.write_bytes(one.read_bytes())
    found = [opened(toolchain, store).compile(each).measured.totals for each in (module, other)]
    assert found[0] == found[1]
    checking = opened(toolchain, store, share=1)
    said = [sentence for each in (module, other) if (sentence := stale(checking, each))]
    assert len(said) == 1
    assert said[0].startswith(f"m: the compiler's result differs from what the store {store} gave (")
    assert f"; bitcode {digest_file(module.bitcode)}; " in said[0]
    # What it found it has mended.
    assert not any(stale(checking, each) for each in (module, other))


def reusing(toolchain: Toolchain, plugin: Path, *, share: float = 0) -> ClangCompiler:
    recheck = Recheck(share=share, seed=1)
    return ClangCompiler(toolchain=toolchain, plugin=plugin, residents=Residents(), known={}, recheck=recheck)


def asked(**policies: str) -> CompileRequest:
    named = {problem.replace("_", "-"): rule for problem, rule in {"inline_size": HEURISTIC, **policies}.items()}
    return CompileRequest(use=PluginUse(policies=named, logs=("inline-size",)), reuse=True)


def bare_module(toolchain: Toolchain, folder: Path, text: str) -> Module:
    """A module whose functions may be known: no profile, no debug information."""
    bitcode = put_bitcode(toolchain.clang, folder / "bare.c", text, "-Oz")
    options = ("-cc1", "-triple", toolchain.target, "-Oz", "-ffunction-sections")
    return Module(name="m", project="p", language="c", bitcode=bitcode, command_line=options, bitcode_bytes=1)


def test_what_compilers_share_goes_by_the_files_of_today(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    module = bare_module(toolchain, tmp_path, SOURCE)
    with contextlib.closing(reusing(toolchain, plugin)) as compiler:
        assert len({compiler.compile(module, asked()).measured.totals.text for _ in range(3)}) == 1
        bare_module(toolchain, tmp_path, f"{SOURCE}int more(int x) {{ return g(x) - x; }}")
        now = compiler.compile(module, asked())
        assert compiler.residents is not None
        assert not compiler.residents.declined
    alone = ClangCompiler(toolchain=toolchain, plugin=plugin).compile(module, replace(asked(), reuse=False))
    assert now.measured.totals == alone.measured.totals
    assert "more" in now.measured.function_names


def test_known_functions_do_not_stand_for_others_allocated_otherwise(
    toolchain: Toolchain, plugin: Path, tmp_path: Path
):
    sums = " ".join(f"int v{n} = get(i + {n});" for n in range(24))
    uses = " + ".join(f"v{n} * get(v{23 - n})" for n in range(24))
    loop = "for (int k = 0; k < i; k++) v3 += get(k) * v7;"
    module = bare_module(toolchain, tmp_path, f"int get(int);\nint hot(int i) {{ {sums} {loop} return {uses}; }}")
    first = asked(regalloc_eviction=":first")
    alone = ClangCompiler(toolchain=toolchain, plugin=plugin)
    plain, otherwise = (
        alone.compile(module, replace(one, reuse=False)).measured.totals.text for one in (asked(), first)
    )
    assert plain != otherwise
    with contextlib.closing(reusing(toolchain, plugin)) as compiler:
        assert [compiler.compile(module, asked()).measured.totals.text for _ in range(3)] == [plain] * 3
        assert compiler.known is not None
        assert compiler.known["m"].hits
        assert compiler.compile(module, first).measured.totals.text == otherwise


def test_what_functions_execute_is_listed_of_those_that_are_known_too(
    toolchain: Toolchain, plugin: Path, tmp_path: Path
):
    module = bare_module(toolchain, tmp_path, SOURCE)
    use = PluginUse(policies={"inline-size": HEURISTIC}, list_changes=True)
    with contextlib.closing(reusing(toolchain, plugin, share=1)) as compiler:
        for _ in range(3):
            assert compiler.compile(module, asked()).ok
        assert compiler.known is not None
        known = compiler.known["m"]
        before = known.hits
        done = compiler.compile(module, CompileRequest(use=use, reuse=True))
        assert known.hits > before
        assert done.changes is not None
        assert set(done.changes.executed) == set(done.measured.function_names)
        assert min(done.changes.executed.values()) > 0
        for digest, code in list(known.codes.items()):
            known.codes[digest] = dataclasses.replace(code, executed=code.executed + 1)
        with pytest.raises(StaleError, match=r"changes: executed"):
            compiler.compile(module, CompileRequest(use=use, reuse=True))


def test_a_known_function_that_is_another_one_now_is_an_error(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    module = bare_module(toolchain, tmp_path, SOURCE)
    with contextlib.closing(reusing(toolchain, plugin, share=1)) as compiler:
        for _ in range(3):
            assert compiler.compile(module, asked()).ok
        assert compiler.known is not None
        known = compiler.known["m"]
        assert known.hits
        for digest, code in known.codes.items():
            known.codes[digest] = replace(code, text=code.text + 16)
        with pytest.raises(StaleError) as raised:
            compiler.compile(module, asked())
    said = str(raised.value)
    assert said.startswith("m: the compiler's result differs from what known functions gave (")
    assert "sizes: totals" in said
    assert f"bitcode {digest_file(module.bitcode)}; " in said
    assert "go on with --check-share 0" in said

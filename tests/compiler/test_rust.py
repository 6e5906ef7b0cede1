"""Calls of rustc: recorded, read, chosen, and made again without their outputs; rustc and cargo are scripts."""

import dataclasses
import os
from pathlib import Path

import pytest
from tests.scripts import script

from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.rust.compile import OutputFolders, RustCompiler, link_program, weighed_file
from mlgokit.compiler.rust.record import RustcCall, programs_of, record_cargo
from mlgokit.compiler.rust.toolchain import Rustc, find_rustc
from mlgokit.errors import CorpusError, StorageError, ToolError, UsageError
from mlgokit.testing import FAKE_TOOLCHAIN, toy_source

SIZE = ("-C", "opt-level=z", "-C", "lto=fat", "-C", "codegen-units=1")


def call(*words: str, crate: str = "app", kind: str = "bin", folder: Path = Path("/work")) -> RustcCall:
    return RustcCall(
        words=("rustc", "--crate-name", crate, f"--crate-type={kind}", *words),
        folder=folder,
        environment={"CARGO_PKG_NAME": crate},
    )


def test_the_last_call_of_each_crate_is_recorded_whole(tmp_path: Path):
    cargo = script(
        tmp_path / "cargo",
        '"$RUSTC_WRAPPER" true --crate-name app --crate-type bin "a b" old',
        'sleep 0.01; AN="x\ny" CARGO_MAKEFLAGS=-j "$RUSTC_WRAPPER" true --crate-name app --crate-type bin "a b" ""',
        '"$RUSTC_WRAPPER" true -vV; echo "$CARGO_TARGET_DIR $CARGO_BUILD_BUILD_DIR" > target',
    )

    (found,) = record_cargo([str(cargo)], tmp_path, place=tmp_path / "place", timeout_seconds=20)

    assert found.words == ("true", "--crate-name", "app", "--crate-type", "bin", "a b", "")
    assert found.folder == tmp_path
    assert found.environment["AN"] == "x\ny"
    assert not {"CARGO_MAKEFLAGS", "RUSTC_WRAPPER", "MLGOKIT_RUSTC_CALLS"} & found.environment.keys()
    written = [path.stat().st_mode for path in (tmp_path / "place" / "calls").iterdir()]
    assert written
    assert not any(mode & 0o077 for mode in written), "the environment may have passwords"
    assert (tmp_path / "target").read_text().split() == 2 * [str(tmp_path / "place" / "target")]


def test_a_build_that_fails_is_told_with_its_error(tmp_path: Path):
    cargo = script(tmp_path / "cargo", "echo 'error: no such crate' >&2; exit 101")
    with pytest.raises(UsageError, match="--cargo: expected a build that succeeds, found: error: no such crate"):
        record_cargo([str(cargo)], tmp_path, place=tmp_path / "place", timeout_seconds=20)


def test_programs_made_for_size_by_full_lto_are_chosen():
    calls = [
        call("-Copt-level=s", "-Clto", crate="first"),
        call("-C", "opt-level=3", "-C", "opt-level=z", "--codegen=lto=fat", crate="second", kind="cdylib"),
        call(*SIZE, crate="build_script_build"),
        call(*SIZE, crate="library", kind="rlib"),
        call("-Copt-level=3", "-Clto=fat", crate="fast"),
        call("-Copt-level=z", "-Clto=thin", crate="thin"),
        call(*SIZE, "-Clinker-plugin-lto", crate="linked"),
        # cargo passes the types in the order of the manifest.
        call("-Copt-level=z", "--crate-type", "rlib", crate="both", kind="cdylib"),
    ]

    found, others = programs_of(calls)

    assert [one.crate for one in found] == ["first", "second"]
    assert others == {
        "fast": "it is compiled with opt-level=3 in place of z or s",
        "thin": "it is linked with lto=thin instead of fat",
        "linked": "its linker makes the code (-Clinker-plugin-lto)",
        "both": "cargo has no lto for it, as it is a library for Rust (rlib) as well",
    }
    with pytest.raises(CorpusError, match=r"found fast: .*; add them to \[profile.release\]"):
        programs_of(calls[4:5])


def test_what_a_call_reads_is_known_by_content(tmp_path: Path):
    (tmp_path / "deps").mkdir()
    for name in ("deps/liba.rlib", "deps/libb.rlib", "main.rs", "deps/app-1.d"):
        (tmp_path / name).write_text(name)
    (tmp_path / "deps" / "app-1.d").write_text("app: main.rs\n\nmain.rs:\n")
    words = ("--out-dir", str(tmp_path / "deps"), "-C", "extra-filename=-1", "-L", f"dependency={tmp_path / 'deps'}")
    found = call(*words, folder=tmp_path).inputs()
    assert [Path(path).name for path in found] == ["liba.rlib", "libb.rlib", "main.rs"]


def compiler(tmp_path: Path, *lines: str, version: str = "rustc 1.95.0 (x)") -> tuple[RustCompiler, RustcCall]:
    rustc = script(tmp_path / "rustc", f'for w; do echo "$w"; done > {tmp_path}/asked', f"env > {tmp_path}/env", *lines)
    words = (str(rustc), "--crate-name", "app", "--emit=dep-info,link", "--out-dir", "/nowhere", *SIZE, "main.rs")
    recorded = RustcCall(words=words, folder=tmp_path, environment={**os.environ, "MLGOKIT_SEED": "7"})
    known = Rustc(program=rustc, version=version, llvm="22.1.2", library=None)
    return RustCompiler(rustc=known, calls={"app": recorded}, toolchain=FAKE_TOOLCHAIN, plugin=Path("/p.so")), recorded


TAKE = 'for w; do case $w in linker=*) l=${w#linker=};; esac; done; d=$(dirname "$(dirname "$l")"); '


@pytest.mark.parametrize(("version", "variable"), [("rustc 1.95.0 (x)", True), ("rustc 1.97.0-nightly (x)", False)])
def test_rustc_is_called_as_cargo_did_but_for_outputs_and_the_linker(tmp_path: Path, version: str, variable: bool):
    rust, _ = compiler(
        tmp_path, TAKE, 'echo "no object" > "$d/app.1.rcgu.o"; "$l" "$d/app.1.rcgu.o" -lc', version=version
    )
    use = PluginUse(policies={"inline-size": ":never"})

    found = rust.compile(toy_source("app"), CompileRequest(use=use))

    assert found.status is CompileStatus.BAD_OBJECT, "the linker kept what is no object"
    assert "made" not in found.reason
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:2] == ["--crate-name", "app"]
    assert not {"--emit=dep-info,link", "/nowhere"} & set(asked)
    assert asked[-1] == "-Zllvm-plugins=/p.so"
    variables = (tmp_path / "env").read_text().splitlines()
    assert ("RUSTC_BOOTSTRAP=app" in variables) is variable
    assert {"MLGOKIT_PHASE=link", "MLGOKIT_POLICY=:never", "MLGOKIT_SEED=0"} <= set(variables)


@pytest.mark.parametrize(("given", "permitted"), [("1", "1"), ("parts", "parts,app")])
def test_crates_that_the_build_lets_use_unstable_features_may_use_them_in_each_call(
    tmp_path: Path, given: str, permitted: str
):
    rust, recorded = compiler(tmp_path)
    recorded.environment["RUSTC_BOOTSTRAP"] = given
    rust.compile(toy_source("app"))
    assert f"RUSTC_BOOTSTRAP={given}" in (tmp_path / "env").read_text().splitlines()
    rust.compile(toy_source("app"), CompileRequest(use=PluginUse(plugin=Path("/tuned.so"))))
    assert f"RUSTC_BOOTSTRAP={permitted}" in (tmp_path / "env").read_text().splitlines()


def test_a_plugin_by_itself_is_asked_as_in_the_users_build(tmp_path: Path):
    rust, _ = compiler(tmp_path, "exit 1")
    failed = rust.compile(toy_source("app"), CompileRequest(use=PluginUse(plugin=Path("/tuned.so"))))
    assert failed.status is CompileStatus.FAILED
    assert "MLGOKIT_PHASE" not in (tmp_path / "env").read_text()
    rust.compile(toy_source("app"))
    assert "-Zllvm-plugins" not in (tmp_path / "asked").read_text()


def test_a_folder_that_was_taken_when_all_were_removed_is_not_taken_again():
    folders = OutputFolders()
    with folders.take_folder("app") as first:
        folders.close()
    with folders.take_folder("app") as second:
        assert second.is_dir()
    with folders.take_folder("app") as third:
        assert third == second
    folders.close()
    assert not first.exists()
    assert not second.exists()


def test_several_objects_or_none_are_no_result(tmp_path: Path):
    rust, _ = compiler(tmp_path)
    found = rust.compile(toy_source("app"))
    assert (found.status, found.reason[:61]) == (
        CompileStatus.BAD_OBJECT,
        "expected one object of the link-time optimization, found 0; s",
    )
    with pytest.raises(UsageError, match="app: expected a request that rustc can fulfil"):
        rust.compile(toy_source("app"), CompileRequest(regalloc=True))


def test_a_program_is_linked_where_it_is_wanted(tmp_path: Path):
    rust, _ = compiler(tmp_path)
    assert link_program(rust, toy_source("app"), tmp_path / "out" / "app", plugin=None) == ""
    asked = (tmp_path / "asked").read_text().splitlines()
    assert f"--emit=link={tmp_path / 'out' / 'app'}" in asked
    assert not any(word.startswith("linker=") for word in asked)
    with pytest.raises(StorageError, match="asked: expected to be able to write there, found: File exists"):
        link_program(rust, toy_source("app"), tmp_path / "asked" / "app", plugin=None)


def test_of_a_static_library_the_object_is_taken_that_rustc_made_without_a_linker(tmp_path: Path):
    rust, recorded = compiler(tmp_path)
    library = dataclasses.replace(recorded, words=(*recorded.words, "--crate-type", "cdylib", "--crate-type=staticlib"))
    rust = dataclasses.replace(rust, calls={"app": library})
    output = tmp_path / "out" / "libapp.a"
    assert link_program(rust, toy_source("app"), output, plugin=None) == ""
    assert f"--emit=link={output},obj={weighed_file(library, output)}" in (tmp_path / "asked").read_text().splitlines()
    assert weighed_file(library, output) != output == weighed_file(recorded, output)
    rust.compile(toy_source("app"))
    (emitted,) = [word for word in (tmp_path / "asked").read_text().splitlines() if word.startswith("--emit=")]
    assert emitted.startswith("--emit=obj=/")


def test_a_rustc_says_what_it_is(tmp_path: Path):
    rustc = script(
        tmp_path / "rustc",
        f'case $1 in -vV) printf "rustc 1.85.0 (x)\\nLLVM version: 19.1.7\\n";; --print) echo {tmp_path};; esac',
    )
    found = find_rustc(str(rustc))
    assert (found.version, found.llvm, found.major, found.library) == ("rustc 1.85.0 (x)", "19.1.7", 19, None)
    with pytest.raises(ToolError, match="expected a rustc with LLVM, found: no answer"):
        find_rustc("true")
    with pytest.raises(ToolError, match="expected a rustc, found none"):
        find_rustc(str(tmp_path / "none"))

"""Tuning a cargo build: rustc loads the plugin, its last call is searched, and the program is as small as promised."""

import dataclasses
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.llvm.searching import search_until

from mlgokit.cli import main
from mlgokit.commands import build
from mlgokit.commands.build import Build, BuildResult
from mlgokit.commands.doctor_trials import rust_trials
from mlgokit.compiler import process
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.objects.archive import read_members
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.plugin_build import build_plugin, link_policies
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.rust.compile import COMPILE_SECONDS, RustCompiler
from mlgokit.compiler.rust.record import programs_of, record_cargo
from mlgokit.compiler.rust.toolchain import find_rustc
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, find_toolchain
from mlgokit.errors import InputError, ToolError
from mlgokit.module import Module
from mlgokit.policy.pretrained import policy_files
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import read_table
from mlgokit.tables.file import list_tables

pytestmark = pytest.mark.llvm

# Without the standard library a compilation takes a part of a second.
LIBRARY = """
#![no_std]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }

fn leaf(rows: &[u32], count: u32) -> u32 {
    let mut sum = 0u32;
    for (place, row) in rows.iter().enumerate() {
        sum = sum.wrapping_add(row.wrapping_mul(count));
        if sum > 1000 { sum = sum.wrapping_sub(rows[0] ^ place as u32); }
    }
    sum ^ count
}
fn branch(rows: &[u32], count: u32) -> u32 {
    let sum = leaf(rows, 3).wrapping_add(leaf(&rows[1..], 4));
    if sum & 1 == 1 { sum.wrapping_add(leaf(rows, count)) } else { sum ^ leaf(&rows[2..], 6) }
}
#[no_mangle]
pub extern "C" fn answer(count: u32) -> u32 {
    let rows = [count, 2, 3, 4, 5, 6, 7, 8];
    branch(&rows, 5) ^ branch(&rows[..4], count) ^ branch(&rows[2..], 7)
}
"""
# LLVM leaves four functions that are smaller where they are called.
CHAINS = """
#![no_std]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }

fn mix(value: u32, other: u32) -> u32 { value.rotate_left(5) ^ other.wrapping_mul(77).wrapping_add(value >> 3) }
fn fold(rows: &[u32]) -> u32 {
    let mut sum = 7u32;
    for row in rows { sum = mix(sum, *row); }
    sum
}
fn twice(rows: &[u32], seed: u32) -> u32 { mix(fold(rows), seed) ^ mix(seed, rows.len() as u32) }
#[no_mangle]
pub extern "C" fn first(count: u32) -> u32 { mix(mix(mix(count, 3), 4), mix(count, 5)) }
#[no_mangle]
pub extern "C" fn second(count: u32) -> u32 {
    let rows = [count, 2, 3, 4];
    twice(&rows, 5) ^ twice(&rows[1..], count) ^ mix(count, 9)
}
#[no_mangle]
pub extern "C" fn third(count: u32) -> u32 { mix(count, first(count)) ^ mix(second(count), count) ^ mix(1, count) }
#[no_mangle]
pub extern "C" fn fourth(count: u32) -> u32 {
    let rows = [count; 6];
    fold(&rows) ^ fold(&rows[2..]) ^ mix(mix(count, 1), mix(2, count))
}
"""
# Made behind LIBRARY, it is a program of the C library alone.
PROGRAM = """
#![no_std]
#![no_main]
#[link(name = "c")]
extern "C" {}
#[no_mangle]
pub extern "C" fn main(count: i32, _words: *const *const u8) -> i32 { (answer(count as u32) & 1) as i32 }
"""
DOCUMENT = Path(__file__).parents[2] / "docs/how-to/rust.md"
NAMED = "/path/of/tuned-1a2b3c4d5e6f.plugin"
MANIFEST = """
[package]
name = "toy"
version = "0.1.0"
edition = "2021"
[lib]
crate-type = ["cdylib"]
[profile.release]
opt-level = "z"
lto = "fat"
codegen-units = 1
panic = "abort"
"""


@pytest.fixture(scope="module")
def major() -> int:
    """The LLVM of a rustc that the plugin can be built for."""
    try:
        rustc = find_rustc()
        find_toolchain(rustc.major, need_plugin=True)
    except ToolError as error:
        pytest.skip(f"no Rust to test with: {error}")
    if rustc.major not in SUPPORTED_MAJORS:
        pytest.skip(f"{rustc.version} has LLVM {rustc.llvm}, which the plugin is not made for")
    return rustc.major


def put_package(folder: Path, manifest: str = MANIFEST) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.rs").write_text(LIBRARY)
    (folder / "Cargo.toml").write_text(manifest)
    return folder


def put_dependency(package: Path) -> None:
    """Have the package call another one, which a program of its own writes a table for in each target folder."""
    parts = package / "parts"
    (parts / "src").mkdir(parents=True)
    (parts / "Cargo.toml").write_text('[package]\nname = "parts"\nversion = "0.1.0"\nedition = "2021"\n')
    (parts / "build.rs").write_text(
        """
        fn main() {
            let rows: Vec<String> = (0u32..64).map(|row| (row * row % 61).to_string()).collect();
            let table = format!("pub static ROWS: [u32; 64] = [{}];", rows.join(", "));
            std::fs::write(format!("{}/rows.rs", std::env::var("OUT_DIR").unwrap()), table).unwrap();
        }
        """
    )
    (parts / "src" / "lib.rs").write_text('#![no_std]\ninclude!(concat!(env!("OUT_DIR"), "/rows.rs"));\n')
    with (package / "Cargo.toml").open("a") as manifest:
        manifest.write('[dependencies]\nparts = { path = "parts" }\n')
    with (package / "src" / "lib.rs").open("a") as source:
        source.write('#[no_mangle]\npub extern "C" fn part(place: usize) -> u32 { parts::ROWS[place & 63] }\n')


def tune(package: Path, place: Path, *words: str) -> int:
    given = ["--cargo", "cargo build --release --offline", "--link-folder", str(package), "--workers", "1"]
    with pytest.raises(SystemExit) as ended:
        main(["tune", *given, "--folder", str(place), "--output", str(place / "tuned.so"), *words])
    return int(ended.value.code or 0)


def result_of(place: Path) -> dict[str, Any]:
    return json.loads((place / "tuned.json").read_text())


def test_doctor_tries_the_rustc_in_path(major: int):
    found = {name: attempt() for name, attempt in rust_trials()}
    assert f"LLVM {major}." in found["rustc"]
    assert found["plugin in rustc"].startswith("it loads it and asks it about calls: ")


def test_cargo_with_the_plugin_makes_what_was_promised(major: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Several builds by cargo, and a search between them: ten seconds and more."""
    package, place = put_package(tmp_path / "toy"), tmp_path / "t"
    put_dependency(package)
    before = sorted(path for path in package.rglob("*") if path.name != "Cargo.lock")

    def session(go_on: bool) -> list[int]:
        more = ["--continue"] if go_on else []
        assert tune(package, place, "--budget", "1s", "--test", "sh -c 'libtoy.so; echo done'", *more) == 0
        return result_of(place)["cargo_programs"]["toy (cdylib)"]

    plain, small = search_until(lambda sizes: sizes[1] < sizes[0], session)

    assert 0 < small < plain
    assert sorted(path for path in package.rglob("*") if path.name != "Cargo.lock") == before
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"toy (cdylib) {plain:,} {small:,}" in said
    assert "passes with the plain programs and with the tuned ones, and prints the same" in said
    assert tune(package, place, "--continue", "--budget", "0s", "--test", "sh -c 'echo $PATH'") != 0
    assert "--test: expected the same exit code and output of" in re.sub(r"\s+", " ", capsys.readouterr().err)
    given = ("--cargo", "cargo build --release --offline", "--cargo-folder", str(package), "--least-kept", "1")
    limits = ("--test", "sh -c 'libtoy.so; echo done'", "--max-growth", "0", "--against", str(place / "tuned.json"))
    for most, code in ((small, 0), (small - 1, 1)):
        with pytest.raises(SystemExit) as ended:
            main(["check", str(place / "tuned.so"), *given, *limits, "--max-bytes", str(most)])
        assert ended.value.code == code
        said = re.sub(r"\s+", " ", capsys.readouterr().out)
        assert "the build changes by -" in said
        assert "passes with the plain programs and with the tuned ones, and prints the same" in said
        assert f"toy (cdylib) {plain:,} {small:,}" in said
        assert (f"toy (cdylib): {small:,} bytes, 1 more than --max-bytes {most:,}" in said) == bool(code)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(place / "tuned.so"), *given, "--test", "sh -c 'echo $PATH'"])
    assert "--test: expected the same exit code and output of" in re.sub(r"\s+", " ", capsys.readouterr().err)
    (entry,) = read_table(place / "tuned.so").entries
    assert entry.at_link
    *variables, cargo = re.split(r"(?<=\S) (?=cargo )", result_of(place)["flag"])
    environment = (
        os.environ | dict(word.split("=", 1) for word in variables) | {"CARGO_TARGET_DIR": str(tmp_path / "o")}
    )
    done = process.run(cargo.split(), timeout_seconds=120, cwd=package, env=environment)
    assert done.returncode == 0, done.stderr
    assert file_totals((tmp_path / "o/release/libtoy.so").read_bytes()).llvm_size_text == small


def test_the_object_of_a_static_library_is_tuned(major: int, tmp_path: Path):
    """Three builds by cargo: ten seconds and more."""
    package, place = (
        put_package(tmp_path / "toy", MANIFEST.replace('"cdylib"', '"cdylib", "staticlib"')),
        tmp_path / "t",
    )
    assert tune(package, place, "--budget", "0s", "--shipped-policies", "on") == 0
    plain, small = result_of(place)["cargo_programs"]["toy (staticlib)"]
    assert 0 < small < plain
    *variables, cargo = re.split(r"(?<=\S) (?=cargo )", result_of(place)["flag"])
    environment = os.environ | dict(word.split("=", 1) for word in variables) | {"CARGO_TARGET_DIR": str(tmp_path)}
    for words, size in ((["cargo", "build", "--release", "--offline"], plain), (cargo.split(), small)):
        assert process.run(words, timeout_seconds=120, cwd=package, env=environment).returncode == 0
        members = read_members(tmp_path / "release/libtoy.a")
        (own,) = [one for one in members if one.name.startswith(("toy-", "toy."))]
        assert file_totals(own.data()).llvm_size_text == size


def test_a_rustc_without_the_plugin_replays_what_was_tuned(
    major: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    package, place = put_package(tmp_path / "toy"), tmp_path / "t"
    (package / "src" / "lib.rs").write_text(CHAINS)

    def session(go_on: bool) -> dict[str, Any]:
        more = ["--continue"] if go_on else []
        assert tune(package, place, "--budget", "1s", "--artifact", "replay", *more) == 0
        return result_of(place)

    result = search_until(lambda found: found["replay"]["replayed_bytes"] < found["replay"]["plain_bytes"], session)
    found = result["replay"]
    assert found["replayed_bytes"] < found["plain_bytes"] == result["plain_bytes"]
    assert found["tuned_bytes"] == result["tuned_bytes"]
    assert Path(found["lines"]).read_text().count("\n") == found["decisions"] > 0
    assert f"Build with: {found['flag']}" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    weights: dict[str, int] = {}
    for name, line in (("plain", "cargo build --release"), ("replayed", found["flag"])):
        variables = dict(word.split("=", 1) for word in line.partition("cargo ")[0].split())
        # A stable rustc takes these options as it is.
        kept = {key: value for key, value in os.environ.items() if key != "RUSTC_BOOTSTRAP"}
        environment = kept | variables | {"CARGO_TARGET_DIR": str(tmp_path / name)}
        words = f"cargo {line.partition('cargo ')[2]}".split()
        done = process.run(words, timeout_seconds=120, cwd=package, env=environment)
        assert done.returncode == 0, done.stderr
        weights[name] = file_totals((tmp_path / name / "release/libtoy.so").read_bytes()).llvm_size_text
    assert weights["replayed"] < weights["plain"]


def test_shipped_policies_decide_where_the_search_found_nothing_smaller(major: int, tmp_path: Path):
    package = put_package(tmp_path / "toy")
    found: dict[str, tuple[int, int]] = {}
    for which in ("off", "on"):
        assert tune(package, tmp_path / which, "--budget", "0s", "--shipped-policies", which) == 0
        found[which] = result_of(tmp_path / which)["cargo_programs"]["toy (cdylib)"]

    plain = found["off"][0]
    assert found["off"] == [plain, plain]
    assert found["on"][0] == plain > found["on"][1]
    notes = " ".join(result_of(tmp_path / "on")["notes"])
    assert "The plugin has the policies builtin:Oz as well. They do not act in " in notes
    # A function without an entry is theirs.
    assert "allocations" not in list_tables(tmp_path / "on/tuned.so")


def test_a_build_has_the_plugin_in_the_calls_it_was_tuned_for(
    major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Seven builds by cargo: ten seconds and more."""
    package, place = put_package(tmp_path / "toy"), tmp_path / "t"
    assert tune(package, place, "--budget", "1s") == 0
    assert f"mlgokit build --plugin {place / 'tuned.so'} -- cargo build" in re.sub(r"\s+", " ", capsys.readouterr().out)
    promised = result_of(place)["cargo_programs"]["toy (cdylib)"][1]
    monkeypatch.chdir(package)

    def built(plugin: Path, *words: str) -> tuple[BuildResult, int]:
        shutil.rmtree("target", ignore_errors=True)
        found = build.run(Build(command=("cargo", "build", "--release", "--offline", *words), plugin=plugin))
        assert found.reason == ""
        made = next(Path("target").glob("*/libtoy.so"))
        return found, file_totals(made.read_bytes()).llvm_size_text

    found, size = built(place / "tuned.so")
    assert (found.plugin_in, found.programs, found.programs_without) == ("rustc", ("toy (cdylib)",), {})
    assert size == promised
    again = build.run(Build(command=("cargo", "build", "--release", "--offline"), plugin=place / "tuned.so"))
    assert (again.programs, again.reason) == ((), ""), "it is up to date"
    monkeypatch.setenv("CARGO_PROFILE_RELEASE_LTO", "thin")
    found, _ = built(place / "tuned.so")
    assert found.programs_without == {"toy (cdylib)": "it is linked with lto=thin instead of fat"}
    monkeypatch.delenv("CARGO_PROFILE_RELEASE_LTO")

    # Policies may decide wherever they can; a plugin of a search over C leaves rustc alone.
    toolchain = find_toolchain(major, need_plugin=True)
    files = {load_policy(path).problem: path for path in policy_files(["builtin:Oz"])}
    found, _ = built(link_policies(toolchain, files, tmp_path / "policies.so"))
    assert (found.plugin_in, found.programs) == ("all", ("toy (cdylib)",))
    (tmp_path / "none.so").write_text("no plugin")
    with pytest.raises(InputError, match=r"none.so: expected a plugin that "):
        built(tmp_path / "none.so")


@pytest.mark.slow  # whole builds by cargo; what they run has tests of its own
def test_the_commands_of_the_document_do_what_it_says(major: int, tmp_path: Path):
    """All of them, in their order, with another place, a shorter time, and no registry."""
    package = tmp_path / "app"
    put_package(package)
    text = DOCUMENT.read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    profile, settings = (body for kind, body in blocks if kind == "toml")
    (package / "src/lib.rs").rename(package / "src/main.rs")
    (package / "src/main.rs").write_text(PROGRAM + LIBRARY.replace("#![no_std]", ""))
    named = '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'
    (package / "Cargo.toml").write_text(f'{named}{profile}panic = "abort"\n[profile.dev]\npanic = "abort"\n')
    plugin, sizes = package / "tuned.so", list[int]()

    def run(script: str) -> None:
        for said, meant in ((NAMED, str(plugin.resolve())), ("30m", "1s"), ("clang-22", f"clang-{major}")):
            script = script.replace(said, meant)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "CARGO_NET_OFFLINE": "true"}
        done = process.run(["sh", "-e", "-c", script], timeout_seconds=300, cwd=package, env=environment)
        assert done.returncode == 0, f"{script}{done.stdout.decode()}{done.stderr}"

    def size() -> int:
        return file_totals((package / "target/release/app").read_bytes()).llvm_size_text

    scripts = [body for kind, body in blocks if kind == "sh"]
    run("cargo build --release")
    plain = size()
    for script in scripts:
        shutil.rmtree(package / "target", ignore_errors=True)
        run(script)
        if (package / "target/release/app").is_file():
            sizes.append(size())
    (package / ".cargo").mkdir()
    (package / ".cargo/config.toml").write_text(settings.replace(NAMED, str(plugin.resolve())))
    shutil.rmtree(package / "target")
    run("RUSTC_BOOTSTRAP=1 cargo build --release")

    promised = json.loads((package / "tune/tuned.json").read_bytes())["cargo_programs"]["app"]
    assert promised[0] == plain
    # By `mlgokit build`, and by cargo with one option more; the last is a link by lld, which is another program.
    assert sizes[:2] == [promised[1]] * 2
    assert size() == promised[1]
    assert len(sizes) == len(scripts) - 1


def test_a_rustc_that_stays_makes_the_same_objects(major: int, tmp_path: Path):
    package, place = put_package(tmp_path / "toy"), tmp_path / "t"
    calls = record_cargo(
        ["cargo", "build", "--release", "--offline"], package, place=place, timeout_seconds=COMPILE_SECONDS
    )
    (recorded,), _ = programs_of(calls)
    toolchain = find_toolchain(major, need_plugin=True)
    residents = Residents()
    known: dict[str, KnownFunctions] = {}
    plain = RustCompiler(
        rustc=find_rustc(recorded.words[0]),
        calls={"toy": recorded},
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
    )
    staying = dataclasses.replace(plain, residents=residents, known=known)
    module = Module(
        name="toy", project="toy", language="rust", bitcode=package / "src/lib.rs", bitcode_bytes=0, command_line=()
    )

    def request(policy: str, *, reuse: bool) -> CompileRequest:
        use = PluginUse(policies={INLINE_SIZE.name: policy}, logs=(INLINE_SIZE.name,))
        return CompileRequest(use=use, reuse=reuse)

    sizes: set[int] = set()
    for policy in (":default", ":always", ":never", ":default"):
        alone, copied = (
            plain.compile(module, request(policy, reuse=False)),
            staying.compile(module, request(policy, reuse=True)),
        )
        assert alone.status is copied.status is CompileStatus.OK, (alone.reason, copied.reason)
        assert alone.measured.totals == copied.measured.totals
        assert np.array_equal(alone.decisions.inlined, copied.decisions.inlined)
        sizes.add(copied.measured.totals.text)
    assert len(sizes) > 1
    assert not residents.declined
    assert known["toy"].hits > 0, "the last one had been compiled before"

    (tmp_path / "bad.policy").write_bytes(b"no policy")
    found, whole = (one.compile(module, request(str(tmp_path / "bad.policy"), reuse=True)) for one in (staying, plain))
    assert found.status is whole.status is CompileStatus.FAILED
    (sentence,) = residents.declined.values()
    assert "bad.policy" in sentence
    residents.declined.clear()
    # The code generator comes to this one, of whose errors rustc itself may say nothing.
    staying.compile(module, CompileRequest(use=PluginUse(allocations=b"no table"), reuse=True))
    (sentence,) = residents.declined.values()
    assert "allocation" in sentence
    folder = staying.output_folders.parent
    assert folder is not None
    staying.close()
    assert not Path(folder.name).exists()


def test_a_link_by_lld_loads_the_plugin(major: int, tmp_path: Path):
    toolchain = find_toolchain(major, need_plugin=True)
    package, plugin = put_package(tmp_path / "toy"), build_plugin(toolchain)
    flags = f"-Clinker-plugin-lto -Clinker={toolchain.clang} -Clink-arg=-fuse-ld=lld"
    said: list[str] = []
    for number, given in enumerate(({"MLGOKIT_POLICY": ":default"}, {})):
        mine = {"RUSTFLAGS": flags, "CARGO_TARGET_DIR": str(tmp_path / f"target{number}"), **given}
        words = ["cargo", "rustc", "--release", "--offline", "--", f"-Clink-arg=-Wl,--load-pass-plugin={plugin}"]
        done = process.run(words, timeout_seconds=120, cwd=package, env=os.environ | mine)
        said.append("" if done.returncode == 0 else done.stderr)
    assert said[0] == ""
    assert "ld.lld: error: mlgokit: this plugin has no policy inside" in said[1]
    assert file_totals((tmp_path / "target0/release/libtoy.so").read_bytes()).text


def test_what_cannot_be_tuned_is_said(major: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    package = put_package(tmp_path / "toy", MANIFEST.replace('lto = "fat"', "lto = false"))
    assert tune(package, tmp_path / "t", "--budget", "1s") != 0
    assert "found toy: it is linked with lto=off instead of fat; add them" in re.sub(
        r"\s+", " ", capsys.readouterr().err
    )
    assert tune(package, tmp_path / "t", "--budget", "1s", "--level", "Oz") == 2
    assert "--level: cannot be combined with --cargo" in re.sub(r"\s+", " ", capsys.readouterr().err)
    given = ["--build", "cargo build --release --offline", "--build-folder", str(package), "--llvm", str(major)]
    with pytest.raises(SystemExit):
        main(["tune", *given, "--folder", str(tmp_path / "b"), "--output", str(tmp_path / "b.so"), "--budget", "1s"])
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "found that rustc makes toy; give the command of cargo with --cargo in place of --build" in said

"""The command that builds a program of a cargo build with the plugin."""

from pathlib import Path

import pytest

from mlgokit.builds.cargo import cargo_line
from mlgokit.compiler import process
from mlgokit.compiler.rust.record import RustcCall


def called(name: str = "one", kind: str = "bin", *, folder: str = "/work", out: str = "/target/deps") -> RustcCall:
    return RustcCall(
        words=("rustc", "--crate-name", name, "--crate-type", kind, "--out-dir", out),
        folder=Path("/work"),
        environment={"CARGO_PKG_NAME": "pack", "CARGO_MANIFEST_DIR": folder},
    )


@pytest.mark.parametrize(
    ("command", "call", "line"),
    [
        ("cargo build --release", called(), "cargo rustc --release --bin one -- -Z"),
        ("cargo +nightly b -r -- -Cx", called(kind="cdylib"), "cargo +nightly rustc -r --lib -- -Cx -Z"),
        # Of several programs each has a command of its own.
        ("cargo build --bin one --bin=two -r", called(), "cargo rustc -r --bin one -- -Z"),
        ("cargo build --bins --lib -j 2", called(), "cargo rustc -j 2 --bin one -- -Z"),
        ("cargo build --examples", called(out="/target/examples"), "cargo rustc --example one -- -Z"),
        # cargo rustc knows neither a whole workspace nor several packages.
        ("cargo build -r", called(folder="/work/pack"), "cargo rustc -r -p pack --bin one -- -Z"),
        ("cargo build --workspace --exclude b -r", called(), "cargo rustc -r -p pack --bin one -- -Z"),
        ("cargo build -p build -pb --package=c -r", called(), "cargo rustc -r -p pack --bin one -- -Z"),
    ],
)
def test_cargo_gives_an_option_to_one_program_whatever_the_build_chose(command: str, call: RustcCall, line: str):
    assert cargo_line(command.split(), call, {}, "-Z") == line


def test_a_shell_takes_the_variables_and_words_for_what_they_are(tmp_path: Path):
    words = [str(script := tmp_path / "cargo"), "build", "--features", "a b"]
    script.write_text('#!/bin/sh\nprintf "%s|" "$RUSTFLAGS" "$@"\n')
    script.chmod(0o755)
    line = cargo_line(words, called(), {"RUSTFLAGS": "-Ca -Cb"}, "-Z=/p q")
    said = process.run(["sh", "-c", line], timeout_seconds=20).stdout.decode()
    assert said == "-Ca -Cb|rustc|--features|a b|--bin|one|--|-Z=/p q|"

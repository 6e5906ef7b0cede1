"""What cargo is asked for, and what comes of builds that do not do it, with a cargo that is a script."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from mlgokit.flags.cargo import CargoCommands, CargoTrials, cargo_settings, config_lines
from mlgokit.flags.record import Trial
from mlgokit.flags.reviewed import RUST_FLAGS
from mlgokit.flags.trials import ALREADY, TrialStore

ICF = next(flag for flag in RUST_FLAGS if flag.name == "icf-all")
_CARGO = """#!/bin/sh
case $*$HIDES in
  *build.rustflags=*yes) words= ;;
  *build.rustflags=*) words=$(printf %s "${*##*build.rustflags=}" | sed 's/", "/ /g' | tr -d '[]"') ;;
  *) words=$RUSTFLAGS ;;
esac
case $* in *--target-dir*) exit 1 ;; esac
deps=$CARGO_TARGET_DIR/release/deps
mkdir -p "$deps"
[ "$FRESH" ] || exec "$RUSTC_WRAPPER" "$(dirname "$0")/rustc" --crate-name app ${KINDS:---crate-type bin} \
  --out-dir "$deps" $GIVEN $words
"""
_RUSTC = """#!/bin/sh
cp "$PROGRAM" "$CARGO_TARGET_DIR/release/${MADE:-app}"
"""


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CargoTrials:
    for name, text in (("cargo", _CARGO), ("rustc", _RUSTC)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PROGRAM", str(shutil.which("true")))
    for name in ("RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "GIVEN", "HIDES", "KINDS", "MADE", "FRESH"):
        monkeypatch.delenv(name, raising=False)
    commands = CargoCommands(
        words=(str(tmp_path / "cargo"), "build", "--release"),
        folder=tmp_path,
        tests=(("sh", "-c", 'printf %s "$CARGO_BUILD_RUSTFLAGS" > tested'),),
        build_seconds=60.0,
        test_seconds=60.0,
    )
    store = TrialStore(folder=tmp_path / "trials")
    return CargoTrials(commands=commands, place=tmp_path / "build", store=store, compressor=None)


def works(trial: Trial) -> bool:
    return trial.works and set(trial.programs) == {"app"}


def test_tests_that_call_cargo_get_the_options_of_the_build(trials: CargoTrials, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CARGO_BUILD_RUSTFLAGS", "--cfg mine")
    tested = trials.commands.folder / "tested"
    assert works(trials.make_plain())
    assert tested.read_text() == "--cfg mine"
    assert works(trials.make([ICF]))
    assert tested.read_text() == f"--cfg mine {' '.join(ICF.rustc)}"


def test_options_that_cargo_hides_are_not_taken_for_useless(trials: CargoTrials, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HIDES", "yes")
    assert works(trials.make_plain())
    assert trials.make([ICF]).reason.startswith("rustc does not get -Clink-arg=-fuse-ld=lld: CARGO_ENCODED_RUSTFLAGS")


def test_with_rustflags_in_the_environment_these_are_extended(trials: CargoTrials, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUSTFLAGS", "-Ctarget-cpu=native")
    assert works(trials.make([ICF]))
    (line,) = config_lines("release", [ICF])
    words = " ".join(("-Ctarget-cpu=native", *ICF.rustc))
    assert (line.system, line.line) == ("environment", f"RUSTFLAGS='{words}'")


def test_the_plain_build_shows_its_compiler_and_what_it_has(trials: CargoTrials, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIVEN", "-C link-arg=-fuse-ld=lld -C link-arg=-Wl,--icf=all -C opt-level=z")
    trials.make_plain()
    rustc = trials.commands.folder / "rustc"
    assert trials.facts.pop("rustc") == str(rustc)
    assert trials.list_excluded() == {
        "icf-all": ALREADY, "opt-z": ALREADY, "opt-s": 'the build has opt-level = "z"',
    }  # fmt: skip


def test_a_library_for_rust_and_for_others_is_weighed(trials: CargoTrials, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KINDS", "--crate-type cdylib --crate-type rlib")
    monkeypatch.setenv("MADE", "libapp.so")
    assert set(trials.make_plain().programs) == {"libapp.so"}


def test_the_target_folder_of_the_user_is_not_built_in(trials: CargoTrials):
    for more in (("--target-dir", "mine"), ("--target-dir=mine",)):
        commands = dataclasses.replace(trials.commands, words=(*trials.commands.words, *more, "--locked"))
        assert works(dataclasses.replace(trials, commands=commands).make([ICF]))
        shutil.rmtree(trials.store.folder)


def test_a_build_without_a_program_saves_nothing(trials: CargoTrials, monkeypatch: pytest.MonkeyPatch):
    trials.make_plain()
    monkeypatch.setenv("FRESH", "yes")
    assert trials.make([ICF]).reason == "the build makes no program with it"


def test_variables_that_change_a_build_are_known(monkeypatch: pytest.MonkeyPatch):
    before = cargo_settings()
    ours = {"RUSTFLAGS": "-Copt-level=1", "CARGO_BUILD_TARGET": "wasm32-wasip1", "CARGO_PROFILE_RELEASE_LTO": "fat"}
    for name, value in ({"CARGO_TARGET_DIR": "mine", "CARGO_TERM_COLOR": "never"} | ours).items():
        monkeypatch.setenv(name, value)
    assert cargo_settings() == before | ours

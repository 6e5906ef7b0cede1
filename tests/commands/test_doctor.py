import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mlgokit.builds.corpus import CorpusBuild
from mlgokit.commands import doctor, doctor_trials
from mlgokit.commands.doctor import Check, Diagnosis, ToolchainDiagnosis, diagnose, diagnose_toolchain, render
from mlgokit.commands.doctor_trials import rust_trials
from mlgokit.compiler.toolchain import Toolchain, UnusableProgram
from mlgokit.errors import ToolError
from mlgokit.progress import say_nothing
from mlgokit.testing import toy_compiler
from mlgokit.tune.session import Session, TuneSettings
from mlgokit.tune.spaces.inlining.space import SearchConfig

PRESENT = Path("bin")


def entry(
    major: int = 19,
    *,
    works: bool = True,
    opt: Path | None = PRESENT,
    lld: Path | None = PRESENT,
    include_dir: Path | None = PRESENT,
) -> ToolchainDiagnosis:
    toolchain = Toolchain(
        major=major,
        version=f"{major}.1.0",
        clang=PRESENT,
        clangxx=PRESENT,
        opt=opt,
        llc=PRESENT,
        lld=lld,
        include_dir=include_dir,
    )
    checks = (
        Check(name="compile", works=works, detail="[detail]", needed=True),
        Check(name="embedded", works=False, detail="not in this build"),
    )
    return ToolchainDiagnosis(toolchain=toolchain, checks=checks)


def diagnosis(*entries: ToolchainDiagnosis, machine: bool = True) -> Diagnosis:
    return Diagnosis(
        toolchains=entries,
        unusable=(UnusableProgram(path=Path("bad/clang"), reason="a file that cannot be executed"),),
        system=(Check(name="Python", works=machine, detail="3.11", needed=True),),
        advice=("sudo apt-get install lld-19",),
    )


@pytest.mark.parametrize(
    ("found", "exit_code"),
    [
        (diagnosis(), 3),
        (diagnosis(entry(works=False)), 3),
        (diagnosis(entry(works=False), entry(22)), 0),
        (diagnosis(entry(), machine=False), 3),
    ],
    ids=["no compiler", "unfit compiler", "one fit compiler", "unfit machine"],
)
def test_one_complete_compiler_is_enough(found: Diagnosis, exit_code: int):
    assert doctor.exit_code(doctor.Doctor(), found) == exit_code
    assert found.usable is (exit_code == 0)


def test_json_has_all_answers_and_no_python_types():
    value = json.loads(json.dumps(diagnosis(entry()).to_json()))

    assert value["usable"] is True
    assert value["toolchains"][0]["major"] == 19
    assert value["toolchains"][0]["clang"] == "bin"
    assert value["toolchains"][0]["checks"][1] == {
        "name": "embedded",
        "works": False,
        "detail": "not in this build",
        "needed": False,
    }
    assert value["unusable"] == [{"path": "bad/clang", "reason": "a file that cannot be executed"}]
    assert value["advice"] == ["sudo apt-get install lld-19"]


def test_the_table_says_what_to_do():
    out = io.StringIO()

    render(diagnosis(entry(works=False)), Console(file=out, width=200))

    text = out.getvalue()
    assert "19.1.0, built with libstdc++: not usable" in text
    assert "[detail]" in text
    assert "bad/clang" in text
    assert "sudo apt-get install lld-19" in text
    assert "do not work on this machine yet" in text


def test_a_machine_without_compilers_is_told_what_to_install(tmp_path: Path):
    found = diagnose((tmp_path,))

    assert found.toolchains == ()
    assert doctor.exit_code(doctor.Doctor(), found) == 3
    assert found.advice[0].startswith("sudo apt-get install -y --no-install-recommends clang-19 llvm-19-dev lld-19")


def script(folder: Path, text: str, *, major: int = 19) -> Toolchain:
    """A toolchain whose compilers are a script."""
    clang = folder / "clang"
    clang.write_text(f"#!/bin/sh\n{text}\n")
    clang.chmod(0o755)
    return Toolchain(major=major, version=f"{major}.0.6", clang=clang, clangxx=clang)


def test_a_compiler_that_fails_is_an_answer_and_not_an_error(tmp_path: Path):
    found = diagnose_toolchain(script(tmp_path, "echo 'clang: error: no such luck' >&2\nexit 1", major=14), plugin=True)

    details = {check.name: (check.works, check.detail) for check in found.checks}
    assert details["compile"] == (False, "clang: error: no such luck")
    assert details["link C++ with lld"] == (False, "no ld.lld of major 14 found")
    assert details["plugin"] == (False, "the plugin is made for LLVM 19, 21, 22 and 23 only")
    assert not any(works for works, _ in details.values())
    assert not found.usable


def test_a_compiler_that_ignores_the_channel_is_found_out(tmp_path: Path):
    found = diagnose_toolchain(script(tmp_path, "touch tiny.o"), plugin=False)

    details = {check.name: (check.works, check.detail) for check in found.checks}
    assert details["compile"] == (True, "IR to object (0 bytes)")
    nothing = (False, "the option is accepted, but nothing was sent over the channel")
    assert details["interactive inline-size"] == nothing
    assert details["training log inline-size"] == (False, "the option is accepted, but no log was written")


def test_a_compiler_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor_trials, "TRIAL_SECONDS", 0.1)
    # The trial of the sandbox, which asks for the version, has a deadline of its own.
    endless = script(tmp_path, 'test "$1" = --version && exit\nwhile :; do :; done')

    found = diagnose_toolchain(endless, plugin=False)

    assert found.checks[0].detail == "the compiler did not end within 0.1 s"


def test_each_missing_part_has_its_own_package():
    found = doctor._advice((entry(22, include_dir=None, lld=None), entry(19, opt=None)), ())

    assert [line.rsplit(" ", 1)[1] for line in found] == ["llvm-22-dev", "lld-22", "llvm-19"]


def test_without_the_framework_a_machine_tunes_and_does_not_train():
    missing = Check(name="learning framework", works=False, detail="jax is not installed")
    found = dataclasses.replace(diagnosis(entry()), system=(missing,))
    out = io.StringIO()

    render(found, Console(file=out, width=200))

    assert found.usable
    assert "Tuning and the plugin work on this machine, training does not yet." in out.getvalue()
    assert doctor._advice((), (missing,))[-1] == "pip install 'mlgokit[train]'"


@pytest.mark.parametrize(
    ("absent", "objective", "refits", "said"),
    [
        (
            ("jax", "optax"),
            "image",
            (0.5,),
            "without jax and optax the search cannot fit a policy that orders what to try",
        ),
        (("optax",), "image", (0.5,), "without optax the search cannot fit a policy"),
        (("jax", "optax"), "spill-cost", (0.5,), ""),
        (("jax", "optax"), "image", (), ""),
        ((), "image", (0.5,), ""),
    ],
)
def test_without_the_framework_tune_says_what_it_does_not_do(
    absent: tuple[str, ...],
    objective: Any,
    refits: tuple[float, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    session = Session(
        settings=TuneSettings(
            folder=tmp_path,
            output=tmp_path / "tuned.so",
            seconds=1.0,
            objective=objective,
            search=SearchConfig(refits=refits),
        ),
        build=CorpusBuild(folder=tmp_path, modules=(), left_out={}),
        compiler=toy_compiler({}),
        baseline="",
        claim=lambda: None,
        left_out={},
        report=say_nothing,
    )

    assert session.without_refits.startswith(said)
    assert bool(session.without_refits) is bool(said)


@pytest.mark.parametrize(
    ("llvm", "found"),
    [("20.1.0", "the plugin is made for LLVM 19, 21, 22 and 23 only, this rustc has 20.1.0"), ("", "")],
)
def test_what_the_rustc_in_path_cannot_do_is_said(
    llvm: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # A distribution's rustc may be where the shell is.
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if llvm else str(tmp_path))
    said = f"rustc 1.91.0 (a 2025-10-28)\\nLLVM version: {llvm}"
    if llvm:
        (tmp_path / "rustc").write_text(f"#!/bin/sh\n[ $1 = -vV ] && printf '{said}\\n' || echo {tmp_path}\n")
        (tmp_path / "rustc").chmod(0o755)
    trials = dict(rust_trials())
    if not llvm:
        with pytest.raises(ToolError, match="rustc: expected a rustc, found none; install Rust, or put its folder"):
            trials["rustc"]()
        return
    assert trials["rustc"]() == "rustc 1.91.0 (a 2025-10-28), LLVM 20.1.0, inside the compiler"
    with pytest.raises(ToolError, match=found):
        trials["plugin in rustc"]()

"""A project's settings: what a file adds to a call, who may have written it, and what is refused."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.calls import ended

from mlgokit import cli
from mlgokit.builds.corpus import ANY_COMMANDS
from mlgokit.commands import settings
from mlgokit.commands.advise import Advise
from mlgokit.commands.check import Check
from mlgokit.commands.settings import find_settings
from mlgokit.commands.tune_options import Tune
from mlgokit.errors import UsageError

TEXT = """
build = ["make clean", "make -j2"]
test = "make check"
workers = 3

[tune]
budget = "20s"
output = "out/tuned.so"
continue = true

[check]
plugin = "out/tuned.so"
max-bytes = {app = 50000}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "sub").mkdir()
    (folder / "mlgokit.toml").write_text(TEXT)
    monkeypatch.chdir(folder)
    return folder


def called(*words: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration of a call."""
    seen: list[Any] = []
    monkeypatch.setattr(cli, "run", lambda configuration, **_: seen.append(configuration) or 0)
    assert ended(*words) == 0
    return seen[0]


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert ended(*words) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    return err.strip()


def test_commands_need_no_words(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tune = called("tune", monkeypatch=monkeypatch)
    assert isinstance(tune, Tune)
    assert (tune.built.build, tune.built.test, tune.compiler.workers) == (
        ("make clean", "make -j2"),
        ("make check",),
        3,
    )
    assert (tune.budget, tune.output, tune.go_on) == ("20s", Path("out/tuned.so"), True)
    assert capsys.readouterr().err == (
        "mlgokit: from mlgokit.toml: '--build=make clean' '--build=make -j2' '--test=make check' --workers=3 "
        "--budget=20s --output=out/tuned.so --continue\n"
    )
    check = called("check", monkeypatch=monkeypatch)
    assert isinstance(check, Check)
    assert (check.plugin, check.program_bytes) == (Path("out/tuned.so"), ("app=50000",))


def test_the_command_line_wins(project: Path, monkeypatch: pytest.MonkeyPatch):
    tune = called("tune", "--budget", "3s", "-o", "x.so", "--test", "true", monkeypatch=monkeypatch)
    assert (tune.budget, tune.output, tune.built.test) == ("3s", Path("x.so"), ("true",))
    # Another source stands in place of the whole build, with its tests and its limits.
    tune = called("tune", "--compile_commands", "a.json", monkeypatch=monkeypatch)
    assert (tune.compile_commands, tune.built.build, tune.built.test) == (Path("a.json"), (), ())
    more = 'budget = "20s"\nobjective = "command"\ncommand = "./measure {output}"\nsandbox = "off"'
    (project / "mlgokit.toml").write_text(TEXT.replace('budget = "20s"', more))
    assert called("tune", monkeypatch=monkeypatch).command == "./measure {output}"
    tune = called("tune", "--corpus", "c", "--objective", "image", monkeypatch=monkeypatch)
    assert (tune.command, tune.compiler.sandbox, tune.budget) == (None, "auto", "20s")
    more = 'objective = "instructions"\nrun = "./app"\nheld-out = "./app 2"\nlevel = "Oz"\nbaseline = "clang"'
    (project / "mlgokit.toml").write_text(TEXT.replace('budget = "20s"', more))
    tune = called("tune", monkeypatch=monkeypatch)
    assert (tune.run, tune.held_out, tune.level, tune.database.baseline) == (("./app",), ("./app 2",), "Oz", "clang")
    tune = called("tune", "--build", "make", monkeypatch=monkeypatch)
    assert (tune.run, tune.held_out, tune.level, tune.database) == ((), (), None, ANY_COMMANDS)
    check = called("check", "y.so", "--corpus=c", monkeypatch=monkeypatch)
    assert (check.plugin, check.built.build, check.program_bytes) == (Path("y.so"), (), ())
    check = called("check", "--program-bytes", "app=7", monkeypatch=monkeypatch)
    assert check.program_bytes == ("app=7",)


def test_paths_are_those_of_the_file(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(project / "sub")
    tune = called("tune", monkeypatch=monkeypatch)
    assert (tune.output, tune.folder, tune.built.build_folder) == (Path("../out/tuned.so"), Path("../tune"), Path(".."))
    # With a source of its own, a call keeps what it makes where it is.
    tune = called("tune", "--corpus", "c", monkeypatch=monkeypatch)
    assert (tune.output, tune.folder) == (Path("../out/tuned.so"), Path("tune"))
    assert called("tune", "--folder", "mine", monkeypatch=monkeypatch).folder == Path("mine")
    assert called("check", monkeypatch=monkeypatch).plugin == Path("../out/tuned.so")


def test_advise_has_them_too(project: Path, monkeypatch: pytest.MonkeyPatch):
    with (project / "mlgokit.toml").open("a") as file:
        file.write('[advise]\nseconds = 5\nwithout = ["lto", "strip"]\n')
    monkeypatch.chdir(project / "sub")
    advise = called("advise", monkeypatch=monkeypatch)
    assert isinstance(advise, Advise)
    assert (advise.built.build, advise.built.test) == (("make clean", "make -j2"), ("make check",))
    assert advise.folder == Path("../advice")
    assert (advise.built.build_folder, advise.seconds, advise.without) == (Path(".."), 5.0, ("lto", "strip"))
    advise = called("advise", "--cargo", "cargo build --release", monkeypatch=monkeypatch)
    assert (advise.built.build, advise.built.test, advise.seconds) == ((), (), 5.0)


def test_other_commands_have_no_settings(project: Path, monkeypatch: pytest.MonkeyPatch):
    assert called("build", "--plugin", "x.so", "--", "make", monkeypatch=monkeypatch).command == ("make",)


def test_the_search_ends_at_the_top_of_the_project(project: Path):
    inner = project / "inner"
    (inner / ".git").mkdir(parents=True)
    assert find_settings(inner) is None
    found = find_settings(project / "sub")
    assert found is not None
    assert found.file == project / "mlgokit.toml"


def test_pyproject_may_have_them(project: Path):
    (project / "mlgokit.toml").unlink()
    file = project / "pyproject.toml"
    file.write_text("[tool.other]\nbuild = 1\n")
    assert find_settings(project) is None
    file.write_text("no toml")
    assert find_settings(project) is None
    file.write_text('[tool.mlgokit]\nbuild = "make"\n[tool.mlgokit.tune]\nbudget = "1m"\n')
    found = find_settings(project)
    assert found is not None
    assert found.values == {"build": "make", "tune": {"budget": "1m"}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('bugdet = "1m"', "bugdet is not an option of tune, advise or check; did you mean budget?"),
        (
            "[tune]\nbuild_folder = '.'",
            "tune.build_folder is not an option of tune, advise or check; did you mean build-fo",
        ),
        ("[check]\nbudget = '1m'", "check.budget is not an option of tune, advise or check"),
        ("zzzzz = 1", "zzzzz is not an option of tune, advise or check; remove it"),
        ("tune = 1", "tune: expected a table [tune], found a value; correct it"),
        ("[tune.budget]\na = 1", "tune.budget: expected a value, found a table; correct it"),
        ("[check.max-bytes]\na = 'x'", "check.max-bytes: expected a value, found a table; correct it"),
        ("workers = '2'", "workers: expected a number, found '2'; correct it"),
        ("budget = 30", "budget: expected a text, found 30; correct it"),
        ("[tune]\ncontinue = 'yes'", "tune.continue: expected true or false, found 'yes'; correct it"),
        ("budget = ['1m', '2m']", "budget: expected one value, found a list; correct it"),
        ("build = [1]", "build: expected a text, found 1; correct it"),
        ("build = ", "expected TOML, found: Invalid value"),
    ],
)
def test_what_is_no_setting_is_refused(text: str, sentence: str, project: Path, capsys: pytest.CaptureFixture[str]):
    (project / "mlgokit.toml").write_text(text)
    said = refused("tune", capsys=capsys)
    assert said.startswith(f"mlgokit: {project / 'mlgokit.toml'}: ")
    assert sentence in said


# ---- Who wrote it ----


def test_a_file_that_everybody_can_write_is_refused(project: Path, capsys: pytest.CaptureFixture[str]):
    (project / "mlgokit.toml").chmod(0o646)
    said = refused("tune", capsys=capsys)
    assert "expected settings that only you can write, since they name commands to run" in said


def test_a_file_of_another_user_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    # The files are ours; we are another user for the moment, and none of them is root's.
    for path in (project / "mlgokit.toml", project / "linked.toml"):
        path.touch()
        if os.geteuid() == 0:
            os.lchown(path, 12345, -1)
    monkeypatch.setattr(settings.os, "geteuid", lambda: 54321)
    said = refused("check", capsys=capsys)
    assert re.search(r"since they name commands to run, found a file of another user \(\d+\)", said)


def test_a_pipe_is_no_file(project: Path):
    (project / "mlgokit.toml").unlink()
    os.mkfifo(project / "mlgokit.toml")
    assert find_settings(project) is None


def test_a_long_file_is_refused(project: Path):
    (project / "mlgokit.toml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(UsageError, match="expected settings of at most 1,048,576 bytes, found more"):
        find_settings(project)

from pathlib import Path

import pytest

from mlgokit.corpus.importers.build_compiler import BuildCompiler, build_compiler, compiler_name


def program(path: Path, says: str) -> Path:
    """A program that writes down that it ran, and says its version."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho ran >> {path}.log\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's ``PATH``, behind one that is relative and not looked into."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"relative:{folder}:/bin")
    return folder


@pytest.mark.parametrize(
    ("word", "is_clang", "major"),
    [
        ("/opt/none/clang++-22", True, 22), ("/opt/none/x86_64-linux-gnu-clang", True, 0), ("/opt/none/g++", False, 0),
        ("/opt/none/arm-none-eabi-gcc-12", False, 0), ("/opt/none/c++", None, 0), ("cl.exe", False, 0),
        ("icc", False, 0),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_known_by_its_name(word: str, is_clang: bool | None, major: int):
    assert build_compiler([word, "-c", "a.c"]) == BuildCompiler(text=Path(word).name, is_clang=is_clang, major=major)


def test_an_option_that_clang_never_took_says_that_it_is_gcc():
    found = build_compiler(["/opt/none/cc", "-Os", "-fipa-pta", "-c", "a.c"])
    assert found == BuildCompiler(text="cc (with -fipa-pta, an option of GCC)", is_clang=False)


def test_the_program_that_path_has_is_asked(on_path: Path):
    gcc = program(on_path / "c++", "c++ (Debian 12.2.0-14) 12.2.0")
    clang = program(on_path / "g++", "Apple clang version 17.0.0")
    assert build_compiler([str(gcc), "-c"]) == BuildCompiler(text="c++ (no clang, version 12.2.0)", is_clang=False)
    assert build_compiler(["ccache", "g++", "-c"]) == BuildCompiler(text="g++ (clang 17.0.0)", is_clang=True, major=17)
    assert Path(f"{clang}.log").exists()


def test_no_program_that_only_the_database_names_is_started(on_path: Path, tmp_path: Path):
    program(on_path / "cc", "clang version 22.1.8")
    theirs = [program(tmp_path / "build" / name, "clang version 22.1.8") for name in ("cc", "evil")]
    evil = program(on_path / "evil", "clang version 22.1.8")
    assert build_compiler([str(theirs[0])]).is_clang is None
    assert build_compiler(["../build/cc"]).is_clang is None
    assert build_compiler([str(theirs[1])]).is_clang is False
    assert build_compiler(["evil"]).is_clang is False
    assert not any(Path(f"{path}.log").exists() for path in (*theirs, evil))


def test_names_of_other_programs_are_none():
    assert compiler_name("/usr/bin/nvcc") is None
    assert compiler_name("x86_64-w64-mingw32-g++.exe") is not None

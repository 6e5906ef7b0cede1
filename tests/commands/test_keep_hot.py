"""What `mlgokit tune --keep-hot` may not say, and what it says."""

import dataclasses
from pathlib import Path

import pytest

from mlgokit.builds.corpus import ModuleSelection, note_hot_functions
from mlgokit.commands.tune_options import Tune, _check_keep_hot
from mlgokit.errors import UsageError
from mlgokit.module import Module


def selection(*lines: str) -> ModuleSelection:
    modules = tuple(
        Module(
            name=f"m{index}",
            project="p",
            language="c",
            bitcode=Path("m.bc"),
            command_line=("-cc1", *line.split()),
            bitcode_bytes=1,
        )
        for index, line in enumerate(lines)
    )
    return ModuleSelection(modules=modules, left_out={}, notes=("first",))


@pytest.mark.parametrize("percent", [-1.0, 100.0, float("nan")])
def test_an_invalid_percentage_is_refused(percent: float):
    with pytest.raises(UsageError, match=r"--keep-hot: expected a percentage from 0 to 99.9999, found .*; correct it"):
        _check_keep_hot(Tune(keep_hot=percent))


def test_a_policy_would_decide_in_hot_functions_later():
    _check_keep_hot(Tune(keep_hot=99.0))
    _check_keep_hot(Tune(fallback="policy"))
    with pytest.raises(UsageError, match="--keep-hot: cannot be combined with --fallback policy"):
        _check_keep_hot(Tune(keep_hot=99.0, fallback="policy"))


def test_without_a_profile_nothing_is_known_to_be_hot():
    with pytest.raises(UsageError, match=r"--keep-hot 99: expected a build with a profile, .* found none in 2 modules"):
        note_hot_functions(selection("-Oz", "-Os"), 99.0)


def test_a_link_has_the_profile_of_its_compile_steps_inside(tmp_path: Path):
    bitcode = tmp_path / "merged.bc"
    (module,) = selection("-flto").modules
    chosen = ModuleSelection(modules=(dataclasses.replace(module, bitcode=bitcode, link_folder=tmp_path),), left_out={})
    bitcode.write_bytes(b"BC nothing")
    with pytest.raises(UsageError, match=r"--keep-hot 99: expected a build with a profile, .* found none in 1 modules"):
        note_hot_functions(chosen, 99.0)
    bitcode.write_bytes(b"BC ProfileSummaryProfileFormatInstrProf")
    assert "in 1 of 1 modules" in note_hot_functions(chosen, 99.0).notes[0]


def test_what_is_kept_is_said_with_the_number_of_modules():
    chosen = selection("-Oz -fprofile-instrument-use-path=/p", "-Oz")
    assert note_hot_functions(chosen, 0.0) is chosen
    assert note_hot_functions(chosen, 99.9).notes == (
        "first",
        "functions in the hottest 99.9 % of the profile are left to LLVM, in 1 of 2 modules",
    )

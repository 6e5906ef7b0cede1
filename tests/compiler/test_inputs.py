"""Which files a command line reads; no compiler takes part."""

from pathlib import Path

import pytest

from mlgokit.compiler.inputs import named_files
from mlgokit.compiler.options.parse import option_table
from mlgokit.files import digest_file


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_a_file_is_found_behind_every_option_of_clang_that_takes_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, relative: bool
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named").write_bytes(b"content")
    path = "./named" if relative else str(tmp_path / "named")
    spelled: list[tuple[str, ...]] = []
    for name, kind in option_table().kinds.items():
        if kind in {"joined", "either", "comma"}:
            spelled.append((f"{name}{path}",))
        if kind in {"separate", "either", "pair"}:
            spelled.append((name, path))
        if kind in {"llvm-number", "llvm-choice", "llvm-text"}:
            spelled += [("-mllvm", f"-{name}={path}"), ("-mllvm", f"-{name}", "-mllvm", path)]
    assert len(spelled) > 2000

    digest = digest_file(tmp_path / "named")
    missed = [words for words in spelled if digest not in named_files(("-cc1", *words)).values()]
    assert not missed


def test_a_bare_name_is_found_where_options_have_a_sign_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named").write_bytes(b"content")
    for words in (("-fprofile-sample-use=named",), ("-mlink-builtin-bitcode", "named"), ("-fx=a,named",), ("named",)):
        assert list(named_files(words)) == ["named"]
    assert not named_files(("-Oz", "-fnamed", "other", "."))

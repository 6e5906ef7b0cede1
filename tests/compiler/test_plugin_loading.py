"""A clang that hides the LLVM inside it is refused with a sentence that names the way; scripts stand for it."""

from pathlib import Path

import pytest
from tests.scripts import script

from mlgokit.commands.doctor import diagnose_toolchain
from mlgokit.compiler.plugin_loading import why_no_plugin_loads
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.errors import ToolError

# As a clang with LLVM inside answers: it links the probe, but has nothing to bind it to.
STATIC = """
case "$*" in
  *--version*) echo 'Vendor clang version {version} (1)'; echo 'Target: x86_64-unknown-linux-gnu';;
  *-shared*) : > probe.so;;
  *-fpass-plugin=*) {answer}; exit 1;;
  *) for word; do output=$word; done; : > "$output";;
esac
"""
UNDEFINED = (
    "echo \"error: unable to load plugin './probe.so': 'Could not load library './probe.so': ./probe.so: "
    "undefined symbol: _ZN4llvm4errsEv'\" >&2"
)
REASON = "undefined symbol: _ZN4llvm4errsEv"


def compiler(folder: Path, answer: str = UNDEFINED, version: str = "22.1.0", *, headers: bool = True) -> Path:
    """An installation whose clang answers so to a plugin."""
    (folder / "bin").mkdir(parents=True)
    for name in ("clang", "clang++"):
        script(folder / "bin" / name, STATIC.format(version=version, answer=answer))
    if headers:
        header = folder / "include" / "llvm" / "Config" / "llvm-config.h"
        header.parent.mkdir(parents=True)
        header.write_text(f"#define LLVM_VERSION_MAJOR {version.split('.', maxsplit=1)[0]}\n")
    return folder / "bin" / "clang"


@pytest.mark.parametrize("version", ["22.1.0", "18.0.3"])
@pytest.mark.parametrize("headers", [True, False])
def test_a_static_clang_is_refused_and_told_of_replay(tmp_path: Path, version: str, headers: bool):
    clang = compiler(tmp_path, version=version, headers=headers)

    with pytest.raises(ToolError) as caught:
        find_toolchain(clang=clang, need_plugin=True)

    assert str(caught.value) == (
        f"clang {clang}: expected one that loads plugins, found one that hides the LLVM inside it ({REASON}); "
        "tune with another clang, and give this one the inlining decisions with `mlgokit export replay`"
    )
    assert find_toolchain(clang=clang).version == version


def test_doctor_says_so_too(tmp_path: Path):
    clang = compiler(tmp_path)

    found = diagnose_toolchain(Toolchain(major=22, version="22.1.0", clang=clang, clangxx=clang))

    (check,) = [check for check in found.checks if check.name == "plugin"]
    assert not check.works
    assert f"found one that hides the LLVM inside it ({REASON})" in check.detail
    assert "`mlgokit export replay`" in check.detail
    assert not found.usable


@pytest.mark.parametrize(
    "answer",
    [
        "echo \"error: unable to load plugin './probe.so': 'Plugin entry point not found in './probe.so'.\" >&2",
        "echo 'error: unknown argument' >&2",
        "true",
    ],
)
def test_a_clang_that_takes_the_probe_in_is_not_refused(tmp_path: Path, answer: str):
    clang = compiler(tmp_path, answer)

    assert not why_no_plugin_loads(clang)
    assert find_toolchain(clang=clang, need_plugin=True).clang == clang


def test_what_cannot_be_tried_is_not_refused(tmp_path: Path):
    clang = script(compiler(tmp_path), "exit 1")

    assert not why_no_plugin_loads(clang)
    assert not why_no_plugin_loads(tmp_path / "nothing")


def test_a_better_clang_is_taken_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler(tmp_path / "static", version="22.1.0")
    good = compiler(tmp_path / "good", "true", "19.1.7")
    # The scripts need a shell alone, and no other clang may be found beside it.
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("MLGOKIT_LLVM", "")
    monkeypatch.setenv("PATH", f"{tmp_path / 'static' / 'bin'}:{good.parent}:{tools}")
    monkeypatch.setattr("mlgokit.compiler.toolchain._SYSTEM_FOLDERS", str(tmp_path / "nowhere"))

    assert find_toolchain().version == "22.1.0"
    assert find_toolchain(need_plugin=True).clang == good

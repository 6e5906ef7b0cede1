import os
from pathlib import Path

import pytest
from tests.scripts import script

from mlgokit.compiler import program_version, toolchain as module
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, find_toolchain, find_toolchains, survey
from mlgokit.errors import ToolError


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return script(path, text)


def installation(root: Path, version: str, *, vendor: str = "Debian ", headers: bool = True) -> Path:
    """A folder that looks like /usr/lib/llvm-N from outside; the programs print versions and do nothing else."""
    major = version.split(".", 1)[0]
    clang = f"echo '{vendor}clang version {version} (1~deb12u1)'; echo 'Target: x86_64-pc-linux-gnu'"
    for name in ("clang", "clang++"):
        program(root / "bin" / name, clang)
    for name in ("opt", "llc"):
        program(root / "bin" / name, f"echo 'Debian LLVM version {version}'; echo '  Optimized build.'")
    program(root / "bin" / "ld.lld", f"echo 'Debian LLD {version} (compatible with GNU linkers)'")
    if headers:
        header = root / "include" / "llvm" / "Config" / "llvm-config.h"
        header.parent.mkdir(parents=True)
        header.write_text(f"/* x */\n#define LLVM_VERSION_MAJOR {major}\n#define LLVM_VERSION_MINOR 1\n")
    return root


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No compiler anywhere but in the folder that is returned, which is PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setattr(module, "_SYSTEM_FOLDERS", str(tmp_path / "nowhere"))
    monkeypatch.delenv(LOCATION_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_folders_in_the_path_that_cannot_be_looked_into_are_left_out(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    installation(tmp_path / "llvm", "19.1.7")
    closed = tmp_path / "closed"
    (closed / "bin").mkdir(parents=True)
    closed.chmod(0o600)
    # Who is root may look into any folder, but a name may be too long.
    monkeypatch.setenv("PATH", f"/{'x' * 300}:{closed}/bin:{closed}:{tmp_path}/llvm/bin:{bare_machine}")
    assert find_toolchain().version == "19.1.7"
    closed.chmod(0o700)


def test_tools_of_one_installation_belong_together(tmp_path: Path):
    root = installation(tmp_path / "llvm", "19.1.7")

    (found,) = find_toolchains([root])

    assert (found.major, found.version, found.vendor, found.supported) == (19, "19.1.7", "Debian", True)
    assert found.clangxx == root / "bin" / "clang++"
    assert (found.opt, found.llc, found.lld) == tuple(root / "bin" / name for name in ("opt", "llc", "ld.lld"))
    assert found.include_dir == root / "include"
    assert found.describe() == {
        "clang": "Debian clang version 19.1.7 (1~deb12u1)",
        "target": "x86_64-pc-linux-gnu",
        "lld": "19.1.7",
    }


@pytest.mark.parametrize(
    ("line", "major", "version", "vendor"),
    [
        ("Debian clang version 19.1.7 (3~deb12u1)", 19, "19.1.7", "Debian"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", 18, "18.1.3", "Ubuntu"),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", 15, "15.0.0", "Apple"),
        ("clang version 23.0.0git (https://example.org/llvm 0123abc)", 23, "23.0.0git", ""),
        ("Homebrew clang version 22.1.8", 22, "22.1.8", "Homebrew"),
        (
            "Android (12027248, based on r522817) clang version 18.0.1",
            18,
            "18.0.1",
            "Android (12027248, based on r522817)",
        ),
    ],
)
def test_version_lines_of_all_vendors_are_understood(tmp_path: Path, line: str, major: int, version: str, vendor: str):
    for name in ("clang", "clang++"):
        program(tmp_path / name, f"echo '{line}'")

    (found,) = find_toolchains([tmp_path])

    assert (found.major, found.version, found.vendor, found.version_text) == (major, version, vendor, line)


def test_apple_majors_are_not_llvm_majors(tmp_path: Path):
    (found,) = find_toolchains([installation(tmp_path, "22.0.0", vendor="Apple ")])

    assert not found.supported


def test_the_version_is_what_the_program_says_not_its_name(tmp_path: Path):
    for name in ("clang-19", "clang++-19", "clang++"):
        program(tmp_path / name, "echo 'clang version 22.1.0'")

    assert [found.major for found in find_toolchains([tmp_path])] == [22]


def test_tools_of_another_major_are_not_taken(tmp_path: Path):
    root = installation(tmp_path, "19.1.7")
    program(root / "bin" / "opt", "echo 'LLVM version 14.0.6'")
    program(root / "bin" / "opt-19", "echo 'LLVM version 19.1.7'")
    program(root / "bin" / "llc", "echo 'LLVM version 14.0.6'")

    (found,) = find_toolchains([root])

    assert found.opt == root / "bin" / "opt-19"
    assert found.llc is None


def test_supported_majors_with_headers_come_first(tmp_path: Path):
    roots = [
        installation(tmp_path / "a", "24.1.0"),
        installation(tmp_path / "b", "22.1.8", headers=False),
        installation(tmp_path / "c", "19.1.7"),
    ]

    assert [found.major for found in find_toolchains(roots)] == [19, 22, 24]


def test_two_names_of_one_program_are_one_toolchain(tmp_path: Path):
    root = installation(tmp_path / "llvm", "19.1.7")
    (tmp_path / "clang-19").symlink_to(root / "bin" / "clang")

    assert len(find_toolchains([tmp_path, root])) == 1


def test_the_environment_variable_wins(tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch):
    for path in (installation(tmp_path / "new", "22.1.8") / "bin").iterdir():
        (bare_machine / path.name).symlink_to(path)
    old = installation(tmp_path / "old", "17.0.6", headers=False)
    monkeypatch.setenv(LOCATION_VARIABLE, str(old))

    assert [found.major for found in find_toolchains()] == [17, 22]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo 'cannot find libLLVM.so' >&2; exit 127", "exit status 127 of --version, with: cannot find libLLVM.so"),
        ("true", "no version in the output of --version"),
        ("echo 'gcc 12.2.0'", "the version of another program"),
        ("echo 'clang version 19.1.7'", "no clang++ of major 19 with it"),
    ],
)
def test_a_broken_program_is_reported_beside_the_good_ones(tmp_path: Path, text: str, reason: str):
    broken = program(tmp_path / "broken" / "clang", text)
    good = installation(tmp_path / "good", "22.1.8")

    found = survey([broken.parent, good])

    assert [(entry.path, entry.reason) for entry in found.unusable] == [(broken, reason)]
    assert [entry.major for entry in found.toolchains] == [22]


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program_version, "VERSION_SECONDS", 0.2)
    program(tmp_path / "clang", "read -r line < /dev/zero; while :; do :; done")

    (entry,) = survey([tmp_path]).unusable

    assert entry.reason == "no answer to --version in 0.2 s"


def test_headers_of_another_major_do_not_count(tmp_path: Path):
    root = installation(tmp_path, "19.1.7")
    (root / "include" / "llvm" / "Config" / "llvm-config.h").write_text("#define LLVM_VERSION_MAJOR 14\n")

    (found,) = find_toolchains([root])

    assert found.include_dir is None


def test_no_clang_at_all(bare_machine: Path):
    with pytest.raises(
        ToolError, match=r"clang: expected one in PATH, .*, found none; run `sudo apt-get install .*clang-22"
    ):
        find_toolchain()


def test_an_asked_major_that_is_not_there(tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LOCATION_VARIABLE, str(installation(tmp_path / "llvm", "19.1.7")))

    with pytest.raises(
        ToolError, match=r"clang 22: expected .* of that major, found 19\.1\.7; run `.*clang-22 llvm-22-dev"
    ):
        find_toolchain(22)
    assert find_toolchain(19).major == 19


def test_tools_of_a_major_that_is_not_asked_for_are_not_started(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
):
    for major in (19, 22):
        root = installation(tmp_path / f"llvm-{major}", f"{major}.1.0")
        for tool in (root / "bin").iterdir():
            program(tool, f": > {tmp_path}/{tool.name}-{major}-started\n{tool.read_text()}")
        monkeypatch.setenv("PATH", str(root / "bin"), prepend=os.pathsep)
    assert find_toolchain(22).major == 22
    assert {path.name for path in tmp_path.glob("*-19-started")} == {"clang-19-started"}


def test_an_unsupported_major_compiles_but_takes_no_plugin(tmp_path: Path):
    clang = installation(tmp_path, "14.0.6") / "bin" / "clang"

    assert find_toolchain(clang=clang).major == 14
    with pytest.raises(
        ToolError, match=r"expected LLVM major 19, 21, 22 or 23 for the plugin, found Debian 14\.0\.6; run `"
    ):
        find_toolchain(clang=clang, need_plugin=True)
    with pytest.raises(ToolError, match=r"clang 14: expected LLVM major 19, 21, 22 or 23 for the plugin; .*"):
        find_toolchain(14, need_plugin=True)


def test_an_unsupported_major_is_answered_with_one_that_is_installed(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(
        ToolError, match=r"clang 20: expected LLVM major 19, 21, 22 or 23 for the plugin; run `.*clang-22"
    ):
        find_toolchain(20, need_plugin=True)
    monkeypatch.setenv(LOCATION_VARIABLE, str(installation(tmp_path / "llvm", "19.1.7")))
    with pytest.raises(ToolError, match=r"clang 20: .*; give --llvm 19, which is installed, or leave it out"):
        find_toolchain(20, need_plugin=True)


def test_a_variable_that_leads_to_no_clang_is_not_passed_over(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
):
    for path in (installation(tmp_path / "new", "22.1.8") / "bin").iterdir():
        (bare_machine / path.name).symlink_to(path)
    monkeypatch.setenv(LOCATION_VARIABLE, str(tmp_path / "typo"))

    with pytest.raises(ToolError, match=r"^MLGOKIT_LLVM=.*typo: expected the folder of an LLVM installation .* none"):
        find_toolchain()
    assert find_toolchain(22).major == 22


def test_the_clang_that_the_variable_names_is_taken_or_refused(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
):
    for path in (installation(tmp_path / "new", "22.1.8") / "bin").iterdir():
        (bare_machine / path.name).symlink_to(path)
    headless = installation(tmp_path / "headless", "22.1.8", headers=False)
    links = tmp_path / "links"
    links.mkdir()
    (links / "clang").symlink_to(headless / "bin" / "clang")
    for place in (headless, links):
        monkeypatch.setenv(LOCATION_VARIABLE, str(place))
        for major in (None, 22):
            assert find_toolchain(major).clang == headless / "bin" / "clang"
            with pytest.raises(ToolError, match=r"LLVM 22 headers: expected .*llvm-config\.h .*headless"):
                find_toolchain(major, need_plugin=True)


def test_missing_headers_name_their_package(tmp_path: Path):
    clang = installation(tmp_path, "22.1.8", headers=False) / "bin" / "clang"

    with pytest.raises(ToolError, match=r"LLVM 22 headers: expected .* found none; run `.* llvm-22-dev`"):
        find_toolchain(clang=clang, need_plugin=True)


def test_a_given_program_has_to_be_a_clang_of_the_given_major(tmp_path: Path):
    clang = installation(tmp_path, "19.1.7") / "bin" / "clang"

    with pytest.raises(ToolError, match=r"expected major 22, found 19\.1\.7; give another path"):
        find_toolchain(22, clang)
    with pytest.raises(
        ToolError, match=r"found nothing that can be read \(No such file or directory\); give another path"
    ):
        find_toolchain(clang=tmp_path / "nothing")

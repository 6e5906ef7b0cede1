"""House rules about text that no linter knows."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST_FILE = 700

# Put together from pieces, so that this file obeys the rule that it checks.
_FOLDERS = ("work/main", "work/shared", "tmp/", "root/", "home/", "opt/wheels", "opt/pypi")
_HOSTS = ("pypi org", "pythonhosted org", "npmjs org", "npmjs com", "conda-forge org", "deb debian org")
PLACES = re.compile(
    "|".join(
        (
            *(rf"(?<![\w.$}}~])/{folder}" for folder in _FOLDERS),
            *(re.escape(host.replace(" ", ".")) for host in _HOSTS),
        )
    )
)


def project_files() -> list[Path]:
    """Everything that is or would be committed."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    names = done.stdout.decode().split("\0")
    return [ROOT / name for name in sorted(set(names)) if name and (ROOT / name).is_file()]


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "replace").splitlines()


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sources(*folders: str) -> list[Path]:
    suffixes = {".py", ".cpp", ".h"}
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]


def test_no_file_names_a_place_on_one_machine_or_a_registry():
    found = [
        f"{named(path)}:{number}: {match[0]}"
        for path in project_files()
        for number, line in enumerate(lines(path), 1)
        for match in PLACES.finditer(line)
    ]

    assert not found, "\n".join(found)


def test_the_pattern_for_places_finds_them_and_nothing_else():
    slash = "/"
    for text in (f"cd {slash}tmp/x", f"'{slash}root/.cache'", "https://" + "pypi" + ".org/simple"):
        assert PLACES.search(text), text
    for text in ("$HOME/tmp/x", "./tmp/x", "a/root/b", "pypi-simple", "the root / the home"):
        assert not PLACES.search(text), text


def test_source_files_are_short():
    found = {named(path): len(lines(path)) for path in sources("src")}

    assert {name: length for name, length in found.items() if length > LONGEST_FILE} == {}


def test_tests_with_a_compiler_are_where_make_looks_for_them():
    marker = "mark" + ".llvm"
    found = {path.relative_to(ROOT / "tests").parts[0] for path in sources("tests") if marker in path.read_text()}

    assert found == {"llvm"}


def test_links_in_markdown_lead_somewhere():
    found: list[str] = []
    for path in project_files():
        if path.suffix != ".md":
            continue
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)", text):
            local = target.split("#", 1)[0]
            if local and not re.match(r"[a-z]+:", local) and not (path.parent / local).exists():
                found.append(f"{named(path)}: {target}")

    assert not found, "\n".join(found)


def test_documents_that_sources_name_exist():
    found = [
        f"{named(path)}:{number}: {name}"
        for path in project_files()
        if path.suffix in {".py", ".cpp", ".h", ".toml", ".sh"}
        for number, line in enumerate(lines(path), 1)
        for name in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", line)
        if not (ROOT / name).exists()
    ]

    assert not found, "\n".join(found)


def locked(name: str) -> dict[str, str]:
    """Package to version (and marker) of one list."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", "")
    entries = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("--hash=sha256:" in entry for entry in entries)
    return {entry.split("==")[0]: entry.split(" --hash")[0] for entry in entries}


def test_the_test_environment_is_the_training_environment_and_more():
    assert locked("train").items() <= locked("dev").items()


def test_every_dependency_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {
        "train": [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["train"]],
        "dev": [*project["dependency-groups"]["dev"], *project["dependency-groups"]["docs"]],
    }

    for name, requirements in wanted.items():
        packages = {re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0] for requirement in requirements}
        assert packages - set(locked(name)) == set(), name

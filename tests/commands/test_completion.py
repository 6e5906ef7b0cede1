"""Completion by the shells' own scripts."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.calls import ended

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p mlgokit | sed -E 's/.*-F ([^ ]+).*/\\1/')
echo "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert ended("completion", shell) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tu", {"tune"}),
        ("corpus inf", {"info"}),
        ("tune --bud", {"--budget"}),
        ("tune --objective li", {"linked"}),
        ("completion z", {"zsh"}),
        ("size --why main --f", {"--format"}),
        # A file, which the shell completes itself.
        ("size cmark-o", set()),
    ],
)
def test_bash_completes(words: str, expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bash = shutil.which("bash")
    assert bash is not None
    file = tmp_path / "mlgokit"
    file.write_text(script("bash", capsys))
    done = subprocess.run(
        [bash, "--norc", "-c", COMPLETE, "bash", file, "mlgokit", *words.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(done.stdout.split()) == expected


def test_each_shell_has_its_script(capsys: pytest.CaptureFixture[str]):
    assert script("zsh", capsys).startswith("#compdef mlgokit\n")
    assert "complete --no-files --command" in script("fish", capsys)

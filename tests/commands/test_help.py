"""Help in two levels, the version, and answers to typos; and that they need nothing of what runs a command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.calls import ended

from mlgokit.basic import Basic
from mlgokit.commands.help import basic_options, options_of
from mlgokit.commands.table import COMMANDS, Group
from mlgokit.manifest import package_version

SRC = Path(__file__).parents[2] / "src"
SCREEN = 40
"""Lines of a short help in 80 columns."""


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


# ---- Help ----


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_fits_one_screen(name: str, capsys: pytest.CaptureFixture[str]):
    for option in ("--help", "-h"):
        assert ended(*name.split(), option) == 0
        out, err = capsys.readouterr()
        assert not err
        lines = out.splitlines()
        assert len(lines) <= SCREEN
        assert max(map(len, lines)) <= 80
    options = options_of(COMMANDS[name])
    shown = basic_options(options)
    words = set(re.findall(r"[\w.-]+", out))
    assert {one.names[-1].upper() if one.is_positional else one.names[-1] for one in shown} <= words
    more = re.search(rf"^(\d+) more options: mlgokit {name} --help-all$", out, flags=re.MULTILINE)
    assert int(more[1] if more else 0) == len(options) - len(shown)


def test_options_stand_below_the_titles_that_their_fields_name(capsys: pytest.CaptureFixture[str]):
    assert ended("tune", "--help") == 0
    out = capsys.readouterr().out
    titles = re.findall(r"^([a-z ]+):$", out, flags=re.MULTILINE)
    assert titles == [one.value for one in Basic if one.value in titles]
    work = out.split("\nwork:\n")[1].split("\n\n")[0]
    assert "  --budget STR            Time for the search, such as 90s, 30m or 2h [30m]" in work.splitlines()
    assert "--search.fit.huber-bytes" not in out


def test_the_overview_groups_the_commands(capsys: pytest.CaptureFixture[str]):
    assert ended("--help") == 0
    out = capsys.readouterr().out
    assert re.findall(r"^([a-z ]+):$", out, flags=re.MULTILINE) == [group.value for group in Group]
    daily = out.split(f"{Group.DAILY.value}:\n")[1].split("\n\n")[0]
    assert re.findall(r"^  ([a-z]+)", daily, flags=re.MULTILINE)[:3] == ["init", "tune", "advise"]
    assert len(out.splitlines()) <= SCREEN


def test_help_is_a_word_as_well(capsys: pytest.CaptureFixture[str]):
    for words, option in ((("help",), ("--help",)), (("help", "tune"), ("tune", "--help"))):
        assert ended(*words) == 0
        text = capsys.readouterr().out
        assert ended(*option) == 0
        assert text == capsys.readouterr().out


def test_help_is_asked_for_before_the_words_of_another_program(capsys: pytest.CaptureFixture[str]):
    assert ended("build", "--plugin", "absent.so", "--", "make", "--help") != 0
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("mlgokit: ")


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert ended("--version") == 0
    assert capsys.readouterr() == (f"mlgokit {package_version()}\n", "")


# ---- Typos ----

ALL = "All options: mlgokit"


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        ("tun", "mlgokit: tun is not a command; did you mean tune?", "All commands: mlgokit --help"),
        ("corpus inof", "mlgokit: corpus inof is not a command; did you mean corpus info?", "mlgokit corpus --help"),
        ("info", "mlgokit: info is not a command; did you mean corpus info?", "All commands: mlgokit --help"),
        ("zzz", "mlgokit: zzz is not a command", "All commands: mlgokit --help"),
        ("", "mlgokit: expected a command after mlgokit, found none", "All commands: mlgokit --help"),
        ("export", "mlgokit: expected a command after mlgokit export, found none", "mlgokit export --help"),
        ("--jsn tune", "mlgokit: --jsn is not an option; did you mean --json?", f"{ALL} --help"),
        ("tune --bugdet 5m", "mlgokit tune: --bugdet is not an option; did you mean --budget?", f"{ALL} tune"),
        ("tune --bugdet=5m", "mlgokit tune: --bugdet is not an option; did you mean --budget?", f"{ALL} tune"),
        ("--json check --max_byte 5", "mlgokit check: --max_byte is not an option; did you mean --max-bytes?", ALL),
        (
            "tune --huber-byte 3",
            "mlgokit tune: --huber-byte is not an option; did you mean --search.fit.huber-bytes?",
            f"{ALL} tune --help-all",
        ),
        ("trace -q", "mlgokit trace: -q is not an option", f"{ALL} trace --help-all"),
        ("check a.so b.so", "mlgokit check: expected no further word, found b.so", f"{ALL} check --help-all"),
        ("check", "mlgokit check: expected PLUGIN, found none", f"{ALL} check --help"),
        ("--json size", "mlgokit size: expected FILE, found none", f"{ALL} size --help"),
        ("build -- make", "mlgokit build: expected --plugin PATH, found none", f"{ALL} build --help"),
        ("advise --seconds", "mlgokit advise: --seconds: expected a value, found none", f"{ALL} advise --help"),
        (
            "evaluate --options -O2 --build make",
            (
                "mlgokit evaluate: --options: expected a value, found none; write one that begins with a dash as "
                "--options=-x"
            ),
            f"{ALL} evaluate --help",
        ),
        (
            "advise --seconds --llvm 9",
            "mlgokit advise: --seconds: expected a value, found none",
            f"{ALL} advise --help",
        ),
        ("advise --seconds=5s", "mlgokit advise: --seconds: expected a number, found 5s", f"{ALL} advise --help"),
        (
            "tune --search.seed -1",
            "mlgokit tune: --search.seed: expected a whole number of at least 0, found -1",
            f"{ALL} tune --help",
        ),
        ("advise --seconds nan", "mlgokit advise: --seconds: expected a number, found nan", f"{ALL} advise --help"),
        ("tune --workers 1.5", "mlgokit tune: --workers: expected a whole number, found 1.5", f"{ALL} tune --help"),
        (
            "completion fsh",
            "mlgokit completion: shell: expected one of bash, zsh, fish, found fsh; did you mean fish?",
            f"{ALL} completion --help",
        ),
        (
            "size --by symbol app",
            (
                "mlgokit size: --by: expected one of section, symbol, source, library, template, crate, found app; its "
                "values go on to the next option, so put other words before it"
            ),
            f"{ALL} size --help",
        ),
        ("tune\x1b[2J", r"mlgokit: tune\x1b[2J is not a command", "All commands: mlgokit --help"),
    ],
)
def test_a_typo_is_answered_in_two_lines(words: str, first: str, second: str, capsys: pytest.CaptureFixture[str]):
    assert ended(*words.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    lines = err.splitlines()
    assert len(lines) == 2
    assert lines[0] == first
    assert second in lines[1]


def test_what_looks_like_a_typo_after_two_dashes_is_the_build(capsys: pytest.CaptureFixture[str]):
    assert ended("build", "--plugin", "absent.so", "--", "true", "--bugdet") == 4
    assert capsys.readouterr().err.startswith("mlgokit: absent.so: expected a plugin")


# ---- What is not imported ----

HEAVY = ("numpy", "tyro", "rich", "yaml", "asyncio", "requests", "mlgokit.builds", "mlgokit.compiler")


@pytest.mark.parametrize(
    "words",
    [
        "--help", "--help-all", "--version", "tun", "corpus", "corpus --help", "tune --help", "check --help",
        "train --help", "tune --bugdet 5m", "evaluate --plugn x", "tune --workers x", "size",
    ],
)  # fmt: skip
def test_nothing_that_runs_a_command_is_imported_for(words: str):
    program = (
        "import sys; from mlgokit.cli import main\n"
        f"try: main({words.split()!r})\n"
        f"finally: print('IMPORTED', *sorted({set(HEAVY)!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode in {0, 2}
    assert done.stderr.splitlines()[-1] == "IMPORTED"

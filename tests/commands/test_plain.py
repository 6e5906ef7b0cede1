"""A plain call is what tyro makes of it, and what is not plain is left to tyro."""

import subprocess
import sys

import pytest

from mlgokit.commands.parser import parse
from mlgokit.commands.plain import import_lazily, read_plain
from mlgokit.commands.table import COMMANDS

PLAIN = (
    "a.out",
    "--json a.out",
    "a.out --json",
    "old new",
    "old new --json --max-growth 0.5",
    "--top 3 a.out",
    "--top=3 a.out --by=symbol",
    "a.out --by section symbol",
    "--by template --top 007 a.out",
    "a.out --max-bytes 100 --max-growth 1",
    "a b --map a.map --map=b.map -o out.json",
    "a.out --format size-limit --output=out.json",
    "a.out --why operator<<",
    "a.out --why=-x",
    "a.out --why=",
)
OTHERS = (
    "",
    "--top 3",
    "a b c",
    "a --top 3 b",
    "a.out --top",
    "a.out --top three",
    "a.out --top -1",
    "a.out --top 1_0",
    "a.out --max-growth 1e3",
    "a.out --top 3 --top 4",
    "a.out --by",
    "a.out --by nothing",
    "a.out --by symbol other",
    "--by symbol a.out",
    "a.out --format=",
    "a.out --format Markdown",
    "a.out --map=",
    "a.out --max_bytes 3",
    "a.out --why None",
    "a None",
    "a.out --json=1",
    "a.out --tops 3",
    "-o",
    "-",
    "-- a.out",
)


@pytest.mark.parametrize("words", PLAIN)
def test_a_plain_call_is_what_tyro_makes_of_it(words: str) -> None:
    parsed, left = parse(["size", *words.split()], ["size"])

    assert left == []
    assert read_plain(COMMANDS["size"], words.split()) == (parsed.command, parsed.json)


@pytest.mark.parametrize("words", OTHERS)
def test_what_is_not_plain_is_left_to_tyro(words: str) -> None:
    assert read_plain(COMMANDS["size"], words.split()) is None


def test_options_that_belong_to_nested_fields_are_left_to_tyro() -> None:
    assert read_plain(COMMANDS["tune"], ["--search.seed", "3"]) is None


def test_a_module_that_is_not_there_is_missed_at_once() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'mlgokit_nothing'"):
        import_lazily("mlgokit_nothing")
    assert import_lazily("sys") is sys


def test_a_plain_call_imports_neither_tyro_nor_what_other_commands_need() -> None:
    watched = ("tyro.conf", "typeguard", "mlgokit.builds", "mlgokit.cluster", "mlgokit.compiler.toolchain", "numpy.ma")
    script = (
        "import sys\n"
        "from mlgokit.cli import main\n"
        "try:\n"
        "    main(['size', sys.executable, '--top', '1'])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        f"print([name for name in {watched!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)

    assert done.stderr == "[]\n"
    assert "Symbols" in done.stdout

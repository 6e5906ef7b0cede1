"""What is printed: a stranger's text gives a terminal no orders."""

import io
import sys

import pytest
from rich.console import Console

from mlgokit import cli, terminal
from mlgokit.commands.progress_bar import show_progress
from mlgokit.errors import CorpusError
from mlgokit.pages.model import Branch, Page, Table, Tree, Trees, number_columns, text_columns
from mlgokit.pages.terminal import print_page
from mlgokit.terminal import open_console, print_values, printable, say

EVIL = "\x1b]0;moon\x1b\x9b2J\u202egnp.o\udcff"
SHOWN = r"\x1b]0;moon\x1b\x9b2J\u202egnp.o\udcff"
OBEYED = set("\x1b\x9b\u202e\udcff")


def test_what_a_terminal_obeys_is_shown():
    out = io.StringIO()
    console = open_console(out, soft_wrap=True)
    say(console, EVIL, style="red")
    sizes = Table(title=EVIL, columns=(*text_columns(EVIL), *number_columns(EVIL)), rows=((EVIL, EVIL),))
    reasons = Table(title=EVIL, columns=text_columns("module", "reason"), rows=((EVIL, EVIL),))
    branch = Branch(how=EVIL, symbol=EVIL, marks=(EVIL,), note=EVIL, columns=(EVIL, EVIL), rows=((EVIL, EVIL),))
    tree = Tree(symbol=EVIL, change=EVIL, notes=(EVIL,), branches=(branch,))
    trees = Trees(title=EVIL, note=EVIL, trees=(tree,), terminal_rows=1)
    page = Page(
        title=EVIL,
        answer=EVIL,
        headline=EVIL,
        sentences=(EVIL,),
        warnings=(EVIL,),
        advice=(EVIL,),
        parts=(sizes, reasons, trees),
    )
    print_page(page, console, report=EVIL)
    assert out.getvalue().count(SHOWN) >= 24
    assert not set(out.getvalue()) & OBEYED


def test_styles_are_written_all_the_same(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    monkeypatch.setattr(
        terminal, "Console", lambda **words: Console(**words, force_terminal=True, color_system="standard")
    )
    say(open_console(out), f"a\tb {EVIL}", style="red")
    assert out.getvalue() == f"\x1b[31ma       b {SHOWN}\x1b[0m\n"


def test_other_letters_are_left_alone():
    text = "größe 中文 → 1.50 %\tb\n"
    assert printable(text) == text


def test_an_error_and_a_result_are_printed_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> int:
        raise CorpusError(f"module {EVIL}: expected none")

    monkeypatch.setattr(cli, "_run_and_print", fail)
    assert cli.run(None) == CorpusError.exit_code
    assert f"mlgokit: module {SHOWN}: expected none" in capsys.readouterr().err
    print_values({"name": EVIL}, open_console(sys.stdout))
    assert capsys.readouterr().out == f"name: {SHOWN}\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_is_shown_so(is_terminal: bool):
    out = io.StringIO()
    with show_progress(Console(file=out, force_terminal=is_terminal, width=200)) as report:
        report(0, 2, EVIL)
        report(2, 2, f"{EVIL} · {EVIL}")
    assert SHOWN in out.getvalue()
    assert "\x1b]0;moon" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_a_table_for_a_file_has_more_room_than_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert open_console(io.StringIO()).width == 120
    monkeypatch.setenv("COLUMNS", "70")
    assert open_console(io.StringIO()).width == 70

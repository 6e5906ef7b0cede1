"""One page as terminal, Markdown and HTML: what each kind of cell becomes, and what is left out where."""

import io
from collections.abc import Iterator

from mlgokit.pages.html import render_html
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import (
    Bar,
    Bars,
    Branch,
    Column,
    Compared,
    Page,
    Table,
    Tree,
    Trees,
    change_columns,
    count_columns,
    drop_empty,
    text_columns,
)
from mlgokit.pages.terminal import print_page
from mlgokit.terminal import open_console

SIZES = Table(
    title="Sizes",
    columns=(
        *text_columns("project"),
        *text_columns("language", terminal="below"),
        Column(title="Linked image", kind="compared", whole=True),
        Column(title="Objects", kind="compared"),
        *count_columns("modules", terminal="below"),
        *change_columns("compile time", terminal="none"),
    ),
    rows=(
        ("a", "C++", Compared(before=1000, after=900), Compared(before=2000.4, after=2100), 1, 0.5),
        ("b", "C", "not linked", None, 2, float("nan")),
    ),
    total=("all", "", None, None, 3, None),
)


def printed(page: Page, *, report: str = "") -> list[str]:
    out = io.StringIO()
    print_page(page, open_console(out), report=report)
    return out.getvalue().splitlines()


def test_compared_sizes_are_columns_of_documents() -> None:
    page = Page(title="t", headline="h", parts=(SIZES,))
    assert SIZES.titles() == ("project", "language", "before", "after", "change", "Objects", "modules", "compile time")
    assert SIZES.texts() == (
        ("a", "C++", "1,000", "900", "-10.00 %", "+4.98 %", "1", "+50.00 %"),
        ("b", "C", "not linked", "not linked", "-", "-", "2", "-"),
        ("all", "", "-", "-", "-", "-", "3", "-"),
    )
    assert "| a | C++ | 1,000 | 900 | -10.00 % | +4.98 % | 1 | +50.00 % |" in render_markdown(page)
    text = render_html(page)
    assert '<td class="smaller">\N{MINUS SIGN}10.00\N{NO-BREAK SPACE}%</td><td class="larger">+4.98' in text
    assert text.count('class="larger"') == 2


def test_compared_sizes_are_stacked_in_the_terminal() -> None:
    rows = [line.split() for line in printed(Page(title="t", headline="h", parts=(SIZES,)))]
    places = {row[0]: place for place, row in enumerate(rows) if row}
    assert rows[places["a"]] == ["a", "1,000", "2,000"]
    assert rows[places["a"] + 1] == ["C++,", "1", "module", "900", "-10.00", "%", "2,100", "+4.98", "%"]
    assert rows[places["b"]] == ["b", "not", "-"]
    assert rows[places["b"] + 1] == ["C,", "2", "modules", "linked"]
    assert places["b"] < places["all"]
    assert all("compile" not in row for row in rows)


def test_long_parts_say_how_much_more_there_is() -> None:
    numbers = Table(
        title="Numbers",
        columns=(*text_columns("name"), *count_columns("count")),
        rows=tuple((f"n{index}", index) for index in range(30)),
        terminal_rows=25,
    )
    reasons = Table(
        title="Failures",
        columns=text_columns("module", "reason"),
        rows=tuple((f"f{index}", "why") for index in range(9)),
        terminal_rows=7,
    )
    tree = Tree(symbol="f", change="+1 bytes", branches=tuple(Branch(how="calls", symbol="g") for _ in range(5)))
    hidden = Table(title="Hidden", columns=text_columns("a"), rows=(("x",),), terminal_rows=0)
    parts = (numbers, reasons, Trees(title="Why", trees=(tree,), terminal_rows=1), hidden)
    lines = printed(Page(title="t", headline="h", parts=parts))
    assert [line for line in lines if "more" in line] == [
        f"  {count} more; --json has all" for count in (5, 2, 4)
    ]  # fmt: skip
    assert lines.count("  f6: why") == 1
    assert "  calls g: " in lines
    assert "Hidden" not in lines


def test_symbols_of_a_page_are_looked_for_once() -> None:
    class Rows(tuple[tuple[str, int], ...]):
        __slots__ = ()
        looked = 0

        def __iter__(self) -> Iterator[tuple[str, int]]:
            Rows.looked += 1
            return super().__iter__()

    names = {f"_Z{number}": f"f{number}()" for number in range(30)}
    columns = (*text_columns("function"), *count_columns("bytes"))
    table = Table(title="t", columns=columns, rows=Rows((symbol, 1) for symbol in names), symbols=True)
    assert "f29()" in render_html(Page(title="t", headline="h", parts=(table,), names=names))
    assert Rows.looked < 10


def test_the_result_stands_at_the_end_and_advice_behind_it() -> None:
    page = Page(
        title="t",
        answer="Ship",
        headline="small.",
        parts=(Bars(title="Drawn", columns=("a", "b"), bars=(Bar(name="x", start=0, end=1, text="1"),)),),
        sentences=("s",),
        warnings=("w",),
        advice=("use it",),
    )
    assert printed(page, report="r.html") == ["s", "w", "Report: r.html", "Ship: small.", "use it"]
    assert "\n\ns\n\nWarning: w\n\nuse it\n" in render_markdown(page)
    text = render_html(page)
    assert text.index("<p>s</p>") < text.index('<p class="bad">w</p>') < text.index("<p>use it</p>")


def test_a_table_without_rows_is_no_part() -> None:
    empty = Table(title="e", columns=text_columns("a"), rows=())
    assert drop_empty([None, empty, SIZES]) == (SIZES,)

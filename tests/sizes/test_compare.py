"""The difference of two files, and the pages of both kinds."""

import dataclasses
import io
import json

import pytest

from mlgokit.pages.html import render_html
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.terminal import print_page
from mlgokit.sizes.compare import SizeDifference, compare_sizes
from mlgokit.sizes.page import difference_page, shorten, size_page
from mlgokit.sizes.record import GroupSize, OutsideSize, SectionSize, Sizes, SymbolSize
from mlgokit.terminal import open_console


def made(symbols: dict[str, int], *, section: int = 1000, sources: tuple[GroupSize, ...] = ()) -> Sizes:
    owned = sum(symbols.values())
    rows = tuple(
        SymbolSize(
            names=(name,), readable=name, section=".text", member="", address=0, file=size, memory=size, source="a.c"
        )
        for name, size in sorted(symbols.items(), key=lambda one: -one[1])
    )
    text = SectionSize(
        name=".text",
        member="",
        address=0,
        size=section,
        listed=True,
        file=section,
        memory=section,
        no_symbol_file=section - owned,
        no_symbol_memory=section - owned,
    )
    return Sizes(
        path="program",
        kind="ELF x86-64 program",
        file_bytes=section + 64,
        memory_bytes=section,
        sections=(text,),
        outside=(OutsideSize(name="ELF header", file=64),),
        symbols=rows,
        sources=sources,
    )


def test_symbols_are_new_gone_grown_and_shrunk() -> None:
    before = made({"gone": 10, "grown": 20, "shrunk": 30, "same": 40, "local.llvm.123": 5})
    after = made({"new": 15, "grown": 28, "shrunk": 29, "same": 40, "local.llvm.456": 5}, section=1012)
    found = compare_sizes(before, after)
    assert [(one.name, one.state, one.before, one.after) for one in found.symbols] == [
        ("new", "new", 0, 15),
        ("gone", "gone", 10, 0),
        ("grown", "grown", 20, 28),
        ("shrunk", "shrunk", 30, 29),
    ]
    assert found.unchanged_symbols == 2
    assert [(one.name, one.difference) for one in found.sections] == [(".text", 12)]
    assert sum(one.file_after - one.file_before for one in found.sections) == after.file_bytes - before.file_bytes
    assert SizeDifference.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_names_that_differ_from_build_to_build_are_matched() -> None:
    old = "_ZN4core3fmt5write17h0123456789abcdefE"
    new = "_ZN4core3fmt5write17hfedcba9876543210E"
    found = compare_sizes(made({old: 10}), made({new: 10}))
    assert (found.symbols, found.unchanged_symbols) == ((), 1)


def test_sources_are_compared_only_where_both_sides_know_them() -> None:
    sources = (GroupSize(name="a.c", symbols=1, file=10, memory=10),)
    assert compare_sizes(made({"f": 10}), made({"f": 12}, sources=sources)).sources == ()
    larger = (dataclasses.replace(sources[0], file=12),)
    found = compare_sizes(made({"f": 10}, sources=sources), made({"f": 12}, sources=larger))
    assert [(one.name, one.state) for one in found.sources] == [("a.c", "grown")]


def printed(page: object) -> list[str]:
    out = io.StringIO()
    console = open_console(out)
    print_page(page, console)  # pyright: ignore[reportArgumentType]
    return out.getvalue().splitlines()


@pytest.mark.parametrize("count", [1, 200])
def test_the_terminal_has_one_screen(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Wide enough for the names that are asked for, whatever the terminal is that runs the tests.
    monkeypatch.setenv("COLUMNS", "120")
    sizes = made({f"function_{index}_of_a_long_name_{'x' * 300}": 500 - index for index in range(count)}, section=10**6)
    lines = printed(size_page(sizes, top=5, width=60))
    assert len(lines) <= 24
    assert all(len(line) <= 120 for line in lines)
    assert any(line.strip().startswith("function_0_of_a") for line in lines)
    assert lines[-1].startswith("program: 1,000,064 bytes in the file, 1,000,000 in memory; ")


def test_documents_have_whole_names_and_the_map() -> None:
    name = "function_" + "x" * 100
    page = size_page(made({name: 10}))
    assert name in render_markdown(page)
    text = render_html(page)
    assert 'class="treemap"' in text
    assert json.dumps([name, 10]) in text


def test_a_difference_is_a_comment() -> None:
    found = compare_sizes(made({"f": 10, "g": 20}), made({"f": 18}, section=992))
    text = render_markdown(difference_page(found, width=60))
    assert "**Smaller.** 1,000 -> 992 bytes in memory (-8, -0.80 %), 1,064 -> 1,056 in the file (-8, -0.75 %)." in text
    assert "| g | gone | 20 | 0 | -20 | -100.00 % |" in text
    assert "Symbols: 0 new, 1 gone, 1 grown, 0 shrunk, 0 unchanged." in text
    assert printed(difference_page(found, top=5, width=60))[-1].startswith("Smaller: 1,000 -> 992 bytes")


def test_names_lose_their_middle() -> None:
    assert [shorten("a" * 50 + "b" * 50, 20), shorten("short", 20), shorten("long", None)] == [
        "aaaaaaaaaaaa...bbbbb",
        "short",
        "long",
    ]

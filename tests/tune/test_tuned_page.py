"""The report of a tuning: from what ``tuned.json`` has to a page."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from mlgokit.builds.images import BuiltImage
from mlgokit.builds.measurement import Comparison
from mlgokit.builds.recorded import TunedBuild, TunedProgram
from mlgokit.commands import report
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus
from mlgokit.pages.html import render_html
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import Bars, Curves, Page, Scatter, Table
from mlgokit.pages.terminal import print_page
from mlgokit.tune.page import tuned_page
from mlgokit.tune.replay import ReplayedModule, ReplayResult
from mlgokit.tune.result import CountedRun, SearchedFunctions, ShippedPolicies, SpillCosts, Tuned, TunedModule
from mlgokit.tune.search import CurvePoint

HOSTILE = "</script><b>|"


def linked(image: int) -> LinkedImage:
    return LinkedImage(
        status=LinkStatus.LINKED, text=image - 10, rodata=6, eh_frame=4, except_table=0, image=image, stderr=""
    )


def module(name: str, plain: float, tuned: float, **given: Any) -> TunedModule:
    facts: dict[str, Any] = {"plain": plain == tuned, "note": "", "decisions": 3}
    return TunedModule(name=name, plain_bytes=plain, tuned_bytes=tuned, **(facts | given))


TUNED = Tuned(
    plugin="tuned.so",
    table="tune/search/decisions",
    flag="-fpass-plugin=tuned.so",
    plain_bytes=1000.0,
    tuned_bytes=880.5,
    plain_link=linked(900),
    tuned_link=linked(810),
    judged=Comparison(before=50.0, after=49.0, pairs=4),
    taken_back=2,
    ended="the budget was spent",
    modules=(
        module("a.o", 500, 400.5, allocated=2),
        module(HOSTILE, 300, 300, note="larger in the link"),
        module("b.o", 200, 180),
    ),
    failures={"bad.c": "no such header"},
    curve=(
        CurvePoint(user_seconds=60, wall_seconds=40, compilations=9, score=950, change=-0.05),
        CurvePoint(user_seconds=120, wall_seconds=80, compilations=19, score=880, change=-0.12),
    ),
    user_seconds=130.0,
    compilations=20,
    left_out={"fast.c": "-O2"},
    seed=3,
    command="mlgokit tune",
    toolchain={"clang": "22"},
)


def part(page: Page, title: str, kind: type) -> Any:
    return next(one for one in page.parts if one.title == title and isinstance(one, kind))


def test_the_sums_the_search_and_what_each_module_adds() -> None:
    page = tuned_page(TUNED)

    assert (page.answer, page.good) == ("Smaller", True)
    assert page.headline == "By the objective: 50 -> 49 (-2.00 %)."
    assert tuned_page(dataclasses.replace(TUNED, judged=None)).headline == (
        "Objects only, not proved on your link: 1,000 -> 880 bytes (-11.95 %); --build with the build command, or "
        "--links with the folder of the configured build, proves it there."
    )
    sums: Table = part(page, "Sums", Table)
    assert [row[0] for row in sums.texts()] == ["Objects, each COMDAT once", "By the objective"]
    sums = part(tuned_page(dataclasses.replace(TUNED, judged=None)), "Sums", Table)
    assert [row[0] for row in sums.texts()] == ["Objects, each COMDAT once", "Linked image", "Linked .text"]
    assert sums.texts()[1][1:] == ("900", "810", "-90", "-10.00 %", "-")
    assert part(page, "The search", Curves).curves[0].points == ((60.0, -5.0), (120.0, -12.0))
    bars: Bars = part(page, "What each module adds", Bars)
    assert [(one.name, one.end) for one in bars.bars] == [("a.o", -99.5), ("b.o", -119.5), ("all", -119.5)]
    table: Table = part(page, "Modules, by bytes saved", Table)
    assert [row[:2] for row in table.texts()] == [
        ("a.o", "tuned"),
        ("b.o", "tuned"),
        (HOSTILE, "as plain, byte for byte"),
    ]
    assert part(page, "Change by size of the module", Scatter).before == (500, 200, 300)
    assert part(page, "Modules that were reverted, and why", Table).texts() == ((HOSTILE, "larger in the link"),)
    assert part(page, "Left as LLVM has it", Table).texts() == (
        ("bad.c", "does not compile", "no such header"),
        ("fast.c", "left out", "-O2"),
    )
    assert "<b>" not in render_html(page)
    assert "| a.o | tuned | 500 | 400 | -100 | -19.90 % | 3 | 0 | 2 |" in render_markdown(page)


def test_what_passes_gave_is_shown() -> None:
    def searched(before: int, after: int) -> SearchedFunctions:
        return SearchedFunctions(
            functions=4, changed=1, before_bytes=before, after_bytes=after, put_back=0, user_seconds=1, compilations=2,
            trials=0,
        )  # fmt: skip

    tuned = dataclasses.replace(
        TUNED,
        optimizer_passes=searched(950, 920),
        passes=searched(920, 900),
        modules=(dataclasses.replace(module("a.o", 500, 400), optimizer_passes=3, passes=4),),
    )
    page = tuned_page(Tuned.from_json(json.loads(json.dumps(tuned.to_json()))))

    assert [row[:3] for row in part(page, "Sums", Table).texts()[1:4]] == [
        ("Of that by inlining", "1,000", "950"),
        ("Of that by passes of the optimizer left out", "950", "920"),
        ("Of that by passes of the code generator left out", "920", "900"),
    ]
    table: Table = part(page, "Modules, by bytes saved", Table)
    assert table.texts()[0][table.titles().index("passes")] == "7"
    shown = io.StringIO()
    nothing = dataclasses.replace(searched(920, 920), functions=0, changed=0)
    print_page(tuned_page(dataclasses.replace(tuned, passes=nothing)), Console(file=shown, width=300))
    row = next(line for line in shown.getvalue().splitlines() if "passes of the optimizer left out" in line)
    assert row.split()[-8:] == ["950", "920", "-30", "-3.16", "%", "1", "of", "4"]
    assert "Passes of the code generator: none could be tried in the time that was left" in shown.getvalue()


def test_what_inlining_gave_is_told_beside_what_else_gave_something() -> None:
    def told(tuned: Tuned) -> list[tuple[str, ...]]:
        rows = part(tuned_page(tuned), "Sums", Table).texts()
        return [row[:4] for row in rows if row[0].startswith("Of that by")]

    assert told(TUNED) == []
    shipped = dataclasses.replace(TUNED, shipped=ShippedPolicies(name="builtin:Oz", bytes=930, before_bytes=900))
    assert told(shipped) == [
        ("Of that by inlining", "1,000", "900", "-100"),
        ("Of that by builtin:Oz in the plugin", "900", "880.5", "-20"),
    ]
    without = tuple(dataclasses.replace(one, decisions=0) for one in TUNED.modules)
    assert [row[0] for row in told(dataclasses.replace(shipped, modules=without))] == [
        "Of that by builtin:Oz in the plugin"
    ]


def test_modules_that_are_paths_are_shown_without_the_folder_that_all_are_in() -> None:
    modules = (
        module("/work/project/build/a.o", 500, 400),
        module("/work/project/lib/b.o", 500, 500, note="larger in the link"),
    )
    page = tuned_page(dataclasses.replace(TUNED, modules=modules))

    assert [row[0] for row in part(page, "Modules, by bytes saved", Table).texts()] == ["build/a.o", "lib/b.o"]
    assert next(bar.name for bar in part(page, "What each module adds", Bars).bars) == "build/a.o"
    assert part(page, "Modules that were reverted, and why", Table).texts() == (("lib/b.o", "larger in the link"),)
    alone = tuned_page(dataclasses.replace(TUNED, modules=modules[:1]))
    assert part(alone, "Modules, by bytes saved", Table).texts()[0][0] == "a.o"
    mixed = tuned_page(dataclasses.replace(TUNED, modules=(*modules, module("c.o", 9, 8))))
    assert part(mixed, "Modules, by bytes saved", Table).texts()[0][0] == "/work/project/build/a.o"


def test_the_time_of_a_continued_tuning_is_that_of_all_sessions() -> None:
    def time_of(tuned: Tuned) -> str:
        return next(one for one in tuned_page(tuned).sentences if "minutes of processor time" in one)

    once = dataclasses.replace(TUNED, wall_seconds=90.0)
    assert "processor time, 1.5 minutes in all; the budget" in time_of(once)
    again = dataclasses.replace(once, earlier_seconds=600.0)
    assert "processor time, 11.5 minutes in all, 1.5 of them in the last session; the budget" in time_of(again)


def test_programs_of_the_build_are_shown() -> None:
    images = [
        BuiltImage(status="linked", image=size, text=size, bss=8, file=size + 50, compressed=size // 2, bare=True)
        for size in (100, 90)
    ]
    built = TunedBuild(
        programs=(
            TunedProgram(program="tool", plain=images[0], tuned=images[1]),
            TunedProgram(program="lib", plain=images[0], tuned=BuiltImage(status="failed", reason="no main")),
        ),
        tests="All tests pass.",
        notes=(),
        line="CXXFLAGS=-fpass-plugin=tuned.so",
    )
    page = tuned_page(Tuned.from_json(json.loads(json.dumps(dataclasses.replace(TUNED, built=built).to_json()))))

    table = part(page, "Programs", Table)
    assert table.texts() == (("tool", "100", "90", "-10.00 %", "-10", "-10", "0", "-10", "-5"),)
    # What no program has is left out: read-only data, unwind tables, relocations, data.
    assert table.titles()[4:] == (".text", "flash", "RAM", "file", "compressed")
    assert page.headline == "tool: 100 -> 90 bytes (-10.00 %)."
    assert page.number == "-10.00 %"
    assert '<p class="number yes">\u221210.00\u00a0%</p>' in render_html(page)
    compressed = tuned_page(dataclasses.replace(TUNED, built=built, objective="compressed"))
    assert compressed.headline == "tool: 50 -> 45 bytes (-10.00 %)."
    assert page.sentences[-2:] == ("lib: cannot be compared: no main.", "All tests pass.")
    assert page.advice == ("Add to the build: CXXFLAGS=-fpass-plugin=tuned.so",)


def test_what_the_pretrained_policies_save_alone_is_beside_what_the_search_saves() -> None:
    shipped = ShippedPolicies(name="builtin:Oz", bytes=950)
    page = tuned_page(dataclasses.replace(TUNED, judged=None, shipped=shipped))

    assert page.parts[0].title == "What is saved"
    assert [(one.name, one.end) for one in part(page, "What is saved", Bars).bars] == [
        ("builtin:Oz", -50),
        ("tuned", -119.5),
    ]
    # What a command measures is in no relation to the bytes of the account.
    assert tuned_page(dataclasses.replace(TUNED, shipped=shipped)).parts[0] == page.parts[0]


def test_a_cargo_build_without_gain_is_not_told_to_use_the_plugin() -> None:
    plain = tuple(module(name, 100, 100) for name in ("a", "b"))
    page = tuned_page(dataclasses.replace(TUNED, modules=plain, judged=None, cargo_programs={"a": (100, 100)}))
    assert page.answer == "Nothing was found"
    assert page.advice == ("Nothing was found that pays: the build is the same without the plugin, so leave it out.",)


def test_modules_that_grew_are_shown_before_those_that_are_as_plain() -> None:
    modules = (module("a", 100, 100), module("b", 100, 110), module("c", 100, 90))
    table = part(tuned_page(dataclasses.replace(TUNED, modules=modules)), "Modules, by bytes saved", Table)
    assert [row[0] for row in table.rows] == ["c", "b", "a"]
    assert table.terminal_rows == 2


def test_a_page_without_the_programs_of_the_search_has_no_map(tmp_path: Path) -> None:
    assert tuned_page(TUNED, tmp_path).parts == tuned_page(TUNED).parts


def test_costs_are_shown_where_they_count() -> None:
    costs = SpillCosts(functions=4, plain=20.0, tuned=15.0, change=-0.3)
    allocated = SearchedFunctions(
        functions=4, changed=1, before_bytes=9, after_bytes=9, put_back=0, user_seconds=1, compilations=2, trials=3,
        costs=costs,
    )  # fmt: skip
    page = tuned_page(
        dataclasses.replace(
            TUNED, allocated=allocated, modules=(dataclasses.replace(module("a.o", 9, 9, costs=costs), plain=False),)
        )
    )

    assert (page.answer, page.headline) == (
        "Cheaper",
        "Cost of spills, reloads and copies, summed up: 20 -> 15 (-25.00 %).",
    )
    assert part(page, "What each module adds", Bars).columns == ("module", "cost")
    assert tuned_page(dataclasses.replace(TUNED, judged=None, tuned_bytes=1000.0)).answer == "Nothing was found"


def test_a_report_is_made_of_the_json(tmp_path: Path) -> None:
    (tmp_path / "tuned.json").write_text(json.dumps(TUNED.to_json()))

    assert Tuned.from_json(json.loads((tmp_path / "tuned.json").read_text())) == TUNED
    told = report.run(report.MakeReport(result=tmp_path / "tuned.json"))
    assert told == {"html": str(tmp_path / "tuned.html"), "markdown": str(tmp_path / "tuned.md")}
    assert (tmp_path / "tuned.html").read_text() == render_html(tuned_page(TUNED))


def test_a_replay_is_on_the_page_of_the_tuning() -> None:
    one = ReplayedModule(
        name="a.o", state="replayed", decisions=2, plain_bytes=100, replayed_bytes=95, tuned_bytes=90,
        plugin_plain_bytes=100,
    )  # fmt: skip
    replay = ReplayResult(
        modules=(one,), failures={"b.o": "crashed"}, decisions=2, disputed=0, rounds=1, plugin_plain_bytes=100,
        tuned_bytes=90, plain_bytes=100, replayed_bytes=95, flag="--config=a.cfg",
    )  # fmt: skip
    page = tuned_page(dataclasses.replace(TUNED, replay=replay))

    assert part(page, "Modules that are replayed, by bytes saved", Table).texts() == (
        ("a.o", "replayed", "2", "100", "95", "-5", "-10"),
    )
    assert part(page, "Not replayed", Table).texts() == (("b.o", "does not compile", "crashed"),)
    assert page.sentences[-1].startswith(
        "The list keeps 50 % of the plugin's saving. It has 2 decisions; modules disagree"
    )
    assert page.advice[:3] == (
        "Add to the build: -fpass-plugin=tuned.so",
        "Without the plugin, by LLVM's inline replay:",
        "Add to the build: --config=a.cfg",
    )


def test_a_path_with_a_space_is_quoted_where_it_is_to_be_added() -> None:
    flag = "-fpass-plugin=/my proj/tuned.plugin"
    found = dataclasses.replace(TUNED, versioned="/my proj/tuned.plugin", flag=flag)
    assert tuned_page(found).advice == (f"Add to the build: '{flag}'",)


def test_of_many_modules_those_that_stay_plain_are_only_counted():
    many = tuple(module(f"{index}.o", 500, 500 - (index < 3)) for index in range(1300))

    def table_of_modules(count: int) -> Table:
        parts = tuned_page(dataclasses.replace(TUNED, modules=many[:count])).parts
        (table,) = (part for part in parts if isinstance(part, Table) and part.title == "Modules, by bytes saved")
        return table

    table = table_of_modules(1300)
    assert [row[0] for row in table.rows] == ["0.o", "1.o", "2.o"]
    assert table.note.endswith(" 1,297 modules that stay as the plain build has them are not listed.")
    assert len(table_of_modules(200).rows) == 200


def test_counted_runs_are_the_headline():
    image = BuiltImage(status="linked", image=1000)
    built = TunedBuild(
        programs=(TunedProgram(program="app", plain=image, tuned=dataclasses.replace(image, image=1010)),),
        tests="",
        notes=(),
        line="CFLAGS=...",
    )
    runs = (
        CountedRun(command="./app a", held_out=False, plain=2000, tuned=1900),
        CountedRun(command="./app b", held_out=True, plain=1000, tuned=990),
    )
    page = tuned_page(
        dataclasses.replace(TUNED, objective="instructions", built=built, runs=runs, counter="callgrind (3.19)")
    )

    assert page.answer == "Fewer instructions"
    assert page.good
    assert page.headline == (
        "Executed instructions: 2,000 -> 1,900 (-5.00 %); of runs that are not in the profile: 1,000 -> 990 (-1.00 %); "
        "image 1,000 -> 1,010 bytes (+1.00 %)."
    )
    table = part(page, "Runs", Table)
    assert table.rows[1][:4] == ("./app b", "no", 1000, 990)
    assert "callgrind (3.19)" in table.note
    assert part(page, "Sums", Table).rows[0][0] == "Instructions by LLVM's estimate, in bytes that they are worth"

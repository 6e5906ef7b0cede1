"""Which decisions come into the list of a build, and which are left out again."""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from mlgokit.builds.cargo import CargoBuild, CargoRequest
from mlgokit.builds.compilers import CompilerOptions
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.errors import CorpusError
from mlgokit.export.replay import ReplayLine, write_replay
from mlgokit.pages.terminal import print_page
from mlgokit.progress import say_nothing
from mlgokit.testing import toy_sizes
from mlgokit.tune import replay_export
from mlgokit.tune.page import replay_page
from mlgokit.tune.replay import CompileAll, ReplayResult, ReplaySource, replay_build, replay_list
from mlgokit.tune.replay_export import ReplayRequest


def line(callee: str, caller: str, *, inlined: bool = True, at: str = "1:1") -> ReplayLine:
    return ReplayLine(callee, caller, f"{caller}:{at}", inlined)


def source(name: str, lines: Sequence[ReplayLine], *, saved: int = 10) -> ReplaySource:
    plain = toy_sizes({f"main of {name}": 100})
    return ReplaySource(
        name=name,
        plain=plain,
        plugin_plain=plain,
        tuned=toy_sizes({f"main of {name}": 100 - saved}),
        lines=lines,
    )


def listed(*sources: ReplaySource) -> tuple[list[ReplayLine], int]:
    return replay_list(sources, objective=Objective.LINK_AWARE)


def test_modules_that_the_plugin_does_not_make_smaller_have_no_lines():
    small, same = source("a", [line("f", "g")]), source("b", [line("h", "i")], saved=0)
    assert listed(small, same) == ([line("f", "g")], 0)


def test_the_first_module_has_its_way_about_a_site_that_two_know():
    first, second = line("f", "g"), line("f", "g", inlined=False)
    assert listed(source("a", [first]), source("b", [second, line("h", "i")])) == ([first, line("h", "i")], 1)


@pytest.mark.parametrize(("inlined", "kept"), [(2, [line("f", "g")]), (1, [])])
def test_copies_of_a_call_at_one_place_are_decided_as_most_of_them_are(inlined: int, kept: list[ReplayLine]):
    lines = [*[line("f", "g")] * inlined, line("f", "g", inlined=False)]
    assert listed(source("a", lines)) == (kept, 1)


def compiling(bytes_of: Mapping[str, Mapping[str, int]]) -> CompileAll:
    """Each module has 100 bytes, and so many more for each callee that the list names; -1000 crashes the compiler."""

    def compile_all(lines: Sequence[ReplayLine]) -> tuple[dict[str, ObjectSizes], dict[str, str]]:
        sizes: dict[str, ObjectSizes] = {}
        failures: dict[str, str] = {}
        for name, effects in bytes_of.items():
            size = 100 + sum(effects.get(one.callee, 0) for one in lines)
            if size < 0:
                failures[name] = "crashed"
            else:
                sizes[name] = toy_sizes({f"main of {name}": size})
        return sizes, failures

    return compile_all


def replayed(
    sources: Sequence[ReplaySource], bytes_of: Mapping[str, Mapping[str, int]]
) -> tuple[list[ReplayLine], ReplayResult]:
    return replay_build(sources, compiling(bytes_of), objective=Objective.LINK_AWARE)


def test_what_all_modules_gain_from_stays():
    lines, found = replayed([source("a", [line("f", "g")]), source("b", [])], {"a": {"f": -8}, "b": {}})
    assert lines == [line("f", "g")]
    assert (found.plain_bytes, found.replayed_bytes, found.tuned_bytes, found.rounds) == (200, 192, 180, 1)
    assert [one.state for one in found.modules] == ["replayed", "nothing to replay"]
    assert found.share == pytest.approx(0.4)


def test_a_module_that_is_larger_than_plain_loses_its_lines_and_keeps_no_other_from_its_own():
    lines, found = replayed(
        [source("a", [line("f", "g")]), source("b", [line("h", "i")])], {"a": {"f": -8}, "b": {"h": 3}}
    )
    assert lines == [line("f", "g")]
    assert [(one.name, one.state) for one in found.modules] == [("a", "replayed"), ("b", "left out")]
    assert all(one.replayed_bytes <= one.plain_bytes for one in found.modules)


def test_a_module_that_comes_to_sites_of_others_takes_all_of_the_functions_out_that_it_knows():
    shared, other = line("inner", "shared"), line("f", "g")
    b = source("b", [line("shared", "main")], saved=0)
    lines, found = replayed([source("a", [shared, other]), b], {"a": {"inner": -5, "f": -8}, "b": {"inner": 1}})
    assert lines == [other]
    assert (found.rounds, found.replayed_bytes) == (4, 192)


def test_lines_that_save_nothing_are_dropped():
    lines, found = replayed([source("a", [line("f", "g")]), source("b", [])], {"a": {"f": -8}, "b": {"f": 1}})
    assert (lines, found.decisions, found.change) == ([], 0, 0)
    text = io.StringIO()
    print_page(replay_page(found), Console(file=text, width=160))
    assert "Nothing was written" in text.getvalue()


def test_what_line_tables_alone_make_larger_keeps_its_lines_if_the_whole_is_smaller():
    sources = [source("a", [line("f", "g")]), source("b", [line("h", "i")])]
    with_tables = {"a": {"f": -8}, "b": {"h": -1}}

    def compile_all(lines: Sequence[ReplayLine]) -> tuple[Mapping[str, ObjectSizes], Mapping[str, str]]:
        sizes, failures = compiling(with_tables)(lines)
        return {**sizes, "b": toy_sizes({"main of b": int(sizes["b"].totals.text) + 3})}, failures

    lines, found = replay_build(sources, compile_all, objective=Objective.LINK_AWARE)
    assert lines == [line("f", "g"), line("h", "i")]
    assert (found.larger, found.replayed_bytes, found.rounds) == (("b",), 194, 2)
    text = io.StringIO()
    print_page(replay_page(found), Console(file=text, width=160))
    assert "Larger than plain by line tables alone, with this compiler: b" in text.getvalue()
    with_tables["a"]["f"] = -1
    assert replay_build(sources, compile_all, objective=Objective.LINK_AWARE)[0] == []


def test_a_module_that_does_not_compile_with_the_list_is_left_out_and_compiles():
    lines, found = replayed(
        [source("a", [line("f", "g")]), source("b", [line("h", "i")])], {"a": {"f": -8}, "b": {"h": -1000}}
    )
    assert lines == [line("f", "g")]
    assert not found.failures
    _, broken = replayed([source("a", [line("f", "g")])], {"a": {"f": -1000, "": 0}})
    assert not broken.failures


def test_what_is_left_is_said():
    lines, found = replayed(
        [source("a", [line("f", "g")]), source("b", [line("h", "i")])], {"a": {"f": -8}, "b": {"h": 3}}
    )
    text = io.StringIO()
    print_page(replay_page(dataclasses.replace(found, flag="--config=a b")), Console(file=text, width=160))
    assert len(lines) == 1
    for words in (
        "2 modules: 1 replayed, 1 left out",
        "keeps 40 % of the plugin's saving",
        "has 1 decisions",
        "Add to the build: '--config=a b'",
        "strip -g",
    ):
        assert words in text.getvalue()
    assert found.to_json()["share"] == found.share


def test_an_earlier_list_stays_where_a_cargo_build_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> CargoBuild:
        raise CorpusError("cargo failed")

    monkeypatch.setattr(replay_export, "open_cargo", fail)
    earlier = write_replay(tmp_path, [ReplayLine("f", "g", "g:1:2", inlined=True)], rust=True)
    cargo = CargoRequest(
        words=("cargo", "build"), folder=tmp_path, scratch=tmp_path / "scratch", compiler=CompilerOptions()
    )
    asked = ReplayRequest(plugin=tmp_path / "p.so", output=tmp_path, cargo=cargo, compiler=CompilerOptions())
    with pytest.raises(CorpusError, match="cargo failed"):
        replay_export._export_cargo(asked, cargo, objective=Objective.LINK_AWARE, report=say_nothing)
    assert earlier.lines.exists()
    assert earlier.config.exists()


def test_a_list_that_keeps_nothing_keeps_no_less():
    _, found = replayed([source("a", [])], {})
    assert found.tuned_change < 0
    assert f"{100 * found.share:.0f} %" == "0 %"

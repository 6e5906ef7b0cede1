import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mlgokit.builds.images import BuiltImage
from mlgokit.builds.recorded import TunedBuild, TunedProgram
from mlgokit.commands.check import Check, exit_code
from mlgokit.errors import InputError
from mlgokit.pages.terminal import print_page
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import DecisionTable, TuningSummary, make_entry
from mlgokit.testing import ToyCall, ToyModule, toy_compiler, toy_source
from mlgokit.tune.check import CheckedModule, CheckResult, check_plugin, find_violations, read_programs
from mlgokit.tune.check_page import check_page, verdict
from mlgokit.tune.result import SpillCosts


def kept(*, tuned: float = 940.0, module: float = 440.0, decisions: int = 50, allocations: int = 0) -> CheckResult:
    one = CheckedModule(
        name="a/one.o", state="tuned", asked=50, kept=40, allocated=3, plain_bytes=500.0, tuned_bytes=module
    )
    two = CheckedModule(name="a/two.o", state="new", asked=0, kept=0, allocated=0, plain_bytes=500.0, tuned_bytes=500.0)
    return CheckResult(
        plugin="tuned.so",
        modules=(one, two),
        gone=("a/old.o",),
        failures={"a/bad.o": "plainly: the compiler reported an error: why"},
        decisions=decisions,
        asked=50,
        kept=40,
        allocations=allocations,
        allocations_kept=3,
        promised_change=-0.08,
        plain_bytes=1000.0,
        tuned_bytes=tuned,
        plain_link=None,
        tuned_link=None,
    )


def test_the_verdict_says_what_is_kept_and_what_to_do():
    lost = verdict(kept())
    assert lost == (
        "40 of 50 decisions (80 %) still apply, the build changes by -6.0 %, -8.0 % when it was tuned: "
        "tuning again is worth it: `mlgokit tune --start tuned.so`"
    )
    assert verdict(kept(tuned=930.0)).endswith("tuning again can wait")
    assert verdict(dataclasses.replace(kept(), plugin="my proj/tuned.so")).endswith("--start 'my proj/tuned.so'`")
    assert "1 module grew: `mlgokit tune --start tuned.so --budget 0s` reverts it" in verdict(kept(module=501.0))
    assert kept(decisions=0).share == 1
    assert "(80 %) and 3 of 4 allocated functions still apply" in verdict(kept(allocations=4))


def test_modules_that_only_policies_make_smaller_are_listed_and_those_left_plain_are_not():
    check = kept()
    one, _ = check.modules
    policies = dataclasses.replace(one, name="a/policies.o", state="by policies", asked=0, kept=0)
    plain = dataclasses.replace(policies, name="a/plain.o", state="left plain", tuned_bytes=500.0)
    text = io.StringIO()
    print_page(check_page(dataclasses.replace(check, modules=(one, policies, plain))), Console(file=text, width=200))
    assert "3 modules: 1 tuned, 1 by policies, 1 left plain, 0 new; 1 of the plugin's are gone" in text.getvalue()
    assert "a/policies.o  by policies" in text.getvalue()
    assert "a/plain.o" not in text.getvalue()


def test_what_is_gone_larger_or_broken_is_named():
    text = io.StringIO()
    out = {f"a/{number}.o": "why not" for number in range(7)}
    print_page(check_page(dataclasses.replace(kept(module=501.0), left_out=out)), Console(file=text, width=200))
    assert "  a/6.o: left out: why not\n" in text.getvalue()
    for words in ("Gone: a/old.o", "Larger than plain: a/one.o", "a/bad.o: does not compile: ", "1 tuned", "1 new"):
        assert words in text.getvalue()


COSTLY = CheckedModule(
    name="a/one.o",
    allocated=2,
    plain_bytes=500,
    tuned_bytes=512,
    costs=SpillCosts(functions=3, plain=60.0, tuned=54.0, change=-0.05),
)
FOR_COSTS = CheckResult(
    plugin="tuned.so",
    modules=(COSTLY,),
    failures={"a/bad.o": "plainly: the compiler reported an error: why"},
    allocations=4,
    allocations_kept=3,
    promised_change=-0.1,
    plain_bytes=500,
    tuned_bytes=512,
    costs=COSTLY.costs,
    left_out={"b.c": "why not"},
)


def with_costs(*, plain: float = 60.0, tuned: float = 54.0) -> CheckResult:
    return dataclasses.replace(FOR_COSTS, costs=SpillCosts(functions=3, plain=plain, tuned=tuned, change=-0.05))


def test_the_verdict_about_costs_says_what_is_kept_and_what_to_do():
    assert verdict(FOR_COSTS) == (
        "3 of 4 allocated functions (75 %) are as they were, the sum of costs changes by -10.0 %, -10.0 % when it was "
        "tuned: tuning again can wait"
    )
    assert verdict(with_costs(tuned=57.0)).endswith(
        "tuning again is worth it: `mlgokit tune --objective spill-cost --start tuned.so`"
    )


@pytest.mark.parametrize(("promised", "again"), [(None, False), (-0.1, False), (-0.12, False), (-0.13, True)], ids=str)
def test_a_fifth_of_the_promise_may_be_lost(promised: float | None, again: bool):
    assert dataclasses.replace(FOR_COSTS, promised_change=promised).tune_again is again


def test_a_function_that_costs_more_is_named_and_reason_enough():
    worse = dataclasses.replace(FOR_COSTS, modules=(dataclasses.replace(COSTLY, worse=("f", "g")),))
    assert worse.tune_again
    text = io.StringIO()
    print_page(check_page(worse), Console(file=text, width=200))
    for words in (
        "Costs more than plain in a/one.o: f, g",
        "-10.00 %",
        "+12",
        "a/bad.o: does not compile: ",
        "b.c: left out",
    ):
        assert words in text.getvalue()


def test_without_functions_nothing_is_lost():
    nothing = dataclasses.replace(with_costs(plain=0.0, tuned=0.0), allocations=0, allocations_kept=0)
    assert (nothing.share, nothing.change) == (1, 0)


def built_of(**sizes: int) -> TunedBuild:
    def image(size: int) -> BuiltImage:
        return BuiltImage(status="linked", image=size) if size else BuiltImage(status="failed", reason="no main")

    programs = tuple(
        TunedProgram(program=name, plain=BuiltImage(status="linked", image=1000), tuned=image(size))
        for name, size in sizes.items()
    )
    return TunedBuild(programs=programs, tests="", notes=(), line="")


def test_programs_that_are_linked_say_what_grew_and_their_modules_do_not():
    grown = kept(tuned=930.0, module=501.0)
    assert grown.larger == ("a/one.o",)
    assert verdict(dataclasses.replace(grown, built=built_of(app=990, broken=0))).endswith("tuning again can wait")
    larger = dataclasses.replace(grown, built=built_of(app=1001, tool=1000))
    assert larger.larger == ("app",)
    assert "1 program grew: `mlgokit tune --start tuned.so --budget 0s` reverts it" in verdict(larger)


def test_a_plugin_without_decisions_has_none_that_apply():
    policies = dataclasses.replace(kept(tuned=930.0, decisions=0), kept=0)
    assert verdict(policies).startswith("its policies alone decide, the build changes by -7.0 %")


def test_a_program_may_have_a_limit_of_its_own():
    built = built_of(app=900, tool=1010)
    earlier = {"app": 800, "tool": 1000}
    assert find_violations(
        built, max_bytes=1000, max_growth=0.5, earlier=earlier, bytes_of={"tool": 2000}, growth_of={"app": 20.0}
    ) == ("tool: 1,010 bytes, 1.00 % more than the 1,000 of --against; --max-growth is 0.5 %",)
    assert find_violations(built, max_bytes=None, max_growth=None, earlier={}, bytes_of={"app": 899, "gone": 1}) == (
        "app: 900 bytes, 1 more than --max-bytes 899",
        "gone: has a limit, and today's build does not link it",
    )


def test_strict_fails_for_whatever_no_longer_applies():
    config = Check(plugin=Path("tuned.so"), strict=True)
    fresh = dataclasses.replace(kept(), decisions=5, kept=5, allocations=0, allocations_kept=0, gone=(), failures={})
    assert exit_code(config, fresh) == 0
    for stale in ({"kept": 4}, {"passes": 1}, {"allocations": 1}, {"failures": {"a.o": "no"}}):
        found = dataclasses.replace(fresh, **stale)
        assert (exit_code(config, found), exit_code(dataclasses.replace(config, strict=False), found)) == (1, 0)


def test_a_limit_of_a_program_names_it_by_path_or_by_name():
    built = built_of(**{"out/app": 900, "out/tests/app": 900})
    given: dict[str, Any] = {"max_bytes": None, "max_growth": None, "earlier": {"out/app": 800}}
    found = find_violations(built, bytes_of={"app": 899, "out/tests/app": 900}, growth_of={"app": 20.0}, **given)
    assert found == ("out/app: 900 bytes, 1 more than --max-bytes 899",)
    assert find_violations(built, bytes_of={"ap": 899}, **given) == (
        "ap: has a limit, and today's build does not link it",
    )


def test_find_violations_their_limits_are_named():
    built = built_of(app=900, tool=1010, broken=0)
    assert find_violations(built_of(app=900), max_bytes=900, max_growth=0.0, earlier={"app": 900}) == ()
    assert find_violations(built, max_bytes=1000, max_growth=None, earlier={}) == (
        "tool: 1,010 bytes, 10 more than --max-bytes 1,000",
        "broken: expected an image with the plugin, found none: no main",
    )
    assert find_violations(built, max_bytes=None, max_growth=0.5, earlier={"app": 899, "tool": 1000, "lib": 5}) == (
        "tool: 1,010 bytes, 1.00 % more than the 1,000 of --against; --max-growth is 0.5 %",
        "broken: expected an image with the plugin, found none: no main",
        "lib: today's build does not link it, and --against has it",
    )
    text = io.StringIO()
    found = dataclasses.replace(kept(), built=built, violations=("tool: too large",))
    assert not check_page(found).good
    print_page(check_page(found), Console(file=text, width=200))
    assert re.search(r"tool +1,000 +1,010 +\+10 +\+?1\.00 %", text.getvalue())
    assert "tool: too large" in text.getvalue()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"built": null}', '{"built": {"programs": [{"program": "a"}]}}'])
def test_what_has_no_programs_is_nothing_to_compare_with(text: str, tmp_path: Path):
    (tmp_path / "tuned.json").write_text(text)
    with pytest.raises(
        InputError, match=r"^--against .*tuned\.json: expected the JSON result of `mlgokit tune --build`"
    ):
        read_programs(tmp_path / "tuned.json")


def test_the_programs_of_a_check_are_compared_with_later(tmp_path: Path):
    found = dataclasses.replace(kept(), built=built_of(app=900))
    (tmp_path / "check.json").write_text(json.dumps(found.to_json()))
    assert read_programs(tmp_path / "check.json") == {"app": 900}


def test_a_program_that_was_not_linked_then_has_not_grown_since(tmp_path: Path):
    found = dataclasses.replace(kept(), built=built_of(app=900, tool=0))
    (tmp_path / "check.json").write_text(json.dumps(found.to_json()))
    earlier = read_programs(tmp_path / "check.json")
    assert earlier == {"app": 900}
    assert find_violations(built_of(app=900, tool=10), max_bytes=None, max_growth=0, earlier=earlier) == ()


def test_a_module_that_does_not_compile_today_is_not_gone(tmp_path: Path):
    calls = (ToyCall(caller="f", callee="g", site=8),)
    names = ("here", "fails", "left out", "gone")
    toys = {
        "here": ToyModule(calls=calls, weigh=lambda _: {"f": 10}),
        "fails": ToyModule(calls=calls, weigh=lambda _: {"h": 10}, fails=lambda _: "why"),
    }
    table = DecisionTable(
        entries=tuple(make_entry([index + 1], np.zeros(0, np.uint64), np.zeros(0, bool)) for index in range(4)),
        summary=TuningSummary(llvm=22, objective="link-aware", plain_bytes=40, tuned_bytes=40, modules=names),
    )
    found = check_plugin(
        [toy_source(name) for name in toys],
        toy_compiler(toys),
        tmp_path / "tuned.so",
        table,
        None,
        left_out={"left out": "#error"},
        report=say_nothing,
    )
    assert found.gone == ("here", "gone"), "the first has no function that the table knows"
    assert (found.left_out, [*found.failures]) == ({"left out": "#error"}, ["fails"])

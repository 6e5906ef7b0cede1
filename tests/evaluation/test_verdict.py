"""Whether to ship, from made-up changes."""

import dataclasses
from typing import Any

import pytest

from mlgokit.builds.images import BuiltImage
from mlgokit.builds.variant import PLAIN_VARIANT, make_variant
from mlgokit.errors import UsageError
from mlgokit.evaluation.compare import make_evaluation
from mlgokit.evaluation.records import (
    BuiltModule,
    CostComparison,
    Evaluation,
    ImageComparison,
    ModuleComparison,
    ProjectComparison,
    Sizes,
    Verdict,
)
from mlgokit.evaluation.verdict import VerdictRules, choose_measure, judge


def sizes(image: int) -> Sizes:
    return Sizes(objects=2 * image, link_aware=1.5 * image, text=image - 30, rodata=20, eh_frame=10, image=image)


def project(name: str, before: int, after: int, **given: Any) -> ProjectComparison:
    facts: dict[str, Any] = {
        "language": "c++",
        "modules": 1,
        "larger_modules": 0,
        "user_seconds_before": 1.0,
        "user_seconds_after": 1.0,
    }
    return ProjectComparison(project=name, before=sizes(before), after=sizes(after), **(facts | given))


def evaluation(*projects: ProjectComparison) -> Evaluation:
    return make_evaluation(projects, before=PLAIN_VARIANT, after=make_variant([":never"]), compilations=2)


def verdict(*projects: ProjectComparison, measure: str = "image", **rules: Any) -> Verdict:
    return judge(evaluation(*projects), VerdictRules(**rules), measure)


SMALLER = [project(name, 1000, after) for name, after in (("a", 970), ("b", 980), ("c", 990), ("d", 960))]


def test_all_smaller_ships():
    found = verdict(*SMALLER)

    assert found.ship
    assert found.reasons == ()
    assert found.sentence.startswith("Ship: Linked image -2.51 %, 95 % interval -3.")
    assert found.sentence.endswith(" over 4 projects, too narrow with fewer than 8.")


def test_one_project_that_grows_does_not_ship():
    found = verdict(*SMALLER, project("e", 10_000, 10_031))

    assert not found.ship
    assert found.reasons[0] == "Linked image grows by more than 0.3 % in e +0.31 %."
    assert verdict(*SMALLER, project("e", 10_000, 10_029), upper_end=1.0).ship
    assert verdict(*SMALLER, project("e", 10_000, 10_031), worst_project=0.4, upper_end=1.0).ship


def test_the_whole_interval_must_be_below():
    noisy = [project(name, 1000, after) for name, after in (("a", 900), ("b", 1002), ("c", 1001), ("d", 1000))]
    found = verdict(*noisy)

    assert not found.ship
    assert found.reasons[0].startswith("The interval's upper end is +0.")
    assert verdict(*noisy, upper_end=1.0).ship
    assert not verdict(*SMALLER, upper_end=-5.0).ship


def test_no_difference_does_not_ship():
    found = verdict(*(project(name, 1000, 1000) for name in "abcdefgh"))

    assert not found.ship
    assert found.reasons == ("The interval's upper end is 0.00 %, which is not below 0 %.",)


def test_a_single_project_is_judged_by_its_change():
    assert verdict(SMALLER[0]).ship
    assert verdict(SMALLER[0]).sentence == "Ship: Linked image -3.00 % (one project, so without an interval)."
    found = verdict(project("a", 1000, 1027))
    assert found.reasons == (
        "Linked image grows by more than 0.3 % in a +2.70 %.",
        "The change is +2.70 %, which is not below 0 %.",
    )


def test_new_failures_are_against_it_and_old_ones_are_not():
    def row(before: str, after: str) -> ModuleComparison:
        first, second = (
            BuiltModule(status="ok" if not reason else "failed", reason=reason) for reason in (before, after)
        )
        return ModuleComparison(module="m.cc.o", before=first, after=second)

    old = dataclasses.replace(SMALLER[0], module_rows=(row("error: no header", "error: no header"),))
    new = dataclasses.replace(SMALLER[0], module_rows=(row("", "error: crash"),))

    assert verdict(old, *SMALLER[1:]).ship
    assert verdict(new, *SMALLER[1:], new_failures=1).ship
    assert verdict(new, *SMALLER[1:]).reasons == (
        "1 compilations or links fail with :never alone: m.cc.o: error: crash.",
    )


def test_a_link_that_fails_on_the_judged_side_alone_is_against_it():
    image = ImageComparison(
        image="tool",
        before=BuiltImage(status="linked", image=1000),
        after=BuiltImage(status="failed", reason="undefined symbol: f"),
    )
    lost = project("a", 1000, 0, images=(image,), link_failure="after: failed: undefined symbol: f")
    found = verdict(lost, *SMALLER[1:])

    assert found.reasons == ("1 compilations or links fail with :never alone: tool: undefined symbol: f.",)


def test_a_build_that_ends_without_a_row_is_against_it():
    found = verdict(project("a", 0, 0, modules=0, link_failure="after: the build ended with 2: no rule"))

    assert found.reasons == (
        "a did not build: after: the build ended with 2: no rule.",
        "No project could be compared by Linked image.",
    )
    assert found.sentence == f"Do not ship: {' '.join(found.reasons)}"


def test_a_build_that_ends_is_against_it_whatever_else_both_builds_lack():
    row = BuiltModule(status="left_out", reason="the build has removed the object, so that it cannot be measured")
    rows = (ModuleComparison(module="a.o", before=row, after=row),)
    costs = CostComparison(functions=5, change=-0.1, cheaper=5, dearer=0, counts_before={}, counts_after={})
    lost = project("a", 1000, 900, costs=costs, module_rows=rows, link_failure="after: the build ended with 2: a test")
    found = verdict(lost, measure="cost")

    assert not found.ship
    assert found.reasons == ("a did not build: after: the build ended with 2: a test.",)


def test_register_allocation_is_judged_by_its_cost():
    costs = CostComparison(functions=9, change=-0.04, cheaper=5, dearer=1, counts_before={}, counts_after={})
    found = verdict(project("a", 1000, 1001, costs=costs), measure="cost")

    assert found.sentence == "Ship: Cost of register allocation -4.00 % (one project, so without an interval)."
    assert choose_measure(VerdictRules(), allocates_only=True) == "cost"
    assert choose_measure(VerdictRules(), allocates_only=False) == "image"
    assert choose_measure(VerdictRules(measure="text"), allocates_only=True) == "text"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"worst_project": float("nan")}, "--rules.worst-project: expected a percentage of at least -100, found nan"),
        ({"upper_end": -101.0}, "--rules.upper-end: expected a percentage of at least -100, found -101"),
        ({"new_failures": -1}, "--rules.new-failures: expected 0 or more, found -1; correct it"),
    ],
)
def test_impossible_rules_are_refused(rules: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        VerdictRules(**rules).check()

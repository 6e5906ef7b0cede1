"""The verdict on counted runs: what executes more is not published, nor what helps nothing, nor a program that grew."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlgokit.builds.images import LINKED, BuiltImage
from mlgokit.builds.recorded import TunedProgram
from mlgokit.builds.site import BuildCommands
from mlgokit.commands.tune_options import Tune, _check_runs
from mlgokit.compiler.run_costs import FunctionCosts
from mlgokit.errors import UsageError
from mlgokit.tune.runs import Runs

RUN, OTHER = "./app a", "./app b"


def runs_of(tuned: Mapping[str, FunctionCosts]) -> Runs:
    return Runs(
        plain={RUN: costs(1000), OTHER: costs(500)},
        held_out=frozenset({OTHER}),
        count=lambda command: tuned[command],
        counter="fake",
        growth=0.01,
    )


def costs(main: int, *, f: int = 0) -> FunctionCosts:
    """A run in which ``main`` calls ``f`` ten times."""
    return FunctionCosts(own={"main": main, "f": f}, calls={("main", "f"): 10} if f else {})


def program(plain: int, tuned: int, status: str = LINKED) -> TunedProgram:
    before, after = (BuiltImage(status=status, image=size) for size in (plain, tuned))
    return TunedProgram(program="app", plain=before, tuned=after)


def objection(run: int, other: int, *programs: TunedProgram) -> str:
    runs = runs_of({RUN: costs(run), OTHER: costs(other)})
    return runs.objection(runs.compare(runs.count_tuned()), programs)


def test_runs_are_counted_with_what_the_profile_knows():
    runs = runs_of({RUN: costs(900), OTHER: costs(490)})

    counted = runs.compare(runs.count_tuned())

    assert [(one.command, one.held_out, one.plain, one.tuned) for one in counted] == [
        (RUN, False, 1000, 900),
        (OTHER, True, 500, 490),
    ]


def test_fewer_instructions_within_the_bound_are_published():
    assert objection(900, 500, program(10_000, 10_100)) == ""
    assert objection(900, 500, program(10_000, 20_000, status="absent")) == ""


@pytest.mark.parametrize(
    ("run", "other", "said"),
    [
        (900, 501, "`./app b` executed 501 instructions with the plugin, 500 without it"),
        (1001, 400, "`./app a` executed 1,001 instructions with the plugin, 1,000 without it"),
        (1000, 500, "no run executed fewer instructions with the plugin"),
    ],
)
def test_what_executes_more_or_the_same_is_not(run: int, other: int, said: str):
    assert objection(run, other) == said


def test_a_program_that_grew_too_much_is_not():
    assert objection(900, 400, program(10_000, 10_101)) == (
        "app has 10,101 bytes with the plugin, 10,000 without it, which is more than 1.0% larger"
    )


def slower(plain: Mapping[str, FunctionCosts], tuned: Mapping[str, FunctionCosts]) -> set[str]:
    return dataclasses.replace(runs_of(tuned), plain=plain).functions_to_take_back(tuned, (), {"main": 0, "f": 0})


def test_functions_that_cost_more_over_all_profiled_runs_are_slower():
    plain = {RUN: costs(1000, f=1000), OTHER: costs(1000, f=1000)}

    assert slower(plain, {RUN: costs(900, f=1010), OTHER: costs(900, f=900)}) == {"f"}
    # What runs that the profile does not know execute decides only where they would become slower.
    assert slower(plain, {RUN: costs(900, f=1000), OTHER: costs(990, f=1005)}) == set()
    assert slower(plain, {RUN: costs(900, f=1000), OTHER: costs(1000, f=1005)}) == {"f"}


def test_of_a_slower_run_as_many_functions_are_slower_as_make_it_so():
    plain = {RUN: costs(1000, f=1000), OTHER: costs(1000, f=1000)}

    assert slower(plain, {RUN: costs(900, f=900), OTHER: costs(1010, f=1030)}) == {"f", "main"}
    assert slower(plain, {RUN: costs(700, f=900), OTHER: costs(999, f=1030)}) == {"f"}


def test_of_a_program_that_grew_too_much_those_functions_go_that_gain_the_least_for_their_bytes():
    plain = {RUN: costs(1000, f=1000), OTHER: costs(1000, f=1000)}
    tuned = {RUN: costs(800, f=900), OTHER: costs(1000, f=1000)}
    runs = dataclasses.replace(runs_of(tuned), plain=plain)

    assert runs.functions_to_take_back(tuned, [program(10_000, 10_130)], {"main": 50, "f": 50}) == {"f"}
    assert runs.functions_to_take_back(tuned, [program(10_000, 10_190)], {"main": 50, "f": 50}) == {"f", "main"}
    assert runs.functions_to_take_back(tuned, [program(10_000, 10_100)], {"main": 50, "f": 50}) == set()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (Tune(run=(RUN,)), "--run: expected --objective instructions with it, found image; change"),
        (Tune(held_out=(RUN,)), "--held-out: expected --objective instructions with it, found image; change"),
        (Tune(objective="instructions", run=(RUN,)), "expected --build and --run .* found no --build; add it"),
        (
            Tune(objective="instructions", built=BuildCommands(build=("make",), build_folder=Path())),
            "expected --build and --run .* found no --run; add it",
        ),
        (
            Tune(objective="instructions", built=BuildCommands(build=("make",)), run=(RUN,), growth=-0.1),
            "--growth: expected a share of at least 0, such as 0.01, found -0.1; correct it",
        ),
        (
            Tune(objective="instructions", built=BuildCommands(build=("make",)), run=(RUN,), run_seconds=0),
            "--run-seconds: expected a number above 0, found 0; correct it",
        ),
    ],
)
def test_calls_without_what_proves_them_are_refused(call: Tune, said: str):
    with pytest.raises(UsageError, match=said):
        _check_runs(call)

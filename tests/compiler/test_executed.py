"""What functions execute by a profile: entries times instructions, and COMDAT functions where they are called."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus, PassChanges, read_pass_changes
from mlgokit.compiler.executed import INSTRUCTION_WORTH, count_executed
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, project_image_estimate
from mlgokit.compiler.request import PLAIN, CompileRequest, PluginUse
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source

GROUPS = {"shared": "shared", "inner": "inner"}


def done(
    bytes_of: Mapping[str, int],
    *,
    entries: Mapping[str, float],
    executed: Mapping[str, float],
    calls: Mapping[str, Mapping[str, float]] | None = None,
) -> Compilation:
    changes = PassChanges(keys={}, changed={}, executed=executed, entries=entries, calls=calls or {})
    signatures = {name: group for name, group in GROUPS.items() if name in bytes_of}
    return Compilation(status=CompileStatus.OK, sizes=toy_sizes(bytes_of, signatures=signatures), changes=changes)


PLAIN_BUILD = done(
    {"main": 100, "shared": 50, "cold": 50},
    entries={"main": 10, "shared": 1000},
    executed={"main": 20, "shared": 8, "cold": 30},
    calls={"main": {"shared": 600, "puts": 10}},
)
"""Other modules call ``shared`` 400 times."""
INLINED = done(
    {"main": 140, "shared": 50, "cold": 50},
    entries={"main": 10, "shared": 400},
    executed={"main": 20 + 60 * 6, "shared": 8, "cold": 30},
    calls={"main": {"puts": 10}},
)
"""In each of 60 calls that ``main`` makes at a time, 6 instructions are left of 8."""


def compiler_of(builds: Mapping[bool, Compilation]) -> FakeCompiler:
    """Compiles plainly, and otherwise if there is a table of decisions."""

    def compile_one(_: Module, request: CompileRequest) -> Compilation:
        return builds[request.use is not None and bool(request.use.decisions)]

    return FakeCompiler(answer=compile_one)


def cost_of(sizes: ObjectSizes) -> dict[str, float]:
    assert sizes.run_cost is not None
    return dict(zip(sizes.function_names, sizes.run_cost.tolist(), strict=True))


def test_a_percent_of_the_instructions_is_worth_the_image():
    counting = count_executed(compiler_of({False: PLAIN_BUILD, True: INLINED}), [toy_source("m")], report=say_nothing)
    price = INSTRUCTION_WORTH * 200 / (10 * 20 + 600 * 8)

    plain = counting.compile(toy_source("m"), PLAIN)

    assert counting.price == pytest.approx(price)
    assert cost_of(plain.measured) == pytest.approx({"main": price * 5000, "shared": 0, "cold": 0})
    assert PLAIN_BUILD.measured.run_cost is None


def test_what_is_inlined_of_a_comdat_function_counts_in_the_caller_alone():
    counting = count_executed(compiler_of({False: PLAIN_BUILD, True: INLINED}), [toy_source("m")], report=say_nothing)
    request = CompileRequest(use=PluginUse(decisions=b"some"))

    costs = cost_of(counting.compile(toy_source("m"), request).measured)

    assert costs == pytest.approx({"main": counting.price * 10 * 380 + 40, "shared": 0, "cold": 0})


def test_a_comdat_function_counts_by_how_its_cost_changes():
    slower = dataclasses.replace(
        PLAIN_BUILD,
        changes=PassChanges(
            keys={}, changed={}, executed={"main": 20, "shared": 9}, entries={"main": 10, "shared": 1000}
        ),
    )
    counting = count_executed(compiler_of({False: PLAIN_BUILD, True: slower}), [toy_source("m")], report=say_nothing)
    request = CompileRequest(use=PluginUse(decisions=b"some"))

    assert cost_of(counting.compile(toy_source("m"), request).measured)["shared"] == pytest.approx(
        1000 * counting.price
    )


def test_functions_that_the_plain_build_had_inlined_cost_what_they_call_as_well():
    apart = done(
        {"main": 60, "shared": 50, "inner": 20, "cold": 50},
        entries={"main": 10, "shared": 1000, "inner": 3000},
        executed={"main": 15, "shared": 3, "inner": 4, "cold": 30},
        calls={"main": {"shared": 600, "outer": 10}, "shared": {"inner": 2000}, "inner": {}},
    )
    counting = count_executed(compiler_of({False: PLAIN_BUILD, True: apart}), [toy_source("m")], report=say_nothing)
    request = CompileRequest(use=PluginUse(decisions=b"some"))

    costs = cost_of(counting.compile(toy_source("m"), request).measured)

    assert costs["main"] == pytest.approx(counting.price * (10 * 15 + 600 * 8))
    assert costs["shared"] == pytest.approx(counting.price * 1000 * (3 + 2 * 4 - 8))
    assert costs["inner"] == 20


def test_the_account_counts_what_each_module_executes():
    counting = count_executed(compiler_of({False: PLAIN_BUILD, True: INLINED}), [toy_source("m")], report=say_nothing)
    sizes = counting.compile(toy_source("m"), PLAIN).measured
    account = account_of(["m", "n"], {"m": sizes, "n": sizes}, objective=Objective.EXECUTED)

    by_objects = project_image_estimate([sizes, sizes], objective=Objective.EXECUTED)

    assert account.image == pytest.approx(by_objects)
    assert by_objects == pytest.approx(2 * INSTRUCTION_WORTH * 200)
    assert project_image_estimate([sizes, sizes]) == 200 + 150


def test_requests_list_and_decide_at_any_level_but_not_in_trials():
    fake = compiler_of({False: PLAIN_BUILD, True: INLINED})
    counting = count_executed(fake, [toy_source("m")], report=say_nothing)
    counting.compile(toy_source("m"), CompileRequest(use=PluginUse(decisions=b"some")))
    counting.compile(toy_source("m"), CompileRequest(use=PluginUse(plugin=Path("tuned.so"))))
    counting.compile(toy_source("m"), PLAIN)

    uses = [request.use for _, request in fake.asked[1:]]
    assert [(use.list_changes, use.any_level) for use in uses[:2] if use is not None] == [(True, True), (True, False)]
    assert uses[2] is None


def test_without_a_profile_there_is_nothing_to_count():
    nothing = done({"main": 100}, entries={}, executed={"main": 20})

    with pytest.raises(CorpusError, match="expected modules compiled with a profile of a run, found none of 1"):
        count_executed(compiler_of({False: nothing, True: nothing}), [toy_source("m")], report=say_nothing)


def test_counts_are_read_from_the_list_of_passes(tmp_path: Path):
    path = tmp_path / "list"
    path.write_text("function 00000000000000aa main\nentries 12 main\ncalls 7 f g\nentries 3 f g\nexecuted 5.5 main\n")

    found = read_pass_changes(path)

    assert found.entries == {"main": 12, "f g": 3}
    assert found.calls == {"main": {"f g": 7}, "f g": {}}
    assert found.executed == {"main": 5.5}

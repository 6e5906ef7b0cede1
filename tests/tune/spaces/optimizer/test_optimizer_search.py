"""The search over passes of the optimizer, the compiler being a table: what is kept, composed, refused and gone on."""

import dataclasses
import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus, PassChanges, decode_decisions, read_pass_changes
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.trials import Overrides, pass_number
from mlgokit.errors import InputError
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.tables.overrides import EACH_TIME, OPTIMIZER_PASSES, LeftOut, group_by_function, read_overrides
from mlgokit.testing import FakeCompiler, ToyCall, toy_log, toy_sizes, toy_source
from mlgokit.tune.loop import NOTHING_LEFT, run_search
from mlgokit.tune.spaces.optimizer.opening import OptimizerSearch, open_optimizer
from mlgokit.tune.spaces.optimizer.state import COMPOSED, PassBuild, left_out_of, load_left_out, save_left_out
from mlgokit.tune.spaces.optimizer.step import EXCLUDED, FIRST, PassStep, moves_of
from mlgokit.tune.verify import Verifier

NAMES: tuple[str, ...] = ("f", "g", "h", "i")
KEYS = {name: 100 + place for place, name in enumerate(NAMES)}
CALLS = (ToyCall(caller="h", callee="g", site=2, default=True),)
GVN, LICM = pass_number("GVNPass"), pass_number("LICMPass")
Weigh = Callable[[set[LeftOut]], tuple[Mapping[str, int], Mapping[str, float]]]
"""The bytes of each function, and what it executes."""


@dataclass(slots=True)
class Toy:
    """A project of which each module has all functions, under keys of its own.

    ``larger`` is a module in other code, in which a pass left out costs ``costs``; ``lacking`` is without one function.
    """

    weigh: Weigh
    folder: Path
    modules: tuple[Module, ...] = (toy_source("m"),)
    slowdown: float = 0.0
    start: Mapping[int, Overrides] | None = None
    offsets: Mapping[str, int] | None = None
    larger: str = ""
    lacking: str = ""
    costs: int = 0
    workers: int = 1
    at_once: int = 0
    most_at_once: int = 0

    def compile(self, module: Module, request: CompileRequest) -> Compilation:
        use = request.use
        assert use is not None
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.01 * (self.workers > 1))
        self.at_once -= 1
        table = self.folder / f"table-{threading.get_ident()}"
        table.write_bytes(use.optimizer_passes)
        left_out = left_out_of(read_overrides(OPTIMIZER_PASSES, table).by_key) if use.optimizer_passes else frozenset()
        offset = 0 if self.offsets is None else self.offsets[module.name]
        mine = {(key - offset, number, nth) for key, number, nth in left_out}
        sizes, executed = self.weigh(mine)
        more = (50 + self.costs * bool(mine)) * (module.name == self.larger)
        there = [name for name in NAMES if (module.name, name) != (self.lacking, "i")]
        sizes = {name: sizes[name] + more * (name == "i") for name in there}
        ran = {
            key + offset: tuple(
                (name, nth)
                for name, nth in (("GVNPass", 0), ("GVNPass", 1), ("LICMPass", 0), ("LCSSAPass", 0))
                if not {(key, pass_number(name), nth), (key, pass_number(name), EACH_TIME)} & mine
            )
            for key in (KEYS[name] for name in there)
        }
        return Compilation(
            status=CompileStatus.OK,
            sizes=toy_sizes(sizes),
            decisions=decode_decisions(toy_log(CALLS, (True,))),
            changes=PassChanges(keys={name: KEYS[name] + offset for name in there}, changed=ran, executed=executed),
            user_seconds=1.0,
        )

    def open(self) -> OptimizerSearch:
        decisions = self.folder / "decisions"
        decisions.write_bytes(b"")
        verifier = Verifier(
            compiler=FakeCompiler(answer=self.compile),
            modules=self.modules,
            output=self.folder / "out.so",
            search_folder=self.folder,
            inside={"decisions": decisions},
            report=say_nothing,
        )
        return open_optimizer(
            verifier, objective=Objective.LINK_AWARE, slowdown=self.slowdown, folder=self.folder,
            start=self.start or {}, seed=1, report=say_nothing,
        )  # fmt: skip

    def search(self) -> OptimizerSearch:
        found = self.open()
        clock = itertools.count()
        run_search(found, seconds=1e6, workers=self.workers, report=say_nothing, clock=lambda: float(next(clock)))
        return found


def weigh(left_out: set[LeftOut]) -> tuple[Mapping[str, int], Mapping[str, float]]:
    """GVN makes f larger the second time, and g, which is inlined into h; LICM makes i larger, and faster."""
    sizes, executed = dict.fromkeys(NAMES, 100), dict.fromkeys(NAMES, 10.0)

    def without(name: str, number: int, nth: int) -> bool:
        return bool({(KEYS[name], number, nth), (KEYS[name], number, EACH_TIME)} & left_out)

    sizes["f"] += 30 * without("f", GVN, 0) - 20 * without("f", GVN, 1)
    sizes["g"] -= 5 * without("g", GVN, 0)
    sizes["h"] -= 5 * without("g", GVN, 0) - 8 * without("h", GVN, 0)
    sizes["i"] -= 40 * without("i", LICM, 0)
    executed["i"] += without("i", LICM, 0)
    return sizes, executed


def test_what_pays_is_left_out_where_it_pays_and_nothing_executes_more(tmp_path: Path):
    found = Toy(weigh, tmp_path).search()

    assert found.ended == NOTHING_LEFT
    assert found.space.account.image == 400 - 20 - 10
    left = found.space.left_out()
    assert (KEYS["f"], GVN, 1) in left
    assert {key for key, _, _ in left} == {KEYS["f"], KEYS["g"]} == set(found.space.entries())
    assert (found.space.score.value, found.space.score.change) == (370.0, pytest.approx(-0.075))
    assert found.space.tried_functions == {key for unit in found.space.units for key in unit.allowed}

    table = tmp_path / "kept"
    found.space.write(table, {KEYS["g"]})
    written = read_overrides(OPTIMIZER_PASSES, table)
    assert set(written.by_key) == {KEYS["g"]}
    assert written.summary is not None
    assert (written.summary.plain_score, written.summary.tuned_score) == (400.0, 370.0)


@pytest.mark.parametrize("workers", [2, 5])
def test_several_workers_try_moves_of_one_module_and_find_the_same(workers: int, tmp_path: Path):
    toy = Toy(weigh, tmp_path, workers=workers)

    found = toy.search()

    assert toy.most_at_once > 1
    assert found.ended == NOTHING_LEFT
    assert found.space.account.image == 370
    assert {key for key, _, _ in found.space.left_out()} == {KEYS["f"], KEYS["g"]}
    unit = found.space.units[0]
    assert (unit.climb.claimed, unit.climb.is_confirming, unit.climb.composed_steps) == (set(), False, 0)
    assert unit.current is unit.confirmed


def test_of_steps_under_way_together_the_better_change_of_a_function_stays(tmp_path: Path):
    space = Toy(weigh, tmp_path, slowdown=math.inf).open().space
    unit, rng = space.units[0], np.random.default_rng(1)
    proposed = [space.propose(unit, rng, lambda: False) for _ in range(2)]
    assert space.urgency(unit, 1) is not None
    steps = [propose() for propose in proposed]
    assert not steps[0].made & steps[1].made
    assert unit.climb.claimed == steps[0].made | steps[1].made
    # Both leave LICM out of i, the first or each time.
    assert all({(KEYS["i"], LICM, 0), (KEYS["i"], LICM, EACH_TIME)} & step.made for step in steps)

    space.accept(unit, steps[0])
    first = unit.current.left_out
    space.accept(unit, steps[1])

    # Whatever each made, the module is composed of what the functions weigh so.
    assert unit.climb.composed_steps > 0
    assert not unit.climb.claimed
    left_out = unit.current.left_out
    assert unit.current.done.measured.totals.text == sum(weigh(set(left_out))[0].values())
    # The second is no better.
    assert [move for move in left_out if move[0] == KEYS["i"]] == [move for move in first if move[0] == KEYS["i"]]


def confirmed_beside(folder: Path) -> tuple[OptimizerSearch, PassBuild, PassStep]:
    """A search in which a step gained while the composed build was compiled; that build, and its confirmation."""
    for seed in range(30):
        search = Toy(weigh, folder, slowdown=math.inf).open()
        space, rng = search.space, np.random.default_rng(seed)
        unit = space.units[0]
        space.accept(unit, space.propose(unit, rng, lambda: False)())
        promised = unit.current
        if not unit.climb.composed_steps:
            continue
        unit.climb.composed_steps = COMPOSED
        confirm, explore = (space.propose(unit, rng, lambda: False) for _ in range(2))
        assert unit.climb.is_confirming
        done = confirm()
        space.accept(unit, explore())
        if len({key for key, _, _ in unit.current.left_out}) > len({key for key, _, _ in promised.left_out}):
            return search, promised, done
    pytest.fail("no step gained twice")


def test_gains_beside_the_confirmation_of_a_composed_build_stay_on_top_of_it(tmp_path: Path):
    search, promised, confirmation = confirmed_beside(tmp_path)
    (unit,) = search.space.units
    both = unit.current.left_out

    search.space.accept(unit, confirmation)

    assert not unit.climb.is_confirming
    assert unit.confirmed.left_out == promised.left_out
    assert search.space.account.image == sum(weigh(set(promised.left_out))[0].values())
    assert (unit.current.left_out, unit.climb.composed_steps) == (both, 2)
    assert unit.current.done.measured.totals.text == sum(weigh(set(both))[0].values())


def test_a_composed_build_that_does_not_hold_takes_with_it_the_gains_on_top_of_it(tmp_path: Path):
    search, _, confirmation = confirmed_beside(tmp_path)
    (unit,) = search.space.units
    lost, first = unit.current.left_out, unit.confirmed

    search.space.accept(unit, dataclasses.replace(confirmation, explored=None))

    assert (unit.current, unit.confirmed, unit.climb.composed_steps) == (first, first, 0)
    assert lost & unit.tried
    assert lost - unit.tried, "moves in half of the functions may be made again"
    assert search.space.account.image == 400


def test_what_may_execute_more_is_left_out_too(tmp_path: Path):
    found = Toy(weigh, tmp_path, slowdown=math.inf).search()
    assert found.space.account.image == 330
    assert KEYS["i"] in found.space.entries()
    other = tmp_path / "other"
    other.mkdir()
    assert Toy(weigh, other, slowdown=0.2).search().space.account.image == 330


def test_functions_that_several_modules_have_are_left_alone(tmp_path: Path):
    modules = toy_source("m"), toy_source("n")
    toy = Toy(weigh, tmp_path, modules=modules, offsets={"m": 0, "n": 0}, lacking="n")
    found = toy.search()
    assert found.space.shared == len(NAMES) - 1
    assert not found.space.entries()

    toy.offsets = {"m": 0, "n": 1000}
    found = toy.search()
    assert set(found.space.entries()) == {KEYS["f"], KEYS["g"], 1000 + KEYS["f"], 1000 + KEYS["g"]}


def test_a_module_that_is_there_twice_is_searched_once_and_counts_twice(tmp_path: Path):
    alone = Toy(weigh, tmp_path).search()
    (tmp_path / "twice").mkdir()
    toy = Toy(weigh, tmp_path / "twice", modules=(toy_source("m"), toy_source("n")))
    found = toy.search()

    assert [unit.module.name for unit in found.space.units] == ["m"]
    assert found.space.shared == 0
    assert set(found.space.entries()) == set(alone.space.entries()) == {KEYS["f"], KEYS["g"]}
    assert found.space.account.image == 2 * alone.space.account.image
    assert toy.open().space.account.image == found.space.account.image, "gone on with"


def test_a_variant_of_a_module_is_compiled_with_what_paid_and_counts(tmp_path: Path):
    modules = toy_source("m"), toy_source("n"), toy_source("o"), toy_source("p")
    toy = Toy(weigh, tmp_path, modules=modules, larger="n")
    found = toy.search()

    (unit,) = found.space.units
    assert (unit.copies, [one.names for one in unit.variants]) == (("o", "p"), [("n",)])
    assert unit.names == ("m", "o", "p", "n")
    assert found.space.shared == 0
    assert set(found.space.entries()) == {KEYS["f"], KEYS["g"]}
    assert found.space.account.image == 4 * 370 + 50
    assert toy.open().space.account.image == found.space.account.image, "gone on with"


@pytest.mark.parametrize(("costs", "image"), [(10, 2 * 370 + 60), (100, 2 * 400 + 50)])
def test_what_costs_more_in_a_variant_than_it_saves_is_not_kept(costs: int, image: int, tmp_path: Path):
    toy = Toy(weigh, tmp_path, modules=(toy_source("m"), toy_source("n")), larger="n", costs=costs)
    found = toy.search()

    assert found.space.account.image == image
    assert bool(found.space.entries()) is (costs < 100)
    assert toy.open().space.account.image == image


def at_odds(left_out: set[LeftOut]) -> tuple[Mapping[str, int], Mapping[str, float]]:
    """As :func:`weigh`, but i is far larger once passes are left out of both f and g."""
    sizes, executed = weigh(left_out)
    both = {KEYS["f"], KEYS["g"]} <= {key for key, _, _ in left_out}
    return {**sizes, "i": 100 + 200 * both}, executed


@pytest.mark.parametrize("workers", [1, 3])
def test_components_that_meet_after_all_are_found_out(workers: int, tmp_path: Path):
    found = Toy(at_odds, tmp_path, workers=workers).search()

    # With several workers, both may be kept before either is seen with the other, and then both are put back.
    assert found.space.account.image < 400 + (workers > 1)
    assert found.space.account.image == sum(at_odds(set(found.space.left_out()))[0].values())


def test_of_moves_at_odds_those_in_half_of_the_functions_may_be_made_again(tmp_path: Path):
    space = Toy(at_odds, tmp_path).open().space
    (unit,) = space.units
    f, g = (KEYS["f"], GVN, 1), (KEYS["g"], GVN, 0)
    unit.current = dataclasses.replace(unit.current, left_out=frozenset({f, g}))
    unit.climb.composed_steps, unit.tried = 2, {f, g}
    (work,) = space.pending

    space.accept(unit, work.run())

    assert (unit.current.left_out, unit.climb.composed_steps, unit.tried) == (frozenset(), 0, {f})
    assert space.account.image == 400


def test_a_search_goes_on_and_begins_with_an_earlier_plugin_where_that_pays(tmp_path: Path):
    first = Toy(weigh, tmp_path).search()
    again = Toy(weigh, tmp_path).open()
    assert again.space.account.image == first.space.account.image == 370
    assert again.space.left_out() == first.space.left_out()

    other = tmp_path / "other"
    other.mkdir()
    better = group_by_function(frozenset({(KEYS["f"], GVN, 1), (7, GVN, 1)}))
    assert Toy(weigh, other, start=better).open().space.account.image == 380
    slow = group_by_function(frozenset({(KEYS["i"], LICM, 0)}))
    assert Toy(weigh, other, start=slow).open().space.account.image == 400
    assert Toy(weigh, other, start=slow, slowdown=1.0).open().space.account.image == 360


def test_what_pays_goes_on_where_one_function_may_no_longer_execute_as_much(tmp_path: Path):
    assert Toy(weigh, tmp_path, slowdown=math.inf).search().space.account.image == 330
    again = Toy(weigh, tmp_path).open()
    run_search(again, seconds=0, workers=1, report=say_nothing)
    assert again.space.account.image == 370
    assert {key for key, _, _ in again.space.left_out()} == {KEYS["f"], KEYS["g"]}
    assert Toy(weigh, tmp_path).open().space.account.image == 370


def test_kept_files_are_read_without_trust(tmp_path: Path):
    path, some = tmp_path / "kept.npz", frozenset({(2**63 + 5, GVN, EACH_TIME), (7, LICM, 0)})
    assert load_left_out(path) is None
    save_left_out(path, some)
    assert load_left_out(path) == some
    np.savez(path, key=np.array([7], np.uint64), question=np.array([[1, EACH_TIME + 1]]))
    with pytest.raises(InputError, match="what the search knows of a module's passes, found a damaged file"):
        load_left_out(path)
    assert left_out_of(group_by_function(some)) == some


@pytest.mark.parametrize(
    "text", ["function xyz f\n", "changed 7 GVNPass 0\n", "function 7 f\nchanged 7 GVNPass x\n", "odd\n"]
)
def test_a_list_of_passes_is_read_or_refused(text: str, tmp_path: Path):
    path = tmp_path / "changed"
    path.write_text(
        "function 0f a name\nfunction 8 g\nchanged f GVNPass 2\nchanged f LICMPass 0\nexecuted 2.5 a name\n"
    )
    found = read_pass_changes(path)
    assert found.keys == {"a name": 15, "g": 8}
    assert found.changed == {15: (("GVNPass", 2), ("LICMPass", 0)), 8: ()}
    assert found.executed == {"a name": 2.5}
    path.write_text(text)
    with pytest.raises(InputError, match=r"list of passes .*: expected functions, and passes that changed them"):
        read_pass_changes(path)


def test_no_pass_that_stays_in_is_tried_first():
    assert not set(FIRST) & set(EXCLUDED)
    assert len({pass_number(name) for name in (*FIRST, *EXCLUDED)}) == len(FIRST) + len(EXCLUDED)


def test_an_attribute_is_taken_once_and_passes_also_each_time(tmp_path: Path):
    found = Toy(weigh, tmp_path).open()
    (unit,) = found.space.units
    ran = {KEYS["f"]: (("minsize", 0), ("GVNPass", 3), ("LCSSAPass", 0))}
    done = dataclasses.replace(unit.current.done, changes=PassChanges(keys=KEYS, changed=ran, executed={}))
    unit.current = PassBuild(done=done, left_out=frozenset({(KEYS["g"], GVN, 0)}))

    moves, worth = moves_of(unit)

    assert moves == [
        (KEYS["f"], pass_number("minsize"), 0),
        (KEYS["f"], GVN, 3),
        (KEYS["f"], GVN, EACH_TIME),
        (KEYS["g"], GVN, 0),
    ]
    assert worth[0] == max(worth)
    assert worth[3] == min(worth)

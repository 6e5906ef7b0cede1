import dataclasses

import numpy as np
import pytest

from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, project_image_estimate
from mlgokit.testing import toy_sizes


def sizes(functions: dict[str, tuple[int, str | None]], rest: int = 0) -> ObjectSizes:
    """An object of functions with so many bytes of text, in the COMDAT group of that name or in none."""
    return toy_sizes(
        {name: size for name, (size, _) in functions.items()},
        signatures={name: group for name, (_, group) in functions.items() if group is not None},
        rest=rest,
    )


FIRST = sizes({"main": (100, None), "shared": (40, "shared")}, rest=7)
SECOND = sizes({"other": (50, None), "shared": (44, "shared"), "own": (5, "own")})
ORDER = ("a", "b")


def account(first: ObjectSizes = FIRST, second: ObjectSizes = SECOND, existence: float = 0.0):
    return account_of(ORDER, {"a": first, "b": second}, objective=Objective.LINK_AWARE, existence=existence)


def test_the_image_counts_each_signature_once_as_the_first_module_has_it():
    assert account().image == 100 + 40 + 7 + 50 + 5 == project_image_estimate([FIRST, SECOND])


def test_a_later_copy_weighs_nothing():
    smaller = sizes({"other": (50, None), "shared": (1, "shared"), "own": (5, "own")})
    assert account().module_bytes("b", smaller) == account().module_bytes("b", SECOND)


def test_a_module_that_stops_defining_what_it_was_first_to_define_answers_for_the_next_copy():
    without = sizes({"main": (100, None)}, rest=7)
    before = account()
    assert before.module_bytes("a", without) - before.module_bytes("a", FIRST) == 44 - 40
    before.put("a", without)
    assert before.image == project_image_estimate([without, SECOND])


def test_the_last_definer_saves_all_of_it():
    without = sizes({"other": (50, None)})
    alone = account(first=sizes({"main": (100, None)}))
    assert alone.module_bytes("b", without) - alone.module_bytes("b", SECOND) == -49


def test_existence_credits_a_step_towards_no_definer():
    without = sizes({"other": (50, None), "own": (5, "own")})
    found = account(existence=1.0)
    _, before, _ = found.functions("b", SECOND)
    _, after, _ = found.functions("b", without)
    assert before.sum() - after.sum() == pytest.approx(44 / 2)
    assert found.image == account().image


def test_functions_add_up_to_the_module():
    found = account()
    names, scores, rest = found.functions("a", FIRST)
    assert list(zip(names, scores.tolist(), strict=True)) == [("main", 100.0), ("shared", 40.0), ("shared", -44.0)]
    assert float(scores.sum()) + rest == found.module_bytes("a", FIRST)


def test_any_sequence_of_changes_keeps_the_account_exact():
    rng = np.random.default_rng(0)
    order = tuple("abcd")
    objects: dict[str, ObjectSizes] = {}
    for name in order:
        objects[name] = sizes({f"{name}0": (10, None), "s": (int(rng.integers(1, 50)), "s")})
    found = account_of(order, objects, objective=Objective.LINK_AWARE)
    for _ in range(60):
        name = str(rng.choice(order))
        drawn: dict[str, tuple[int, str | None]] = {f"{name}0": (int(rng.integers(1, 50)), None)}
        for group in ("s", "t", "u"):
            if rng.random() < 0.5:
                drawn[group] = (int(rng.integers(1, 50)), group)
        new = sizes(drawn)
        before, change = found.image, found.module_bytes(name, new) - found.module_bytes(name, found.sizes[name])
        found.put(name, new)
        assert found.image == pytest.approx(before + change)
        assert found.image == project_image_estimate([found.sizes[key] for key in order])


def test_other_objectives_count_what_they_say():
    unwind = dataclasses.replace(FIRST, function_eh_frame=np.array([9, 9], np.int64))
    text = account_of(ORDER, {"a": unwind, "b": SECOND}, objective=Objective.LINK_AWARE_TEXT)
    assert text.image == 100 + 40 + 7 + 50 + 5
    whole = account_of(ORDER, {"a": unwind, "b": SECOND}, objective=Objective.OBJECT_TEXT)
    assert whole.image == 100 + 40 + 18 + 7 + 50 + 44 + 5

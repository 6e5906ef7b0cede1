import re
from importlib import resources
from pathlib import Path

import pytest

from mlgokit.errors import UsageError
from mlgokit.problems import (
    DECIDED_PASSES,
    GENERATOR_PASSES,
    INLINE_SIZE,
    PASS_SELECTION,
    PROBLEMS,
    REGALLOC_EVICTION,
    REGALLOC_PRIORITY,
    Problem,
    column_count,
    header_defect,
)
from mlgokit.spec import DTYPES, AdviceKind, TensorSpec


def test_every_problem_is_listed_under_its_name():
    assert all(name == problem.name for name, problem in PROBLEMS.items())
    assert PROBLEMS["inline-size"] is INLINE_SIZE


def test_every_channel_says_where_it_is_once():
    llvms = [problem for problem in PROBLEMS.values() if problem.has_llvm_advisor]
    assert len(llvms) == 3
    for problem in llvms:
        for include_default in (True, False):
            options = problem.channel_for(22, include_default=include_default).options
            assert "".join(options).count("{base}") == 1
            assert all(option.startswith("-") for option in options)


def test_llvm_asks_nobody_about_passes_over_a_channel():
    with pytest.raises(
        UsageError, match=r"^pass-selection: expected .* found one that only the plugin decides; use a policy$"
    ):
        PASS_SELECTION.channel_for(22, include_default=True)


def test_what_is_asked_about_passes_is_what_the_plugin_has():
    sources = Path(str(resources.files("mlgokit"))) / "plugin" / "passes"
    features = [
        name
        for source in ("FunctionFeatures.cpp", "MachineFeatures.cpp")
        for name in re.findall(r"^  X\((\w+)\)", (sources / source).read_text(), re.MULTILINE)
    ]
    listed = re.search(r"StringRef Passes\[\] = \{(.*?)\}", (sources / "PassPolicy.cpp").read_text(), re.DOTALL)
    assert listed is not None
    passes = re.findall(r'"([\w=-]+)"', listed[1])

    assert passes == list(DECIDED_PASSES)
    first = re.search(r"FirstOfOptimizer = (\d+);", (sources / "PassPolicy.cpp").read_text())
    assert first is not None
    assert int(first[1]) == len(GENERATOR_PASSES)
    of_question = ["occurrence", "passes_left_out", *(f"pass:{name}" for name in passes)]
    assert PASS_SELECTION.feature_names == (*features, *of_question)


def test_the_default_decision_is_sent_on_request():
    option = "-inliner-interactive-include-default"
    assert option in INLINE_SIZE.channel_for(22, include_default=True).options
    assert option not in INLINE_SIZE.channel_for(22, include_default=False).options


def test_old_compilers_send_the_default_decision_in_the_place_of_a_feature():
    place = ("callee_basic_block_count", "inlining_default")
    assert INLINE_SIZE.channel_for(20, include_default=True).overwritten == place
    assert INLINE_SIZE.channel_for(21, include_default=True).overwritten is None
    assert INLINE_SIZE.channel_for(20, include_default=False).overwritten is None


def test_features_are_told_apart_from_decisions():
    for problem in PROBLEMS.values():
        assert len(set(problem.feature_names)) == len(problem.features)
        assert not {problem.decision, problem.default_decision} & set(problem.feature_names)


def test_inlining_for_size():
    assert INLINE_SIZE.advice_kind is AdviceKind.BINARY
    assert len(INLINE_SIZE.features) == 38


def test_features_have_types_and_a_choice_has_a_mask():
    for problem in PROBLEMS.values():
        assert {feature.type for feature in problem.features} <= set(DTYPES)
        assert (problem.mask is not None) == (problem.advice_kind is AdviceKind.MASKED_CHOICE)
        assert any(feature.per_column for feature in problem.features) == (problem.mask in problem.feature_names)
        assert problem.scores


def declared(problem: Problem, columns: int = 33) -> list[TensorSpec]:
    return [
        TensorSpec(name=feature.name, type=feature.type, shape=(1, columns) if feature.per_column else (1,))
        for feature in problem.features
    ]


@pytest.mark.parametrize("columns", [1, 2, 33, 64])
def test_the_header_says_how_many_columns_there_are(columns: int):
    features = declared(REGALLOC_EVICTION, columns)
    assert column_count(REGALLOC_EVICTION, features) == columns
    extra = TensorSpec(name="new", type="float", shape=(7, 7))
    assert header_defect(REGALLOC_EVICTION, [extra, *features], needed=REGALLOC_EVICTION.feature_names) is None


def test_one_sentence_for_what_does_not_fit():
    features = declared(REGALLOC_EVICTION, 33)
    assert header_defect(REGALLOC_EVICTION, features[1:3]) == (
        "regalloc-eviction: expected a feature 'mask' from the compiler, found is_free, nr_urgent; ask for what it has"
    )
    odd = TensorSpec(name="odd", type="float", shape=(32,))
    assert header_defect(REGALLOC_EVICTION, [*features, odd], needed=["odd"]) == (
        "regalloc-eviction: feature 'odd': expected 1 or 33 elements, found 32; ask for what it has"
    )
    advice = TensorSpec(name="index_to_evict", type="int64_t", shape=(1,))
    assert header_defect(REGALLOC_EVICTION, features, advice=advice) is None
    assert header_defect(REGALLOC_PRIORITY, declared(REGALLOC_PRIORITY), advice=advice) == (
        "regalloc-priority: expected the compiler to wait for 'priority' of one floating-point number, found "
        "'index_to_evict' of type int64_t and shape [1]; open the channel for the problem that it belongs to"
    )
